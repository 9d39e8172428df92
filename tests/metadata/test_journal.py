"""The journal: one owner, nothing recorded is ever lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.errors import (
    AccessDeniedError,
    FatalError,
    JournalUnavailableError,
    OutcomeUnknownError,
    OvertakenError,
    StoreUnavailableError,
)
from offloader.metadata import journal_rules
from offloader.metadata.envelope import wrap
from offloader.metadata.journal import Journal
from offloader.metadata.layout import journal_folder, slot_name
from offloader.metadata.state import TopicState
from offloader.ports.object_store import Stat
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import OTHER_TOPIC, TOPIC, numbered_topic, state, tokens

FORMAT_VERSION = 2


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def start(store: MemoryStore) -> Iterator[Callable[..., Journal]]:
    """Start a process of application `app`, with its own tokens and its own faults."""
    started: list[Journal] = []

    def one(*faults: StoreFault) -> Journal:
        journal = Journal.open(FaultyStore(store, StoreFaults(faults)), "app", tokens(f"p{len(started)}"))
        started.append(journal)
        return journal

    yield one
    for journal in started:
        journal.close()


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at every fourth record."""
    monkeypatch.setattr(journal_rules, "MAX_RECORDS", 4)


def keys(store: MemoryStore) -> list[str]:
    """Epoch and slot of every record, as `1/0`."""
    names = (key.removeprefix(journal_folder("app")) for key, _ in store.list(journal_folder("app")))
    return ["/".join(str(int(n)) for n in name.split("/")) for name in names]


def put_faults(effect: Effect = Effect.BEFORE, times: int = 1, after: int = 0) -> StoreFault:
    return StoreFault("put", effect, times=times, after=after)


def test_a_first_start_finds_nothing(store, start):
    assert start().topics == {}
    assert keys(store) == ["1/0"]


def test_what_was_recorded_is_there_after_the_next_start(start):
    first = start()
    first.record([state(TOPIC, at=1), state(OTHER_TOPIC)])
    first.record([state(TOPIC, at=2)])
    assert start().topics == {TOPIC: state(TOPIC, at=2), OTHER_TOPIC: state(OTHER_TOPIC)} == first.topics


def test_a_topic_that_has_become_idle_leaves_the_journal(start):
    first = start()
    first.record([state(TOPIC), state(OTHER_TOPIC)])
    first.record([TopicState(TOPIC)])
    assert first.topics == {OTHER_TOPIC: state(OTHER_TOPIC)}
    assert start().topics == first.topics


def test_nothing_is_written_where_nothing_changes(store, start):
    journal = start()
    journal.record([])
    journal.record([TopicState(TOPIC)])
    assert keys(store) == ["1/0"]


def test_the_topics_do_not_change_under_who_holds_them(start):
    journal = start()
    journal.record([state()])
    held = journal.topics
    journal.record([state(OTHER_TOPIC)])
    assert set(held) == {TOPIC}


def test_each_start_fences_the_epoch_before_and_removes_its_records(store, start):
    start().record([state()])
    start()
    assert keys(store) == ["1/2", "2/0"]
    start()
    assert keys(store) == ["1/2", "2/1", "3/0"]


# Overtaken


def test_an_overtaken_process_notices_before_it_does_anything(start):
    old = start()
    old.check_not_overtaken()
    start().check_not_overtaken()
    with pytest.raises(OvertakenError, match="do not restart"):
        old.check_not_overtaken()


def test_an_overtaken_process_records_nothing_more(start):
    old = start()
    old.record([state(at=1)])
    new = start()
    for _ in range(2):
        with pytest.raises(OvertakenError):
            old.record([state(at=2)])
    assert new.topics == start().topics == {TOPIC: state(at=1)}


def test_a_stalled_process_meets_the_fence_long_after_its_epoch_was_removed(store, start, short_log):
    old = start()
    old.record([state(at=1)])
    for n in range(3):
        new = start()
        for i in range(9):
            new.record([state(at=100 * n + i)])
    with pytest.raises(OvertakenError):
        old.record([state(at=2)])
    with pytest.raises(OvertakenError):
        old.check_not_overtaken()
    assert start().topics == {TOPIC: state(at=208)}


