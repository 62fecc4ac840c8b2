"""The kin of the handed cases: the same faults in other shapes. Same form as tests/cases/fetch_cases.json."""

import gzip
import zlib
from typing import Any

import brotli
from backports import zstd

Case = dict[str, Any]
MIB = 1024 * 1024


def ok(name: str, response: str, body: str, **more: Any) -> Case:
    return {"id": name, "steps": [{"send": response}], "expect": {"outcome": "succeeded", "body": body}, **more}


def bad(name: str, response: str, *codes: str, **more: Any) -> Case:
    outcome = "temporary or permanent"
    return {"id": name, "steps": [{"send": response}], "expect": {"outcome": outcome, "codes": codes}, **more}


def encoded(coding: str, body: bytes, extra: str = "") -> str:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head + body.decode("latin-1")


def chunked(body: str) -> str:
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


def with_length(value: str) -> str:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\nhello"


def redirect(location: str, status: str = "302 Found", extra: str = "") -> str:
    return f"HTTP/1.1 {status}\r\nLocation: {location}\r\n{extra}Content-Length: 0\r\n\r\n"


def arrives(name: str, response: str, request_line: str, **more: Any) -> Case:
    expect = {"outcome": "succeeded", "body_has": request_line}
    return {"id": name, "steps": [{"send": response}], "expect": expect, **more}


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
TEXT = b"hello world, " * 40
GZIP = gzip.compress(TEXT, mtime=0)
ZLIB = zlib.compress(TEXT)
ZSTD = zstd.compress(TEXT, options={zstd.CompressionParameter.checksum_flag: 1})

