"""The one URL parser: the API parses with it at intake, the fetcher at each redirect.

WHATWG's rules (ada-url), so that `http://0x7f.1/` means here what it means to a browser, but stricter where those
rules repair a mistake in silence: what a person reading the URL and a machine fetching it could take for two hosts
is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import ada_url

MAX_URL_LENGTH: Final = 8192
"""Characters, given or serialised. RFC 9110 4.1 asks for 8,000 at least; most servers refuse more than 8 KiB."""
MAX_HOST_LENGTH: Final = 253
MAX_LABEL_LENGTH: Final = 63

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SHAPE: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class InvalidTarget(ValueError):
    """The URL cannot be a job's target; `str(error)` is a sentence for the caller."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in the one form in which it is stored, shown and fetched.

    `url` is WHATWG's serialisation without the fragment (never sent to a server, and two URLs that differ only
    there are one target). `host` is the politeness bucket: `name:port` in lower case, IDNA, IPv6 in brackets, the
    port always there and a root dot dropped, so that `example.com.` gets no second allowance.
    """

    url: str
    host: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def name(self) -> str:
        """The host alone, as it is looked up and as a certificate must name it: no brackets, no root dot."""
        return self.host.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    @property
    def authority(self) -> str:
        """The Host header's value: the port only where it is not the scheme's own."""
        return self.url.split("/", 3)[2]

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def request_target(self) -> str:
        """Path and query, as they stand in the request line."""
        return self.url[len(self.origin) :]


def parse_target(url: str, params: Mapping[str, object] | None = None) -> Target:
    """The target that `url` names, with `params` appended to its query.

    A parameter's value is a scalar, or a list of scalars (the name repeated). Raises InvalidTarget.
    """
    _check_text(url)
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        raise InvalidTarget("The URL is not valid.") from None
    parsed.hash = ""
    if params:
        added = "&".join(_encoded(params))
        parsed.search = f"{parsed.search}&{added}" if parsed.search else added
    if len(parsed.href) > MAX_URL_LENGTH:
        raise InvalidTarget(f"The URL is longer than {MAX_URL_LENGTH} characters.")
    return Target(url=parsed.href, host=_bucket(parsed))


def resolve_target(base: str, reference: str) -> Target:
    """The target a redirect's `reference` means when the answer came from `base`. Raises InvalidTarget."""
    try:
        joined = ada_url.join_url(base, reference)
    except ValueError:
        raise InvalidTarget("The URL is not valid.") from None
    return parse_target(joined)


def hosts_named(text: str) -> list[str]:
    """The hosts as they are stored that `text` names: with its port, or with each scheme's own where it has none.

    Raises InvalidTarget.
    """
    if any(mark in text for mark in "/?#"):
        raise InvalidTarget("Must be a host, with or without its port, and nothing else.")
    try:
        return sorted({parse_target(f"{scheme}://{text}/").host for scheme in _DEFAULT_PORTS})
    except InvalidTarget:
        raise InvalidTarget("Must be a host, with or without its port.") from None


def _check_text(url: str) -> None:
    """Refuse what the parser would repair: after it nobody could tell that the text was ambiguous."""
    if len(url) > MAX_URL_LENGTH:
        raise InvalidTarget(f"The URL is longer than {MAX_URL_LENGTH} characters.")
    if not _is_unicode(url):
        raise InvalidTarget("The URL is not valid Unicode.")
    if _CONTROL.search(url):
        raise InvalidTarget("The URL contains a control character.")
    if url != url.strip():
        raise InvalidTarget("The URL begins or ends with white space.")
    shape = _SHAPE.match(url)
    if shape is None or shape["scheme"].lower() not in _DEFAULT_PORTS:
        raise InvalidTarget("The URL must begin with http:// or https://.")
    _check_authority(shape["authority"])


def _check_authority(authority: str) -> None:
    if not authority or authority.startswith(":"):
        raise InvalidTarget("The URL has no host.")
    if "\\" in authority:
        raise InvalidTarget("The URL contains a backslash before its path.")
    if "@" in authority:
        raise InvalidTarget("The URL contains a user name or password.")
    if any(character.isspace() for character in authority):
        raise InvalidTarget("The URL's host contains white space.")
    if "%" in authority:
        raise InvalidTarget("The URL's host contains a percent sign (escapes and zone ids are not accepted).")


def _is_unicode(text: str) -> bool:
    """False for text with a lone surrogate, which no encoding on the wire can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bucket(parsed: ada_url.URL) -> str:
    port = int(parsed.port) if parsed.port else _DEFAULT_PORTS[parsed.protocol.rstrip(":")]
    if port == 0:
        raise InvalidTarget("The URL's port is 0.")
    name = parsed.hostname.removesuffix(".")
    if parsed.host_type == ada_url.HostType.DEFAULT:
        _check_name(name)
    return f"{name}:{port}"


def _check_name(name: str) -> None:
    """RFC 1035 2.3.4, which WHATWG leaves to the resolver."""
    labels = name.split(".")
    if not all(labels):
        raise InvalidTarget("The URL's host has an empty label.")
    if max(map(len, labels)) > MAX_LABEL_LENGTH:
        raise InvalidTarget(f"The URL's host has a label longer than {MAX_LABEL_LENGTH} characters.")
    if len(name) > MAX_HOST_LENGTH:
        raise InvalidTarget(f"The URL's host is longer than {MAX_HOST_LENGTH} characters.")


def _encoded(params: Mapping[str, object]) -> Iterator[str]:
    for name, value in params.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            yield f"{_quoted(name)}={_quoted(_text(item))}"


def _text(value: object) -> str:
    """A JSON scalar as it is written in a query: `true`, `false`, nothing for null, numbers as JSON writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidTarget("A query parameter must be a string, a number, true, false, null or a list of these.")


def _quoted(text: str) -> str:
    if not _is_unicode(text):
        raise InvalidTarget("A query parameter is not valid Unicode.")
    return quote(text, safe="")
