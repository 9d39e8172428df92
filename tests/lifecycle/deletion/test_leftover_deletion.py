"""Left-over managed ledgers go as a whole, by the same two phases, and no other one does."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from offloader.bookkeeper.nodes import AclEntry, CheckNode, CreateNode, DeleteNode
from offloader.errors import BookieUnavailableError, FatalError
from offloader.lifecycle.deletion.guard import LeftoverCase, MissingReferee, leftover_guard
from offloader.lifecycle.deletion.leftover_side import LeftoverSide
from offloader.lifecycle.deletion.machine import recreated
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.quarantine import LeftoverQuarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType, leftover_record_name
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.undo import recreate_leftover
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.state.names import topic_of
from offloader.storage.memory import MemoryStore
from tests.lifecycle.ledgers.clusters import cluster, left_over_names
from tests.lifecycle.ledgers.world import World
from tests.lifecycle.ledgers.written import Written

from .cluster import DAY
from .support import NODE
from .test_service import DELETED, WIDE, Told

MOST_OPERATIONS = 1000
NO_WAY_BACK = (
    "once it is deleted, `orphans undo` will not be possible: ZooKeeper hides from us who may do what "
    "with its nodes, so they could only be created again by hand"
)
PENDING_ACK_CURSOR = "__pending_ack_state"

SEEDS = int(os.environ.get("LEFTOVER_SEEDS", "4"))
TOPIC = "t/ns/persistent/a-b"


@dataclass
class Ground:
    """A cluster as nodes in memory, and what deletes from it."""

    world: World
    store: MemoryStore = field(default_factory=MemoryStore)
    told: Told = field(default_factory=Told)
    bounds: DeletionBounds = WIDE

    def __post_init__(self) -> None:
        self.written = Written(self.world)
        self.nodes = self.written.nodes
        numbers = count()
        self.queue = DeletionQueue(self.store, "main", lambda: f"t{next(numbers)}")
        self.loaded: dict[str, str] = {}
        self.queue.set_switch(on=True, now=self.now_ms())
        self.later()

    def now_ms(self) -> int:
        return int(self.written.bookkeeper.network.now * 1000)

    def later(self, seconds: float = DAY + 1) -> None:
        self.written.bookkeeper.network.now += seconds

    def side(self, nodes=None) -> LeftoverSide:
        scanner = self.written.scanner()
        if nodes is not None:
            scanner.tree.nodes = nodes
        return LeftoverSide(scanner.tree, scanner, LoadedTopics(lambda: dict(self.loaded), lambda _: ()))

    def mark(self, *names: str, dry: bool = False):
        side = self.side()
        phase = LeftoverQuarantine(self.queue, side, self.bounds, self.now_ms, "test", dry)
        found = phase.mark(side.scanner.scan(frozenset()), names)
        return found.marks, found.refusals

    def marked(self, *names: str) -> None:
        marks, refusals = self.mark(*names)
        assert (refusals, {one.outcome for one in marks}) == ((), {MarkOutcome.MARKED}), marks

    def round(self, side=None):
        sides = {LedgerType.MANAGED_LEDGER: side or self.side()}
        rules = DeletionRules(DeletionTiming(), self.bounds, 2)
        return LedgerDeletionService(self.queue, sides, rules, self.told, self.now_ms).round()

    def record(self, name: str):
        return self.queue.read(leftover_record_name(name)).record

    def end_of(self, name: str):
        return self.record(name).state, self.record(name).answer

    def tree(self, without: str = "/offloader") -> dict[str, tuple[bytes, int]]:
        """Every node's value and version."""
        found, left = {}, ["/managed-ledgers", "/ledgers", "/schemas", "/admin"]
        while left:
            path = left.pop()
            node = self.nodes.get(path)
            if node is not None:
                found[path] = node.value, node.version
                left += [f"{path}/{one}" for one in self.nodes.children(path) or ()]
        return found


@pytest.fixture
def ground():
    world = World(Random(1))
    world.topic(TOPIC)
    world.subscribe(TOPIC, "used")
    world.pending_acks(TOPIC, "used")
    world.pending_acks(TOPIC, "c")
    return Ground(world)


