"""`offloader migrate`: what would be done is said first; the subscriptions come before any policy is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from offloader.archive.following.live import Live
from offloader.archive.messages.unpack import Unpacker
from offloader.cli.asking import ask_all
from offloader.cli.migration_report import shown
from offloader.cli.parsing import parse_scope
from offloader.errors import BrokerUnavailableError
from offloader.metadata import layout, requests
from offloader.metadata.catalog import released
from offloader.metadata.former_offload import FormerOffloads
from offloader.metadata.requests import RequestKind, RequestOutcome
from offloader.metadata.state import CatalogHead, Claim
from offloader.migrate.proof import Shown
from offloader.model import MIB, Position, TopicName
from offloader.ports.entry_source import EntryReader
from tests.archive.support import APPLICATION, TOPIC, Archive, message
from tests.cli.support import CONFIG
from tests.fakes.cluster import MemoryCluster
from tests.format.support import Stored

OTHER = TopicName.parse("public/default/other")
STOCK = CONFIG + 'lifecycle: {stockBucket: "s3://stock"}\n'
SIZE = "managedLedgerOffloadThresholdInBytes"
ON = {"managedLedgerOffloadDriver": "S3", SIZE: 100}


@pytest.fixture
def stock(line):
    """Two topics with an offloaded ledger each, in a namespace whose brokers offload by themselves."""
    line.config = STOCK
    for topic in (TOPIC, OTHER):
        line.cluster.create(topic)
        line.cluster.add_subscription(topic, "mine")
        for _ in range(3):
            for _ in range(5):
                line.cluster.produce(topic, b"x" * 1000)
            line.cluster.roll(topic)
        line.cluster.offload_stock(topic, line.cluster.ledgers(topic).spans[0].ledger, "uuid")
    line.cluster.namespace("public/default").policies["offload_policies"] = dict(ON)
    return line


def produced(line, data: bytes) -> Stored:
    ledger, entry = line.cluster.produce(TOPIC, data)
    return Stored(ledger, entry, data)


def threshold(line) -> object:
    return line.cluster.namespace("public/default").policies["offload_policies"].get(SIZE)


def serve(line, ok: dict[TopicName, bool]) -> list:
    """The application: it takes the topics in, or not."""
    served = []

    def work() -> None:
        for request_id, request in requests.pending(line.archive.store, APPLICATION, 1):
            served.append((request.kind, request.topic, threshold(line)))
            requests.mark_seen(line.archive.store, APPLICATION, request_id)
            outcome = RequestOutcome(ok[request.topic], "told", 1)
            requests.mark_done(line.archive.store, APPLICATION, request_id, outcome)

    line.clock.at = [(line.clock.slept + after, work) for after in (0.1, 0.3, 0.5)]
    return served


def test_a_topic_or_a_namespace() -> None:
    assert parse_scope("public/default") == ("public/default", None)
    assert parse_scope("public/default/orders") == ("public/default", TOPIC)
    assert parse_scope(str(TOPIC)) == ("public/default", TOPIC)


def test_a_dry_run_changes_nothing_and_says_what_becomes_of_each_ledger(stock) -> None:
    found = stock.json_lines("migrate", "to-streaming", "public/default", "--dry-run")
    assert [one.get("topic") for one in found] == [*(str(topic) for topic in sorted([TOPIC, OTHER])), None]
    actions = [(one["state"], one["action"]) for one in found[0]["ledgers"]]
    assert actions == [("offloaded", "copy"), ("closed", "read"), ("closed", "read"), ("open", "read")]
    assert found[0]["pauseSeconds"] == 0
    assert found[2]["topics"] == 2
    assert found[2]["storedBytes"] == found[0]["storedBytes"] + found[1]["storedBytes"] > 30_000
    assert "estimates" in found[2]["message"]
    assert requests.pending(stock.archive.store, APPLICATION, 1) == []
    assert threshold(stock) == 100


def test_a_namespace_s_offload_goes_off_once_each_topic_is_kept(stock) -> None:
    served = serve(stock, {TOPIC: True, OTHER: True})
    told = stock.json_lines("migrate", "to-streaming", "public/default")
    assert {(kind, topic) for kind, topic, _ in served} == {(RequestKind.MIGRATE_COPY, t) for t in (TOPIC, OTHER)}
    assert {before for _, _, before in served} == {100}
    assert threshold(stock) == -1
    assert told[-1]["former"]["Bytes"] == 100


def test_topics_that_are_made_meanwhile_are_kept_before_the_policy_goes(stock) -> None:
    """The application does not take them by itself as long as brokers offload their namespace."""
    made = TopicName.parse("public/default/made-meanwhile")
    served = serve(stock, {TOPIC: True, OTHER: True, made: True})
    stock.clock.at = [(stock.clock.slept + 0.05, lambda: stock.cluster.create(made)), *stock.clock.at]
    stock.clock.at += [(stock.clock.slept + after, stock.clock.at[-1][1]) for after in (0.7, 0.9, 1.1)]
    stock.ok("migrate", "to-streaming", "public/default")
    assert [(topic, before) for _, topic, before in served][-1] == (made, 100)
    assert threshold(stock) == -1


def test_one_topic_that_is_not_kept_leaves_the_policy_alone(stock) -> None:
    serve(stock, {TOPIC: True, OTHER: False})
    assert stock.run("migrate", "to-streaming", "public/default").exit_code == 1
    assert threshold(stock) == 100


@pytest.mark.parametrize("arguments", [["orders"], ["public/default", "--keep-offload"]])
def test_a_policy_that_others_may_need_stays_and_that_is_said(stock, arguments) -> None:
    serve(stock, {TOPIC: True, OTHER: True})
    assert "go on offloading" in stock.ok("migrate", "to-streaming", *arguments)
    assert threshold(stock) == 100


def test_entries_are_rewritten_on_request(stock) -> None:
    served = serve(stock, {TOPIC: True})
    stock.ok("migrate", "to-streaming", "orders", "--rewrite")
    assert [kind for kind, _, _ in served] == [RequestKind.MIGRATE_REWRITE]


def test_the_removed_option_is_refused_in_one_line_that_says_what_to_do_instead(stock) -> None:
    served = serve(stock, {TOPIC: True})
    told = stock.error("migrate", "to-streaming", "orders", "--reference")
    assert (
        "--reference was removed (the last commit to support it is 1db0db3f): without it brokers' objects are copied"
        in told
    )
    assert "shorten Pulsar's retention" in told
    assert len(told.splitlines()) == 1
    assert not list(served)


def test_a_plan_has_costs_where_the_configuration_has_prices(stock) -> None:
    free = stock.json_lines("migrate", "to-streaming", "orders", "--dry-run")[0]
    assert (free["estimatedOnce"], free["estimatedMonthly"]) == (None, None)
    assert " once" not in stock.ok("migrate", "to-streaming", "orders", "--dry-run")
    some = "asOf: 2026-11-26, currency: EUR, writesPer1000: 1000, storeGibMonth: 1073741824"
    stock.config += f"cost: {{{some}}}\n"
    priced = stock.json_lines("migrate", "to-streaming", "orders", "--dry-run")[0]
    assert (priced["estimatedOnce"], priced["estimatedMonthly"]) == (None, priced["storedBytes"])  # no price of reads
    stock.config = stock.config.replace(some, some + ", readsPer1000: 2000, egressGib: 0")
    priced = stock.json_lines("migrate", "to-streaming", "orders", "--dry-run")[0]
    once = priced["writes"] + 2 * priced["reads"]
    assert priced["estimatedOnce"] == once
    assert f"reads: {once:,.2f} EUR once; " in stock.ok("migrate", "to-streaming", "orders", "--dry-run")


@pytest.mark.parametrize(
    ("driver", "config", "told"),
    [("filesystem", STOCK, "filesystem offloader"), ("S3", CONFIG, "set lifecycle.stockBucket")],
)
def test_what_cannot_be_copied_is_refused_before_anything_is_changed(stock, driver, config, told) -> None:
    stock.config = config
    stock.cluster.namespace("public/default").policies["offload_policies"]["managedLedgerOffloadDriver"] = driver
    for arguments in (["--dry-run"], []):
        result = stock.run("migrate", "to-streaming", "public/default", *arguments)
        assert result.exit_code == 1
        assert told in result.output
    assert requests.pending(stock.archive.store, APPLICATION, 1) == []
    assert threshold(stock) == 100


def test_what_is_not_there_is_said_in_one_line(stock) -> None:
    assert "no such topic" in stock.error("migrate", "to-streaming", "public/default/absent")


def served(line, outcomes: dict[RequestKind, bool]) -> list[RequestKind]:
    """The application answers by what is asked."""
    seen: list[RequestKind] = []

    def work() -> None:
        for request_id, request in requests.pending(line.archive.store, APPLICATION, 1):
            seen.append(request.kind)
            requests.mark_seen(line.archive.store, APPLICATION, request_id)
            told = RequestOutcome(outcomes[request.kind], "told", 1)
            requests.mark_done(line.archive.store, APPLICATION, request_id, told)

    line.clock.at = [(line.clock.slept + 0.1 * n, work) for n in range(1, 40)]
    return seen


@pytest.fixture
def archived_topic(line):
    """A topic that is archived and listed."""
    line.config = STOCK
    line.cluster.create(TOPIC)
    line.cluster.add_subscription(TOPIC, "mine")
    line.entries = [produced(line, message(f"m{number}")) for number in range(10)]
    line.archive.claim(line.entries[0].ledger, 0, created=line.cluster.admin.topic_info(TOPIC).created)
    line.archive.add(line.entries)
    line.cluster.roll(TOPIC)
    line.cluster.configuration["managedLedgerOffloadDriver"] = "S3"
    cluster = line.cluster
    line.dependencies = replace(
        line.dependencies,
        live=lambda _: Live(lambda: nullcontext((cluster.source, cluster.admin))),
        stock_reader=lambda _, topic, __: nullcontext(MemoryClient(cluster, topic)),
    )
    return line


class MemoryClient:
    """What a client shows of the brokers in memory."""

    def __init__(self, cluster: MemoryCluster, topic: TopicName) -> None:
        first = cluster.admin.topic_info(topic).ledgers.spans[0].ledger
        self.messages = self.of(cluster.source.open(topic, first, 0, max_bytes=MIB), Unpacker())

    @staticmethod
    def of(reader: EntryReader, unpacker: Unpacker) -> Iterator[Shown]:
        while arrived := reader.read(0.1):
            for each in arrived:
                for found in unpacker.entry_messages(Position(0, each.ledger, each.entry), each.data):
                    yield shown(found)

    def read(self, seconds: float) -> Shown | None:
        return next(self.messages, None)


HAND = {RequestKind.HAND_OVER: True, RequestKind.RELEASE: True, RequestKind.HAND_OVER_UNDO: True}


def test_the_way_back_proves_before_anything_is_let_go_of(archived_topic) -> None:
    line = archived_topic
    seen = served(line, HAND)
    (plan, *told) = line.json_lines("migrate", "to-ledger-based", "orders")
    assert [one["action"] for one in plan["ledgers"]] == ["bridge", "stays"]
    assert plan["pauseSeconds"] > 0
    assert told[1]["equal"] == 10
    assert "--yes lets go" in told[2]["message"]
    assert seen == [RequestKind.HAND_OVER]
    told = line.json_lines("migrate", "to-ledger-based", "public/default", "--yes")
    assert seen[1:] == [RequestKind.HAND_OVER, RequestKind.RELEASE]
    assert threshold(line) == 0
    line.ok("migrate", "undo", "orders")
    assert seen[-1] is RequestKind.HAND_OVER_UNDO


def test_topics_that_were_made_during_the_way_back_are_told_of(archived_topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has taken one in: it is kept, and nobody has handed it over."""
    line, made = archived_topic, TopicName.parse("public/default/made-meanwhile")

    def released(*asked: object) -> object:
        if asked[1] is RequestKind.RELEASE:
            line.cluster.create(made)
            Archive(line.archive.store, made).claim(0)
        return ask_all(*asked)

    served(line, HAND)
    monkeypatch.setattr("offloader.cli.migrate.ask_all", released)
    result = line.run("migrate", "to-ledger-based", "public/default", "--yes")
    assert result.exit_code == 2, result.output
    assert "made-meanwhile" in result.output
    assert "the same command again" in result.output


