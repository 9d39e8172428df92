"""The door: what others send to the system topic is looked at, as a candidate and nothing more.

A message is acknowledged once it has its answer, or once its letter is sent. These are two steps: whoever is stopped
between them sees the message twice, and marks its ledger once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from offloader.errors import DamagedRecordError, OffloadError, OvertakenError
from offloader.lifecycle.deletion.system_topic.answers import ExamineAll, MessageAnswer, MessageVerdict
from offloader.lifecycle.deletion.system_topic.interfaces import (
    ArrivedMessage,
    SystemTopicChannel,
    SystemTopicConsumer,
    SystemTopicEvents,
    SystemTopicName,
    SystemTopicProducer,
)
from offloader.lifecycle.deletion.system_topic.letters import early_by, failed_letter
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage, read_message, write_message
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.model import KIB
from offloader.printable import printable

SHARE = 100  # messages of one run
SHARE_SECONDS = 10.0
PATIENCE = 1.0  # how long a run waits for a first message
LARGEST = 64 * KIB  # of a message; one of PIP-186's has some hundred bytes
SOON = 1.0  # when a whole share came: there is more
RECONNECTS = 60.0  # seconds that a client may take by itself, before it is opened anew
LOOKS = 60.0  # seconds between two looks whether the topics are still those that were opened

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Candidate:
    arrived: ArrivedMessage
    message: PendingDeleteMessage


class SystemTopicAcceptor:
    """A `LifecycleTask`. `interval`: seconds between two runs while nothing comes. `now`: ms since the epoch; `clock`:
    seconds, only forward."""

    name = "system-topic"

    def __init__(
        self,
        door: OpenDoor,
        topics: SystemTopics,
        mark: OwnMark,
        examine: ExamineAll,
        events: SystemTopicEvents,
        timing: DeletionTiming,
        interval: float,
        now: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._door = door
        self._topics = topics
        self._mark = mark
        self._examine = examine
        self._events = events
        self._timing = timing
        self._interval = interval
        self._now = now
        self._clock = clock

    def run(self) -> float:
        """See `LifecycleTask.run`: a share of what is there."""
        try:
            self._topics.forget_schemas()
            self._door.renew()
            came, more = self._receive()
            self._answer([found for each in came if (found := self._candidate(each)) is not None])
        except BaseException:
            self._door.shut()  # what has no answer comes again
            raise
        return SOON if more else self._interval

    def close(self) -> None:
        """Let go of the topics."""
        self._door.shut()

    def _receive(self) -> tuple[list[ArrivedMessage], bool]:
        """What came, and whether there may be more. Large ones are let go of at once: a share of them needs no
        memory."""
        consumer, until = self._door.consumer(), self._clock() + SHARE_SECONDS
        found: list[ArrivedMessage] = []
        taken, patience = 0, PATIENCE
        while taken < SHARE and self._clock() < until:
            arrived = consumer.receive(patience)
            if arrived is None:
                return found, False
            patience, taken = 0.0, taken + 1
            self._events.received()
            if arrived.size > LARGEST:
                self._invalid(arrived, f"it has {arrived.size} bytes")
            else:
                found.append(arrived)
        return found, True

    def _candidate(self, arrived: ArrivedMessage) -> _Candidate | None:
        """None: it has its answer, or comes again."""
        if self._mark.is_on_message(arrived.data, arrived.properties):
            self._acknowledge(arrived)  # our own: it is in the queue, or has been
            return None
        if early_by(arrived.properties, arrived.published, self._now(), self._timing):
            self._door.consumer().put_back(arrived)
            return None
        try:
            message = self._read(arrived)
        except DamagedRecordError as error:
            self._invalid(arrived, str(error))
        except OffloadError as error:
            self._put_back(arrived, f"its schema cannot be read: {error}")
        else:
            return _Candidate(arrived, message)
        return None

    def _read(self, arrived: ArrivedMessage) -> PendingDeleteMessage:
        version = arrived.schema_version
        written = None if version is None else self._topics.schema(arrived.topic, version)
        return read_message(arrived.data, written)

    def _answer(self, candidates: list[_Candidate]) -> None:
        """What many ask for is looked at once."""
        messages = list({one.message: None for one in candidates})
        if not messages:
            return
        answers = dict(zip(messages, self._answers(messages), strict=True))
        for one in candidates:
            answer = answers[one.message]
            if answer.verdict is MessageVerdict.FAILED:
                self._send_letter(one, answer.why)
            else:
                self._told(one, answer)
                self._acknowledge(one.arrived)

    def _answers(self, messages: list[PendingDeleteMessage]) -> list[MessageAnswer]:
        try:
            return list(self._examine(messages))
        except OvertakenError:
            raise
        except OffloadError as error:
            return [MessageAnswer(MessageVerdict.FAILED, str(error))] * len(messages)

    def _send_letter(self, one: _Candidate, why: str) -> None:
        """Written anew: a letter's topic has schemas of its own."""
        arrived, why = one.arrived, printable(why)
        letter = failed_letter(
            arrived.properties, arrived.topic, arrived.message_id, arrived.redeliveries, why, self._timing
        )
        topic = SystemTopicName.DEAD if letter.delay is None else SystemTopicName.RETRY
        try:
            self._door.letters(topic).send(write_message(one.message), letter.properties, letter.delay or 0)
        except OffloadError as error:
            self._door.drop_letters(topic)
            self._put_back(arrived, f"its letter cannot be sent: {error}")
            return
        if letter.delay is None:
            self._events.gave_up()
            log.warning(
                "given up after its last try, and sent to %s: message=%s: %s",
                topic.value,
                arrived.message_id,
                why,
                extra={"see": "deletion-message-given-up"},
            )
        else:
            self._events.sent_again()
        self._acknowledge(arrived)

    def _invalid(self, arrived: ArrivedMessage, why: str) -> None:
        log.warning(
            "passed over, message=%s of %s: %s",
            arrived.message_id,
            printable(arrived.topic),
            printable(why)[:500],
            extra={"see": "deletion-message-invalid"},
        )
        self._acknowledge(arrived)

    def _told(self, one: _Candidate, answer: MessageAnswer) -> None:
        if answer.verdict is MessageVerdict.REQUESTED:
            log.warning(
                "waits for an operator, asked for by message=%s: ledger=%s: %s",
                one.arrived.message_id,
                one.message.ledger_id,
                printable(answer.why),
                extra={"see": "deletion-request-waits"},
            )
            return
        log.info(
            "asked for by message=%s: ledger=%s: %s %s",
            one.arrived.message_id,
            one.message.ledger_id,
            answer.verdict,
            printable(answer.why),
        )

    def _put_back(self, arrived: ArrivedMessage, why: str) -> None:
        self._door.consumer().put_back(arrived)
        log.warning(
            "comes again, message=%s: %s", arrived.message_id, printable(why), extra={"see": "deletion-message-waits"}
        )

    def _acknowledge(self, arrived: ArrivedMessage) -> None:
        with suppress(OffloadError):  # it comes again, and gets the same answer
            self._door.consumer().acknowledge(arrived)
            self._events.acknowledged()


