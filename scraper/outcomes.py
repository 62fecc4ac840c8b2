"""What goes into one attempt and what comes out: plain values, no behaviour of their own."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

from core.proxies import Proxy
from scraper.gates import NotNow

Evidence = dict[str, dict[str, str | None]]
"""`connection`: remote_address, http_version, tls_version; `charset`: bom, header, meta. None for what was not seen."""


class FetchFailed(Exception):
    """One attempt ends with `code` (contract section 5); `detail` is a sentence that the tenant may read.

    Leaves: BlockedTarget (egress.py), ProxyFailed (proxying.py), RobotsUnread (robots_reader.py). It never leaves
    `Fetcher.fetch`, which turns it into a FetchOutcome.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One attempt's order. `url` is a serialised Target; `headers` are the caller's own, in order."""

    url: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    deadline_seconds: float
    max_bytes: int
    follow_redirects: bool
    proxy: Proxy | None = None
    respect_robots: bool = False


@dataclass(slots=True)
class BodyFile:
    """A stored-as-decoded body: in memory up to 1 MiB, in an unnamed file beyond that, gone when closed.

    `file` stands at its first byte; `sha256` is in hex, `size` in bytes, both of what `file` holds.
    """

    file: IO[bytes]
    size: int
    sha256: str

    def head(self, size: int) -> bytes:
        """The first `size` bytes; `file` stands at its first byte before and after."""
        head = self.file.read(size)
        self.file.seek(0)
        return head

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(slots=True)
class FetchOutcome:
    """What one attempt saw. Success is a 2xx answer read to its end: then `error_code` is None and `body` is set."""

    error_code: str | None = None
    error_detail: str = ""
    http_status: int | None = None
    """Of the last answer that came, also when a later hop or its body failed."""
    final_url: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    """In order, duplicates kept, latin-1 (each byte one character, so never a lone surrogate or NUL); cut off
    after `KEPT_HEADER_BYTES` (answers.py)."""
    content_type: str = ""
    redirects: list[dict[str, object]] = field(default_factory=list)
    """`{"url", "status"}` of each answer that was followed, in order; not of the last one."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds. `dns`, `connect`, `tls`: sums over all hops, absent where none did it. `first_byte`: from the start
    to the first byte of the last answer. `total`: always there."""
    evidence: Evidence = field(default_factory=dict)
    """Empty where no hop got as far as a connection."""
    retry_after: str | None = None
    """The raw header of a 429 or 503."""
    body_snippet: str = ""
    """The first 2 KiB of a body that is not kept, for the attempt's record."""
    request_sent: bool = False
    """Whether a byte of a request may have reached any target: decides if a POST may be tried again."""
    robots_unread: bool = False
    """The attempt failed since the rules of a host on its way are not known."""
    body: BodyFile | None = None
    not_now: NotNow | None = None
    """Set when a hop's host may not be called for longer than the attempt can wait: nothing failed, it goes back."""
