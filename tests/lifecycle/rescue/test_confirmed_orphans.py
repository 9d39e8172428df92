"""Orphans that nothing in the metadata ever proves: of a topic that was created again, of a namespace that was deleted,
of a broker's health check. They go only by name, and only empty or rescued."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandDenied, answer_demand
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionProof, ledger_record_name
from offloader.lifecycle.ledgers.evidence import Fact, Standing
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.told import told
from tests.lifecycle.deletion.cluster import NAMESPACE, list_node
from tests.lifecycle.ledgers.world import bucket_custom, cursor_of, data_of, schema_of
from tests.lifecycle.rescue.test_deletion_of_rescued import Ending

DATA, INDEX, CURSOR, SCHEMA = 20, 21, 22, 23
HEARTBEAT = "pulsar/10.0.0.7:8080/persistent/healthcheck"
OF = {
    "data": (DATA, data_of(f"{NAMESPACE}/persistent/again")),
    "cursor": (CURSOR, cursor_of(f"{NAMESPACE}/persistent/again", "sub")),
    "schema": (SCHEMA, schema_of(f"{NAMESPACE}/again")),
    "index": (INDEX, bucket_custom(f"{NAMESPACE}/persistent/again", "sub", "#pulsar.internal.delayed.bucket_1_2")),
    "heartbeat": (DATA, data_of(HEARTBEAT)),
}


class Brokers:
    """Topics that are loaded, with the ledgers that their brokers report; or no broker answers."""

    def __init__(self) -> None:
        self.topics: dict[str, set[int]] = {}
        self.silent = False

    def loaded(self) -> dict[str, str]:
        if self.silent:
            raise BrokerUnavailableError("broker-2 does not answer")
        return dict.fromkeys(self.topics, "broker-1:8080")


class Doubtful(Ending):
    """A cluster with one ledger of a kind, and both phases of its deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers = Brokers()
        self.side.loaded = LoadedTopics(
            self.brokers.loaded, lambda _: set(), lambda topic: self.brokers.topics[str(topic)]
        )

    def make(self, kind: str, entries: int = 2) -> int:
        ledger, custom = OF[kind]
        self.cluster.with_entries(ledger, "", [b"entry %d" % number for number in range(entries)], **custom)
        return ledger

    def create_again(self) -> None:
        """The topic, its subscription, and its schema: a later ledger is the first of each."""
        self.cluster.network.now += 3600
        self.cluster.list_ledgers("again", 100)
        self.cluster.put_cursor("again", "sub", 101)

    def delete_namespace(self) -> None:
        self.cluster.metadata.nodes.delete(f"/admin/policies/{NAMESPACE}")

    def outcome(self, ledger: int) -> MarkOutcome:
        self.side.loaded.forget()  # each command asks anew
        (mark,) = self.mark(ledger).marks
        return mark.outcome

    def answer(self, ledger: int) -> DeletionAnswer:
        """What the second phase says, a day later."""
        return self.end(ledger=ledger).answer


@pytest.fixture
def doubtful() -> Doubtful:
    return Doubtful()


def settle(doubtful: Doubtful, cause: str) -> None:
    if cause == "created again":
        doubtful.create_again()
    elif cause == "namespace deleted":
        doubtful.delete_namespace()
    doubtful.cluster.network.now += 24 * 3600 + 1


CASES = [
    ("created again", "data"),
    ("created again", "cursor"),
    ("namespace deleted", "data"),
    ("namespace deleted", "cursor"),
    ("namespace deleted", "schema"),
    ("broker gone", "heartbeat"),
    ("created again", "index"),  # a subscription that is in use
    ("locator deleted", "schema"),
]