def test_what_brokers_do_not_deliver_as_it_is_archived_stops_the_way_back(archived_topic) -> None:
    line = archived_topic
    line.cluster.state.topic(TOPIC).ledgers[0].entries[4].data = message("other")
    seen = served(line, HAND)
    result = line.run("migrate", "to-ledger-based", "public/default", "--yes")
    assert result.exit_code == 1
    assert f"other bytes for {line.entries[4].ledger}:4" in result.output
    assert seen == [RequestKind.HAND_OVER]


def test_the_plan_knows_where_the_archive_begins_and_what_it_has_lost(line) -> None:
    line.config = STOCK
    line.cluster.create(TOPIC)
    line.cluster.add_subscription(TOPIC, "mine")
    entries = []
    for _ in range(4):
        entries.append([produced(line, message("x")) for _ in range(5)])
        line.cluster.roll(TOPIC)
    line.archive.claim(entries[1][0].ledger, 0, created=line.cluster.admin.topic_info(TOPIC).created)
    line.archive.add(entries[1], closed={entries[1][0].ledger: 4})
    line.archive.lose(Position(0, entries[2][0].ledger, 0), Position(0, entries[2][0].ledger, 4))
    line.archive.closed(entries[2][0].ledger, 4)
    line.archive.add(entries[3])
    line.root()
    there = line.json_lines("migrate", "to-streaming", "orders", "--dry-run")[0]["ledgers"]
    assert [one["action"] for one in there] == ["outside", "archived", "outside", "archived", "read"]
    assert there[0]["why"] == "the archive begins behind it"
    assert "gone before it was offloaded" in there[2]["why"]
    back = line.json_lines("migrate", "to-ledger-based", "orders", "--dry-run")[0]["ledgers"]
    assert [one["action"] for one in back] == ["stays", "bridge", "stays", "bridge", "stays"]


