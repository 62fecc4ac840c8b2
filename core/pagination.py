"""Keyset cursors: opaque, signed, and good only for the tenant and the filters that they were made for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.signing import BadSignature, Signer

from core.errors import MalformedRequest


class InvalidCursor(MalformedRequest):
    """Altered, another tenant's, or used with other filters."""

    code: ClassVar[str] = "invalid_cursor"
    default_detail: ClassVar[str] = "The cursor is not valid for this list; begin again without one."


class Cursors:
    """Writes and reads the cursors of one list, as one tenant sees it with one set of filters."""

    def __init__(self, tenant_id: uuid.UUID, filters: Mapping[str, Any]) -> None:
        scope = json.dumps([str(tenant_id), filters], sort_keys=True, default=str)
        # The filters are in the key, not in the cursor: nobody can read them, and no comparison can be forgotten.
        self._signer = Signer(salt=f"query.cursor {scope}", sep=".")

    def write(self, last: uuid.UUID) -> str:
        """A cursor for what comes after the row `last`."""
        return self._signer.sign(last.hex)

    def read(self, cursor: str) -> uuid.UUID:
        """The row after which to go on. Raises InvalidCursor."""
        try:
            return uuid.UUID(self._signer.unsign(cursor))
        except (BadSignature, ValueError):
            raise InvalidCursor from None
