"""`offloader ledgers delete --type OFFLOAD_LEDGER`: a copy in the bucket of Pulsar's own offloader."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.cli.command import CommandSession
from offloader.cli.orphans.bucket import stock_scanner
from offloader.cli.orphans.bucket_phases import marking_clock
from offloader.cli.orphans.deletion_parts import queue_of_cluster
from offloader.cli.orphans.scanning import lists_of
from offloader.errors import FatalError
from offloader.lifecycle.bucket.copy_demand import demand_copy
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.deletion.configured import bounds_of
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandAnswered
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.lifecycle.ledgers.stock_copies import bucket_name

DENIED = "denied"


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
