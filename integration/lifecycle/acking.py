"""Acknowledges within transactions: pulsar-client cannot."""

from __future__ import annotations

from integration.pulsar.transactions import TTL_MS, Transactions, _decode, _encode

SUBSCRIBE, FLOW, MESSAGE, ACK, ACK_RESPONSE = 4, 11, 9, 10, 38
ADD_SUBSCRIPTION_TO_TXN, ADDED = 54, 55
__all__ = ["TTL_MS", "AckingTransactions"]


class AckingTransactions(Transactions):
    """A client of transaction coordinator 0 that also has a consumer."""

    def acknowledge_one(self, topic: str, subscription: str, *, commit: bool) -> None:
        """The first message that a Shared subscription delivers, in a transaction of its own."""
        transaction = self.begin()
        ledger, entry = self._receive_one(topic, subscription)
        joined = _encode({1: topic, 2: subscription})
        ids = {2: transaction[0], 3: transaction[1]}
        self._call(ADD_SUBSCRIPTION_TO_TXN, {1: self._id(), **ids, 4: joined}, answer=ADDED, error=4)
        message = _encode({1: ledger, 2: entry})
        within = {6: transaction[0], 7: transaction[1]}
        self._call(ACK, {1: 0, 2: 0, 3: message, **within, 8: self._id()}, answer=ACK_RESPONSE, error=4)
        self.end(transaction, commit=commit)

    def _receive_one(self, topic: str, subscription: str) -> tuple[int, int]:
        self._call(SUBSCRIBE, {1: topic, 2: subscription, 3: 1, 4: 0, 5: self._id(), 13: 1}, answer=13)
        message = self._call(FLOW, {1: 0, 2: 1}, answer=MESSAGE)
        position = _decode(bytes(message[2]))
        return int(position[1]), int(position[2])
