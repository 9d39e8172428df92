"""What a namespace's own offload by brokers was before a migration changed it: a log for each namespace, none of whose
records is ever removed. Whoever takes a migration back puts it back, from wherever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offloader._proto import metadata_pb2 as pb
from offloader.errors import RetryableError
from offloader.metadata.layout import MIGRATION, encoded
from offloader.metadata.message_codec import add_messages
from offloader.metadata.record_codec import codec_of
from offloader.metadata.records import Records
from offloader.ports.object_store import ObjectStore

TO_STREAMING, TO_LEDGER_BASED = "to-streaming", "to-ledger-based"


@dataclass(frozen=True, slots=True)
class FormerOffload:
    """Brokers offloaded from `size` bytes on and after `seconds` (negative: never; None: nothing was said of it),
    before the migration `direction` of `application` set `set_size` and `set_seconds` (None: it left these alone).
    `over`: it was put back, or what was set stays."""

    namespace: str
    application: str
    direction: str
    size: int
    seconds: int | None
    set_size: int
    set_seconds: int | None
    at: int
    over: bool = False

    def explains(self, size: int, seconds: int | None) -> bool:
        """Whether what applies now is what was before, what was set, or one of each: nobody else has changed it."""
        set_seconds = self.seconds if self.set_seconds is None else self.set_seconds
        return _never(size) in (_never(self.size), _never(self.set_size)) and _never(seconds) in (
            _never(self.seconds),
            _never(set_seconds),
        )

    def follows(self, newest: FormerOffload | None) -> FormerOffload:
        """This record, made of what applies now, behind the newest one. Where that migration is only continued or taken
        back, what was before it stays what is put back."""
        if newest is None or newest.over or not newest.explains(self.size, self.seconds):
            return self
        if newest.direction != self.direction and newest.direction != TO_LEDGER_BASED:
            return self  # the way there was complete: what it has set is what the way back begins with
        return replace(self, size=newest.size, seconds=newest.seconds)


def _never(threshold: int | None) -> int:
    """Pulsar makes -1 of a threshold that nobody has set once the other one is."""
    return -1 if threshold is None else max(threshold, -1)


add_messages({FormerOffload: pb.FormerOffload}, {})
FORMER = codec_of({"former_offload": FormerOffload})


@dataclass(frozen=True)
class FormerOffloads:
    """Calls raise DamagedRecordError, FormatVersionError, and what the store raises."""

    store: ObjectStore
    new_token: Callable[[], str]

    def newest(self, namespace: str) -> FormerOffload | None:
        """What the last migration of a namespace found; None: none changed anything."""
        newest = self._records(namespace).newest()
        return None if newest is None else newest.record

    def record(self, former: FormerOffload) -> None:
        """Before anything is changed. The same again, as after an interruption, adds nothing. Raises RetryableError
        where somebody else writes at the same time."""
        records = self._records(former.namespace)
        newest = records.newest()
        if newest is not None and replace(newest.record, at=former.at) == former:
            return
        if not records.write(0 if newest is None else newest.slot + 1, self.new_token(), former):
            raise RetryableError(f"{former.namespace}: somebody else migrates it at this moment: try again")

    def _records(self, namespace: str) -> Records[FormerOffload]:
        return Records(self.store, f"{MIGRATION}/{'/'.join(map(encoded, namespace.split('/')))}/", FORMER)
