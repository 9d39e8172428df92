"""The claims of topics in the bucket. Each topic's are numbered and written with put-if-absent; only the newest stays,
and it stays for ever, so that no number is used twice. All calls block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from offloader.errors import DamagedRecordError, ObjectNotFoundError, OffloadError, StoreUnavailableError
from offloader.gateway.owners.claim import TopicClaim, decode_claim, encode_claim
from offloader.metadata.layout import GATEWAYS, gateway_claims_folder, parse_gateway_claim_key, slot_name
from offloader.metadata.log import NumberedLog, read_record
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

TRIES = 20  # each is lost only to another process's progress
MOST_READ = 10_000  # claims that are remembered


@dataclass(frozen=True)
class ClaimLog:
    """The claims of all topics. Safe to use from several threads."""

    store: ObjectStore
    new_token: Callable[[], str]
    _read: dict[TopicName, TopicClaim] = field(default_factory=dict)  # a number's claim never changes

    def newest(self, topic: TopicName) -> TopicClaim | None:
        """None: nobody has ever claimed it. What is damaged is nobody's claim: it holds nothing that could be lost."""
        for _ in range(TRIES):
            numbers = self._numbers(topic)
            if not numbers:
                return None
            known = self._read.get(topic)
            if known is not None and known.number == max(numbers):
                return known
            key = self._key(topic, max(numbers))
            try:
                found = decode_claim(key, read_record(self.store, key))
            except ObjectNotFoundError:
                continue  # a newer one was made, and this one removed
            except DamagedRecordError as error:
                log.warning("gateway: %s; the topic is claimed anew", error, extra={"see": "gateway-claim-damaged"})
                return TopicClaim(topic, max(numbers))
            self._remember(found)
            return found
        raise StoreUnavailableError(f"{topic}: gateways claim it all the time")

    def append(self, claim: TopicClaim) -> bool:
        """Whether this is the newest claim now. Then the former ones are removed."""
        former = self.write(claim)
        if former is not None:
            self.remove(claim.topic, former)
        return former is not None

    def write(self, claim: TopicClaim) -> Collection[int] | None:
        """The numbers of the former claims, which are to be removed; None: this is not the newest claim now."""
        topic, number = claim.topic, claim.number
        data = encode_claim(self.new_token(), claim)
        if NumberedLog(self.store, gateway_claims_folder(topic)).append(number, data) is not None:
            return None
        numbers = self._numbers(topic)
        if max(numbers, default=number) > number:
            return None  # the number had been used and was free again: this process was late
        self._remember(claim)
        return [each for each in numbers if each < number]

    def remove(self, topic: TopicName, numbers: Collection[int]) -> None:
        """Former claims."""
        if not numbers:
            return
        try:
            self.store.delete([self._key(topic, number) for number in numbers])
        except OffloadError as error:  # the next claim removes them, too
            log.warning("%s: old records could not be removed: %s", topic, error, extra={"see": "old-records"})

    def newest_of_all(self) -> Mapping[TopicName, int]:
        """The newest claim's number of every topic, by one listing."""
        found: dict[TopicName, int] = {}
        for key, _ in self.store.list(f"{GATEWAYS}/"):
            claim = parse_gateway_claim_key(key)
            if claim is not None:
                found[claim[0]] = max(claim[1], found.get(claim[0], -1))
        return found

    def _numbers(self, topic: TopicName) -> list[int]:
        found = (parse_gateway_claim_key(key) for key, _ in self.store.list(gateway_claims_folder(topic)))
        return [claim[1] for claim in found if claim is not None]

    def _remember(self, claim: TopicClaim) -> None:
        if len(self._read) >= MOST_READ:
            self._read.clear()
        self._read[claim.topic] = claim

    def _key(self, topic: TopicName, number: int) -> str:
        return gateway_claims_folder(topic) + slot_name(number)
