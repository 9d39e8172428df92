"""What may happen in the model, and what it looks like at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NEVER, THERE, GONE, OURS = range(4)  # a ledger: not yet, there, deleted by a broker, deleted by us
ABSENT = -1  # in the place of a list


@dataclass(frozen=True)
class World:
    """One topic. `targets`: the ledgers that the services deal with. `on_demand`: also those that are only suspect.

    `restarts`: a topic that is created again has the versions of the former one, as in ZooKeeper; else a write that was
    meant for a former topic is one for no version. From `looks_again` on: how well the services do what they should.
    `ids_first`: before references. `waits`: no look while a request of an earlier try may be on its way, or while
    another service, whose session would have ended by then, may send one. `compares`: records are written by
    compare-and-set.

    `one_scan`: references are read once for all targets, which follow one after the other, however old that is by then.
    (The product reads a ledger's referees anew for each round. Here only its own node is: the guard alone must do.)"""

    ledgers: int = 3
    owners: int = 2
    services: int = 1
    targets: tuple[int, ...] = (0,)
    on_demand: bool = False
    restarts: bool = False
    tries: int = 2
    looks_again: bool = True
    guarded: bool = True
    ids_first: bool = True
    waits: bool = True
    compares: bool = True
    one_scan: bool = False


class Step:
    """Where an owner or a service is. (Plain numbers: there are millions.)"""

    OUT, READ, TOOK, MADE, OWNS, DROPS = range(6)
    IDLE, SCANS, LOOKS, TRIES, TRIED, GOES_ON = range(10, 16)


class Node(NamedTuple):
    """The topic's node: its version, and the ledgers listed, a bit each."""

    version: int
    listed: int


class Owner(NamedTuple):
    """A broker that has the topic, or had it and does not know better. `version`: of the node as it knows it. `new`:
    the ledger that it is about to list. `loaded`: its first list is written. `dying`: those that it is about to delete,
    a bit each."""

    step: int = Step.OUT
    version: int = 0
    new: int = 0
    loaded: bool = False
    dying: int = 0


class Scan(NamedTuple):
    """What one scan has read: which ledgers were listed, a bit each."""

    listed: int
    version: int


class Service(NamedTuple):
    """A process of ours. `seen`: a list that it has read, or whether the ledger was there. `record`: as it read or
    wrote it; `overtaken`: somebody has written another one since. `outcome`: of its try. `scan`: of all."""

    step: int = Step.IDLE
    ledger: int = 0
    seen: int = 0
    version: int = 0
    record: int = -1
    outcome: int = 0
    overtaken: bool = False
    scan: Scan | None = None


class Late(NamedTuple):
    """A transaction that nobody waits for any more."""

    ledger: int
    record: int
    version: int


class Restored(NamedTuple):
    """Of a world with restores; ledgers are a bit each. `backup`: what the list was when it was saved, ABSENT before.
    `older`: those that were there before the node was made. `held`: those that were listed once, and got entries.
    `released`: those that a broker trimmed, or whose topic was deleted. `kept`: those of which a record remembers that
    they hold data."""

    backup: int = ABSENT
    done: bool = False
    older: int = 0
    held: int = 0
    released: int = 0
    kept: int = 0


class State(NamedTuple):
    """`records`: their numbers, -1 for none. `certain`: ledgers that were called so, a bit each; `undone`: those of
    which somebody was told that they stay."""

    node: Node | None
    ledgers: tuple[int, ...]
    next_id: int
    owners: tuple[Owner, ...]
    services: tuple[Service, ...]
    records: tuple[int, ...]
    certain: int
    undone: int
    late: Late | None
    restored: Restored | None = None
