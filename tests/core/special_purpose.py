"""Addresses that other lists call special: what our own list must cover. Separated by white space."""

# IANA, "IPv4 Special-Purpose Address Registry" and "IPv6 Special-Purpose Address Registry" (RFC 6890 and later),
# every entry, those that are globally reachable included: none of them is a web site's.
IANA = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24
192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
255.255.255.255/32
::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:1::1/128
2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28
2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10
"""

# The ranges that the package microsoft-antissrf 1.0.0 recommends to deny (`recommended_v1`; MIT licence, Copyright (c)
# Microsoft Corporation, https://github.com/microsoft/AntiSSRF).
MICROSOFT = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
::1/128 ::/128 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48
3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
"""

# What a list made of registries alone misses: IPv4 inside IPv6 in its retired forms (RFC 4291 2.5.5.1, RFC 2765 2.1),
# and what belongs to nobody, where a network may have put its own.
BEYOND_THE_LISTS = """
::127.0.0.1 ::10.0.0.1 ::ffff:0:127.0.0.1 ::ffff:0:10.0.0.1 ::ffff:127.0.0.1 2606:4700::5efe:127.0.0.1
2606:4700::200:5efe:10.0.0.1 fec0::1 200::1 400::1 4000::1 8000::1 c000::1 e000::1 f000::1 f800::1 fe00::1
"""

# Where clouds tell a machine its secrets.
METADATA = """
169.254.169.254 169.254.170.2 169.254.170.23 169.254.0.23 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254
fd00:ec2::23 fd20:ce::254 fd00:42::42 fe80::a9fe:a9fe ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe
"""
