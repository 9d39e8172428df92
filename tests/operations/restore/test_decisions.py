"""What may be restored to, what goes where, and which transactions count."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import FatalError, IntegrityError, TopicNotFoundError
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER
from offloader.model import TopicName
from offloader.operations.restore.choice import Outcomes, outcomes
from offloader.operations.restore.pairs import Existing, Pairing, pairing
from offloader.operations.restore.progress import RateLimiter
from offloader.operations.restore.provenance import Origin, Provenance, outgoing
from offloader.operations.restore.tail import Tail, TargetContents, tail_of
from offloader.operations.restore.target_policies import check_policies, inherited, left_to_broker
from tests.operations.restore.support import (
    FOREIGN,
    ORIGIN,
    SOURCE,
    TARGET,
    MemoryTarget,
    archived,
    at,
    envelopes,
    gap,
    run,
)

KEEPS_EVERYTHING = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}

KEEPS = {
    "retention": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "message TTL": 0,
    "compaction threshold": 0,
}


def restored(number: int, origin: Origin = ORIGIN) -> bytes:
    return outgoing(parse_envelope(archived(at(1, 1)).data), Provenance(origin, at(5, 6), number)).data


def look(found: TargetContents, *, settled: bool = True) -> Tail:
    return tail_of(TARGET, ORIGIN, found, settled=settled)


EMPTY = TargetContents(0, None, None)
OURS = TargetContents(17, (8, 16), restored(17))


def test_an_empty_target_begins_at_the_first_entry() -> None:
    assert look(EMPTY) == Tail(0, None)


def test_ours_goes_on_after_its_last_entry() -> None:
    assert look(OURS) == Tail(17, at(5, 6))
    assert look(replace(OURS, producers=("offloader-restore-x",))) == Tail(17, at(5, 6))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (TargetContents(3, (8, 2), FOREIGN), "neither empty nor a restore: its last entry 8:2 was not restored"),
        (TargetContents(3, (8, 2), b"\x00"), "its last entry 8:2: the entry"),
        (TargetContents(3, (8, 2), None), "its last entry 8:2 is not a message"),
        (TargetContents(0, (8, 2), None), "held entries that were removed"),
        (
            TargetContents(1, (8, 0), restored(1, replace(ORIGIN, root="other"))),
            "is a restore of .* of the archive other",
        ),
        (replace(OURS, terminated=True), "is terminated"),
        (replace(OURS, compacted=True), "was compacted"),
        (replace(EMPTY, producers=("offloader-restore-x", "orders-7")), "producer orders-7 is connected"),
    ],
)
def test_other_targets_are_refused(found: TargetContents, words: str) -> None:
    with pytest.raises(FatalError, match=words):
        look(found)


@pytest.mark.parametrize("entries", [16, 18])
def test_a_target_that_holds_more_or_less_than_it_says_is_refused(entries: int) -> None:
    with pytest.raises(IntegrityError, match=f"holds {entries} entries, .* number 17"):
        look(replace(OURS, entries=entries))
    assert look(replace(OURS, entries=entries), settled=False).number == 17  # it may be written to at this moment


def test_policies_that_keep_everything_are_accepted() -> None:
    check_policies(TARGET, KEEPS)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "retention",
            {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
            r"retention \(60 minutes, -1 MB\).*set-retention",
        ),
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 10}, "retention"),
        ("retention", None, r"retention \(0 minutes, 0 MB\)"),
        ("message TTL", 5, r"message TTL \(5 s\).*set-message-ttl"),
        ("compaction threshold", 100, r"compaction threshold \(100 bytes\).*set-compaction-threshold"),
    ],
)
def test_policies_that_may_remove_the_tail_are_refused_by_name(name: str, value: object, words: str) -> None:
    with pytest.raises(FatalError, match=words):
        check_policies(TARGET, KEEPS | {name: value})


@pytest.mark.parametrize(
    ("namespace", "broker", "words"),
    [
        (
            {},
            {},
            r"retention \(0 minutes, 0 MB\).*pulsar-admin namespaces set-retention public/default --time -1 --size -1",
        ),
        (
            {},
            {"defaultRetentionTimeInMinutes": "5", "defaultRetentionSizeInMB": "-1"},
            r"retention \(5 minutes, -1 MB\)",
        ),
        ({"retention_policies": {"retentionTimeInMinutes": 7, "retentionSizeInMB": -1}}, KEEPS_EVERYTHING, "7 minutes"),
        (
            {},
            KEEPS_EVERYTHING | {"ttlDurationDefaultInSeconds": "9"},
            "9 s.*namespaces set-message-ttl public/default --messageTTL 0",
        ),
        ({"message_ttl_in_seconds": 8}, KEEPS_EVERYTHING, "8 s"),
        (
            {},
            KEEPS_EVERYTHING | {"brokerServiceCompactionThresholdInBytes": "70"},
            "70 bytes.*namespaces set-compaction-threshold",
        ),
        ({"compaction_threshold": 80}, KEEPS_EVERYTHING, "80 bytes"),
    ],
)
def test_a_new_topic_is_refused_for_what_it_would_inherit(namespace: dict, broker: dict, words: str) -> None:
    with pytest.raises(FatalError, match=words):
        check_policies(TARGET, inherited(namespace, broker), new=True)


def test_what_a_namespace_says_goes_before_what_the_broker_does() -> None:
    namespace = {
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "message_ttl_in_seconds": 0,
        "compaction_threshold": 0,
    }
    broker = {"ttlDurationDefaultInSeconds": "9", "brokerServiceCompactionThresholdInBytes": "70"}
    check_policies(TARGET, inherited(namespace, broker), new=True)
    check_policies(TARGET, inherited({}, KEEPS_EVERYTHING), new=True)
    assert (left_to_broker(namespace), len(left_to_broker({}))) == ([], 3)


def test_a_namespace_that_requires_encryption_is_refused() -> None:
    with pytest.raises(FatalError, match="set-encryption-required public/default --disable"):
        check_policies(TARGET, KEEPS, encryption_required=True)


def part(topic: TopicName, number: int) -> TopicName:
    return replace(topic, name=f"{topic.name}-partition-{number}")


NOTHING = Existing((), {})
PARTS = [part(SOURCE, n) for n in (0, 1, 3)]


def test_a_topic_goes_to_a_topic() -> None:
    assert pairing(SOURCE, [SOURCE], TARGET, NOTHING) == Pairing(((SOURCE, TARGET),), create=0)
    assert pairing(SOURCE, [SOURCE], TARGET, Existing([TARGET], {})) == Pairing(((SOURCE, TARGET),))


def test_one_partition_may_go_to_a_topic_or_a_partition() -> None:
    there = Existing([part(TARGET, 0)], {TARGET: 1})
    assert pairing(PARTS[2], PARTS, TARGET, NOTHING) == Pairing(((PARTS[2], TARGET),), create=0)
    assert pairing(PARTS[2], PARTS, part(TARGET, 0), there) == Pairing(((PARTS[2], part(TARGET, 0)),))


def test_partitions_go_to_as_many() -> None:
    pairs = tuple((p, part(TARGET, p.partition)) for p in PARTS)
    assert pairing(SOURCE, PARTS, TARGET, NOTHING) == Pairing(pairs, create=4)
    assert pairing(SOURCE, PARTS, TARGET, NOTHING, partitions=6) == Pairing(pairs, create=6)
    assert pairing(SOURCE, PARTS, TARGET, Existing([], {TARGET: 4})) == Pairing(pairs)


@pytest.mark.parametrize(
    ("archived_topics", "to", "existing", "partitions", "words"),
    [
        ([SOURCE], TARGET, Existing([], {TARGET: 2}), None, "has 2 partitions, .* is one topic"),
        ([SOURCE], part(TARGET, 1), NOTHING, None, "does not exist: create the topic with its partitions first"),
        (PARTS, TARGET, Existing([TARGET], {}), None, "has 4 partitions, .* is one topic"),
        (PARTS, part(TARGET, 1), NOTHING, None, "has 4 partitions, .* is one topic"),
        (PARTS, TARGET, Existing([], {TARGET: 5}), None, "has 5 partitions, .* 4: .*--partitions 5"),
        (PARTS, TARGET, NOTHING, 3, "4 archived partitions at least, not 3"),
        ([part(SOURCE, 20260105)], TARGET, NOTHING, None, "1 of at least 20260106 partitions are archived"),
    ],
)
def test_kinds_that_do_not_match_are_refused(archived_topics, to, existing, partitions, words) -> None:
    with pytest.raises(FatalError, match=words):
        pairing(SOURCE, archived_topics, to, existing, partitions)


def test_what_is_not_archived_cannot_be_restored() -> None:
    with pytest.raises(TopicNotFoundError, match="not in the archive"):
        pairing(SOURCE, [TARGET], TARGET, NOTHING)


RAW = ((at(1, 0), at(1, 9)),)


def transaction(number: int, entry: int, marker: int | None = None, ledger: int = 1):
    fields = {"txnid_most_bits": 1, "txnid_least_bits": number} | ({} if marker is None else {"marker_type": marker})
    return archived(at(ledger, entry), b"%d" % entry, **fields)


def test_in_copies_of_ledgers_only_committed_entries_count() -> None:
    items = [
        transaction(1, 0),
        transaction(2, 1),
        archived(at(1, 2)),
        transaction(1, 3, ABORT_MARKER),
        transaction(2, 4, COMMIT_MARKER),
        transaction(9, 0, ledger=2),  # read through a broker: committed, its marker is a gap
        gap(2, 1, 1),
    ]
    target = MemoryTarget(Random(1))
    counts = run(target, items, outcomes=outcomes(RAW, items[:5]))
    assert [bytes(e.payload) for e in envelopes(target)] == [b"1", b"payload", b"0"]
    assert {str(why): count for why, count in counts.skipped.items()} == {"marker": 2, "aborted": 1}


def test_a_transaction_whose_end_is_not_archived_ends_the_restore() -> None:
    with pytest.raises(FatalError, match="1:1 belongs to a transaction"):
        Outcomes(RAW).committed(at(1, 1), (1, 2))
    assert Outcomes(RAW).committed(at(2, 0), (1, 2))


def test_no_rate_means_no_waiting() -> None:
    limiter = RateLimiter(None)
    limiter.spend(10**9, 0.0)
    assert limiter.wait(0.0) == 0


def test_a_pause_is_not_made_up_for() -> None:
    limiter = RateLimiter(1000)
    limiter.spend(1000, 50.0)
    assert limiter.wait(50.0) == pytest.approx(0.95)
    assert limiter.wait(100.0) == 0
    limiter.spend(1000, 100.0)
    assert limiter.wait(100.0) == pytest.approx(0.95)
