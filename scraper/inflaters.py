"""One interface over the decoders of three libraries: bounded output for each call, and one error."""

import zlib
from typing import Final, Protocol

import brotli
from backports import zstd

PIECE_BYTES: Final = 64 * 1024
"""What one call yields at most; brotli may exceed it by half."""
ZSTD_WINDOW_LOG: Final = 23
"""8 MiB: RFC 9659's limit for HTTP, and what one decoder may take in memory."""


class Corrupt(Exception):
    """The bytes are not what the coding allows."""


class Inflater(Protocol):
    """One member's decoder. `inflate(b"")` goes on with what the last call had no room for, while `pending`."""

    finished: bool
    pending: bool

    def inflate(self, data: bytes) -> bytes: ...
    def rest(self) -> bytes:
        """What came after the member's end."""


class ZlibInflater:
    def __init__(self, wbits: int) -> None:
        self._decoder = zlib.decompressobj(wbits)
        self.finished = False
        self.pending = False

    def inflate(self, data: bytes) -> bytes:
        try:
            output = self._decoder.decompress(self._decoder.unconsumed_tail + data, PIECE_BYTES)
        except zlib.error:
            raise Corrupt from None
        self.finished = self._decoder.eof
        self.pending = not self.finished and len(output) == PIECE_BYTES
        return output

    def rest(self) -> bytes:
        return self._decoder.unused_data


class BrotliInflater:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()
        self.finished = False
        self.pending = False

    def inflate(self, data: bytes) -> bytes:
        try:
            output: bytes = self._decoder.process(data, output_buffer_limit=PIECE_BYTES)
        except brotli.error:
            raise Corrupt from None
        self.finished = self._decoder.is_finished()
        # `can_accept_more_data` alone says yes while output is still waiting behind the limit.
        full = len(output) >= PIECE_BYTES or not self._decoder.can_accept_more_data()
        self.pending = full and not self.finished
        return output

    def rest(self) -> bytes:
        return b""


class ZstdInflater:
    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_LOG}
        self._decoder = zstd.ZstdDecompressor(options=options)
        self.finished = False
        self.pending = False

    def inflate(self, data: bytes) -> bytes:
        try:
            output = self._decoder.decompress(data, PIECE_BYTES)
        except zstd.ZstdError:
            raise Corrupt from None
        self.finished = self._decoder.eof
        self.pending = not self.finished and not self._decoder.needs_input
        return output

    def rest(self) -> bytes:
        return self._decoder.unused_data
