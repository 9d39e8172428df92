"""A topic's bridge log: records survive, one of several writers wins, and the newest is found with few requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader.bridge.core.rounds import (
    BridgedLedger,
    BridgeHead,
    BridgePhase,
    BridgeRound,
    BridgeState,
    BridgeVerdict,
    UnbridgedLedger,
)
from offloader.bridge.log import BridgeLog
from offloader.errors import (
    DamagedRecordError,
    FormatVersionError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from offloader.lifecycle.bucket.names import KeyStanding, NamesInForce, placed
from offloader.metadata import layout
from offloader.metadata.envelope import wrap
from offloader.metadata.journals import Journals
from offloader.metadata.layout import KeyKind, TopicKey
from offloader.model import Position, TopicName
from offloader.storage.memory import MemoryStore
from offloader.storage.metered import MeteredStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.metadata.support import OTHER_TOPIC, TOPIC, i64, positions, text, tokens, tuples, u32, uuids

DELETIONS_VERSION = 3

pieces = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)
topics = st.builds(TopicName, *[pieces.filter(lambda piece: not piece.startswith("."))] * 3)
bridged = st.builds(BridgedLedger, i64, i64, i64, uuids, i64, u32, tuples(uuids), i64)
rounds = st.builds(
    BridgeRound, i64, st.sampled_from(BridgePhase), text, tuples(bridged), i64, text, text, st.booleans()
)
unbridged = st.builds(UnbridgedLedger, i64, i64, st.sampled_from(BridgeVerdict), text, text, i64)
states = st.builds(
    BridgeState,
    topics,
    i64,
    st.none() | positions,
    st.none() | rounds,
    st.none() | unbridged,
    i64,
    i64,
    i64,
    i64,
    st.none() | rounds,
    st.none() | unbridged,
    st.integers(-1, 9),
    st.none() | rounds,
)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
LEDGER = BridgedLedger(7, 9, 100, "00000000-1111-2222-3333-444444444444", 300, 5, ("s",), 1)


def recorded(state: BridgeState, slot: int = 0) -> tuple[MemoryStore, bytes]:
    """A store that has the record alone, behind a record that says which one is before it; and the record's bytes."""
    store = MemoryStore()
    a_log(store).append(BridgeHead(slot, BridgeState(state.topic, 0, former=state.former)), state)
    return store, bytes(store.read(key_of(state.topic, slot))[0])


def key_of(topic: TopicName, slot: int) -> str:
    return layout.bridge_folder(topic) + layout.slot_name(slot)


@given(states)
def test_a_record_survives(state: BridgeState) -> None:
    if state.finished is None and state.let_go is None:  # it is read as the newest one alone
        state = replace(state, former=-1)
        store, _ = recorded(state)
        assert a_log(store).load(state.topic).state == state
    else:
        store, _ = recorded(state, 10)
        assert a_log(store).finishing(state.topic, 10) == state


@given(states, st.data())
def test_a_record_that_was_changed_is_damage(state: BridgeState, data: st.DataObject) -> None:
    store, whole = recorded(replace(state, former=-1))
    at = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
        store.put(key_of(state.topic, 0), broken)
        with pytest.raises(DamagedRecordError):
            a_log(store).load(state.topic)


def test_a_record_of_another_place_or_version_is_not_believed() -> None:
    store, data = recorded(BridgeState(TOPIC, 0), 3)
    for topic, slot in ((TOPIC, 4), (OTHER_TOPIC, 3)):
        store.put(key_of(topic, slot), data)
        with pytest.raises(DamagedRecordError, match="record 3 of the bridge"):
            a_log(store).finishing(topic, slot)
    store, _ = recorded(BridgeState(TOPIC, 0, former=5), 3)
    with pytest.raises(DamagedRecordError, match="record 5 is before it"):
        a_log(store).finishing(TOPIC, 3)
    store.put(key_of(TOPIC, 3), wrap("token", pb.Body(rescue_forgotten=pb.RescueForgotten(at=1))))
    with pytest.raises(DamagedRecordError, match="does not belong"):
        a_log(store).finishing(TOPIC, 3)
    store.put(key_of(TOPIC, 3), wrap("token", pb.Body(bridge=pb.BridgeState()), DELETIONS_VERSION + 1))
    with pytest.raises(FormatVersionError):
        a_log(store).finishing(TOPIC, 3)


def a_log(store: MemoryStore | FaultyStore | MeteredStore, name: str = "t") -> BridgeLog:
    return BridgeLog(store, tokens(name))