def test_what_was_archived_of_a_former_topic_proves_nothing_and_is_not_read(archived_topic) -> None:
    """One that was made anew, in a cluster that was made anew, may have ledgers of the same ids."""
    line = archived_topic
    line.archive = Archive()
    line.dependencies = replace(line.dependencies, store=lambda _: line.archive.store)
    line.archive.claim(line.entries[0].ledger, 0)
    line.archive.add([replace(each, data=message("of the former one")) for each in line.entries])
    line.archive.incarnation = 1
    line.archive.claim(line.entries[2].ledger, 2, created=line.cluster.admin.topic_info(TOPIC).created)
    line.archive.add(line.entries[2:])
    line.root()
    served(line, HAND)
    proof = line.json_lines("migrate", "to-ledger-based", "orders")[2]
    assert (proof["wrong"], proof["equal"], proof["unarchived"]) == ("", 8, 2)


def test_what_is_made_anew_while_it_is_read_is_not_proven(archived_topic) -> None:
    """What is missing of the former one would count as trimmed."""
    line, cluster = archived_topic, archived_topic.cluster

    @contextmanager
    def interrupted(_config: object, topic: TopicName, _average: int) -> Iterator[MemoryClient]:
        yield MemoryClient(cluster, topic)
        cluster.delete(TOPIC)
        cluster.create(TOPIC)

    line.dependencies = replace(line.dependencies, stock_reader=interrupted)
    seen = served(line, HAND)
    result = line.run("migrate", "to-ledger-based", "public/default", "--yes")
    assert (result.exit_code, "created again" in result.stdout) == (1, True)
    assert seen == [RequestKind.HAND_OVER]


