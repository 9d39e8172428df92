"""Where lies what was rescued of ledgers: `_rescued/<cluster>/<ledger>/`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from offloader.metadata.layout import INDEX, RESCUED, UUID, encoded, slot_name

RESCUED_KEY = re.compile(rf"([0-9]{{20}})/(?:records/([0-9]{{20}})|([0-9]{{20}})/({UUID})(?:{INDEX})?)")


@dataclass(frozen=True, slots=True)
class RescuedKey:
    """A key of what was rescued of a ledger: the record in a slot, or (`uuid`) an object that this record may name."""

    ledger: int
    slot: int
    uuid: str = ""


def rescued_folder(cluster: str) -> str:
    """All ledgers of a cluster that were rescued, with the closing slash."""
    return f"{RESCUED}/{encoded(cluster)}/"


def rescued_ledger_folder(cluster: str, ledger: int) -> str:
    """All that was rescued of a ledger, with the closing slash."""
    return f"{rescued_folder(cluster)}{slot_name(ledger)}/"


def rescue_records_folder(cluster: str, ledger: int) -> str:
    """The records of a ledger's rescues, with the closing slash."""
    return f"{rescued_ledger_folder(cluster, ledger)}records/"


def rescued_objects_folder(cluster: str, ledger: int, slot: int) -> str:
    """The objects of a rescue whose record has, or would have, this slot; with the closing slash."""
    return f"{rescued_ledger_folder(cluster, ledger)}{slot_name(slot)}/"


def parse_rescued_key(cluster: str, key: str) -> RescuedKey | None:
    """What a key under `rescued_folder(cluster)` is, None for anything else."""
    folder = rescued_folder(cluster)
    found = RESCUED_KEY.fullmatch(key.removeprefix(folder)) if key.startswith(folder) else None
    if found is None:
        return None
    return RescuedKey(int(found[1]), int(found[2] or found[3]), found[4] or "")
