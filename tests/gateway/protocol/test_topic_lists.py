"""Patterns of topics, as brokers match them."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from offloader.gateway.protocol.topic_lists import matching, topics_hash
from offloader.gateway.values import RefusedError

NAMES = [f"persistent://public/default/{name}" for name in ("one", "two-partition-0", "two-partition-12", "twofold")]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("persistent://public/default/.*", NAMES),
        ("public/default/tw.*", NAMES[1:]),
        ("public/default/two", NAMES[1:3]),
        ("^persistent://public/default/two$", NAMES[1:3]),
        ("public/default/two-partition-0", []),
        ("default/one", []),
    ],
)
def test_a_pattern_is_of_whole_names_and_partitions_have_that_of_their_topic(pattern: str, found: list[str]) -> None:
    assert matching(NAMES, pattern, time.thread_time) == found


def test_a_date_in_a_name_is_not_cut_off() -> None:
    names = ["persistent://public/default/t-partition-007", "persistent://public/default/t-partition-20260105093000"]
    assert matching(names, "public/default/t", time.thread_time) == []
    assert matching(names, "public/default/t-partition-0.*", time.thread_time) == names[:1]


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(RefusedError, match="no regular expression"):
        matching(NAMES, "(", time.thread_time)


def test_the_first_pattern_of_a_process_is_not_charged_for_loading() -> None:
    program = f"""
import time
from offloader.gateway.protocol.topic_lists import SECONDS, matching
readings = []
def clock():
    readings.append(time.thread_time())
    return readings[-1]
assert matching({NAMES!r}, ".*", clock) == {NAMES!r}
assert readings[-1] - readings[0] < SECONDS / 5, readings
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_lists_are_compared_by_the_hash_of_brokers() -> None:
    assert topics_hash([f"persistent://public/default/pat-{name}" for name in "ba"]) == "5639b208"
