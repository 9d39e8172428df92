"""Records that stand twice: every write has a token of its own, so that a copy can be told from what it is a copy of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Executor

from offloader.archive.checking.findings import Finding, Kind
from offloader.errors import FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.envelope import unseal
from offloader.metadata.layout import KeyKind, catalog_folder, parse_topic_key, topics
from offloader.model import TopicName
from offloader.storage.base import ObjectStore


def copies(tokens: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Of records given as (key, token): those whose token another one has. Which of the two is the copy nobody can tell."""
    keys: dict[str, list[str]] = {}
    for key, token in tokens:
        keys.setdefault(token, []).append(key)
    for same in keys.values():
        for key in same if len(same) > 1 else ():
            parsed = parse_topic_key(key)
            others = ", ".join(other for other in same if other != key)
            topic = None if parsed is None else parsed.topic
            yield Finding(Kind.DAMAGED_RECORD, key, f"the same record as {others}: one of them is a copy", topic)


def tokens_elsewhere(
    store: ObjectStore, chosen: Collection[TopicName], listed: Iterable[tuple[str, int]], pool: Executor
) -> Iterator[tuple[str, str]]:
    """Keys and tokens of other topics' catalog records that may be the same as one of the chosen topics', of whose objects keys and
    sizes are `listed`: only what is as long as one of their records is read. Raises what the store raises."""
    sizes = {size for key, size in listed if _is_record(key)}

    def alike(topic: TopicName) -> list[tuple[str, str]]:
        keys = (key for key, size in store.list(catalog_folder(topic)) if size in sizes and _is_record(key))
        return [(key, token) for key in keys if (token := _token(store, key))]

    for found in pool.map(alike, (topic for topic in topics(store) if topic not in chosen)):
        yield from found


def _is_record(key: str) -> bool:
    parsed = parse_topic_key(key)
    return parsed is not None and parsed.kind is KeyKind.CATALOG


def _token(store: ObjectStore, key: str) -> str:
    """A record's token; "" where it cannot be read, which is for a check of its own topic to tell."""
    try:
        return unseal(key, store.read(key)[0]).token
    except (IntegrityError, FormatVersionError, ObjectNotFoundError):
        return ""
