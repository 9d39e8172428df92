"""What a broker forgets when it stores a subscription: as measured on real ones, and as its source says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.broker_losses import (
    BATCH_INDEX,
    BrokerLoss,
    BrokerSettings,
    Occasion,
    broker_losses,
    defaults_of,
    left_after,
    settings_of,
)
from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.ledger_acks import BatchLeft, acks_of
from offloader.cursors.core.piece_codec import encode_piece

BATCHES = "managedLedgerMaxBatchDeletedIndexToPersist"
RANGES = "managedLedgerMaxUnackedRangesToPersist"
RANGES_IN_NODE = "managedLedgerMaxUnackedRangesToPersistInMetadataStore"

RANGE_FORM, LONG_ARRAYS = defaults_of("4.0.7"), defaults_of("4.2.4")
ALL = tuple(Occasion)
Acks = dict[int, tuple[set[int], dict[int, BatchLeft]]]

BATCH = st.integers(1, 62).map(lambda left: BatchLeft(6, left))
LEDGER = st.tuples(st.sets(st.integers(0, 40), max_size=30), st.dictionaries(st.integers(0, 40), BATCH, max_size=5))
STATES = st.dictionaries(st.integers(2, 6), LEDGER, max_size=4).map(
    lambda found: {
        ledger: (done, {e: b for e, b in some.items() if e not in done}) for ledger, (done, some) in found.items()
    }
)
SETTINGS = st.builds(
    BrokerSettings,
    ranges=st.integers(0, 20),
    ranges_in_node=st.integers(-1, 20),
    batches=st.integers(0, 6),
    long_arrays=st.booleans(),
    batch_index=st.booleans(),
)


def cursor(state: Acks) -> CopiedCursor:
    pieces = {}
    for ledger, (done, batches) in sorted(state.items()):
        if done or batches:
            pieces[ledger] = encode_piece(acks_of([(entry, entry) for entry in sorted(done)], batches))
    return CopiedCursor("job", (1, 0), pieces)


def state_of(one: CopiedCursor) -> Acks:
    return {
        ledger: ({e for first, last in acks.runs() for e in range(first, last + 1)}, dict(acks.batches))
        for ledger, acks in one.acks().items()
    }


def holes(*ledgers: range) -> CopiedCursor:
    """Ledgers of which these entries are acknowledged."""
    pieces = {number: encode_piece(acks_of([(e, e) for e in done])) for number, done in enumerate(ledgers, 2)}
    return CopiedCursor("job", (1, 0), pieces)


def test_of_15_000_ranges_a_clean_unload_and_a_crash_of_4_0_leave_10_001() -> None:
    every_other = holes(range(1, 30_000, 2))
    lost = {(one.occasion, one.setting, one.entries) for one in broker_losses(every_other, RANGE_FORM)}
    assert lost == {(occasion, RANGES, 4_999) for occasion in ALL}
    left = left_after(every_other, Occasion.UNLOAD, RANGE_FORM).acks()[2]
    assert list(left.runs()) == [(e, e) for e in range(1, 20_003, 2)]


def test_three_ranges_are_too_many_for_4_2_when_it_crashes() -> None:
    three = CopiedCursor(
        "job",
        (1, 0),
        {
            2: encode_piece(acks_of([(1, 11_999)])),
            3: encode_piece(acks_of([(0, 11_999)])),
            4: encode_piece(acks_of([(0, 4_999)])),
        },
    )
    assert broker_losses(three, LONG_ARRAYS) == (BrokerLoss(Occasion.CRASH, RANGES, 17_000, 0),)
    assert broker_losses(three, RANGE_FORM) == ()
    assert left_after(three, Occasion.UNLOAD, LONG_ARRAYS) == three


def test_parts_of_batches_go_with_a_clean_unload_and_at_once_where_they_are_switched_off() -> None:
    some = cursor({2: ({1, 3}, {5: BatchLeft(10, 1), 6: BatchLeft(10, 3)})})
    assert broker_losses(some, LONG_ARRAYS) == (
        BrokerLoss(Occasion.UNLOAD, RANGES_IN_NODE, 0, 2),
        BrokerLoss(Occasion.IDLE_UNLOAD, RANGES_IN_NODE, 0, 2),
    )
    assert broker_losses(some, RANGE_FORM) == tuple(BrokerLoss(one, BATCH_INDEX, 0, 2) for one in ALL)


def test_with_no_ranges_in_the_node_batches_stay_until_an_unload_without_an_acknowledgement() -> None:
    some = cursor({2: ({1, 3}, {5: BatchLeft(10, 1)})})
    settings = BrokerSettings(ranges_in_node=-1, batch_index=True)
    assert broker_losses(some, settings) == (BrokerLoss(Occasion.IDLE_UNLOAD, RANGES_IN_NODE, 0, 1),)


def test_more_batches_than_are_stored_are_lost_in_a_crash() -> None:
    many = cursor({2: (set(), {e: BatchLeft(4, 1) for e in range(3)}), 4: (set(), {0: BatchLeft(4, 1)})})
    settings = BrokerSettings(batches=2, batch_index=True)
    assert BrokerLoss(Occasion.CRASH, BATCHES, 0, 2) in broker_losses(many, settings)
    assert set(left_after(many, Occasion.CRASH, settings).acks()[2].batches) == {0, 1}


@given(STATES, SETTINGS, st.sampled_from(Occasion))
def test_what_is_left_is_what_the_broker_s_rules_leave(
    state: Acks, settings: BrokerSettings, occasion: Occasion
) -> None:
    """The rules once more, entry by entry."""
    before = cursor(state)
    runs = [
        set(range(first, last + 1)) | {-ledger}
        for ledger, acks in sorted(before.acks().items())
        for first, last in acks.runs()
    ]
    in_ledger = occasion is Occasion.CRASH or (
        occasion is Occasion.UNLOAD and settings.ranges > 0 and len(runs) > settings.ranges_in_node
    )
    kept: dict[int, set[int]] = {}
    if in_ledger and settings.long_arrays:
        so_far = 0
        for ledger in sorted(state):
            if so_far <= settings.ranges:
                kept[ledger] = state[ledger][0]
            so_far += len(state[ledger][0])
    else:
        for run in runs[: settings.ranges + 1]:
            kept.setdefault(-min(run), set()).update(e for e in run if e >= 0)
    batches = sorted((ledger, entry) for ledger, (_, some) in state.items() for entry in some)
    batches = batches[: settings.batches] if in_ledger and settings.batch_index else []
    expected = {
        ledger: (kept.get(ledger, set()), {e: b for e, b in some.items() if (ledger, e) in batches})
        for ledger, (_, some) in state.items()
    }
    after = left_after(before, occasion, settings)
    assert state_of(after) == {ledger: one for ledger, one in expected.items() if any(one)}
    assert (after.name, after.mark_delete) == (before.name, before.mark_delete)


@given(STATES, SETTINGS)
def test_losses_count_what_is_left_out(state: Acks, settings: BrokerSettings) -> None:
    before, losses = cursor(state), broker_losses(cursor(state), settings)
    for occasion in Occasion:
        after = state_of(left_after(before, occasion, settings))
        entries = sum(len(done) - len(after.get(ledger, (set(), {}))[0]) for ledger, (done, _) in state.items())
        batches = sum(len(some) - len(after.get(ledger, (set(), {}))[1]) for ledger, (_, some) in state.items())
        told = [one for one in losses if one.occasion is occasion]
        assert (sum(one.entries for one in told), sum(one.batches for one in told)) == (entries, batches)


@given(STATES, SETTINGS, st.sampled_from([Occasion.CRASH, Occasion.IDLE_UNLOAD]))
def test_what_is_left_stays_from_then_on(state: Acks, settings: BrokerSettings, occasion: Occasion) -> None:
    left = left_after(cursor(state), occasion, settings)
    assert left_after(left, occasion, settings) == left


@pytest.mark.parametrize(
    ("version", "long_arrays", "batch_index"),
    [
        ("4.0.7", False, False),
        ("3.3.1", False, False),
        ("4.1.0", True, False),
        ("4.2.4", True, True),
        ("?", True, False),
    ],
)
def test_defaults_are_those_of_the_version(version: str, *, long_arrays: bool, batch_index: bool) -> None:
    found = defaults_of(version)
    assert (found.long_arrays, found.batch_index) == (long_arrays, batch_index)


def test_a_broker_s_own_settings_count_before_its_version_s_defaults() -> None:
    said = {
        "managedLedgerMaxUnackedRangesToPersist": "7",
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "8",
        "managedLedgerMaxBatchDeletedIndexToPersist": "9",
        "managedLedgerPersistIndividualAckAsLongArray": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
    }
    assert settings_of(said, "4.0.7") == BrokerSettings(7, 8, 9, long_arrays=True, batch_index=True)
    assert settings_of({"managedLedgerMaxUnackedRangesToPersist": "many"}, "4.0.7") == RANGE_FORM
    assert settings_of({}, "4.2.4") == LONG_ARRAYS


def test_the_old_name_of_the_bound_in_the_node_wins() -> None:
    old = "managedLedgerMaxUnackedRangesToPersistInZooKeeper"
    assert settings_of({old: "5"}, "4.0.7").ranges_in_node == 5
    assert settings_of({old: "-1"}, "4.0.7").ranges_in_node == 1000


def test_long_arrays_need_bit_sets_in_memory() -> None:
    assert not settings_of({"managedLedgerUnackedRangesOpenCacheSetEnabled": "false"}, "4.2.4").long_arrays
