"""A takeover moves an application's topics to another one for ever, and can be interrupted anywhere."""

from dataclasses import replace
from functools import partial

import pytest

from offloader.errors import ConfigError, OvertakenError, RetryableError
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.state import TopicState, record_uuid
from offloader.metadata.takeover import takeover
from offloader.model import TopicName
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import OTHER_TOPIC, TOPIC, claim, numbered_topic, offloaded, state, tokens

IDLE, FOREIGN, UNCLAIMED = numbered_topic(1), numbered_topic(2), numbered_topic(3)


class CrashError(Exception):
    """The command is gone."""


@pytest.fixture
def store() -> MemoryStore:
    """Application `old` owns three topics, one of them idle, and remembers one of `foreign`'s and one never claimed."""
    store = MemoryStore()
    for application, topics in (("old", (TOPIC, OTHER_TOPIC, IDLE)), ("foreign", (FOREIGN,))):
        catalogs = Catalogs(store, application)
        for topic in topics:
            catalogs.append(catalogs.head(topic), claim(application))
    with Journal.open(store, "old", tokens("old")) as journal:
        journal.record([state(TOPIC), state(OTHER_TOPIC), state(FOREIGN), state(UNCLAIMED)])
    return store


def take(store, name: str = "t") -> tuple[TopicName, ...]:
    return takeover(store, "old", "new", tokens(name), 77).topics


def owners(store: MemoryStore) -> dict[TopicName, str]:
    catalogs = Catalogs(store, "reader")
    return {topic: catalog.claim.application for topic, catalog in catalogs.heads(catalogs.topics()).found.items()}


TAKEN = {TOPIC: "new", OTHER_TOPIC: "new", IDLE: "new", FOREIGN: "foreign"}


def test_claims_and_open_segments_change_hands(store):
    assert take(store) == tuple(sorted((TOPIC, OTHER_TOPIC, IDLE, UNCLAIMED)))
    assert owners(store) == TAKEN
    with Journal.open(store, "new", tokens("new")) as journal:
        assert journal.topics == {TOPIC: state(TOPIC), OTHER_TOPIC: state(OTHER_TOPIC), UNCLAIMED: state(UNCLAIMED)}
    adopted = Catalogs(store, "new").load(TOPIC).claim
    former = record_uuid(TOPIC, claim("old"))
    assert adopted == replace(claim("new"), at=77, reason="taken over from old", former=former)
    assert sorted(Catalogs(store, "new").claimed()) == sorted((TOPIC, OTHER_TOPIC, IDLE))


def test_a_topic_that_was_on_its_way_to_another_shard_is_on_it_no_more(store):
    """Whoever has the journal next has never heard of that shard, and would never begin anything in the topic."""
    with Journal.open(store, "old", tokens("leaving")) as journal:
        journal.record([TopicState(IDLE, passed_to="old~3")])
    late = Catalogs(store, "old")
    head = late.head(IDLE)
    take(store)
    with Journal.open(store, "new", tokens("new")) as journal:
        assert IDLE not in journal.topics
    with pytest.raises(RetryableError):
        late.pass_on(head, "old~3", 78)  # from a process that was paused
    assert owners(store) == TAKEN


def test_shards_of_one_application_are_not_taken_over_for_ever(store):
    with pytest.raises(ConfigError, match="old~3 is a shard of old; `shards"):
        takeover(store, "old~3", "old", tokens("t"), 77)
    Journal.open(store, "old~3", tokens("starts"))


def test_a_running_old_application_stops(store):
    with Journal.open(store, "old", tokens("running")) as running:
        take(store)
        with pytest.raises(OvertakenError):
            running.check_not_overtaken()
        with pytest.raises(OvertakenError):
            running.record([TopicState(TOPIC)])


def test_the_old_application_never_starts_again(store):
    take(store)
    for _ in range(2):
        with pytest.raises(OvertakenError, match="old was taken over by new: run that one"):
            Journal.open(store, "old", tokens("again"))
    with pytest.raises(OvertakenError, match="taken over by new"):
        takeover(store, "old", "third", tokens("third"), 78)


def test_a_start_of_the_old_application_that_stalled_during_the_takeover_does_not_win(store):
    for stalls_at in range(20):
        copy = MemoryStore(MemoryBacking(dict(store.backing.objects)))
        stall = StoreFault("*", Effect.HOOK, hook=partial(take, copy), after=stalls_at)
        faulty = FaultyStore(copy, StoreFaults([stall]))
        try:
            with Journal.open(faulty, "old", tokens("stalled")) as journal:
                while stall.times:  # it started before the takeover began
                    journal.check_not_overtaken()
                journal.check_not_overtaken()
            raise AssertionError("the old application still runs")
        except OvertakenError:
            pass
        assert owners(copy) == TAKEN


