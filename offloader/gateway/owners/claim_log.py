"""The claims of topics in the bucket. Each topic's are numbered and written with put-if-absent; only the newest stays,
and it stays for ever, so that no number is used twice. All calls block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from offloader.errors import DamagedRecordError
from offloader.gateway.owners.claim import CLAIM, TopicClaim
from offloader.metadata.layout import GATEWAYS, gateway_claims_folder, parse_gateway_claim_key
from offloader.metadata.log import removing_old_records
from offloader.metadata.record_codec import RecordCodec
from offloader.metadata.records import Records, StoredRecord
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

MOST_READ = 10_000  # claims that are remembered


@dataclass(frozen=True)
class ClaimLog:
    """The claims of all topics. Safe to use from several threads."""

    store: ObjectStore
    new_token: Callable[[], str]
    _read: dict[TopicName, StoredRecord[TopicClaim]] = field(default_factory=dict)  # a number's claim never changes

    def newest(self, topic: TopicName) -> TopicClaim | None:
        """None: nobody has ever claimed it. What is damaged is nobody's claim: it holds nothing that could be lost."""
        known = self._read.get(topic)
        newest = self._records(topic).newest(known)
        if newest is not None and newest is not known:
            self._remember(newest)
        return None if newest is None else newest.record

    def append(self, claim: TopicClaim) -> bool:
        """Whether this is the newest claim now. Then the former ones are removed."""
        former = self.write(claim)
        if former is not None:
            self.remove(claim.topic, former)
        return former is not None

    def write(self, claim: TopicClaim) -> Collection[int] | None:
        """The numbers of the former claims, which are to be removed; None: this is not the newest claim now."""
        former = self._records(claim.topic).replace(claim.number, self.new_token(), claim)
        if former is not None:
            self._remember(StoredRecord(claim.number, claim))
        return former

    def remove(self, topic: TopicName, numbers: Collection[int]) -> None:
        """Former claims."""
        with removing_old_records(str(topic)):
            self._records(topic).remove(numbers)

    def newest_of_all(self) -> Mapping[TopicName, int]:
        """The newest claim's number of every topic, by one listing."""
        found: dict[TopicName, int] = {}
        for key, _ in self.store.list(f"{GATEWAYS}/"):
            claim = parse_gateway_claim_key(key)
            if claim is not None:
                found[claim[0]] = max(claim[1], found.get(claim[0], -1))
        return found

    def _remember(self, claim: StoredRecord[TopicClaim]) -> None:
        if len(self._read) >= MOST_READ:
            self._read.clear()
        self._read[claim.record.topic] = claim

    def _records(self, topic: TopicName) -> Records[TopicClaim]:
        return Records(self.store, gateway_claims_folder(topic), RecordCodec(CLAIM.encode, _decode))


def _decode(key: str, data: bytes) -> TopicClaim:
    try:
        return CLAIM.decode(key, data)
    except DamagedRecordError as error:
        log.warning("gateway: %s; the topic is claimed anew", error, extra={"see": "gateway-claim-damaged"})
        place = parse_gateway_claim_key(key)
        assert place is not None
        return TopicClaim(*place)
