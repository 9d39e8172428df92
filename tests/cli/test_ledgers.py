"""`offloader ledgers` and `topics close-orphan-tail` over bookies in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.cli.command import CommandDependencies
from offloader.errors import AuthorizationFailedError, BrokerUnavailableError
from offloader.model import TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.names import topic_of
from tests.fakes.bookkeeper import SimulatedBookie, SimulatedCluster

TOPIC = TopicName.parse("public/default/t")
HOUR = 3_600_000


class Bookkeeper(SimulatedCluster):
    """Ledgers 11, 12 and 13 of the topic, each with one entry of 10 bytes; 11 is closed."""

    def __init__(self) -> None:
        super().__init__(1, 3, prompt=True)
        for ledger in (11, 12, 13):
            self.put(ledger)
        closed = replace(self.read(11), state=LedgerState.CLOSED, last_entry=0, length=10)
        self.metadata.cluster.put_ledger(11, closed)
        self.listed(TOPIC, 11, 12, 13)

    def put(self, ledger: int, owner: bytes = b"public/default/persistent/t", **custom: bytes) -> None:
        tags = {"pulsar/managed-ledger": owner, **custom} if owner else {}
        metadata = self.create(ledger, 3, 3, 2, custom=tags)
        stored = encode(StoredEntry(ledger, 0, -1, 10, bytes(10)), digest_for(metadata))
        for bookie in self.bookies.values():
            bookie.memory.add(ledger, 0, stored, master_key(b""))

    def listed(self, topic: TopicName, *ledgers: int) -> None:
        listed = tuple(ListedLedger(ledger, 0, 0) for ledger in ledgers)
        self.metadata.cluster.put_managed_ledger(topic, ManagedLedger(listed))

    def read(self, ledger: int):
        return self.metadata.read(ledger).metadata

    def fenced(self, ledger: int) -> bool:
        return any(bookie.memory.ledgers[ledger].fenced for bookie in self.bookies.values())


@pytest.fixture
def bookkeeper():
    return Bookkeeper()


@pytest.fixture
def line(line, bookkeeper):
    line.dependencies = replace(
        line.dependencies, bookkeeper=lambda _config, _timeout: tuple(reversed(bookkeeper.client()))
    )
    line.clock.now += HOUR
    return line


def test_inspect_shows_the_evidence_and_changes_nothing(line, bookkeeper) -> None:
    text = line.ok("ledgers", "inspect", "12")
    assert text.splitlines()[-1] == "ledger 12: would be closed, last entry 0, 10 bytes"
    assert "entry 0: b1:3181 yes, b2:3181 yes, b3:3181 yes" in text
    assert bookkeeper.read(12).state is LedgerState.OPEN
    assert not bookkeeper.fenced(12)


def test_dangers_are_findings(line, bookkeeper) -> None:
    bookkeeper.bookies["b1:3181"].up = False
    result = line.run("ledgers", "inspect", "12")
    assert result.exit_code == 2
    assert "not-registered: b1:3181 is not registered" in result.stdout


def test_inspect_as_json(line) -> None:
    said = line.json("ledgers", "inspect", "11")
    assert (said["message"], said["outcome"], said["metadata"]["state"]) == (
        "ledger 11: was closed already, last entry 0, 10 bytes",
        "adopted",
        "CLOSED",
    )


def test_close_closes(line, bookkeeper) -> None:
    said = line.json("ledgers", "close", "12")
    assert (said["outcome"], said["lastEntry"], said["length"], said["objection"]) == ("closed", 0, 10, None)
    assert bookkeeper.read(12).closed
    assert "was closed already" in line.ok("ledgers", "close", "12")


def test_close_gives_up_where_too_little_is_known(line, bookkeeper) -> None:
    bookkeeper.bookies["b1:3181"].up = bookkeeper.bookies["b2:3181"].up = False
    result = line.run("ledgers", "close", "12", "--timeout", "1s")
    assert result.exit_code == 2
    assert "at least 1 of b1:3181 and b2:3181 must come back" in result.stdout.splitlines()[-1]
    assert bookkeeper.read(12).state is LedgerState.IN_RECOVERY


def test_a_bookie_that_is_gone_is_replaced_and_it_is_said_beforehand(line, bookkeeper) -> None:
    bookkeeper.bookies["b4:3181"] = SimulatedBookie()
    bookkeeper.metadata.cluster.register("b4:3181", None)
    bookkeeper.metadata.cluster.put_ledger(12, replace(bookkeeper.read(12), ack_quorum=3))
    bookkeeper.bookies["b1:3181"].up = False
    end = "last entry 0, 10 bytes; from entry 0 on b4:3181 in place of b1:3181"
    said = line.run("ledgers", "inspect", "12").stdout.splitlines()
    assert said[-1] == f"ledger 12: would be closed, {end}"
    assert "who would take which entry:" in said
    assert bookkeeper.read(12).state is LedgerState.OPEN
    assert 12 not in bookkeeper.bookies["b4:3181"].memory.ledgers
    closed = line.json("ledgers", "close", "12")
    assert closed["message"] == f"ledger 12: closed, {end}"
    assert closed["replaced"] == [{"firstEntry": 0, "bookie": "b1:3181", "by": "b4:3181"}]
    assert bookkeeper.read(12).closed


def test_what_could_not_be_written_back_is_not_promised(line, bookkeeper) -> None:
    bookkeeper.metadata.cluster.put_ledger(12, replace(bookkeeper.read(12), ack_quorum=3))
    bookkeeper.bookies["b1:3181"].up = False
    result = line.run("ledgers", "close", "12", "--dry-run")
    assert result.exit_code == 2
    assert "only 2 of 3 bookies that must hold it would take it" in result.stdout
    assert "b1:3181 must come back (b1:3181: " in result.stdout.splitlines()[-1]
    assert not bookkeeper.fenced(12)


def test_a_dry_run_closes_nothing(line, bookkeeper) -> None:
    assert "would be closed" in line.ok("ledgers", "close", "12", "--dry-run")
    line.cluster.admin.loaded[TOPIC] = "broker:8080"
    result = line.run("ledgers", "close", "13", "--dry-run")
    assert result.exit_code == 2
    assert (
        "would be refused: ledger 13: persistent://public/default/t is loaded by the broker broker:8080"
        in result.stdout
    )
    assert not bookkeeper.fenced(12)
    assert not bookkeeper.fenced(13)


def test_a_ledger_that_a_broker_may_write_is_refused(line, bookkeeper) -> None:
    line.cluster.admin.loaded[TOPIC] = "broker:8080"
    assert "is loaded by the broker broker:8080" in line.error("ledgers", "close", "13")
    assert not bookkeeper.fenced(13)
    line.ok("ledgers", "close", "12")  # not the topic's last one: no broker writes it
    line.ok("ledgers", "close", "13", "--force")
    assert bookkeeper.read(13).closed


def test_a_ledger_that_was_just_made_is_refused(line) -> None:
    line.clock.now -= HOUR - 30_000
    assert "was made 30 s ago" in line.error("ledgers", "close", "13")
    line.clock.now += 90_000
    line.ok("ledgers", "close", "13")


@pytest.mark.parametrize(
    "error", [AuthorizationFailedError("not a super user"), BrokerUnavailableError("nobody there")]
)
def test_where_brokers_cannot_be_asked_it_is_refused(line, error) -> None:
    def loaded_by(topic):
        raise error

    line.cluster.admin.loaded_by = loaded_by
    assert f"cannot be found out ({error}). --force" in line.error("ledgers", "close", "13")


def test_ledgers_of_nobody_and_of_cursors(line, bookkeeper) -> None:
    bookkeeper.put(21, b"")
    assert "belongs to no topic" in line.error("ledgers", "close", "21")
    bookkeeper.put(22, **{"pulsar/cursor": b"sub"})
    bookkeeper.put(5, **{"pulsar/cursor": b"sub"})
    line.ok("ledgers", "close", "22")
    line.cluster.admin.loaded[TOPIC] = "broker:8080"
    assert "is loaded by" in line.error("ledgers", "close", "5")
    bookkeeper.put(23, b"something/else")
    assert "cannot be found out" in line.error("ledgers", "close", "23")


@pytest.mark.parametrize(
    "name",
    ["public/default/persistent/t-sub__transaction_pending_ack", "pulsar/system/persistent/__transaction_log_0"],
)
def test_ledgers_of_transactions_are_refused(line, bookkeeper, name) -> None:
    """They are of no topic that brokers would list as loaded."""
    bookkeeper.put(25, name.encode())
    bookkeeper.listed(topic_of(name), 25)
    assert "belongs to transactions" in line.error("ledgers", "close", "25")
    assert not bookkeeper.fenced(25)
    line.ok("ledgers", "close", "25", "--force")


def test_the_ledgers_of_a_deleted_topic_can_be_closed(line, bookkeeper) -> None:
    bookkeeper.put(24, b"public/default/persistent/gone")
    line.ok("ledgers", "close", "24")


def test_a_bookie_that_lost_its_disk_must_be_trusted(line, bookkeeper) -> None:
    bookkeeper.replace_disk("b1:3181")
    bookkeeper.bookies["b2:3181"].up = False
    result = line.run("ledgers", "close", "12")
    assert result.exit_code == 2
    assert "young-cookie: b1:3181" in result.stdout
    line.ok("ledgers", "close", "12", "--trust", "b1:3181")


@pytest.mark.parametrize(
    "command",
    [["ledgers", "inspect", "12"], ["ledgers", "close", "12"], ["topics", "close-orphan-tail", "t"]],
    ids=["inspect", "close", "close-orphan-tail"],
)
def test_a_bookie_to_trust_that_no_ledger_is_on_is_refused(line, bookkeeper, command) -> None:
    said = line.error(*command, "--trust", "b1:3181", "--trust", "typo:3181")
    assert said == "--trust typo:3181: none of the ledgers is on such a bookie: they are on b1:3181, b2:3181, b3:3181"
    assert bookkeeper.read(12).state is LedgerState.OPEN
    line.ok(*command, "--trust", "b1:3181")


def test_a_bookie_to_trust_may_be_in_one_ledger_of_the_tail_only(line, bookkeeper) -> None:
    bookkeeper.metadata.cluster.delete_ledger(12)
    line.ok("topics", "close-orphan-tail", "t", "--trust", "b1:3181")


def test_the_tail_of_a_topic_is_closed(line, bookkeeper) -> None:
    bookkeeper.metadata.cluster.put_ledger(11, replace(bookkeeper.read(11), state=LedgerState.OPEN))
    said = line.json_lines("topics", "close-orphan-tail", "t")
    assert [(one["ledger"], one["outcome"], one["topic"]) for one in said] == [
        (12, "closed", str(TOPIC)),
        (13, "closed", str(TOPIC)),
    ]
    assert [bookkeeper.read(ledger).closed for ledger in (11, 12, 13)] == [False, True, True]
    text = line.ok("topics", "close-orphan-tail", "t")
    assert text.splitlines() == [f"{TOPIC}: ledger {n}: was closed already, last entry 0, 10 bytes" for n in (12, 13)]


def test_a_ledger_of_the_tail_that_pulsar_has_offloaded_and_deleted_is_passed_over(line, bookkeeper) -> None:
    bookkeeper.metadata.cluster.delete_ledger(12)
    said = line.json_lines("topics", "close-orphan-tail", "t")
    assert [(one["ledger"], one["message"]) for one in said] == [
        (12, "ledger 12 is gone from BookKeeper"),
        (13, "ledger 13: closed, last entry 0, 10 bytes"),
    ]
    assert bookkeeper.read(13).closed


def test_the_tail_of_a_loaded_topic_is_not_touched(line, bookkeeper) -> None:
    line.cluster.admin.loaded[TOPIC] = "broker:8080"
    bookkeeper.metadata.cluster.put_ledger(
        12, replace(bookkeeper.read(12), state=LedgerState.CLOSED, last_entry=0, length=10)
    )
    result = line.run("topics", "close-orphan-tail", "t")
    assert result.exit_code == 1
    assert "is loaded by the broker" in result.stderr
    assert not bookkeeper.fenced(13)


def test_a_tail_that_cannot_be_closed_ends_it(line, bookkeeper) -> None:
    bookkeeper.bookies["b1:3181"].up = bookkeeper.bookies["b2:3181"].up = False
    result = line.run("topics", "close-orphan-tail", "t", "--output", "json")
    assert result.exit_code == 2
    assert [json.loads(text)["outcome"] for text in result.stdout.splitlines()] == ["aborted"]
    assert bookkeeper.read(13).state is LedgerState.OPEN


def test_partitions_one_by_one(line, bookkeeper) -> None:
    for number in (0, 1):
        name = TopicName.parse(f"public/default/p-partition-{number}")
        line.cluster.create(name)
        bookkeeper.put(31 + number, f"public/default/persistent/p-partition-{number}".encode())
        bookkeeper.listed(name, *([31 + number] if number == 0 else []))
    said = line.json_lines("topics", "close-orphan-tail", "p")
    assert [one["message"] for one in said] == ["ledger 31: closed, last entry 0, 10 bytes", "no ledgers"]


@pytest.mark.parametrize(("configured", "asked", "used"), [("300ms", "2s", 2.0), ("20s", "2s", 20.0)])
def test_a_bookie_may_take_as_long_as_the_command_says_however_little_the_configuration_says(
    line, bookkeeper, monkeypatch: pytest.MonkeyPatch, configured, asked, used
) -> None:
    made = []

    def clients(settings):
        made.append(settings.bookies.request_timeout)
        return tuple(reversed(bookkeeper.client()))

    monkeypatch.setattr("offloader.bookkeeper.connect.clients", clients)
    line.dependencies = replace(line.dependencies, bookkeeper=CommandDependencies.bookkeeper)
    reach = f"pulsar: {{metadataServiceUri: 'zk:h', bookies: {{operationTimeout: {configured}}}, "
    line.config = line.config.replace("pulsar: {", reach)
    line.ok("ledgers", "inspect", "12", "--timeout", asked)
    assert made == [used]


def test_a_partition_that_is_refused_does_not_stop_the_others(line, bookkeeper) -> None:
    names = [TopicName.parse(f"public/default/p-partition-{number}") for number in range(3)]
    for ledger, name in enumerate(names, 31):
        line.cluster.create(name)
        bookkeeper.put(ledger, f"public/default/persistent/{name.name}".encode())
        bookkeeper.listed(name, ledger)
    line.cluster.admin.loaded[names[0]] = "broker:8080"
    bookkeeper.metadata.cluster.put_ledger(32, b"damaged")
    result = line.run("topics", "close-orphan-tail", "p")
    assert result.exit_code == 1
    refused, failed = result.stderr.splitlines()
    assert refused.startswith(f"error: {names[0]}: ledger 31: {names[0]} is loaded by the broker broker:8080")
    assert failed.startswith(f"error: {names[1]}: ledger 32: ")
    assert not bookkeeper.fenced(31)
    assert bookkeeper.read(33).closed


def test_a_ledger_whose_time_of_creation_makes_no_sense_is_shown_all_the_same(line, bookkeeper) -> None:
    nanoseconds = 1_700_000_000_000_000_000
    bookkeeper.metadata.cluster.put_ledger(13, replace(bookkeeper.read(13), created_ms=nanoseconds, raw=b""))
    assert f"created {nanoseconds} ms after 1970" in line.ok("ledgers", "inspect", "13")


def test_what_is_not_there(line) -> None:
    line.cluster.create(replace(TOPIC, name="another"))
    assert line.error("ledgers", "inspect", "99") == "there is no ledger 99"
    assert "has no managed ledger" in line.error("topics", "close-orphan-tail", "nothing")
    assert "metadataServiceUri" in _unset(line)


def _unset(line) -> str:
    line.dependencies = replace(line.dependencies, bookkeeper=CommandDependencies.bookkeeper)
    return line.error("ledgers", "inspect", "1")