NAME = "t/ns/persistent/a-b-c__transaction_pending_ack"
PATH = list_path(NAME)


def alone(world: World) -> World:
    """Without the ledgers of another cluster, which forbid all deletion."""
    for ledger in [one.ledger for one in world.seen() if one.purpose.cluster]:
        world.ledgers.pop(ledger)
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_exactly_the_left_over_ones_go_and_their_ledgers_are_certain_after_that(seed):
    ground = Ground(alone(cluster(seed, 60)))
    names = left_over_names(ground.world)
    found = {one.name: one for one in ground.side().scanner.scan().leftovers}
    certain = {name for name, one in found.items() if one.standing is Standing.CERTAIN}
    assert certain <= names
    listed = {name: sum(one.size for one in ground.world.info(name).ledgerInfo) for name in found}
    assert {name: one.size for name, one in found.items()} == listed
    if not certain:
        return
    before = ground.tree()
    ground.marked(*certain)
    assert ground.tree() == before
    ground.later()
    ground.round()
    assert {name: ground.end_of(name) for name in certain} == dict.fromkeys(certain, DELETED)
    gone = before.keys() - ground.tree().keys()
    assert gone == {path for path in before if any(f"{path}/".startswith(f"{list_path(one)}/") for one in certain)}
    assert {path: ground.tree()[path] for path in ground.tree()} == {p: before[p] for p in before.keys() - gone}
    there = {one for name in certain for one in found[name].ledgers} & ground.world.ledgers.keys()
    again = ground.side().scanner.scan()
    assert there <= {one.ledger.ledger for one in again.verdicts if one.standing is Standing.CERTAIN}
    assert not {one.name for one in again.leftovers} & certain


def test_it_waits_for_the_delay_and_goes_with_its_cursor(ground):
    assert ground.mark(NAME, dry=True)[0][0].outcome is MarkOutcome.WOULD_BE_MARKED
    ground.marked(NAME)
    assert ground.mark(NAME)[0][0].outcome is MarkOutcome.PENDING
    ground.later(DAY / 2)
    assert ground.round().looked_at == 0
    ground.later()
    ground.round()
    assert ground.end_of(NAME) == DELETED
    assert not [path for path in ground.tree() if path.startswith(PATH)]
    assert [one[0] for one in ground.told.ends] == [-1]


def test_one_that_is_in_use_is_not_marked(ground):
    used = "t/ns/persistent/a-b-used__transaction_pending_ack"
    assert ground.mark(used)[0][0].outcome is MarkOutcome.NOT_DELETABLE
    assert ground.queue.read(leftover_record_name(used)) is None


def subscribes(ground):
    ground.nodes.put(cursor_path(TOPIC, "c"), b"")


def makes_another_split_s_topic(ground):
    ground.nodes.put(list_path("t/ns/persistent/a"), b"")
    ground.nodes.put(cursor_path("t/ns/persistent/a", "b-c"), b"")


def rolls_the_topic(ground):
    ground.nodes.put(list_path(TOPIC), ground.nodes.get(list_path(TOPIC)).value)


def transacts(ground):
    ground.nodes.put(PATH, ground.nodes.get(PATH).value)


def acknowledges(ground):
    path = cursor_path(NAME, "__pending_ack_state")
    ground.nodes.put(path, ground.nodes.get(path).value)


def adds_a_cursor(ground):
    ground.nodes.put(cursor_path(NAME, "another"), b"")


def deletes_it_and_transacts_again(ground):
    value = ground.nodes.get(PATH).value
    ground.nodes.delete(cursor_path(NAME, "__pending_ack_state"))
    ground.nodes.delete(PATH)
    ground.later(1)
    ground.nodes.put(PATH, value)


MEANWHILE = [
    subscribes,
    makes_another_split_s_topic,
    rolls_the_topic,
    transacts,
    acknowledges,
    adds_a_cursor,
    deletes_it_and_transacts_again,
]