def test_a_record_that_is_sent_again_after_it_was_removed_changes_nothing(store, start, short_log):
    """A stalled writer whose record counted, and was removed by its successor, before its client sends it once more."""
    successor: list[Journal] = []

    def wake_up_late():
        successor.append(start())
        for i in range(9):
            successor[0].record([state(at=10 + i)])

    class Stalled(FaultyStore):
        def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
            answer = super().put(key, data, meta=meta, if_absent=if_absent)
            if self.faults.calls["put"] == 2:
                wake_up_late()
                return super().put(key, data, meta=meta, if_absent=if_absent)
            return answer

    old = Journal.open(Stalled(store, StoreFaults()), "app", tokens("stalled"))
    old.record([state(at=1)])  # true: it counted, and its successor has seen it
    with pytest.raises(OvertakenError):
        old.record([state(at=2)])
    old.close()
    successor[0].check_not_overtaken()
    assert start().topics == {TOPIC: state(at=18)}


# What does not prove that another process owns the journal


def test_a_head_that_finds_something_in_an_empty_slot_ends_nobody(start, store, monkeypatch):
    """As a proxy's answer may."""
    journal = start()
    with monkeypatch.context() as patch:
        patch.setattr(store, "stat", lambda _: Stat(12, "of a page"))
        for _ in range(2):
            with pytest.raises(JournalUnavailableError, match="found there, and not there"):
                journal.check_not_overtaken()
    journal.check_not_overtaken()
    journal.record([state(at=1)])
    start()
    with pytest.raises(OvertakenError):
        journal.check_not_overtaken()


@pytest.mark.parametrize(
    "there", [b"", b"<html>", wrap("t", pb.Body(root=pb.Root())), wrap("t", pb.Body(fence=pb.Fence()))[:-1]]
)
def test_bytes_that_are_no_record_of_a_journal_end_nobody(start, store, there: bytes):
    journal = start()
    slot = f"{journal_folder('app')}{slot_name(1)}/" + slot_name(1)
    store.put(slot, there)
    for call in (journal.check_not_overtaken, lambda: journal.record([state(at=1)]), journal.check_not_overtaken):
        with pytest.raises(JournalUnavailableError, match=slot):
            call()
    assert journal.topics == {}
    store.delete([slot])
    journal.check_not_overtaken()
    assert journal.topics == start().topics == {TOPIC: state(at=1)}


@pytest.mark.parametrize("kind", [FatalError, AccessDeniedError, StoreUnavailableError])
def test_a_store_that_refuses_the_journal_s_calls_for_a_while_ends_nobody(store, kind: type[Exception]):
    refused = {"stat": 0, "put": 1, "read": 0}
    faults = StoreFaults(
        StoreFault(c, error=lambda: kind("405: not now"), times=2, after=n) for c, n in refused.items()
    )
    with Journal.open(FaultyStore(store, faults), "app", tokens()) as journal:
        for call in (journal.check_not_overtaken, lambda: journal.record([state(at=1)])):
            for _ in range(2):
                with pytest.raises(JournalUnavailableError, match="405: not now"):
                    call()
        journal.check_not_overtaken()
        assert journal.topics == {TOPIC: state(at=1)}
        Journal.open(store, "app", tokens("next")).close()
        for _ in range(2):
            with pytest.raises(JournalUnavailableError, match="405: not now"):
                journal.check_not_overtaken()
        with pytest.raises(OvertakenError):
            journal.check_not_overtaken()


def test_the_fence_of_a_newer_version_is_one(start, store):
    journal = start()
    store.put(
        f"{journal_folder('app')}{slot_name(1)}/" + slot_name(1),
        wrap("newer", pb.Body(fence=pb.Fence()), FORMAT_VERSION + 1),
    )
    for call in (journal.check_not_overtaken, lambda: journal.record([state()])):
        with pytest.raises(OvertakenError):
            call()


def test_a_record_that_its_successor_removed_before_it_was_read_back_counts_and_the_next_does_not(
    store, start, monkeypatch
):
    journal = start(put_faults(Effect.LOST, after=1))
    with pytest.raises(JournalUnavailableError):
        journal.record([state(at=1)])
    assert start().topics == {TOPIC: state(at=1)}
    with monkeypatch.context() as patch:
        patch.setattr(store, "put", lambda *_, **__: None)  # as it was there until a moment ago
        with pytest.raises(JournalUnavailableError, match="found there, and not there"):
            journal.record([])
    with pytest.raises(OvertakenError):
        journal.record([state(at=2)])
    assert start().topics == {TOPIC: state(at=1)}


