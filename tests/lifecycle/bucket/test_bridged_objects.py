"""Objects of a bridge in the brokers' bucket: none of a round that is under way is an orphan, from the first byte on;
what a withdrawn round has left is one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from offloader.bridge.core.rounds import BridgedLedger, BridgedLedgers, BridgeHead, BridgeState
from offloader.bridge.log import BridgeLog, BridgeReader
from offloader.errors import DamagedRecordError, FormatVersionError, OffloadError, RemovedFeatureError
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.ledgers.references import References
from offloader.metadata.layout import bridge_folder
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore

from .support import CERTAIN, HOUR, SUSPECT, StoreClock
from .test_stock_objects import LISTED, META, Listed, bucket, references, uuid

BRIDGED = "a bridge's round is under way that names it, or has just ended, or nobody can tell what the archive has"

TOPIC = TopicName("acme", "orders", "placed")
OURS = uuid(77)
LEDGER = 13  # which the lists have, with another copy


class Bridge:
    """A round of one ledger, and its objects."""

    def __init__(self, ledger: int = LEDGER) -> None:
        self.clock = StoreClock()
        self.ledger = ledger
        self.archive = MemoryStore()
        self.log = BridgeLog(self.archive, iter(map(str, range(99))).__next__)
        self.store = bucket(self.clock, (ledger, OURS))
        bridged = BridgedLedger(ledger, 5, 100, OURS)
        self.head = self.log.append(
            BridgeHead(0, None), BridgeState(TOPIC, 0).began((bridged,), "s3://brokers", "app", 1)
        )

    def goes_on(self, step: Callable[[BridgeState], BridgeState]) -> None:
        assert self.head.state is not None
        self.head = self.log.append(self.head, step(self.head.state))

    def scanner(
        self, *lists: References, meanwhile: Callable[[], object] = lambda: None, read: list[int] | None = None
    ) -> StockScanner:
        """`lists`: one for each time that they are read; `meanwhile`: after the first."""
        told = list(lists) or [references(*LISTED)]

        def references_now() -> Sequence[References]:
            if read is not None:
                read.append(1)
            found = told.pop(0) if len(told) > 1 else told[0]
            meanwhile()
            return [found]

        return StockScanner(
            self.store, references_now, "main", self.clock, HOUR, BridgeReader(self.archive).of, alone=True
        )

    @property
    def keys(self) -> set[str]:
        return {data_key(OURS, self.ledger), index_key(OURS, self.ledger)}


def built(state: BridgeState) -> BridgeState:
    assert state.round is not None
    return state.built(state.round.ledgers)


def withdrawing(state: BridgeState) -> BridgeState:
    return state.withdrawing("no proof")


@pytest.mark.parametrize("steps", [(), (built,), (built, withdrawing), (withdrawing,)])
def test_what_a_round_under_way_has_is_no_orphan(steps: tuple[Callable[[BridgeState], BridgeState], ...]):
    bridge = Bridge()
    for step in steps:
        bridge.goes_on(step)
    assert bridge.scanner().scan() == ()
    assert bridge.scanner().look(sorted(bridge.keys)) == dict.fromkeys(bridge.keys, BRIDGED)


def test_a_finished_round_is_named_by_its_list():
    bridge = Bridge()
    bridge.goes_on(built)
    bridge.goes_on(lambda state: state.proven(9))
    named = references(*LISTED, Listed(14, uuid(3)), Listed(LEDGER, OURS))
    assert bridge.scanner(named).scan() == ()


def test_a_round_that_ends_while_the_lists_are_read_is_looked_for_once_more():
    bridge = Bridge()
    bridge.goes_on(built)
    read: list[int] = []

    def ended() -> None:
        if len(read) == 1:
            bridge.goes_on(lambda state: state.proven(9))

    before, after = references(*LISTED), references(*LISTED, Listed(LEDGER, OURS))
    assert bridge.scanner(before, after, meanwhile=ended, read=read).scan() == ()
    assert len(read) == 2


def test_what_a_withdrawn_round_has_left_is_found():
    bridge = Bridge()
    bridge.goes_on(withdrawing)
    bridge.goes_on(lambda state: state.withdrawn(9))
    assert bridge.scanner().scan() == (), "they are to go"
    bridge.goes_on(lambda state: state.cleaned())
    assert {orphan.key for orphan in bridge.scanner().scan()} == bridge.keys
    assert {orphan.ruling.verdict for orphan in bridge.scanner().scan()} == {CERTAIN}


def test_what_brokers_have_left_of_a_trimmed_ledger_is_found():
    bridge = Bridge(ledger=3)  # the lists begin behind it
    bridge.goes_on(built)
    bridge.goes_on(lambda state: state.proven(9))
    assert {orphan.ruling.verdict for orphan in bridge.scanner().scan()} == {CERTAIN}


def test_where_the_bridge_log_cannot_be_read_nothing_is_certain():
    bridge = Bridge()
    key = f"{bridge_folder(TOPIC)}{0:020d}"
    bridge.archive.put(key, b"x" + bridge.archive.read(key)[0])
    found = bridge.scanner().scan()
    assert {orphan.key for orphan in found} == bridge.keys
    assert all(orphan.ruling.verdict is SUSPECT and "bridge log" in orphan.ruling.evidence[-1] for orphan in found)


def test_a_scan_that_knows_of_no_bridge_takes_them_for_orphans():
    """So that these tests can fail."""
    bridge = Bridge()
    scanner = StockScanner(bridge.store, lambda: [references(*LISTED)], "main", bridge.clock, HOUR, alone=True)
    assert {orphan.key for orphan in scanner.scan()} == bridge.keys
    assert META["managedledgername"].startswith("acme")


def test_an_unreadable_log_is_an_error_of_the_tree():
    def unreadable(_: TopicName) -> BridgedLedgers:
        raise DamagedRecordError("it is damaged")

    bridge = Bridge()
    scanner = StockScanner(
        bridge.store, lambda: [references(*LISTED)], "main", bridge.clock, HOUR, unreadable, alone=True
    )
    assert all(orphan.ruling.verdict is SUSPECT for orphan in scanner.scan())


@pytest.mark.parametrize("ledger", [LEDGER, 3])
@pytest.mark.parametrize("error", [DamagedRecordError, FormatVersionError, RemovedFeatureError])
def test_where_nobody_can_tell_what_the_archive_has_there_is_no_orphan_whatever_lists_say(
    ledger: int, error: type[OffloadError]
):
    """An older version let the archive read brokers' copies in place of segments."""
    bridge = Bridge(ledger)
    bridge.goes_on(built)
    bridge.goes_on(lambda state: state.proven(9))
    found = bridge.scanner()
    assert {orphan.ruling.verdict for orphan in found.scan()} == {CERTAIN}
    asked: list[object] = []

    def check(topic: TopicName, ledgers: Collection[int]) -> None:
        asked.append((topic, set(ledgers)))
        raise error("it cannot be read")

    found = replace(found, check_records=check)
    assert found.scan() == ()
    assert asked == [(TOPIC, {ledger})]  # once, for both objects
    assert found.look(sorted(bridge.keys)) == dict.fromkeys(bridge.keys, BRIDGED)
