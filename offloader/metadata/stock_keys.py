"""Names in the bucket of Pulsar's own offloader, as 4.0.7 writes them. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from offloader.metadata.layout import UUID

STOCK_BUCKET = "lifecycle.stockBucket"  # the setting that names the bucket
_KEY = re.compile(rf"({UUID})-ledger-(0|[1-9][0-9]*)(-index)?")


class LedgerKey(NamedTuple):
    """An object's key, taken apart."""

    uuid: str
    ledger: int
    is_index: bool


def data_key(uuid: str, ledger: int) -> str:
    """A ledger's data object."""
    return f"{uuid}-ledger-{ledger}"


def index_key(uuid: str, ledger: int) -> str:
    """A ledger's index object."""
    return f"{uuid}-ledger-{ledger}-index"


def parse_key(key: str) -> LedgerKey | None:
    """What a key names, None where it is none of the offloader's."""
    match = _KEY.fullmatch(key)
    return None if match is None else LedgerKey(match[1], int(match[2]), match[3] is not None)
