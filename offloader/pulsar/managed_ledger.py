"""A topic's managed ledger from what the admin REST says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from offloader.errors import ProtocolError
from offloader.model import LedgerList, LedgerSpan
from offloader.pulsar.api import TopicInfo


def topic_info(info: Mapping[str, Any], stats: Mapping[str, Any]) -> TopicInfo:
    """From `internal-info` (its creation date identifies the incarnation) and `internalStats`. Raises ProtocolError."""
    try:
        return _topic_info(info, stats)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the broker describes a managed ledger in a way that we do not know ({error!r})") from error


def _topic_info(info: Mapping[str, Any], stats: Mapping[str, Any]) -> TopicInfo:
    ledgers = stats["ledgers"]
    confirmed = _position(stats["lastConfirmedEntry"])
    terminated = stats["state"] == "Terminated"
    sizes = {x["ledgerId"]: (x["entries"], x["size"]) for x in ledgers}
    spans = [LedgerSpan(x["ledgerId"], x["entries"] - 1) for x in ledgers]
    if ledgers and ledgers[-1]["entries"] == 0:
        # The last ledger's record has no count before it is closed; a terminated topic's keeps none until it is loaded again.
        current = ledgers[-1]["ledgerId"]
        # While a broker changes ledgers, the counts are for a moment those of the full one (seen with 4.0.7).
        counted = (stats["currentLedgerEntries"], stats["currentLedgerSize"])
        sizes[current] = counted if confirmed[0] == current else (0, 0)
        end = confirmed[1] if confirmed[0] == current else -1
        spans[-1] = LedgerSpan(current, end if terminated else None)
    return TopicInfo(
        created=str(info["creationDate"]),
        ledgers=LedgerList(tuple(spans)),
        sizes=sizes,
        last_confirmed=confirmed if confirmed[1] >= 0 else None,
        terminated=terminated,
        offloaded=frozenset(x["ledgerId"] for x in ledgers if x.get("offloaded")),
        subscriptions=frozenset(unquote_plus(name) for name in stats["cursors"]),
    )


def _position(text: str) -> tuple[int, int]:
    ledger, entry = text.split(":")
    return int(ledger), int(entry)