@pytest.mark.parametrize(("cause", "kind"), CASES)
def test_a_ledger_with_entries_is_deleted_by_its_number_once_it_was_rescued(doubtful, cause, kind):
    ledger = doubtful.make(kind)
    settle(doubtful, cause)
    assert ledger not in {one.id for one in doubtful.mark().marks}
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    assert "orphans rescue" in " ".join(told(doubtful.cluster.verdict(ledger)))
    doubtful.archive.rescue(ledger)
    assert ledger not in {one.id for one in doubtful.mark().marks}
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    record = doubtful.queue.read(ledger_record_name(ledger)).record
    assert record.evidence.proof is (DeletionProof.ON_DEMAND if kind == "index" else DeletionProof.CONFIRMED)
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED
    assert ledger not in doubtful.cluster.ledger_ids()
    assert doubtful.archive.entries(ledger) == [b"entry 0", b"entry 1"]


@pytest.mark.parametrize(("cause", "kind"), CASES)
def test_an_empty_one_is_deleted_by_its_number_alone(doubtful, cause, kind):
    ledger = doubtful.make(kind, 0)
    settle(doubtful, cause)
    assert ledger not in {one.id for one in doubtful.mark().marks}
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED


@pytest.mark.parametrize(("cause", "kind"), CASES)
def test_an_open_one_is_closed_by_an_operator_first(doubtful, cause, kind):
    ledger, custom = OF[kind]
    doubtful.cluster.ledger(ledger, "", 0, is_open=True, **custom)
    settle(doubtful, cause)
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    assert f"offloader ledgers close {ledger}" in doubtful.mark(ledger).marks[0].why
    doubtful.cluster.closes(ledger, 0)
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED


@pytest.mark.parametrize("by_operator", [True, False])
def test_a_message_never_marks_one_and_a_command_does(doubtful, by_operator):
    ledger = doubtful.make("data", 0)
    settle(doubtful, "namespace deleted")
    answer = answer_demand(DeleteLedgerPayload(ledger), doubtful.side.scanner.scan({ledger}), by_operator=by_operator)
    assert answer is None if by_operator else isinstance(answer, DemandDenied)


@pytest.mark.parametrize("kind", ["data", "cursor", "schema"])
@pytest.mark.parametrize("phase", [1, 2])
def test_while_a_broker_has_the_topic_of_a_deleted_namespace_loaded_nothing_goes(doubtful, kind, phase):
    ledger = doubtful.make(kind, 0)
    settle(doubtful, "namespace deleted")
    if phase == 1:
        doubtful.brokers.topics = {f"persistent://{NAMESPACE}/again": set()}
        assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
        return
    doubtful.mark(ledger)
    doubtful.brokers.topics = {f"persistent://{NAMESPACE}/again-partition-0" if kind == "schema" else
                               f"persistent://{NAMESPACE}/again": set()}  # fmt: skip
    doubtful.end(ledger=ledger)
    assert ledger in doubtful.cluster.ledger_ids()
    assert "broker-1" in doubtful.queue.read(ledger_record_name(ledger)).record.reason


@pytest.mark.parametrize("phase", [1, 2])
def test_where_a_broker_does_not_answer_nothing_goes(doubtful, phase):
    ledger = doubtful.make("data", 0)
    settle(doubtful, "namespace deleted")
    if phase == 2:
        doubtful.mark(ledger)
    doubtful.brokers.silent = True
    if phase == 1:
        assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    else:
        doubtful.end(ledger=ledger)
    assert ledger in doubtful.cluster.ledger_ids()


@pytest.mark.parametrize("kind", ["data", "cursor"])
def test_a_topic_that_was_created_again_stays_loaded_unless_its_broker_has_the_ledger(doubtful, kind):
    ledger = doubtful.make(kind, 0)
    settle(doubtful, "created again")
    doubtful.brokers.topics = {f"persistent://{NAMESPACE}/again": {100, 101, ledger}}
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    doubtful.brokers.topics = {f"persistent://{NAMESPACE}/again": {100, 101}}
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED


