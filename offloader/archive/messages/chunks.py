"""Chunked messages put together, by the rules of Pulsar's consumers; and the look back for a message's first chunks.

Chunks of several producers interleave; a chunk that comes again (sent anew after a reconnect) is left out; a message
whose chunk does not follow on is broken; chunk 0 always begins anew. Unlike consumers, which drop a broken message, its
last chunk gives a row that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from offloader.archive.items import EntryRun
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.archive.messages.message import MessageProblem, Payload
from offloader.errors import DamagedObjectError
from offloader.model import MIB, Position

_REMEMBERED = 10_000
_CHUNK = 200  # bytes that a chunk takes beside its payload

LOOK_BACK = 64 * MIB

ChunkKey = tuple[str, str]
"""Producer name and the chunked message's uuid."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One of a message's chunks. `payload` is None where it stays encrypted."""

    key: ChunkKey
    number: int
    total: int
    position: Position
    payload: bytes | None

    @property
    def is_edge(self) -> bool:
        """Whether what was before it does not matter: a message begins or ends with it."""
        return self.number in (0, self.total - 1)


LookBack = Callable[[Position], Iterator[EntryRun]]
"""Gives the runs before a position, the nearest first, as many as are taken; ends where the archive begins."""


class ChunkHistory:
    """The chunks before `start`. At most `limit` bytes of entries are read, once, whatever is asked for."""

    def __init__(
        self,
        look_back: LookBack | None,
        start: Position,
        open_chunk: Callable[[Position, Envelope], Chunk],
        limit: int = LOOK_BACK,
    ) -> None:
        self._runs = iter(()) if look_back is None else look_back(start)
        self._end = MessageProblem.CHUNKS_TOO_FAR if look_back is None else MessageProblem.CHUNKS_MISSING
        self._open_chunk = open_chunk
        self._left = limit
        self._found: dict[ChunkKey, list[Chunk]] = {}

    def chunks_of(self, key: ChunkKey) -> list[Chunk] | MessageProblem:
        """A message's chunks from the last edge on, in order; or why there is none."""
        while True:
            found = self._found.get(key, [])
            if found and found[-1].is_edge:
                return found[::-1]
            if self._left <= 0:
                return MessageProblem.CHUNKS_TOO_FAR
            run = next(self._runs, None)
            if run is None:
                return self._end
            self._left -= run.bounds[-1] - run.bounds[0] if run.bounds else 0
            self._collect(run)

    def _collect(self, run: EntryRun) -> None:
        for position, data in reversed(list(run.entries())):
            chunk = self._chunk(position, data)
            if chunk is None:
                continue
            found = self._found.setdefault(chunk.key, [])
            if not found or not found[-1].is_edge:
                found.append(chunk)

    def _chunk(self, position: Position, data: bytes) -> Chunk | None:
        try:
            envelope = parse_envelope(data)
            return self._open_chunk(position, envelope) if envelope.is_chunk else None
        except DamagedObjectError:
            return None  # what is no message is no chunk either; a chunk that is missing for it will be told


@dataclass(slots=True)
class _Pending:
    """Chunks of a message that is not complete, and about how many bytes they take. `headless`: its chunk 0 was not
    read, nothing is known of what came before."""

    headless: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    size: int = 0
    problem: MessageProblem | None = None

    def add(self, chunk: Chunk) -> None:
        if self.problem is not None:
            return
        if self.headless or chunk.number == len(self.chunks):
            self.chunks.append(chunk)
            self.size += _CHUNK + len(chunk.payload or b"")
        elif chunk.number > len(self.chunks):
            self.give_up(MessageProblem.CHUNKS_MISSING)

    def give_up(self, problem: MessageProblem) -> None:
        self.problem = problem
        self.chunks.clear()
        self.size = 0


class Assembler:
    """Takes chunks in the topic's order; `past` gives those before the first entry that was read.

    Holds at most `limit` bytes: beyond, it gives up the oldest message, and one that is larger by itself.
    """

    def __init__(self, past: Callable[[ChunkKey], list[Chunk] | MessageProblem], limit: int) -> None:
        self._past = past
        self._limit = limit
        self._size = 0
        self._pending: dict[ChunkKey, _Pending] = {}
        self._held: dict[ChunkKey, None] = {}  # those pending messages that have chunks, the oldest first
        self._ended: dict[ChunkKey, None] = {}  # a last chunk that comes again is no message

    def add(self, chunk: Chunk) -> Payload | None:
        """The whole payload, still compressed, once its last chunk is there."""
        pending = self._pending_of(chunk)
        if pending is None:
            return None
        before = pending.size
        pending.add(chunk)
        self._size += pending.size - before
        if pending.problem is not None:
            self._held.pop(chunk.key, None)
        if pending.size > self._limit:
            self._give_up(chunk.key, MessageProblem.TOO_LARGE)
        if chunk.number < chunk.total - 1:
            self._make_room(chunk.key)
            return None
        self._end(chunk.key)
        return self._assembled(pending, chunk)

    def _pending_of(self, chunk: Chunk) -> _Pending | None:
        """What is known of the chunk's message; None where it has ended."""
        if chunk.number == 0:
            self._end(chunk.key)
            self._ended.pop(chunk.key, None)
        elif chunk.key in self._ended:
            return None
        if chunk.key not in self._pending:
            self._pending[chunk.key] = _Pending(headless=chunk.number > 0)
            self._held[chunk.key] = None
        return self._pending[chunk.key]

    def _end(self, key: ChunkKey) -> None:
        pending = self._pending.pop(key, None)
        self._held.pop(key, None)
        if pending is not None:
            self._size -= pending.size
        self._ended[key] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _make_room(self, latest: ChunkKey) -> None:
        while self._size > self._limit:
            self._give_up(next(key for key in self._held if key != latest), MessageProblem.CHUNKS_DROPPED)
        if len(self._pending) > _REMEMBERED:
            self._end(next(iter(self._pending)))

    def _give_up(self, key: ChunkKey, problem: MessageProblem) -> None:
        pending = self._pending[key]
        self._size -= pending.size
        pending.give_up(problem)
        del self._held[key]

    def _assembled(self, pending: _Pending, last: Chunk) -> Payload | None:
        if pending.problem is None and last.payload is None:
            return Payload(None, MessageProblem.UNDECRYPTABLE)
        if pending.headless and pending.problem is None:
            past = self._past(last.key)
            if isinstance(past, MessageProblem):
                return Payload(None, past)
            return self._replayed([*past, *pending.chunks])
        return self._joined(pending)

    def _replayed(self, chunks: list[Chunk]) -> Payload | None:
        """What the last of these chunks gives, the first one being an edge; None where it only comes again."""
        pending = _Pending()
        for chunk in chunks[:-1]:
            pending.add(chunk)
            if chunk.number == chunk.total - 1:
                return None
        pending.add(chunks[-1])
        return self._joined(pending)

    def _joined(self, pending: _Pending) -> Payload:
        if pending.size > self._limit:
            pending.give_up(MessageProblem.TOO_LARGE)
        if pending.problem is not None:
            return Payload(None, pending.problem)
        first = pending.chunks[0].position
        payloads = [chunk.payload for chunk in pending.chunks if chunk.payload is not None]
        if len(payloads) < len(pending.chunks):
            return Payload(None, MessageProblem.UNDECRYPTABLE, first)
        return Payload(b"".join(payloads), None, first)
