"""Benchmarks: `./dev bench [NAME]`, or `python -m bench` with the service's settings in the environment.

It stands on top of everything: it may import the apps and the development stack, and nothing imports it.
"""
