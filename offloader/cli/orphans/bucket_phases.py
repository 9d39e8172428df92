"""The bucket's part of `orphans explain` and `orphans quarantine`, and the side that deletes there."""

from __future__ import annotations

from collections.abc import Collection

from offloader.cli.command import FINDINGS, OK, CommandSession
from offloader.errors import ObjectNotFoundError
from offloader.lifecycle.bucket.names import KeyStanding
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.quarantine import ObjectMark, ObjectMarkOutcome, ObjectMarks, ObjectQuarantine
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.metadata.root import read_root

_FINE = (
    ObjectMarkOutcome.MARKED,
    ObjectMarkOutcome.WOULD_BE_MARKED,
    ObjectMarkOutcome.PENDING,
    ObjectMarkOutcome.SPARED,
)


def parse_orphan(text: str) -> int | str:
    """What an ID names: a ledger's number, or an object's key or an upload's handle."""
    return int(text) if text.isascii() and text.isdigit() else text


def bucket_scanner(session: CommandSession) -> BucketScanner:
    """Of the archive, as it is configured."""
    of = session.dependencies
    grace = session.config.lifecycle.quarantine_floor_ms
    return BucketScanner(session.store, of.clock_ms, of.new_token, grace)


def bucket_side(session: CommandSession, stock: StockScanner | None = None) -> BucketSide:
    """The archive as a side of deletion. `stock`: the bucket of Pulsar's own offloader, where records name it."""
    return BucketSide(session.store, bucket_scanner(session), stock)


def explain_object(session: CommandSession, thing: str) -> int:
    """Print what is known of one object or upload. Raises ObjectNotFoundError."""
    key = thing if session.store.stat(thing) is not None else thing.partition(":")[2]
    uploads = [each for each in session.store.list_uploads(key) if each.upload == thing] if key != thing else []
    grace = session.config.lifecycle.quarantine_floor_ms
    told, scan = bucket_scanner(session).look([] if uploads else [thing], uploads, grace)
    if thing not in told:
        raise ObjectNotFoundError(f"there is no object or upload {thing} below the root")
    found = told[thing]
    foreign = scan.counts.get(KeyStanding.FOREIGN, 0) > 0
    used = f"It is foreign: {found}." if foreign else f"It is in use: {found}."
    lines = [used] if isinstance(found, str) else list(found.ruling.evidence)
    if scan.refusals and not isinstance(found, str):
        lines += ["Nothing would be deleted now:", *(f"  {one}" for one in scan.refusals)]
    session.output.lines(
        [thing, *lines], _explained(thing, found, lines, foreign=foreign) | {"refusals": list(scan.refusals)}
    )
    return OK


def quarantine_objects(session: CommandSession, ids: Collection[str] | None, *, yes: bool) -> int:
    """Mark objects and uploads, by default all that are certain. Prints what came of it; the exit code."""
    limits = session.config.lifecycle.limits
    queue = DeletionQueue(session.store, read_root(session.store).cluster, session.dependencies.new_token)
    bounds = DeletionBounds(limits.number, limits.percent, limits.a_round)
    phase = ObjectQuarantine(queue, bounds, session.dependencies.clock_ms, "command", dry=not yes)
    found = phase.mark(bucket_scanner(session).scan(), ids)
    session.output.message(
        _summary(found, yes=yes),
        [*found.refusals, *map(_line, found.marks)],
        marks=[{"id": one.id, "outcome": str(one.outcome), "why": one.why, "bytes": one.size} for one in found.marks],
        refusals=list(found.refusals),
    )
    return FINDINGS if found.refusals or any(one.outcome not in _FINE for one in found.marks) else OK


def _explained(thing: str, found: BucketOrphan | str, lines: list[str], *, foreign: bool) -> dict[str, object]:
    if isinstance(found, str):
        verdict = "foreign" if foreign else "referenced"
        return {"side": "bucket", "id": thing, "kind": None, "verdict": verdict, "bytes": None, "evidence": lines}
    return {
        "side": "bucket",
        "id": thing,
        "kind": str(found.kind),
        "verdict": str(found.ruling.verdict),
        "bytes": found.size,
        "evidence": list(found.ruling.evidence),
        "kept": found.ruling.kept,
    }


def _line(mark: ObjectMark) -> str:
    return f"{mark.id}: {mark.outcome}" + (f": {mark.why}" if mark.why else "")


def _summary(found: ObjectMarks, *, yes: bool) -> str:
    if found.refusals:
        return "nothing is marked in the bucket"
    outcome = ObjectMarkOutcome.MARKED if yes else ObjectMarkOutcome.WOULD_BE_MARKED
    number = sum(one.outcome is outcome for one in found.marks)
    return f"{number} objects are marked" if yes else f"{number} objects would be marked; nothing is without --yes"
