"""Ledgers that brokers have offloaded by themselves: which of them the archive can read in place of segments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.bookkeeper.managed_ledgers import decode_record, offloaded_copies
from offloader.metadata.bridged import BridgedLedgers, HandedLedger
from offloader.metadata.bridges import BridgedLedger
from offloader.metadata.deletions import BrokersCopy
from offloader.model import TopicName

READ = ("", "aws-s3", "s3", "aliyun-oss")
"""Drivers whose buckets are reached as the archive is; "": the record does not say which it was."""


class OwnCopy(NamedTuple):
    """A complete copy, as Pulsar's record has it. `why_not`: why it cannot be read; empty: it can."""

    copy: BrokersCopy
    why_not: str = ""


OwnCopies = Callable[[TopicName], Mapping[int, OwnCopy]]
"""The complete copies of a topic's ledgers, as Pulsar's record has them now, whoever has made them."""


@dataclass(frozen=True, slots=True)
class ReadableLedgers:
    """What brokers have of a topic, by ledger. `unfit`: why others that its bridge is done with cannot be read there,
    and never will be by themselves."""

    ledgers: Mapping[int, HandedLedger] = field(default_factory=dict)
    unfit: Mapping[int, str] = field(default_factory=dict)


NOTHING_READABLE = ReadableLedgers()


def copies_of(record: bytes, url_of: Callable[[str], str]) -> dict[int, OwnCopy]:
    """From a managed ledger's record. `url_of`: the URL of a bucket. Raises DamagedRecordError."""
    uuids, found = offloaded_copies(record), dict[int, OwnCopy]()
    for one in decode_record(record).ledgerInfo:
        if one.ledgerId not in uuids or one.entries <= 0:
            continue
        said = one.offloadContext.driverMetadata
        bucket = next((each.value for each in said.properties if each.key == "bucket"), "")
        url = url_of(bucket) if bucket else ""
        copy = BrokersCopy(one.ledgerId, one.entries - 1, one.size, uuids[one.ledgerId], url, by_brokers=True)
        found[one.ledgerId] = OwnCopy(copy, _why_not(said.name, bucket))
    return found


def bucket_url(name: str) -> str:
    """Of a bucket that brokers reach by S3's protocol."""
    return f"s3://{name}"


def _why_not(driver: str, bucket: str) -> str:
    if driver.lower() not in READ:
        return f"with the driver {driver}, whose objects are not read here"
    return "" if bucket else "and their record names no bucket"


def readable(bridged: BridgedLedgers, own: Mapping[int, OwnCopy]) -> ReadableLedgers:
    """What is bridged, and what the bridge has passed because brokers have it by themselves. A copy behind that may be
    of a round which nobody has proven."""
    state = bridged.state
    ledgers, unfit = dict(bridged.ledgers), {each: f"ledger {each} was let go" for each in bridged.let_go}
    if state is None or state.up_to is None:
        return ReadableLedgers(ledgers, unfit)
    for ledger, found in own.items():
        copy = found.copy
        if ledger in ledgers or ledger > state.up_to.ledger or copy.uuid in bridged.under_way:
            continue
        if found.why_not:
            unfit[ledger] = f"brokers have offloaded ledger {ledger} by themselves, {found.why_not}"
            continue
        unfit.pop(ledger, None)
        one = BridgedLedger(ledger, copy.last, copy.length, copy.uuid)
        ledgers[ledger] = HandedLedger(state.incarnation, one, copy.bucket, by_brokers=True)
    return ReadableLedgers(ledgers, unfit)
