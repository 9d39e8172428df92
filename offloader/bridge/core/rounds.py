"""What a topic's bridge log says: which of its ledgers stock brokers can read as V1 objects made of our blocks, and
what is under way. Pure.

Each record holds all of it, so the newest one is enough; only `finished` stands in the record that finishes a round and
in no later one. A round takes the next closed ledgers of the topic, in order, through these phases:

* `BUILDING`: names are drawn and recorded before the first byte. Objects under them may be there, whole or in part;
  nothing refers to them.
* `SWAPPING`: all objects were read back and are right. From here on the managed ledger's record may name them, and a
  broker may or may not have loaded that record.
* The round is finished, every ledger proven through the broker; or
* `WITHDRAWING`: the broker did not deliver, or the turn of these ledgers is still to come. The contexts are taken out
  of the record first, that is recorded, then the objects go.

A round that repairs begins with `SWAPPING`: its ledgers were proven before, by other rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from offloader.errors import IntegrityError
from offloader.model import Position, TopicName


class BridgePhase(StrEnum):
    """How far a round has come."""

    BUILDING = "building"
    SWAPPING = "swapping"
    WITHDRAWING = "withdrawing"


@dataclass(frozen=True, slots=True)
class BridgedLedger:
    """A whole closed ledger, entries 0 to `last`, as a pair of V1 objects under `uuid`.

    `length`: the sum of its entries' lengths, as BookKeeper counts it. `size`, `crc32c`: of the data object, known once
    it is built. `segments`: the uuids of the segments whose blocks it has, in their order. `filled`: entries from
    bookies, because the segments have gaps there."""

    ledger: int
    last: int
    length: int
    uuid: str
    size: int = 0
    crc32c: int = 0
    segments: tuple[str, ...] = ()
    filled: int = 0


@dataclass(frozen=True, slots=True)
class BridgeRound:
    """Ledgers that are bridged together, by one unload of their topic. `bucket`: its URL, whose flat root has the
    objects. `began_at`: ms. `application`: who began it. `repairs`: they were proven before, and brokers do not read
    them from their objects any more. These stay whatever becomes of it: the rounds that were proven name them."""

    number: int
    phase: BridgePhase
    bucket: str
    ledgers: tuple[BridgedLedger, ...]
    began_at: int
    application: str
    why: str = ""  # it is withdrawn
    repairs: bool = False


class BridgeVerdict(StrEnum):
    """Why a ledger is not bridged, and will not be by itself. Each but the last one is looked at again after a day."""

    DAMAGED = "damaged"  # what the archive has of it is not what its catalog says
    LOSS = "loss"  # entries were gone before they were offloaded
    GAPS = "gaps"  # entries that no broker delivers are not in bookies either
    DELETED = "deleted"  # its segments were deleted from the archive
    OFFLOADING = "offloading"  # brokers have begun to offload it by themselves, and do not end it
    ARCHIVE_ONLY = "archive-only"  # an operator has let it go


@dataclass(frozen=True, slots=True)
class UnbridgedLedger:
    """A ledger that cannot be bridged: the pin stays before it until an operator says `archive-only`. `generation`: of
    the catalog that says so."""

    ledger: int
    last: int
    verdict: BridgeVerdict
    why: str
    by: str = ""
    at: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class BridgeState:
    """A topic's bridge, of one size however many ledgers are bridged.

    `incarnation`: the one that it is of; a later one begins anew. `up_to`: every ledger up to this position, which ends
    its ledger, is bridged, was let go as archive-only, or was off Pulsar's list before its turn came; None: none yet.
    `blocked`: the next ledger, where it cannot be bridged. `swapped_at`: when the topic was last unloaded for a round
    (ms). `ledgers`, `size`: sums of what is bridged. `finished`: the round that this record finishes. `former`: the
    slot of the last record before this one that finishes a round or lets a ledger go; -1: none. `leaving`: of a round
    that is over, or was cut short, the ledgers whose objects nobody needs: they go before anything else is done.
    `closed`: the newest ledger when the topic was last unloaded for a round, which has closed it; -1: none.
    `in_vain`, `why`: rounds that were withdrawn since one was proven, and why the last of them was."""

    topic: TopicName
    incarnation: int
    up_to: Position | None = None
    round: BridgeRound | None = None
    blocked: UnbridgedLedger | None = None
    swapped_at: int = 0
    rounds: int = 0
    ledgers: int = 0
    size: int = 0
    finished: BridgeRound | None = None
    let_go: UnbridgedLedger | None = None
    former: int = -1
    leaving: BridgeRound | None = None
    closed: int = -1
    in_vain: int = 0
    why: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a round is not over, or objects are still to go."""
        return self.round is not None or self.leaving is not None

    def began(self, ledgers: tuple[BridgedLedger, ...], bucket: str, application: str, at: int) -> BridgeState:
        """With a round begun."""
        if self.round is not None:
            raise IntegrityError(f"{self.topic}: bridge round {self.round.number} is still {self.round.phase}")
        begun = BridgeRound(self.rounds, BridgePhase.BUILDING, bucket, ledgers, at, application)
        return replace(self._next(), round=begun, rounds=self.rounds + 1, blocked=None)

    def so_far(self, ledgers: tuple[BridgedLedger, ...]) -> BridgeState:
        """With the first ones of the round written, read back and right, and others to come."""
        under_way = self._round(BridgePhase.BUILDING)
        return replace(self._next(), round=replace(under_way, ledgers=(*ledgers, *under_way.ledgers[len(ledgers) :])))

    def built(self, ledgers: tuple[BridgedLedger, ...]) -> BridgeState:
        """With the objects written, read back and right; those of the round that are not among them are left out."""
        under_way, uuids = self._round(BridgePhase.BUILDING), {each.uuid for each in ledgers}
        left = tuple(each for each in under_way.ledgers if each.uuid not in uuids)
        return replace(
            self._next(),
            round=replace(under_way, phase=BridgePhase.SWAPPING, ledgers=ledgers),
            leaving=replace(under_way, ledgers=left) if left else None,
        )

    def rebuilt(self, ledgers: Collection[BridgedLedger]) -> BridgeState:
        """With these ledgers of the round built again."""
        under_way, again = self._round(BridgePhase.SWAPPING), {each.ledger: each for each in ledgers}
        ledgers = tuple(again.get(each.ledger, each) for each in under_way.ledgers)
        return replace(self._next(), round=replace(under_way, ledgers=ledgers))

    def repairing(self, ledgers: tuple[BridgedLedger, ...], bucket: str, application: str, at: int) -> BridgeState:
        """With a round begun that has brokers read these from their objects again."""
        if self.round is not None:
            raise IntegrityError(f"{self.topic}: bridge round {self.round.number} is still {self.round.phase}")
        begun = BridgeRound(self.rounds, BridgePhase.SWAPPING, bucket, ledgers, at, application, repairs=True)
        return replace(self._next(), round=begun, rounds=self.rounds + 1)

    def proven(
        self,
        at: int,
        left_out: Collection[int] = (),
        to_come: Collection[BridgedLedger] = (),
        why: str = "",
        closed: int = -1,
    ) -> BridgeState:
        """With the round finished: the broker delivers every ledger of it, but for those that it has by itself or does
        not list any more (`left_out`). `to_come`: the last ones, that cannot be bridged now, and `why`: they are
        withdrawn. `closed`: see the class."""
        done, later = self._round(BridgePhase.SWAPPING), {each.ledger for each in to_come}
        passed = [each for each in done.ledgers if each.ledger not in later]
        ledgers = tuple(each for each in passed if each.ledger not in left_out)
        rest = replace(done, phase=BridgePhase.WITHDRAWING, ledgers=tuple(to_come), why=why) if to_come else None
        after = replace(self._next(), round=rest, swapped_at=at, closed=closed)
        if done.repairs:
            return after
        return replace(
            after,
            up_to=Position(self.incarnation, passed[-1].ledger, passed[-1].last) if passed else self.up_to,
            ledgers=self.ledgers + len(ledgers),
            size=self.size + sum(each.size for each in ledgers),
            finished=replace(done, ledgers=ledgers) if ledgers else None,
            leaving=_leaving(done, [each for each in passed if each.ledger in left_out]),
            in_vain=0,
            why="",
        )

    def withdrawing(self, why: str) -> BridgeState:
        """With the round on its way back: its contexts leave the record, then, unless it repairs, its objects go."""
        if self.round is None:
            raise IntegrityError(f"{self.topic}: there is no bridge round to withdraw")
        return replace(self._next(), round=replace(self.round, phase=BridgePhase.WITHDRAWING, why=why))

    def withdrawn(self, at: int, kept: Collection[int] = (), closed: int = -1) -> BridgeState:
        """With the round gone. `kept`: those of its ledgers whose contexts stay, and so their objects. `closed`: see
        the class. A repair that is taken back says nothing of rounds to come."""
        gone = self._round(BridgePhase.WITHDRAWING)
        leaving = _leaving(gone, [each for each in gone.ledgers if each.ledger not in kept])
        after = replace(self._next(), round=None, swapped_at=at, leaving=leaving, closed=closed)
        return after if gone.repairs else replace(after, in_vain=self.in_vain + 1, why=gone.why)

    def dropped(self) -> BridgeState:
        """Without a round that no broker can know of: only objects were begun."""
        return replace(self._next(), round=None, leaving=self._round(BridgePhase.BUILDING))

    def anew(self, incarnation: int) -> BridgeState:
        """Of another incarnation, which never lists the ledgers of the former one's round. Of a topic that was deleted
        brokers have deleted the record, too."""
        leaving = _leaving(self.round, self.round.ledgers) if self.round is not None else None
        return BridgeState(self.topic, incarnation, leaving=leaving)

    def gone(self) -> BridgeState:
        """Of a topic that was deleted for good, and Pulsar's record with it: nothing names the round's objects."""
        leaving = _leaving(self.round, self.round.ledgers) if self.round is not None else None
        return replace(self._next(), round=None, leaving=leaving)

    def cleaned(self) -> BridgeState:
        """With nothing left of what was leaving."""
        return replace(self._next(), leaving=None)

    def blocked_by(self, ledger: UnbridgedLedger) -> BridgeState:
        """With a next ledger that cannot be bridged, and without the round that was to begin with it."""
        left = self._round(BridgePhase.BUILDING) if self.round is not None else None
        return replace(self._next(), round=None, blocked=ledger, leaving=left)

    def letting_go(self, ledger: UnbridgedLedger) -> BridgeState:
        """With the next ledger let go as archive-only."""
        up_to = Position(self.incarnation, ledger.ledger, ledger.last)
        return replace(self._next(), blocked=None, up_to=up_to, let_go=ledger)

    def passed(self, up_to: Position) -> BridgeState:
        """Where brokers have the ledgers up to there by themselves."""
        return replace(self._next(), blocked=None, up_to=up_to)

    def _next(self) -> BridgeState:
        return replace(self, finished=None, let_go=None)

    def _round(self, phase: BridgePhase) -> BridgeRound:
        if self.round is None or self.round.phase is not phase:
            raise IntegrityError(f"{self.topic}: no bridge round is {phase}")
        return self.round


