"""pip from the index in PIP_INDEX_URL, for a Python that came without pip and without ensurepip (Debian has one).

Only the standard library may be imported here, as in `bootstrap.py`.
"""

from __future__ import annotations

import hashlib
import re
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

WHEEL = "pip-26.3-py3-none-any.whl"
SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
TIMEOUT_SECONDS = 60


class NoPip(Exception):
    """The wheel could not be had; the message says why."""


def download(folder: Path, index: str) -> Path:
    """Saves the wheel in `folder`. Raises NoPip, also when no index is named or the bytes are not the pinned ones."""
    if not index:
        raise NoPip("PIP_INDEX_URL names no package index to take it from.")
    page_url = f"{index.rstrip('/')}/pip/"
    try:
        page = _read(page_url).decode(errors="replace")
        link = re.search(rf'href="([^"#]*{re.escape(WHEEL)})["#]', page)
        if link is None:
            raise NoPip(f"{page_url} does not list {WHEEL}.")
        content = _read(urljoin(page_url, link[1]))
    except OSError as error:
        raise NoPip(f"{page_url} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise NoPip(f"{WHEEL} of {page_url} does not have the expected SHA-256.")
    path = folder / WHEEL
    path.write_bytes(content)
    return path


def _read(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "text/html"})  # noqa: S310  the index is the user's choice
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
        return bytes(answer.read())
