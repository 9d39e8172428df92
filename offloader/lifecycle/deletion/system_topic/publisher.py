"""The mirror: a deletion is sent to the system topic when its second phase begins.

To a foreign consumer of that topic such a message is a command, so nothing is sent while there is one. It may come
between the look and the send: what it then finds is a certain orphan whose second phase has begun, and which we are
about to delete under guard. The deletion itself depends on none of this: what cannot be sent is told, and goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from offloader.errors import OffloadError
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.system_topic.interfaces import (
    NotAnnounced,
    SystemTopicChannel,
    SystemTopicEvents,
    SystemTopicName,
    SystemTopicProducer,
)
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage, message_of, write_message
from offloader.lifecycle.deletion.system_topic.topics import SystemTopics

LOOK_SECONDS = 1.0  # how old the look at the consumers may be
PAUSE_SECONDS = 60.0  # after a failure: a cluster that hangs must not make each deletion wait
TOLD_SECONDS = 600.0  # the same trouble is told again

log = logging.getLogger(__name__)


class SystemTopicPublisher:
    """Thread safe. `now`: seconds of a clock that only goes forward. `open_channel` is called when something is to be
    sent, and again after a failure."""

    def __init__(
        self,
        topics: SystemTopics,
        open_channel: Callable[[], SystemTopicChannel],
        mark: OwnMark,
        events: SystemTopicEvents,
        now: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._open_channel = open_channel
        self._mark = mark
        self._events = events
        self._now = now
        self._lock = threading.Lock()
        self._channel: SystemTopicChannel | None = None
        self._producer: SystemTopicProducer | None = None
        self._clear_until = self._paused_until = self._told_until = float("-inf")
        self._told = ""

    def announce(self, record: PendingDeleteLedgerInfo) -> bool:
        """Send a deletion whose second phase has begun; whether it was sent. Raises no OffloadError.

        It may be called again for the same record: who reads the topic sees it twice, and deletes it once."""
        message = message_of(record)
        if message is None:
            self._events.not_sent(NotAnnounced.NO_FORM)
            return False
        with self._lock:
            why = self._try_to_send(message)
        if why is None:
            self._events.sent(record.ledger_type)
        else:
            self._events.not_sent(why)
        return why is None

    def close(self) -> None:
        """Let go of the topic."""
        with self._lock:
            self._let_go()

    def _try_to_send(self, message: PendingDeleteMessage) -> NotAnnounced | None:
        if self._now() < self._paused_until:
            return NotAnnounced.FAILED
        try:
            strangers = self._look()
            if strangers:
                self._tell(f"{strangers[0]} takes it for a command to delete")
                return NotAnnounced.FOREIGN_CONSUMER
            data = write_message(message)
            self._open().send(data, self._mark.of_message(data))
        except OffloadError as error:
            self._let_go()
            self._paused_until = self._now() + PAUSE_SECONDS
            self._tell(str(error))
            return NotAnnounced.FAILED
        return None

    def _look(self) -> list[str]:
        """Who must not be sent anything. The topics are there afterwards."""
        if self._now() < self._clear_until:
            return []
        if self._producer is None:
            self._topics.make()
        before = self._now()
        strangers = self._topics.strangers(self._mark)
        self._clear_until = before if strangers else before + LOOK_SECONDS
        return strangers

    def _open(self) -> SystemTopicProducer:
        if self._channel is None:
            self._channel = self._open_channel()
        if self._producer is None:
            self._producer = self._channel.producer(SystemTopicName.DELETION)
        return self._producer

    def _let_go(self) -> None:
        producer, channel = self._producer, self._channel
        self._producer = self._channel = None
        self._clear_until = float("-inf")
        if producer is not None:
            producer.close()
        if channel is not None:
            channel.close()

    def _tell(self, why: str) -> None:
        if why == self._told and self._now() < self._told_until:
            return
        self._told, self._told_until = why, self._now() + TOLD_SECONDS
        log.warning(
            "deletions go on, and are not sent to the system topic: %s", why, extra={"see": "deletion-not-announced"}
        )
