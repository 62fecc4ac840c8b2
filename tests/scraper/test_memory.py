"""What a body may cost the process that fetches it, whatever the body's size."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import brotli
import pytest
from backports import zstd

from tests.scraper.raw_server import RawServer

ROOT = Path(__file__).parents[2]
MIB = 2**20


def probe(server: RawServer, count: int, max_bytes: int, spool: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.scraper.memory_probe", server.url, str(count), str(max_bytes), str(spool)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_bombs_of_256_mib_cost_little_and_leave_nothing(coding: str, tmp_path: Path) -> None:
    with RawServer([{"headers_for_zeros": coding, "zeros": 256 * MIB}]) as server:
        result = probe(server, 4, 20 * MIB, tmp_path)
    assert result["codes"] == ["response_too_large"] * 4
    assert result["grown"] < 64
    assert list(tmp_path.iterdir()) == []


def brotli_zeros(size: int) -> bytes:
    stream = brotli.Compressor(quality=5, lgwin=24)
    return b"".join([stream.process(bytes(size)), stream.finish()])


def brotli_metadata(size: int) -> bytes:
    """A stream that yields nothing: one meta-block of metadata, up to 16 MiB, which is skipped (RFC 7932 9.2)."""
    header = 0b1111 | (3 << 5) | (3 << 8) | ((size - 1) << 10)  # WBITS 24; not last, MNIBBLES 0, reserved, 3 bytes
    return header.to_bytes(5, "little") + bytes(size) + b"\x03"


def zstd_zeros(size: int) -> bytes:
    return zstd.compress(bytes(size), options={zstd.CompressionParameter.window_log: 23})


@pytest.mark.parametrize(("coding", "body"), [("br", brotli_zeros(24 * MIB)), ("zstd", zstd_zeros(24 * MIB))])
def test_decoders_with_the_largest_windows_are_not_all_in_memory_at_once(
    coding: str, body: bytes, tmp_path: Path
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    with RawServer([{"send": head + body.decode("latin-1")}]) as server:
        result = probe(server, 20, 24 * MIB, tmp_path)
    assert result["bodies"] == [[24 * MIB, hashlib.sha256(bytes(24 * MIB)).hexdigest()]] * 20
    assert result["grown"] < 64
    assert list(tmp_path.iterdir()) == []


def test_nor_are_those_that_read_the_beginning_of_a_refusal(tmp_path: Path) -> None:
    inner = brotli_metadata(2**24)
    body = brotli.compress(inner, quality=5, lgwin=24)
    head = f"HTTP/1.1 404 X\r\nContent-Encoding: br, br\r\nContent-Length: {len(body)}\r\n\r\n"
    with RawServer([{"send": head + body.decode("latin-1")}]) as server:
        result = probe(server, 20, 24 * MIB, tmp_path)
    assert result["codes"] == ["http_404"] * 20
    assert result["grown"] < 64


def test_big_bodies_are_not_held_in_memory(tmp_path: Path) -> None:
    size = 40 * MIB
    steps: list[dict[str, Any]] = [
        {"send": f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"},
        {"send": "x" * MIB, "times": 40},
    ]
    with RawServer(steps) as server:
        result = probe(server, 8, size, tmp_path)
    expected = hashlib.sha256(b"x" * size).hexdigest()
    assert result["bodies"] == [[size, expected]] * 8
    assert result["grown"] < 8 * 2
