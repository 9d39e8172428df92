"""Which shard of an application has which topic: a pure function of the topic's name and the number of shards.

A shard is an application of its own, with its own journal, claims and requests, under the name `<application>~<index>`.
Shard 0 has the plain name: an application that is not sharded is one whose only shard is that."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

from offloader.model import TopicName

SEPARATOR = "~"  # no configured name of an application has it
_KEYS = 1 << 64


class DealBy(StrEnum):
    """What is dealt out as one."""

    TOPIC = "topic"  # each partition by itself
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class Deal:
    """How `application` deals out topics, as shard `index` sees it. `index` may lie beyond `count`: nothing is dealt to
    a shard that is to end. `sharded`: there may be, or have been, other shards."""

    application: str
    index: int = 0
    count: int = 1
    by: DealBy = DealBy.TOPIC
    sharded: bool = field(default=True, compare=False)

    @property
    def name(self) -> str:
        """The name under which this shard has its journal and its claims."""
        return shard_name(self.application, self.index)

    def index_of(self, topic: TopicName) -> int:
        """To which shard a topic is dealt."""
        if self.count == 1:
            return 0
        dealt = topic.namespace if self.by is DealBy.NAMESPACE else str(topic)
        return _slot(int.from_bytes(blake2b(dealt.encode(), digest_size=8).digest()), self.count)

    def owner_of(self, topic: TopicName) -> str:
        """The name of the shard to which a topic is dealt."""
        return shard_name(self.application, self.index_of(topic))

    def is_dealt(self, topic: TopicName) -> bool:
        """Whether a topic is dealt to this shard."""
        return self.index_of(topic) == self.index


ALONE = Deal("", sharded=False)
"""Everything is dealt to whoever asks."""


def shard_name(application: str, index: int) -> str:
    """The name of an application's shard."""
    return f"{application}{SEPARATOR}{index}" if index else application


def index_of_shard(name: str) -> int:
    """Which shard has this name."""
    _, _, index = name.partition(SEPARATOR)
    return int(index or 0)


def family_of(name: str) -> str:
    """The application of which `name` is a shard."""
    return name.partition(SEPARATOR)[0]


def is_shard_of(name: str, other: str) -> bool:
    """Whether both are shards of one application, or the same one."""
    return bool(name) and family_of(name) == family_of(other)


def _slot(key: int, count: int) -> int:
    """Jump consistent hash (Lamping and Veach, 2014): even, and from n to n + 1 slots only one key in n + 1 moves,
    always to the new slot."""
    found, following = 0, 0
    while following < count:
        found = following
        key = (key * 2862933555777941757 + 1) % _KEYS
        following = (found + 1) * (1 << 31) // ((key >> 33) + 1)
    return found
