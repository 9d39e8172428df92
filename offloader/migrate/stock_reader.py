"""A topic as Pulsar's own client shows it (`pulsar-client`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from offloader.migrate.proof import READ_AHEAD, Shown
from offloader.model import TopicName
from offloader.pulsar.client_library import NothingCameError, client_library, library_errors, open_client
from offloader.pulsar.settings import PulsarSettings

NEEDED_BY = "the proof reads topics as clients do"
MOST_QUEUED = 1000  # messages


def check_client() -> None:
    """Raises ConfigError where the package is missing."""
    client_library(NEEDED_BY)


@contextmanager
def stock_reader(settings: PulsarSettings, topic: TopicName, entry_bytes: int) -> Iterator[StockReader]:
    """From the topic's first message on. `entry_bytes`: about how large entries are, so that few of them wait in
    memory. Raises ConfigError where the package is missing, and what connecting raises."""
    library = client_library(NEEDED_BY)
    client = open_client(library, settings)
    try:
        with library_errors(library, f"reading {topic}"):
            reader = client.create_reader(
                str(topic),
                library.MessageId.earliest,
                receiver_queue_size=max(1, min(MOST_QUEUED, READ_AHEAD // max(entry_bytes, 1))),
                crypto_failure_action=library.ConsumerCryptoFailureAction.CONSUME,
            )
        yield StockReader(library, reader, topic)
    finally:
        with suppress(library.PulsarException):
            client.close()


class StockReader:
    """See `ShowingReader`. It follows the topic to other brokers by itself."""

    def __init__(self, library: ModuleType, reader: Any, topic: TopicName) -> None:
        self._library, self._reader, self._topic = library, reader, topic

    def read(self, seconds: float) -> Shown | None:
        try:
            with library_errors(self._library, f"reading {self._topic}"):
                return _shown(self._reader.read_next(max(int(seconds * 1000), 1)))
        except NothingCameError:
            return None


def _shown(message: Any) -> Shown:
    place = message.message_id()
    return Shown(
        place.ledger_id(),
        place.entry_id(),
        max(place.batch_index(), 0),
        message.data(),
        _text(message.partition_key),
        _properties(message),
        message.publish_timestamp(),
        message.event_timestamp(),
    )


def _text(told: Any) -> str:
    """What is no UTF-8 cannot be had from the package; then bytes are compared."""
    try:
        return str(told())
    except UnicodeDecodeError:
        return "\ufffd"


def _properties(message: Any) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(sorted(message.properties().items()))
    except UnicodeDecodeError:
        return (("\ufffd", ""),)