def _leaving(over: BridgeRound, ledgers: Sequence[BridgedLedger]) -> BridgeRound | None:
    """Objects of a round that nobody needs. What was proven once is named by the record of that round."""
    return replace(over, ledgers=tuple(ledgers)) if ledgers and not over.repairs else None


class BridgeHead(NamedTuple):
    """The slot that the next record takes, and what the newest one says; None: there is none."""

    slot: int
    state: BridgeState | None


class BridgedCopy(NamedTuple):
    """A ledger that brokers deliver, as its round has proven. `bucket`: its URL, whose flat root has the objects."""

    incarnation: int
    ledger: BridgedLedger
    bucket: str


@dataclass(frozen=True, slots=True)
class BridgedLedgers:
    """What a bridge log says, at one moment. `slot`: the one that its next record takes. `ledgers`: of finished rounds,
    by id; ids are used once. `let_go`: ledgers that an operator has let go as archive-only. `under_way`: the uuids of a
    round that is not finished, is being withdrawn, or whose objects are to go. `state`: what the newest record says.
    `newest`: incarnation and number of the last round that is in `ledgers`."""

    slot: int = 0
    ledgers: Mapping[int, BridgedCopy] = field(default_factory=dict)
    let_go: frozenset[int] = frozenset()
    under_way: frozenset[str] = frozenset()
    state: BridgeState | None = None
    newest: tuple[int, int] | None = None

    @property
    def uuids(self) -> frozenset[str]:
        """All that may lie in the brokers' bucket."""
        return self.under_way | {each.ledger.uuid for each in self.ledgers.values()}


NOTHING_BRIDGED = BridgedLedgers()
