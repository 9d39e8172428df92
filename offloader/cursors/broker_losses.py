"""What a broker still knows of a subscription after it was unloaded, or after a crash. Pure.

In memory a broker knows everything. What it stores has bounds, and it drops without a word what lies beyond them: its
consumers get such messages again. Measured on Pulsar 4.0.7 and 4.2.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.ledger_acks import LedgerAcks, acks_of
from offloader.cursors.core.piece_codec import encode_piece

RANGES = "managedLedgerMaxUnackedRangesToPersist"
RANGES_IN_NODE = "managedLedgerMaxUnackedRangesToPersistInMetadataStore"
RANGES_IN_ZOOKEEPER = "managedLedgerMaxUnackedRangesToPersistInZooKeeper"  # its old name, which wins where it is set
BATCHES = "managedLedgerMaxBatchDeletedIndexToPersist"
LONG_ARRAYS = "managedLedgerPersistIndividualAckAsLongArray"
OPEN_CACHE_SETS = "managedLedgerUnackedRangesOpenCacheSetEnabled"
BATCH_INDEX = "acknowledgmentAtBatchIndexLevelEnabled"
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


class Occasion(StrEnum):
    """When a broker has nothing but what it stored."""

    UNLOAD = "unload"  # a clean one, after something was acknowledged since the topic was loaded
    IDLE_UNLOAD = "idle unload"  # a clean one, and nothing was acknowledged since the topic was loaded
    CRASH = "crash"  # once everything was written: up to a minute of acknowledgements is lost besides


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings that matter. `long_arrays`: a ledger's acknowledged entries are stored as a bit set."""

    ranges: int = 10_000
    ranges_in_node: int = 1_000
    batches: int = 10_000
    long_arrays: bool = False
    batch_index: bool = False


class BrokerLoss(NamedTuple):
    """What a broker forgets, and by which setting. `entries`: acknowledged as a whole; `batches`: a part of them."""

    occasion: Occasion
    setting: str
    entries: int
    batches: int


def defaults_of(version: str) -> BrokerSettings:
    """Of a broker's version, `4.0.7`; of one that says nothing known: those under which most is lost."""
    found = _VERSION.match(version)
    at = (int(found[1]), int(found[2])) if found else None
    return BrokerSettings(long_arrays=at is None or at >= (4, 1), batch_index=at is not None and at >= (4, 2))


def settings_of(configuration: Mapping[str, str], version: str) -> BrokerSettings:
    """From a broker's configuration as it runs; what that does not say is by its version's defaults."""
    defaults = defaults_of(version)
    in_node = _number(configuration, RANGES_IN_NODE, defaults.ranges_in_node)
    old = _number(configuration, RANGES_IN_ZOOKEEPER, 0)
    return BrokerSettings(
        ranges=_number(configuration, RANGES, defaults.ranges),
        ranges_in_node=old if old > 0 else in_node,
        batches=_number(configuration, BATCHES, defaults.batches),
        long_arrays=_truth(configuration, LONG_ARRAYS, default=defaults.long_arrays)
        and _truth(configuration, OPEN_CACHE_SETS, default=True),
        batch_index=_truth(configuration, BATCH_INDEX, default=defaults.batch_index),
    )


def left_after(cursor: CopiedCursor, occasion: Occasion, settings: BrokerSettings) -> CopiedCursor:
    """The state that the broker then has, of all that was acknowledged. Raises DamagedRecordError."""
    acks = cursor.acks()
    in_node = _is_in_node(acks, occasion, settings)
    ranges = _kept_ranges(acks, settings, long_arrays=settings.long_arrays and not in_node)
    batches = _kept_batches(acks, 0 if in_node or not settings.batch_index else settings.batches)
    pieces = {ledger: _piece(cursor, ledger, acks[ledger], ranges[ledger], batches[ledger]) for ledger in sorted(acks)}
    return replace(cursor, pieces={ledger: piece for ledger, piece in pieces.items() if piece is not None})


def broker_losses(cursor: CopiedCursor, settings: BrokerSettings) -> tuple[BrokerLoss, ...]:
    """Of all occasions; none: the broker keeps everything. Raises DamagedRecordError."""
    before = cursor.acks()
    found = []
    for occasion in Occasion:
        after = left_after(cursor, occasion, settings).acks()
        entries = sum(_entries(acks) - _entries(after.get(ledger)) for ledger, acks in before.items())
        batches = sum(len(acks.batches) - len(_batches(after.get(ledger))) for ledger, acks in before.items())
        if entries:
            found.append(BrokerLoss(occasion, RANGES, entries, 0))
        if batches:
            setting = _why_batches(_is_in_node(before, occasion, settings), settings)
            found.append(BrokerLoss(occasion, setting, 0, batches))
    return tuple(found)


def _is_in_node(acks: Mapping[int, LedgerAcks], occasion: Occasion, settings: BrokerSettings) -> bool:
    """Else the last entry of the cursor's ledger has it. A broker writes batches into the node, and never reads them
    there."""
    if occasion is Occasion.CRASH:
        return False
    count = sum(len(one.edges()[0]) for one in acks.values())
    return occasion is Occasion.IDLE_UNLOAD or settings.ranges <= 0 or count <= settings.ranges_in_node


def _kept_ranges(acks: Mapping[int, LedgerAcks], settings: BrokerSettings, *, long_arrays: bool) -> dict[int, int]:
    """Of each ledger, how many: the lowest. As ranges, one more than the setting says. As bit sets ledgers are kept
    whole, until those so far have more acknowledged *entries* than that."""
    kept, so_far = {}, 0
    for ledger, one in sorted(acks.items()):
        begins, ends = one.edges()
        if long_arrays:
            kept[ledger] = len(begins) if so_far <= settings.ranges else 0
            so_far += int((ends - begins).sum())
        else:
            kept[ledger] = min(len(begins), max(max(settings.ranges, 0) + 1 - so_far, 0))
            so_far += kept[ledger]
    return kept


def _kept_batches(acks: Mapping[int, LedgerAcks], most: int) -> dict[int, int]:
    kept, so_far = {}, 0
    for ledger, one in sorted(acks.items()):
        kept[ledger] = min(len(one.batches), max(most - so_far, 0))
        so_far += kept[ledger]
    return kept


def _piece(cursor: CopiedCursor, ledger: int, acks: LedgerAcks, ranges: int, batches: int) -> bytes | None:
    """The lowest ranges and batches of a ledger; None: nothing."""
    if ranges >= len(acks.edges()[0]) and batches >= len(acks.batches):
        return cursor.pieces[ledger]
    kept = acks_of(islice(acks.runs(), ranges), dict(sorted(acks.batches.items())[:batches]))
    return encode_piece(kept) if kept else None


def _entries(acks: LedgerAcks | None) -> int:
    if acks is None:
        return 0
    begins, ends = acks.edges()
    return int((ends - begins).sum())


def _batches(acks: LedgerAcks | None) -> Mapping[int, object]:
    return {} if acks is None else acks.batches


def _why_batches(in_node: bool, settings: BrokerSettings) -> str:  # noqa: FBT001 (private)
    if not settings.batch_index:
        return BATCH_INDEX
    return RANGES_IN_NODE if in_node else BATCHES


def _number(configuration: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(configuration.get(name, default))
    except ValueError:
        return default


def _truth(configuration: Mapping[str, str], name: str, *, default: bool) -> bool:
    return {"true": True, "false": False}.get(configuration.get(name, "").lower(), default)
