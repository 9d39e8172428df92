"""What was seen during a recovery, bookie by bookie and entry by entry, so that its verdict can be explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from offloader.bookkeeper.model import NO_ENTRY
from offloader.bookkeeper.recovery.messages import (
    Answered,
    Distrusted,
    Event,
    MetadataRead,
    MetadataUnsettled,
    MetadataWritten,
    ReadEntry,
    ReadLast,
    WriteBack,
)
from offloader.bookkeeper.status import Answer


class Said(NamedTuple):
    """What one bookie answered. `confirmed`: the LAC that it knew, where it was asked for its last entry."""

    answer: Answer
    why: str = ""
    confirmed: int = NO_ENTRY
    damaged: bool = False


Answers = Mapping[str, Said]


class EvidenceRow(NamedTuple):
    """Consecutive entries to which the bookies answered the same."""

    first: int
    last: int
    answers: Answers

    @property
    def entries(self) -> str:
        return f"entry {self.first}" if self.first == self.last else f"entries {self.first}..{self.last}"


@dataclass
class Evidence:
    """Everything that was heard, in order. A bookie that is asked again replaces what it said before."""

    steps: list[str] = field(default_factory=list)
    last: dict[str, Said] = field(default_factory=dict)
    reads: dict[int, dict[str, Said]] = field(default_factory=dict)
    writes: dict[int, dict[str, Said]] = field(default_factory=dict)

    def record(self, event: Event) -> None:
        """Keep what an event says."""
        match event:
            case MetadataRead((metadata, version)):
                self.steps.append(f"read the metadata: {metadata.state.name}, version {version}")
            case MetadataWritten(version):
                self.steps.append(f"wrote the metadata: version {version}")
            case MetadataUnsettled(why):
                self.steps.append(f"did not get the metadata written: {why}")
            case Distrusted(bookies):
                self.steps.append(f"found that these have lost their disks: {', '.join(sorted(bookies))}")
            case Answered(ReadLast(bookie), answer, why=why, damaged=damaged):
                self.last[bookie] = Said(answer, why, event.heard, damaged)
            case Answered((ReadEntry() | WriteBack()) as request, answer, why=why, damaged=damaged):
                answers = self.reads if isinstance(request, ReadEntry) else self.writes
                answers.setdefault(request.entry, {})[request.bookie] = Said(answer, why, damaged=damaged)

    def forget(self) -> None:
        """The metadata changed: another round begins."""
        self.last, self.reads, self.writes = {}, {}, {}

    def problems(self, bookie: str) -> str:
        """Why the bookie last failed to answer; empty where it did not fail."""
        found = [self.last, *self.reads.values(), *self.writes.values()]
        said = [answers[bookie] for answers in found if bookie in answers]
        return next((s.why for s in reversed(said) if s.answer is Answer.UNKNOWN and s.why), "")


def rows(answers: Mapping[int, Answers]) -> Iterator[EvidenceRow]:
    """Runs of entries with the same answers."""
    numbered = enumerate(sorted(answers))
    for _, run in groupby(numbered, key=lambda pair: (pair[1] - pair[0], _kinds(answers[pair[1]]))):
        entries = [entry for _, entry in run]
        yield EvidenceRow(entries[0], entries[-1], answers[entries[0]])


def _kinds(answers: Answers) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((bookie, said.answer.value) for bookie, said in answers.items()))