class OpenDoor:
    """What is open of a client while the door is open: its consumer, and where letters go.

    Opened when it is first used, and anew after it was shut. `new_name`: of a consumer, one that no other has.

    A topic may be deleted while it is consumed. Its consumer is then not connected any more; or it has made its
    partition anew, where nobody sends anything, and seems to be well. Both are opened anew, and the topics made.
    `clock`: seconds, only forward."""

    def __init__(
        self,
        topics: SystemTopics,
        open_channel: Callable[[], SystemTopicChannel],
        mark: OwnMark,
        new_name: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._open_channel = open_channel
        self._mark = mark
        self._new_name = new_name
        self._clock = clock
        self._channel: SystemTopicChannel | None = None
        self._consumer: SystemTopicConsumer | None = None
        self._letters: dict[SystemTopicName, SystemTopicProducer] = {}
        self._lost_at: float | None = None
        self._shape: tuple[int | None, ...] = ()
        self._looked_at = 0.0

    def consumer(self) -> SystemTopicConsumer:
        """The consumer. Raises OffloadError where it cannot be opened."""
        if self._consumer is None:
            self._topics.make()
            self._shape, self._looked_at = self._topics.shape(), self._clock()
            name = self._new_name()
            self._consumer = self._opened().consumer(name, self._mark.of_consumer(name))
            self._lost_at = None
        return self._consumer

    def renew(self) -> None:
        """Shut what has lost its topics for good."""
        if self._consumer is not None and (self._was_lost(self._consumer) or self._are_others()):
            self.shut()

    def letters(self, topic: SystemTopicName) -> SystemTopicProducer:
        """Where letters of one kind go. Raises OffloadError."""
        if topic not in self._letters:
            self._letters[topic] = self._opened().producer(topic)
        return self._letters[topic]

    def drop_letters(self, topic: SystemTopicName) -> None:
        """After a failure: the next letter needs a new producer."""
        producer = self._letters.pop(topic, None)
        if producer is not None:
            producer.close()

    def shut(self) -> None:
        """Close everything. What was not acknowledged comes again."""
        for topic in list(self._letters):
            self.drop_letters(topic)
        consumer, channel = self._consumer, self._channel
        self._consumer = self._channel = None
        self._lost_at = None
        if consumer is not None:
            consumer.close()
        if channel is not None:
            channel.close()

    def _opened(self) -> SystemTopicChannel:
        if self._channel is None:
            self._channel = self._open_channel()
        return self._channel

    def _are_others(self) -> bool:
        if self._clock() - self._looked_at < LOOKS:
            return False
        self._looked_at = self._clock()
        return self._topics.shape() != self._shape

    def _was_lost(self, consumer: SystemTopicConsumer) -> bool:
        if consumer.is_connected:
            self._lost_at = None
            return False
        if self._lost_at is None:
            self._lost_at = self._clock()
        return self._clock() - self._lost_at > RECONNECTS
