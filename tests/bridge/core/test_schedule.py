"""When which ledgers are bridged, and how far the pin may go meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bridge.core.rounds import BridgedLedger, BridgePhase, BridgeState, BridgeVerdict, UnbridgedLedger
from offloader.bridge.core.schedule import (
    BeginRound,
    BridgeFacets,
    BridgeRest,
    BridgeRules,
    BridgeWork,
    PassOffloaded,
    UnloadRate,
    blocking,
    in_hours,
    is_bridged,
    limit_of,
    next_step,
    not_bridged,
    suspects,
)
from offloader.config import Config
from offloader.config.bridging import Bridge, QuietHours
from offloader.errors import IntegrityError
from offloader.metadata.state import CatalogHead, Claim
from offloader.model import LedgerList, LedgerSpan, Position, TopicName
from offloader.ports.admin import TopicInfo
from tests.times import MINUTE_MS

SHARE = 3

TOPIC = TopicName.parse("public/default/t")
NOW = 1_700_000_000_000
DAY = 24 * 60 * MINUTE_MS
SPANS = (*(LedgerSpan(ledger, 9) for ledger in (3, 4, 5, 7)), LedgerSpan(9, None))
END = Position(0, 7, 9)


INFO = TopicInfo(1, LedgerList(SPANS), {}, None, terminated=False, offloaded=frozenset())


def facets(state: BridgeState | None = None, accounted: Position | None = END, **others: Any) -> BridgeFacets:
    catalog = CatalogHead(TOPIC, claim=Claim("app", 0, 1, Position(0, 3, 0), 0), end=accounted)
    return having(BridgeFacets(state, catalog, INFO), **others)


def having(known: BridgeFacets, **others: Any) -> BridgeFacets:
    """The same, and what is said here."""
    catalog, info = known.catalog, known.info
    if "begin" in others:
        begin = others.pop("begin")
        catalog = replace(catalog, claim=Claim("app", begin.incarnation, 1, begin, 0))
    catalog = replace(catalog, generation=others.pop("generation", catalog.generation))
    own = {name: others.pop(name) for name in ("ledgers", "offloaded", "terminated") if name in others}
    return replace(known, catalog=catalog, info=replace(info, **own), **others)


def ledger(number: int) -> BridgedLedger:
    return BridgedLedger(number, 9, 100, f"uuid-{number}", size=1000)


def began(*ledgers: int, state: BridgeState | None = None) -> BridgeState:
    return (state or BridgeState(TOPIC, 0)).began(tuple(map(ledger, ledgers)), "s3://b", "app", NOW)


def swapping(*ledgers: int) -> BridgeState:
    return began(*ledgers).built(tuple(map(ledger, ledgers)))


def proven(*ledgers: int) -> BridgeState:
    return swapping(*ledgers).proven(NOW)


def due(step: object) -> list[int]:
    assert isinstance(step, BeginRound)
    return [span.ledger for span in step.spans]


def test_closed_ledgers_that_are_committed_are_due_in_the_order_of_the_list() -> None:
    assert due(next_step(facets(), BridgeRules(), NOW)) == [3, 4, 5, 7]
    assert due(next_step(facets(), BridgeRules(ledgers_at_once=2), NOW)) == [3, 4]
    assert due(next_step(facets(accounted=Position(0, 5, 8)), BridgeRules(), NOW)) == [3, 4]
    assert due(next_step(facets(proven(3, 4)), BridgeRules(), NOW)) == [5, 7]
    assert next_step(facets(accounted=Position(0, 3, 8)), BridgeRules(), NOW) is BridgeRest.NOTHING
    assert next_step(facets(accounted=None), BridgeRules(), NOW) is BridgeRest.NOTHING
    assert next_step(facets(proven(3, 4, 5, 7)), BridgeRules(), NOW) is BridgeRest.NOTHING


def test_empty_ledgers_and_those_off_the_list_are_passed_without_a_word() -> None:
    spans = (LedgerSpan(3, -1), LedgerSpan(5, 9), LedgerSpan(6, -1), LedgerSpan(7, None))
    assert due(next_step(facets(ledgers=LedgerList(spans)), BridgeRules(), NOW)) == [5]
    assert not list(not_bridged(facets(proven(5), ledgers=LedgerList(spans))))


@pytest.mark.parametrize("empty", [(), (LedgerSpan(9, -1),)])
def test_the_last_ledger_never_enters_a_round(empty: tuple[LedgerSpan, ...]) -> None:
    """Brokers read it from BookKeeper only. Of a terminated topic it is the last one with entries, and it stays so."""
    spans = LedgerList((*SPANS[:-1], *empty))
    ended = facets(ledgers=spans, terminated=True)
    assert due(next_step(ended, BridgeRules(), NOW)) == [3, 4, 5]
    done = having(ended, state=proven(3, 4, 5))
    assert next_step(done, BridgeRules(), NOW) is BridgeRest.NOTHING
    assert is_bridged(done, END)
    assert limit_of(done) == Position(0, 5, 9)
    assert suspects(having(ended, state=proven(3, 4, 5, 7))) == {3, 4, 5}, "it ended behind what was bridged"
    rolls = facets(ledgers=LedgerList(SPANS[:-1]))  # brokers have closed it, and not begun the next one
    assert due(next_step(rolls, BridgeRules(), NOW)) == [3, 4, 5]


def test_what_brokers_do_not_end_blocks_until_they_have_or_a_day_has_passed() -> None:
    blocked = BridgeState(TOPIC, 0).blocked_by(UnbridgedLedger(3, 9, BridgeVerdict.OFFLOADING, "why", at=NOW))
    assert next_step(facets(blocked), BridgeRules(), NOW + DAY - 1) is BridgeRest.BLOCKED
    assert isinstance(next_step(facets(blocked), BridgeRules(), NOW + DAY), BeginRound)
    ended = next_step(facets(blocked, offloaded=frozenset({3})), BridgeRules(), NOW)
    assert ended == PassOffloaded(Position(0, 3, 9), (3,))
    assert blocked.passed(ended.up_to).blocked is None


def test_a_repair_counts_nothing_twice_and_its_objects_stay() -> None:
    done = proven(3, 4)
    repair = done.repairing((ledger(3),), "s3://b", "app", NOW)
    assert next_step(facets(repair), BridgeRules(), NOW) is BridgeWork.SWAP
    for after in (repair.proven(NOW + 1, {3}), repair.withdrawing("why").withdrawn(NOW + 1)):
        assert (after.up_to, after.ledgers, after.size) == (done.up_to, done.ledgers, done.size)
        assert (after.round, after.finished, after.leaving) == (None, None, None)
    assert repair.anew(1).leaving is None


def test_what_comes_later_is_withdrawn_and_what_is_left_out_goes() -> None:
    state = swapping(3, 4, 5, 7).proven(NOW, {3}, (ledger(5), ledger(7)), "not yet")
    assert (state.up_to, state.ledgers) == (Position(0, 4, 9), 1)
    assert state.finished is not None
    assert [x.ledger for x in state.finished.ledgers] == [4]
    assert state.leaving is not None
    assert [x.ledger for x in state.leaving.ledgers] == [3]
    assert next_step(facets(state), BridgeRules(), NOW) is BridgeWork.CLEAN
    state = state.cleaned()
    assert next_step(facets(state), BridgeRules(), NOW) is BridgeWork.WITHDRAW
    state = state.withdrawn(NOW, {7})
    assert state.leaving is not None
    assert [x.ledger for x in state.leaving.ledgers] == [5], "brokers have the other one by now"


def test_what_brokers_have_offloaded_by_themselves_is_passed() -> None:
    offloaded = frozenset({3, 4, 7})
    assert next_step(facets(offloaded=offloaded), BridgeRules(), NOW) == PassOffloaded(Position(0, 4, 9), (3, 4))
    passed = BridgeState(TOPIC, 0).passed(Position(0, 4, 9))
    assert due(next_step(facets(passed, offloaded=offloaded), BridgeRules(), NOW)) == [5]


def test_only_the_beginning_of_a_round_waits_for_the_interval_and_the_hour() -> None:
    rules = BridgeRules(min_interval_ms=60_000)
    assert next_step(facets(proven(3)), rules, NOW + 59_999) is BridgeRest.INTERVAL
    assert due(next_step(facets(proven(3)), rules, NOW + 60_000)) == [4, 5, 7]
    assert due(next_step(facets(proven(3)), rules, NOW - 1)) == [4, 5, 7]  # a clock that was set back
    assert next_step(facets(), BridgeRules(open=False), NOW) is BridgeRest.HOURS
    assert due(next_step(facets(proven(3)), BridgeRules(60_000, open=False, urgent=True), NOW)) == [4, 5, 7]
    assert next_step(facets(swapping(3)), BridgeRules(60_000, open=False), NOW) is BridgeWork.SWAP
    assert next_step(facets(began(3), retry_at=NOW + 1), BridgeRules(), NOW) is BridgeRest.BACK_OFF


def test_what_our_own_unload_has_closed_makes_no_round_due_by_itself() -> None:
    state = swapping(3, 4, 5).proven(NOW, closed=7)
    rules = BridgeRules(min_interval_ms=60_000, max_interval_ms=DAY)
    assert next_step(facets(state), rules, NOW + DAY - 1) is BridgeRest.COMPANY
    assert due(next_step(facets(state), rules, NOW + DAY)) == [7]
    assert due(next_step(facets(state), rules, NOW - 1)) == [7], "a clock that was set back"
    assert due(next_step(facets(state), replace(rules, urgent=True), NOW)) == [7]
    another = LedgerList((*SPANS[:-1], LedgerSpan(9, 3), LedgerSpan(11, None)))
    known = facets(state, ledgers=another, accounted=Position(0, 9, 3))
    assert next_step(known, rules, NOW + 59_999) is BridgeRest.INTERVAL
    assert due(next_step(known, rules, NOW + 60_000)) == [7, 9]
    assert due(next_step(known, replace(rules, ledgers_at_once=1), NOW + 60_000)) == [7]
    withdrawn = swapping(3, 4, 5).withdrawing("no").withdrawn(NOW, closed=7).cleaned()
    assert due(next_step(facets(withdrawn), rules, NOW + 60_000)) == [3]


def test_a_round_that_is_recorded_goes_on_where_it_is() -> None:
    assert next_step(facets(began(3)), BridgeRules(), NOW) is BridgeWork.BUILD
    assert next_step(facets(swapping(3)), BridgeRules(), NOW) is BridgeWork.SWAP
    assert next_step(facets(swapping(3).withdrawing("no")), BridgeRules(), NOW) is BridgeWork.WITHDRAW


def test_where_it_is_switched_off_what_brokers_may_know_of_is_finished_and_the_rest_dropped() -> None:
    assert next_step(facets(began(3), wanted=False), BridgeRules(), NOW) is BridgeWork.DROP
    assert next_step(facets(swapping(3), wanted=False), BridgeRules(), NOW) is BridgeWork.SWAP
    assert next_step(facets(began(3).withdrawing("no"), wanted=False), BridgeRules(), NOW) is BridgeWork.WITHDRAW
    assert next_step(facets(wanted=False), BridgeRules(), NOW) is BridgeRest.NOTHING


def test_a_former_incarnations_round_is_dropped_and_the_next_one_begins_anew() -> None:
    later = facets(swapping(3), accounted=Position(1, 7, 9), begin=Position(1, 3, 0))
    assert next_step(later, BridgeRules(), NOW) is BridgeWork.ANEW
    after = having(later, state=proven(3, 4))
    assert due(next_step(after, BridgeRules(), NOW)) == [3, 4, 5, 7]
    assert limit_of(after) == Position(1, 3, -1)


VERDICTS = [each for each in BridgeVerdict if each is not BridgeVerdict.ARCHIVE_ONLY]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_ledger_that_cannot_be_bridged_blocks_until_somebody_lets_it_go(verdict: BridgeVerdict) -> None:
    blocked = began(3).blocked_by(UnbridgedLedger(3, 9, verdict, "why", at=NOW))
    assert blocked.round is None
    assert next_step(facets(blocked), BridgeRules(), NOW) is BridgeWork.CLEAN, "what was built of it goes first"
    blocked = blocked.cleaned()
    assert next_step(facets(blocked), BridgeRules(urgent=True), NOW + DAY - 1) is BridgeRest.BLOCKED
    assert due(next_step(facets(blocked), BridgeRules(), NOW + DAY)) == [3, 4, 5, 7], (
        "what it lacks may be there by now"
    )
    assert due(next_step(facets(blocked), BridgeRules(), NOW - 1)) == [3, 4, 5, 7], "a clock that was set back"
    assert limit_of(facets(blocked)) == Position(0, 3, -1)
    assert not is_bridged(facets(blocked), Position(0, 7, 9))
    gone = blocked.letting_go(UnbridgedLedger(3, 9, BridgeVerdict.ARCHIVE_ONLY, "why", "me", NOW))
    assert due(next_step(facets(gone), BridgeRules(), NOW)) == [4, 5, 7]
    assert limit_of(facets(gone)) == Position(0, 3, 9)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_ledger_that_is_in_the_way_no_more_blocks_nothing(verdict: BridgeVerdict) -> None:
    blocked = facets(began(3).blocked_by(UnbridgedLedger(3, 9, verdict, "why", at=NOW, generation=1)).cleaned())
    assert blocking(having(blocked, generation=1)) is not None
    assert next_step(having(blocked, generation=1), BridgeRules(), NOW) is BridgeRest.BLOCKED
    assert due(next_step(having(blocked, generation=2), BridgeRules(), NOW)) == [3, 4, 5, 7], "the catalog is a new one"
    unlisted = having(blocked, generation=1, ledgers=LedgerList(SPANS[1:]))
    assert blocking(unlisted) is None
    assert due(next_step(unlisted, BridgeRules(), NOW)) == [4, 5, 7]
    assert next_step(having(unlisted, ledgers=LedgerList(SPANS[-1:])), BridgeRules(), NOW) is BridgeRest.NOTHING
    theirs = having(blocked, generation=1, offloaded=frozenset({3}))
    assert blocking(theirs) is None
    assert next_step(theirs, BridgeRules(), NOW) == PassOffloaded(Position(0, 3, 9), (3,))
    assert blocked.state is not None
    assert blocked.state.passed(Position(0, 3, 9)).blocked is None


def test_what_brokers_refuse_and_nobody_wants_any_more_is_withdrawn() -> None:
    refused = facets(swapping(3), refused=True)
    assert next_step(refused, BridgeRules(), NOW) is BridgeWork.SWAP
    unwanted = having(refused, wanted=False)
    assert next_step(unwanted, BridgeRules(), NOW) is BridgeWork.TAKE_BACK
    assert next_step(having(unwanted, state=began(3)), BridgeRules(), NOW) is BridgeWork.DROP
    back = having(unwanted, state=swapping(3).withdrawing("no"))
    assert next_step(back, BridgeRules(), NOW) is BridgeWork.WITHDRAW


def test_the_round_after_one_that_was_withdrawn_has_one_ledger() -> None:
    withdrawn = swapping(3, 4).withdrawing("no").withdrawn(NOW).cleaned()
    assert (withdrawn.in_vain, withdrawn.why) == (1, "no")
    assert due(next_step(facets(withdrawn), BridgeRules(), NOW)) == [3]
    shown = began(3, state=withdrawn).built((ledger(3),)).proven(NOW)
    assert (shown.in_vain, shown.why) == (0, "")
    assert due(next_step(facets(shown), BridgeRules(), NOW)) == [4, 5, 7]


def test_the_pin_goes_no_further_than_what_brokers_read() -> None:
    assert limit_of(facets()) == Position(0, 3, -1)
    assert limit_of(facets(swapping(3))) == Position(0, 3, -1)
    assert limit_of(facets(proven(3))) == Position(0, 3, 9)
    assert limit_of(facets(proven(3), wanted=False)) is None


def test_caught_up_is_who_has_every_closed_ledger_up_to_the_goal_bridged() -> None:
    assert not is_bridged(facets(), Position(0, 7, 9))
    assert is_bridged(facets(proven(3, 4)), Position(0, 4, 9))
    assert is_bridged(facets(proven(3, 4)), Position(0, 5, 8))  # the ledger was closed behind the goal
    assert not is_bridged(facets(proven(3, 4)), Position(0, 5, 9))
    assert not is_bridged(facets(replace(proven(3, 4), round=began(5).round)), Position(0, 4, 9))
    assert is_bridged(facets(wanted=False), Position(0, 7, 9))


def test_bridged_ledgers_that_are_listed_as_not_offloaded_are_suspect() -> None:
    assert suspects(facets(proven(3, 4))) == {3, 4}
    assert suspects(facets(proven(3, 4), offloaded=frozenset({3, 4}))) == frozenset()
    assert suspects(facets()) == frozenset()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 3)), max_size=12), st.data())
def test_rounds_take_each_closed_ledger_once_and_come_to_an_end(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    numbers = [sum(step + 1 for step, _ in gaps[: at + 1]) for at in range(len(gaps))]
    spans = tuple(LedgerSpan(number, last) for number, (_, last) in zip(numbers, gaps, strict=True))
    last = numbers[-1] if numbers else 0
    known = facets(
        begin=Position(0, 0, 0),
        accounted=Position(0, last, 3),
        ledgers=LedgerList((*spans, LedgerSpan(last + 1, None))),
    )
    offloaded = data.draw(st.frozensets(st.sampled_from(numbers))) if numbers else frozenset()
    taken: list[int] = []
    for _ in range(2 * len(gaps) + 1):
        now = having(known, offloaded=offloaded | set(taken))
        step = next_step(now, BridgeRules(ledgers_at_once=data.draw(st.integers(1, 3))), NOW)
        state = known.state or BridgeState(TOPIC, 0)
        if step is BridgeRest.NOTHING:
            break
        if isinstance(step, PassOffloaded):
            state = state.passed(step.up_to)
        else:
            assert isinstance(step, BeginRound)
            ledgers = tuple(BridgedLedger(span.ledger, span.last or 0, 0, "u") for span in step.spans)
            taken += [span.ledger for span in step.spans]
            state = state.began(ledgers, "b", "a", NOW).built(ledgers).proven(NOW)
        known = having(known, state=state)
    assert is_bridged(known, Position(0, last, 9))
    assert taken == [span.ledger for span in spans if span.last != -1 and span.ledger not in offloaded]


# Hours


def hours(text: str) -> QuietHours:
    settings = Bridge.model_validate({"quietHours": text})
    assert settings.quiet_hours is not None
    return settings.quiet_hours


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "at", "inside"),
    [
        ("22:00-05:00", "2026-01-05T22:00", True),
        ("22:00-05:00", "2026-01-05T21:59:59", False),
        ("22:00-05:00", "2026-01-05T04:59:59", True),
        ("22:00-05:00", "2026-01-05T05:00", False),
        ("09:00-17:30", "2026-01-05T12:00", True),
        ("09:00-17:30", "2026-01-05T17:30", False),
        ("22:00-05:00 Europe/Berlin", "2026-01-05T21:30", True),
        ("22:00-05:00 Europe/Berlin", "2026-07-05T20:30", True),
        ("22:00-05:00 Europe/Berlin", "2026-07-05T03:30", False),
    ],
)
def test_the_hour_is_that_of_its_zone(text: str, at: str, inside: bool) -> None:
    assert in_hours(hours(text), ms(at)) is inside


def test_an_hour_that_comes_twice_counts_twice_and_one_that_is_left_out_does_not() -> None:
    window, zone = hours("02:15-02:45 Europe/Berlin"), "Europe/Berlin"
    twice = [in_hours(window, ms("2026-10-25T02:30", zone, fold)) for fold in (0, 1)]
    assert twice == [True, True]
    night = [ms("2026-03-29T00:00", zone) + minute * MINUTE_MS for minute in range(300)]
    assert not any(in_hours(window, at) for at in night)
    assert in_hours(None, NOW)


@given(st.integers(0, 4_000_000), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]))
def test_the_hour_is_what_a_clock_in_that_zone_shows(minutes: int, zone: str) -> None:
    window = hours(f"22:00-05:00 {zone}")
    at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    shown = at.astimezone(ZoneInfo(zone))
    assert in_hours(window, int(at.timestamp() * 1000)) is (shown.hour >= 22 or shown.hour < 5)


def test_what_nobody_needs_goes_before_anything_else_whoever_wants_what() -> None:
    leftover = began(3, 4).built(tuple(x for x in swapping(3).round.ledgers))
    assert leftover.leaving is not None
    assert [each.ledger for each in leftover.leaving.ledgers] == [4]
    for state in (leftover, began(3).dropped(), began(3).anew(1)):
        for wanted in (True, False):
            assert next_step(facets(state, wanted=wanted), BridgeRules(open=False), NOW) is BridgeWork.CLEAN
            assert not is_bridged(facets(state, wanted=wanted), None)
        assert state.cleaned().leaving is None
    assert swapping(3).leaving is None


# What a state refuses


def test_a_round_goes_through_its_phases_and_no_others() -> None:
    with pytest.raises(IntegrityError):
        began(3, state=began(3))
    with pytest.raises(IntegrityError):
        began(3).proven(NOW)
    with pytest.raises(IntegrityError):
        swapping(3).dropped()
    with pytest.raises(IntegrityError):
        swapping(3).blocked_by(UnbridgedLedger(3, 9, BridgeVerdict.LOSS, ""))
    with pytest.raises(IntegrityError):
        proven(3).withdrawing("why")
    done = proven(3, 4)
    assert done.finished is not None
    assert done.finished.phase is BridgePhase.SWAPPING
    assert (done.ledgers, done.size, done.up_to, done.swapped_at) == (2, 2000, Position(0, 4, 9), NOW)
    assert began(5, state=done).finished is None


def test_the_settings_have_a_way_to_the_schedule() -> None:
    text = """
        application: a
        pulsar: {serviceUrl: "pulsar://p:6650", adminUrl: "http://p:8080", metadataServiceUri: "zk://z:2181/ledgers"}
        storage: {root: "s3://bucket"}
        bridge: {minInterval: 30m, quietHours: "22:00-05:00 Europe/Berlin", unloadsAMinute: 3}
    """
    settings = Config.parse(text, {}).bridge
    assert settings.min_interval_ms == 30 * MINUTE_MS
    assert settings.unloads_a_minute == 3
    assert settings.quiet_hours == hours("22:00-05:00 Europe/Berlin")


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=60), st.integers(1, 9))
def test_no_minute_has_more_unloads_than_it_may(steps: list[tuple[int, bool]], most: int) -> None:
    rate, now, begun = UnloadRate(most), NOW, list[tuple[int, bool]]()
    for step, again in steps:
        now += step
        if rate.take(now, again=again):
            begun.append((now, again))
    within = [[one for one in begun if at - MINUTE_MS < one[0] <= at] for at, _ in begun]
    assert all(len(them) <= most for them in within)
    assert all(sum(again for _, again in them) <= max(1, most // SHARE) for them in within)
    if steps:
        assert begun


def test_what_fails_again_and_again_leaves_others_their_part() -> None:
    rate = UnloadRate(30)
    assert sum(rate.take(NOW, again=True) for _ in range(300)) == 10
    assert sum(rate.take(NOW) for _ in range(300)) == 20
    assert not rate.take(NOW + MINUTE_MS - 1, again=True)
    assert rate.take(NOW + MINUTE_MS, again=True)


def test_a_step_counts_for_as_many_as_it_has_made() -> None:
    rate = UnloadRate(10)
    assert rate.take(NOW)
    rate.made(NOW, NOW + 5_000, 8)
    assert [rate.take(NOW + 6_000) for _ in range(3)] == [True, True, False]
    assert not rate.take(NOW + MINUTE_MS)  # not when it began counts, but when it was over
    assert rate.take(NOW + MINUTE_MS + 5_000)


def test_a_step_that_has_made_none_costs_none() -> None:
    rate = UnloadRate(1)
    for second in range(10):
        assert rate.take(NOW + second, again=True)
        rate.made(NOW + second, NOW + second, 0, again=True)
    assert rate.take(NOW + 10)


def test_a_clock_that_is_set_back_stops_no_unload_for_longer_than_a_minute() -> None:
    rate = UnloadRate(1)
    assert rate.take(NOW)
    assert not rate.take(NOW + 1)
    assert rate.take(NOW - DAY)
    assert not rate.take(NOW - DAY + MINUTE_MS - 1)
    assert rate.take(NOW - DAY + MINUTE_MS)
