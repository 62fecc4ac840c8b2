"""Finds links and paths in the docs that lead nowhere: `python -m tests.docs.paths`.

A code span counts as a path when it ends like a file of this project, ends in a slash, or starts with a folder of the
root; `tests/x/test_y.py::test_z` must name a test that exists.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tests.docs.markdown import ROOT, anchors, code_spans, links, pages

PATH = re.compile(r"[\w.\-]+(/[\w.\-]+)*/?")
SUFFIXES = (".py", ".md", ".toml", ".txt", ".in", ".yaml", ".svg", ".json", ".sh")
MADE_WHILE_RUNNING = (".data", ".venv")  # not in a fresh checkout, rightly named in the docs


def test_names(path: Path) -> set[str]:
    """The tests of a file, as `test_name` or `TestClass::test_name`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.update(f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
    return {name for name in names if name.rpartition("::")[2].startswith("test_")}


test_names.__test__ = False  # type: ignore[attr-defined]  # its name starts with "test_", yet it is none


def missing_test(root: Path, node_id: str) -> str | None:
    """What is wrong with `path::test`, or None."""
    file, _, name = node_id.partition("::")
    if not (root / file).is_file():
        return f"no such file: {file}"
    return None if name in test_names(root / file) else f"no such test: {node_id}"


def dead_links(root: Path, page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    findings = []
    for found in links(text):
        target, _, fragment = found.text.partition("#")
        path = (page.parent / target) if target else page
        where = f"{page.relative_to(root)}:{found.line}"
        if re.match(r"[a-z][a-z0-9+.\-]*:", found.text):
            continue
        if not path.exists():
            findings.append(f"{where}: link to nowhere: {found.text}")
        elif fragment and fragment not in anchors(path.read_text(encoding="utf-8")):
            findings.append(f"{where}: no heading for #{fragment} in {path.name}")
    return findings


def dead_paths(root: Path, page: Path) -> list[str]:
    findings = []
    for found in code_spans(page.read_text(encoding="utf-8")):
        where = f"{page.relative_to(root)}:{found.line}"
        if "::" in found.text and found.text.startswith("tests/"):
            problem = missing_test(root, found.text)
        else:
            problem = None if _exists(root, found.text) else f"no such path: {found.text}"
        if problem:
            findings.append(f"{where}: {problem}")
    return findings


def _exists(root: Path, span: str) -> bool:
    """False only for a span that is meant as a path of this project and is none."""
    if not PATH.fullmatch(span) or span.split("/")[0] in MADE_WHILE_RUNNING:
        return True
    if "/" not in span:
        return not span.endswith(SUFFIXES) or any(True for top in _tops(root) for _ in _named(top, span))
    meant = span.endswith(("/", *SUFFIXES)) or (root / span.split("/")[0]).exists()
    return not meant or (root / span).exists()


def _tops(root: Path) -> list[Path]:
    return [
        entry for entry in root.iterdir() if not entry.name.startswith(".") or entry.is_file() or entry.name == ".ci"
    ]


def _named(top: Path, name: str) -> list[Path]:
    return ([top] if top.name == name else []) + (list(top.rglob(name)) if top.is_dir() else [])


def findings(root: Path) -> list[str]:
    """Every dead link and path in the pages of the project."""
    return [line for page in pages(root) for line in (*dead_links(root, page), *dead_paths(root, page))]


def main() -> int:
    found = findings(ROOT)
    for line in found:
        print(line)
    print(f"{len(pages(ROOT))} pages, {len(found)} dead links or paths")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
