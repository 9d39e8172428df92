"""Ledgers that are bridged, among those that stock brokers have offloaded. Pure."""

from __future__ import annotations

from dataclasses import replace

from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.snapshot import OffloadedLedger
from offloader.metadata.bridged import BridgedLedgers


def without_bridged(found: FoundLedgers, bridged: BridgedLedgers) -> FoundLedgers:
    """Without the objects of a round that is under way, which may be there in part. Those of finished rounds are as our
    log says, whatever became of them: brokers own them."""
    ours = bridged.uuids
    if not ours:
        return found
    known = (_known(each, bridged) for each in found.ledgers if each.uuid not in bridged.under_way)
    told = tuple(each for each in found.contradictions if not {each.taken, each.other} & ours)
    return replace(found, ledgers=tuple(known), contradictions=told)


def _known(found: OffloadedLedger, bridged: BridgedLedgers) -> OffloadedLedger:
    ours = bridged.ledgers.get(found.start.ledger)
    if ours is None or ours.ledger.uuid != found.uuid:
        return found
    return replace(OffloadedLedger.of(ours.incarnation, ours.copy), store=found.store)
