"""What may be wrong with a ledger before it is closed, most of all: bookies that deny entries which they took.

A bookie that has lost its disk and starts again with an empty one answers *no such entry* for entries that it
acknowledged. Recovery would believe it, and cut the ledger off. Its cookie, which is younger than the ledger, shows
such a bookie, and so do acknowledged entries that it does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from offloader.bookkeeper.api import LedgerMetadataStore
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.evidence import Evidence

SAMPLE = 20_000  # acknowledged entries that are looked for: the first and the last ones of a long ledger


class BookieReport(NamedTuple):
    """One bookie of one of the ledger's ensembles.

    `writable` None: it is not registered. `cookie_ms`: when it first got a cookie, None: it has none;
    `cookie_changed_ms`: when it got the present one. `holds`: the entries that it says it has, None: it does not say,
    and `problem` is why. `confirmed`: the highest LAC that it knows.
    """

    bookie: str
    writable: bool | None = True
    cookie_ms: int | None = None
    holds: Collection[int] | None = ()
    confirmed: int = NO_ENTRY
    problem: str = ""
    cookie_changed_ms: int | None = None


Reports = Mapping[str, BookieReport]


def acknowledged(metadata: LedgerMetadata, reports: Reports, marked: int = NO_ENTRY) -> int:
    """The last entry that must have been acknowledged: all before the last fragment, up to the LAC, and to `marked`."""
    if metadata.closed:
        return metadata.last_entry
    heard = (report.confirmed for report in reports.values())
    return max(metadata.fragments[-1].first_entry - 1, marked, *heard)


class DangerKind(StrEnum):
    """What is wrong."""

    ACK_QUORUM_ONE = "ack-quorum-one"
    ACK_OVER_WRITE = "ack-over-write"
    SMALL_ENSEMBLE = "small-ensemble"
    NOT_REGISTERED = "not-registered"
    READ_ONLY = "read-only"
    NO_COOKIE = "no-cookie"
    YOUNG_COOKIE = "young-cookie"
    CHANGED_COOKIE = "changed-cookie"
    NOTHING_HELD = "nothing-held"
    COPIES_LOST = "copies-lost"
    COPIES_MISSING = "copies-missing"
    DAMAGED = "damaged"


DISTRUSTED = {DangerKind.YOUNG_COOKIE, DangerKind.NOTHING_HELD, DangerKind.COPIES_LOST}
"""Bookies of these kinds are not believed where they deny an entry."""


class Danger(NamedTuple):
    """`bookies`: those that it is about."""

    kind: DangerKind
    bookies: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def dangers(
    metadata: LedgerMetadata, reports: Reports, evidence: Evidence | None = None, marked: int = NO_ENTRY
) -> list[Danger]:
    """All that is seen. `marked`: an entry that is known to be acknowledged, whatever the bookies say."""
    last = acknowledged(metadata, reports, marked)
    found = [*_of_shape(metadata), *_of_bookies(metadata, reports), *_of_copies(metadata, reports, last)]
    return found if evidence is None else [*found, *_of_damage(evidence)]


def distrusted(found: Collection[Danger]) -> frozenset[str]:
    """Bookies that must not be believed where they deny an entry."""
    return frozenset(bookie for danger in found if danger.kind in DISTRUSTED for bookie in danger.bookies)


def young_cookies(metadata: LedgerMetadata, store: LedgerMetadataStore) -> frozenset[str]:
    """Bookies of the last ensemble whose cookie is younger than the ledger. Raises MetadataUnavailableError."""
    cookies = {bookie: store.cookie(bookie) for bookie in set(metadata.fragments[-1].ensemble)}
    return frozenset(
        bookie for bookie, cookie in cookies.items() if cookie and _is_younger(cookie.created_ms, metadata)
    )


def _is_younger(node_ms: int, metadata: LedgerMetadata) -> bool:
    """By one clock, the metadata service's: a broker's may be minutes ahead."""
    since = metadata.created_ms if metadata.listed_ms is None else metadata.listed_ms
    return since is not None and node_ms > since


def _of_shape(metadata: LedgerMetadata) -> Iterator[Danger]:
    if metadata.ack_quorum == 1:
        message = (
            "the ack quorum is 1: one bookie that is lost may hold the only copy, and every bookie must answer "
            "before it can be closed"
        )
        yield Danger(DangerKind.ACK_QUORUM_ONE, (), message)
    if metadata.ack_quorum > metadata.write_quorum:
        message = (
            f"the ack quorum of {metadata.ack_quorum} is larger than the write quorum of {metadata.write_quorum}: it "
            "cannot be closed"
        )
        yield Danger(DangerKind.ACK_OVER_WRITE, (), message)
    for fragment in metadata.fragments:
        if len(set(fragment.ensemble)) < metadata.write_quorum:
            size = f"{len(set(fragment.ensemble))} bookies, fewer than the write quorum of {metadata.write_quorum}"
            message = f"from entry {fragment.first_entry} on there are {size}"
            yield Danger(DangerKind.SMALL_ENSEMBLE, fragment.ensemble, message)


def _of_bookies(metadata: LedgerMetadata, reports: Reports) -> Iterator[Danger]:
    last = metadata.fragments[-1].ensemble
    for bookie, report in reports.items():
        if report.writable is None:
            yield Danger(DangerKind.NOT_REGISTERED, (bookie,), f"{bookie} is not registered: it is down or cut off")
        elif not report.writable:
            yield Danger(
                DangerKind.READ_ONLY, (bookie,), f"{bookie} is read only: it may refuse entries that are written back"
            )
        yield from _of_cookie(report, metadata, relevant=bookie in last and not metadata.closed)


def _of_cookie(report: BookieReport, metadata: LedgerMetadata, *, relevant: bool) -> Iterator[Danger]:
    """`relevant`: the bookie may be asked for entries that decide where the ledger ends."""
    bookie, since, changed = report.bookie, report.cookie_ms, report.cookie_changed_ms
    if since is None:
        message = f"{bookie} has no cookie: nothing would keep it from starting with empty disks"
        yield Danger(DangerKind.NO_COOKIE, (bookie,), message)
    elif relevant and _is_younger(since, metadata):
        message = (
            f"{bookie} has a cookie that is younger than the ledger: it lost its disks, or joined the cluster later"
        )
        yield Danger(DangerKind.YOUNG_COOKIE, (bookie,), message)
    elif relevant and changed is not None and _is_younger(changed, metadata):
        message = (
            f"{bookie} got another cookie in place of its own since the ledger was created: its directories or its "
            "address were changed"
        )
        yield Danger(DangerKind.CHANGED_COOKIE, (bookie,), message)


def _of_copies(metadata: LedgerMetadata, reports: Reports, last: int) -> Iterator[Danger]:
    """Who lacks acknowledged entries, up to `last`, that are its to hold."""
    expected: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    lost: dict[str, list[int]] = {}
    for entry in _sample(last if reports else NO_ENTRY):
        write_set = dict.fromkeys(metadata.write_set(entry))
        said = [bookie for bookie in write_set if reports[bookie].holds is not None]
        without = [bookie for bookie in said if entry not in (reports[bookie].holds or ())]
        expected.update(said)
        lacking.update(without)
        at_most = len(write_set) - len(without)  # if those that do not say all have it
        if at_most < min(metadata.ack_quorum, len(write_set)):
            for bookie in without:
                lost.setdefault(bookie, []).append(entry)
    for bookie, count in lacking.items():
        yield _copies(bookie, count, expected[bookie], lost.get(bookie, []))


def _copies(bookie: str, lacking: int, expected: int, lost: list[int]) -> Danger:
    if lost:
        message = (
            f"{bookie} does not have entry {lost[0]} ({len(lost)} such), which was acknowledged, and too few others "
            "do: copies were lost"
        )
        return Danger(DangerKind.COPIES_LOST, (bookie,), message)
    if lacking == expected:
        message = f"{bookie} has none of the {expected} acknowledged entries that are its to hold"
        return Danger(DangerKind.NOTHING_HELD, (bookie,), message)
    message = (
        f"{bookie} lacks {lacking} of the {expected} acknowledged entries that are its to hold; enough others may "
        "have them"
    )
    return Danger(DangerKind.COPIES_MISSING, (bookie,), message)


def _sample(last: int) -> Iterator[int]:
    if last < SAMPLE:
        return iter(range(last + 1))
    return chain(range(SAMPLE // 2), range(last + 1 - SAMPLE // 2, last + 1))


def _of_damage(evidence: Evidence) -> Iterator[Danger]:
    damaged: dict[str, list[int]] = {}
    for entry, answers in {NO_ENTRY: evidence.last, **evidence.reads}.items():
        for bookie, said in answers.items():
            if said.damaged:
                damaged.setdefault(bookie, []).append(entry)
    for bookie, entries in sorted(damaged.items()):
        named = "its last entry" if entries[0] == NO_ENTRY else f"entry {entries[0]}"
        yield Danger(DangerKind.DAMAGED, (bookie,), f"{bookie} has {named} ({len(entries)} such) with a wrong digest")