def test_the_archive_is_read_from_the_first_listed_ledger_on(archived_topic) -> None:
    line = archived_topic
    for _ in range(2):
        line.entries += [produced(line, message("x" * 4000)) for _ in range(5)]
        line.archive.add(line.entries[-5:])
        line.cluster.roll(TOPIC)
    line.cluster.move_pin(TOPIC, line.entries[-1].ledger, 0, "mine")
    listed = line.cluster.admin.topic_info(TOPIC).ledgers
    left = [each for each in line.entries if each.ledger in listed]
    assert 0 < len(left) < len(line.entries)
    first = line.archive.catalog.segments[0]
    line.archive.store.delete([layout.data_key(TOPIC, first.uuid), layout.index_key(TOPIC, first.uuid)])
    served(line, HAND)
    (*_, proof, _) = line.json_lines("migrate", "to-ledger-based", "orders")
    assert (proof["wrong"], proof["equal"]) == ("", len(left))


def test_a_topic_that_cannot_be_handed_over_is_not_let_go_of(archived_topic) -> None:
    seen = served(archived_topic, HAND | {RequestKind.HAND_OVER: False})
    assert archived_topic.run("migrate", "to-ledger-based", "public/default", "--yes").exit_code == 1
    assert seen == [RequestKind.HAND_OVER]


