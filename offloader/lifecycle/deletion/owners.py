"""Whether a broker may still use a ledger that nothing refers to: then it is neither closed nor deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Lock

from offloader.bookkeeper.nodes import Nodes
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.records import DeletionProof, PendingDeleteLedgerInfo
from offloader.lifecycle.ledgers.evidence import Fact, LedgerVerdict
from offloader.lifecycle.ledgers.leftovers import is_pending_acks, owners_of
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.model import TopicName
from offloader.ports.admin import Admin
from offloader.state.names import TRANSACTION_LOG_PREFIX, decoded

LoadedBy = Callable[[TopicName], str | None]
"""The broker that has a topic loaded, if any: `Admin.loaded_by`."""

AskBrokers = Callable[[], Mapping[str, str]]
"""All topics that are loaded, and their brokers: `Admin.loaded_topics`. Raises OffloadError."""

AskSubscriptions = Callable[[TopicName], Collection[str]]
"""The durable subscriptions of a loaded topic, as its broker has them. Raises OffloadError."""

AskLedgers = Callable[[TopicName], Collection[int]]
"""All ledgers that a loaded topic's broker has: data, cursors', schemas', the compacted view. Raises OffloadError."""


class LoadedTopics:
    """What brokers have loaded: all of them are asked once a look, and only where somebody wants to know. Thread safe.

    That nobody could say holds for the whole look, too: a broker that does not answer is waited for once."""

    def __init__(self, ask: AskBrokers, subscriptions: AskSubscriptions, ledgers: AskLedgers | None = None) -> None:
        self._ask = ask
        self._subscriptions = subscriptions
        self._ledgers = ledgers
        self._lock = Lock()
        self._known: Mapping[str, str] | OffloadError | None = None

    @classmethod
    def of(cls, admin: Admin) -> LoadedTopics:
        """By the admin REST."""
        return cls(
            admin.loaded_topics,
            lambda topic: admin.topic_info(topic).subscriptions,
            lambda topic: admin.topic_info(topic).all_ledgers,
        )

    def forget(self) -> None:
        """A look begins."""
        with self._lock:
            self._known = None

    def broker_of(self, topic: TopicName) -> str | None:
        """As `Admin.loaded_by`. Raises OffloadError."""
        return self._all().get(str(topic))

    def with_schema(self, schema: str) -> Mapping[str, str]:
        """The topics of a schema that brokers have loaded, and these brokers: partitions, and topics that are not
        persistent, among them. Raises OffloadError."""
        topics = ((name, TopicName.parse(name.removeprefix("non-")), broker) for name, broker in self._all().items())
        return {name: broker for name, topic, broker in topics if topic.schema_name == schema}

    def may_have_ledger(self, topic: TopicName, ledger: int) -> bool:
        """Whether the broker that has a topic loaded has this ledger, or does not report its ledgers. Raises
        OffloadError."""
        return self._ledgers is None or ledger in self._ledgers(topic)

    def has_subscription(self, topic: TopicName, name: str) -> bool:
        """Whether the broker that has a topic loaded has this subscription. Raises OffloadError."""
        return name in self._subscriptions(topic)

    def _all(self) -> Mapping[str, str]:
        with self._lock:
            if self._known is None:
                self._known = self._asked()
            known = self._known
        if isinstance(known, OffloadError):
            raise known
        return known

    def _asked(self) -> Mapping[str, str] | OffloadError:
        try:
            return self._ask()
        except OffloadError as error:
            return error


_MAY_BE_WRITTEN = (DeletionProof.REFEREE_ABSENT, DeletionProof.ON_DEMAND, DeletionProof.CONFIRMED)


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


def why_in_use(verdict: LedgerVerdict, nodes: Nodes, root: str, loaded: LoadedTopics) -> str:
    """Why a broker may use a ledger of which only absent nodes prove that nothing refers to it; empty: none does.

    A node may have been removed under a broker that goes on with what it has in memory: it serves the ledgers of the
    topic, and an operator can still put the node back. Raises ValueError, OffloadError: see `used_by`."""
    facts, purpose = {one.fact for one in verdict.evidence}, verdict.ledger.purpose
    if Fact.OWNER_ABSENT in facts:
        return used_by(purpose.managed_ledger, nodes, root, loaded.broker_of)
    if Fact.CURSOR_ABSENT not in facts:
        return ""
    used = used_by(purpose.managed_ledger, nodes, root, loaded.broker_of)
    if not used or is_pending_acks(purpose.managed_ledger):
        return used
    topic = _topic_of(purpose.managed_ledger)
    has_it = any(loaded.has_subscription(topic, name) for name in {purpose.cursor, decoded(purpose.cursor)})
    return f"{used}: it has the subscription {purpose.cursor}" if has_it else ""


def used_on_demand(verdict: LedgerVerdict, nodes: Nodes, root: str, loaded: LoadedTopics) -> str:
    """The same of a ledger that an operator named without proof. A topic that was created again may be loaded, if its
    broker does not have the ledger. Raises ValueError, OffloadError: see `used_by`."""
    ledger, purpose = verdict.ledger.ledger, verdict.ledger.purpose
    again = any(one.fact is Fact.MADE_SINCE for one in verdict.evidence)
    if purpose.schema:
        users = loaded.with_schema(purpose.schema)
        using = (name for name in users if not again or _may_have(loaded, name, ledger))
        topic = next(using, None)
        return "" if topic is None else f"{topic} is loaded by the broker {users[topic]}, which may still use it"
    used = used_by(purpose.managed_ledger, nodes, root, loaded.broker_of)
    if not used or not again or is_pending_acks(purpose.managed_ledger):
        return used
    return used if loaded.may_have_ledger(_topic_of(purpose.managed_ledger), ledger) else ""


def _may_have(loaded: LoadedTopics, name: str, ledger: int) -> bool:
    """Brokers report no ledgers of topics that are not persistent."""
    return name.startswith("non-") or loaded.may_have_ledger(TopicName.parse(name), ledger)


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
