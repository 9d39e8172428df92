"""What may happen around a swap in the model, and what it looks like at one moment.

One topic with one closed ledger that is bridged, and the newest one of its list; maybe another one before it, which is
bridged already, whatever happens. Versions are not counted: whoever has
read the record knows whether it is still that one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class World:
    """`tries`: how often a process begins anew before it gives up for now. `trims`, `stock`, `lag`: brokers trim the
    ledger, offload it by themselves, delete BookKeeper's copy. `terminated`: the topic is, so a load writes nothing.
    `honest`: an unload that is said to be done was done, and by the owner. `former`: a former owner goes on answering.
    `late`: a change of the record may arrive after its answer was given up. `readable`: brokers can read the object.
    `tiered_first`: they would do so. `given_up`: somebody decides at any time that the round is to be withdrawn.
    `mixed`: the round has another ledger, too. `repairs`: the ledger was proven before.

    The rest is how well we do what we should: `unloads` before a change; `doubts`: a doubt is one; `checks` what the
    broker knows; `reads_first`: the version is from before the unload; `keeps_bookkeeper`; `asks`, `fences`: of a
    withdrawal; `contexts_first`: they go before the objects; `wakes` the topic before; `records_first`: no object goes
    before it is recorded that nobody needs it; `fences_rest`: what comes later is withdrawn; `withdraws` what is not
    proven."""

    processes: int = 1
    tries: int = 2
    trims: bool = False
    stock: bool = False
    lag: bool = False
    terminated: bool = False
    honest: bool = True
    former: bool = False
    late: bool = False
    readable: bool = True
    tiered_first: bool = True
    given_up: bool = False
    mixed: bool = False
    repairs: bool = False
    unloads: bool = True
    doubts: bool = True
    checks: bool = True
    reads_first: bool = True
    keeps_bookkeeper: bool = True
    asks: bool = True
    fences: bool = True
    contexts_first: bool = True
    wakes: bool = True
    records_first: bool = True
    fences_rest: bool = True
    withdraws: bool = True


NONE, OURS, UNDER_WAY, STOCK = range(4)  # the ledger's context
OUT, READ, LOADED = range(3)  # where a broker is
SWAPPING, WITHDRAWING, FINISHED, WITHDRAWN = range(4)  # what the bridge log says
LEDGER, OTHER = 1, 0
FIRST_NEWEST = 10


class Record(NamedTuple):
    """The list. `listed`: the ledger is in it. `gone`: brokers have noted that BookKeeper's copy is deleted."""

    listed: bool = True
    context: int = NONE
    gone: bool = False
    newest: int = FIRST_NEWEST


class Broker(NamedTuple):
    """`knows`: the list as it has it. `current`: nobody has changed the record since. `deletes`: what it wrote last
    lets it delete BookKeeper's copy now."""

    step: int = OUT
    knows: Record | None = None
    current: bool = False
    fenced: bool = False
    deletes: bool = False


class Process(NamedTuple):
    """One of ours. `swap`: the number of its machine's state; -1: it is to look at the log. `phase`: as it read it
    there. `current`: the record is still the one that it read. `cleans`: it deletes objects before it records this."""

    swap: int = -1
    phase: int = SWAPPING
    current: bool = False
    cleans: int = -1


class Late(NamedTuple):
    """A change of the record that nobody waits for any more."""

    record: Record
    current: bool


class State(NamedTuple):
    record: Record
    owner: Broker
    former: Broker
    processes: tuple[Process, ...]
    phase: int = SWAPPING
    bookkeeper: bool = True
    objects: bool = True
    leaving: bool = False  # it is recorded that they are to go
    late: Late | None = None
    broken: str = ""  # what must not have happened, and did
