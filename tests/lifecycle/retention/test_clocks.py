"""The grace goes by the store's clock: no host's clock that is wrong makes it shorter, or endless."""

from __future__ import annotations

import pytest

from offloader.errors import StoreUnavailableError
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.storage.forwarding import ForwardingStore
from tests.archive.support import TOPIC
from tests.times import DAY_MS, MINUTE_MS

from .support import NOW, Clock, PausedStore, application, incarnations, is_note_forgotten

YEARS = 3650 * DAY_MS
GRACE = 10 * MINUTE_MS


def hosts(*ahead: int):
    """Hosts of one application whose clocks are ahead by so much; the store's clock, which is right."""
    archive, right = incarnations(), Clock()
    made = [application(archive, lambda by=by: right.now + by, RetentionPolicy()) for by in ahead]
    archive.store.backing.clock_ms = right
    return archive, right, made


@pytest.mark.parametrize("records", [-YEARS, -GRACE - 1, 0, GRACE + 1, YEARS])
@pytest.mark.parametrize("deletes", [-YEARS, -GRACE - 1, 0, GRACE + 1, YEARS])
def test_the_grace_is_as_long_as_it_is_whichever_host_s_clock_is_wrong(records, deletes):
    archive, right, (one, other) = hosts(records, deletes)
    assert f"not before {NOW + GRACE}" in one.delete(TOPIC, "me")
    for right.now in (NOW, NOW + GRACE - 1):
        assert other.visit(TOPIC) == ""
        assert archive.catalogs.head(TOPIC).removed.begun is None
    right.now = NOW + GRACE
    assert "is done" in other.visit(TOPIC)


@pytest.mark.parametrize("late", [1, GRACE // 2, GRACE])
def test_a_clock_that_is_behind_by_less_than_the_grace_makes_it_that_much_longer(late):
    _, right, (one, behind) = hosts(0, -late)
    one.delete(TOPIC, "me")
    right.now = NOW + GRACE + late
    assert "is done" in behind.visit(TOPIC)


def test_while_it_waits_by_its_own_clock_a_host_asks_the_store_nothing():
    archive, _, (one,) = hosts(0)
    one.delete(TOPIC, "me")
    before = archive.store.backing.writes
    assert one.visit(TOPIC) == ""
    assert archive.store.backing.writes == before


def test_it_begins_at_a_time_of_the_store_s():
    archive, right, (one, behind) = hosts(0, -YEARS)
    one.delete(TOPIC, "me")
    right.now = NOW + GRACE
    head = archive.catalogs.head(TOPIC)
    assert head.removed.pending is not None
    begun = behind.deletion.begin(head, head.removed.pending).removed.begun
    assert begun is not None
    assert begun.at == right.now


class Silent(ForwardingStore):
    """A store that does not say when anything was written."""

    def stat(self, key):
        found = super().stat(key)
        return found and type(found)(found.size, found.etag, found.meta)


def test_where_the_store_says_no_time_our_own_counts():
    archive, clock = incarnations(), Clock()
    one = application(archive, clock, RetentionPolicy(), store=Silent(archive.store))
    archive.store.backing.clock_ms = lambda: NOW + YEARS
    assert f"not before {NOW + GRACE}" in one.delete(TOPIC, "me")
    assert one.visit(TOPIC) == ""
    clock.now += GRACE
    assert "is done" in one.visit(TOPIC)


def test_whose_note_is_removed_while_it_asks_for_the_time_begins_nothing():
    """By whoever was paused since before: it would else go by its own clock."""
    archive, _, (one, ahead) = hosts(0, GRACE)
    one.delete(TOPIC, "me")
    note = one.deletion.store
    paused = PausedStore(
        archive.store,
        lambda verb, key: verb == "stat" and is_note_forgotten("delete", key),
        lambda: note.delete([key for key, _ in note.list() if is_note_forgotten("delete", key)]),
    )
    store = archive.store.backing.clock_ms
    ahead = application(archive, ahead.deletion.clock_ms, RetentionPolicy(), store=paused)
    archive.store.backing.clock_ms = store
    with pytest.raises(StoreUnavailableError):
        ahead.visit(TOPIC)
    assert paused.paused
    assert archive.catalogs.head(TOPIC).removed.begun is None
    assert ahead.visit(TOPIC) == ""
    assert ahead.deletion.marked() == [TOPIC]
