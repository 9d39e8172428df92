"""A topic's archive over its ages: deleted and made again, released and claimed by one of two applications whose
policies differ, sealed late, rebuilt; with starts and kills at any time, and processes that are paused while others go
on. Whatever goes must have been somebody's to delete, at that moment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from threading import get_ident

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.findings import FindingKind
from offloader.errors import ClaimedByOtherError, IntegrityError, OffloadError
from offloader.lifecycle.bucket.reading import read_names
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.metadata.beside import last_owner
from offloader.metadata.catalog import Catalogs, released
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionUndone,
    PulsarTrimmed,
    Removal,
    range_of,
)
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, Said, TopicCatalog
from offloader.model import Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.storage.forwarding import Verb
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.archive.support import META, SMALL, TOPIC, Archive, stream
from tests.format.support import Stored, checksummed
from tests.times import MINUTE_MS

from .processes import APPLICATIONS, LOOKS, POLICIES, Making, Process, is_note, sound
from .world import A_LEDGER, ENTRIES, GRACE, KilledError, Reader


@dataclass
class Counts:
    """What a world has seen."""

    kills: int = 0
    pauses: int = 0
    late: int = 0
    again: int = 0
    released: int = 0
    rebuilt: int = 0
    begun: int = 0
    undone: int = 0
    split: int = 0


class Chunks(Enum):
    """Of a chunked message, at a segment's end or beginning."""

    BEGIN = "a message begins in the last entry"
    GO_ON = "it goes on in the first one"
    NONE = "nothing of it"


@dataclass
class Message:
    """A chunked one: the position of its first chunk, those of later ones."""

    first: Position
    later: list[Position] = field(default_factory=list)


