"""The topic that is restored to, in a real Pulsar."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import BrokerUnavailableError, FatalError, IntegrityError
from offloader.model import MIB, EntryRange, TopicName
from offloader.operations.restore.provenance import Origin, Outgoing, Provenance, read_provenance
from offloader.operations.restore.tail import PRODUCER, Tail, TargetContents, tail_of
from offloader.operations.restore.target_policies import APPLIED, check_policies
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.producer import EntryProducer

POLL = 0.05  # seconds


class PulsarTarget:
    """A `ports.RestoreTarget`. `new_token` makes each producer's name new: one that still closes is not in the way."""

    def __init__(
        self,
        topic: TopicName,
        origin: Origin,
        admin: AdminClient,
        source: BrokerSource,
        lookup: TopicLookup,
        new_token: Callable[[], str],
    ) -> None:
        self.topic = topic
        self._origin = origin
        self._admin = admin
        self._source = source
        self._lookup = lookup
        self._new_token = new_token
        self._producer: EntryProducer | None = None
        self._epoch: int | None = None

    def check(self) -> Tail:
        """Looks at the policies, and at what the topic holds."""
        path = TopicName.parse(self.topic.partitioned_name).rest_path  # partitions have no policies of their own
        applied = {name: self._admin.rest.get(f"{path}/{policy}", applied="true") for name, policy in APPLIED.items()}
        namespace = self._admin.namespace_policies(self.topic.namespace)
        check_policies(self.topic, applied, encryption_required=bool(namespace.get("encryption_required")))
        return self._look(settled=False)

    def attach(self) -> Tail:
        """Reads the tail before, too: nobody is fenced out of a topic that is refused."""
        self._let_go()
        self._look(settled=False)
        name = f"{PRODUCER}{self._new_token()}"
        epoch, self._epoch = self._epoch, None  # where the answer is lost, the epoch may be one further, by ourselves
        self._producer = EntryProducer.open(self._lookup, self.topic, name, epoch)
        self._epoch = self._producer.epoch
        self._settle()
        return self.tail()

    def send(self, entry: Outgoing) -> None:
        self._attached.send(entry.provenance.number, entry.data, messages=entry.messages, chunk=entry.chunk)

    def receipts(self, timeout: float) -> list[int]:
        return [receipt.sequence for receipt in self._attached.receipts(timeout)]

    def tail(self) -> Tail:
        return self._look(settled=True)

    def provenance(self, ledger: int, entry: int) -> Provenance:
        data = self._read(ledger, entry)
        found = None if data is None else read_provenance(parse_envelope(data).metadata)
        if found is None or found.origin != self._origin:
            raise IntegrityError(f"{self.topic}: its entry {ledger}:{entry} was not restored from {self._origin}")
        return found

    def close(self) -> None:
        """What was confirmed is stored: there is nothing to wait for."""
        self._let_go()

    def _look(self, *, settled: bool) -> Tail:
        return tail_of(self.topic, self._origin, self._contents(), settled=settled)

    @property
    def _attached(self) -> EntryProducer:
        if self._producer is None:
            raise FatalError(f"{self.topic}: attach first")
        return self._producer

    def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        self._lookup.forget(self.topic)
        if producer is not None:
            producer.let_go()

    def _settle(self) -> None:
        """Wait for what an earlier producer sent: the broker closes that one, and does not wait for its writes."""
        deadline = time.monotonic() + self._lookup.timeout
        while self._stats()["pendingAddEntriesCount"]:
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{self.topic}: entries of an earlier producer are still being written")
            time.sleep(POLL)

    def _contents(self) -> TargetContents:
        stats = self._stats()
        ledger, entry = map(int, stats["lastConfirmedEntry"].split(":"))
        last = (ledger, entry) if entry >= 0 else None
        publishers = self._admin.rest.get(f"{self.topic.rest_path}/stats")["publishers"]
        return TargetContents(
            entries=stats["numberOfEntries"],
            last=last,
            last_data=None if last is None or not stats["numberOfEntries"] else self._read(*last),
            producers=tuple(publisher["producerName"] for publisher in publishers),
            terminated=stats["state"] == "Terminated",
            compacted=stats["compactedLedger"]["ledgerId"] >= 0,
        )

    def _stats(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self._admin.rest.get(f"{self.topic.rest_path}/internalStats"))

    def _read(self, ledger: int, entry: int) -> bytes | None:
        """One entry, None where the broker does not deliver it. Raises BrokerUnavailableError where nothing comes."""
        gaps, _ = self._source.explain(self.topic, EntryRange(ledger, entry, entry + 1), limit=1)
        if gaps:
            return None
        with closing(self._source.open(self.topic, ledger, entry, max_bytes=MIB)) as reader:
            found = reader.read(self._lookup.timeout)
        if not found:
            raise BrokerUnavailableError(
                f"{self.topic}: its last entry {ledger}:{entry} did not come in {self._lookup.timeout:.0f} s"
            )
        return next((raw.data for raw in found if (raw.ledger, raw.entry) == (ledger, entry)), None)
