"""Content codings, undone while the body arrives: gzip, deflate, br, zstd, and several on top of each other.

Own code since libraries take a stream that stops early for a complete one, read only the first of several gzip members,
and decode a whole input piece at once, which is what a decompression bomb needs. Servers also label bodies with a
coding they do not have; those are kept as they came. Each step's output is bounded, in pieces and in total.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from scraper.bodies import too_large
from scraper.inflaters import BrotliInflater, Corrupt, Inflater, ZlibInflater, ZstdInflater
from scraper.outcomes import FetchFailed

HEAD_BYTES: Final = 256
"""How much of a body is looked at to tell a coding without a magic number from a false label."""
MAX_CODINGS: Final = 5
MAX_MEMBERS: Final = {"gzip": 100_000, "zstd": 10_000}
"""Of one body. Empty members produce nothing that a size cap could count, only work: 8 and 50 microseconds each."""
WINDOWED: Final = frozenset({"br", "zstd"})
"""Their decoders keep up to megabytes of what they yielded; gzip and deflate keep 32 KiB."""
BROTLI_WINDOW: Final = 16 * 1024 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_TEXT: Final = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\r\n")


class _Stage:
    """One coding undone. `feed` and `finish` yield pieces of about PIECE_BYTES at most, empty ones for work that made
    nothing. Raises FetchFailed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.produced = 0
        self._held = b""
        self._plain = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        return self._counted(self._feed(data))

    def finish(self) -> Iterator[bytes]:
        return self._counted(self._finish())

    def _feed(self, data: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _finish(self) -> Iterator[bytes]:
        raise NotImplementedError

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The cap holds for every stage, not only the last: `gzip, gzip` can hide a bomb that ends as nothing."""
        try:
            for piece in pieces:
                self.produced += len(piece)
                if self.produced > self._limit:
                    raise too_large(self._limit)
                yield piece
        except Corrupt:
            raise FetchFailed("invalid_response", "The body is not valid in its Content-Encoding.") from None


class _MemberStage(_Stage):
    """gzip and zstd: a magic number tells a false label at once, and members may follow each other."""

    def __init__(self, coding: str, limit: int) -> None:
        super().__init__(limit)
        self._gzip = coding == "gzip"
        self._max_members = MAX_MEMBERS[coding]
        self._inflater: Inflater | None = None
        self._members = 0
        self._ended = False

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._ended:
            if self._inflater is None:
                data = self._open(data)
            if self._inflater is None:
                yield data
                return
            yield from _drain(self._inflater, data)
            data = b""
            if self._inflater.finished:
                data = self._inflater.rest()
                self._inflater = None

    def _open(self, data: bytes) -> bytes:
        """Start a member if `data` begins one. Returns what is to be decoded, or where none began, to be kept."""
        if self._plain:
            return data
        head = self._held + data
        self._held = b""
        begins = self._begins_member(head)
        if begins is None:
            self._held = head
            return b""
        if begins:
            self._members += 1
            if self._members > self._max_members:
                raise Corrupt
            self._inflater = ZlibInflater(31) if self._gzip else ZstdInflater()
        elif self._members:
            self._ended = True  # padding after the last member: gzip(1) ignores it, and so do browsers
            return b""
        else:
            self._plain = True
        return head

    def _begins_member(self, head: bytes) -> bool | None:
        """None: too short to tell."""
        if self._gzip:
            return _has_prefix(head, _GZIP_MAGIC)
        if 0x50 <= head[0] <= 0x5F:
            return _has_prefix(head[1:], _ZSTD_SKIPPABLE)
        return _has_prefix(head, _ZSTD_MAGIC)

    def _finish(self) -> Iterator[bytes]:
        if self._inflater is not None or self._held:
            raise truncated()
        yield from ()


class _BareStage(_Stage):
    """deflate (with and without zlib's header) and br: nothing marks them, so a false label shows as bad bytes."""

    def __init__(self, coding: str, limit: int) -> None:
        super().__init__(limit)
        self._coding = coding
        self._inflater: Inflater | None = None

    def _feed(self, data: bytes) -> Iterator[bytes]:
        if self._plain:
            yield data
            return
        if self._inflater is None:
            data = self._held + data
            if len(data) < HEAD_BYTES:
                self._held = data
                return
            self._held = b""
            yield from self._begin(data)
        elif self._coding == "br" or not self._inflater.finished:  # br's decoder refuses what follows its end
            yield from _drain(self._inflater, data)

    def _begin(self, head: bytes) -> Iterator[bytes]:
        inflater = _bare_inflater(self._coding, head)
        first = b""
        try:
            first = inflater.inflate(head)
            unsure = not inflater.finished and _is_text(head)
        except Corrupt:
            unsure = True
        if unsure and _is_falsely_labelled(self._coding, head[:HEAD_BYTES]):
            self._plain = True
            yield head
            return
        if unsure:
            raise Corrupt
        self._inflater = inflater
        yield first
        yield from _rest(inflater)

    def _finish(self) -> Iterator[bytes]:
        if self._held:
            yield from self._begin(self._held)
        if self._inflater is not None and not self._inflater.finished:
            raise truncated()


class BodyDecoder:
    """Undoes what a Content-Encoding header says, as far as its codings are known, the last one first.

    `feed` each piece, then `finish`; both yield decoded pieces, some of them empty: whoever iterates can give way to
    others at each. Raises FetchFailed: incomplete_body, invalid_response,
    or response_too_large when any step yields more than `limit` bytes.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        codings = _codings(content_encoding)
        self._stages: Sequence[_Stage] = [_stage(coding, limit) for coding in codings]
        self._has_brotli = "br" in codings
        self.needs_window = not WINDOWED.isdisjoint(codings)

    @property
    def window(self) -> int:
        """Bytes of memory that the windows may take by the next piece. zstd's grows as it yields; brotli fills its own,
        up to 16 MiB, before it yields at all."""
        return BROTLI_WINDOW if self._has_brotli else sum(stage.produced for stage in self._stages)

    def decode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """All of a body that lies ready."""
        for piece in pieces:
            yield from self.feed(piece)
        yield from self.finish()

    def feed(self, data: bytes) -> Iterator[bytes]:
        return self._through(0, iter((data,)))

    def finish(self) -> Iterator[bytes]:
        for index, stage in enumerate(self._stages):
            yield from self._through(index + 1, stage.finish())

    def _through(self, start: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for stage in self._stages[start:]:
            pieces = _fed(stage, pieces)
        return pieces


def truncated() -> FetchFailed:
    return FetchFailed("incomplete_body", "The encoded body stops before its end.")


def _codings(content_encoding: str) -> list[str]:
    """The codings to undo, in that order: those before (so, inside) an unknown one stay as they are."""
    names = [name.strip().lower().removeprefix("x-") for name in content_encoding.split(",")]
    applied = [name for name in names if name not in ("", "identity")]
    if len(applied) > MAX_CODINGS:
        raise FetchFailed("invalid_response", f"The body has more than {MAX_CODINGS} content codings.")
    undone = []
    for name in reversed(applied):
        if name not in ("gzip", "zstd", "deflate", "br"):
            break
        undone.append(name)
    return undone


def _stage(coding: str, limit: int) -> _Stage:
    return _MemberStage(coding, limit) if coding in ("gzip", "zstd") else _BareStage(coding, limit)


def _fed(stage: _Stage, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if piece:
            yield from stage.feed(piece)
        else:
            yield piece


def _drain(inflater: Inflater, data: bytes) -> Iterator[bytes]:
    yield inflater.inflate(data)
    yield from _rest(inflater)


def _rest(inflater: Inflater) -> Iterator[bytes]:
    while inflater.pending:
        yield inflater.inflate(b"")


def _bare_inflater(coding: str, head: bytes) -> Inflater:
    if coding == "br":
        return BrotliInflater()
    has_zlib_header = len(head) > 1 and head[0] & 0x0F == 8 and (head[0] * 256 + head[1]) % 31 == 0
    return ZlibInflater(15 if has_zlib_header else -15)


def _is_falsely_labelled(coding: str, head: bytes) -> bool:
    """Whether `head`, the first bytes of a body that does not decode, are not in the coding at all.

    The other explanation is a damaged or cut body. Text, or an error before any output, speaks for a false label.
    """
    inflater = _bare_inflater(coding, head)
    produced = False
    try:
        for index in range(len(head)):
            produced = bool(inflater.inflate(head[index : index + 1])) or produced
            if inflater.finished:
                return False
    except Corrupt:
        return _is_text(head) or not produced
    return _is_text(head)


def _is_text(head: bytes) -> bool:
    return _TEXT.issuperset(head[:HEAD_BYTES])


def _has_prefix(head: bytes, magic: bytes) -> bool | None:
    if len(head) >= len(magic):
        return head.startswith(magic)
    return None if magic.startswith(head) else False
