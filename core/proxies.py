"""A proxy as a tenant or a job names it, and as it is kept: sealed, since its URL holds credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import ada_url
from django.conf import settings

from core.egress import rules_of
from core.sealing import SealBroken, seal, unseal

SCHEMES: Final = {"http": 80, "https": 443, "socks5": 1080}
"""With the port that a URL without one means."""
MAX_URL_LENGTH: Final = 2048
MAX_CREDENTIAL_BYTES: Final = 255
"""Of user name and password each: all that SOCKS5 has room for (RFC 1929 2)."""

_PURPOSE: Final = "proxy"
_SHAPE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/?#@]*)@)?([^/?#@\\%\s]+)/?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r":([0-9]{1,5})$")


class InvalidProxy(ValueError):
    """The URL names no proxy that can be used; `str(error)` is a sentence for the caller, without the URL."""


@dataclass(frozen=True, slots=True, repr=False)
class Proxy:
    """Where requests go through. Shown nowhere: neither the credentials nor the host appear in its text."""

    scheme: str
    name: str
    port: int
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<Proxy {self.scheme}>"

    @property
    def url(self) -> str:
        """The URL in one spelling. For `seal_proxy` alone."""
        userinfo = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}@" if self.has_credentials else ""
        return f"{self.scheme}://{userinfo}{bracketed(self.name)}:{self.port}"

    @property
    def has_credentials(self) -> bool:
        return bool(self.username or self.password)


def bracketed(name: str) -> str:
    """A host's name as it stands in front of a port (RFC 3986 3.2.2)."""
    return f"[{name}]" if ":" in name else name


def parse_proxy(url: str) -> Proxy:
    """The proxy that `url` names: scheme, host, perhaps a port and credentials, and nothing else. Raises InvalidProxy.

    The host follows the same rules as a target's (WHATWG), whatever the scheme.
    """
    if len(url) > MAX_URL_LENGTH:
        raise InvalidProxy(f"The proxy's URL is longer than {MAX_URL_LENGTH} characters.")
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        raise InvalidProxy("Must be scheme://host:port, with user:password@ before the host if need be.")
    scheme, userinfo, authority = shape[1].lower(), shape[2] or "", shape[3]
    if scheme == "socks5h":
        raise InvalidProxy("Write socks5: names are resolved and checked by this service, not by the proxy.")
    if scheme not in SCHEMES:
        raise InvalidProxy(f"Must begin with {', '.join(f'{name}://' for name in SCHEMES)}.")
    name, port = _place(authority, SCHEMES[scheme])
    username, password = _credentials(scheme, userinfo)
    return Proxy(scheme, name, port, username, password)


def _place(authority: str, usual_port: int) -> tuple[str, int]:
    try:
        parsed = ada_url.URL(f"http://{authority}/")
    except (ValueError, UnicodeEncodeError):
        raise InvalidProxy("The proxy's host or port is not valid.") from None
    written = _PORT.search(authority)
    port = int(written[1]) if written else usual_port
    name = parsed.hostname.removesuffix(".").strip("[]")
    if not name or port == 0 or (authority.endswith(":") and not written):
        raise InvalidProxy("The proxy's host or port is not valid.")
    return name, port


def _credentials(scheme: str, userinfo: str) -> tuple[str, str]:
    username, _, password = (_decoded(part) for part in userinfo.partition(":"))
    if ":" in username and scheme != "socks5":
        raise InvalidProxy("The proxy's user name must not hold a colon (RFC 7617 2).")
    if password and not username and scheme == "socks5":
        raise InvalidProxy("A password for a SOCKS5 proxy needs a user name (RFC 1929 2).")
    return username, password


def _decoded(text: str) -> str:
    try:
        plain = unquote_to_bytes(text).decode()
    except UnicodeError:  # a lone surrogate, or escapes that are no UTF-8
        raise InvalidProxy("The proxy's user name or password is not valid UTF-8.") from None
    if _CONTROL.search(plain):
        raise InvalidProxy("The proxy's user name or password holds a control character.")
    if len(plain.encode()) > MAX_CREDENTIAL_BYTES:
        raise InvalidProxy(f"The proxy's user name or password is longer than {MAX_CREDENTIAL_BYTES} bytes.")
    return plain


def check_proxy(proxy: Proxy) -> None:
    """Raises InvalidProxy for one that the egress guard would refuse whatever its name resolves to."""
    rules = rules_of(tuple(settings.EGRESS_ALLOW), tuple(settings.EGRESS_PORTS))
    if rules.refuses_unseen(proxy.name, proxy.port):
        raise InvalidProxy("The proxy's address or port is not one that this service may connect to.")


def seal_proxy(proxy: Proxy) -> str:
    """As it is kept in the database."""
    return seal(proxy.url, purpose=_PURPOSE)


def unseal_proxy(sealed: str) -> Proxy:
    """What `seal_proxy` kept. Raises InvalidProxy when it cannot be read any more, as after a change of SECRET_KEY."""
    try:
        return parse_proxy(unseal(sealed, purpose=_PURPOSE))
    except SealBroken:
        raise InvalidProxy("The proxy was kept under another SECRET_KEY; set it again.") from None
