"""However connections break and processes end, a target gets each archived entry once, in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import (
    BrokerUnavailableError,
    DataLostError,
    FatalError,
    IntegrityError,
    StoreUnavailableError,
)
from offloader.format.entry import crc_ok
from offloader.operations.restore.progress import RateLimiter, RestoreProgress
from offloader.operations.restore.provenance import Provenance, read_provenance
from offloader.operations.restore.restore import Restore, Tools
from tests.operations.restore.support import (
    ORIGIN,
    Clock,
    KilledError,
    MemoryTarget,
    after,
    archived,
    at,
    envelopes,
    gap,
    mixed,
    published,
    run,
)

MAX_PENDING = 1000


def check(target: MemoryTarget, items) -> None:
    """The target holds what was archived, each entry once, in order, and says where it was."""
    expected = published(items)
    found = envelopes(target)
    assert [bytes(e.payload) for e in found] == [bytes(parse_envelope(entry.data).payload) for entry in expected]
    marks = [read_provenance(e.metadata) for e in found]
    assert marks == [Provenance(ORIGIN, entry.position, number) for number, entry in enumerate(expected, 1)]
    assert all(crc_ok(data) for data in target.stored)


@given(st.integers(0, 2**32), st.integers(0, 60), st.sampled_from([0, 0.02, 0.2, 0.4]))
def test_every_entry_is_there_once_whatever_breaks(seed: int, count: int, trouble: float) -> None:
    random = Random(seed)
    items = mixed(random, count)
    target = MemoryTarget(random, trouble)
    for _ in range(1000):
        try:
            counts = run(target, items)
        except KilledError:
            continue
        break
    check(target, items)
    assert counts.already_there + counts.sent == len(published(items))


def test_another_call_sends_nothing() -> None:
    items = mixed(Random(1), 30)
    target = MemoryTarget(Random(2))
    run(target, items)
    sends = target.sends
    counts = run(target, items)
    assert (counts.sent, counts.already_there, target.sends) == (0, len(published(items)), sends)
    check(target, items)


def test_what_was_archived_meanwhile_comes_after_it() -> None:
    items = mixed(Random(3), 40)
    target = MemoryTarget(Random(4))
    run(target, items[:17])
    run(target, items)
    check(target, items)


def test_no_more_is_on_its_way_than_a_broker_takes() -> None:
    items = [archived(at(1, n), b"%d" % n) for n in range(3 * MAX_PENDING)]
    most = 0

    class Watched(MemoryTarget):
        def receipts(self, timeout):
            nonlocal most
            most = max(most, len(self.on_way) + len(self.receipts_due))
            return super().receipts(timeout)

    target = Watched(Random(5))
    run(target, items)
    assert most <= MAX_PENDING
    check(target, items)


def test_counts_tell_what_was_passed_over() -> None:
    items = [
        archived(at(1, 0)),
        gap(1, 1, 4),
        archived(at(1, 5), marker_type=21, txnid_most_bits=0, txnid_least_bits=1),
        Missing(at(1, 6), at(2, 3), "lost: trimmed"),
        ArchivedEntry(at(2, 4), b"not a message"),
        archived(at(2, 5)),
    ]
    target = MemoryTarget(Random(6))
    counts = run(target, items, allow_missing=True)
    assert (counts.sent, counts.gaps, counts.losses) == (2, 4, 1)
    assert counts.skipped == {"marker": 1, "unreadable": 1}
    assert [read_provenance(e.metadata).position for e in envelopes(target)] == [at(1, 0), at(2, 5)]


def test_what_is_lost_ends_a_restore_that_may_not_pass_it_over() -> None:
    with pytest.raises(DataLostError, match=r"1:1\.\.2:3 is missing \(lost: trimmed\); --allow-missing"):
        run(MemoryTarget(Random(7)), [archived(at(1, 0)), Missing(at(1, 1), at(2, 3), "lost: trimmed")])


def test_what_is_no_message_ends_a_restore_that_may_not_pass_it_over() -> None:
    with pytest.raises(FatalError, match=r"2:4 is not what a broker would deliver .*--allow-missing"):
        run(MemoryTarget(Random(8)), [ArchivedEntry(at(2, 4), b"not a message")])


def test_a_target_that_lost_what_was_confirmed_is_noticed() -> None:
    items = [archived(at(1, n), b"%d" % n) for n in range(2000)]

    class Forgetful(MemoryTarget):
        def receipts(self, timeout):
            told = super().receipts(timeout)
            if len(self.stored) > 500:
                self.stored = self.stored[:3]
                self.on_way.clear()
                raise BrokerUnavailableError("gone")
            return told

    with pytest.raises(IntegrityError, match="ends with entry 3, though"):
        run(Forgetful(Random(9)), items)


def test_another_restore_of_the_same_topic_is_noticed() -> None:
    items = [archived(at(1, n), b"%d" % n) for n in range(50)]
    ahead = MemoryTarget(Random(10))
    run(ahead, items)

    class Shared(MemoryTarget):
        def receipts(self, timeout):
            self.stored = list(ahead.stored)
            self.on_way.clear()
            raise BrokerUnavailableError("gone")

    with pytest.raises(IntegrityError, match="ends with entry 50, which this restore has not sent"):
        run(Shared(Random(11)), [items[0]])


def test_a_target_that_ends_otherwise_than_confirmed_is_noticed() -> None:
    class Lying(MemoryTarget):
        def receipts(self, timeout):
            told = [entry.provenance.number for entry in self.on_way]
            self._store(1)
            self.on_way.clear()
            return told

    with pytest.raises(IntegrityError, match="does not end with the entry that was confirmed last"):
        run(Lying(Random(12)), [archived(at(1, n)) for n in range(3)])


def test_an_archive_that_fails_ends_the_restore_and_another_call_goes_on() -> None:
    items = mixed(Random(13), 30)

    def broken(position):
        yield items[0]
        raise StoreUnavailableError("the store is down")

    target, clock = MemoryTarget(Random(14)), Clock()
    restore = Restore(
        target, broken, lambda tail: RestoreProgress(ORIGIN, tail), RateLimiter(None), Tools(clock, clock.sleep)
    )
    with pytest.raises(StoreUnavailableError):
        restore.run()
    run(target, items)
    check(target, items)


def test_an_archive_that_cannot_be_opened_at_first_is_not_taken_for_an_empty_one() -> None:
    items = mixed(Random(13), 30)
    answers = iter([StoreUnavailableError("the store is down")])

    def late(position):
        for error in answers:
            raise error
        return after(items)(position)

    target, clock = MemoryTarget(Random(14)), Clock()
    Restore(
        target, late, lambda tail: RestoreProgress(ORIGIN, tail), RateLimiter(None), Tools(clock, clock.sleep)
    ).run()
    check(target, items)


def test_a_target_that_stays_away_is_given_up_after_a_while() -> None:
    class Away(MemoryTarget):
        def attach(self):
            raise BrokerUnavailableError("nobody there")

    clock = Clock()
    begun = clock()
    tools = Tools(clock, clock.sleep, retry_for=60)
    with pytest.raises(BrokerUnavailableError, match="nobody there"):
        Restore(
            Away(Random(15)), lambda _: iter(()), lambda tail: RestoreProgress(ORIGIN, tail), RateLimiter(None), tools
        ).run()
    assert 60 < clock() - begun < 100


def test_the_rate_is_kept() -> None:
    items = [archived(at(1, n), bytes(1000)) for n in range(100)]
    clock = Clock()

    class Waiting(MemoryTarget):
        def receipts(self, timeout):
            clock.sleep(min(timeout, 1.0))
            return super().receipts(timeout)

    target = Waiting(Random(16))
    begun = clock()
    counts = run(target, items, rate=20_000, clock=clock)
    seconds = clock() - begun
    assert counts.bytes / 20_000 * 0.95 < seconds < counts.bytes / 20_000 * 1.5
    check(target, items)
