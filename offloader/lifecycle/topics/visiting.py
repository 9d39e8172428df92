"""Visits a topic that nobody has loaded: has it loaded and trimmed at once, and unloaded again if nobody came.

A broker that does not own the topic's bundle may come to own it. Who connects while we look who is there, and unload,
reconnects: clients do so by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from offloader.errors import (
    AbsentError,
    AuthenticationFailedError,
    AuthorizationFailedError,
    FatalError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.node_reader import TopicNodeReader, UnreadableTopic
from offloader.lifecycle.topics.topic_nodes import TopicNodes
from offloader.lifecycle.topics.unloaded import UnloadedTopic, look_at
from offloader.lifecycle.topics.visit_outcome import VisitEnd, VisitOutcome
from offloader.model import TopicName
from offloader.ports.visits import TopicVisits


class ClosesTails(Protocol):
    """Closes what no broker can."""

    def __call__(self, topic: TopicName, ledger: int) -> str:
        """What came of it, in words."""
        ...


class TopicVisitor:
    """Thread safe. `close`: None: ledgers that a broker cannot close stay open."""

    def __init__(
        self,
        reader: TopicNodeReader,
        brokers: TopicVisits,
        names: SubscriptionNames,
        clock_ms: Callable[[], int],
        close: ClosesTails | None = None,
    ) -> None:
        self._reader = reader
        self._brokers = brokers
        self._names = names
        self._clock_ms = clock_ms
        self._close = close

    def visit(self, planned: UnloadedTopic, loaded: Mapping[str, str]) -> VisitOutcome:
        """`loaded`: by brokers' statistics, no older than those of the plan. Raises AuthenticationFailedError."""
        try:
            before = self._reader.read_again(planned.topic)
        except OffloadError as error:
            return VisitOutcome(planned, VisitEnd.UNANSWERED, why=str(error))
        if before is None:
            return VisitOutcome(planned, VisitEnd.GONE)
        if isinstance(before, UnreadableTopic):
            return VisitOutcome(planned, VisitEnd.REFUSED, why=before.why)
        if str(planned.topic) in loaded or before.list.version != planned.version:  # every load writes the list
            return VisitOutcome(planned, VisitEnd.LOADED)
        try:
            self._brokers.trim(planned.topic)
        except AbsentError as error:
            return VisitOutcome(planned, VisitEnd.GONE, why=str(error))
        except AuthorizationFailedError as error:
            return VisitOutcome(planned, VisitEnd.NOT_PERMITTED, why=str(error))
        except AuthenticationFailedError:
            raise
        except (RetryableError, OutcomeUnknownError, IntegrityError) as error:
            return self._after_no_answer(before, planned, error)
        except FatalError as error:
            return VisitOutcome(planned, VisitEnd.REFUSED, why=str(error))
        return self._leave(before, planned, VisitEnd.TRIMMED)

    def _after_no_answer(self, before: TopicNodes, planned: UnloadedTopic, error: OffloadError) -> VisitOutcome:
        """The list shows whether some broker has loaded it: every load writes it. Whoever still works on it keeps it
        loaded, as after a client that went away."""
        try:
            after = self._reader.read_again(planned.topic)
        except OffloadError as unread:
            return VisitOutcome(planned, VisitEnd.UNCLEAR, left=_unsaid(unread), left_by_mistake=True, why=str(error))
        if isinstance(after, TopicNodes) and after.list.version != before.list.version:
            return self._leave(before, planned, VisitEnd.UNCLEAR, str(error))
        why = str(error)
        if planned.open_ledger is not None and self._close is not None and after is not None:
            why += f"; {self._close(planned.topic, planned.open_ledger)}"
        return VisitOutcome(planned, VisitEnd.UNANSWERED, why=why)

    def _leave(self, before: TopicNodes, planned: UnloadedTopic, end: VisitEnd, why: str = "") -> VisitOutcome:
        left, mistake = self._unload(planned.topic)
        try:
            after = self._reader.read_again(planned.topic)
        except OffloadError as error:
            unread = why or str(error)
            return VisitOutcome(planned, VisitEnd.UNCLEAR, left=left, left_by_mistake=mistake, why=unread)
        if not isinstance(after, TopicNodes):
            return VisitOutcome(planned, VisitEnd.GONE if after is None else end, left=left, why=why)
        still = {one.ledger for one in after.list.ledgers}
        freed = sum(one.size for one in before.ledgers if one.ledger not in still)
        now = None if left else look_at(after, planned.retention, self._clock_ms(), self._names)
        return VisitOutcome(planned, end, freed, left, now, why, mistake)

    def _unload(self, topic: TopicName) -> tuple[str, bool]:
        """Why it stays loaded, and whether that is a mistake."""
        try:
            use = self._brokers.use(topic)
        except AbsentError:
            return "", False
        except OffloadError as error:
            return _unsaid(error), True
        if use.clients:
            return f"{use.clients} producers and consumers have come", False
        if use.replicators:
            return "it has something to replicate", False
        try:
            self._brokers.unload(topic)
        except AbsentError:
            return "", False
        except OffloadError as error:
            return f"it may not have been unloaded ({error})", True
        return "", False


def _unsaid(error: OffloadError) -> str:
    return f"who uses it cannot be asked ({error})"
