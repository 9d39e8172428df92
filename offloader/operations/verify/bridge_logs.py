"""The bridge logs of a root, read as a whole: what they name may lie in the archive's own bucket."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from functools import partial

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.errors import FormatVersionError, IntegrityError
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.layout import KeyKind, bridge_folder, parse_topic_key
from offloader.metadata.log import READERS
from offloader.metadata.stock_keys import parse_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def read_bridges(
    store: ObjectStore, listed: Iterable[str], pool: Executor
) -> tuple[frozenset[str], tuple[Finding, ...]]:
    """The uuids of all that is bridged or being bridged, of topics that have a log among the `listed` keys, and what is
    wrong with the logs."""
    parsed = (parse_topic_key(key) for key in listed)
    topics = sorted({each.topic for each in parsed if each is not None and each.kind is KeyKind.BRIDGE})
    uuids, findings = set[str](), list[Finding]()
    for found in map_ahead(pool, partial(_read, BridgeReader(store)), topics, 2 * READERS):
        if isinstance(found, Finding):
            findings.append(found)
        else:
            uuids |= found
    return frozenset(uuids), tuple(findings)


def is_bridged(key: str, uuids: frozenset[str]) -> bool:
    """Whether a key at the bucket's root is that of an object of a bridge."""
    found = parse_key(key)
    return found is not None and found.uuid in uuids


def _read(bridges: BridgeReader, topic: TopicName) -> frozenset[str] | Finding:
    try:
        return bridges.of(topic).uuids
    except (IntegrityError, FormatVersionError) as error:
        return Finding(FindingKind.DAMAGED_RECORD, bridge_folder(topic), str(error), topic)