def test_undo_puts_the_namespace_s_own_offload_back_whoever_gives_it_and_once(stock) -> None:
    policies = stock.cluster.namespace("public/default").policies["offload_policies"]
    policies["managedLedgerOffloadThresholdInSeconds"] = 60
    serve(stock, {TOPIC: True, OTHER: True})
    stock.ok("migrate", "to-streaming", "public/default")
    assert (threshold(stock), policies["managedLedgerOffloadThresholdInSeconds"]) == (-1, -1)
    for topic in (TOPIC, OTHER):
        claim(stock, topic)
    served(stock, HAND)
    told = stock.json_lines("migrate", "undo", "public/default")
    assert (threshold(stock), policies["managedLedgerOffloadThresholdInSeconds"]) == (100, 60)
    assert told[-1]["threshold"] == 100
    policies["managedLedgerOffloadThresholdInBytes"] = 7  # somebody's, later
    served(stock, HAND)
    stock.ok("migrate", "undo", "public/default")
    assert threshold(stock) == 7


def test_what_was_before_is_in_the_bucket_before_it_is_changed(stock) -> None:
    """A process that dies while it changes the policy leaves enough for the next one to take it back."""
    stock.cluster.faults.add("admin.set_offload_threshold", lambda: BrokerUnavailableError("gone"), times=1)
    serve(stock, {TOPIC: True, OTHER: True})
    assert stock.run("migrate", "to-streaming", "public/default").exit_code != 0
    former = FormerOffloads(stock.archive.store, lambda: "t").newest("public/default")
    assert former is not None
    assert (former.size, former.direction, former.over) == (100, "to-streaming", False)
    served(stock, {RequestKind.MIGRATE_COPY: True})
    stock.ok("migrate", "to-streaming", "public/default")
    assert threshold(stock) == -1
    assert FormerOffloads(stock.archive.store, lambda: "t").newest("public/default") == former, "not what we have set"


def test_undo_of_the_way_back_leaves_what_was_before_that_and_a_topic_changes_no_policy(archived_topic) -> None:
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = dict(ON)
    served(line, HAND | {RequestKind.RELEASE: False})
    assert line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5").exit_code == 1
    assert threshold(line) == 5
    served(line, HAND | {RequestKind.RELEASE: False})
    assert line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5").exit_code == 1
    served(line, HAND)
    line.ok("migrate", "undo", "orders")
    assert threshold(line) == 5
    served(line, HAND)
    line.ok("migrate", "undo", "public/default")
    assert threshold(line) == 100


