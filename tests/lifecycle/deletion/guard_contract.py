"""The guarded deletion of a ledger, each row of the reference's table, on whichever metadata service: `class
TestX(GuardContract)` with a fixture `world`, as for `MetadataContract`."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from offloader.bookkeeper.nodes import Nodes
from offloader.errors import NodeRefusal, OperationRefusedError, VersionConflictError
from offloader.lifecycle.deletion.guard import (
    GuardCase,
    GuardDoubt,
    LedgerToGo,
    MissingReferee,
    StandingReferee,
    guard,
)
from offloader.lifecycle.deletion.guarded import GuardedDeletion, GuardedLedgers, GuardedOutcome
from tests.bookkeeper.metadata_contract import METADATA, World

LEDGER, OTHER = 70_001, 70_002
ON_DEMAND = GuardDoubt(data=True, loaded=False, demanded=True)

Tree = dict[str, tuple[bytes, int, int]]


class Ground:
    """A cluster with two ledgers, a topic's list and its cursors, and how a test looks at it."""

    def __init__(self, world: World) -> None:
        store = world.store
        self.cluster = world.cluster
        self.nodes: Nodes = store.nodes
        self.ledgers = GuardedLedgers(store.nodes, store.uri.root, store.layout)
        self.path = store.path_of(LEDGER)
        self.beside = store.uri.root.rpartition("/")[0]
        self.list = f"{store.uri.managed_ledgers}/public/default/persistent/t"
        self.compaction = f"{self.list}/__compaction"
        self.schema = f"{self.beside}/schemas/public/default/t"
        for ledger in (LEDGER, OTHER):
            self.cluster.put_ledger(ledger, METADATA)
        for path in (self.list, self.compaction, self.schema, f"{store.uri.root}/idgen/ID-0000000000"):
            self.nodes.create(path, b"first", parents=True)
        self.nodes.set(self.list, b"ledgers", 0)

    def case(self, *referees: str, doubt: GuardDoubt | None = None, one_zookeeper: bool = True) -> GuardCase:
        """As a scan reads it."""
        node = self.nodes.get(self.path, latest=True)
        assert node is not None
        to_go = LedgerToGo(LEDGER, node.version, node.created_ms)
        return GuardCase(to_go, tuple(map(self.ledgers.referee, referees)), one_zookeeper, doubt)

    def tree(self) -> Tree:
        """Every node of this cluster, with its value, version and birth."""
        found: Tree = {}
        due = [self.beside] if self.beside else ["/ledgers", "/managed-ledgers", "/schemas"]
        while due:
            path = due.pop()
            node = self.nodes.get(path)
            if node is not None:
                found[path] = (node.value, node.version, node.born)
                due += [f"{path}/{name}" for name in self.nodes.children(path) or ()]
        return found

    def goes(self, case: GuardCase, *changed: str) -> None:
        """The ledger, and nothing else but what is named."""
        before = self.tree()
        assert self.ledgers.delete(case) == GuardedDeletion(GuardedOutcome.DELETED)
        after = self.tree()
        assert before.keys() - after.keys() == {self.path}
        assert {path for path, node in after.items() if before.get(path) != node} == set(changed)

    def stays(self, case: GuardCase, outcome: GuardedOutcome) -> None:
        """And so does everything else."""
        before = self.tree()
        done = self.ledgers.delete(case)
        assert (done.outcome, bool(done.why)) == (outcome, True)
        assert self.tree() == before


