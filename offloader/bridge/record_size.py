"""How large a topic's record is, and would become. Each context stays in it as long as its ledger is listed, and
ZooKeeper takes no value above its `jute.maxbuffer`. A record that is just below could not be loaded any more: each load
writes one ledger more. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from offloader.bookkeeper.managed_ledgers import unwrapped
from offloader.bridge.core.rewrite import OffloadContextFacts, recorded, with_contexts
from offloader.config.units import format_size
from offloader.metadata.bridges import BridgedLedger
from offloader.model import TopicName

_DRIVER = "google-cloud-storage"  # the longest name that brokers may have


@dataclass(frozen=True, slots=True)
class RecordSize:
    """As it is stored. `most`: what we let it become."""

    stored: int
    compressed: bool
    most: int

    @property
    def advice(self) -> str:
        """What makes room, where more than half is taken; empty: nothing needs to."""
        if 2 * self.stored <= self.most:
            return ""
        text = (
            f"the topic's record has {format_size(self.stored)} of {format_size(self.most)} (bridge.recordSizeInBytes)"
        )
        return f"{text}: {_less(compressed=self.compressed)}"


def size_of(record: bytes, most: int) -> RecordSize:
    """Of a record as it was read. Raises DamagedObjectError."""
    return RecordSize(len(record), unwrapped(record)[0] is not None, most)


def no_room(topic: TopicName, record: bytes, ledgers: Iterable[BridgedLedger], bucket: str, most: int) -> str:
    """Why the contexts of these may not be put in, in one line that says what to do; empty: there is room. Raises
    IntegrityError."""
    named = (("bucket", urlsplit(bucket).netloc),)
    plain = {one.ledger for one in recorded(record).ledgers.values() if one.uuid is None}
    now = 1 << 41  # as long as any time is
    facts = {one.ledger: OffloadContextFacts(one.uuid, _DRIVER, named, now) for one in ledgers if one.ledger in plain}
    after = len(with_contexts(record, facts))
    if after <= most:
        return ""
    less = _less(compressed=size_of(record, most).compressed)
    return (
        f"{topic}: its record has {format_size(len(record))} in ZooKeeper, and would have {format_size(after)}, more "
        f"than bridge.recordSizeInBytes ({format_size(most)}): {less}"
    )


def _less(*, compressed: bool) -> str:
    fewer = "let the topic have fewer ledgers (retention, larger ones: managedLedgerMaxEntriesPerLedger)"
    return fewer if compressed else f"set managedLedgerInfoCompressionType=ZSTD in broker.conf, or {fewer}"
