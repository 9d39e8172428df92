"""`offloader cost`: bytes, requests and prices, by what topics really have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from offloader.errors import AccessDeniedError, BrokerUnavailableError, OffloadError
from offloader.metadata import layout
from offloader.model import LedgerList, LedgerSpan, TopicName
from offloader.ports.admin import TopicInfo
from tests.archive.support import TOPIC, Archive, stream, uuid_of
from tests.cli.support import CONFIG, Line

PRICES = """
cost: {currency: EUR, asOf: 2026-11-26, storeGibMonth: 1073741.824, writesPer1000: 10, readsPer1000: 1, egressGib: 1.0,
  bookieGibMonth: 2147483.648, bookieCopies: 3}
"""  # a byte is 0.001 a month, and 0.002 on a bookie
LATE = 1_700_000_000_000


@pytest.fixture
def archived(line: Line) -> Line:
    line.root()
    line.archive.sealed_at = LATE
    line.archive.claim(5)
    line.archive.add(stream(5, 0, 99))
    line.archive.add(stream(5, 100, 149))
    line.clock.now = LATE + 3 * 86_400_000
    return line


def sizes(line: Line, ending: str = "") -> int:
    return sum(
        size
        for key, size in line.archive.store.list("public/")
        if (parsed := layout.parse_topic_key(key)) and parsed.kind is layout.KINDS[ending]
    )


def test_bytes_are_those_of_the_store_by_what_they_are(archived: Line) -> None:
    shown = archived.json("cost", "--no-pulsar")
    classes = {each["class"]: (each["objects"], each["bytes"]) for each in shown["classes"]}
    assert classes["data"] == (2, sizes(archived))
    assert classes["indexes"] == (2, sizes(archived, "-index"))
    assert classes["records"] == (3, sizes(archived, "-record"))
    assert classes["catalogs"][0] == 3
    assert shown["bytes"] == sum(size for _, size in archived.archive.store.list())
    assert shown["namespaces"][0]["namespace"] == "public/default"
    assert shown["ages"] == [{"age": "1 to 7 days", "bytes": sizes(archived)}]


def test_without_prices_there_are_bytes_and_requests_and_how_to_have_more(archived: Line) -> None:
    text = archived.ok("cost", "--no-pulsar")
    assert "no prices: set them, with their day, in the section `cost`" in text
    assert "EUR" not in text
    shown = archived.json("cost", "--no-pulsar")
    assert shown["monthly"] is None
    assert {each["kind"] for each in shown["requestsAMonth"]} >= {"parts", "indexes", "journal", "looking for work"}


def test_a_gateway_is_counted_as_the_options_say(archived: Line) -> None:
    plain, with_gateway = (
        archived.json("cost", "--no-pulsar", *options)["requestsAMonth"]
        for options in ((), ("--gateway-topics", "2", "--gateway-subscriptions", "1", "--gateway-namespaces", "1"))
    )
    (gateway,) = [each for each in with_gateway if each not in plain]
    looks = 730 * 3600 / 5
    assert gateway["kind"] == "gateway"
    assert [gateway["writes"], gateway["reads"], gateway["lists"]] == [looks, 2.5 * looks, 4 * looks]


def test_prices_are_the_configurations_and_say_their_day(archived: Line) -> None:
    archived.config = CONFIG + PRICES
    shown = archived.json("cost", "--no-pulsar")
    data = sizes(archived)
    assert shown["classes"][0]["monthly"] == pytest.approx(0.001 * data)
    assert shown["bookies"]["bytes"] == 3 * data
    assert shown["bookies"]["monthly"] == pytest.approx(0.002 * 3 * data)
    idle = next(each for each in shown["requestsAMonth"] if each["kind"] == "looking for work")
    assert idle["cost"] == pytest.approx(idle["reads"] / 1000 * 1 + idle["lists"] / 1000 * 10)  # lists as writes
    costs = sum(each["cost"] for each in shown["requestsAMonth"])
    assert shown["monthly"] == pytest.approx(0.001 * shown["bytes"] + costs, rel=1e-6)
    text = archived.ok("cost", "--no-pulsar")
    assert "by prices of 2026-11-26" in text
    archived.config = CONFIG + "cost: {asOf: 2026-11-26, storeGibMonth: 1}\n"
    assert "in all: not known, a price of bytes or requests is missing" in archived.ok("cost", "--no-pulsar")


def test_a_price_without_its_day_is_refused(archived: Line) -> None:
    archived.config = CONFIG + "cost: {writesPer1000: 0.005}\n"
    assert "asOf is missing" in archived.error("cost", "--no-pulsar")
    archived.config = CONFIG + "cost: {asOf: yesterday}\n"
    assert "is not a day" in archived.error("cost", "--no-pulsar")


def test_one_topic_or_one_namespace(archived: Line) -> None:
    other = Archive(archived.archive.store, TopicName("public", "other", "t"))
    other.claim(9)
    other.add(stream(9, 0, 9))
    both = archived.json("cost", "--no-pulsar")
    assert [each["namespace"] for each in both["namespaces"]] == ["public/default", "public/other"]
    alone = archived.json("cost", "public/other", "--no-pulsar")
    assert alone["topics"] == 1
    assert (
        alone["classes"][0]["bytes"]
        == both["classes"][0]["bytes"] - archived.json("cost", str(TOPIC), "--no-pulsar")["classes"][0]["bytes"]
    )
    assert "looking for work" not in {each["kind"] for each in alone["requestsAMonth"]}  # of the whole application
    assert archived.error("cost", "public/none", "--no-pulsar") == "nothing of namespace public/none is archived"
    archived.error("cost", "persistent://public/default/none", "--no-pulsar")


def test_what_is_not_looked_into_is_scaled_up_and_said(archived: Line) -> None:
    for number in range(3):
        other = Archive(archived.archive.store, TopicName("public", "other", f"t{number}"))
        other.sealed_at = LATE
        other.claim(9)
        other.add(stream(9, 0, 99))
    shown = archived.json("cost", "public/other", "--no-pulsar", "--look-into", "1")
    assert (shown["topics"], shown["lookedInto"], shown["segmentShare"]) == (3, 1, pytest.approx(1 / 3))
    all_of_them = archived.json("cost", "public/other", "--no-pulsar")
    assert shown["requestsAMonth"] == all_of_them["requestsAMonth"]
    assert shown["plan"] == all_of_them["plan"] != []
    assert "33.3% of the segments" in archived.ok("cost", "public/other", "--no-pulsar", "--look-into", "1")
    nothing = archived.json("cost", "public/other", "--no-pulsar", "--look-into", "0")
    assert nothing["requestsAMonth"] == []
    assert nothing["classes"][0]["bytes"] == all_of_them["classes"][0]["bytes"]


def test_what_no_catalog_counts_is_told(archived: Line) -> None:
    archived.archive.store.put(layout.data_key(TOPIC, uuid_of(77)), b"x" * 500)
    assert archived.json("cost", "--no-pulsar")["unnamedBytes"] == 500
    assert "500 bytes are in no catalog" in archived.ok("cost", "--no-pulsar")


def test_a_damaged_catalog_stops_no_other(archived: Line) -> None:
    other = Archive(archived.archive.store, TopicName("public", "other", "t"))
    other.claim(9)
    archived.archive.store.put(layout.slot_key(other.topic, 0, 0), b"damage")
    result = archived.run("cost", "--no-pulsar")
    assert result.exit_code == 1
    assert "error: persistent://public/other/t: " in result.stderr
    assert "data" in result.stdout


def test_pulsar_says_copies_and_what_bookkeeper_still_holds(archived: Line) -> None:
    archived.cluster.create(TOPIC)
    for _ in range(4):
        archived.cluster.produce(TOPIC, b"x" * 100)
    archived.cluster.admin.namespace_policies = lambda namespace: {"persistence": {"bookkeeperWriteQuorum": 4}}
    shown = archived.json("cost")
    assert shown["bookies"]["copies"] == {"public/default": 4}
    assert shown["bookies"]["heldBytes"] > 0
    archived.cluster.admin.namespace_policies = lambda namespace: {}
    archived.cluster.admin.runtime_configuration = lambda: {"managedLedgerDefaultWriteQuorum": "5"}
    assert archived.json("cost")["bookies"]["copies"] == {"public/default": 5}

    def refused() -> Mapping[str, str]:
        raise AccessDeniedError("only super users")

    archived.cluster.admin.runtime_configuration = refused
    assert archived.json("cost")["bookies"]["copies"] == {"public/default": 2}


def test_what_bookkeeper_holds_of_the_archive_counts_the_ledger_in_which_the_archive_ends(archived: Line) -> None:
    archived.cluster.create(TOPIC)
    real = archived.cluster.admin.topic_info

    def topic_info(topic: TopicName) -> TopicInfo:
        spans = LedgerList((LedgerSpan(5, None),))
        return replace(real(topic), created=1, ledgers=spans, sizes={5: (200, 20_000)})

    archived.cluster.admin.topic_info = topic_info
    held = archived.json("cost")["bookies"]
    assert (held["heldBytes"], held["archivedBytes"]) == (40_000, 30_000)  # two copies


@pytest.mark.parametrize("error", [BrokerUnavailableError, AccessDeniedError])
def test_without_pulsar_an_error_says_what_to_do(archived: Line, error: type[OffloadError]) -> None:
    def away(namespace: str) -> Mapping[str, object]:
        raise error("no broker answers")

    archived.cluster.admin.namespace_policies = away
    assert archived.error("cost") == "no broker answers; --no-pulsar leaves Pulsar out"


def test_each_shard_looks_for_work(archived: Line) -> None:
    def idle() -> int:
        kinds = archived.json("cost", "--no-pulsar")["requestsAMonth"]
        return next(each["reads"] for each in kinds if each["kind"] == "looking for work")

    alone = idle()
    archived.config = CONFIG + "shards: {count: 3, index: 0}\n"
    assert idle() == 3 * alone
