"""What strangers may cost: memory in parts, patterns in time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offloader.gateway.protocol.topic_lists import directory_of, matching, partition_count
from offloader.gateway.server.limits import Shares
from offloader.gateway.values import RefusedError
from offloader.model import MIB, TopicName

MOST_PATTERN = 1000
LEAST_SHARE = 64 * 1024

NAMES = [
    f"persistent://public/default/{name}" for name in ("a", "ab", "b-1", "b-partition-0", "xaaaaaaaaaaaaaaaaaaaaaaaay")
]


@given(st.lists(st.integers(1, 8 * MIB) | st.none(), max_size=300), st.integers(16 * MIB, 512 * MIB))
def test_all_parts_together_stay_within_the_memory(steps: list[int | None], most: int) -> None:
    shares, held = Shares(most), []
    for wanted in steps:
        if wanted is not None:
            held.append(shares.take(wanted))
            assert 0 < held[-1] <= wanted
        elif held:
            shares.give_back(held.pop(0))
        assert sum(held) <= most + LEAST_SHARE * len(held)
    for part in held:
        shares.give_back(part)
    assert shares.left == most


def test_few_get_what_they_want() -> None:
    shares = Shares(256 * MIB)
    assert shares.take(4 * MIB) == 4 * MIB
    assert sum(shares.take(4 * MIB) > MIB for _ in range(64)) == 64


@pytest.mark.parametrize(
    "pattern", [".*", "public/default/b.*", "persistent://public/default/(a|b-\\d)", "public/.*/.{1,2}", ""]
)
def test_patterns_mean_what_they_mean_elsewhere(pattern: str) -> None:
    wanted = re.compile(pattern.partition("://")[2] or pattern)
    expected = [name for name in NAMES if wanted.fullmatch(name.partition("://")[2].removesuffix("-partition-0"))]
    assert matching(NAMES, pattern, time.thread_time) == expected


@given(st.text(max_size=20))
@example("(")
@example("a" * (MOST_PATTERN + 1))
@example("(?!a)b")
@example("\\C\x00[")
def test_any_pattern_gives_names_or_is_refused(pattern: str) -> None:
    try:
        found = matching(NAMES, pattern, time.thread_time)
    except RefusedError:
        return
    assert set(found) <= set(NAMES)


@pytest.mark.parametrize("pattern", ["(a+)+x", "public/default/x(a|a)*(a|aa)*(.*)*z", "(x+x+)+y", ".*.*.*.*.*.*z"])
def test_what_takes_for_ever_elsewhere_takes_no_time(pattern: str) -> None:
    began = time.thread_time()
    matching(NAMES * 2_000, pattern, time.thread_time)
    assert time.thread_time() - began < 5


def test_what_is_slow_is_given_up() -> None:
    names = [f"persistent://public/default/a-topic-with-quite-a-long-name-{number}" for number in range(10_000)]
    began = time.thread_time()
    with pytest.raises(RefusedError, match="takes too long"):
        matching(names, "((.?){10}){100}(.?){1000}y", time.thread_time)  # minutes for all names
    assert time.thread_time() - began < 10


def test_a_directory_knows_names_and_partitions() -> None:
    topics = [
        TopicName.parse(f"persistent://t/{name}") for name in ("n/b", "n/a", "m/p-partition-1", "m/p-partition-0")
    ]
    found = directory_of(topics)
    assert found.topics == set(topics)
    assert found.names["t/n"] == ["persistent://t/n/a", "persistent://t/n/b"]
    assert found.partitions == {"persistent://t/m/p": [topics[3], topics[2]]}


def test_metadata_says_how_many_partitions_there_are_and_names_only_without_it() -> None:
    parts = [TopicName.parse(f"t/n/p-partition-{number}") for number in (0, 1, 20260105)]
    assert partition_count(parts, 0) == 0
    assert partition_count(parts, 3) == 3
    assert partition_count(parts, 1) == 2, "one was added after the copy"
    assert partition_count(parts[:2], None) == 2
