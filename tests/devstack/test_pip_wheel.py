"""pip is taken from an index only when its bytes are the pinned ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devstack.pip_wheel import WHEEL, NoPip, download


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """An index of one page, `pip/index.html`, which the test writes."""
    (tmp_path / "pip").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (f'<a href="../files/{WHEEL}#sha256=0">{WHEEL}</a>', "does not have the expected SHA-256"),
        ('<a href="../files/pip-1.0-py3-none-any.whl">old</a>', "does not list"),
        (f'<a href="../nowhere/{WHEEL}">{WHEEL}</a>', "cannot be read"),
    ],
)
def test_another_wheel_is_refused(index: str, tmp_path: Path, page: str, reason: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / WHEEL).write_bytes(b"not pip")
    (tmp_path / "pip" / "index.html").write_text(page, encoding="utf-8")
    with pytest.raises(NoPip, match=reason):
        download(tmp_path, index)
    assert not (tmp_path / WHEEL).exists()


def test_an_index_out_of_reach_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoPip, match=r"http://127\.0\.0\.1:1/simple/pip/ cannot be read"):
        download(tmp_path, "http://127.0.0.1:1/simple/")


def test_without_an_index_it_says_which_variable_names_one(tmp_path: Path) -> None:
    with pytest.raises(NoPip, match="PIP_INDEX_URL"):
        download(tmp_path, "")