class Before:
    """Nodes at which somebody does something right before the transaction that deletes."""

    def __init__(self, ground, does) -> None:
        self._ground, self._does = ground, does

    def __getattr__(self, name):
        return getattr(self._ground.nodes, name)

    def multi(self, operations):
        if any(isinstance(one, DeleteNode) and one.path == PATH for one in operations):
            self._does(self._ground)
        self._ground.nodes.multi(operations)


@pytest.mark.parametrize("does", MEANWHILE)
def test_what_somebody_does_between_look_and_transaction_keeps_it(ground, does):
    ground.marked(NAME)
    ground.later()
    ground.round(ground.side(Before(ground, does)))
    assert ground.nodes.get(PATH) is not None
    assert ground.record(NAME).state is DeletionState.DELETING
    assert ground.record(NAME).reason


@pytest.mark.parametrize("does", [subscribes, makes_another_split_s_topic])
def test_without_the_proof_of_absence_it_would_go_under_its_owner(ground, does, monkeypatch):
    """The broken variant: what the test above catches."""
    monkeypatch.setattr("offloader.lifecycle.deletion.guard.proof_of_referees", lambda _owners: ())
    ground.marked(NAME)
    ground.later()
    ground.round(ground.side(Before(ground, does)))
    assert ground.nodes.get(PATH) is None


@pytest.mark.parametrize(
    ("does", "answer"),
    [
        (subscribes, DeletionAnswer.STILL_IN_USE),
        (transacts, DeletionAnswer.DOES_NOT_MATCH),
        (acknowledges, DeletionAnswer.DOES_NOT_MATCH),
        (adds_a_cursor, None),
        (deletes_it_and_transacts_again, DeletionAnswer.DOES_NOT_MATCH),
    ],
)
def test_what_somebody_did_since_the_mark_keeps_it(ground, does, answer):
    ground.marked(NAME)
    ground.later()
    does(ground)
    ground.round()
    assert ground.nodes.get(PATH) is not None
    if answer is not None:
        assert ground.end_of(NAME) == (DeletionState.KEPT, answer)


def test_another_proof_than_at_the_mark_begins_the_delay_anew(ground):
    ground.marked(NAME)
    ground.later()
    ground.nodes.put(list_path("t/ns/persistent/a"), b"")  # without a subscription b-c
    ground.round()
    assert ground.record(NAME).state is DeletionState.MARKED
    ground.later()
    ground.round()
    assert ground.end_of(NAME) == DELETED


def test_a_topic_that_is_loaded_without_its_node_keeps_it(ground):
    for path in (cursor_path(TOPIC, "used"), list_path(TOPIC)):
        ground.nodes.delete(path)
    ground.marked(NAME)
    ground.later()
    ground.loaded.update({str(topic_of(TOPIC)): "broker:8080"})
    ground.round()
    assert ground.nodes.get(PATH) is not None
    assert "broker:8080" in ground.record(NAME).reason
    ground.loaded.clear()
    ground.later()
    ground.round()
    assert ground.end_of(NAME) == DELETED


def test_who_marks_one_of_whose_cursors_the_acl_is_hidden_hears_that_there_will_be_no_way_back(ground):
    path = cursor_path(NAME, PENDING_ACK_CURSOR)
    value = ground.nodes.get(path).value
    ground.nodes.delete(path)
    ground.nodes.create(path, value, (AclEntry(31, "digest", "brokers:x"),))
    for dry, outcome in ((True, MarkOutcome.WOULD_BE_MARKED), (False, MarkOutcome.MARKED)):
        (mark,), _ = ground.mark(NAME, dry=dry)
        assert (mark.outcome, mark.why) == (outcome, NO_WAY_BACK)


def test_nobody_who_can_say_what_is_loaded_keeps_it(ground):
    side = ground.side()

    def fails():
        raise BookieUnavailableError("no broker answers")

    ground.marked(NAME)
    ground.later()
    side.loaded = LoadedTopics(fails, lambda _: ())
    ground.round(side)
    assert ground.nodes.get(PATH) is not None
    assert "no broker answers" in ground.record(NAME).reason


