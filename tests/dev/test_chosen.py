"""What `make test` chooses of the tests with real servers: nothing that needs more than Python and Java."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import settings

from integration.conftest import ALWAYS
from tests.examples import NEW

NEEDS_MORE = {"versitygw", "fake_gcs", "azurite", "hdfs", "helm", "browser", "image", "promtool"}


def collected(marks: str) -> str:
    command = [sys.executable, "-m", "pytest", "integration", "--collect-only", "-p", "no:cacheprovider", "-m", marks]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.large
def test_what_is_named_is_there() -> None:
    found = collected("not large").splitlines()
    assert all(any(f"integration/{name}" in line for line in found) for name in ALWAYS), found


@pytest.mark.large
def test_nothing_of_it_needs_more_than_python_and_java() -> None:
    found = collected(f"not large and ({' or '.join(sorted(NEEDS_MORE))})")
    assert found.startswith("no tests collected") or "\nno tests collected" in found, found


def test_property_tests_try_the_same_examples_each_time_unless_new_ones_are_asked_for() -> None:
    assert settings.default is not None
    assert settings.default.derandomize != NEW