class Ages:
    """`make`: the retention that is tried, or a broken variant. `told`, `reads`: see `Reader`."""

    def __init__(self, seed: int, make: Making = sound) -> None:
        self.rng, self.make = Random(seed), make
        self.now = 1_800_000_000_000
        self.store = MemoryStore(MemoryBacking(clock_ms=lambda: self.now))
        self.policies = {name: self.rng.choice(POLICIES) for name in APPLICATIONS}
        self.epochs = dict.fromkeys(APPLICATIONS, 0)
        self.counts = Counts()
        self.written: list[tuple[tuple[int, int], bytes]] = []
        self.readers: list[Reader] = []
        self.reads = self.told = 0
        self.there, self.left_open, self.rolled_back = True, False, False
        self.incarnation, self.owner, self.decides = 0, "app", "app"
        self.changed = True  # anything that a decision may depend on, since the last one was recorded
        self.moved = False  # others had their turn while something was decided
        self.messages: list[Message] = []
        self._segments = 0
        self._archive = Archive(self.store)
        self._archive.claim(created=0)  # the root, too
        self._kill_at, self.nested, self._thread = -1, False, get_ident()
        self.kill_when: Callable[[Verb, str], bool] | None = None
        self.running = {name: Process(self, name) for name in APPLICATIONS}

    # What happens to the topic

    def seal(self, chunks: Chunks | None = None) -> None:
        """Its last uploaded segment, where it is gone: as late as that comes."""
        if not self.owner or not (self.there or self.left_open):
            return
        self.counts.late += not self.there
        self.left_open = self.there and self.left_open
        number, part = divmod(self._segments, A_LEDGER)
        ledger, first = self._ledger(number), part * ENTRIES
        entries = self._with_chunks(stream(ledger, first, first + ENTRIES - 1), chunks)
        self._archive.incarnation, self._archive.sealed_at = self.incarnation, self.now
        closes = {ledger: first + ENTRIES - 1} if part == A_LEDGER - 1 else {}
        segment, data, index = self._archive.made(entries, [], closes, SMALL)
        self.store.put(layout.data_key(TOPIC, segment.uuid), data, meta=META)
        self.store.put(layout.index_key(TOPIC, segment.uuid), index, meta=META)
        self._append(segment)
        if closes:
            self._append(LedgerClosed(self.incarnation, ledger, closes[ledger]))
        self._segments += 1
        self.written += [((ledger, e.entry), e.data) for e in entries]
        self.changed = True

    def _ledger(self, number: int) -> int:
        return 1_000 * self.incarnation + number

    def _with_chunks(self, entries: list[Stored], chunks: Chunks | None) -> list[Stored]:
        """A message goes on that began one or more segments before; or another one begins."""
        last, chunks = entries[-1], chunks or self.rng.choice([Chunks.GO_ON, Chunks.BEGIN, Chunks.NONE])
        begun = self.messages and self.messages[-1].first.incarnation == self.incarnation
        if begun and chunks is Chunks.GO_ON:
            message = self.messages[-1]
            entries[0] = self._chunk(entries[0], message, 1 + len(message.later))
            message.later.append(Position(self.incarnation, entries[0].ledger, entries[0].entry))
        elif chunks is Chunks.BEGIN:
            self.messages.append(Message(Position(self.incarnation, last.ledger, last.entry)))
            entries[-1] = self._chunk(last, self.messages[-1], 0)
        return entries

    @staticmethod
    def _chunk(at: Stored, message: Message, number: int) -> Stored:
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=7,
            publish_time=1_700_000_000_000,
            uuid=f"p-{message.first}",
            num_chunks_from_msg=99,
            chunk_id=number,
            total_chunk_msg_size=100,
        )
        return Stored(at.ledger, at.entry, checksummed(metadata, b"x" * 20))

    def vanish(self) -> None:
        """Perhaps with a segment that is still to be sealed; `rolled_back`: and nobody knows of that any more."""
        self.there, self.left_open, self.rolled_back = False, self.rng.random() < 0.5, self.rng.random() < 0.5
        self.changed = True

    def made_again(self) -> None:
        """Under the same name, or rolled back: the same one; somebody claims it."""
        self.changed, before = True, self.incarnation
        if self.rng.random() < 0.7:
            self.incarnation, self._segments = self.incarnation + 1, 0
            self.left_open = False
        self.counts.again += self.incarnation > before
        self.there = True
        self.claim(self.owner or self.rng.choice(APPLICATIONS))

    def claim(self, name: str) -> None:
        number, part = divmod(self._segments, A_LEDGER)
        begin = Position(self.incarnation, self._ledger(number), part * ENTRIES)
        self.owner = self.decides = name
        self.changed = True
        catalogs = Catalogs(self.store, name)
        catalogs.append(catalogs.head(TOPIC), Claim(name, self.incarnation, self.incarnation, begin, self.now))

    def release(self) -> None:
        head = self.head
        assert head.claim is not None
        self._append(released(head.claim, self.now, "released"))
        self.owner, self.left_open, self.changed = "", False, True
        self.counts.released += 1

    def _append(self, record: Said) -> None:
        catalogs = Catalogs(self.store, self.owner)
        catalogs.append(catalogs.head(TOPIC), record)

    def trim(self) -> None:
        """Pulsar deletes all ledgers but the newest."""
        self._append(PulsarTrimmed(self.incarnation, self._ledger(self._segments // A_LEDGER), self.now))
        self.changed = True

    def topic_event(self) -> None:
        if self.there and self.owner and self.rng.random() < 0.3:
            self.trim()
        if self.there and self.rng.random() < 0.3:
            self.vanish()
        elif not self.there and self.rng.random() < 0.5:
            self.made_again()
        elif self.owner and self.rng.random() < 0.4:
            self.release()
        elif not self.owner and self.there:
            self.claim(self.rng.choice(APPLICATIONS))

    def rebuild(self, share: float | None = None) -> None:
        """The catalog is lost, wholly or in part, or nothing is."""
        before, catalog = self.head.removed, self.catalog
        keys = [key for key, _ in self.store.list(layout.generations_folder(TOPIC))]
        lost = self.rng.sample(keys, int(len(keys) * (self.rng.choice([0, 0.5, 1]) if share is None else share)))
        self.store.delete(lost)
        self.now += 1
        rebuild(self.store, TOPIC, Given(self.owner or "app", self.now), self._archive.token)
        after = self.head.removed
        self.counts.rebuilt += bool(lost)
        for segment in catalog.segments:
            there = self.store.stat(layout.data_key(TOPIC, segment.uuid)) is not None
            told = range_of(after.absent, segment.end) is not None
            assert there or told, f"{segment.start} is gone, and nothing says so any more"
            assert not told or range_of(before.absent, segment.end) is not None, f"{segment.start} {before} {after}"
        assert after.begun is None or before.begun is not None
        self.changed = True

    # What processes do

    def start(self, name: str) -> None:
        self.running[name] = Process(self, name)

    def new_policy(self, name: str) -> None:
        self.policies[name], self.changed = self.rng.choice(POLICIES), True
        self.start(name)

    def doing(self, name: str, what: Callable[[Process], object], *, killed: bool = True) -> None:
        """Something of a process, which may be killed, or paused while others go on."""
        process, before = self.running[name], self.counts.pauses
        self.moved = self.moved and self.nested
        self._kill_at = self.rng.choice([-1, -1, self.rng.randint(1, 40)]) if killed and not self.nested else -1
        try:
            what(process)
        except KilledError:
            self.counts.kills += 1
            self.start(name)
        except OffloadError:
            if self.counts.pauses == before:
                raise
        finally:
            self._kill_at = -1

    def visit(self, name: str) -> None:
        self.doing(name, Process.visit_all)

    def ask(self, name: str) -> None:
        def asked(process: Process) -> None:
            with suppress(IntegrityError, ClaimedByOtherError):  # nothing is there, or under way, or it is another's
                self.rng.choice([process.retention.delete, process.retention.undelete])(TOPIC, "me")

        self.changed = True
        self.doing(name, asked)

    def between(self, verb: Verb, key: str) -> None:
        """Between two calls of a process."""
        if self.nested or get_ident() != self._thread:
            return
        if self.kill_when is not None and self.kill_when(verb, key):
            self.kill_when = None
            raise KilledError
        if self._kill_at > 0:
            self._kill_at -= 1
            if self._kill_at == 0:
                raise KilledError
        self.nested = True
        try:
            if self.rng.random() < 0.1:
                self._step_readers()
            if self.rng.random() < (0.2 if is_note(verb, key) else 0.02):
                self.meanwhile()
        finally:
            self.nested = False

    def meanwhile(self) -> None:
        """A process is paused, and perhaps replaced by another one."""
        self.counts.pauses += 1
        self._kill_at = -1
        name = self.rng.choice(APPLICATIONS)
        if self.rng.random() < 0.7:
            self.start(name)
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice([self.visit, self.ask, lambda _: self.seal(), lambda _: self.topic_event()])(name)
            self.now += self.rng.choice([0, GRACE + 1])
        self.moved = True

    def step(self) -> None:
        name = self.rng.choice(APPLICATIONS)
        match self.rng.choice(["seal"] * 3 + ["wait"] * 3 + ["visit"] * 6 + ["ask", "mind", "topic", "start", "lost"]):
            case "seal":
                self.seal()
            case "wait":
                self.now += self.rng.randint(1, 15) * MINUTE_MS
            case "visit":
                self.visit(name)
            case "ask":
                self.ask(name)
            case "mind" if self.rng.random() < 0.5:
                self.new_policy(name)
            case "topic":
                self.topic_event()
            case "start":
                self.start(name)
            case "lost" if self.rng.random() < 0.3:
                self.rebuild()
            case _:
                self._step_readers()
        self.check()

    def begin(self, prologue: Callable[[Ages], None] | None) -> None:
        if prologue is not None:
            self.nested = True  # nothing comes between
            prologue(self)
            self.nested = False
            self.check()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def finish(self) -> None:
        """Minds do not change any more: what is under way comes to its end."""
        for reader in self.readers:
            while not reader.done:
                reader.step()
        for name in APPLICATIONS:
            self.policies[name] = RetentionPolicy()
            self.start(name)
        self.changed = True
        self.nested = True  # nobody is paused any more
        for _ in range(4 * LOOKS):
            self.now += GRACE + 1
            for name in APPLICATIONS:
                self.visit(name)
        self.nested = False
        self.check()
        pending = self.head.removed.pending
        assert pending is None or (self.left_open and not self.there), f"{pending} is under way for ever"
        found = [f for f in verify(self.store).findings if f.kind is not FindingKind.UNCOMMITTED_RECORD]
        assert all(f.kind is FindingKind.LEFT_OVER and f"/{layout.CATALOG}/" in f.key for f in found), found

    # What must hold

    @property
    def catalog(self) -> TopicCatalog:
        return Catalogs(self.store, "").load(TOPIC)

    @property
    def head(self) -> CatalogHead:
        return Catalogs(self.store, "").head(TOPIC)

    def has_begun(self, process: Process, head: CatalogHead) -> None:
        """Whether this process may have begun this, now."""
        pending, catalog = head.removed.pending, self.catalog
        assert pending is not None
        self.counts.begun += 1
        decides = last_owner(self.store, head)
        assert process.name == decides, f"{process.name} decides of what is {decides}'s"
        if head != self.head:
            return  # others have gone on since: what was true then is not to be had any more
        assert decides == self.decides
        assert not process.policy().hold
        assert self.now >= pending.not_before
        newest = catalog.segments[-1]
        goes = [s for s in catalog.segments if any(r.start <= s.start and s.end <= r.end for r in pending.ranges)]
        if self.owner and self.there and newest.start.incarnation == self.incarnation:
            assert newest not in goes, "the newest segment of a topic that goes on"
        ends = {r.start.incarnation: r.end for r in pending.ranges}
        for message in self.messages:
            end = ends.get(message.first.incarnation)
            if end is not None and message.first <= end and not self._deleted(head.removed, message.first):
                assert all(later <= end for later in message.later), "a kept message loses its beginning"

    @staticmethod
    def _deleted(removal: Removal, position: Position) -> bool:
        return range_of(removal.ranges, position) is not None

    def has_undone(self, by: str, why: str) -> None:
        self.counts.undone += 1
        self.counts.split += why.startswith("a message")
        if by == "retention":
            assert self.changed, f"nothing has changed since it was recorded, and it is undone: {why}"
            self.changed = False

    def check(self) -> None:
        """What is told as deleted was decided, each segment of it; what is kept is there."""
        catalog = self.catalog
        removed = catalog.head.removed
        names = read_names(self.store, TOPIC)
        log = self._log(catalog.head)
        begun = {each.number for each in log if isinstance(each, DeletionBegun)}
        begun -= {each.number for each in log if isinstance(each, DeletionUndone)}
        done = [r for each in log if isinstance(each, Deleted) for r in each.ranges]
        going = [r for each in log if isinstance(each, Deleting) and each.number in begun for r in each.ranges]
        for segment in catalog.segments:
            decided = any(r.start <= segment.start and segment.end <= r.end for r in (*done, *going))
            there = self.store.stat(layout.data_key(TOPIC, segment.uuid)) is not None
            assert there or decided, f"{segment.start} went without a record"
            assert (range_of(removed.absent, segment.end) is not None) == decided, f"{segment.start}: {removed}"
            assert decided or segment.uuid not in names.deleted

    def _log(self, head: CatalogHead) -> list[object]:
        return [each.record for each in Catalogs(self.store, "").history(TOPIC).read(range(head.next_slot))]

    def _step_readers(self) -> None:
        while len(self.readers) < 3:
            if not self.written:
                return
            self.readers.append(Reader(self))
        reader = self.rng.choice(self.readers)
        reader.step()
        if reader.done:
            self.readers.remove(reader)
