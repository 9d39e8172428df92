"""The section `shards`, and which shard a process is."""

from __future__ import annotations

import pytest

from offloader.errors import ConfigError
from offloader.metadata.deal import Deal, DealBy
from offloader.offload.settings import chosen_shard, deal, of_shard
from tests.config.texts import parse, refused

EIGHT = "shards: {count: 8, by: namespace, takeOverAfter: 90s}"


def test_without_the_section_everything_is_one_application() -> None:
    config = parse()
    assert deal(config) == Deal("orders-archive")
    assert chosen_shard(config, None) is config
    with pytest.raises(ConfigError, match="no such section"):
        chosen_shard(config, 3)


def test_one_file_serves_all_shards() -> None:
    config = chosen_shard(parse(EIGHT), 3)
    assert config.application == "orders-archive~3"
    assert deal(config) == Deal("orders-archive", 3, 8, DealBy.NAMESPACE)
    assert deal(config).name == config.application
    assert config.shards is not None
    assert config.shards.take_over_after_ms == 90_000
    assert chosen_shard(parse(EIGHT), 0).application == "orders-archive"
    assert of_shard(config, 9).application == "orders-archive~9"


def test_the_file_may_say_it_by_an_environment_variable() -> None:
    config = parse("shards: {count: 8, index: '${ORDINAL}'}", ORDINAL="5")
    assert chosen_shard(config, None).application == "orders-archive~5"
    assert chosen_shard(config, 2).application == "orders-archive~2"


def test_what_is_said_beside_the_file_is_checked() -> None:
    with pytest.raises(ConfigError, match="which of the 8 shards"):
        chosen_shard(parse(EIGHT), None)
    with pytest.raises(ConfigError, match="there is no shard 8 of 8"):
        chosen_shard(parse(EIGHT), 8)
    assert chosen_shard(parse("shards: {count: 1}"), None).application == "orders-archive"


def test_what_is_refused() -> None:
    assert refused("shards: {count: 8, index: 8}") == [
        "shards: index 8 is not among 8 shards, which are counted from 0 (line 4)"
    ]
    assert refused("shards: {count: 0}")[0].startswith("shards.count")
    assert refused("shards: {takeOverAfter: 1s}")[0].startswith("shards.takeOverAfter")


def test_an_idle_shard_is_not_taken_for_dead() -> None:
    slow = "spark: {trigger: 30s}\n"
    assert refused(f"{slow}shards: {{takeOverAfter: 59s}}")[0].startswith(
        "shards.takeOverAfter: 59s is less than twice"
    )
    assert parse(f"{slow}shards: {{takeOverAfter: 60s}}").shards is not None
    assert refused("shards: {takeOverAfter: 5s}") != []
    assert parse("shards: {takeOverAfter: 10s}").shards is not None
