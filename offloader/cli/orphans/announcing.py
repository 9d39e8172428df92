"""What `orphans purge` sends to PIP-186's system topic, where the configuration says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from threading import Lock

from offloader.cli.command import CommandSession
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.service import Announce
from offloader.lifecycle.deletion.system_topic.events import NotAnnounced
from offloader.metadata.root import read_root
from offloader.offload.system_topic import system_topic


@dataclass
class Announced:
    """`SystemTopicEvents`: what was sent, and why what was not. A purge receives nothing."""

    done: Counter[LedgerType] = field(default_factory=Counter)
    missing: Counter[NotAnnounced] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def sent(self, ledger_type: LedgerType) -> None:
        with self._lock:
            self.done[ledger_type] += 1

    def not_sent(self, why: NotAnnounced) -> None:
        with self._lock:
            self.missing[why] += 1

    def received(self) -> None:
        raise RuntimeError("a purge opens no door")

    acknowledged = sent_again = gave_up = received


@contextmanager
def announcing(session: CommandSession, announced: Announced) -> Iterator[Announce]:
    """As the application does it. Raises ConfigError where the package is not installed."""
    if session.config.lifecycle.system_topic not in ("publish", "both"):
        yield lambda _: None
        return
    with ExitStack() as stack:
        cluster = read_root(session.store).cluster
        topic = system_topic(session.config, session.store, cluster, announced, stack)
        if topic is None:
            raise RuntimeError("the system topic is off")
        yield stack.enter_context(closing(topic.publisher())).announce
