"""The bucket's part of `orphans scan`: what it is told, what it scans, and what it shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, cast

import click

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.cli.output import say
from offloader.cli.parsing import C, with_options
from offloader.config.units import format_size
from offloader.errors import ConfigError
from offloader.lifecycle.bucket.names import KeyStanding
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan, sums
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanCandidate, OrphanVerdict
from offloader.lifecycle.ledgers.references import References
from offloader.metadata.root import read_root

SHOWN = 20
_EVERY = 2.0  # seconds between two lines of progress

ReadReferences = Callable[[], Sequence[References]]
"""Reads all ledger lists of all metadata stores, when it is called."""


@dataclass(frozen=True)
class BucketOption:
    """`only`: no ledgers. `stock`: the bucket of Pulsar's own offloader; None: it is left alone."""

    only: bool
    stock: str | None


def bucket_options(command: C) -> C:
    """`--bucket-only` and `--stock`, which the command gets as one `bucket`."""

    @wraps(command)
    def run(*, bucket_only: bool, stock: str | None, **others: Any) -> Any:
        return command(bucket=BucketOption(bucket_only, stock), **others)

    return with_options(
        cast("C", run),
        click.option("--bucket-only", is_flag=True, help="Look at the archive's objects only, not at ledgers."),
        click.option(
            "--stock",
            metavar="URL",
            help="Look at what Pulsar's own offloader has put into this bucket, too. Needs the ledger lists.",
        ),
    )


def scan_bucket(
    session: CommandSession, option: BucketOption, references: ReadReferences, cluster: str | None = None
) -> ObjectScan:
    """The archive's objects, and those of the stock offloader where that is asked for. `cluster`: ours, if known.

    Where there is no archive, there is nothing to tell, unless the bucket alone is asked for: then ConfigError. Raises
    what the store and `references` raise."""
    grace = session.config.lifecycle.quarantine_floor_ms
    of = session.dependencies
    said = _Progress()
    scanner = BucketScanner(session.store, of.clock_ms, of.new_token, grace, cluster=cluster, progress=said)
    try:
        found = scanner.scan()
    except ConfigError as error:
        if option.only or option.stock is not None:
            raise
        return ObjectScan(of.clock_ms(), (), {}, {}, (str(error),))
    if option.stock is None:
        return found
    name = cluster or read_root(session.store).cluster
    with closing(of.store(session.storage.beside(option.stock, "--stock"))) as store:
        stock = StockScanner(store, references, name, of.clock_ms, grace)
        return replace(found, orphans=_together(found.orphans, stock.scan(said)))


def show_bucket(session: CommandSession, scan: ObjectScan, most: int = SHOWN) -> int:
    """Print a scan of the bucket alone; the exit code. `most`: candidates that the text shows one by one."""
    session.output.lines(list(bucket_lines(scan, most)), bucket_fields(scan))
    return FINDINGS if scan.orphans else OK


def bucket_fields(scan: ObjectScan) -> dict[str, object]:
    """The report of a scan of the bucket alone."""
    candidates = scan.candidates
    return {
        "candidates": [orphan_fields(one) for one in candidates],
        "referencedButMissing": [],
        "counts": bucket_counts(scan),
        "summary": bucket_summary(scan),
        "refusals": list(scan.refusals),
        "keepsVersions": scan.keeps_versions,
    }


def orphan_fields(candidate: OrphanCandidate) -> dict[str, object]:
    """One candidate of the bucket."""
    return {
        "side": str(candidate.side),
        "id": candidate.id,
        "kind": candidate.kind,
        "verdict": str(candidate.verdict),
        "bytes": candidate.size,
        "evidence": list(candidate.evidence),
        "createdMs": candidate.created_ms,
        "kept": candidate.kept,
    }


def bucket_counts(scan: ObjectScan) -> dict[str, int]:
    """How many there are of what."""
    verdicts = [orphan.ruling.verdict for orphan in scan.orphans]
    return {
        "referenced": scan.counts.get(KeyStanding.NAMED, 0),
        "foreign": scan.counts.get(KeyStanding.FOREIGN, 0),
        "certain": verdicts.count(OrphanVerdict.CERTAIN),
        "suspect": verdicts.count(OrphanVerdict.SUSPECT),
        "kept": sum(orphan.ruling.kept for orphan in scan.orphans),
        "objects": sum(scan.counts.values()),
        "candidates": len(verdicts),
    }


def bucket_summary(scan: ObjectScan) -> list[dict[str, object]]:
    """Bytes by kind, verdict and age."""
    return [
        {
            "kind": each.kind,
            "verdict": str(each.verdict),
            "age": each.days,
            "objects": each.number,
            "bytes": each.size,
        }
        for each in sums(scan.candidates, scan.now_ms)
    ]


def bucket_lines(scan: ObjectScan, most: int = SHOWN) -> Iterator[str]:
    """The same for people."""
    counts = bucket_counts(scan)
    size = format_size(scan.sizes.get(KeyStanding.NAMED, 0))
    yield (
        f"{counts['objects']} objects in the bucket: {counts['referenced']} in use ({size} bytes), {counts['certain']} "
        f"certain orphans, {counts['suspect']} suspect, {counts['foreign']} foreign"
    )
    for each in sums(scan.candidates, scan.now_ms):
        yield f"  {each.kind}, {each.verdict}, {each.days}: {each.number} objects, {format_size(each.size)} bytes"
    for one in scan.candidates[:most]:
        kept = ", kept" if one.kept else ""
        yield f"{one.verdict}  bucket  {one.id}  {one.kind}, {one.size} bytes{kept}: {' '.join(one.evidence)}"
    if len(scan.orphans) > most:
        yield f"… and {len(scan.orphans) - most} more: --output json has all"
    yield from _beside(scan)


def _beside(scan: ObjectScan) -> Iterator[str]:
    if scan.refusals:
        yield "nothing would be deleted in the bucket:"
    yield from (f"  {refusal}" for refusal in scan.refusals)
    if scan.keeps_versions and scan.orphans:
        yield "the bucket keeps versions: what is deleted frees nothing until these expire, and comes back until then"


def _together(ours: Iterable[BucketOrphan], stock: Iterable[BucketOrphan]) -> tuple[BucketOrphan, ...]:
    return tuple(sorted((*ours, *stock), key=lambda each: (each.key, each.upload)))


class _Progress:
    """Lines on standard error, not more than one in some seconds: a small bucket's scan says nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._seen = 0

    def __call__(self, objects: int) -> None:
        self._seen += objects
        if self._clock() - self._last >= _EVERY:
            self._last = self._clock()
            say(f"scan: objects: {self._seen}", err=True)