def test_a_way_back_that_was_given_up_long_ago_says_nothing_of_what_applies_today(archived_topic) -> None:
    """It changed nothing. What an operator has set since is what `undo` of the next one puts back."""
    line = archived_topic
    policies = line.cluster.namespace("public/default").policies
    policies["offload_policies"] = ON | {SIZE: -1}
    served(line, HAND)
    line.ok("migrate", "to-ledger-based", "public/default", "--threshold", "5")
    policies["offload_policies"] = ON | {SIZE: 500}
    served(line, HAND | {RequestKind.RELEASE: False})
    assert line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5").exit_code == 1
    assert threshold(line) == 5
    served(line, HAND)
    line.ok("migrate", "undo", "public/default")
    assert threshold(line) == 500


def test_undo_leaves_what_somebody_has_set_since(stock) -> None:
    serve(stock, {TOPIC: True, OTHER: True})
    stock.ok("migrate", "to-streaming", "public/default")
    for topic in (TOPIC, OTHER):
        claim(stock, topic)
    stock.cluster.namespace("public/default").policies["offload_policies"][SIZE] = 7
    served(stock, HAND)
    told = stock.ok("migrate", "undo", "public/default")
    assert "from 7 bytes on: somebody has changed the offload threshold" in told
    assert threshold(stock) == 7


def test_undo_leaves_what_another_application_has_changed(stock) -> None:
    serve(stock, {TOPIC: True, OTHER: True})
    stock.ok("migrate", "to-streaming", "public/default")
    for topic in (TOPIC, OTHER):
        claim(stock, topic)
    log = FormerOffloads(stock.archive.store, lambda: "t")
    former = log.newest("public/default")
    assert former is not None
    log.record(replace(former, application="another"))
    served(stock, HAND)
    assert "another has migrated public/default" in stock.ok("migrate", "undo", "public/default")
    assert threshold(stock) == -1


def test_undo_of_topics_that_nobody_of_us_has_is_refused(stock) -> None:
    assert "app offloads none of its topics" in stock.error("migrate", "undo", "public/default")


def test_no_undo_after_a_way_back_that_is_complete(archived_topic) -> None:
    """A year later somebody takes the topics again. What was before that way back is nobody's wish any more."""
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = ON | {SIZE: -1}
    served(line, HAND)
    line.ok("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5")
    assert threshold(line) == 5
    assert FormerOffloads(line.archive.store, lambda: "t").newest("public/default").over
    served(line, HAND)
    line.ok("migrate", "undo", "public/default")
    assert threshold(line) == 5
    serve(line, {TOPIC: True})
    line.ok("migrate", "to-streaming", "public/default")
    served(line, HAND)
    line.ok("migrate", "undo", "public/default")
    assert threshold(line) == 5


def test_the_way_there_takes_back_a_way_back_with_what_was_before_that(archived_topic) -> None:
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = ON | {SIZE: -1}
    served(line, HAND | {RequestKind.RELEASE: False})
    assert line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5").exit_code == 1
    serve(line, {TOPIC: True})
    line.ok("migrate", "to-streaming", "public/default")
    served(line, HAND)
    line.ok("migrate", "undo", "public/default")
    assert threshold(line) == -1, "not what the way back had set"


def test_what_is_not_undone_at_its_topics_is_not_put_back(archived_topic) -> None:
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = dict(ON)
    served(line, HAND | {RequestKind.RELEASE: False, RequestKind.HAND_OVER_UNDO: False})
    line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5")
    assert line.run("migrate", "undo", "public/default").exit_code == 1
    assert threshold(line) == 5


def of_one(line, topic: TopicName, size: int) -> None:
    """A topic has a threshold of its own."""
    line.cluster.admin.offload_of_topics[topic] = {"managedLedgerOffloadThresholdInBytes": size}