def a_round(log: BridgeLog, head: BridgeHead, number: int) -> BridgeHead:
    """A round from its beginning to its end: three records."""
    state = head.state or BridgeState(TOPIC, 0)
    ledgers = (replace(LEDGER, ledger=number),)
    begun = log.append(head, state.began(ledgers, "s3://b", "app", number))
    assert begun.state
    built = log.append(begun, begun.state.built(ledgers))
    assert built.state
    return log.append(built, built.state.proven(number))


def test_the_newest_record_says_all_and_those_that_finish_are_chained() -> None:
    store = MemoryStore()
    log = a_log(store)
    assert log.load(TOPIC) == BridgeHead(0, None)
    assert list(log.finished_rounds(TOPIC)) == []
    head = BridgeHead(0, None)
    for number in range(3):
        head = a_round(log, head, number)
    assert head.state
    head = log.append(head, head.state.passed(Position(0, 4, 5)))
    assert head.state
    head = log.append(head, head.state.letting_go(UnbridgedLedger(5, 9, BridgeVerdict.ARCHIVE_ONLY, "lost", "me", 3)))
    assert head.state
    head = log.append(head, head.state.began((LEDGER,), "s3://b", "app", 9))
    assert log.load(TOPIC) == head
    assert head.slot == 12
    assert head.state
    assert (head.state.ledgers, head.state.size, head.state.rounds) == (3, 900, 4)
    found = list(log.finished_rounds(TOPIC))
    assert [each.finished and each.finished.number for each in found] == [None, 2, 1, 0]
    assert found[0].let_go is not None


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_the_newest_record_of_a_long_log_is_found_with_few_requests(count: int) -> None:
    told: list[object] = []
    store = MeteredStore(MemoryStore(), lambda *call: told.append(call))
    head = BridgeHead(0, None)
    for at in range(count):
        head = a_log(store, f"t{at}").append(head, BridgeState(TOPIC, 0, swapped_at=at))
    told.clear()
    assert a_log(store).load(TOPIC) == head
    assert len(told) <= 9


def test_exactly_one_of_several_racing_writers_wins_each_slot() -> None:
    store, start, each = MemoryStore(), Barrier(6), 25

    def write(name: int) -> int:
        start.wait()
        log, won = a_log(store, f"w{name}"), 0
        while won < each:
            head = log.load(TOPIC)
            count = head.state.rounds if head.state else 0
            try:
                log.append(head, BridgeState(TOPIC, 0, rounds=count + 1))
                won += 1
            except VersionConflictError:
                continue
        return won

    with ThreadPoolExecutor(6) as pool:
        won = sum(pool.map(write, range(6)))
    head = a_log(store).load(TOPIC)
    assert head.state
    assert (head.slot, head.state.rounds) == (won, won)


@pytest.mark.parametrize("effect", [Effect.LOST, Effect.REPEATED])
def test_after_a_lost_answer_the_log_tells_what_came_of_it(effect: Effect) -> None:
    store = MemoryStore()
    log = a_log(FaultyStore(store, StoreFaults([StoreFault("put", effect)])))
    state = BridgeState(TOPIC, 0, swapped_at=4)
    try:
        log.append(BridgeHead(0, None), state)
    except OutcomeUnknownError:
        assert effect is Effect.LOST
    assert log.load(TOPIC) == BridgeHead(1, state)
    with pytest.raises(VersionConflictError):
        log.append(BridgeHead(0, None), state)


def test_a_record_that_is_gone_is_damage() -> None:
    store = MemoryStore()
    log, head = a_log(store), BridgeHead(0, None)
    for number in range(2):
        head = a_round(log, head, number)
    keys = [key for key, _ in store.list(layout.bridge_folder(TOPIC))]
    store.delete([keys[2]])
    with pytest.raises(DamagedRecordError, match="is missing"):
        log.load(TOPIC)
    store.put(keys[2], recorded(BridgeState(TOPIC, 0), 2)[1], if_absent=True)
    with pytest.raises(DamagedRecordError, match="finishes no round"):
        list(islice(log.finished_rounds(TOPIC), 2))


def test_a_store_that_is_away_is_no_empty_log() -> None:
    store = FaultyStore(MemoryStore(), StoreFaults([StoreFault("*", Effect.BEFORE, times=9)]))
    with pytest.raises(StoreUnavailableError):
        a_log(store).load(TOPIC)


@given(st.builds(TopicName, names, names, names))
def test_its_keys_tell_whose_they_are_and_a_scan_leaves_them_alone(topic: TopicName) -> None:
    key = layout.bridge_folder(topic) + layout.slot_name(12)
    assert layout.parse_topic_key(key) == TopicKey(topic, KeyKind.BRIDGE, slot=12)
    assert layout.parse_topic_key(key + "x") is None
    place = placed(key, 100, NamesInForce(Journals({}), "cluster"))
    assert place.standing is KeyStanding.NAMED
