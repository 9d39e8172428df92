"""A topic's cursors and schemas from what the admin REST says of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote_plus

from offloader.errors import ProtocolError
from offloader.ports.topic_states import CursorLook, CursorLooks, SubscriptionTraits, TopicSchema
from offloader.pulsar.subscription_stats import acknowledged_ranges, integer, ledger_lengths, place_of, properties_of

LOADED_ONLY = "NoLedger"  # a cursor's state, until something of it is stored


def cursor_looks(internal: Any) -> CursorLooks:
    """From `internalStats`. Raises ProtocolError."""
    with _known("a topic's cursors"):
        return CursorLooks(
            ledger_lengths(internal),
            {unquote_plus(name): _look(cursor) for name, cursor in internal["cursors"].items()},
        )


def subscription_traits(stats: Any) -> dict[str, SubscriptionTraits]:
    """The durable ones, from `stats`. Raises ProtocolError."""
    with _known("a topic's subscriptions"):
        return {
            name: SubscriptionTraits(
                _truth(said.get("isReplicated", said.get("replicated", False))),
                properties_of(said.get("subscriptionProperties") or {}),
                len(said.get("consumers") or ()),
                _text(said.get("type") or ""),
            )
            for name, said in stats["subscriptions"].items()
            if _truth(said.get("isDurable", said.get("durable", True)))
        }


def partition_count(metadata: Any) -> int:
    """From `partitions`; 0: the topic is not partitioned. Raises ProtocolError."""
    with _known("a partitioned topic"):
        return _count(metadata["partitions"])


def newest_version(schema: Any) -> int:
    """From `schema`. Raises ProtocolError."""
    with _known("a schema"):
        return _count(schema["version"])


def schema_versions(answer: Any) -> tuple[TopicSchema, ...]:
    """From `schemas`. Raises ProtocolError."""
    with _known("a topic's schemas"):
        found = (_schema(one) for one in answer["getSchemaResponses"])
        return tuple(sorted(found, key=lambda one: one.version))


def _look(cursor: Mapping[str, Any]) -> CursorLook:
    properties = cursor.get("properties") or {}
    return CursorLook(
        place_of(cursor["markDeletePosition"]),
        acknowledged_ranges(cursor["individuallyDeletedMessages"]),
        tuple(sorted((_text(name), integer(value)) for name, value in properties.items())),
        cursor.get("state") == LOADED_ONLY,
        _text(cursor.get("lastLedgerSwitchTimestamp") or ""),  # the first one is the load
    )


def _schema(said: Mapping[str, Any]) -> TopicSchema:
    return TopicSchema(
        _count(said["version"]),
        _text(said["type"]),
        _text(said.get("data") or "").encode(),
        _count(said.get("timestamp", 0)),
        properties_of(said.get("properties") or {}),
    )


@contextmanager
def _known(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProtocolError(f"the broker describes {what} in a way that we do not know ({error!r})") from error


def _count(value: object) -> int:
    found = integer(value)
    if found < 0:
        raise ValueError(f"{found} is no count")
    return found


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true nor false")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")