def test_the_namespace_is_switched_off_whatever_its_first_topic_says(stock) -> None:
    of_one(stock, min(TOPIC, OTHER), -1)
    serve(stock, {TOPIC: True, OTHER: True})
    told = stock.json_lines("migrate", "to-streaming", "public/default")
    assert threshold(stock) == -1
    assert told[-1]["former"]["Bytes"] == 100, "the namespace's own, not the topic's"


@pytest.mark.parametrize("topic", [TOPIC, OTHER])
@pytest.mark.parametrize("own", [ON, {}])
def test_topics_that_brokers_still_offload_are_named(stock, topic, own) -> None:
    """Their own policies are theirs: nobody says that brokers offload nothing more."""
    policies = stock.cluster.namespace("public/default").policies
    policies["offload_policies"] = {"managedLedgerOffloadDriver": "S3", **own}
    of_one(stock, topic, 7)
    for _ in range(2):
        serve(stock, {TOPIC: True, OTHER: True})
        result = stock.run("migrate", "to-streaming", "public/default", "--output", "json")
        assert result.exit_code == 2
        (told,) = [json.loads(line) for line in result.stdout.splitlines() if '"topics"' in line]
        assert told["topics"] == [str(topic)]
        assert "remove-offload-policies" in told["message"]
        assert threshold(stock) == -1
    former = FormerOffloads(stock.archive.store, lambda: "t").newest("public/default")
    assert former is None or former.size == own.get(SIZE, 7)


def test_what_was_before_survives_an_interruption_between_both_thresholds(stock) -> None:
    policies = stock.cluster.namespace("public/default").policies["offload_policies"]
    policies["managedLedgerOffloadThresholdInSeconds"] = 60
    stock.cluster.faults.add("admin.set_offload_threshold", lambda: BrokerUnavailableError("gone"), times=1)
    serve(stock, {TOPIC: True, OTHER: True})
    assert stock.run("migrate", "to-streaming", "public/default").exit_code != 0
    policies["managedLedgerOffloadThresholdInBytes"] = -1  # the first of the two calls
    serve(stock, {TOPIC: True, OTHER: True})
    stock.ok("migrate", "to-streaming", "public/default")
    former = FormerOffloads(stock.archive.store, lambda: "t").newest("public/default")
    assert former is not None
    assert (former.size, former.seconds) == (100, 60)


def test_what_the_application_would_refuse_is_refused_before_anything_is_changed(stock) -> None:
    """The others would stay half way, and the same command could never get further."""
    stock.config = STOCK.replace(
        "public/default: {enabled: true}",
        'public/default: {enabled: true, topics: {"persistent://public/default/other": {enabled: false}}}',
    )
    served = serve(stock, {TOPIC: True, OTHER: True})
    for arguments in (["--dry-run"], []):
        result = stock.run("migrate", "to-streaming", "public/default", *arguments)
        assert result.exit_code == 1
        assert f"{OTHER}: it is not enabled for app" in result.output
    assert served == []
    assert threshold(stock) == 100
    stock.ok("migrate", "to-streaming", "orders")


def test_the_way_back_is_refused_of_topics_that_nobody_of_us_has(archived_topic) -> None:
    line = archived_topic
    line.cluster.create(OTHER)
    seen = served(line, HAND)
    told = line.error("migrate", "to-ledger-based", "public/default", "--yes")
    assert "nothing was changed" in told
    assert f"{OTHER}: it is not offloaded by app" in told
    assert "refused: " in line.run("migrate", "to-ledger-based", "public/default", "--dry-run").output
    line.config = STOCK.replace("public/default: {enabled: true}", "public/default: {enabled: false}")
    assert f"{TOPIC}: it is not enabled for app" in line.error("migrate", "to-ledger-based", "orders")
    assert seen == []


