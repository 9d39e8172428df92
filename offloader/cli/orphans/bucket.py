"""The bucket's part of `orphans scan`: its options, what it scans, and what it shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, cast

import click

from offloader.cli.command import CommandSession
from offloader.cli.output import say
from offloader.cli.parsing import C, with_options
from offloader.config.units import format_size
from offloader.errors import FatalError, OffloadError, OvertakenError
from offloader.lifecycle.bucket.names import KeyStanding
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan, sums
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanSide, OrphanVerdict
from offloader.lifecycle.explaining.words import counted
from offloader.metadata.root import read_root
from offloader.runtime import deletion
from offloader.runtime.deletion import ReadReferences

_EVERY = 2.0  # seconds between two lines of progress


@dataclass(frozen=True)
class BucketOption:
    """`only`: no ledgers. `left_out`: ledgers alone. `stock`: the bucket of Pulsar's own offloader; None: it is left
    alone."""

    only: bool = False
    stock: str | None = None
    left_out: bool = False

    def check(self) -> None:
        """Raises FatalError where it asks for what it leaves out."""
        if self.left_out and (self.only or self.stock is not None):
            raise FatalError("--ledgers-only leaves out what --bucket-only and --stock ask for: say which")


def bucket_options(command: C) -> C:
    """`--bucket-only`, `--ledgers-only` and `--stock`, which the command gets as one `bucket`."""

    @wraps(command)
    def run(*, bucket_only: bool, ledgers_only: bool, stock: str | None, **others: Any) -> Any:
        return command(bucket=BucketOption(bucket_only, stock, ledgers_only), **others)

    return with_options(
        cast("C", run),
        click.option("--bucket-only", is_flag=True, help="Look at the archive's objects only, not at ledgers."),
        click.option("--ledgers-only", is_flag=True, help="Look at ledgers only, not at the archive's objects."),
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

    Where there is no archive, or it cannot be reached, that is all there is to tell, unless the bucket is asked for:
    then ConfigError, or what the store raises. Raises what the stock offloader's store and `references` raise."""
    said = _Progress()
    try:
        clock = session.dependencies.clock_ms
        found = deletion.bucket_scanner(session, clock, cluster, said).scan()
    except OvertakenError:
        raise
    except OffloadError as error:
        if option.only or option.stock is not None:
            raise
        return ObjectScan(session.dependencies.clock_ms(), (), {}, {}, (f"The bucket cannot be looked at: {error}",))
    if option.stock is None:
        return found
    with stock_scanner(session, option.stock, references, cluster) as stock:
        keys = 0

        def counted(number: int) -> None:
            nonlocal keys
            keys += number
            said(number)

        theirs = stock.scan(counted)
        return replace(found, orphans=_together(found.orphans, theirs), stock_objects=keys)


@contextmanager
def stock_scanner(
    session: CommandSession, url: str, references: ReadReferences, cluster: str | None = None
) -> Iterator[StockScanner]:
    """Of the bucket of Pulsar's own offloader. Raises ConfigError."""
    of = session.dependencies
    name = cluster or read_root(session.store).cluster
    with closing(of.store(session.storage.beside(url, "--stock"))) as store:
        yield deletion.stock_scanner(session, store, references, name, of.clock_ms)


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
            "side": str(OrphanSide.BUCKET),
            "kind": each.kind,
            "verdict": str(each.verdict),
            "age": each.days,
            "objects": each.number,
            "bytes": each.size,
        }
        for each in sums(scan.candidates, scan.now_ms)
    ]


def bucket_lines(scan: ObjectScan) -> Iterator[str]:
    """The sums for people."""
    if not scan.counts and scan.refusals:
        return
    counts = bucket_counts(scan)
    size = format_size(scan.sizes.get(KeyStanding.NAMED, 0))
    yield (
        f"{counted(counts['objects'], 'object')} in the bucket: {counts['referenced']} in use ({size} bytes), "
        f"{counts['certain']} certain orphans, {counts['suspect']} suspect, {counts['foreign']} foreign"
    )
    for each in sums(scan.candidates, scan.now_ms):
        many = counted(each.number, "object")
        yield f"  {each.kind}, {each.verdict}, {each.days}: {many}, {format_size(each.size)} bytes"


def bucket_notes(scan: ObjectScan) -> Iterator[str]:
    """What stands against a deletion there, and what else is worth knowing."""
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
