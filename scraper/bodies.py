"""Where a response's body goes while it arrives: counted, hashed, in memory up to 1 MiB and on disk beyond."""

import hashlib
import tempfile
from typing import Final

from scraper.outcomes import BodyFile, FetchFailed

MEMORY_BYTES: Final = 1024 * 1024


class BodyWriter:
    """Takes a decoded body piece by piece. Its file is gone on `discard`, unless `finish` has handed it over.

    `directory`, when given, must be on a disk: a tmpfs would hold big bodies in memory after all.
    """

    def __init__(self, max_bytes: int, directory: str | None = None) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES, dir=directory)  # noqa: SIM115
        self._hash = hashlib.sha256()
        self._max_bytes = max_bytes
        self._size = 0

    def write(self, piece: bytes) -> None:
        """Raises FetchFailed (response_too_large) before the piece is written, so the cap holds on disk as well."""
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise too_large(self._max_bytes)
        self._hash.update(piece)
        self._file.write(piece)

    def finish(self) -> BodyFile:
        self._file.seek(0)
        return BodyFile(file=self._file, size=self._size, sha256=self._hash.hexdigest())

    def discard(self) -> None:
        self._file.close()


def too_large(max_bytes: int) -> FetchFailed:
    return FetchFailed("response_too_large", f"The response is larger than the job's limit of {max_bytes} bytes.")
