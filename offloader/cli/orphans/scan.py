"""`offloader orphans scan`."""

from __future__ import annotations

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.ledgers_shown import scan_fields, scan_lines
from offloader.cli.orphans.scanning import ledger_scanner
from offloader.lifecycle.candidates import OrphanCandidate
from offloader.lifecycle.ledgers.told import as_candidate

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
    "--price-per-gib-month", "price", type=click.FloatRange(min=0), metavar="PRICE",
    help="What a GiB on bookies' disks costs a month: the summary then has costs, with all copies.",
)  # fmt: skip
@command()
def scan(session: CommandSession, *, most: int, price: float | None) -> int:
    """Find what nobody refers to. Changes nothing.

    Ledgers in BookKeeper: all of them, by everything that refers to ledgers in the metadata store. Where something
    stands against any deletion, that is said, too. Exit code 2 where there are candidates.

    \b
    JSON: {candidates, referencedButMissing, counts, leftOverManagedLedgers, summary, refusals}. A candidate is {side,
    id, kind, verdict, bytes, evidence, createdMs, kept}: side is bookkeeper or bucket, verdict is certain or suspect,
    bytes is null where nobody knows, kept says that it holds data and is never deleted. What is referenced but missing
    is [{id, namedBy}]. counts is {referenced, certain, suspect, foreign, missing, kept, ledgers, candidates}. Left-over
    managed ledgers are [{name, verdict, ledgers, bytes, evidence}]; summary is [{kind, verdict, age, ledgers, bytes,
    bytesOfAllCopies, open}], null for what is referenced, which is not looked into; refusals is [{kind, message}].
    """
    with ledger_scanner(session) as scanner:
        found = scanner.scan()
    candidates: list[OrphanCandidate] = [as_candidate(one) for one in found.verdicts]  # other sides' are added here
    session.output.lines(list(scan_lines(found, candidates, price=price, most=most)), scan_fields(found, candidates))
    return FINDINGS if candidates else OK
