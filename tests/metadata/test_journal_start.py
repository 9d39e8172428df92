"""Starts that race, stall and crash, at every call to the store: one owner at most, nothing recorded is lost."""

from functools import partial
from hashlib import sha512

import pytest

from offloader.errors import DamagedRecordError, OvertakenError
from offloader.metadata import journal_rules
from offloader.metadata.journal import Journal
from offloader.metadata.journal_codec import decode_journal
from offloader.metadata.layout import journal_folder, slot_name
from offloader.storage.memory import MemoryStore
from tests.examples import few
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import TOPIC, numbered_topic, state, tokens

# More than any start or short life makes here.
CALLS = 50


class CrashError(Exception):
    """The process is gone."""


class Paged(FaultyStore):
    """Lists two keys a call, so that others can write between the pages."""

    def list(self, prefix="", start_after=""):
        while page := [entry for entry, _ in zip(super().list(prefix, start_after), range(2), strict=False)]:
            yield from page
            start_after = page[-1][0]


class Process:
    """A process of application `app`: what it has recorded, and what became of it."""

    def __init__(self, store: MemoryStore, name: str, *faults: StoreFault) -> None:
        self.name = name
        self.faults = StoreFaults(faults)
        self.journal: Journal | None = None
        self._store = Paged(store, self.faults)

    def live(self, store: MemoryStore, told: dict, records: int) -> bool:
        """Start, and record `records` times; False where it was overtaken. `told` is what was said to be durable."""
        try:
            self.journal = Journal.open(self._store, "app", tokens(self.name))
            for n in range(records):
                new = state(numbered_topic(n % 3), self.name, at=told["next"])
                told["next"] += 1
                self.journal.record([new])
                told["topics"][new.topic] = new.open.assigned_at
        except OvertakenError:
            return False
        return True

    def owns(self) -> bool:
        """Whether it may go on; asked at rest, when nothing stalls any more."""
        self.faults.clear()
        try:
            if self.journal is None:
                return False
            self.journal.check_not_overtaken()
        except OvertakenError:
            return False
        return True

    def end(self) -> None:
        if self.journal is not None:
            self.journal.close()


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_rules, "MAX_RECORDS", 3)


@pytest.fixture
def store() -> MemoryStore:
    """A journal with a past: three epochs, the last one truncated."""
    store = MemoryStore()
    for n in range(3):
        with Journal.open(store, "app", tokens(f"past{n}")) as journal:
            for i in range(5):
                journal.record([state(numbered_topic(9), at=i)])
    return store


def nothing_is_lost(store: MemoryStore, told: dict) -> None:
    """Each topic is at the state last said to be durable, or at a later one whose answer its process never heard."""
    found = Journal.peek(store, "app")
    for topic, at in told["topics"].items():
        assert found[topic].open.assigned_at >= at


def fresh() -> dict:
    return {"next": 1, "topics": {}}


def crash(effect: Effect, after: int) -> StoreFault:
    """From that call on every call fails: the process is as good as dead."""
    return StoreFault("*", effect, error=CrashError, times=10**6, after=after)


@pytest.mark.parametrize("dies_at", range(CALLS))
@pytest.mark.parametrize("empty", [True, False])
def test_a_crash_at_any_call_loses_nothing(store, dies_at: int, *, empty: bool):
    store = MemoryStore() if empty else store
    told, before = fresh(), Journal.peek(store, "app")
    victim = Process(store, "victim", crash(Effect.BEFORE, dies_at))
    try:
        victim.live(store, told, 8)
        assert victim.faults.calls.total() <= dies_at
    except CrashError:
        pass
    nothing_is_lost(store, told)
    assert {t: s for t, s in Journal.peek(store, "app").items() if t in before} == dict(before)
    heir = Process(store, "heir")
    assert heir.live(store, told, 8)
    assert heir.owns()
    nothing_is_lost(store, told)
    victim.end()
    heir.end()


def test_the_crashes_cover_a_whole_life(store):
    process = Process(store, "p")
    process.live(store, fresh(), 8)
    process.end()
    assert CALLS / 2 < process.faults.calls.total() <= CALLS


@pytest.mark.parametrize("stalls_at", range(CALLS))
@pytest.mark.parametrize("records", few([1, 0, 7], 1))
def test_a_process_that_stalls_at_any_call_while_another_lives(store, stalls_at: int, records: int):
    told = fresh()
    other = Process(store, "other")
    stall = StoreFault("*", Effect.HOOK, hook=lambda: other.live(store, told, records), after=stalls_at)
    stalled = Process(store, "stalled", stall)
    stalled.live(store, told, 8)
    nothing_is_lost(store, told)
    owners = [p.name for p in (stalled, other) if p.owns()]
    assert len(owners) <= 1
    last = Process(store, "last")
    assert last.live(store, told, 2)
    nothing_is_lost(store, told)
    assert [p.name for p in (stalled, other, last) if p.owns()] == ["last"]
    for process in (stalled, other, last):
        process.end()


