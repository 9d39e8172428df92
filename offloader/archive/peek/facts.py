"""What is known of a position, as JSON has it and people see it."""

from __future__ import annotations

from typing import Any

from offloader.archive.peek.entry import take_apart
from offloader.archive.peek.place import Owner, Peeked
from offloader.archive.shown import time_text
from offloader.archive.snapshot import OffloadedLedger
from offloader.metadata.deletions import DeletedRange, Tombstone
from offloader.model import Loss


def peek_facts(found: Peeked, limit: int) -> dict[str, Any]:
    """All that is known of a position; a payload is opened up to `limit` bytes."""
    facts: dict[str, Any] = {"position": str(found.position), "incarnation": found.position.incarnation}
    facts |= owner_facts(found.owner)
    if found.gap is not None:
        gap = found.gap
        facts["gap"] = {"kind": str(gap.kind), "ledger": gap.ledger, "first": gap.first, "last": gap.last}
    if found.missing is not None:
        facts["missing"] = found.missing.why
    if found.stored is not None:
        facts["object"] = _object(found)
        facts["entry"] = take_apart(found.stored.entry.data, limit)
    return facts


def owner_facts(owner: Owner) -> dict[str, Any]:
    """What a record says of the positions that it accounts for."""
    place: dict[str, Any] = {"start": str(owner.start), "end": str(owner.end)}
    if isinstance(owner, Loss):
        return {"loss": place | {"reason": owner.reason, "acceptedBy": owner.accepted_by, "at": time_text(owner.at)}}
    if isinstance(owner, DeletedRange):
        return {"deleted": place | {"segments": owner.segments, "policy": owner.policy, "at": time_text(owner.at)}}
    if isinstance(owner, OffloadedLedger):
        return {"ledger": place | {"uuid": owner.uuid, "size": owner.size, "store": owner.store}}
    handed = {}
    if isinstance(owner, Tombstone) and owner.is_handed_over:
        handed = {"handedOver": {"policy": owner.policy, "at": time_text(owner.deleted_at)}}
    return {
        "segment": {
            "uuid": owner.uuid,
            **place,
            "entries": owner.entries,
            "size": owner.size,
            "crc32c": f"{owner.crc32c:08x}",
            "assigned": time_text(owner.assigned_at),
            "offloaded": time_text(owner.offloaded_at),
            "source": str(owner.source),
            "reason": str(owner.roll_reason),
            **handed,
        }
    }


def _object(found: Peeked) -> dict[str, Any]:
    stored, part = found.stored, found.part
    assert stored is not None
    facts: dict[str, Any] = {
        **({"store": found.store} if found.store else {}),
        "key": found.object_key,
        "offset": stored.offset,
        "block": {
            "number": stored.block_number,
            "offset": stored.block_offset,
            "length": stored.block.length,
            "firstEntry": stored.block.first_entry,
            "version": stored.block.version,
        },
    }
    if part is not None:
        facts["part"] = {
            "number": part.number,
            "offset": part.offset,
            "size": part.size,
            "crc32c": f"{part.crc32c:08x}",
            "unreadable": part.stats.unreadable,
        }
    return facts
