"""`offloader orphans explain`: the chain of evidence for one ledger or object."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import click

from offloader.cli.command import OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.bucket_phases import explain_object, parse_orphan
from offloader.cli.orphans.deletion_parts import ledger_scanner, rescues_of_cluster, with_rescues
from offloader.cli.output import say
from offloader.cli.parsing import parsed
from offloader.errors import FatalError, LedgerNotFoundError, OffloadError
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.leftovers import is_pending_acks
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import leftover_told, missing_told, refusal_told, remedies_told, told
from offloader.metadata.rescue_log import read_rescue


@orphans.command()
@click.argument("thing", metavar="ID", callback=parsed(parse_orphan))
@command()
def explain(session: CommandSession, thing: int | str) -> int:
    """Tell what a ledger or an object of the bucket is, who refers to it, what follows, and what would turn suspect
    into certain. ID: a ledger's number, or an object's key, an upload or a left-over managed ledger's name as
    `orphans scan` shows it.

    \b
    JSON: {side, id, kind, verdict, bytes, evidence, remedies, kept, refusals}; verdict is referenced, certain, suspect,
    foreign, missing where something refers to a ledger that is not there, or gone where only the archive has what was
    rescued of it. An object has no remedies.
    """
    if isinstance(thing, int):
        return _explain_ledger(session, thing)
    return _explain_leftover(session, thing) if is_pending_acks(thing) else explain_object(session, thing)


def _explain_ledger(session: CommandSession, ledger: int) -> int:
    with ledger_scanner(session) as scanner:
        scan = with_rescues(session, scanner.scan({ledger}))
    verdict = next(iter(scan.verdicts), None)
    copied = [] if verdict is not None and verdict.kept else _rescued(session, ledger, verdict)
    lines, fields = _absent(scan, ledger, copied) if verdict is None else _present(scan, verdict, copied)
    refusals = [refusal_told(one) for one in scan.refusals]
    if verdict is not None and verdict.orphan and refusals:
        lines = [*lines, "Nothing would be deleted now:", *(f"  {one}" for one in refusals)]
    elif not refusals:
        lines = [*lines, *_next_steps(scan, verdict)]
    session.output.lines(lines, {"side": "bookkeeper", "id": ledger, **fields, "refusals": refusals})
    return OK


def _explain_leftover(session: CommandSession, name: str) -> int:
    """Raises FatalError where no managed ledger of that name is left over."""
    with ledger_scanner(session) as scanner:
        scan = scanner.scan(frozenset())
    found = next((one for one in scan.leftovers if one.name == name), None)
    if found is None:
        raise FatalError(f"no managed ledger {name} is left over: it is in use, or there is none")
    evidence, refusals = list(leftover_told(found)), [refusal_told(one) for one in scan.refusals]
    certain = found.standing is Standing.CERTAIN
    mark = f"To mark it: `offloader orphans quarantine --managed-ledger {quote(name)} --yes`."
    against = ["Nothing would be deleted now:", *(f"  {one}" for one in refusals)] if refusals else []
    fields = {
        "side": "bookkeeper", "id": name, "kind": "managed ledger of pending acks", "verdict": str(found.standing),
        "bytes": found.size, "evidence": evidence, "remedies": [] if certain else list(remedies_told(found.remedies)),
        "kept": False, "refusals": refusals,
    }  # fmt: skip
    session.output.lines([*evidence, *(against or ([mark] if certain else []))], fields)
    return OK


def _next_steps(scan: LedgerScan, verdict: LedgerVerdict | None) -> Iterator[str]:
    """How it is marked. A ledger of a left-over managed ledger is in use, and goes after that."""
    if verdict is not None and verdict.deletable:
        yield f"To mark it: `offloader orphans quarantine {verdict.ledger.ledger} --yes`."
    for one in scan.leftovers:
        if verdict is not None and verdict.ledger.ledger in one.ledgers and one.standing is Standing.CERTAIN:
            yield f"To mark all of it: `offloader orphans quarantine --managed-ledger {quote(one.name)} --yes`."


def _rescued(session: CommandSession, ledger: int, verdict: LedgerVerdict | None) -> list[str]:
    """What the archive has of a ledger: a verdict says so only of what is kept."""
    try:
        found = read_rescue(rescues_of_cluster(session), ledger)
    except OffloadError as error:
        say(f"whether anything was rescued of it is not known: {error}", err=True)
        return []
    if isinstance(found, str):
        return [f"What was rescued of it cannot be read: {found}."]
    record = found.rescued
    if record is None:
        return []
    seen = None if verdict is None else verdict.ledger
    whose = "it" if seen is None or record.may_be_of(seen.last_entry, seen.length) else "another ledger of this id"
    number = f"{record.entries} of {record.last_entry + 1} entries"
    at = moment_text(record.at)
    return [f"The archive has {number} of {whose}, rescued on {at}: `offloader orphans read {ledger}`."]


def _present(scan: LedgerScan, verdict: LedgerVerdict, copied: list[str]) -> tuple[list[str], dict[str, object]]:
    ledger = verdict.ledger
    lines = [*told(verdict), *copied]
    for leftover in scan.leftovers:
        if ledger.ledger in leftover.ledgers:
            lines += leftover_told(leftover)
    return lines, {
        "kind": str(verdict.kind),
        "verdict": str(verdict.standing),
        "bytes": ledger.length if ledger.last_entry is not None else None,
        "evidence": lines,
        "remedies": list(remedies_told(verdict.remedies)) if verdict.remedies else [],
        "kept": verdict.kept,
    }


def _absent(scan: LedgerScan, ledger: int, copied: list[str]) -> tuple[list[str], dict[str, object]]:
    """Raises LedgerNotFoundError where nobody refers to it, and nothing was rescued of it."""
    missing = [line for one in scan.missing if one.ledger == ledger for line in missing_told(one)]
    if not missing and not copied:
        raise LedgerNotFoundError(f"there is no ledger {ledger}, and nothing refers to one")
    lines = [*(missing or [f"BookKeeper has no ledger {ledger}, and nothing refers to one."]), *copied]
    says = "missing" if missing else "gone"
    return lines, {
        "kind": None, "verdict": says, "bytes": None, "evidence": lines, "remedies": [], "kept": False,
    }  # fmt: skip
