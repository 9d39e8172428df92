"""Signs of life of an application's shards: a small object each, written again and again.

They are hints. Nobody's topics, journals or claims follow from them: they only say when it is worth trying."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from offloader.errors import IntegrityError, ObjectNotFoundError
from offloader.json_text import parse_json
from offloader.metadata.deal import Deal, DealBy
from offloader.metadata.layout import parse_shard_key, shard_key, shards_folder
from offloader.model import KIB
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_whole

VERSION = 1
LARGEST = 4 * KIB
_NUMBERS = range(1 << 63)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the process that runs a shard says of itself. `host`: the shard whose process it is. `run`: drawn by each
    process; `beat`: counts up. `taken`: how often others had to run the shard lately."""

    index: int
    count: int
    by: str
    host: int
    run: str
    beat: int
    taken: int = 0

    def deals_as(self, deal: Deal) -> bool:
        """Whether that process deals topics out in the same way."""
        return (self.count, self.by) == (deal.count, deal.by)


class FoundSign(NamedTuple):
    """A sign of life as it lies there. `heartbeat` None: it cannot be read, but may change all the same. `modified_at`:
    in ms by the store's clock, for people; 0: it does not say."""

    data: bytes
    heartbeat: Heartbeat | None
    modified_at: int = 0


class Heartbeats:
    """All of an application's. Calls raise what the store raises."""

    def __init__(self, store: ObjectStore, application: str) -> None:
        self._store = store
        self._application = application

    def write(self, heartbeat: Heartbeat) -> None:
        """In place of the one before."""
        fields = {"version": VERSION, **{name: getattr(heartbeat, name) for name in _FIELDS}}
        self._store.put(shard_key(self._application, heartbeat.index), json.dumps(fields).encode())

    def all(self) -> Mapping[int, FoundSign]:
        """By shard. One listing, and one request each."""
        found: dict[int, FoundSign] = {}
        for key, _ in self._store.list(shards_folder(self._application)):
            index = parse_shard_key(self._application, key)
            if index is None:
                continue
            try:
                data, stat = read_whole(self._store, key, LARGEST, IntegrityError)
                found[index] = FoundSign(data, _read(index, data), stat.modified_at)
            except ObjectNotFoundError:
                continue
            except IntegrityError:
                found[index] = FoundSign(b"", None)
        return found

    def remove(self, index: int) -> None:
        """Of a shard that is no more."""
        self._store.delete([shard_key(self._application, index)])


_FIELDS = ("count", "by", "host", "run", "beat", "taken", "index")


def _read(index: int, data: bytes) -> Heartbeat | None:
    """None: it is damaged, or a newer version's."""
    try:
        fields = parse_json(data)
        numbers = {name: fields[name] for name in ("version", "count", "host", "beat", "taken")}
        if not all(type(number) is int and number in _NUMBERS for number in numbers.values()):
            return None
        if numbers["version"] > VERSION:
            return None
        by, run = DealBy(fields["by"]), str(fields["run"])
    except (KeyError, TypeError, ValueError):
        return None
    return Heartbeat(index, numbers["count"], by, numbers["host"], run, numbers["beat"], numbers["taken"])