@pytest.mark.parametrize("lost", ["lost_requests", "lost_answers"])
def test_a_lost_answer_is_looked_up_and_told_once(ground, lost):
    class Losing(Before):
        def multi(self, operations):
            if any(isinstance(one, DeleteNode) and one.path == PATH for one in operations):
                setattr(ground.nodes, lost, 1)
            ground.nodes.multi(operations)

    ground.marked(NAME)
    ground.later()
    ground.round(ground.side(Losing(ground, None)))
    ground.later()
    ground.round()
    assert ground.end_of(NAME) == DELETED
    assert len(ground.told.ends) == 1


def test_a_process_that_goes_on_after_another_has_looked_deletes_nothing(ground):
    ground.marked(NAME)
    ground.later()
    paused, other = ground.side(), ground.side()
    record = ground.record(NAME)
    paused.look([record])
    other.look([record])
    assert paused.delete(record, lambda: True)[0].value == "refused"
    assert other.delete(record, lambda: True)[0].value == "done"


def test_more_at_once_than_is_set_is_not_marked(ground):
    ground.bounds = DeletionBounds(number=1, percent=100)
    names = (NAME, "t/ns/persistent/x-y__transaction_pending_ack")
    assert ground.mark(*names)[1]
    assert not list(ground.queue.records())


def test_the_undo_puts_back_what_there_was(ground):
    before = ground.tree()
    ground.marked(NAME)
    ground.later()
    ground.round()
    tree = ground.side().tree
    for _ in range(2):
        recreate_leftover(tree, ground.record(NAME))
    after = ground.tree()
    assert {path: value for path, (value, _) in after.items()} == {path: value for path, (value, _) in before.items()}
    assert recreated(ground.record(NAME), ground.now_ms()).state is DeletionState.UNDONE


@pytest.mark.parametrize("hidden", [PATH, f"{PATH}/__pending_ack_state"])
def test_an_acl_that_was_hidden_from_us_is_not_put_back(ground, hidden):
    """Nobody has the digest that ZooKeeper shows in the place of another: no broker could read the node."""
    value = {path: ground.nodes.get(path).value for path in (PATH, f"{PATH}/__pending_ack_state")}
    for path in (f"{PATH}/__pending_ack_state", PATH):
        ground.nodes.delete(path)
    for path, data in value.items():
        ground.nodes.create(path, data, (AclEntry(31, "digest", "broker:x"),) if path == hidden else None)
    ground.marked(NAME)
    ground.later()
    ground.round()
    assert ground.end_of(NAME) == DELETED
    with pytest.raises(FatalError, match=f"managed ledger {NAME}.*by hand"):
        recreate_leftover(ground.side().tree, ground.record(NAME))
    assert ground.nodes.get(PATH) is None


def test_a_topic_that_only_has_such_a_name_is_suspect(ground):
    ground.nodes.put(cursor_path(NAME, "my-subscription"), ground.nodes.get(cursor_path(TOPIC, "used")).value)
    assert ground.mark(NAME)[0][0].outcome is MarkOutcome.NOT_DELETABLE


def test_the_transaction_proves_every_absence_and_ends_with_its_node():
    missing = tuple(MissingReferee(f"/managed-ledgers/t/ns/persistent/a{one}") for one in range(3))
    operations = leftover_guard(LeftoverCase(PATH, NODE, missing, CheckNode("/round", 4)))
    assert isinstance(operations, tuple)
    assert operations[0] == CheckNode("/round", 4)
    assert {one.path for one in operations if isinstance(one, CreateNode)} == {one.path for one in missing}
    assert operations[-1] == DeleteNode(PATH, NODE.version)
    many = tuple(MissingReferee(f"/managed-ledgers/t/ns/persistent/a{one}") for one in range(MOST_OPERATIONS))
    assert not isinstance(leftover_guard(LeftoverCase(PATH, NODE, many)), tuple)
    assert not isinstance(leftover_guard(LeftoverCase(PATH, NODE, ())), tuple)
