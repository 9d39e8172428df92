"""An inspection as lines for people and as fields for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata
from offloader.bookkeeper.recovery.dangers import BookieReport
from offloader.bookkeeper.recovery.evidence import EvidenceRow, Said, rows
from offloader.bookkeeper.recovery.machine import Aborted, Done
from offloader.bookkeeper.recovery.outcome import Inspection
from offloader.bookkeeper.status import Answer

_WORDS = {Answer.POSITIVE: "yes", Answer.NEGATIVE: "no", Answer.UNKNOWN: "unknown"}


def lines(found: Inspection) -> Iterator[str]:
    """All the evidence; the verdict is `found.outcome.message`."""
    yield from _of_metadata(found.versioned.metadata, found.versioned.version)
    yield from _section("bookies", (_of_bookie(report, found) for report in found.reports.values()))
    evidence = found.outcome.evidence
    yield from _section(
        "last confirmed entry that each bookie knows", (_of_last(b, said) for b, said in sorted(evidence.last.items()))
    )
    yield from _section("who has which entry", map(_of_row, rows(evidence.reads)))
    taken = "who would take which entry" if found.dry else "who took which entry that was written back"
    yield from _section(taken, map(_of_row, rows(evidence.writes)))
    yield from _section("steps", evidence.steps)
    yield from _section("dangers", map(str, found.dangers))


def fields(found: Inspection) -> dict[str, Any]:
    """The same, for JSON."""
    metadata, phase, evidence = found.versioned.metadata, found.outcome.phase, found.outcome.evidence
    return {
        "ledger": found.ledger,
        **_verdict_fields(phase),
        "replaced": [{"firstEntry": first, "bookie": bookie, "by": by} for first, bookie, by in found.outcome.replaced],
        "metadata": _metadata_fields(metadata, found.versioned.version),
        "bookies": [_bookie_fields(report, found) for report in found.reports.values()],
        "lastConfirmed": {
            bookie: {**_said_fields(said), "entry": said.confirmed} for bookie, said in evidence.last.items()
        },
        "reads": [_row_fields(row) for row in rows(evidence.reads)],
        "writes": [_row_fields(row) for row in rows(evidence.writes)],
        "steps": evidence.steps,
        "dangers": [{"kind": str(d.kind), "bookies": d.bookies, "message": d.message} for d in found.dangers],
    }


def _verdict_fields(phase: Done | Aborted) -> dict[str, Any]:
    if isinstance(phase, Aborted):
        back = {"need": phase.missing.need, "bookies": phase.missing.bookies}
        return {"outcome": "aborted", "lastEntry": None, "length": None, "reason": phase.reason, "mustComeBack": back}
    metadata, ending = phase.metadata, phase.ending.name.lower()
    end = {"lastEntry": metadata.last_entry, "length": metadata.length}
    return {"outcome": ending, **end, "reason": None, "mustComeBack": None}


def _section(title: str, texts: Iterable[str]) -> Iterator[str]:
    found = list(texts)
    if found:
        yield f"{title}:"
        yield from (f"  {text}" for text in found)


def _of_metadata(metadata: LedgerMetadata, version: int) -> Iterator[str]:
    quorums = f"write quorum {metadata.write_quorum}, ack quorum {metadata.ack_quorum}"
    end = f", last entry {metadata.last_entry}, {metadata.length} bytes" if metadata.closed else ""
    yield f"state: {metadata.state.name}{end} (version {version}, created {_time(metadata.created_ms)})"
    yield f"shape: ensemble {metadata.ensemble_size}, {quorums}, digest {metadata.digest.name}"
    yield from _section(
        "belongs to", [f"{key} = {value.decode(errors='replace')}" for key, value in sorted(metadata.custom.items())]
    )
    ensembles = [f"from entry {f.first_entry}: {', '.join(f.ensemble)}" for f in metadata.fragments]
    yield from _section("ensembles", ensembles)


def _of_bookie(report: BookieReport, found: Inspection) -> str:
    registered = {True: "registered", False: "registered, read only", None: "not registered"}[report.writable]
    cookie = "no cookie" if report.cookie_ms is None else f"cookie of {_time(report.cookie_ms)}"
    holds = f"does not say what it has ({report.problem})"
    if report.holds is not None:
        holds = f"says that it has {len(report.holds)} entries"
    doubt = "; not believed where it denies an entry" if report.bookie in found.distrusted else ""
    return f"{report.bookie}: {registered}, {cookie}, {holds}{doubt}"


def _of_last(bookie: str, said: Said) -> str:
    if said.answer is Answer.POSITIVE and not said.why:
        return f"{bookie}: {'none' if said.confirmed == NO_ENTRY else said.confirmed}"
    return f"{bookie}: {said.why}"


def _of_row(row: EvidenceRow) -> str:
    return f"{row.entries}: {', '.join(_of_answer(bookie, said) for bookie, said in sorted(row.answers.items()))}"


def _of_answer(bookie: str, said: Said) -> str:
    reason = f" ({said.why})" if said.answer is Answer.UNKNOWN and said.why else ""
    return f"{bookie} {_WORDS[said.answer]}{reason}"


def _time(ms: int | None) -> str:
    if ms is None:
        return "at an unknown time"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a year that has more than four digits
        return f"{ms} ms after 1970"


def _metadata_fields(metadata: LedgerMetadata, version: int) -> dict[str, Any]:
    return {
        "state": metadata.state.name,
        "version": version,
        "lastEntry": metadata.last_entry if metadata.closed else None,
        "length": metadata.length if metadata.closed else None,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorum": metadata.write_quorum,
        "ackQuorum": metadata.ack_quorum,
        "digest": metadata.digest.name,
        "createdMs": metadata.created_ms,
        "custom": {key: value.decode(errors="replace") for key, value in metadata.custom.items()},
        "ensembles": [{"firstEntry": f.first_entry, "bookies": f.ensemble} for f in metadata.fragments],
    }


def _bookie_fields(report: BookieReport, found: Inspection) -> dict[str, Any]:
    return {
        "bookie": report.bookie,
        "registered": report.writable is not None,
        "writable": report.writable,
        "cookieMs": report.cookie_ms,
        "entries": None if report.holds is None else len(report.holds),
        "problem": report.problem or None,
        "distrusted": report.bookie in found.distrusted,
    }


def _row_fields(row: EvidenceRow) -> dict[str, Any]:
    answers = {bookie: _said_fields(said) for bookie, said in sorted(row.answers.items())}
    return {"first": row.first, "last": row.last, "answers": answers}


def _said_fields(said: Said) -> dict[str, Any]:
    return {"answer": said.answer.value, "why": said.why or None}