# Group commit


def test_what_waits_goes_into_one_record(store, start):
    entered, go = Event(), Event()

    def stall():
        entered.set()
        assert go.wait(10)

    journal = start(StoreFault("put", Effect.HOOK, hook=stall, after=1))
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(journal.record, [state(numbered_topic(0))])
        assert entered.wait(10)
        others = [pool.submit(journal.record, [state(numbered_topic(n))]) for n in range(1, 9)]
        while len(journal._waiting.changes) < 8:
            pass
        go.set()
        for waiting in (first, *others):
            waiting.result()
    assert keys(store) == ["1/0", "1/1", "1/2"]
    assert set(start().topics) == {numbered_topic(n) for n in range(9)}


def test_records_of_many_threads_are_all_durable(start, short_log):
    journal = start()

    def work(n: int) -> None:
        for at in range(20):
            journal.record([state(numbered_topic(n), at=at)])
            assert journal.topics[numbered_topic(n)].open.assigned_at == at

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert start().topics == {numbered_topic(n): state(numbered_topic(n), at=19) for n in range(8)}


def test_everybody_who_waits_for_a_record_hears_of_its_failure(start):
    entered, go = Event(), Event()

    def stall():
        entered.set()
        assert go.wait(10)

    journal = start(StoreFault("put", Effect.HOOK, hook=stall, after=1), put_faults(times=99, after=1))
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(journal.record, [state(numbered_topic(0))])
        assert entered.wait(10)
        others = [pool.submit(journal.record, [state(numbered_topic(n))]) for n in range(1, 4)]
        while len(journal._waiting.changes) < 3:
            pass
        go.set()
        first.result()
        for waiting in others:
            with pytest.raises(StoreUnavailableError):
                waiting.result()
    assert set(journal.topics) == {numbered_topic(0)}


def test_a_journal_that_is_closed_records_nothing(store, start):
    journal = start()
    journal.record([state(at=1)])
    journal.close()
    before = keys(store)
    for call in (lambda: journal.record([state(at=2)]), journal.check_not_overtaken):
        with pytest.raises(FatalError, match="is closed"):
            call()
    assert keys(store) == before


# The store's failures


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("effect", [Effect.LOST, Effect.BEFORE])
def test_after_an_unknown_outcome_the_same_bytes_are_tried_before_anything_else(
    store, start, effect: Effect, times: int
):
    """Whether they had happened or not."""
    faults = StoreFaults(
        [StoreFault("put", effect, error=lambda: OutcomeUnknownError("no answer"), times=times, after=2)]
    )
    journal = Journal.open(FaultyStore(store, faults), "app", tokens())
    journal.record([state(at=1)])
    for _ in range(times):
        with pytest.raises(StoreUnavailableError, match="not known yet"):
            journal.record([state(at=2)])
        assert journal.topics == {TOPIC: state(at=1)}
    journal.record([state(OTHER_TOPIC)])
    assert keys(store) == ["1/0", "1/1", "1/2", "1/3"]
    assert journal.topics == start().topics == {TOPIC: state(at=2), OTHER_TOPIC: state(OTHER_TOPIC)}


def test_after_an_unknown_outcome_it_is_noticed_that_another_process_has_taken_the_journal(start):
    journal = start(put_faults(Effect.LOST, after=1))
    with pytest.raises(StoreUnavailableError):
        journal.record([state(at=2)])
    assert start().topics == {TOPIC: state(at=2)}  # it had happened
    with pytest.raises(OvertakenError):
        journal.check_not_overtaken()


def test_a_store_that_is_away_for_a_while_loses_nothing(start):
    journal = start(put_faults(times=3, after=1))
    for at in range(3):
        with pytest.raises(StoreUnavailableError):
            journal.record([state(at=at)])
    assert journal.topics == {}
    journal.record([state(at=5)])
    assert journal.topics == start().topics == {TOPIC: state(at=5)}


