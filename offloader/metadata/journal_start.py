"""How a process becomes the owner of a journal: load, fence, check, and a new epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offloader.errors import DamagedRecordError, ObjectNotFoundError, OvertakenError
from offloader.metadata.envelope import encode_fence
from offloader.metadata.journal_codec import EncodedTopic, decode_journal, decode_topic, encode_full
from offloader.metadata.journal_rules import FENCE_LIMIT, HoleError, Loaded, fold, outdated
from offloader.metadata.layout import epoch_folder, journal_folder, parse_journal_key
from offloader.metadata.log import NumberedLog, removing_old_records
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

# Each try is lost only to another process's progress.
TRIES = 20


class _StartOverError(Exception):
    """What was read has changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Started:
    """A new epoch that is ours: slot 0 holds `topics`."""

    epoch: int
    topics: Mapping[TopicName, EncodedTopic]
    snapshot_bytes: int


class JournalStart:
    """One application's journal, seen from outside."""

    def __init__(self, store: ObjectStore, application: str) -> None:
        self._store = store
        self._application = application
        self._folder = journal_folder(application)

    def load(self) -> Loaded:
        """The newest epoch, read without writing anything; epoch 0 where there is no journal yet."""
        why: Exception | None = None
        for _ in range(TRIES):
            try:
                return self._load_once()
            except (ObjectNotFoundError, HoleError) as error:  # a truncation goes on
                why = error
        raise DamagedRecordError(f"{self._folder}: records are missing, also after {TRIES} tries: {why}") from why

    def decode(self, loaded: Loaded) -> dict[TopicName, EncodedTopic]:
        """The topics of what was loaded. Raises DamagedRecordError."""
        return {topic: decode_topic(f"{self._folder} ({topic})", data) for topic, data in loaded.topics.items()}

    def new_epoch(self, new_token: Callable[[], str], taken_over_by: str = "") -> Started:
        """Fence the newest epoch and begin the next with everything it held. Raises OvertakenError.

        With `taken_over_by` the new epoch is the last: whoever starts later is told so."""
        for _ in range(TRIES):
            try:
                return self._new_epoch_once(new_token, taken_over_by)
            except _StartOverError as error:
                log.info("%s: starting over: %s", self._folder, error)
        raise OvertakenError(f"{self._folder}: other processes start at the same time; stop them and start again")

    def _load_once(self) -> Loaded:
        epoch = max((epoch for (epoch, _), _ in self._sizes()), default=0)
        if epoch == 0:
            return Loaded(0)
        records = self._log(epoch)
        return fold(epoch, [(slot, decode_journal(records.key(slot), data)) for slot, data in records.load()])

    def _new_epoch_once(self, new_token: Callable[[], str], taken_over_by: str) -> Started:
        loaded = self.load()
        if loaded.taken_over_by:
            raise OvertakenError(
                f"application {self._application} was taken over by {loaded.taken_over_by}: run that one"
            )
        self.decode(loaded)  # what cannot be read stops nobody who can
        if not loaded.fenced:
            loaded = self._fence(loaded, new_token())
        later = self._after(loaded.epoch, loaded.next_slot)
        if later is not None:
            raise _StartOverError(f"{later} has appeared")
        return self._begin(loaded, new_token(), taken_over_by)

    def _fence(self, loaded: Loaded, token: str) -> Loaded:
        """Put the fence right behind the last record, also where its writer is still at work."""
        records = self._log(loaded.epoch)
        fence = encode_fence(token)
        if len(fence) > FENCE_LIMIT:
            raise ValueError(f"a token of {len(token)} characters is too long: a fence has at most {FENCE_LIMIT} bytes")
        while True:
            key = records.key(loaded.next_slot)
            there = records.append(loaded.next_slot, fence)
            if there is not None and not there:
                raise _StartOverError(f"{key} was removed")
            loaded = loaded.then(decode_journal(key, fence if there is None else there))
            if loaded.fenced:
                return loaded

    def _begin(self, loaded: Loaded, token: str, taken_over_by: str) -> Started:
        epoch = loaded.epoch + 1
        topics = self.decode(loaded)
        data = encode_full(token, loaded.topics.values(), taken_over_by)
        if self._log(epoch).append(0, data) is not None:
            raise OvertakenError(f"{self._folder}: another process has begun epoch {epoch} first")
        # The first record of an epoch may have been removed by the owner that wrote it: then later ones are there.
        later = self._after(epoch, 0)
        if later is not None:
            raise OvertakenError(f"{self._folder}: another process has gone on to {later}")
        self._remove_outdated(loaded)
        return Started(epoch, topics, len(data))

    def _remove_outdated(self, loaded: Loaded) -> None:
        with removing_old_records(self._folder):
            removable = outdated(loaded, self._sizes())
            self._store.delete([self._log(epoch).key(slot) for epoch, slot in removable])

    def _after(self, epoch: int, slot: int) -> str | None:
        """The first record after this one, in this epoch or a later one."""
        start_after = self._log(epoch).key(slot) if epoch else ""
        return next((key for key, _ in self._store.list(self._folder, start_after=start_after)), None)

    def _sizes(self) -> list[tuple[tuple[int, int], int]]:
        found = [(parse_journal_key(self._application, key), size) for key, size in self._store.list(self._folder)]
        return [(numbers, size) for numbers, size in found if numbers is not None]

    def _log(self, epoch: int) -> NumberedLog:
        return NumberedLog(self._store, epoch_folder(self._application, epoch))
