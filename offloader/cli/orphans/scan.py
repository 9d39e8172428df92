"""`offloader orphans scan`."""

from __future__ import annotations

from dataclasses import replace

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.both_sides import FoundOrphans
from offloader.cli.orphans.bucket import BucketOption, bucket_options, scan_bucket
from offloader.cli.orphans.deletion_parts import with_rescues
from offloader.cli.orphans.scanning import has_ledgers, known_cluster, ledger_scanner, lists_of
from offloader.cli.output import say
from offloader.errors import MetadataUnavailableError
from offloader.lifecycle.bucket.holds import holds, with_holds
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.operations.cost.prices import PriceList

SHOWN = 20


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
    if not option.only and not option.left_out and not has_ledgers(session):
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
