"""`offloader ledgers delete`: PIP-186's request, from the shell.

With `--type OFFLOAD_LEDGER` it is of a copy in the bucket of Pulsar's own offloader.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.ledgers import ledgers
from offloader.cli.orphans.bucket import stock_scanner
from offloader.cli.orphans.bucket_phases import marking_clock
from offloader.cli.orphans.deletion_parts import lists_of, queue_of_cluster, shown, side_of, timing
from offloader.cli.orphans.quarantine import YES
from offloader.cli.parsing import parse_pair, parsed
from offloader.errors import FatalError
from offloader.lifecycle.bucket.copy_demand import demand_copy
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.demand import (
    DeleteLedgerPayload,
    DemandAnswered,
    DemandDenied,
    answer_demand,
)
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.records import (
    PIP_TYPES,
    DeletionAnswer,
    DeletionOffloadContext,
    LedgerComponent,
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
)
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.stock_copies import bucket_name
from offloader.lifecycle.ledgers.told import refusal_told
from offloader.model import TopicName
from offloader.runtime.deletion import bounds_of

_NOT_YET = "nothing is marked without --yes"
_REFUSED = "something stands against any deletion"
_MORE = " If it shall go all the same: --suspect."
DENIED = "denied"


@ledgers.command()
@click.argument("ledger", metavar="ID", type=click.IntRange(min=0))
@click.option("--topic", default="", help="The topic, or managed ledger, that it must be of.")
@click.option(
    "--type",
    "kind",
    type=click.Choice([str(one) for one in PIP_TYPES]),
    default=str(LedgerType.LEDGER),
    show_default=True,
    help="Where its data are.",
)
@click.option("--component", type=click.Choice([str(one) for one in LedgerComponent]), help="What it must be for.")
@click.option("--schema-id", default="", help="The schema that it must be of.")
@click.option("--cursor", default="", help="The subscription that it must be of.")
@click.option("--offload-uuid", help="Which copy of an OFFLOAD_LEDGER.")
@click.option("--offload-driver", default="", help="The driver of that copy.")
@click.option(
    "--offload-metadata",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parsed(parse_pair),
    help="More about that copy. Can be repeated.",
)
@click.option("--stock", metavar="URL", help="The bucket of that copy; by default lifecycle.stockBucket.")
@click.option("--suspect", is_flag=True, help="Also where it is suspect only: you have looked, and want it to go.")
@YES
@command()
def delete(
    session: CommandSession,
    ledger: int,
    *,
    suspect: bool,
    stock: str | None,
    topic: str,
    kind: str,
    component: str | None,
    schema_id: str,
    cursor: str,
    offload_uuid: str | None,
    offload_driver: str,
    offload_metadata: tuple[tuple[str, str], ...],
    yes: bool,
) -> int:
    """Ask for a ledger's deletion, as PIP-186 has it. What is asked is compared with what is there, never believed, and
    no delay is skipped: what is certainly an orphan is marked, and `orphans list` says when it goes. An OFFLOAD_LEDGER
    is the copy in the bucket of Pulsar's own offloader, data and index.

    --suspect marks a data ledger, too, of which nobody can say but that its topic's list has no greater ID yet: a
    broker that stands still may be about to list it. No broker may have the topic loaded, then and when it goes. It
    goes in one transaction that writes the list anew, with the same bytes, so that such a broker fails, looks at the
    list again, and loses nothing. Loading the topic makes the ledger certain, or shows that it is in use: do that
    instead, if you can.

    Exit code 0 also for the answers with which nothing is left to do: still in use, does not match, already gone,
    invalid. Exit code 2 where it is not proven that nobody needs it, or anything stands against deletion.

    \b
    JSON: {message, answer, why, deletion, refusals}; answer is one of these four, marked, would be marked, pending
    already, or denied; deletion as of `orphans list`, null where it is not marked.
    """  # fmt: skip
    context = DeletionOffloadContext(offload_uuid, offload_driver, offload_metadata) if offload_uuid else None
    part = LedgerComponent(component) if component else None
    named = str(TopicName.parse(topic)) if topic and "/" not in topic else topic  # public/default, as everywhere
    payload = DeleteLedgerPayload(ledger, LedgerType(kind), named, part, schema_id, cursor, context)
    if payload.problem:
        return _said(session, payload, str(DeletionAnswer.INVALID), payload.problem)
    in_bucket = payload.ledger_type is LedgerType.OFFLOAD_LEDGER
    if (suspect and in_bucket) or (stock and not in_bucket):
        raise FatalError("--suspect is for a LEDGER, --stock for an OFFLOAD_LEDGER")
    if in_bucket:
        found = ask_for_copy(session, payload, stock, yes=yes)
        return _said(session, payload, found.answer, found.why, record=found.record, refusals=found.refusals)
    return _demand(session, payload, side_of(session), suspect=suspect, yes=yes)


def _demand(
    session: CommandSession, payload: DeleteLedgerPayload, side: BookKeeperSide, *, suspect: bool, yes: bool
) -> int:
    scan = side.scanner.scan({payload.ledger_id})
    if side.rescues is not None:
        scan = side.rescues.told(scan)
    answered = answer_demand(payload, scan, suspect=suspect, by_operator=True)
    refusals = tuple(map(refusal_told, scan.refusals))
    harmless = isinstance(answered, DemandAnswered) and answered.answer is not DeletionAnswer.ALREADY_GONE
    if refusals and not harmless:
        return _said(session, payload, DENIED, _REFUSED, refusals=refusals)
    if isinstance(answered, DemandAnswered):
        return _said(session, payload, str(answered.answer), answered.why)
    if isinstance(answered, DemandDenied):
        return _said(session, payload, DENIED, answered.why + (_MORE if answered.suspect else ""))
    return _mark(session, payload, side, scan, suspect=suspect, yes=yes)


def _mark(
    session: CommandSession,
    payload: DeleteLedgerPayload,
    side: BookKeeperSide,
    scan: LedgerScan,
    *,
    suspect: bool,
    yes: bool,
) -> int:
    quarantine = _quarantine(session, side, yes=yes)
    found = quarantine.mark(scan, {payload.ledger_id}, suspect=suspect)
    if found.refusals:
        return _said(session, payload, DENIED, _REFUSED, refusals=found.refusals)
    (mark,) = found.marks
    stored = quarantine.queue.read(ledger_record_name(payload.ledger_id))
    why = "; ".join(filter(None, (mark.why, _NOT_YET if mark.outcome is MarkOutcome.WOULD_BE_MARKED else "")))
    answer = str(mark.outcome) if mark.outcome.is_pending else DENIED
    return _said(session, payload, answer, why, record=stored.record if stored else None)


def _quarantine(session: CommandSession, side: BookKeeperSide, *, yes: bool) -> Quarantine:
    queue, bounds = queue_of_cluster(session, create=yes), bounds_of(session.config.lifecycle)
    return Quarantine(queue, side, bounds, session.dependencies.clock_ms, "command", dry=not yes)


def _said(
    session: CommandSession,
    payload: DeleteLedgerPayload,
    answer: str,
    why: str,
    *,
    record: PendingDeleteLedgerInfo | None = None,
    refusals: tuple[str, ...] = (),
) -> int:
    fields = None if record is None or record.has_ended else shown(record, timing(session))
    goes = f", goes at {fields['goesAt']} at the earliest" if fields and fields["goesAt"] else ""
    session.output.message(
        f"ledger {payload.ledger_id}: {answer}{goes}" + (f": {why}" if why else ""),
        list(refusals),
        answer=answer,
        why=why,
        deletion=fields,
        refusals=list(refusals),
    )
    return FINDINGS if answer == DENIED else OK


@dataclass(frozen=True, slots=True)
class CopyAnswer:
    """What is said of the request. `refusals`: what stands against any deletion there. `record`: what is pending."""

    answer: str
    why: str
    refusals: tuple[str, ...] = ()
    record: PendingDeleteLedgerInfo | None = None


def ask_for_copy(session: CommandSession, payload: DeleteLedgerPayload, stock: str | None, *, yes: bool) -> CopyAnswer:
    """Look at the copy, and mark its objects where nothing names it. Raises FatalError where nobody says which bucket
    it is in."""
    url = stock or session.config.lifecycle.stock_bucket
    if not url:
        raise FatalError("say in which bucket the copy is: --stock URL, or lifecycle.stockBucket")
    with stock_scanner(session, url, lists_of(session), session.admin.cluster()) as scanner:
        found = demand_copy(payload, scanner, bucket_name(url) or url)
    if isinstance(found, ObjectScan):
        return _marked(session, found, url, yes=yes)
    return CopyAnswer(str(found.answer) if isinstance(found, DemandAnswered) else DENIED, found.why)


def _marked(session: CommandSession, scan: ObjectScan, url: str, *, yes: bool) -> CopyAnswer:
    queue, bounds = queue_of_cluster(session, create=yes), bounds_of(session.config.lifecycle)
    clock = marking_clock(session, yes=yes)
    phase = ObjectQuarantine(queue, bounds, clock, "command", not yes, holds(session.config.policies))
    found = phase.mark(scan, {one.id for one in scan.orphans})
    if found.refusals:
        return CopyAnswer(DENIED, "something stands against any deletion in that bucket", found.refusals)
    worst = next((one for one in found.marks if not one.outcome.is_pending), None)
    if worst is not None:
        return CopyAnswer(DENIED, str(worst))
    new = next((one for one in found.marks if one.outcome is not MarkOutcome.PENDING), found.marks[0])
    stored = queue.read(scan.orphans[0].record("command").name)
    goes = f"its objects go with `offloader orphans purge --stock {url} --yes`"
    return CopyAnswer(
        str(new.outcome), goes if yes else "nothing is marked without --yes", record=stored.record if stored else None
    )
