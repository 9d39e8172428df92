"""The bucket's part of `orphans explain` and `orphans quarantine`, and the side that deletes there; and what
the commands of the first phase say in the end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offloader.cli.command import OK, CommandSession
from offloader.cli.orphans.deletion_parts import queue_of_root
from offloader.errors import ObjectNotFoundError
from offloader.lifecycle.bucket.holds import holds, why_orphan_held
from offloader.lifecycle.bucket.names import KeyStanding
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.lifecycle.bucket.quarantine import ObjectMark, ObjectQuarantine
from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.deletion.marking import moved_clock
from offloader.lifecycle.explaining.words import counted, moment_text
from offloader.runtime.deletion import bounds_of, bucket_scanner, timing_of


@dataclass(frozen=True, slots=True)
class MarkedPart:
    """What came of the first phase on one side. `fine`: whatever was named is marked, or need not be."""

    message: str
    lines: tuple[str, ...]
    marks: tuple[dict[str, object], ...]
    refusals: tuple[str, ...]
    fine: bool


def parse_orphan(text: str) -> int | str:
    """What an ID names: a ledger's number, or an object's key or an upload's handle."""
    return int(text) if text.isascii() and text.isdigit() else text


def explain_object(session: CommandSession, thing: str) -> int:
    """Print what is known of one object or upload. Raises ObjectNotFoundError."""
    key = thing if session.store.stat(thing) is not None else thing.partition(":")[2]
    uploads = [each for each in session.store.list_uploads(key) if each.upload == thing] if key != thing else []
    grace = session.config.lifecycle.quarantine_floor_ms
    told, scan = bucket_scanner(session, session.dependencies.clock_ms).look([] if uploads else [thing], uploads, grace)
    if thing not in told:
        raise ObjectNotFoundError(f"there is no object or upload {thing} below the root")
    found = told[thing]
    foreign = scan.counts.get(KeyStanding.FOREIGN, 0) > 0
    used = f"It is foreign: {found}." if foreign else f"It is in use: {found}."
    lines = [used] if isinstance(found, str) else list(found.ruling.evidence)
    held = "" if isinstance(found, str) else why_orphan_held(holds(session.config.policies), found)
    lines += [f"It stays as long as it is {held}."] if held else []
    evidence = list(lines)
    if scan.refusals and not isinstance(found, str):
        lines += ["Nothing would be deleted now:", *(f"  {one}" for one in scan.refusals)]
    session.output.lines(
        [thing, *lines], _explained(thing, found, evidence, foreign=foreign) | {"refusals": list(scan.refusals)}
    )
    return OK


def marking_clock(session: CommandSession, *, yes: bool) -> Callable[[], int]:
    """The archive's store's, which the second phase goes by; ours where nothing is written."""
    ours = session.dependencies.clock_ms
    return moved_clock(ours, bucket_scanner(session, ours).now()) if yes else ours


def mark_objects(session: CommandSession, scan: ObjectScan, ids: Collection[str] | None, *, yes: bool) -> MarkedPart:
    """Mark objects and uploads of a scan, by default all that are certain."""
    queue = queue_of_root(session)
    bounds = bounds_of(session.config.lifecycle)
    clock = marking_clock(session, yes=yes)
    held = holds(session.config.policies)
    phase = ObjectQuarantine(queue, bounds, clock, "command", dry=not yes, held=held)
    found = phase.mark(scan, ids)
    return MarkedPart(
        "nothing is marked in the bucket" if found.refusals else marked_told(session, found.number, "object", yes=yes),
        tuple(map(str, found.marks)),
        tuple(map(_fields, found.marks)),
        found.refusals,
        fine=all(one.outcome.is_fine for one in found.marks),
    )


def _fields(one: ObjectMark) -> dict[str, object]:
    orphan = one.found
    return {
        "side": str(OrphanSide.BUCKET),
        "id": one.id,
        "outcome": str(one.outcome),
        "why": one.why,
        "kind": None if orphan is None else str(orphan.kind),
        "bytes": None if orphan is None else orphan.size,
        "evidence": [] if orphan is None else list(orphan.ruling.evidence),
    }


def _explained(thing: str, found: BucketOrphan | str, evidence: list[str], *, foreign: bool) -> dict[str, object]:
    if isinstance(found, str):
        verdict = "foreign" if foreign else "referenced"
        return {"side": "bucket", "id": thing, "kind": None, "verdict": verdict, "bytes": None, "evidence": evidence}
    return {
        "side": "bucket",
        "id": thing,
        "kind": str(found.kind),
        "verdict": str(found.ruling.verdict),
        "bytes": found.size,
        "evidence": evidence,
        "kept": found.ruling.kept or len(evidence) > len(found.ruling.evidence),
    }


def marked_told(session: CommandSession, number: int, what: str, *, yes: bool) -> str:
    """What the first phase comes to: how many, who deletes them, and not before when. `what`: one of them."""
    many = counted(number, what)
    if not yes:
        return f"{many} would be marked; nothing is without --yes"
    said = f"{many} {'is' if number == 1 else 'are'} marked"
    if not number:
        return said
    on = session.config.lifecycle.topic_two_phase_deletion_enabled
    off = "the application deletes nothing (lifecycle.topicTwoPhaseDeletionEnabled), `orphans purge --yes` does"
    goes = moment_text(session.dependencies.clock_ms() + timing_of(session.config.lifecycle).effective_delay)
    return f"{said}; {'the application deletes what is marked now' if on else off}, not before {goes}"
