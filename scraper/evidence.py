"""What is said of a body's character set, and which address may be told.

Evidence, not a verdict: a body is stored as it came, and whoever reads it weighs BOM, header and document (WHATWG,
Encoding, "BOM sniff"; HTML, "encoding sniffing algorithm"). No label is ever looked up here: Python knows codecs, rot13
for one, that no document may choose.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from core.networks import is_public, literal

DOCUMENT_HEAD_BYTES: Final = 1024
"""How far into a document its own word is looked for (HTML, "prescan a byte stream")."""
MAX_LABEL: Final = 40
"""Characters; the longest label of the Encoding standard has 19."""

_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
_PARAMETER: Final = re.compile(r""";\s*charset\s*=\s*(?:"([^"]*)"|([^\s;,"]+))""", re.IGNORECASE)
_XML: Final = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([^"'>]*)["']""")
_COMMENT: Final = re.compile(rb"<!--.*?(?:-->|$)", re.DOTALL)
_META: Final = re.compile(rb"<meta[\s/]([^>]*)>", re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(rb"""([^\s"'>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CONTENT: Final = re.compile(rb"""charset\s*=\s*["']?\s*([^\s"';]+)""", re.IGNORECASE)


def told_address(peer: str | None, host: str) -> str | None:
    """The address that was connected to, unless it would tell a caller how a name resolves inside our network."""
    if peer is None:
        return None
    address = ip_address(peer)
    return peer if is_public(address) or address == literal(host) else None


def charset_evidence(content_type: str, head: bytes) -> dict[str, str | None]:
    """What the Content-Type header, and `head`, the first DOCUMENT_HEAD_BYTES of the decoded body, say."""
    is_document = not content_type.strip() or any(kind in content_type.lower() for kind in ("html", "xml"))
    return {
        "bom": next((label for mark, label in _BOMS if head.startswith(mark)), None),
        "header": _header(content_type),
        "meta": _document(head[:DOCUMENT_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf")) if is_document else None,
    }


def _header(content_type: str) -> str | None:
    found = _PARAMETER.search(content_type)
    return _label((found[1] or found[2] or "").encode("latin-1", "replace")) if found else None


def _document(head: bytes) -> str | None:
    declared = _XML.match(head)
    if declared:
        return _label(declared[1])
    for tag in _META.finditer(_COMMENT.sub(b"", head)):
        attributes = {name.lower(): b"".join(values) for name, *values in _ATTRIBUTE.findall(tag[1])}
        if b"charset" in attributes:
            return _label(attributes[b"charset"])
        inside = _CONTENT.search(attributes.get(b"content", b""))
        if inside and attributes.get(b"http-equiv", b"").lower() == b"content-type":
            return _label(inside[1])
    return None


def _label(raw: bytes) -> str | None:
    """Printable ASCII, as every label of an encoding is, in lower case; None for anything else."""
    text = raw.strip().decode("ascii", "replace").lower()[:MAX_LABEL]
    return text if text and text.isascii() and text.isprintable() else None
