"""The answer to `GET /jobs/{id}`: the job's document as bytes, made once and sent many times.

Its ETag (RFC 9110, 8.8.3) is weak: a proxy that compresses the body on its way need not change it, and nobody asks
for parts of a job, which is all that a strong one would be good for.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.utils.http import parse_etags

from core.encoding import to_json_body
from core.views import CACHE_CONTROL


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """One job's document as it goes over the wire, whose it is, and the ETag that stands for it."""

    tenant_id: uuid.UUID
    etag: str
    body: bytes

    @classmethod
    def of(cls, tenant_id: uuid.UUID, document: Mapping[str, Any]) -> JobAnswer:
        """The answer that shows `document`."""
        body = to_json_body(document)
        return cls(tenant_id, f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"', body)

    def headers(self) -> dict[str, str]:
        """What the answer says of itself, with and without a body."""
        return {"ETag": self.etag, "Cache-Control": CACHE_CONTROL}

    def status_for(self, if_none_match: str | None) -> HTTPStatus:
        """304 for a caller who has this answer already (RFC 9110, 13.1.2), 200 for everybody else."""
        if not if_none_match:
            return HTTPStatus.OK
        if if_none_match.strip() == "*":
            return HTTPStatus.NOT_MODIFIED
        had = {tag.removeprefix("W/") for tag in parse_etags(if_none_match)}
        return HTTPStatus.NOT_MODIFIED if self.etag.removeprefix("W/") in had else HTTPStatus.OK