class GuardContract:
    """The reference's section 5."""

    @pytest.fixture
    def ground(self, world: World) -> Ground:
        return Ground(world)

    # Certain, the referee is there

    def test_a_ledger_that_was_passed_by_goes_and_its_list_is_as_before(self, ground):
        ground.goes(ground.case(ground.list))

    def test_a_list_that_changed_meanwhile_keeps_the_ledger(self, ground):
        case = ground.case(ground.list)
        ground.nodes.set(ground.list, b"more ledgers", 1)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)

    def test_a_guard_that_is_stale_by_the_lists_own_bytes_keeps_the_ledger(self, ground):
        case = ground.case(ground.list)
        ground.nodes.set(ground.list, b"ledgers", 1)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)
        ground.goes(ground.case(ground.list))

    def test_a_list_that_went_keeps_the_ledger_until_it_is_looked_at_again(self, ground):
        case = ground.case(ground.list)
        ground.nodes.delete(ground.compaction, 0)
        ground.nodes.delete(ground.list, 1)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)
        ground.goes(ground.case(ground.list))

    def test_a_list_that_was_made_again_and_has_the_same_version_keeps_the_ledger(self, ground):
        case = ground.case(ground.list)
        ground.nodes.delete(ground.compaction, 0)
        ground.nodes.delete(ground.list, 1)
        time.sleep(0.002)
        ground.nodes.create(ground.list)
        ground.nodes.set(ground.list, b"ledgers", 0)
        assert ground.nodes.get(ground.list)[:2] == (b"ledgers", 1)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)

    def test_a_schema_ledger_goes_by_its_locator(self, ground):
        ground.goes(ground.case(ground.schema))

    def test_each_of_several_referees_is_checked(self, ground):
        for changed in (ground.list, ground.compaction):
            case = ground.case(ground.list, ground.compaction)
            ground.nodes.set(changed, b"x", ground.nodes.get(changed).version)
            ground.stays(case, GuardedOutcome.REFEREE_CHANGED)
        ground.goes(ground.case(ground.list, ground.compaction))

    # Certain, the referee is missing

    @pytest.mark.parametrize(
        ("name", "missing"),
        [
            ("managed-ledgers/public/default/persistent/gone", 0),
            ("managed-ledgers/public/default/persistent/t/gone-cursor", 0),
            ("managed-ledgers/public/gone/persistent/t", 2),
            ("managed-ledgers/gone/default/persistent/t", 3),
            ("managed-ledgers/public/default/persistent/gone/cursor", 1),
        ],
    )
    def test_a_ledger_without_a_referee_goes_and_no_node_is_left(self, ground, name, missing):
        case = ground.case(f"{ground.beside}/{name}")
        (referee,) = case.referees
        assert isinstance(referee, MissingReferee)
        assert len(referee.missing) == missing
        ground.goes(case)

    def test_a_managed_ledger_and_its_cursor_that_are_both_missing_are_proven_missing(self, ground):
        gone = f"{ground.beside}/managed-ledgers/gone/ns/persistent/t"
        ground.goes(ground.case(f"{gone}/cursor", gone, ground.list))

    @pytest.mark.parametrize("appears", ["", "/ns", "/ns/persistent", "/ns/persistent/t"])
    def test_a_referee_that_appears_or_a_node_above_it_keeps_the_ledger(self, ground, appears):
        gone = f"{ground.beside}/managed-ledgers/gone"
        case = ground.case(f"{gone}/ns/persistent/t")
        ground.nodes.create(gone + appears, parents=True)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)

    def test_a_node_above_the_referee_that_goes_keeps_the_ledger(self, ground):
        above = f"{ground.beside}/managed-ledgers/leaving"
        ground.nodes.create(above)
        case = ground.case(f"{above}/ns")
        ground.nodes.delete(above, 0)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)
        ground.goes(ground.case(f"{above}/ns"))

    # Suspect, on demand

    def test_a_suspect_data_ledger_goes_on_demand_and_its_list_keeps_its_bytes(self, ground):
        ground.goes(ground.case(ground.list, doubt=ON_DEMAND), ground.list)
        assert ground.nodes.get(ground.list)[:2] == (b"ledgers", 2)

    def test_a_broker_that_was_paused_cannot_list_the_suspect_ledger_any_more(self, ground):
        paused = ground.nodes.get(ground.list)
        ground.goes(ground.case(ground.list, doubt=ON_DEMAND), ground.list)
        with pytest.raises(VersionConflictError):
            ground.nodes.set(ground.list, b"ledgers and this one", paused.version)

    def test_a_suspect_ledger_that_was_listed_meanwhile_stays(self, ground):
        case = ground.case(ground.list, doubt=ON_DEMAND)
        ground.nodes.set(ground.list, b"ledgers and this one", 1)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)

    @pytest.mark.parametrize("wrong", [{"data": False}, {"loaded": True}, {"demanded": False}])
    def test_a_suspect_ledger_stays_otherwise(self, ground, wrong):
        ground.stays(ground.case(ground.list, doubt=replace(ON_DEMAND, **wrong)), GuardedOutcome.UNGUARDED)

    def test_a_suspect_ledger_without_a_list_stays(self, ground):
        gone = f"{ground.beside}/managed-ledgers/gone"
        ground.stays(ground.case(gone, doubt=ON_DEMAND), GuardedOutcome.UNGUARDED)
        ground.stays(ground.case(ground.list, ground.schema, doubt=ON_DEMAND), GuardedOutcome.UNGUARDED)

    # Compacted

    def test_a_compacted_ledger_that_was_passed_by_goes_by_the_cursors_node(self, ground):
        case = ground.case(ground.compaction)
        ground.nodes.set(ground.compaction, b"first", 0)
        ground.stays(case, GuardedOutcome.REFEREE_CHANGED)
        ground.goes(ground.case(ground.compaction))

    def test_a_suspect_compacted_ledger_stays_whoever_asks(self, ground):
        suspect = replace(ON_DEMAND, data=False)
        ground.stays(ground.case(ground.compaction, doubt=suspect), GuardedOutcome.UNGUARDED)

    # Any

    def test_what_no_transaction_reaches_stays(self, ground):
        ground.stays(ground.case(ground.list, one_zookeeper=False), GuardedOutcome.UNGUARDED)
        ground.stays(ground.case(), GuardedOutcome.UNGUARDED)

    def test_a_ledger_that_changed_meanwhile_stays(self, ground):
        case = ground.case(ground.list)
        ground.cluster.put_ledger(LEDGER, METADATA)
        ground.stays(case, GuardedOutcome.LEDGER_CHANGED)

    def test_a_ledger_that_was_made_again_stays(self, ground):
        case = ground.case(ground.list)
        node = ground.nodes.get(ground.path)
        ground.nodes.delete(ground.path, 0)
        time.sleep(0.002)
        ground.nodes.create(ground.path, node.value)
        ground.stays(case, GuardedOutcome.LEDGER_CHANGED)

    def test_a_ledger_that_is_gone_is_gone(self, ground):
        case = ground.case(ground.list)
        ground.goes(case)
        before = ground.tree()
        assert ground.ledgers.delete(case) == GuardedDeletion(GuardedOutcome.ALREADY_GONE)
        assert ground.tree() == before

    def test_the_node_above_stays_when_its_last_ledger_goes(self, ground):
        ground.cluster.delete_ledger(OTHER)
        ground.goes(ground.case(ground.list))
        above, _, name = ground.path.rpartition("/")
        assert name not in ground.nodes.children(above)

    def test_a_referee_is_read_as_it_is(self, ground):
        node = ground.nodes.get(ground.list)
        assert ground.ledgers.referee(ground.list) == StandingReferee(ground.list, 1, node.created_ms, b"ledgers")
        gone = f"{ground.beside}/gone"
        assert ground.ledgers.referee(f"{gone}/a/b") == MissingReferee(f"{gone}/a/b", (gone, f"{gone}/a"))

    def test_the_guard_itself_is_refused_where_the_look_before_it_saw_nothing(self, ground):
        """What the transaction finds is what counts."""
        stale = guard(ground.case(ground.list), ground.ledgers.root, ground.ledgers.layout)
        ground.nodes.set(ground.list, b"ledgers", 1)
        with pytest.raises(OperationRefusedError) as caught:
            ground.nodes.multi(stale)
        assert (caught.value.operation, caught.value.refusal) == (0, NodeRefusal.BAD_VERSION)
        assert ground.nodes.get(ground.path) is not None
