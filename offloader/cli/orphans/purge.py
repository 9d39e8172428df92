"""`offloader orphans purge`: the second phase, in this process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import click

from offloader.cli.command import FINDINGS, OK, CommandSession, command
from offloader.cli.orphans import orphans
from offloader.cli.orphans.deletion_parts import queue_of_root, shown, sides_of, timing
from offloader.cli.orphans.quarantine import YES
from offloader.cli.orphans.scanning import has_ledgers
from offloader.cli.output import say
from offloader.lifecycle.deletion.configured import bounds_of
from offloader.lifecycle.deletion.machine import DeletionTurn, turn
from offloader.lifecycle.deletion.queue import DamagedDeletion, DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionSwitch,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.deletion.watcher import PendingDeletions

SHOWN = 20


class _Heard:
    """What a purge tells in the end."""

    def __init__(self) -> None:
        self.damages: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.ends: list[PendingDeleteLedgerInfo] = []
        self.given_up: list[PendingDeleteLedgerInfo] = []
        self.refusals: tuple[str, ...] = ()

    def pending(self, pending: PendingDeletions, *, on: bool) -> None:
        """Counted elsewhere."""

    def refused(self, refusals: tuple[str, ...]) -> None:
        self.refusals = refusals

    def damaged(self, name: str, why: str) -> None:
        self.damages[name] = why

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        self.failures[record.name] = why

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        self.failures.pop(record.name, None)
        self.ends.append(record)

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        self.given_up.append(record)


@orphans.command()
@YES
@click.option("--stock", metavar="URL", help="The bucket of Pulsar's own offloader: what is marked there waits for it.")
@command()
def purge(session: CommandSession, *, yes: bool, stock: str | None) -> int:
    """Run the second phase now, for what is due: look again, close what is open, delete under guard. Never before the
    quarantine is over. Ledgers need pulsar.metadataServiceUri; without it they wait, and objects go.

    Safe beside the running application: of two who change a record one does, and of two who look, the later one alone
    deletes. Where deletion was switched off, what was marked before begins anew. Exit code 2 where something stands
    against deletion, or a deletion failed or was given up.

    \b
    JSON: {message, due, waiting, ended, failed, gaveUp, damaged, refusals}; waiting are [{type, due, why}], of what
    cannot be reached as it is called; ended and gaveUp as of `orphans list`, failed and
    damaged are [{record, why}].
    """
    queue, by_config, now_ms = queue_of_root(session), timing(session), session.dependencies.clock_ms
    stored = queue.switch()
    switch = DeletionSwitch(on=True, at=0) if stored is None else replace(stored, on=True)
    every = _due(queue, now_ms(), by_config, switch)
    why = {kind: text for kind, text in _unreachable(session, stock).items() if every[kind]}
    due = every.total() - sum(every[kind] for kind in why)
    heard = _Heard()
    if yes and due:
        section = session.config.lifecycle
        parallelism = section.two_phase_deletion_ledger_deletion_parallelism
        rules = DeletionRules(by_config, bounds_of(section), parallelism)
        with sides_of(session, stock) as sides:
            _rounds(LedgerDeletionService(queue, sides, rules, heard, now_ms), switch, due)
    session.output.message(
        _summary(due, heard, yes=yes),
        [*(f"{every[kind]} that are due wait: {text}" for kind, text in why.items()), *heard.refusals, *_lines(heard)],
        due=due,
        waiting=[{"type": str(kind), "due": every[kind], "why": text} for kind, text in why.items()],
        ended=[shown(one, by_config) for one in heard.ends],
        failed=[{"record": name, "why": why} for name, why in heard.failures.items()],
        gaveUp=[shown(one, by_config) for one in heard.given_up],
        damaged=[{"record": name, "why": why} for name, why in heard.damages.items()],
        refusals=list(heard.refusals),
    )
    return FINDINGS if heard.refusals or heard.failures or heard.given_up or heard.damages else OK


def _due(queue: DeletionQueue, now: int, timing: DeletionTiming, switch: DeletionSwitch) -> Counter[LedgerType]:
    records = (one.record for one in queue.records() if not isinstance(one, DamagedDeletion))
    return Counter(one.ledger_type for one in records if turn(one, now, timing, switch) is DeletionTurn.LOOK)


def _unreachable(session: CommandSession, stock: str | None) -> dict[LedgerType, str]:
    found = {}
    if not has_ledgers(session):
        for kind in (LedgerType.LEDGER, LedgerType.MANAGED_LEDGER):
            found[kind] = "ledgers are looked at in ZooKeeper: set pulsar.metadataServiceUri"
    if stock is None:
        found[LedgerType.OFFLOAD_LEDGER] = "they are in the bucket of Pulsar's own offloader: name it with --stock"
    return found


def _rounds(service: LedgerDeletionService, switch: DeletionSwitch, due: int) -> None:
    """Until all that was due was looked at; a side that refuses keeps no other from going on."""
    done = 0
    while done < due:
        this = service.round(switch, goes_on=done > 0)
        done += this.looked_at
        if not this.looked_at or not this.left:
            return
        say(f"purge: {done} of {due}", err=True)


def _lines(heard: _Heard) -> list[str]:
    """What was not simply deleted, one by one, up to a number."""
    kept = [one for one in heard.ends if one.answer is not DeletionAnswer.DELETED]
    lines = [
        *(f"{one.thing}: {one.answer}" + (f": {one.reason}" if one.reason else "") for one in kept),
        *(f"{one.thing}: given up: {one.reason}" for one in heard.given_up),
        *(f"{name}: failed, tried again later: {why}" for name, why in heard.failures.items()),
        *(f"{name}: cannot be read: {why}" for name, why in heard.damages.items()),
    ]
    more = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _summary(due: int, heard: _Heard, *, yes: bool) -> str:
    if not yes:
        return f"{due} are due; nothing is deleted without --yes"
    deleted = sum(one.answer is DeletionAnswer.DELETED for one in heard.ends)
    said = f"{deleted} of {due} that were due are deleted"
    return f"{said}; something stands against the others: see above" if heard.refusals else said
