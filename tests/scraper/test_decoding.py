"""Content codings: whatever the pieces, all of the body or an error; never more than the cap."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
from backports import zstd
from hypothesis import assume, given
from hypothesis import strategies as st

from scraper.decoding import BodyDecoder
from scraper.inflaters import PIECE_BYTES
from scraper.outcomes import FetchFailed
from tests.scraper.raw_server import compressed_zeros

MIB = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "br": brotli.compress,
    "deflate": raw_deflate,
}


def decode(coding: str, data: bytes, step: int = PIECE_BYTES, limit: int = 64 * MIB) -> bytes:
    decoder = BodyDecoder(coding, limit)
    output = b"".join(b"".join(decoder.feed(data[at : at + step])) for at in range(0, len(data), step))
    return output + b"".join(decoder.finish())


codings = st.sampled_from(sorted(ENCODERS))
bodies = st.binary(max_size=4000) | st.text(max_size=500).map(str.encode)


@given(codings, bodies, st.integers(1, 300))
def test_what_was_encoded_comes_back_whatever_the_pieces(coding: str, body: bytes, step: int) -> None:
    assert decode(coding, ENCODERS[coding](body), step) == body


@given(st.lists(codings, min_size=1, max_size=5), bodies, st.integers(1, 300))
def test_several_codings_are_undone_in_reverse(applied: list[str], body: bytes, step: int) -> None:
    encoded = body
    for coding in applied:
        encoded = ENCODERS[coding](encoded)
    assert decode(", ".join(applied), encoded, step) == body


@given(st.sampled_from(["gzip", "zstd"]), st.lists(bodies, min_size=1, max_size=5), st.integers(1, 300))
def test_all_members_count(coding: str, members: list[bytes], step: int) -> None:
    assert decode(coding, b"".join(map(ENCODERS[coding], members)), step) == b"".join(members)


@given(codings, bodies, st.binary(min_size=1, max_size=50), st.integers(1, 300))
def test_what_follows_the_end_is_judged_alike_whatever_the_pieces(
    coding: str, body: bytes, trailing: bytes, step: int
) -> None:
    """gzip, zstd and deflate ignore it, unless it begins another member; br's decoder takes nothing behind its end."""
    encoded = ENCODERS[coding](body) + trailing
    assert judged(coding, encoded, step) == judged(coding, encoded, len(encoded))
    if coding == "deflate" or (coding == "gzip" and trailing[:1] != b"\x1f"):
        assert judged(coding, encoded, step) == body
    if coding == "br":
        assert judged(coding, encoded, step) == "invalid_response"


def judged(coding: str, data: bytes, step: int) -> bytes | str:
    try:
        return decode(coding, data, step)
    except FetchFailed as failure:
        return failure.code


@given(codings, st.binary(min_size=1, max_size=2000), st.data())
def test_a_cut_body_is_never_taken_for_a_whole_one(coding: str, body: bytes, data: st.DataObject) -> None:
    encoded = ENCODERS[coding](body)
    length = data.draw(st.integers(1, len(encoded) - 1))
    try:
        decoded = decode(coding, encoded[:length])
    except FetchFailed as failure:
        assert failure.code in ("incomplete_body", "invalid_response")  # noqa: PT017 - either a failure or the bytes
    else:  # so short that it is text to whoever looks at it: kept as it came, not passed off as decoded
        assert decoded == encoded[:length]
        assert coding in ("br", "deflate")


@given(st.sampled_from(["gzip", "zstd"]), st.text(max_size=400).map(str.encode), st.integers(1, 300))
def test_text_labelled_as_encoded_is_kept(coding: str, body: bytes, step: int) -> None:
    # So short that it could be the cut-off magic number of gzip or of a zstd frame, it counts as cut off.
    assume(len(body) >= 4 or body[:1] not in (b"\x1f", b"(", *(bytes([first]) for first in range(0x50, 0x60))))
    assert decode(coding, body, step) == body


@pytest.mark.parametrize("coding", sorted(ENCODERS))
@pytest.mark.parametrize(
    "body", [b"hello", b'{"a": [1, 2, 3]}', b"<!doctype html><p>x</p>", b"[]", b"OK", b"a,b\r\n1,2"]
)
@pytest.mark.parametrize("step", [1, 7, 65536])
def test_plain_pages_labelled_as_encoded_are_kept(coding: str, body: bytes, step: int) -> None:
    assert decode(coding, body, step) == body
    assert decode(coding, body * 400, step) == body * 400


@given(codings, st.binary(max_size=600), st.integers(1, 300))
def test_no_bytes_break_the_decoder(coding: str, garbage: bytes, step: int) -> None:
    try:
        decode(coding, garbage, step)
    except FetchFailed as failure:
        assert failure.code in ("incomplete_body", "invalid_response")  # noqa: PT017 - it may as well decode


@given(codings, st.binary(min_size=20, max_size=600), st.data())
def test_a_damaged_body_is_an_error_or_kept_but_breaks_nothing(coding: str, body: bytes, data: st.DataObject) -> None:
    encoded = bytearray(ENCODERS[coding](body))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode(coding, bytes(encoded))
    except FetchFailed:
        return
    if coding == "gzip":  # its checksum: damage that passes is in the magic number or the name, not in the content
        assert decoded in (body, bytes(encoded))


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_a_bomb_is_stopped_within_a_piece_of_the_cap(coding: str) -> None:
    pieces: list[int] = []
    with pytest.raises(FetchFailed, match="response_too_large"):
        note_sizes(BodyDecoder(coding, MIB), compressed_zeros(coding, 64 * MIB), pieces)
    assert MIB - 4 * PIECE_BYTES < sum(pieces) <= MIB
    assert max(pieces) <= 4 * PIECE_BYTES


def note_sizes(decoder: BodyDecoder, data: bytes, sizes: list[int]) -> None:
    for pieces in (decoder.feed(data), decoder.finish()):
        sizes.extend(map(len, pieces))


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_a_big_body_comes_in_pieces(coding: str) -> None:
    body = bytes(range(256)) * 20_000
    decoder = BodyDecoder(coding, len(body))
    pieces = [*decoder.feed(ENCODERS[coding](body)), *decoder.finish()]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 4 * PIECE_BYTES


def test_a_zstd_window_beyond_the_standard_is_refused() -> None:
    options = {int(zstd.CompressionParameter.window_log): 27, int(zstd.CompressionParameter.checksum_flag): 1}
    stream = zstd.ZstdCompressor(options=options)
    encoded = stream.compress(bytes(16 * MIB)) + stream.flush()
    with pytest.raises(FetchFailed, match="invalid_response"):
        decode("zstd", encoded)


@pytest.mark.parametrize("coding", ["zstd", "zstd, gzip", "gzip, zstd, gzip"])
def test_each_empty_member_lets_others_go_on(coding: str) -> None:
    body = b"\x50\x2a\x4d\x18\0\0\0\0" * 1000
    encoded = gzip.compress(body) if coding == "zstd, gzip" else body
    if coding == "gzip, zstd, gzip":
        encoded = gzip.compress(body + zstd.compress(gzip.compress(b"")))
    assert len(list(BodyDecoder(coding, MIB).feed(encoded))) >= 1000


def test_a_body_of_very_many_empty_members_is_refused() -> None:
    with pytest.raises(FetchFailed, match="invalid_response"):
        decode("zstd", b"\x50\x2a\x4d\x18\0\0\0\0" * 10_001)
