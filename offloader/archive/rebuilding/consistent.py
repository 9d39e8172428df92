"""Which of the records that can be read agree with each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from offloader.archive.rebuilding.found import FoundObject
from offloader.metadata.state import Claim, LedgerClosed, Record
from offloader.model import Loss, Position, Segment

Kept = dict[int, Record]


def consistent(records: Mapping[int, Record], absent: AbstractSet[str]) -> tuple[Kept, dict[int, str]]:
    """The records that can stand in one catalog, and why the others cannot. `absent`: uuids of segments whose object is not there.

    A record that does not follow on is taken for the wrong one, unless it makes more others wrong that way than its own absence
    would: a record whose object is not there does not stand against those of objects that are.
    """
    present = {slot: r for slot, r in records.items() if not (isinstance(r, Segment) and r.uuid in absent)}
    everything, trusted = _ascending(records), _ascending(present)
    if len(everything[0]) > len(trusted[0]) or len(present) == len(records):
        return everything
    distrusted = dict.fromkeys(records.keys() - present.keys(), "it contradicts others, and its object is not there")
    return trusted[0], trusted[1] | distrusted


def absent_for(records: Mapping[int, Record], absent: AbstractSet[str], objects: tuple[FoundObject, ...]) -> dict[int, str]:
    """Records whose object is not there, though another one is that holds some of their positions."""
    found = {}
    for slot, record in records.items():
        if isinstance(record, Segment) and record.uuid in absent:
            start, end = (record.start.ledger, record.start.entry), (record.end.ledger, record.end.entry)
            other = next((o for o in objects if o.first <= end and start <= o.last), None)
            if other is not None:
                found[slot] = f"its object is not there, but {other.uuid} is, which holds some of the same positions"
    return found


def _ascending(records: Mapping[int, Record]) -> tuple[Kept, dict[int, str]]:
    kept: Kept = {}
    wrong: dict[int, str] = {}
    end: Position | None = None
    incarnation = 0
    uuids: set[str] = set()
    for slot, record in sorted(records.items()):
        its = _incarnation(record)
        problem = ""
        if its < incarnation and not isinstance(record, LedgerClosed):
            problem = f"it is of incarnation {its}, a record before it of {incarnation}"
        elif isinstance(record, Segment | Loss) and end is not None and record.start <= end:
            problem = f"it starts at {record.start}, the records before it end at {end}"
        elif isinstance(record, Segment) and record.uuid in uuids:
            problem = f"segment {record.uuid} has a record already"
        if problem:
            wrong[slot] = problem
            continue
        kept[slot] = record
        incarnation = max(incarnation, its)
        if isinstance(record, Segment | Loss):
            end = record.end
        if isinstance(record, Segment):
            uuids.add(record.uuid)
    return kept, wrong


def _incarnation(record: Record) -> int:
    return record.incarnation if isinstance(record, Claim | LedgerClosed) else record.start.incarnation
