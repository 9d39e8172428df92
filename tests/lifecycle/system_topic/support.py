"""One acceptor or publisher over the topics in memory, and what it told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.deletion.records import LedgerComponent, LedgerType
from offloader.lifecycle.deletion.system_topic.acceptor import OpenDoor, SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.answers import MessageAnswer, MessageVerdict
from offloader.lifecycle.deletion.system_topic.interfaces import NotAnnounced
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage
from offloader.lifecycle.deletion.system_topic.publisher import SystemTopicPublisher
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming

from .memory import MemoryTopics

MARK = OwnMark(b"a secret of thirty-two bytes, or so")
TIMING = DeletionTiming(reconsume_later=600_000, max_tries=3)
INTERVAL = 30.0
NAMES = count()


def asked(ledger: int = 7, **fields: object) -> PendingDeleteMessage:
    return PendingDeleteMessage(
        **{
            "ledger_id": ledger,
            "ledger_type": LedgerType.LEDGER,
            "ledger_component": LedgerComponent.MANAGED_LEDGER,
            "topic_name": "acme/orders/placed",
            **fields,
        }
    )


@dataclass
class Told:
    """`SystemTopicEvents` that counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def sent(self, ledger_type: LedgerType) -> None:
        self.counts[f"sent {ledger_type}"] += 1

    def not_sent(self, why: NotAnnounced) -> None:
        self.counts[f"not sent: {why}"] += 1

    def received(self) -> None:
        self.counts["received"] += 1

    def acknowledged(self) -> None:
        self.counts["acknowledged"] += 1

    def sent_again(self) -> None:
        self.counts["sent again"] += 1

    def gave_up(self) -> None:
        self.counts["gave up"] += 1


@dataclass
class Examiner:
    """Answers as it is told, and remembers what it was asked."""

    answer: Callable[[PendingDeleteMessage], MessageAnswer] = lambda _: MessageAnswer(MessageVerdict.MARKED)
    asked: list[PendingDeleteMessage] = field(default_factory=list)

    def __call__(self, messages: Sequence[PendingDeleteMessage]) -> Sequence[MessageAnswer]:
        self.asked += messages
        return [self._answered(message) for message in messages]

    def _answered(self, message: PendingDeleteMessage) -> MessageAnswer:
        try:
            return self.answer(message)
        except OvertakenError:
            raise
        except OffloadError as error:
            return MessageAnswer(MessageVerdict.FAILED, str(error))


def acceptor(topics: MemoryTopics, examine: Examiner, told: Told | None = None) -> SystemTopicAcceptor:
    """A process: its own consumer, and nothing that is left of a former one."""
    rest = SystemTopics(topics.rest(), 4)
    door = OpenDoor(rest, topics.channel, MARK, lambda: f"c{next(NAMES)}", lambda: topics.now / 1000)
    return SystemTopicAcceptor(
        door,
        rest,
        MARK,
        examine,
        told or Told(),
        TIMING,
        INTERVAL,
        lambda: topics.now,
        lambda: topics.now / 1000,
    )


def publisher(topics: MemoryTopics, told: Told | None = None) -> SystemTopicPublisher:
    return SystemTopicPublisher(
        SystemTopics(topics.rest(), 4), topics.channel, MARK, told or Told(), lambda: topics.now / 1000
    )
