"""Whether a subscription may go to the brokers: only if they have the very topic, and all that it wants."""

from __future__ import annotations

import pytest

from offloader.gateway.core.hand_over import BACK_WITHIN, ComingBack, objection, readers_objection
from offloader.metadata.state import CatalogHead
from offloader.model import LedgerList, LedgerSpan, Place
from offloader.ports.admin import TopicInfo
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive
from tests.format.support import Stored

SERVED = ((0, 10, 9), (0, 11, 4))
END: Place = (11, 4)


def head(*, created: int = 1, closed: bool = False) -> CatalogHead:
    """Ledger 10 with 10 entries, and the first five of ledger 11."""
    archive = Archive(MemoryStore())
    archive.claim(10, 0, created=created)
    archive.add([Stored(10, entry, b"x") for entry in range(10)])
    archive.closed(10, 9)
    archive.add([Stored(11, entry, b"x") for entry in range(5)])
    if closed:
        archive.closed(11, 4)
    return archive.catalog.head


def live(ledgers: dict[int, int | None], created: int = 1) -> TopicInfo:
    spans = LedgerList(tuple(LedgerSpan(*each) for each in ledgers.items()))
    return TopicInfo(created, spans, {}, None, terminated=False, offloaded=frozenset())


@pytest.mark.parametrize(
    ("mark", "ledgers", "may"),
    [
        ((-1, -1), {10: 9, 11: None}, True),
        ((-1, -1), {11: None}, False),
        ((10, 8), {11: None}, False),
        ((10, 9), {11: None}, True),
        ((11, 2), {11: None}, True),
        (END, {11: None}, True),
        (END, {11: 8, 12: None}, True),
        (END, {12: None}, False),  # nothing says that ledger 11 ended there
        ((11, 2), {11: 3, 12: None}, False),  # it is another one
        (END, {}, False),
    ],
)
def test_brokers_must_have_everything_behind_the_mark_delete(mark, ledgers, may) -> None:
    assert (not objection(head(), SERVED, mark, live(ledgers))) is may


def test_a_ledger_that_is_gone_is_no_matter_where_it_is_recorded_what_follows_it() -> None:
    assert not objection(head(closed=True), SERVED, END, live({12: None}))
    assert objection(head(closed=True), SERVED, (11, 3), live({12: None}))


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    assert "made anew" in objection(head(), SERVED, END, live({11: None}, created=2))


def test_what_is_served_of_an_incarnation_before_is_nowhere_else() -> None:
    served = ((0, 3, 9), (1, 11, 4))
    assert objection(head(), served, (3, 8), live({11: None}))


def test_a_reader_goes_at_the_end_or_in_the_ledger_that_nobody_can_trim() -> None:
    assert not readers_objection(SERVED, END, END, live({11: 8, 12: None}))
    assert not readers_objection(SERVED, END, (11, 2), live({11: None}))
    assert readers_objection(SERVED, END, (11, 2), live({11: 8, 12: None}))
    assert readers_objection(SERVED, END, (10, 9), live({10: 9, 11: None}))


@pytest.mark.parametrize(
    ("served", "last", "mark", "may"),
    [
        (SERVED, END, (11, 3), True),
        (SERVED, (11, 3), (11, 2), True),  # a marker is behind it
        (SERVED, END, (11, 2), False),
        (((0, 10, 9), (0, 11, 0)), (11, 0), (10, 9), True),
        (((0, 10, 9), (0, 11, 0)), (11, 0), (10, 8), False),
        (SERVED, (10, 9), (10, 8), False),  # in a ledger that nothing keeps
    ],
)
def test_a_reader_of_batches_never_acknowledges_the_last_one(served, last, mark, may) -> None:
    assert (not readers_objection(served, last, mark, live({10: 9, 11: 8, 12: None}))) is may


def test_coming_back_is_counted_for_a_while() -> None:
    back = ComingBack()
    assert back.times("c", 0) == 0
    back.led("c", 0)
    back.led("c", 1)
    assert (back.times("c", 2), back.times("d", 2)) == (2, 0)
    assert back.times("c", 1 + BACK_WITHIN) == 0
