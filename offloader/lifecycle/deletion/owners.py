"""Whether somebody may still write an open ledger that nothing refers to: then it is not fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from offloader.bookkeeper.managed_ledgers import TRANSACTION_LOG_PREFIX, decoded
from offloader.bookkeeper.nodes import Nodes
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.records import DeletionProof, PendingDeleteLedgerInfo
from offloader.lifecycle.ledgers.leftovers import is_pending_acks, owners_of
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.model import TopicName

LoadedBy = Callable[[TopicName], str | None]
"""The broker that has a topic loaded, if any: `Admin.loaded_by`."""

AskBrokers = Callable[[], Mapping[str, str]]
"""All topics that are loaded, and their brokers: `Admin.loaded_topics`. Raises OffloadError."""


class LoadedTopics:
    """What brokers have loaded: all of them are asked once a look, and only where somebody wants to know. Thread safe.

    That nobody could say holds for the whole look, too: a broker that does not answer is waited for once."""

    def __init__(self, ask: AskBrokers) -> None:
        self._ask = ask
        self._lock = Lock()
        self._known: Mapping[str, str] | OffloadError | None = None

    def forget(self) -> None:
        """A look begins."""
        with self._lock:
            self._known = None

    def broker_of(self, topic: TopicName) -> str | None:
        """As `Admin.loaded_by`. Raises OffloadError."""
        with self._lock:
            if self._known is None:
                self._known = self._asked()
            known = self._known
        if isinstance(known, OffloadError):
            raise known
        return known.get(str(topic))

    def _asked(self) -> Mapping[str, str] | OffloadError:
        try:
            return self._ask()
        except OffloadError as error:
            return error


_MAY_BE_WRITTEN = (DeletionProof.REFEREE_ABSENT, DeletionProof.ON_DEMAND)


def still_written(record: PendingDeleteLedgerInfo, nodes: Nodes, root: str, loaded_by: LoadedBy) -> str | None:
    """Why an open ledger must not be closed now; None: nobody writes it. `root`: where Pulsar's nodes are.

    What was passed by can be written by nobody who would then refer to it: its referee names a later one. Where the
    referee is absent, somebody may have removed it under a broker that goes on; where it is only suspect, somebody may
    be about to name it: as long as a broker has the topic loaded, the ledger is left alone."""
    if record.evidence.proof not in _MAY_BE_WRITTEN:
        return None
    try:
        used = used_by(record.topic_name, nodes, root, loaded_by)
    except (ValueError, OffloadError) as error:
        return f"ledger {record.ledger_id}: whether a broker still writes it cannot be found out ({error})"
    return f"ledger {record.ledger_id}: {used}" if used else None


def used_by(managed_ledger: str, nodes: Nodes, root: str, loaded_by: LoadedBy) -> str:
    """Why a broker may use a managed ledger, whatever its node says; empty: none does.

    Raises ValueError: nobody can say who would; OffloadError: nobody could say."""
    for name in dict.fromkeys(_users(managed_ledger, nodes, root)):
        topic = _topic_of(name)
        broker = loaded_by(topic)
        if broker is not None:
            return f"{topic} is loaded by the broker {broker}, which may still use it"
    return ""


def _users(managed_ledger: str, nodes: Nodes, root: str) -> Iterator[str]:
    """Whoever has one of these loaded may use it. Pending acks are no topic: a broker opens them with the topic that
    they are of, once the subscription's node is there. So a topic that is there without the subscription does not use
    them; one whose own node somebody has removed may."""
    if managed_ledger.startswith(TRANSACTION_LOG_PREFIX):
        raise ValueError(f"{managed_ledger}: no broker says which transaction logs it has open")
    yield managed_ledger
    if is_pending_acks(managed_ledger):
        for owner, cursor in owners_of(managed_ledger):
            there = nodes.get(root + list_path(owner), latest=True) is not None
            if not there or nodes.get(root + cursor_path(owner, cursor), latest=True) is not None:
                yield owner


def _topic_of(managed_ledger: str) -> TopicName:
    """As brokers list it. One of the old form, `tenant/cluster/namespace/persistent/topic`, has its cluster in the
    namespace: the health check of each broker is. Raises ValueError."""
    tenant, *namespace, domain, topic = managed_ledger.split("/")
    if len(namespace) not in (1, 2) or domain != "persistent" or not all((tenant, *namespace, topic)):
        raise ValueError(f"{managed_ledger!r} is the managed ledger of no topic that could be loaded")
    return TopicName(tenant, "/".join(namespace), decoded(topic))