@pytest.mark.parametrize("stalls_at", few(range(CALLS), 20))
def test_three_processes_that_stall_within_each_other(stalls_at: int):
    for within in range(0, CALLS, 2):
        store, told = MemoryStore(), fresh()
        third = Process(store, "third")
        second = Process(
            store,
            "second",
            StoreFault("*", Effect.HOOK, hook=partial(third.live, store, told, 5), after=within),
        )
        hook = StoreFault("*", Effect.HOOK, hook=partial(second.live, store, told, 5), after=stalls_at)
        first = Process(store, "first", hook)
        first.live(store, told, 5)
        nothing_is_lost(store, told)
        assert sum(p.owns() for p in (first, second, third)) <= 1
        for process in (first, second, third):
            process.end()


def test_of_two_starts_that_have_met_the_same_fence_one_wins(store):
    """The second starts between the first one's fence and its first record."""
    told, second = fresh(), Process(store, "second")
    first = Process(
        store,
        "first",
        StoreFault("put", Effect.HOOK, hook=lambda: second.live(store, told, 0), key=lambda k: k.endswith("0" * 20)),
    )
    assert not first.live(store, told, 0)
    assert second.owns()
    second.end()


def test_a_start_that_wakes_up_after_its_epoch_was_begun_and_truncated_by_another_does_not_win(store):
    """Its first record finds the slot empty again: the records after it tell."""
    told, second = fresh(), Process(store, "second")
    first = Process(
        store,
        "first",
        StoreFault("put", Effect.HOOK, hook=lambda: second.live(store, told, 7), key=lambda k: k.endswith("0" * 20)),
    )
    assert not first.live(store, told, 0)
    assert second.owns()
    nothing_is_lost(store, told)
    second.end()


def test_a_fence_put_into_a_hole_of_a_truncation_is_noticed(store):
    """The loader has read an old head; meanwhile the writer goes on, and what follows that head is removed."""
    with Journal.open(store, "app", tokens("writer")) as writer:
        told = fresh()

        def write_on():
            for n in range(7):
                told["topics"][TOPIC] = n
                writer.record([state(TOPIC, at=n)])

        late = Process(store, "late", StoreFault("put", Effect.HOOK, hook=write_on))
        assert late.live(store, told, 0)
        nothing_is_lost(store, told)
        with pytest.raises(OvertakenError):
            writer.record([state(TOPIC, at=99)])
        late.end()


def test_a_start_gets_past_a_writer_that_never_pauses(store):
    with Journal.open(store, "app", tokens("writer")) as writer:
        written: list[int] = []

        def write():
            if len(written) < 10:
                written.append(len(written))
                writer.record([state(TOPIC, at=written[-1])])

        late = Process(store, "late", StoreFault("put", Effect.HOOK, hook=write, times=10**6))
        assert late.live(store, fresh(), 0)
        assert late.journal.topics[TOPIC].open.assigned_at == 9
        late.end()


def test_fences_are_never_removed(store):
    def fences() -> list[str]:
        records = ((key, store.read(key)[0]) for key, _ in store.list(journal_folder("app")))
        return [key for key, data in records if decode_journal(key, data).fence]

    def write_on():
        for at in range(7):
            writer.record([state(TOPIC, at=at)])

    with Journal.open(store, "app", tokens("writer")) as writer:  # whose truncation a fence meets
        late = Process(store, "late", StoreFault("put", Effect.HOOK, hook=write_on))
        late.live(store, fresh(), 0)
        late.end()
    before = fences()
    for n in range(4):
        process = Process(store, f"p{n}")
        process.live(store, fresh(), n * 3)
        process.end()
    assert len(before) == 5  # of three starts, and the two of the late one
    assert set(before) < set(fences())
    assert len(fences()) == 9


def test_what_a_start_could_not_remove_goes_with_a_later_one(store):
    large = [state(numbered_topic(n), sha512(b"%d" % n).hexdigest()) for n in range(5)]  # hardly compressible
    with Journal.open(store, "app", tokens("large")) as journal:
        journal.record(large)
    no_deletes = Process(store, "p", StoreFault("delete", times=99))
    no_deletes.live(store, fresh(), 0)
    no_deletes.end()
    assert sum(size > journal_rules.FENCE_LIMIT for _, size in store.list(journal_folder("app"))) > 1
    for n in range(2):
        process = Process(store, f"q{n}")
        process.live(store, fresh(), 0)
        process.end()
    assert sum(size > journal_rules.FENCE_LIMIT for _, size in store.list(journal_folder("app"))) == 1


def test_a_journal_with_a_lost_record_is_damaged_not_shortened(monkeypatch):
    monkeypatch.setattr(journal_rules, "MAX_RECORDS", 100)
    store = MemoryStore()
    with Journal.open(store, "app", tokens()) as journal:
        for n in range(5):
            journal.record([state(numbered_topic(n))])
    store.delete([f"{journal_folder('app')}{slot_name(1)}/" + slot_name(3)])
    with pytest.raises(DamagedRecordError, match="records are missing"):
        Journal.open(store, "app", tokens())


def test_a_token_that_would_make_a_fence_look_like_data_is_refused(store):
    with pytest.raises(ValueError, match="too long"):
        Journal.open(store, "app", lambda: "x" * 300)
