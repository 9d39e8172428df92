"""Acknowledges within transactions: pulsar-client cannot. The coordinator and the topic may be on different brokers."""

from __future__ import annotations

from integration.pulsar.transactions import LOOKUP, TC_CLIENT_CONNECT, Fields, Transactions, _decode, _encode

SUBSCRIBE, FLOW, MESSAGE, ACK, ACK_RESPONSE, SUCCESS = 4, 11, 9, 10, 38, 13
ADD_SUBSCRIPTION_TO_TXN, ADDED = 54, 55
_SHARED, _EARLIEST = 1, 1


class Coordinator(Transactions):
    """A client of coordinator 0, on the broker that has it. Raises AssertionError where that is another.

    Where nobody has it, the broker takes it: it is told that whoever sends us to it knows.
    """

    def __init__(self, service_url: str) -> None:
        try:
            super().__init__(service_url)
        except AssertionError:
            self.close()
            raise

    def _call(
        self, kind: int, fields: Fields, payload: bytes = b"", *, answer: int, error: int = 0
    ) -> dict[int, int | bytes]:
        authoritative: Fields = {3: 1} if kind == LOOKUP else {}
        return super()._call(kind, {**fields, **authoritative}, payload, answer=answer, error=error)

    def begin_acknowledging(self, topic: str, subscription: str) -> tuple[int, int]:
        """A new transaction that will acknowledge there."""
        transaction = self.begin()
        joined = _encode({1: topic, 2: subscription})
        ids = {2: transaction[0], 3: transaction[1]}
        self._call(ADD_SUBSCRIPTION_TO_TXN, {1: self._id(), **ids, 4: joined}, answer=ADDED, error=4)
        return transaction


class Participant(Transactions):
    """A producer and a Shared consumer, on the broker that has the topic."""

    def _call(
        self, kind: int, fields: Fields, payload: bytes = b"", *, answer: int, error: int = 0
    ) -> dict[int, int | bytes]:
        if kind in (LOOKUP, TC_CLIENT_CONNECT):
            return {}
        return super()._call(kind, fields, payload, answer=answer, error=error)

    def receive(self, topic: str, subscription: str) -> tuple[int, int]:
        """The position of the first message that the subscription delivers."""
        asked: Fields = {1: topic, 2: subscription, 3: _SHARED, 4: 0, 5: self._id(), 13: _EARLIEST}
        self._call(SUBSCRIBE, asked, answer=SUCCESS)
        position = _decode(bytes(self._call(FLOW, {1: 0, 2: 1}, answer=MESSAGE)[2]))
        return int(position[1]), int(position[2])

    def acknowledge(self, position: tuple[int, int], transaction: tuple[int, int]) -> None:
        """Within a transaction."""
        message = _encode({1: position[0], 2: position[1]})
        within: Fields = {6: transaction[0], 7: transaction[1], 8: self._id()}
        self._call(ACK, {1: 0, 2: 0, 3: message, **within}, answer=ACK_RESPONSE, error=4)
