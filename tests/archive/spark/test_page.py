"""docs/reading.md names every option and every column, with its type in Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offloader.archive.spark import parsing
from offloader.archive.spark.options import Form
from offloader.archive.spark.tables import spark_schema

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reading.md").read_text()
SECTION = PAGE.split("\n## From Spark\n")[1].split("\n## ")[0]


def test_options() -> None:
    table = SECTION.split("### Options")[1].split("### ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[1])}

    known = set(parsing._NAMES.values())
    assert known - {"path"} == named
    assert "`path`" in table


@pytest.mark.parametrize("form", Form)
def test_columns(form: Form) -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", SECTION, re.MULTILINE)

    assert {(field.name, field.dataType.simpleString()) for field in spark_schema(form)} <= set(rows)