@pytest.mark.parametrize("name", ["again", "again-partition-3"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_while_a_topic_with_its_schema_is_loaded_a_schema_without_a_locator_stays(doubtful, name, domain):
    ledger = doubtful.make("schema", 0)
    settle(doubtful, "locator deleted")
    doubtful.brokers.topics = {f"{domain}://{NAMESPACE}/{name}": set()}
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    doubtful.brokers.topics = {f"{domain}://{NAMESPACE}/another": set()}
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED


def test_a_delayed_index_goes_while_its_topic_is_unloaded_and_its_cursor_is_written_anew(doubtful):
    """So a broker that stood still cannot name it any more, and one that loads the topic makes the index anew."""
    ledger = doubtful.make("index", 0)
    settle(doubtful, "created again")
    doubtful.brokers.topics = {f"persistent://{NAMESPACE}/again": {100, 101}}
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE
    doubtful.brokers.topics = {}
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    path = f"{list_node('again')}/sub"
    before = doubtful.cluster.metadata.nodes.get(path)
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED
    after = doubtful.cluster.metadata.nodes.get(path)
    assert (after.value, after.version) == (before.value, before.version + 1)


def test_a_delayed_index_that_its_cursor_names_by_then_stays(doubtful):
    ledger = doubtful.make("index", 0)
    settle(doubtful, "created again")
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    doubtful.cluster.put_cursor("again", "sub", 101, index=ledger)
    assert doubtful.answer(ledger) is DeletionAnswer.STILL_IN_USE


def test_while_other_clusters_may_use_this_bookkeeper_nothing_goes(doubtful):
    ledger = doubtful.make("data", 0)
    settle(doubtful, "namespace deleted")
    doubtful.side.scanner.alone = False
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE


def test_an_owner_that_every_metadata_store_lacks_may_go_and_one_that_another_store_has_not(doubtful):
    ledger = doubtful.make("data", 0)
    settle(doubtful, "namespace deleted")
    doubtful.side.scanner.others = (References("theirs"),)
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED
    ledger = doubtful.make("cursor", 0)
    doubtful.side.scanner.others = (References("theirs", frozenset({NAMESPACE})),)
    assert doubtful.outcome(ledger) is MarkOutcome.NOT_DELETABLE


@pytest.mark.parametrize("change", ["copy damaged", "namespace back", "listed"])
def test_what_changed_since_it_was_marked_stays(doubtful, change):
    ledger = doubtful.make("data")
    settle(doubtful, "namespace deleted")
    doubtful.archive.rescue(ledger)
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    if change == "copy damaged":
        doubtful.archive.store.put(next(key for key in doubtful.archive.all_keys() if "/records/" not in key), b"x")
    elif change == "namespace back":
        doubtful.cluster.put(f"/admin/policies/{NAMESPACE}", b"{}")
    else:
        doubtful.cluster.list_ledgers("again", ledger)
    doubtful.end(ledger=ledger)
    assert ledger in doubtful.cluster.ledger_ids()


def test_a_list_that_may_still_be_given_the_ledger_is_written_anew_with_its_own_bytes(doubtful):
    """The namespace is gone, the topic's node is there: a broker that stood still must not be able to write it."""
    doubtful.cluster.list_ledgers("again", 10)
    ledger = doubtful.make("data", 0)
    settle(doubtful, "namespace deleted")
    verdict = doubtful.cluster.verdict(ledger)
    assert verdict.standing is Standing.SUSPECT
    assert {one.fact for one in verdict.evidence} == {Fact.NOT_PASSED, Fact.NAMESPACE_UNKNOWN, Fact.EMPTY}
    before = doubtful.cluster.metadata.nodes.get(list_node("again"))
    assert doubtful.outcome(ledger) is MarkOutcome.MARKED
    assert doubtful.answer(ledger) is DeletionAnswer.DELETED
    after = doubtful.cluster.metadata.nodes.get(list_node("again"))
    assert (after.value, after.version) == (before.value, before.version + 1)
