"""Looks back before the entries that are read, for a message's first chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offloader.archive.items import EntryRun
from offloader.archive.messages.envelope import Envelope, parse_envelope
from offloader.archive.messages.message import MessageProblem
from offloader.errors import DamagedObjectError
from offloader.model import MIB, Position

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
