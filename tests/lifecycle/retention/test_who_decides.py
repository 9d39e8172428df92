"""One application decides of a topic: who has it, or had it last."""

from __future__ import annotations

import pytest

from offloader.errors import ClaimedByOtherError
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.metadata.journal import Journal
from offloader.metadata.takeover import takeover
from tests.archive.support import APPLICATION, TOPIC
from tests.times import MINUTE_MS

from .support import (
    HOUR,
    NOW,
    Clock,
    PausedStore,
    application,
    is_note_forgotten,
    released_archive,
    visit_all,
)


def is_begun(verb: str, key: str) -> bool:
    """The slot of a second look, once the store of these tests has nothing else to write there."""
    return verb == "put" and f"/{layout.CATALOG}/" in key


OTHERS = [RetentionPolicy(hold="case 4711"), RetentionPolicy(), RetentionPolicy(minutes=10**6)]


@pytest.mark.parametrize("policy", OTHERS)
@pytest.mark.parametrize("before_the_field", [False, True])
def test_what_was_released_only_who_had_it_last_decides_of(policy, before_the_field):
    archive, clock = released_archive(before_the_field=before_the_field), Clock()
    mine, other = application(archive, clock, policy), application(archive, clock, HOUR, "other")
    before = archive.catalogs.head(TOPIC)
    for _ in range(288):  # two days
        visit_all(other)
        visit_all(mine)
        clock.now += 10 * MINUTE_MS
    for _ in range(288):  # its own application is down
        visit_all(other)
        clock.now += 10 * MINUTE_MS
    assert archive.catalogs.head(TOPIC) == before
    for ask in (other.delete, other.undelete):
        with pytest.raises(ClaimedByOtherError, match="released by app: ask that application"):
            ask(TOPIC, "me")


def test_the_deletion_of_who_released_a_topic_is_left_to_it():
    archive, clock = released_archive(), Clock()
    mine, other = application(archive, clock, HOUR), application(archive, clock, RetentionPolicy(hold="x"), "other")
    visit_all(mine)
    clock.now += 11 * MINUTE_MS
    visit_all(other)
    assert other.deletion.marked() == [TOPIC]
    visit_all(mine)
    assert sum(each.segments for each in archive.catalogs.head(TOPIC).removed.ranges) == 5


def test_where_nobody_knows_who_had_it_nothing_goes_but_on_request():
    archive, clock = released_archive(before_the_field=True), Clock()
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    archive.store.delete([layout.record_key(TOPIC, claim.former)])
    one = application(archive, clock, HOUR)
    visit_all(one)
    assert archive.catalogs.head(TOPIC).removal is None
    assert "6 segments" in one.delete(TOPIC, "me")


def test_whoever_takes_over_an_application_decides_of_what_that_released():
    archive, clock = released_archive(), Clock()
    with Journal.open(archive.store, APPLICATION, archive.token):
        pass
    takeover(archive.store, APPLICATION, "heir", archive.token, NOW)
    claim = archive.catalogs.head(TOPIC).claim
    assert claim is not None
    assert (claim.application, claim.released_by) == ("", "heir")
    takeover(archive.store, APPLICATION, "heir", archive.token, NOW + 1)
    assert archive.catalogs.head(TOPIC).claim == claim
    assert "5 segments" in application(archive, clock, HOUR, "heir").visit(TOPIC)


@pytest.mark.parametrize("pause", [is_note_forgotten, is_begun])
def test_whoever_was_paused_while_another_took_over_decides_nothing_more(pause):
    archive, clock = released_archive(), Clock()
    with Journal.open(archive.store, APPLICATION, archive.token):
        pass
    heir = application(archive, clock, RetentionPolicy(), "heir")

    def meanwhile() -> None:
        takeover(archive.store, APPLICATION, "heir", archive.token, NOW)
        if pause is is_note_forgotten:
            heir.delete(TOPIC, "me")
            clock.now += 11 * MINUTE_MS

    store = PausedStore(archive.store, pause, meanwhile)
    paused = application(archive, clock, RetentionPolicy(), store=store)
    if pause is is_begun:
        application(archive, clock, RetentionPolicy()).delete(TOPIC, "me")
        clock.now += 11 * MINUTE_MS
    else:
        paused.deletion.note(TOPIC)
    assert paused.visit(TOPIC) == ""
    assert store.paused
    assert not archive.catalogs.head(TOPIC).removed.ranges
    heir.visit(TOPIC)
    assert sum(each.segments for each in archive.catalogs.head(TOPIC).removed.ranges) == 6
