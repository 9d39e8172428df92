"""`offloader orphans scan`: what it found on both sides, as lines for people and as one object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.bucket import (
    BucketOption,
    bucket_counts,
    bucket_lines,
    bucket_notes,
    bucket_options,
    bucket_summary,
    scan_bucket,
)
from offloader.cli.orphans.deletion_parts import known_cluster, ledger_scanner, lists_of, with_rescues
from offloader.cli.orphans.ledgers_shown import (
    candidate_fields,
    candidate_line,
    ledger_counts,
    ledger_lines,
    ledger_notes,
    ledger_summary,
    leftover_fields,
    missing_fields,
)
from offloader.cli.output import say
from offloader.errors import MetadataUnavailableError
from offloader.lifecycle.bucket.holds import holds, with_holds
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.candidates import OrphanCandidate, OrphanSide
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import as_candidate, refusal_told
from offloader.operations.cost.prices import PriceList

SHOWN = 20
_OF_BOTH = ("referenced", "certain", "suspect", "foreign", "kept", "candidates")


@dataclass(frozen=True, slots=True)
class FoundOrphans:
    """None: that side was not scanned."""

    ledgers: LedgerScan | None
    objects: ObjectScan | None

    @property
    def candidates(self) -> tuple[OrphanCandidate, ...]:
        """Ledgers first."""
        ledgers = () if self.ledgers is None else tuple(as_candidate(one) for one in self.ledgers.verdicts)
        return ledgers + (() if self.objects is None else self.objects.candidates)

    def fields(self) -> dict[str, object]:
        """The whole report."""
        return {
            "candidates": [candidate_fields(one) for one in self.candidates],
            "referencedButMissing": [] if self.ledgers is None else missing_fields(self.ledgers),
            "counts": self._counts(),
            "leftOverManagedLedgers": [] if self.ledgers is None else leftover_fields(self.ledgers),
            "summary": [
                *([] if self.ledgers is None else ledger_summary(self.ledgers)),
                *([] if self.objects is None else bucket_summary(self.objects)),
            ],
            "refusals": list(self._refusals()),
            "keepsVersions": None if self.objects is None else self.objects.keeps_versions,
        }

    def lines(self, prices: PriceList, most: int) -> Iterator[str]:
        """`most`: candidates that are shown one by one."""
        if self.ledgers is not None:
            yield from ledger_lines(self.ledgers, prices)
        if self.objects is not None:
            yield from bucket_lines(self.objects)
        candidates = self.candidates
        yield from (candidate_line(one) for one in candidates[:most])
        if len(candidates) > most:
            yield f"… and {len(candidates) - most} more: --show {len(candidates)}, or --output json, has all"
        if self.ledgers is not None:
            yield from ledger_notes(self.ledgers)
        if self.objects is not None:
            yield from bucket_notes(self.objects)

    def _counts(self) -> dict[str, object]:
        """Of both sides together, and of each."""
        sides = {
            **({} if self.ledgers is None else {str(OrphanSide.BOOKKEEPER): ledger_counts(self.ledgers)}),
            **({} if self.objects is None else {str(OrphanSide.BUCKET): bucket_counts(self.objects)}),
        }
        each = sides.values()
        return {
            **{what: sum(one[what] for one in each) for what in _OF_BOTH},
            **{what: sum(one.get(what, 0) for one in each) for what in ("missing", "ledgers", "objects")},
            "sides": sides,
        }

    def _refusals(self) -> Iterator[dict[str, object]]:
        for one in () if self.ledgers is None else self.ledgers.refusals:
            yield {"side": str(OrphanSide.BOOKKEEPER), "kind": str(one.kind), "message": refusal_told(one)}
        for message in () if self.objects is None else self.objects.refusals:
            yield {"side": str(OrphanSide.BUCKET), "kind": "bucket", "message": message}


@orphans.command()
@click.option(
    "--show",
    "most",
    type=click.IntRange(min=0),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="How many candidates the text shows one by one.",
)
@click.option(
    "--on-spark", is_flag=True,
    help="Have executors of spark.master read back the copies in lifecycle.stockBucket.",
)  # fmt: skip
@bucket_options
@command()
def scan(session: CommandSession, *, bucket: BucketOption, most: int, on_spark: bool) -> int:
    """Find what nobody refers to, in BookKeeper and in the bucket. Changes nothing.

    Ledgers: all of them, by everything that refers to ledgers in the metadata store; without
    pulsar.metadataServiceUri the bucket only. Objects: all below storage.root, by all catalogs and journals. Where
    something stands against any deletion, that is said, too. Exit code 2 where there are candidates. With --on-spark
    the answer is the same; it pays where copies of many small entries are read back.

    \b
    JSON: {candidates, referencedButMissing, counts, leftOverManagedLedgers, summary, refusals, keepsVersions}. A
    candidate is {side, id, kind, verdict, bytes, evidence, createdMs, kept}: side is bookkeeper or bucket, verdict is
    certain or suspect, bytes is null where nobody knows, kept says that it is not deleted: it has data that nothing
    else has, or a hold binds it. What is referenced but missing is [{id, namedBy}]. counts is {referenced, certain,
    suspect, foreign, missing, kept, ledgers, objects, candidates, sides}, of both sides together; sides has the same of
    each. Left-over managed ledgers are [{name, verdict, ledgers, bytes, evidence}]; summary is [{side, kind, verdict,
    age, bytes}] with {ledgers, bytesOfAllCopies, open}, null for what is referenced, which is not looked into, or with
    {objects}; refusals is [{side, kind, message}]; keepsVersions says whether the bucket does, null where that is not
    known.
    """
    bucket.check()
    found = _found(session, bucket, on_spark=on_spark)
    session.output.lines(list(found.lines(PriceList(session.config.cost), most)), found.fields())
    return FINDINGS if found.candidates else OK


def _found(session: CommandSession, option: BucketOption, *, on_spark: bool) -> FoundOrphans:
    if not option.only and not option.left_out and not session.has_bookkeeper:
        say("pulsar.metadataServiceUri is not set: only the bucket is scanned", err=True)
        option = replace(option, only=True)
    ledgers, cluster = None, None
    if not option.only:
        cluster = known_cluster(session)
        ledgers = with_rescues(session, _of_ledgers(session, option, on_spark=on_spark))
    if option.left_out:
        return FoundOrphans(ledgers, None)
    objects = scan_bucket(session, option, lists_of(session), cluster)
    return FoundOrphans(ledgers, with_holds(objects, holds(session.config.policies)))


def _of_ledgers(session: CommandSession, option: BucketOption, *, on_spark: bool) -> LedgerScan:
    """Half a report would look like a whole one."""
    try:
        with ledger_scanner(session, on_spark=on_spark) as scanner:
            return scanner.scan()
    except MetadataUnavailableError as error:
        if option.left_out:
            raise
        raise MetadataUnavailableError(f"{error}; --bucket-only looks at the archive alone") from error
