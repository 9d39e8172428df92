"""A recovery that is told what bookies answer, without any."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState, Versioned
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Aborted, Done, Recovery, RecoveryRules, start, step
from offloader.bookkeeper.recovery.messages import (
    Answered,
    BookieRequest,
    Event,
    Held,
    MetadataRead,
    MetadataUnsettled,
    MetadataWritten,
    ReadLast,
    ReadMetadata,
    Request,
    WriteBack,
    WriteMetadata,
)
from offloader.bookkeeper.status import Answer

YES, NO, UNKNOWN = Answer.POSITIVE, Answer.NEGATIVE, Answer.UNKNOWN


def ledger(
    write_quorum: int = 3,
    ack_quorum: int = 2,
    *fragments: tuple[int, str],
    state: LedgerState = LedgerState.OPEN,
    **more: Any,
) -> LedgerMetadata:
    """Fragments as (first entry, names of one letter)."""
    found = tuple(Fragment(first, tuple(names)) for first, names in fragments or [(0, "abc"[:write_quorum])])
    return LedgerMetadata(len(found[-1].ensemble), write_quorum, ack_quorum, state, found, **more)


def held(entry: int, last_confirmed: int = -1) -> Held:
    """Entry e has e + 1 bytes."""
    return Held(entry, last_confirmed, sum(range(entry + 2)), b"stored %d" % entry)


@dataclass
class World:
    """Answers for the machine: what bookies hold, and which of them do not answer.

    `lacs`: what each bookie's last entry says; `silent`: bookies that never say anything; `refuse`: those that take
    nothing; `unsettled`: how often a write of metadata comes to nothing; `between`: done after such a write, by
    somebody else.
    """

    metadata: LedgerMetadata
    entries: dict[str, set[int]] = field(default_factory=dict)
    lacs: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    damaged: set[tuple[str, int]] = field(default_factory=set)
    refuse: set[str] = field(default_factory=set)
    unsettled: int = 0
    between: list[Any] = field(default_factory=list)
    version: int = 7
    asked: list[Request] = field(default_factory=list)
    fenced: set[str] = field(default_factory=set)

    def answer(self, request: Request) -> Event:
        self.asked.append(request)
        match request:
            case ReadMetadata():
                return MetadataRead(Versioned(self.metadata, self.version))
            case WriteMetadata(metadata, version):
                return self._write(metadata, version)
            case _:
                return unanswered(request) if request.bookie in self.silent else self._of_bookie(request)

    def _write(self, metadata: LedgerMetadata, version: int) -> Event:
        if self.between:
            self.between.pop(0)(self)
        if version != self.version:
            return MetadataUnsettled("somebody else wrote")
        self.metadata, self.version = metadata, version + 1
        if self.unsettled:
            self.unsettled -= 1
            return MetadataUnsettled("the answer was lost")
        return MetadataWritten(self.version)

    def _of_bookie(self, request: BookieRequest) -> Answered:
        holds = self.entries.setdefault(request.bookie, set())
        if isinstance(request, WriteBack):
            if request.bookie in self.refuse:
                return unanswered(request)
            if not request.dry:
                holds.add(request.entry)
            return Answered(request, YES)
        if request.fence:
            self.fenced.add(request.bookie)
        if isinstance(request, ReadLast):
            lac = self.lacs.get(request.bookie, -1)
            return Answered(request, YES, held(max(holds), lac)) if holds else Answered(request, NO)
        if (request.bookie, request.entry) in self.damaged:
            return Answered(request, UNKNOWN, damaged=True)
        return Answered(request, YES, held(request.entry)) if request.entry in holds else Answered(request, NO)


def unanswered(request: BookieRequest) -> Answered:
    return Answered(request, UNKNOWN, why="no answer")


def run(world: World, rules: RecoveryRules | None = None, *, last_first: bool = False) -> Recovery:
    """To the end. Answers come in the order of the requests, or the newest first."""
    state, requests = start(rules or RecoveryRules())
    todo: deque[Request] = deque(requests)
    while todo and not state.over:
        state, more = step(state, world.answer(todo.pop() if last_first else todo.popleft()))
        todo.extend(more)
    assert state.over, state
    return state


def closed(state: Recovery) -> tuple[int, int]:
    """Last entry and length."""
    assert isinstance(state.phase, Done), state.phase
    return state.phase.metadata.last_entry, state.phase.metadata.length


def aborted(state: Recovery) -> Aborted:
    assert isinstance(state.phase, Aborted), state.phase
    return state.phase


def kinds(requests: Iterable[Request], kind: type[Request]) -> list[Any]:
    return [request for request in requests if isinstance(request, kind)]


def window(size: int, *, dry: bool = False) -> RecoveryRules:
    return RecoveryRules(Reading(size, dry))