def test_a_commit_that_the_old_application_had_under_way_counts_or_is_refused(store):
    """It reaches the catalog before the claim does: the claim goes behind it."""

    def commit():
        old = Catalogs(store, "old")
        old.append(old.head(TOPIC), offloaded("late", 0, 9))

    first_claim = StoreFault("put", Effect.HOOK, hook=commit, key=lambda k: "_catalog" in k)
    take(FaultyStore(store, StoreFaults([first_claim])))
    catalog = Catalogs(store, "new").load(TOPIC)
    assert (catalog.claim.application, [s.uuid for s in catalog.segments]) == ("new", ["late"])


@pytest.mark.parametrize("effect", [Effect.BEFORE, Effect.LOST])
def test_interrupted_at_any_call_it_can_be_repeated(store, effect):
    calls = 0
    while True:
        copy = MemoryStore(MemoryBacking(dict(store.backing.objects)))
        faults = StoreFaults([StoreFault("*", effect, error=CrashError, times=1, after=calls)])
        try:
            take(FaultyStore(copy, faults), "interrupted")
            done = faults.calls.total() <= calls
        except Exception:  # noqa: BLE001 (whatever it met, it is repeated)
            done = False
        for topic, owner in owners(copy).items():  # nobody is left without a journal that knows the open segment
            if owner == "new" and topic != IDLE:
                assert Journal.peek(copy, "new")[topic] == state(topic)
        take(copy, "repeated")
        assert owners(copy) == TAKEN
        assert set(Journal.peek(copy, "new")) == {TOPIC, OTHER_TOPIC, UNCLAIMED}
        if done:
            break
        calls += 1
    assert calls > 30


def test_repeated_later_it_does_not_bring_back_what_the_heir_has_finished(store):
    take(store)
    with Journal.open(store, "new", tokens("new")) as journal:
        journal.record([TopicState(TOPIC), state(OTHER_TOPIC, at=50)])
    take(store, "again")
    assert Journal.peek(store, "new") == {OTHER_TOPIC: state(OTHER_TOPIC, at=50), UNCLAIMED: state(UNCLAIMED)}


def test_repeated_after_the_heir_went_on_it_does_not_set_it_back(store):
    """Interrupted between journal and claims; the heir starts, sees the open segment and uploads a part more of it."""
    faults = StoreFaults([StoreFault("put", error=CrashError, key=lambda k: "_catalog" in k)])
    with pytest.raises(CrashError):
        take(FaultyStore(store, faults))
    with Journal.open(store, "new", tokens("new")) as journal:
        journal.record([state(TOPIC, at=50)])
    take(store, "again")
    assert Journal.peek(store, "new")[TOPIC] == state(TOPIC, at=50)
    assert owners(store) == TAKEN


def test_the_heir_s_own_topics_stay(store):
    mine = numbered_topic(8)
    with Journal.open(store, "new", tokens("new")) as journal:
        journal.record([state(mine)])
    take(store)
    assert Journal.peek(store, "new")[mine] == state(mine)


def test_an_application_that_never_was_is_a_typing_error(store):
    with pytest.raises(ConfigError, match="no journal of odl"):
        takeover(store, "odl", "new", tokens(), 1)
    with pytest.raises(ConfigError, match="cannot take over itself"):
        takeover(store, "old", "old", tokens(), 1)


def test_a_damaged_catalog_keeps_no_other_topic_from_changing_hands(store):
    key = layout.slot_key(IDLE, 0, 0)
    sound = store.read(key)[0]
    store.put(key, b"damage")
    taken = takeover(store, "old", "new", tokens("a"), 77)
    assert taken.topics == tuple(sorted((TOPIC, OTHER_TOPIC, UNCLAIMED)))
    assert [(topic, key in line) for topic, line in taken.failed.items()] == [(IDLE, True)]
    store.put(key, sound)
    assert takeover(store, "old", "new", tokens("b"), 77) == ((IDLE,), {})
    assert owners(store) == TAKEN


def test_an_open_segment_whose_catalog_is_damaged_changes_hands_when_that_is_mended(store):
    key = layout.slot_key(TOPIC, 0, 0)
    sound = store.read(key)[0]
    store.put(key, b"damage")
    assert TOPIC not in take(store)
    assert TOPIC not in Journal.peek(store, "new")
    store.put(key, sound)
    assert take(store, "again") == (TOPIC,)
    assert Journal.peek(store, "new")[TOPIC] == state(TOPIC)
