"""Topics with subscriptions in a simulated BookKeeper: nodes, cursor ledgers, data ledgers' metadata."""

from __future__ import annotations

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import StoredEntry
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.model import TopicName
from offloader.state.names import managed_ledger_name
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_entry, encode_cursor_node
from tests.fakes.bookkeeper import SimulatedCluster

TOPIC = TopicName.parse("public/default/t")


class StoredWorld(SimulatedCluster):
    """Three bookies that answer at once."""

    def __init__(self) -> None:
        super().__init__(1, 3, prompt=True)

    def stored(self) -> StoredTopics:
        bookies, store = self.client()
        return StoredTopics(store, bookies, 0.2)

    def topic(self, *ledgers: tuple[int, int, int], topic: TopicName = TOPIC) -> None:
        """(ledger, entries, bytes) each; without a time where both are 0."""
        info = ManagedLedgerInfo()
        for ledger, entries, size in ledgers:
            info.ledgerInfo.add(ledgerId=ledger, entries=entries, size=size, timestamp=1 if entries else 0)
        path = f"{self.metadata.uri.managed_ledgers}/{managed_ledger_name(topic)}"
        self.metadata.nodes.put(path, info.SerializeToString())

    def cursor(self, name: str, state: CursorState, topic: TopicName = TOPIC) -> None:
        self.metadata.cluster.put_cursor(topic, name, encode_cursor_node(state))

    def cursor_ledger(self, ledger: int, *states: CursorState | bytes) -> None:
        """A cursor's ledger with these entries."""
        metadata = self.create(ledger, 3, 3, 2)
        for number, state in enumerate(states):
            payload = state if isinstance(state, bytes) else encode_cursor_entry(state)
            stored = encode(StoredEntry(ledger, number, number - 1, 0, payload), digest_for(metadata))
            for bookie in self.bookies.values():
                bookie.memory.add(ledger, number, stored, master_key(b""))
