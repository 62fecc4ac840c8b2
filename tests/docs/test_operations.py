"""The operators' page names the metrics that there are, and no others."""

from __future__ import annotations

from jobs.metrics import COUNTERS, GAUGES, HELD, HOLDS, REFUSED, STAGES
from tests.docs.markdown import ROOT, section, table_rows

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
TOLD = {row[0].strip("`"): row[1] for row in table_rows(section(PAGE, "Metrics"))}


def test_the_table_names_every_metric_and_no_other() -> None:
    assert set(TOLD) == {name for name, _, _ in GAUGES} | {f"{name}_total" for name, _, _ in COUNTERS} | {
        "jobs_unfinished",
        HELD,
        f"{REFUSED}_total",
    }


def test_what_holds_jobs_back_is_told() -> None:
    assert [reason for reason in HOLDS if f"`{reason}`" not in TOLD[HELD]] == []


def test_the_stages_of_a_job_are_told() -> None:
    assert [stage for stage in STAGES if f"`{stage}`" not in TOLD["jobs_unfinished"]] == []
