"""Facts that tell of a bookie or of ZooKeeper in trouble: then nothing is deleted, as more than we see may be wrong."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from offloader.lifecycle.explaining.words import counted
from offloader.lifecycle.ledgers.kinds import ledger_of
from offloader.lifecycle.ledgers.patient import PatientNodes

_READ_ONLY = "readonly"
_UNDER = "/underreplication"
_DEEPEST = 4  # folders of four hexadecimal digits
_ENOUGH = 1_000  # ledgers that lack copies, to say so


def troubles(ledgers: PatientNodes, root: str, orphans: Container[int] | None) -> Iterator[str]:
    """`orphans`: those may lack copies for ever, as nobody can make them anew once their bookies are gone. None: nobody
    knows which are, so that ledgers lack copies says nothing."""
    cookies = set(ledgers.children(f"{root}/cookies") or ())
    writable = set(ledgers.children(f"{root}/available") or ())
    read_only = set(ledgers.children(f"{root}/available/{_READ_ONLY}") or ())
    away = sorted(cookies - writable - read_only)
    if away:
        yield f"{_first(away)} not registered, of {len(cookies)} bookies that have a cookie"
    if ledgers.get(f"{root}{_UNDER}/disable") is not None:
        yield "auto-recovery is switched off"
    if orphans is None:
        return
    lacking = list(islice((one for one in _under_replicated(ledgers, root) if one not in orphans), _ENOUGH))
    if lacking:
        yield f"{counted(len(lacking), 'ledger')} without all copies: ledger {lacking[0]} is one"


def interruptions(count: int) -> Iterator[str]:
    """ZooKeeper was away while the scan ran."""
    if count:
        yield f"ZooKeeper did not answer {count} times while this was read"


def _first(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"


def _under_replicated(ledgers: PatientNodes, root: str) -> Iterator[int]:
    """Ledgers that the auditor found to lack copies. Empty folders stay behind."""
    folders = [f"{root}{_UNDER}/ledgers"]
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for path, names in ledgers.children_of_each(folders):
            for name in sorted(names or ()):
                ledger = ledger_of(name.removeprefix("urL")) if name.startswith("urL") else None
                if ledger is not None:
                    yield ledger
                else:
                    below.append(f"{path}/{name}")
        folders = below
