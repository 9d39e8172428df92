"""Patterns of topics, as brokers match them."""

from __future__ import annotations

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


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(RefusedError, match="no regular expression"):
        matching(NAMES, "(", time.thread_time)


def test_lists_are_compared_by_the_hash_of_brokers() -> None:
    assert topics_hash([f"persistent://public/default/pat-{name}" for name in "ba"]) == "5639b208"
