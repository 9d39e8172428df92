"""PIP-186's system topics in the application: what is counted, and how mirror and door are opened."""

from __future__ import annotations

import secrets
import uuid
from contextlib import ExitStack, closing

from offloader.config import Config
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.system_topic.interfaces import NotAnnounced, SystemTopicEvents
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening, open_mark
from offloader.lifecycle.deletion.system_topic.pulsar_channel import check_library
from offloader.metrics import Metrics
from offloader.offload import settings as derived
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.rest import RestClient

_SECRET_BYTES = 32


class SystemTopicCounts:
    """`SystemTopicEvents` as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def sent(self, ledger_type: LedgerType) -> None:
        self._metrics.deletion_sent(ledger_type)

    def not_sent(self, why: NotAnnounced) -> None:
        self._metrics.deletion_not_sent(why)

    def received(self) -> None:
        self._metrics.deletion_received()

    def acknowledged(self) -> None:
        self._metrics.deletion_message("acknowledged")

    def sent_again(self) -> None:
        self._metrics.deletion_message("sent again")

    def gave_up(self) -> None:
        self._metrics.deletion_message("gave up")


def system_topic(
    config: Config, store: ObjectStore, cluster: str, events: SystemTopicEvents, stack: ExitStack
) -> SystemTopicOpening | None:
    """None where `lifecycle.systemTopic` is off. Raises ConfigError where the package is not installed."""
    section = config.lifecycle
    if section.system_topic == "off":
        return None
    check_library()
    settings = derived.pulsar(config)
    rest = stack.enter_context(closing(RestClient(settings)))
    partitions = section.two_phase_deletion_ledger_deletion_parallelism
    return SystemTopicOpening(settings, rest, _mark(store, cluster), events, partitions)


def _mark(store: ObjectStore, cluster: str) -> OwnMark:
    def opened() -> OwnMark:
        return open_mark(store, cluster, lambda: str(uuid.uuid4()), lambda: secrets.token_bytes(_SECRET_BYTES))

    try:
        return opened()
    except OutcomeUnknownError:
        return opened()
