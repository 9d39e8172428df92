"""A consumer that is led away as soon as it wants messages: what it says until then counts for nothing.

Not before that: some clients overhear what comes right behind the answer to SUBSCRIBE, and FLOW says that they listen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offloader._proto.pulsar_wire_pb2 import ConsumerStatsResponse
from offloader.gateway.core.events import EntryAck
from offloader.gateway.values import ErrorCode, RefusedError, ServedEnd
from offloader.model import Place


@dataclass(frozen=True)
class LedConsumer:
    """A `SubscribedConsumer`. `why`: where its subscription is. `lead`: leads it there."""

    partition: int
    why: str
    lead: Callable[[], None]

    def flow(self, permits: int) -> None:  # noqa: ARG002
        self.lead()

    def acknowledge(self, acks: Sequence[EntryAck]) -> None:
        """They are given to the broker, too, or come again."""

    def acknowledge_up_to(self, place: Place, left: int) -> None:
        """The same."""

    def redeliver(self, places: Sequence[Place] | None, epoch: int | None) -> None:
        """Nothing was delivered."""

    def leave(self) -> None:
        """Nobody waits for it."""

    async def stats(self) -> ConsumerStatsResponse:
        return ConsumerStatsResponse()

    async def durable(self) -> None:
        raise self._not_here()

    async def seek(self, place: Place, left: int | None) -> None:  # noqa: ARG002
        raise self._not_here()

    async def seek_time(self, published_ms: int) -> None:  # noqa: ARG002
        raise self._not_here()

    async def last_message(self) -> tuple[ServedEnd, Place]:
        raise self._not_here()

    async def unsubscribe(self) -> None:
        raise self._not_here()

    def _not_here(self) -> RefusedError:
        return RefusedError(ErrorCode.NOT_READY, self.why)
