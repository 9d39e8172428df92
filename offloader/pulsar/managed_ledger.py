"""A topic's managed ledger from what the admin REST says of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import unquote_plus

from offloader.errors import BrokerUnavailableError, ProtocolError
from offloader.model import LedgerList, LedgerSpan
from offloader.ports.admin import TopicInfo
from offloader.printable import printable

PIN_PROPERTY = "pin"
"""The property of our subscriptions that has their token. Brokers store properties when a subscription is made; later
subscribers change nothing."""
LAZY_CURSORS = "lazyCursorRecovery"
"""The setting of brokers that load a topic before its cursors. They show the properties of the first subscriber after
the load, not those stored with the cursor."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def topic_info(info: Mapping[str, Any], stats: Mapping[str, Any]) -> TopicInfo:
    """From `internal-info` (its creation date identifies the incarnation) and `internalStats`. Raises ProtocolError."""
    try:
        return _topic_info(info, stats)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProtocolError(
            f"the broker describes a managed ledger in a way that we do not know ({error!r})"
        ) from error


def _topic_info(info: Mapping[str, Any], stats: Mapping[str, Any]) -> TopicInfo:
    ledgers = stats["ledgers"]
    confirmed = _position(stats["lastConfirmedEntry"])
    terminated = stats["state"] == "Terminated"
    sizes = {_count(x["ledgerId"]): (_count(x["entries"]), _count(x["size"])) for x in ledgers}
    spans = [LedgerSpan(x["ledgerId"], x["entries"] - 1) for x in ledgers]
    if ledgers and ledgers[-1]["entries"] == 0:
        # The last ledger's record has no count before it is closed; a terminated topic's keeps none until it is loaded
        # again.
        current = ledgers[-1]["ledgerId"]
        # While a broker changes ledgers, the counts are for a moment those of the full one (seen with 4.0.7).
        counted = (_count(stats["currentLedgerEntries"]), _count(stats["currentLedgerSize"]))
        sizes[current] = counted if confirmed[0] == current else (0, 0)
        end = confirmed[1] if confirmed[0] == current else -1
        spans[-1] = LedgerSpan(current, end if terminated else None)
    return TopicInfo(
        created=instant(info["creationDate"]),
        ledgers=LedgerList(tuple(spans)),
        sizes=sizes,
        last_confirmed=confirmed if confirmed[1] >= 0 else None,
        terminated=terminated,
        offloaded=frozenset(x["ledgerId"] for x in ledgers if x.get("offloaded")),
        subscriptions=frozenset(unquote_plus(name) for name in stats["cursors"]),
        written=_written(info.get("ledgers", ())),
    )


def _written(ledgers: Sequence[Mapping[str, Any]]) -> Mapping[int, tuple[int, int]]:
    """When each was opened and closed: it was opened when the one before was closed. An open one has no count, and its
    time is made up; the clocks of several brokers may contradict each other."""
    dated = {_count(x["ledgerId"]): x.get("timestamp") if x.get("entries") else None for x in ledgers}
    found = {}
    for before, after in pairwise(sorted(dated)):
        opened, closed = dated[before], dated[after]
        if isinstance(opened, int) and isinstance(closed, int) and 0 < opened <= closed:
            found[after] = (opened, closed)
    return found


def offloaded_copies(info: Mapping[str, Any], stats: Mapping[str, Any]) -> Mapping[int, str]:
    """See `Admin.offloaded_copies`; from `internal-info`, which has the uuids, but says of copies that failed as well
    that they are offloaded, and `internalStats`, which tells these apart. Raises ProtocolError."""
    complete = topic_info(info, stats).offloaded
    try:
        uuids = {int(one["ledgerId"]): str(one.get("offloadedContextUuid") or "") for one in info["ledgers"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"the broker describes a managed ledger in a way that we do not know ({error!r})"
        ) from error
    return {ledger: uuid for ledger, uuid in uuids.items() if ledger in complete and uuid}


def pin_token(stats: Any, subscription: str) -> str | None:
    """See `Admin.pin_token`; from a topic's `stats`. Raises ProtocolError."""
    try:
        found = stats["subscriptions"].get(subscription)
        if found is None:
            raise BrokerUnavailableError(f"the subscription {subscription} is not there now")
        properties = found.get("subscriptionProperties")
        if properties is None:
            return None
        token = properties.get(PIN_PROPERTY, "")
    except (KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"the broker describes a topic's subscriptions in a way that we do not know ({error!r})"
        ) from error
    if not isinstance(token, str):
        raise ProtocolError(f"the broker says that the subscription's token is of type {type(token).__name__}")
    return token


def keeps_properties(version: str) -> bool:
    """Whether a broker stores a subscription's properties: since 2.10.1. Before, it showed those of the first
    subscriber after each load. Raises BrokerUnavailableError for what is no version: then no broker has answered."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
    if found is None:
        raise BrokerUnavailableError(f"the broker says that its version is {printable(version[:40])}, which is none")
    return tuple(int(part or 0) for part in found.groups()) >= (2, 10, 1)


def instant(text: str) -> int:
    """Milliseconds of a date as brokers write it: ISO 8601 with the offset of their time zone. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} does not say in which time zone")
    return (at - EPOCH) // timedelta(milliseconds=1)


def _position(text: str) -> tuple[int, int]:
    ledger, entry = text.split(":")
    return _count(int(ledger), least=-1), _count(int(entry), least=-1)


def _count(value: object, least: int = 0) -> int:
    """A broker's count: an integer of 63 bits, nothing that only looks like one. Raises ValueError."""
    if type(value) is int and least <= value < 1 << 63:
        return value
    raise ValueError(f"{value!r} is no count")