def test_nothing_is_let_go_of_that_nobody_would_offload(archived_topic) -> None:
    """Neither we nor brokers: what is consumed would go without a copy."""
    line = archived_topic
    seen = served(line, HAND)
    told = line.error("migrate", "to-ledger-based", "orders", "--yes")
    assert "nothing was changed" in told
    assert "--without-offload" in told
    assert seen == []
    seen = served(line, HAND)
    line.ok("migrate", "to-ledger-based", "orders", "--yes", "--without-offload")
    assert seen == [RequestKind.HAND_OVER, RequestKind.RELEASE]


def test_nothing_of_a_namespace_is_let_go_of_where_brokers_leave_out_a_topic(archived_topic) -> None:
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = ON | {SIZE: -1}
    of_one(line, TOPIC, -1)
    seen = served(line, HAND)
    told = line.run("migrate", "to-ledger-based", "public/default", "--yes", "--threshold", "5").stderr
    assert f"brokers offload nothing of {TOPIC} by themselves" in told
    assert seen == [RequestKind.HAND_OVER]
    assert threshold(line) == -1, "or both would offload the others"


def test_all_are_asked_before_anybody_waits(stock) -> None:
    """A thousand topics cost one look of the application, and no interruption leaves half of them unasked for long."""
    waiting: list[int] = []

    def work() -> None:
        found = requests.pending(stock.archive.store, APPLICATION, 1)
        waiting.append(len(found))
        for request_id, _ in found:
            requests.mark_seen(stock.archive.store, APPLICATION, request_id)
            requests.mark_done(stock.archive.store, APPLICATION, request_id, RequestOutcome(True, "told", 1))

    stock.clock.at += [(0.1, work), (0.5, work)]
    stock.ok("migrate", "to-streaming", "public/default")
    assert waiting[0] == 2


def claim(line, topic: TopicName) -> CatalogHead:
    catalogs = line.archive.catalogs
    begin = Position(0, line.cluster.ledgers(topic).spans[0].ledger, 0)
    return catalogs.append(catalogs.head(topic), Claim(APPLICATION, 0, 1, begin, at=1))


@pytest.fixture
def half_let_go(archived_topic):
    """A namespace of which one topic was let go of when the command was interrupted; its former offload was off."""
    line = archived_topic
    line.cluster.namespace("public/default").policies["offload_policies"] = ON | {SIZE: -1}
    line.cluster.create(OTHER)
    served(line, HAND)
    line.run("migrate", "to-ledger-based", "public/default")
    claimed = claim(line, OTHER)
    served(line, HAND | {RequestKind.RELEASE: False})
    assert line.run("migrate", "to-ledger-based", "public/default", "--yes").exit_code == 1
    assert threshold(line) == 0
    line.archive.catalogs.append(claimed, released(claimed.claim, 1, "released"))
    return line


def test_the_same_command_goes_on_with_what_is_left(half_let_go) -> None:
    line = half_let_go
    seen = served(line, HAND)
    told = line.ok("migrate", "to-ledger-based", "public/default", "--yes")
    assert f"{OTHER} is let go of already" in told
    assert seen == [RequestKind.HAND_OVER, RequestKind.RELEASE], "of the one that is left"


def test_undo_leaves_brokers_what_they_alone_offload(half_let_go) -> None:
    line = half_let_go
    seen = served(line, HAND)
    result = line.run("migrate", "undo", "public/default")
    assert result.exit_code == 1
    assert f"{OTHER} is let go of already" in result.output
    assert "brokers go on offloading" in result.output
    assert seen == [RequestKind.HAND_OVER_UNDO]
    assert threshold(line) == 0
    serve(line, {TOPIC: True, OTHER: True})
    line.ok("migrate", "to-streaming", "public/default")
    assert threshold(line) == -1


def test_undo_of_the_way_there_says_that_both_offload(stock) -> None:
    serve(stock, {TOPIC: True, OTHER: True})
    stock.ok("migrate", "to-streaming", "public/default")
    for topic in (TOPIC, OTHER):
        claim(stock, topic)
    served(stock, HAND)
    assert "they are streamed, too, until" in stock.ok("migrate", "undo", "public/default")