LENGTHS = [
    bad("length_plus", with_length("+5"), "invalid_response"),
    bad("length_hex", with_length("0x5"), "invalid_response"),
    bad("length_float", with_length("5.0"), "invalid_response"),
    bad("length_list_different", with_length("5, 6"), "invalid_response"),
    ok("length_list_same", with_length("5, 5"), "hello"),
    ok("length_leading_zeros", with_length("0005"), "hello"),
    bad("length_other_digits", with_length("\xb2"), "invalid_response"),
    bad("length_inner_space", with_length("5 5"), "invalid_response"),
    bad("length_over_cap", with_length("1000001"), "response_too_large", max_bytes=1_000_000),
    bad("length_absurd_19_digits", with_length("9" * 19), "response_too_large"),
    ok("length_at_cap", with_length("5"), "hello", max_bytes=5),
    bad("length_one_over_cap", with_length("5"), "response_too_large", max_bytes=4),
    ok("length_zero", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nextra", ""),
    ok("length_huge_on_head", with_length("99999999999"), "", method="HEAD"),
    bad("length_exponent", with_length("1e1"), "invalid_response"),
    bad("length_trailing_comma", with_length("5,"), "invalid_response"),
    bad("length_no_break_space", with_length("5\xa0"), "invalid_response"),
    bad("length_over_64_bits", with_length("18446744073709551621"), "response_too_large"),
    bad(
        "length_twice_padded",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\nhello",
        "invalid_response",
    ),
    ok("length_tabs_around", with_length("\t5\t"), "hello"),
    ok("length_folded", with_length("\r\n 5"), "hello"),
    ok("length_huge_on_204", "HTTP/1.1 204 No\r\nContent-Length: 99999999999\r\n\r\n", ""),
]

CHUNKS = [
    bad("chunk_size_negative", chunked("-5\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_size_prefixed", chunked("0x5\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_size_underscore", chunked("1_0\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_size_empty", chunked("\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_size_30_digits", chunked("f" * 30 + "\r\nhello"), "invalid_response"),
    bad("chunk_size_line_endless", chunked("5" + " " * MIB), "invalid_response"),
    bad("chunk_ends_in_size", chunked("5"), "incomplete_body"),
    bad("chunk_ends_in_footer", chunked("5\r\nhello\r"), "incomplete_body"),
    bad("chunk_ends_before_trailer_end", chunked("5\r\nhello\r\n0\r\n"), "incomplete_body"),
    bad("chunk_trailers_endless", chunked("5\r\nhello\r\n0\r\n" + "X-T: 1\r\n" * 40_000), "invalid_response"),
    bad("chunk_trailer_garbage", chunked("5\r\nhello\r\n0\r\ngarbage\r\n\r\n"), "invalid_response"),
    ok("chunk_size_upper_case", chunked("A\r\nhellohello\r\n0\r\n\r\n"), "hellohello"),
    ok("chunk_size_zero_padded", chunked("0005\r\nhello\r\n000\r\n\r\n"), "hello"),
    ok("chunk_extension", chunked('5;a=b;c="d"\r\nhello\r\n0\r\n\r\n'), "hello"),
    ok("chunk_bytes_after_end", chunked("5\r\nhello\r\n0\r\n\r\nHTTP/1.1 500 X\r\n\r\n"), "hello"),
    ok("chunk_single_bytes", chunked("1\r\nx\r\n" * 20_000 + "0\r\n\r\n"), "x" * 20_000),
    bad("chunked_over_cap", chunked("7D0\r\n" + "x" * 2000 + "\r\n0\r\n\r\n"), "response_too_large", max_bytes=1000),
    bad("chunk_framing_flood", chunked(("1;" + "a" * 60_000 + "\r\nx\r\n") * 40),
        "response_too_large", max_bytes=1000),
    bad("chunk_size_space_first", chunked(" 5\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_size_plus", chunked("+5\r\nhello\r\n0\r\n\r\n"), "invalid_response"),
    bad("chunk_lines_lf_only", chunked("5\nhello\n0\n\n"), "incomplete_body", "invalid_response"),
    ok("chunk_size_then_tab", chunked("5\t\r\nhello\r\n0\r\n\r\n"), "hello"),
    ok("chunk_extension_5kb", chunked("5;" + "a" * 5000 + "\r\nhello\r\n0\r\n\r\n"), "hello"),
    ok("chunked_upper_case", chunked("5\r\nhello\r\n0\r\n\r\n").replace("chunked", "CHUNKED"), "hello"),
    ok("chunked_by_http10", chunked("5\r\nhello\r\n0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0"), "hello"),
    bad("transfer_encoding_identity", chunked("hello").replace("chunked", "identity"), "invalid_response"),
    bad("transfer_encoding_gzip_chunked", chunked("").replace("chunked", "gzip, chunked"), "invalid_response"),
    bad("transfer_encoding_xchunked", chunked("").replace("chunked", "xchunked"), "invalid_response"),
    bad("transfer_encoding_two_headers", chunked("").replace("\r\n\r\n", "\r\nTransfer-Encoding: identity\r\n\r\n"),
        "invalid_response"),
    bad("transfer_encoding_gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", "invalid_response"),
    bad("transfer_encoding_twice", "HTTP/1.1 200 OK\r\n" + "Transfer-Encoding: chunked\r\n" * 2 + "\r\n",
        "invalid_response"),
]  # fmt: skip

BAD_STATUS_LINES = {
    "tab": "HTTP/1.1\t200 OK",
    "two_spaces": "HTTP/1.1  200 OK",
    "minus": "HTTP/1.1 -20 OK",
    "other_digits": "HTTP/1.1 2\xb20 OK",
    "nul": "HTTP/1.1 200 O\0K",
    "space_first": " HTTP/1.1 200",
    "byte_order_mark": "\xef\xbb\xbfHTTP/1.1 200 OK",
    "line_end_first": "\r\nHTTP/1.1 200 OK",
}

HEADS = [
    ok("early_hints_then_ok", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HELLO, "hello"),
    ok("processing_many_times", "HTTP/1.1 102 Processing\r\n\r\n" * 50 + HELLO, "hello"),
    bad("interim_flood", "HTTP/1.1 102 Processing\r\n\r\n" * 40_000, "invalid_response", deadline_seconds=5),
    bad("status_000", "HTTP/1.1 000 No\r\n\r\n", "invalid_response"),
    bad("status_20", "HTTP/1.1 20 No\r\n\r\n", "invalid_response"),
    bad("status_2000", "HTTP/1.1 2000 No\r\n\r\n", "invalid_response"),
    bad("status_600", "HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n", "http_600"),
    bad("version_1_x", "HTTP/1.x 200 OK\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("version_lower_case", "http/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    *(bad(f"version_{version}", HELLO.replace("1.1", version), "invalid_response")
      for version in ("2.0", "0.9", "3.0", "11", "1.11", "1", "-1.1", "1,1", "1.\xb2")),
    ok("version_1_2", HELLO.replace("1.1", "1.2"), "hello"),
    *(bad(f"status_line_{name}", HELLO.replace("HTTP/1.1 200 OK", line), "invalid_response")
      for name, line in BAD_STATUS_LINES.items()),
    ok("status_line_control", HELLO.replace("OK", "O\x01K"), "hello"),
    ok("status_line_50kb", HELLO.replace("OK", "x" * 50_000), "hello"),
    bad("status_line_300kb", HELLO.replace("OK", "x" * 300_000), "invalid_response"),
    ok("interim_199_then_ok", "HTTP/1.1 199 X\r\n\r\n" + HELLO, "hello"),
    bad("switching_protocols_then_ok", "HTTP/1.1 101 X\r\n\r\n" + HELLO, "invalid_response"),
    ok("two_answers", HELLO + HELLO.replace("hello", "evil!"), "hello"),
    ok("empty_until_close", "HTTP/1.1 200 OK\r\n\r\n", ""),
    bad("header_name_tab", "HTTP/1.1 200 OK\r\nX\tA: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("header_name_control", "HTTP/1.1 200 OK\r\nX\x01A: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("header_name_nul", "HTTP/1.1 200 OK\r\nX\0: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("content_type_nul", "HTTP/1.1 200 OK\r\nContent-Type: a\0\r\n\r\nhello", "invalid_response"),
    ok("header_folded_by_tab", "HTTP/1.1 200 OK\r\nX-A: a\r\n\tb\r\nContent-Length: 5\r\n\r\nhello", "hello"),
    bad("icy_stream", "ICY 200 OK\r\nicy-name: radio\r\n\r\n", "invalid_response"),
    bad("tls_record_on_http", "\x15\x03\x01\x00\x02\x02\x46", "invalid_response"),
    bad("blank_line_first", "\r\n\r\n", "invalid_response"),
    bad("smtp_banner", "220 mail.example ESMTP\r\n", "server_disconnected", "invalid_response"),
    bad("not_modified_unasked", "HTTP/1.1 304 Not Modified\r\n\r\n", "http_304"),
    ok("partial_content", "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello", "hello"),
    ok("reset_content", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", ""),
    ok("http10_keep_alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", "hello"),
    bad("http10_short", "HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nhello", "incomplete_body"),
    bad("closes_in_status_line", "HTTP/1.1 20", "server_disconnected"),
    bad("closes_in_header_name", "HTTP/1.1 200 OK\r\nConten", "server_disconnected"),
    bad("header_lone_cr", "HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("header_name_empty", "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("header_name_8bit", "HTTP/1.1 200 OK\r\nX-\xe9: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    bad("header_fold_first", "HTTP/1.1 200 OK\r\n X-A: b\r\nContent-Length: 5\r\n\r\nhello", "invalid_response"),
    ok("header_value_empty", "HTTP/1.1 200 OK\r\nX-A:\r\nContent-Length: 5\r\n\r\nhello", "hello"),
    ok("header_mixed_line_ends", "HTTP/1.1 200 OK\r\nX-A: b\nContent-Length: 5\r\n\r\nhello", "hello"),
    ok("headers_60kb", "HTTP/1.1 200 OK\r\n" + "X-A: aaaaaaaa\r\n" * 400 + f"X-B: {'b' * 50_000}\r\n"
       "Content-Length: 5\r\n\r\nhello", "hello"),
    bad("headers_501", "HTTP/1.1 200 OK\r\n" + "A: b\r\n" * 501 + "\r\n", "invalid_response"),
    bad("headers_110kb", "HTTP/1.1 200 OK\r\n" + f"X-A: {'a' * 1000}\r\n" * 110 + "\r\n", "invalid_response"),
    bad("error_body_with_nul", "HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\na\0b", "http_500"),
    bad("error_body_not_utf8", "HTTP/1.1 403 X\r\nContent-Length: 4\r\n\r\n\xff\xfe\xed\xa0", "http_403"),
    bad("error_body_cut_off", "HTTP/1.1 404 X\r\nContent-Length: 400\r\n\r\nhello", "http_404"),
    bad("error_body_bad_chunks", "HTTP/1.1 502 X\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "http_502"),
    bad("error_body_bad_gzip", encoded("gzip", b"\x1f\x8b\x08broken").replace("200 OK", "503 X"), "http_503"),
    bad("error_body_long", "HTTP/1.1 404 X\r\n\r\n" + "x" * 3 * MIB, "http_404"),
]  # fmt: skip

CODINGS = [
    ok("gzip_whole", encoded("gzip", gzip.compress(TEXT)), TEXT.decode()),
    ok("gzip_x_name_upper", encoded("X-GZIP", gzip.compress(TEXT)), TEXT.decode()),
    ok("gzip_padded", encoded("gzip", gzip.compress(TEXT) + bytes(512)), TEXT.decode()),
    ok("gzip_on_206", encoded("gzip", b"\x00\x01\x02").replace("200 OK", "206 Partial Content"), "\x00\x01\x02"),
    bad("gzip_second_member_cut", encoded("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-3]), "incomplete_body"),
    bad("gzip_magic_only", encoded("gzip", b"\x1f\x8b\x08"), "incomplete_body"),
    bad("gzip_one_byte_of_magic", encoded("gzip", b"\x1f"), "incomplete_body"),
    bad("gzip_damaged", encoded("gzip", gzip.compress(TEXT)[:10] + b"\x07" * 30), "invalid_response"),
    bad("gzip_bad_length", encoded("gzip", gzip.compress(TEXT)[:-1] + b"\x7f"), "invalid_response"),
    ok("gzip_other_bytes_behind", encoded("gzip", gzip.compress(TEXT) + b"garbage"), TEXT.decode()),
    bad("gzip_a_magic_number_begins_behind", encoded("gzip", gzip.compress(TEXT) + b"\x1f\x8b"), "incomplete_body"),
    bad("gzip_second_member_bad_crc", encoded("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-8] + bytes(8)),
        "invalid_response"),
    bad("gzip_cut_in_its_file_name", encoded("gzip", b"\x1f\x8b\x08\x08\0\0\0\0\0\3abc"), "incomplete_body"),
    bad("gzip_reserved_flags", encoded("gzip", b"\x1f\x8b\x08\xe0\0\0\0\0\0\3" + gzip.compress(TEXT)[10:]),
        "invalid_response"),
    bad("gzip_cut_in_whole_chunks", chunked("5\r\n\x1f\x8b\x08\0\0\r\n0\r\n\r\n").replace(
        "Transfer", "Content-Encoding: gzip\r\nTransfer"), "incomplete_body"),
    ok("gzip_on_head", encoded("gzip", gzip.compress(TEXT)), "", method="HEAD"),
    ok("gzip_is_zlib", encoded("gzip", ZLIB), ZLIB.decode("latin-1")),
    ok("gzip_is_br", encoded("gzip", brotli.compress(TEXT)), brotli.compress(TEXT).decode("latin-1")),
    ok("deflate_is_gzip", encoded("deflate", GZIP), GZIP.decode("latin-1")),
    ok("br_is_gzip", encoded("br", GZIP), GZIP.decode("latin-1")),
    ok("zstd_is_gzip", encoded("zstd", GZIP), GZIP.decode("latin-1")),
    ok("deflate_zlib_other_bytes_behind", encoded("deflate", ZLIB + b"xx"), TEXT.decode()),
    ok("deflate_raw_other_bytes_behind", encoded("deflate", raw_deflate(TEXT) + b"xx"), TEXT.decode()),
    bad("br_other_bytes_behind", encoded("br", brotli.compress(TEXT) + b"xx"), "invalid_response"),
    bad("br_two_streams", encoded("br", brotli.compress(TEXT) * 2), "invalid_response"),
    ok("zstd_other_bytes_behind", encoded("zstd", zstd.compress(TEXT) + b"xx"), TEXT.decode()),
    ok("zstd_skippable_frame_alone", encoded("zstd", b"\x50\x2a\x4d\x18\x03\0\0\0abc"), ""),
    bad("zstd_skippable_frame_cut", encoded("zstd", b"\x50\x2a\x4d\x18\x08\0\0\0abc"), "incomplete_body"),
    bad("zstd_bad_checksum", encoded("zstd", ZSTD[:-1] + bytes([ZSTD[-1] ^ 1])), "invalid_response"),
    ok("encoding_with_a_parameter", encoded("gzip;q=1", GZIP), GZIP.decode("latin-1")),
    ok("encoding_in_quotes", encoded('"gzip"', GZIP), GZIP.decode("latin-1")),
    ok("encoding_empty_elements", encoded(",gzip,", GZIP), TEXT.decode()),
    bad("bomb_deflate", encoded("deflate", zlib.compress(bytes(8 * MIB))), "response_too_large", max_bytes=MIB),
    bad("bomb_deflate_raw", encoded("deflate", raw_deflate(bytes(8 * MIB))), "response_too_large", max_bytes=MIB),
    ok("deflate_zlib", encoded("deflate", zlib.compress(TEXT)), TEXT.decode()),
    bad("deflate_zlib_cut", encoded("deflate", zlib.compress(TEXT)[:-2]), "incomplete_body"),
    bad("deflate_zlib_bad_check", encoded("deflate", zlib.compress(TEXT)[:-1] + b"\0"), "invalid_response"),
    bad("deflate_raw_cut", encoded("deflate", raw_deflate(TEXT)[:-2]), "incomplete_body"),
    ok("deflate_is_json", encoded("deflate", b'{"a": 1}'), '{"a": 1}'),
    ok("deflate_is_short_text", encoded("deflate", b"hi"), "hi"),
    ok("deflate_empty", encoded("deflate", b""), ""),
    ok("br_whole", encoded("br", brotli.compress(TEXT)), TEXT.decode()),
    bad("br_cut", encoded("br", brotli.compress(TEXT)[:-2]), "incomplete_body"),
    ok("br_is_html", encoded("br", b"<html>hello</html>" * 100), "<html>hello</html>" * 100),
    ok("br_is_short_text", encoded("br", b"hello"), "hello"),
    ok("br_empty", encoded("br", b""), ""),
    ok("zstd_whole", encoded("zstd", zstd.compress(TEXT)), TEXT.decode()),
    ok("zstd_two_frames", encoded("zstd", zstd.compress(TEXT) * 2), (TEXT * 2).decode()),
    ok("zstd_skippable_frame", encoded("zstd", b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd.compress(TEXT)), TEXT.decode()),
    bad("zstd_cut", encoded("zstd", zstd.compress(TEXT)[:-2]), "incomplete_body"),
    bad("zstd_damaged", encoded("zstd", zstd.compress(TEXT)[:8] + b"\xff" * 40), "invalid_response"),
    ok("zstd_is_text", encoded("zstd", b"hello"), "hello"),
    ok("encodings_three",
       encoded("br, zstd, gzip", gzip.compress(zstd.compress(brotli.compress(TEXT)))), TEXT.decode()),
    ok("encoding_two_headers",
       encoded("br", gzip.compress(brotli.compress(TEXT)), "Content-Encoding: gzip\r\n"), TEXT.decode()),
    ok("encoding_unknown_inside", encoded("foo, gzip", gzip.compress(b"\xffbytes")), "\xffbytes"),
    ok("encoding_identity", encoded("identity", b"hello"), "hello"),
    ok("encoding_blank", encoded("", b"hello"), "hello"),
    bad("encodings_six", encoded(", ".join(["gzip"] * 6), b"hello"), "invalid_response"),
    bad("bomb_inside_a_coding", encoded("gzip, gzip", gzip.compress(gzip.compress(bytes(5 * MIB)))),
        "response_too_large", max_bytes=MIB),
    bad("wire_over_cap_that_ends_as_nothing",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + (gzip.compress(b"", mtime=0) * 60_000).decode("latin-1"),
        "response_too_large", max_bytes=MIB),
    bad("bomb_that_ends_as_nothing", encoded("gzip, gzip", gzip.compress(gzip.compress(b"") * 200_000)),
        "response_too_large", max_bytes=MIB),
    {"id": "bomb_zstd", "steps": [{"headers_for_zeros": "zstd", "zeros": 256 * MIB}], "max_bytes": 1_000_000,
     "expect": {"outcome": "permanent", "codes": ["response_too_large"]}},
]  # fmt: skip

TIMES: list[Case] = [
    {"id": "drip_headers", "steps": [{"send": "HTTP/1.1 200 OK\r\n"}, {"drip": "X: y\r\n", "every": 0.2, "times": 60}],
     "deadline_seconds": 1, "within": 3, "expect": {"outcome": "temporary", "codes": ["deadline_exceeded"]}},
    {"id": "drip_chunks", "steps": [{"send": chunked("")}, {"drip": "1\r\nx\r\n", "every": 0.2, "times": 60}],
     "deadline_seconds": 1, "within": 3, "expect": {"outcome": "temporary", "codes": ["deadline_exceeded"]}},
    {"id": "drip_interim", "steps": [{"drip": "HTTP/1.1 102 P\r\n\r\n", "every": 0.1, "times": 99}],
     "deadline_seconds": 1, "within": 3, "expect": {"outcome": "temporary", "codes": ["deadline_exceeded"]}},
    {"id": "error_body_drips", "steps": [{"send": "HTTP/1.1 404 X\r\n\r\n"}, {"drip": "x", "every": 0.2, "times": 60}],
     "deadline_seconds": 1, "within": 3, "expect": {"outcome": "permanent", "codes": ["http_404"]}},
    {"id": "error_body_hangs", "steps": [{"send": "HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\nhe"}, {"sleep": 20}],
     "deadline_seconds": 30, "within": 8, "expect": {"outcome": "temporary", "codes": ["http_500"]}},
    {"id": "split_everywhere", "steps": [{"drip": character, "every": 0, "times": 1} for character in HELLO],
     "expect": {"outcome": "succeeded", "body": "hello"}},
    {"id": "late_answer", "steps": [{"sleep": 0.5}, {"send": HELLO}], "deadline_seconds": 5,
     "expect": {"outcome": "succeeded", "body": "hello"}},
    {"id": "reset_in_headers", "steps": [{"send": "HTTP/1.1 200 OK\r\n"}, {"sleep": 0.05}, {"reset": True}],
     "expect": {"outcome": "temporary", "codes": ["connection_reset"]}},
    {"id": "reset_in_chunk", "steps": [{"send": chunked("64\r\nhello")}, {"sleep": 0.05}, {"reset": True}],
     "expect": {"outcome": "temporary", "codes": ["connection_reset"]}},
    {"id": "reset_after_length", "steps": [{"send": HELLO}, {"sleep": 0.05}, {"reset": True}],
     "expect": {"outcome": "succeeded", "body": "hello"}},
]  # fmt: skip

REDIRECTS = [
    arrives("redirect_utf8", redirect("/caf\xc3\xa9"), "GET /caf%C3%A9 "),
    arrives("redirect_escaped", redirect("/caf%C3%A9%20x"), "GET /caf%C3%A9%20x "),
    arrives("redirect_query_only", redirect("?x=1"), "GET /case?x=1 "),
    arrives("redirect_dots", redirect("a/../b/./c"), "GET /b/c "),
    arrives("redirect_fragment", redirect("/ok#part"), "GET /ok "),
    arrives("redirect_backslash", redirect("\\ok"), "GET /ok "),
    arrives("redirect_301_post", redirect("/ok", "301 Moved"), "GET /ok ", method="POST", request_body="x"),
    arrives("redirect_302_put", redirect("/ok"), "PUT /ok ", method="PUT", request_body="x"),
    arrives("redirect_307_post", redirect("/ok", "307 T"), "POST /ok ", method="POST", request_body="x"),
    arrives("redirect_308_delete", redirect("/ok", "308 P"), "DELETE /ok ", method="DELETE"),
    arrives("redirect_303_put", redirect("/ok", "303 S"), "GET /ok ", method="PUT", request_body="x"),
    ok("redirect_303_head", redirect("/ok", "303 S"), "", method="HEAD"),
    arrives("redirect_same_location_twice", redirect("/ok", extra="Location: /ok\r\n"), "GET /ok "),
    bad("redirect_empty", redirect(""), "bad_redirect"),
    bad("redirect_userinfo", redirect("http://user:secret@example.com/"), "bad_redirect"),
    bad("redirect_control", redirect("http://exa\x01mple.com/"), "bad_redirect"),
    bad("redirect_latin1_host", redirect("http://b\xfccher.example/"), "bad_redirect"),
    bad("redirect_port_0", redirect("http://127.0.0.1:0/"), "bad_redirect"),
    bad("redirect_data", redirect("data:text/plain,hello"), "bad_redirect"),
    bad("redirect_ftp", redirect("ftp://example.com/"), "bad_redirect"),
    bad("redirect_too_long", redirect("/" + "a" * 20_000), "bad_redirect"),
    bad("redirect_host_label_64", redirect("http://" + "a" * 64 + ".example/"), "bad_redirect"),
    bad("redirect_to_loopback_short", redirect("http://127.1/"), "blocked_target"),
    bad("redirect_to_localhost", redirect("http://localhost/"), "blocked_target"),
    bad("redirect_scheme_relative_private", redirect("//10.0.0.1/"), "blocked_target"),
    bad("redirect_to_mapped", redirect("http://[::ffff:127.0.0.1]/"), "blocked_target"),
    bad("redirect_not_wanted", redirect("/ok"), "http_302", follow_redirects=False),
    bad("redirect_300", redirect("/ok", "300 Choices"), "http_300"),
    bad("redirect_305", redirect("/ok", "305 Use Proxy"), "http_305"),
]

KIN = [*LENGTHS, *CHUNKS, *HEADS, *CODINGS, *TIMES, *REDIRECTS]
