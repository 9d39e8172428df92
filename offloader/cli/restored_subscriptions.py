"""`offloader topics restore --subscriptions`: which are wanted, and what is told of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from offloader.cli.output import Output
from offloader.cursors.backlog import archive_backlog, holes_of
from offloader.cursors.broker_losses import BATCH_INDEX, BrokerLoss, Occasion, broker_losses
from offloader.cursors.copies import CopiedCursor, CursorCopy
from offloader.cursors.copy_store import copy_times, read_copy
from offloader.errors import DamagedRecordError, FatalError
from offloader.lifecycle.explaining.words import moment_text
from offloader.lifecycle.topics.cursors.undoing import never_set
from offloader.model import Segment, TopicName
from offloader.operations.restore.numbering import MappedCursor
from offloader.operations.restore.ports import BrokerStoring
from offloader.operations.restore.subscriptions import RestoredSubscription, RestoreStanding
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import EARLIEST
from offloader.printable import meant

ALL, NONE = "all", "none"
NONE_MADE = "policies.archiveCursors: true has the application make them"
WHEN = {
    Occasion.UNLOAD: "at its next clean unload",
    Occasion.IDLE_UNLOAD: "at a clean unload before which nothing was acknowledged",
    Occasion.CRASH: "when its broker crashes",
}


@dataclass(frozen=True, slots=True)
class SubscriptionsWanted:
    """`names`: empty: all; None: no subscription. `at`: as they stood then, in ms; None: in the newest copy."""

    names: frozenset[str] | None
    at: int | None

    @classmethod
    def parse(cls, said: Sequence[str], at: int | None) -> Self:
        """Raises FatalError."""
        names = frozenset(said)
        if len(names) > 1 and names & {ALL, NONE}:
            raise FatalError(f"--subscriptions: {ALL} and {NONE} stand alone; name subscriptions, or write one of them")
        if names == {NONE} and at is not None:
            raise FatalError(f"--subscriptions-at needs subscriptions, and --subscriptions says {NONE}")
        return cls(None if names == {NONE} else names - {ALL}, at)

    def of(self, store: ObjectStore, topic: TopicName) -> CursorCopy | None:
        """A topic's copy, of which those that are wanted; None: none is wanted, or there is no copy. Raises FatalError
        where there is none of that moment, and as `read_copy`."""
        if self.names is None:
            return None
        try:
            copy = read_copy(store, topic, self.at)
        except DamagedRecordError as error:
            instead = f"--subscriptions-at takes an earlier copy, --subscriptions {NONE} restores the entries alone"
            raise DamagedRecordError(f"{topic}: {str(error).removeprefix(f'{topic}: ')}; {instead}") from error
        if copy is None:
            first = min(copy_times(store, topic), default=None)
            if self.at is not None and first is not None:
                raise FatalError(f"{topic}: the first copy of its subscriptions is of {moment_text(first)}")
            return None
        copied = {one.name for one in copy.cursors}
        names = {meant(name, copied.__contains__) for name in self.names}
        return replace(copy, cursors=tuple(one for one in copy.cursors if not names or one.name in names))

    def check_found(self, topic: TopicName, copies: Sequence[CursorCopy | None]) -> None:
        """Raises FatalError where one that is named is in no copy."""
        found = {one.name for copy in copies if copy is not None for one in copy.cursors}
        for name in sorted(name for name in self.names or () if meant(name, found.__contains__) not in found):
            raise FatalError(
                f"{topic}: no copy has a subscription {name}; `offloader topics cursors show` lists those that are "
                "copied"
            )


@dataclass(frozen=True)
class SubscriptionTeller:
    """Tells of each subscription of one topic."""

    output: Output
    topic: TopicName
    to: TopicName
    copy: CursorCopy
    storing: BrokerStoring

    def plan(self, segments: tuple[Segment, ...]) -> Iterator[RestoreStanding]:
        """What would be restored; what will be pending is counted by the archive's records. Of what came after the
        topic was made anew, all of it is."""
        mine = self.copy.incarnation
        later = sorted({each.start.incarnation for each in segments if each.start.incarnation > mine})
        for one in self.copy.cursors:
            if one.damage:
                yield self._tell_damage(one, dry_run=True)
                continue
            nothing = CopiedCursor(one.name, EARLIEST)
            parts = ((mine, one), *((incarnation, nothing) for incarnation in later))
            pending = sum(archive_backlog(part, segments, incarnation).entries for incarnation, part in parts)
            planned = RestoredSubscription(RestoreStanding.PLANNED)
            yield self._tell(MappedCursor(one, pending, 0), planned, dry_run=True)

    def restored(
        self, mapped: Sequence[MappedCursor], restore: Callable[[MappedCursor], RestoredSubscription]
    ) -> Iterator[RestoreStanding]:
        """Restore one after the other; those whose copy is damaged are only told."""
        for one in mapped:
            yield self._tell(one, restore(one))
        for damaged in (one for one in self.copy.cursors if one.damage):
            yield self._tell_damage(damaged, dry_run=False)

    def _tell_damage(self, cursor: CopiedCursor, *, dry_run: bool) -> RestoreStanding:
        failed, at = RestoreStanding.FAILED, moment_text(self.copy.at)
        text = f"{self.to}: subscription {cursor.name} is {failed}: its copy of {at} cannot be read"
        notes = [f"{cursor.damage}; --subscriptions-at takes an earlier copy."]
        fields = {**self._fields(text, cursor, failed, dry_run=dry_run), "notes": notes}
        self.output.lines([text, *(f"  {one}" for one in notes)], fields)
        return failed

    def _tell(self, mapped: MappedCursor, done: RestoredSubscription, *, dry_run: bool = False) -> RestoreStanding:
        cursor, holes = mapped.cursor, holes_of(mapped.cursor)
        losses = broker_losses(cursor, self.storing.settings)
        notes = [*self._notes(mapped, done), *never_set_of(cursor)]
        text = (
            f"{self.to}: subscription {cursor.name} is {done.standing}, as of {moment_text(self.copy.at)}: "
            f"{mapped.pending} entries pending, {holes.ranges} acknowledged ranges behind its mark-delete position, "
            f"{holes.batches} batches in part"
        )
        fields = {
            **self._fields(text, cursor, done.standing, dry_run=dry_run),
            "pending": mapped.pending,
            "ranges": holes.ranges,
            "acknowledged": holes.entries,
            "batches": holes.batches,
            "leftOut": mapped.left_out,
            "losses": [
                {"when": str(one.occasion), "setting": one.setting, "entries": one.entries, "batches": one.batches}
                for one in losses
            ],
            "notes": notes,
        }
        told = [*notes, *dict.fromkeys(map(_loss_text, losses))]
        if losses and self.storing.assumed:
            told.append(f"These are {self.storing.assumed}.")
        self.output.lines([text, *(f"  {one}" for one in told)], fields)
        return done.standing

    def _fields(
        self, text: str, cursor: CopiedCursor, standing: RestoreStanding, *, dry_run: bool
    ) -> dict[str, object]:
        """Those that each of them has."""
        return {
            "message": text,
            "topic": str(self.topic),
            "target": str(self.to),
            "dryRun": dry_run,
            "subscription": cursor.name,
            "standing": str(standing),
            "copied": self.copy.at,
        }

    def _notes(self, mapped: MappedCursor, done: RestoredSubscription) -> Iterator[str]:
        if done.why:
            yield f"{done.why[0].upper()}{done.why[1:]}."
        if mapped.left_out:
            yield f"{mapped.left_out} acknowledged entries are not in the target."
        if self.storing.expires_after:
            yield f"The target deletes subscriptions that nobody has used for {self.storing.expires_after} minutes."
        for one in mapped.cursor.missing:
            yield f"The copy is not complete: {one}."


def never_set_of(cursor: CopiedCursor) -> Iterator[str]:
    """What of it nobody can set from outside."""
    return never_set(cursor.properties, cursor.subscription_properties)


def _loss_text(loss: BrokerLoss) -> str:
    if loss.setting == BATCH_INDEX:  # whatever happens
        return f"The target does not know which messages of {loss.batches} batches are acknowledged ({loss.setting})."
    what = (
        f"{loss.entries} acknowledged entries"
        if loss.entries
        else f"which messages of {loss.batches} batches are acknowledged"
    )
    return f"{WHEN[loss.occasion].capitalize()} the target forgets {what}, and delivers them again ({loss.setting})."
