"""What other policies would change is counted on the segments that there were; ages come from manifests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.counted import CountedStore
from offloader.metadata.compaction import compact
from offloader.metadata.manifest import FAN
from offloader.model import MIB, RollReason, TopicName
from offloader.operations.cost.gather import evenly, look_into
from offloader.operations.cost.plan import Cuts, Pace, PacedTopic, RecentSegment, changes, pace_of, requests_a_month
from offloader.operations.cost.requests import total
from offloader.operations.cost.stored import ByteClass, class_of
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, stream
from tests.times import HOUR_MS

NEWEST = 128

DAY = 24 * HOUR_MS
NOW = 1_700_000_000_000 + 40 * DAY
CUTS = Cuts(8 * MIB, 256 * MIB, 600_000)


def rolled(size: int, parts: int, reason: RollReason = RollReason.AGE, at: int = NOW) -> RecentSegment:
    return RecentSegment(size, parts, reason, at - 600_000, at)


def saved(pace: Pace, setting: str, factor: int) -> float:
    found = [c for c in changes([PacedTopic(CUTS, pace)]) if (c.setting, c.factor) == (setting, factor)]
    return found[0].saves.writes if found else 0


def test_parts_of_twice_the_size_are_half_as_many() -> None:
    pace = Pace((rolled(80 * MIB, 10),) * 3)
    # of each of the three segments five parts, and as many records of the journal, at the most
    assert saved(pace, "partSizeInBytes", 2) == 3 * (5 + 5)


def test_segments_that_ended_by_age_become_one_by_a_longer_roll() -> None:
    pace = Pace((rolled(MIB, 1),) * 6)
    one, six = total(requests_a_month(Pace((rolled(6 * MIB, 1),)))), total(requests_a_month(pace))
    assert saved(pace, "maxOffloadSegmentRolloverTimeInSeconds", 6) == six.writes - one.writes


def test_segments_that_are_full_are_not_changed_by_a_longer_roll() -> None:
    pace = Pace((rolled(256 * MIB, 32, RollReason.SIZE),) * 6)
    assert saved(pace, "maxOffloadSegmentRolloverTimeInSeconds", 6) == 0
    assert saved(pace, "maxOffloadSegmentSizeInBytes", 2) > 0


def test_no_part_is_proposed_that_is_larger_than_a_segment() -> None:
    small = Cuts(8 * MIB, 12 * MIB, 600_000)
    found = changes([PacedTopic(small, Pace((rolled(12 * MIB, 2, RollReason.SIZE),) * 4))])
    assert "partSizeInBytes" not in {change.setting for change in found}


segments = st.lists(
    st.builds(
        rolled,
        st.integers(0, 200 * MIB),
        st.integers(0, 30),
        st.sampled_from((RollReason.AGE, RollReason.SIZE, RollReason.REQUEST)),
    ),
    max_size=30,
)


@given(segments)
def test_what_is_proposed_saves_something_and_never_more_than_there_is(found: list[RecentSegment]) -> None:
    pace = Pace(tuple(found))
    for change in changes([PacedTopic(CUTS, pace)]):
        now = total(requests_a_month(pace))
        assert change.saves.writes + change.saves.reads + change.saves.lists >= 1
        assert change.saves.writes <= now.writes
        assert change.saves.lists <= now.lists


def test_a_month_is_what_a_month_had_or_what_there_is_made_longer() -> None:
    old = [rolled(MIB, 1, at=NOW - 60 * DAY), rolled(MIB, 1, at=NOW - DAY)]
    assert pace_of(old, NOW, all_of_them=True).a_month == 1
    assert len(pace_of(old, NOW, all_of_them=True).segments) == 1
    young = [rolled(MIB, 1, at=NOW - DAY + 600_000), rolled(MIB, 1, at=NOW)]
    assert 30 < pace_of(young, NOW, all_of_them=True).a_month < 31
    first_minute = [rolled(MIB, 1, at=NOW)]
    assert pace_of(first_minute, NOW, all_of_them=True).a_month == 730


def test_topics_are_chosen_evenly_and_the_same_ones_each_time() -> None:
    names = [TOPIC] * 10
    assert len(evenly(names, 100)) == 10
    numbered = [TopicName.parse(f"public/default/t{number}") for number in range(1000)]
    assert evenly(numbered, 10) == numbered[::100]
    assert evenly([], 10) == []


def test_every_kind_of_key_has_a_class_of_its_own() -> None:
    uuid = "00000000-0000-4000-8000-000000000001"
    slot = "0" * 20
    assert class_of(f"a/b/t/{uuid}") is ByteClass.DATA
    assert class_of(f"a/b/t/{uuid}-index") is ByteClass.INDEXES
    assert class_of(f"a/b/t/_catalog/{slot}/{slot}") is ByteClass.CATALOGS
    assert class_of(f"a/b/t/_manifests/{slot}/0-{slot}") is ByteClass.MANIFESTS
    assert class_of(f"_journal/app/{slot}/{slot}") is ByteClass.JOURNALS
    assert class_of(f"{uuid}-ledger-7") is ByteClass.BROKERS
    assert class_of("a/b/whatever") is ByteClass.OTHER


def test_a_long_topic_is_looked_into_in_few_requests_and_its_ages_are_exact() -> None:
    store = CountedStore(MemoryStore())
    archive = Archive(store)
    archive.claim(5)
    count = 4 * FAN
    sizes = [archive.add(stream(5, number, number)).size for number in range(count)]
    compact(store, archive.catalogs.head(TOPIC))
    store.asked.clear()
    look = look_into(archive.catalogs, TOPIC, NOW)
    assert look.ages == {"30 to 365 days": sum(sizes)}
    assert look.kept == sum(sizes)
    assert store.asked.total() < NEWEST / 2
