"""A topic's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_PARTITION = re.compile(r"-partition-(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A persistent topic, or one partition of one: `persistent://tenant/namespace/name[-partition-N]`."""

    tenant: str
    namespace_part: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read a full or a short name (`tenant/ns/name`, `name` = public/default). Raises ValueError."""
        rest = text
        if "://" in text:
            domain, _, rest = text.partition("://")
            if domain != "persistent":
                raise ValueError(f"{text!r}: only persistent topics can be offloaded")
        pieces = rest.split("/", 2)
        if len(pieces) == 1:
            pieces = ["public", "default", *pieces]
        if len(pieces) != 3 or not all(pieces):
            raise ValueError(f"{text!r} is not a topic name; write persistent://tenant/namespace/name")
        if any("\ud800" <= character <= "\udfff" for character in text):  # bytes of a command line that are no UTF-8
            raise ValueError(f"{text!r} is not a topic name; it is not UTF-8")
        return cls(*pieces)

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_part}"

    @property
    def partition(self) -> int:
        """The partition's number, -1 where the topic is not a partition."""
        match = _PARTITION.search(self.name)
        return int(match.group(1)) if match else -1

    @property
    def partitioned_name(self) -> str:
        """The partitioned topic's full name (the topic's own where it is not a partition)."""
        return _PARTITION.sub("", str(self))

    @property
    def schema_name(self) -> str:
        """What brokers call its schemas, which its partitions share."""
        return f"{self.namespace}/{quote(_PARTITION.sub('', self.name), safe='')}"

    @property
    def rest_path(self) -> str:
        """`persistent/tenant/namespace/name`, encoded for Pulsar's admin REST."""
        return f"persistent/{self.tenant}/{self.namespace_part}/{self.encoded}"

    @property
    def encoded(self) -> str:
        """The local name as it stands in an object key or a URL."""
        return quote(self.name, safe="")

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace_part}/{self.name}"
