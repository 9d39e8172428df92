"""A subscription from what the admin REST says of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from offloader.errors import ProtocolError
from offloader.model import AcknowledgedRange, Place, TopicName, joined
from offloader.ports.subscriptions import SubscriptionLook, SubscriptionUse
from offloader.pulsar.managed_ledger import instant

# Guava writes two dots, or one character that looks like them.
_RANGE = re.compile(r"\((-?[0-9]{1,19}):(-?[0-9]{1,19})(?:\.\.|‥)(-?[0-9]{1,19}):(-?[0-9]{1,19})\]")
_BETWEEN = re.compile(r"[\[\],\s]*")
_PLACE = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})")
_TIMES = ("lastConsumedTimestamp", "lastAckedTimestamp", "lastMarkDeleteAdvancedTimestamp", "lastConsumedFlowTimestamp")


def subscription_look(info: Any, internal: Any, stats: Any, subscription: str) -> SubscriptionLook | None:
    """From `internal-info`, `internalStats` and `stats`. None: there is no such durable one. Raises ProtocolError."""
    try:
        cursors = {unquote_plus(name): cursor for name, cursor in internal["cursors"].items()}
        cursor, said = cursors.get(subscription), stats["subscriptions"].get(subscription)
        if cursor is None or said is None or not said.get("isDurable", said.get("durable", True)):
            return None
        return SubscriptionLook(
            created=instant(info["creationDate"]),
            mark_delete=place_of(cursor["markDeletePosition"]),
            ranges=acknowledged_ranges(cursor["individuallyDeletedMessages"]),
            consumers=len(said["consumers"]),
            backlog=_count(said["msgBacklog"]),
            last_active_ms=max(_count(said.get(name, 0)) for name in _TIMES),
            replicated=bool(said.get("isReplicated", said.get("replicated", False))),
            properties=properties_of(said.get("subscriptionProperties") or {}),
            lengths=ledger_lengths(internal),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the broker describes a subscription in a way that we do not know ({error!r})") from error


def acknowledged_ranges(text: str) -> tuple[AcknowledgedRange, ...]:
    """`[(2:4..2:5],(8:-1..8:3]]`. Raises ValueError."""
    if not _BETWEEN.fullmatch(_RANGE.sub("", text)):
        raise ValueError(f"{text[:100]!r} is no list of ranges")
    numbers = (tuple(map(int, found)) for found in _RANGE.findall(text))
    return joined(AcknowledgedRange((a, b), (c, d)) for a, b, c, d in numbers)


def subscription_uses(statistics: Any) -> Iterator[tuple[TopicName, Mapping[str, SubscriptionUse]]]:
    """From a broker's `broker-stats/topics`: each persistent topic that it has loaded. Raises ProtocolError."""
    try:
        for bundles in (statistics or {}).values():
            for bundle in bundles.values():
                for name, topic in bundle.get("persistent", {}).items():
                    yield (
                        TopicName.parse(name),
                        {
                            each: SubscriptionUse(len(one["consumers"]), _count(one.get("msgBacklog", 0)))
                            for each, one in topic.get("subscriptions", {}).items()
                        },
                    )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the broker describes its topics in a way that we do not know ({error!r})") from error


def place_of(text: str) -> Place:
    """`2:0`. Raises ValueError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no position")
    return int(found[1]), int(found[2])


def ledger_lengths(internal: Any) -> tuple[tuple[int, int | None], ...]:
    """A topic's ledgers in order with their entries, from `internalStats`, which counts none of an open one (None).
    Raises KeyError, TypeError, ValueError."""
    ledgers = [(integer(one["ledgerId"]), integer(one["entries"])) for one in internal["ledgers"]]
    return (*ledgers[:-1], *((ledger, entries or None) for ledger, entries in ledgers[-1:]))


def integer(value: object) -> int:
    """Raises ValueError."""
    if type(value) is int and abs(value) < 1 << 63:
        return value
    raise ValueError(f"{value!r} is no integer of 64 bits")


def properties_of(said: Mapping[Any, Any]) -> tuple[tuple[str, str], ...]:
    """In order of their names. Raises TypeError."""
    if not all(isinstance(text, str) for pair in said.items() for text in pair):
        raise TypeError("a property is no text")
    return tuple(sorted(said.items()))


def _count(value: object) -> int:
    """An integer of 63 bits; brokers say -1 and less where they count wrongly for a moment. Raises ValueError."""
    if type(value) is int and abs(value) < 1 << 63:
        return max(value, 0)
    raise ValueError(f"{value!r} is no count")