def test_bytes_tried_for_a_slot_never_change(store, start):
    """A store that said 'it did not happen' and was wrong does not make a process take its own record for another's."""

    class Wrong(FaultyStore):
        def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
            answer = super().put(key, data, meta=meta, if_absent=if_absent)
            if self.faults.calls["put"] == 2:
                raise StoreUnavailableError("it happened all the same")
            return answer

    journal = Journal.open(Wrong(store, StoreFaults()), "app", tokens())
    with pytest.raises(StoreUnavailableError):
        journal.record([state(at=1)])
    journal.record([state(at=2), state(OTHER_TOPIC)])
    journal.close()
    assert keys(store) == ["1/0", "1/1", "1/2"]
    assert start().topics == {TOPIC: state(at=2), OTHER_TOPIC: state(OTHER_TOPIC)}


def test_every_append_sent_twice_by_its_client_is_written_once(start, short_log):
    journal = start(put_faults(Effect.REPEATED, times=99))
    for at in range(20):
        journal.record([state(at=at)])
    assert start().topics == {TOPIC: state(at=19)}


@pytest.mark.parametrize("lost", range(12))
def test_an_append_whose_answer_is_lost_counts_at_the_next_start(start, short_log, lost: int):
    try:
        journal = start(put_faults(Effect.LOST, after=lost))
        for at in range(12):
            journal.record([state(at=at)])
    except (OutcomeUnknownError, StoreUnavailableError):  # a start, and a journal at work
        pass
    expected = {TOPIC: state(at=lost - 1)} if lost else {}
    assert start().topics == expected


# Snapshots


def test_a_snapshot_replaces_what_it_covers(store, start, short_log):
    journal = start()
    for n in range(10):
        journal.record([state(numbered_topic(n))])
    assert keys(store) == ["1/8", "1/9", "1/10"]
    assert set(start().topics) == {numbered_topic(n) for n in range(10)}


def test_the_log_stays_in_proportion_to_its_snapshot(store, start, monkeypatch):
    monkeypatch.setattr(journal_rules, "MIN_LOG_BYTES", 2000)
    journal = start()
    largest = 0
    for at in range(200):
        journal.record([state(numbered_topic(at % 5), at=at)])
        largest = max(largest, sum(size for _, size in store.list(journal_folder("app"))))
    assert largest < 5000
    assert len(keys(store)) < 30
    assert len(start().topics) == 5


def test_a_record_that_cannot_be_removed_is_removed_with_the_next_snapshot(store, start, short_log, caplog):
    journal = start(StoreFault("delete", after=1))  # the first is the start's
    for at in range(4):
        journal.record([state(at=at)])
    assert keys(store) == ["1/0", "1/1", "1/2", "1/3", "1/4"]
    assert "could not be removed" in caplog.text
    for at in range(4, 8):
        journal.record([state(at=at)])
    assert keys(store) == ["1/8"]


def test_a_failing_clean_up_does_not_make_every_record_a_snapshot(store, start, short_log):
    journal = start(StoreFault("delete", times=99))
    for at in range(9):
        journal.record([state(at=at)])
    assert len(keys(store)) == 10
    start()
    with pytest.raises(OvertakenError):
        journal.record([state(at=10)])
    assert start().topics == {TOPIC: state(at=8)}


# Reading


def test_a_look_at_the_journal_writes_nothing(store, start):
    assert Journal.peek(store, "app") == {}
    start().record([state()])
    before = dict(store.list())
    assert Journal.peek(store, "app") == {TOPIC: state()}
    assert dict(store.list()) == before


@pytest.mark.parametrize("call", ["list", "read"])
@pytest.mark.parametrize("after", range(6))
def test_a_look_during_a_truncation_starts_over(store, start, short_log, call: str, after: int):
    journal = start()
    for at in range(3):
        journal.record([state(at=at)])

    def go_on():
        for at in range(3, 9):
            journal.record([state(at=at)])

    faults = StoreFaults([StoreFault(call, Effect.HOOK, hook=go_on, after=after)])
    seen = Journal.peek(FaultyStore(store, faults), "app")
    assert seen in ({TOPIC: state(at=2)}, {TOPIC: state(at=8)})
