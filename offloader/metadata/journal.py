"""The journal: what the running application must not forget, one process at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Self

from offloader.errors import (
    DamagedRecordError,
    FatalError,
    FormatVersionError,
    JournalUnavailableError,
    OffloadError,
    OutcomeUnknownError,
    OvertakenError,
)
from offloader.metadata.journal_codec import EncodedTopic, decode_journal, encode_changes, encode_full, encode_topic
from offloader.metadata.journal_rules import snapshot_due
from offloader.metadata.journal_start import JournalStart, Started
from offloader.metadata.layout import epoch_folder
from offloader.metadata.log import NumberedLog, removing_old_records
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

Waiting = Callable[[], AbstractContextManager[None]]
CALLS_OF_A_WAIT = 2  # a record is written, or looked for, and, where the slot is taken, read back


@dataclass(slots=True)
class _Group:
    """What waits for the next record; the newest state of a topic wins. `failure`: why it was not written."""

    changes: dict[TopicName, TopicState] = field(default_factory=dict)
    done: bool = False
    failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Tried:
    """A record whose bytes may have reached its slot: no others are tried for it."""

    data: bytes
    full: bool
    encoded: Mapping[TopicName, EncodedTopic]
    changed: tuple[TopicName, ...]


class Journal:
    """An application's journal, owned by this process until another one starts.

    `record` may be called from several threads, of which one writes at a time: all that waits, as one record."""

    def __init__(
        self,
        store: ObjectStore,
        application: str,
        started: Started,
        new_token: Callable[[], str],
        written: Callable[[int], None] = lambda _: None,
        waiting: Waiting = nullcontext,
    ) -> None:
        self._application = application
        self._new_token = new_token
        self._written = written
        self._waiting_for_store = waiting
        self.recorded: Callable[[Iterable[TopicName]], None] = lambda _: None  # hears of what is durable, in any thread
        self._log = NumberedLog(store, epoch_folder(application, started.epoch))
        self._encoded = started.topics
        self._topics = {topic: encoded.state for topic, encoded in started.topics.items()}
        self._next_slot = 1
        self._snapshot_bytes = started.snapshot_bytes
        self._log_bytes = self._log_records = 0
        self._removable = [0]
        self._tried: _Tried | None = None
        self._overtaken = ""
        self._closed = False
        self._joining = threading.Lock()
        self._waiting = _Group()
        self._writing = threading.Lock()

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        application: str,
        new_token: Callable[[], str],
        written: Callable[[int], None] = lambda _: None,
        waiting: Waiting = nullcontext,
    ) -> Self:
        """Become the owner; a former one stops at its next record. Raises OvertakenError where another start wins.

        `written` hears of each record's size; `waiting` is entered for each wait for the store, of `CALLS_OF_A_WAIT`
        calls at most."""
        return cls(
            store, application, JournalStart(store, application).new_epoch(new_token), new_token, written, waiting
        )

    @staticmethod
    def peek(store: ObjectStore, application: str) -> Mapping[TopicName, TopicState]:
        """What a journal holds now, for commands: reads only."""
        start = JournalStart(store, application)
        return {topic: encoded.state for topic, encoded in start.decode(start.load()).items()}

    @property
    def topics(self) -> Mapping[TopicName, TopicState]:
        """What is recorded, by topic. Does not change under whoever holds it."""
        return MappingProxyType(self._topics)

    def record(self, changes: Iterable[TopicState]) -> None:
        """Make states durable; an idle one removes its topic. Returns when that is done.

        Raises OvertakenError, after which nothing more is recorded; after any other error the same states can be
        recorded again. What was tried before is settled first, with the same bytes: an outcome that is not known
        (JournalUnavailableError) is never taken for a failure."""
        changed = {state.topic: state for state in changes}
        if not changed and self._tried is None:
            return  # the driver has nothing to say several times a round
        with self._joining:
            group = self._waiting
            group.changes.update(changed)
        with self._writing:
            if not group.done:
                self._write(group)
        if group.failure is not None:
            raise group.failure

    def check_not_overtaken(self) -> None:
        """Raises OvertakenError, or JournalUnavailableError: another process has the journal, or may have it."""
        with self._writing:
            self._settle()
            with self._asking():
                there = self._log.held_by(self._next_slot)
            self._check_ours(there)

    def check_from_beside(self) -> None:
        """The same for whoever works beside the owner's thread, which does not wait for it."""
        if self._overtaken:
            raise OvertakenError(self._overtaken)
        try:
            there = self._log.held_by(self._next_slot)
        except OffloadError as error:
            raise JournalUnavailableError(str(error)) from error
        if there is not None:  # a fence, or what the owner's thread is just writing
            self.check_not_overtaken()

    def close(self) -> None:
        """Wait for what is being written. The journal must not be used afterwards."""
        with self._writing:
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # From here on everything is done by the thread that writes.

    def _write(self, group: _Group) -> None:
        with self._joining:
            self._waiting = _Group()
        try:
            self._settle()
            self._tried = self._compose(group.changes)
            self._settle()
        except BaseException as error:
            group.failure = error
            raise
        finally:
            group.done = True

    def _compose(self, changes: Mapping[TopicName, TopicState]) -> _Tried | None:
        """The next record: the changes, or everything where a snapshot is due. None where nothing changes."""
        kept = {t: encode_topic(s) for t, s in changes.items() if not s.idle}
        removed = [t for t, s in changes.items() if s.idle and t in self._encoded]
        if not kept and not removed:
            return None
        encoded = dict(self._encoded)  # a copy, which hashes no name
        encoded.update(kept)
        for topic in removed:
            del encoded[topic]
        data = encode_changes(self._new_token(), (e.data for e in kept.values()), removed)
        full = snapshot_due(self._snapshot_bytes, self._log_bytes + len(data), self._log_records + 1)
        if full:
            data = encode_full(self._new_token(), (e.data for e in encoded.values()))
        return _Tried(data, full, encoded, (*kept, *removed))

    def _settle(self) -> None:
        """Write what was tried before, with the same bytes, until it is clear that it stands."""
        if self._closed:
            raise FatalError(f"the journal of {self._application} is closed")
        if self._overtaken:
            raise OvertakenError(self._overtaken)
        tried = self._tried
        if tried is None:
            return
        with self._asking():
            there = self._log.append(self._next_slot, tried.data)
        self._check_ours(there)
        self._tried = None
        self._written(len(tried.data))
        topics = dict(self._topics)
        for topic in tried.changed:
            if topic in tried.encoded:
                topics[topic] = tried.encoded[topic].state
            else:
                del topics[topic]
        self._encoded, self._topics = tried.encoded, topics
        self.recorded(tried.changed)
        if tried.full:
            self._snapshot_bytes, self._log_bytes = len(tried.data), 0
            self._log_records = 0
            self._truncate()
        else:
            self._log_bytes += len(tried.data)
            self._log_records += 1
        self._removable.append(self._next_slot)
        self._next_slot += 1

    def _truncate(self) -> None:
        with removing_old_records(f"journal of {self._application}"), self._waiting_for_store():
            self._log.remove(self._removable)
            self._removable = []

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Call the store. No answer, not even a refusal, may end the application: the owner asks again."""
        try:
            with self._waiting_for_store():
                yield
        except OutcomeUnknownError as error:
            raise JournalUnavailableError(f"what became of a journal record is not known yet: {error}") from error
        except OffloadError as error:
            raise JournalUnavailableError(str(error)) from error

    def _check_ours(self, there: bytes | None) -> None:
        """Only a record in our next slot proves another owner: whoever starts puts a fence there, which stays."""
        if there is None:
            return
        key = self._log.key(self._next_slot)
        if not there:
            raise JournalUnavailableError(f"{key}: something was found there, and not there or empty when it was read")
        try:
            decode_journal(key, there)
        except FormatVersionError:
            pass  # the fence of a newer version
        except DamagedRecordError as error:
            raise JournalUnavailableError(
                f"whether another process owns the journal cannot be seen: {error}"
            ) from error
        self._overtaken = f"another process owns the journal of {self._application} now: do not restart this one"
        raise OvertakenError(self._overtaken)
