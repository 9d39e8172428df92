"""Which metadata stores are read, by what the brokers and the operator say, and over which sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from offloader.bookkeeper.nodes import Nodes
from offloader.bookkeeper.uri import MetadataUri
from offloader.errors import ConfigError, OffloadError
from offloader.lifecycle.ledgers.patient import TRIES, PatientNodes
from offloader.lifecycle.ledgers.places import (
    REGISTERED,
    MetadataPlace,
    as_kept,
    beside,
    parse_place,
    same_bookkeeper,
)
from offloader.lifecycle.ledgers.reading import StorePlace
from offloader.lifecycle.ledgers.refusals import WhereBrokersKeep
from offloader.ports.admin import Admin, BrokerStores

Connect = Callable[[tuple[str, ...]], Nodes]
"""A session with the ZooKeeper at these hosts. Raises MetadataUnavailableError."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocatedStores:
    """What is read, and what is known of it. `stores`: the first one is that of the cluster's own brokers.

    `ledgers`: the session with BookKeeper's nodes. `one_store`: the cluster's store is in the same ZooKeeper. `failed`:
    what cannot be read, or is not known where to. `silent`: who did not answer, which makes no verdict worse.
    """

    ledgers: PatientNodes
    stores: tuple[StorePlace, ...]
    ours: WhereBrokersKeep
    brokers: tuple[WhereBrokersKeep, ...]
    clusters: frozenset[str]
    one_store: bool
    failed: tuple[str, ...]
    silent: tuple[str, ...] = ()

    @property
    def sessions(self) -> tuple[PatientNodes, ...]:
        """All of them, each once."""
        found = [self.ledgers, *(one for store in self.stores for one in store.sessions)]
        return tuple(dict.fromkeys(found))


@dataclass
class StoreFinder:
    """Finds them anew for each scan: brokers come and go, and are configured anew. `others`: the operator's.

    Sessions beside that of BookKeeper's nodes are its own, to be closed.
    """

    nodes: Nodes
    uri: MetadataUri
    admin: Admin
    connect: Connect
    others: Sequence[MetadataPlace] = ()
    tries: int = TRIES
    _opened: dict[tuple[str, ...], Nodes] = field(default_factory=dict, init=False)

    def locate(self) -> LocatedStores:
        """Raises MetadataUnavailableError where BookKeeper's own nodes cannot be read."""
        return _Search(self, PatientNodes(self.nodes, tries=self.tries)).located()

    def session(self, hosts: tuple[str, ...]) -> Nodes:
        """One to other hosts. Raises MetadataUnavailableError."""
        if hosts not in self._opened:
            self._opened[hosts] = self.connect(hosts)
        return self._opened[hosts]

    def close(self) -> None:
        """End the sessions that were opened here."""
        for nodes in self._opened.values():
            nodes.close()
        self._opened.clear()


class _Search:
    """One scan's."""

    def __init__(self, finder: StoreFinder, ledgers: PatientNodes) -> None:
        self._finder = finder
        self._ledgers = ledgers
        self._failed: list[str] = []
        self._silent: list[str] = []
        self._patient: dict[tuple[str, ...], PatientNodes] = {}

    def located(self) -> LocatedStores:
        uri = self._finder.uri
        said = self._asked(self._finder.admin.stores_of_brokers, "the brokers' configuration", self._silent) or ()
        cluster = self._asked(self._finder.admin.cluster, "the cluster's name", self._silent)
        place = self._place(said[0].metadata, said[0].broker) if said else None
        place = place or beside(uri)
        same_zookeeper = place.shares_server(uri.hosts) or self._registered(self._ledgers, place.root, said)
        own = self._store(place, said[0] if said else None, same_zookeeper=same_zookeeper)
        ours = WhereBrokersKeep(str(place), str(uri))
        own = own or StorePlace(str(place), self._ledgers, place.root, self._ledgers, place.root)  # it has failed
        found = [own, *(self._other(one) for one in self._finder.others)]
        return LocatedStores(
            ledgers=self._ledgers,
            stores=tuple(one for one in found if one is not None),
            ours=ours,
            brokers=tuple(self._compared(one, place, own, ours, same_zookeeper=same_zookeeper) for one in said),
            clusters=frozenset({cluster} if cluster else ()),
            one_store=same_zookeeper,
            failed=tuple(self._failed),
            silent=tuple(self._silent),
        )

    def _compared(
        self,
        said: BrokerStores,
        place: MetadataPlace,
        own: StorePlace,
        ours: WhereBrokersKeep,
        *,
        same_zookeeper: bool,
    ) -> WhereBrokersKeep:
        """A broker that says what the first one says, and is registered there, is one of ours."""
        its = self._place(said.metadata, said.broker)
        same = its is not None and its.root == place.root and (its.shares_server(place.hosts) or same_zookeeper)
        metadata = same and self._registered(own.nodes, place.root, (said,))
        bookkeeper = same_bookkeeper(said, self._finder.uri, same_metadata=metadata and same_zookeeper)
        return as_kept(said, ours, metadata=metadata, bookkeeper=bookkeeper)

    def _registered(self, nodes: PatientNodes, root: str, brokers: Sequence[BrokerStores]) -> bool:
        there = set(nodes.children(root + REGISTERED) or ())
        return bool(brokers) and all(one.broker in there for one in brokers)

    def _store(self, place: MetadataPlace, said: BrokerStores | None, *, same_zookeeper: bool) -> StorePlace | None:
        nodes = self._ledgers if same_zookeeper else self._session(place)
        if nodes is None:
            return None
        configured = place
        if said is not None and said.configuration and said.configuration != said.metadata:
            configured = self._place(said.configuration, said.broker) or place
        same = configured.shares_server(place.hosts) or configured.hosts == place.hosts
        configuration = nodes if same else self._session(configured)
        if configuration is None:
            return None
        return StorePlace(str(place), nodes, place.root, configuration, configured.root)

    def _other(self, place: MetadataPlace) -> StorePlace | None:
        ours = place.shares_server(self._finder.uri.hosts)
        nodes = self._ledgers if ours else self._session(place)
        return None if nodes is None else StorePlace(str(place), nodes, place.root, nodes, place.root)

    def _session(self, place: MetadataPlace) -> PatientNodes | None:
        """None: it is not reached, and the scan has failed in part."""
        if place.hosts not in self._patient:
            nodes = self._asked(lambda: self._finder.session(place.hosts), str(place), self._failed)
            if nodes is None:
                return None
            self._patient[place.hosts] = PatientNodes(nodes, tries=self._finder.tries)
        return self._patient[place.hosts]

    def _place(self, text: str, broker: str) -> MetadataPlace | None:
        try:
            return parse_place(text, broker)
        except ConfigError as error:
            self._failed.append(str(error))
            return None

    def _asked(self, ask: Callable[[], T], what: str, notes: list[str]) -> T | None:
        try:
            return ask()
        except OffloadError as error:
            notes.append(f"{what}: {error}")
            return None
