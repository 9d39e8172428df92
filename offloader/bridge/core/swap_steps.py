"""What is seen and done while a managed ledger's record is changed around one unload. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from offloader.bridge.core.rounds import BridgedLedger


class SwapGoal(StrEnum):
    """What the record shall have in the end."""

    IN = "contexts in the record"
    OUT = "contexts out of the record"


class SwapEnd(StrEnum):
    """What came of it."""

    PROVEN = "proven"  # every ledger that was not left out arrives through the broker
    WITHDRAWN = "withdrawn"  # the contexts are out, and brokers know it
    WITHDRAW = "withdraw"  # the round cannot be finished: record that, then withdraw it
    BUILD = "build"  # objects of the round are not there any more: build them again, under their names
    LATER = "later"  # nothing is decided; the same again, later
    REFUSED = "refused"  # an operator must change something first; brokers know the record as it is
    OVERTAKEN = "overtaken"  # another process has gone on with the round


class LeftOut(StrEnum):
    """Why a ledger of the round got no context, and never will."""

    OFF_THE_LIST = "off the list"  # trimmed, or the topic was made anew
    STOCK = "stock"  # brokers offloaded it by themselves


@dataclass(frozen=True, slots=True)
class SwapLimits:
    """How often each may happen in one go, before it is tried again later."""

    unloads: int = 8
    tries: int = 20
    proofs: int = 3


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """What is to be done. `driver`, `properties`: of the contexts. `unsound`: what is wrong with the objects, by
    ledger. `why_not`: why nothing new may be begun, for the operator. What is begun already is repaired in spite of
    both. `repairs`: these were proven before; what cannot be proven now is taken back as far as BookKeeper has it.
    `lost`: ledgers that BookKeeper does not have, whatever the record says of them."""

    goal: SwapGoal
    ledgers: tuple[BridgedLedger, ...]
    driver: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    unsound: Mapping[int, str] = field(default_factory=dict)
    why_not: str = ""
    repairs: bool = False
    lost: frozenset[int] = frozenset()
    limits: SwapLimits = field(default_factory=SwapLimits)


# Actions


@dataclass(frozen=True, slots=True)
class WakeTopic:
    """Have the topic loaded, or try to."""


@dataclass(frozen=True, slots=True)
class FetchRecord:
    """Read the record, as new as the call; then ask whether the round is still ours."""


@dataclass(frozen=True, slots=True)
class UnloadTopic:
    """Have the topic unloaded."""


@dataclass(frozen=True, slots=True)
class SetRecord:
    """Set the record with this version, without any delay. `born`: of the node that was read; one that was made anew
    has its versions from 0 on, and is another topic's."""

    value: bytes
    version: int
    born: int = 0


@dataclass(frozen=True, slots=True)
class LoadTopic:
    """Have the topic loaded, and ask what its broker knows."""


@dataclass(frozen=True, slots=True)
class ProveLedgers:
    """Read entries of these through the broker."""

    ledgers: tuple[BridgedLedger, ...]


@dataclass(frozen=True, slots=True)
class SwapOutcome:
    """The end. `ledgers`: those that brokers read from their objects. `left_out`: those of the round that never will
    be. `to_come`: those that are not yet, and for which nothing was done; `why`. `broken`: those whose objects are to
    be built again. `deleted`: BookKeeper's copy of one of the ledgers is gone. `kept`: those of a withdrawn round whose
    contexts and objects stay in place, because BookKeeper's copy is gone. They are the brokers' from now on. `closed`:
    the newest ledger of the list as it was read last: the unload has closed it; -1: none."""

    end: SwapEnd
    why: str = ""
    ledgers: tuple[BridgedLedger, ...] = ()
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    to_come: tuple[BridgedLedger, ...] = ()
    broken: tuple[BridgedLedger, ...] = ()
    deleted: bool = False
    kept: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    unloads: int = 0
    conflicts: int = 0
    closed: int = -1


SwapAction = WakeTopic | FetchRecord | UnloadTopic | SetRecord | LoadTopic | ProveLedgers | SwapOutcome


# Observations


@dataclass(frozen=True, slots=True)
class TopicAwake:
    """Some broker has loaded it, by now or before."""


@dataclass(frozen=True, slots=True)
class RecordSeen:
    """`record` None: the topic has none. `ours`: asked after it was read. `at`: ms, the time of new contexts. `born`:
    see `SetRecord`."""

    record: bytes | None
    version: int
    ours: bool
    at: int
    born: int = 0


@dataclass(frozen=True, slots=True)
class Unloaded:
    """A broker says that it is done."""


@dataclass(frozen=True, slots=True)
class RecordSet:
    """The record is set."""


@dataclass(frozen=True, slots=True)
class RecordChanged:
    """It is not: somebody else has changed it since."""


@dataclass(frozen=True, slots=True)
class TopicLoaded:
    """What the topic's broker knows: the ledgers of its list, and those that it reads from objects."""

    listed: frozenset[int]
    offloaded: frozenset[int]


@dataclass(frozen=True, slots=True)
class LedgersProven:
    """Every one arrived. `evidence`: in words."""

    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotProven:
    """Other bytes arrived, or none in time, from a broker that answers."""

    why: str


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Nobody has answered: it did not happen, or it did, or it still will. `absent`: a broker says that there is no
    such topic."""

    why: str
    absent: bool = False


@dataclass(frozen=True, slots=True)
class CallRefused:
    """An operator must help: the right to do it is missing, or the record cannot be read."""

    why: str


SwapObservation = (
    TopicAwake
    | RecordSeen
    | Unloaded
    | RecordSet
    | RecordChanged
    | TopicLoaded
    | LedgersProven
    | NotProven
    | CallFailed
    | CallRefused
)
