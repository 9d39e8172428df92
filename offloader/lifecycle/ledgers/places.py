"""Where a cluster keeps its metadata: URLs of stores as brokers have them, and whether two name the same place. Pure.

zk:h1:2181,h2:2181/chroot    Pulsar's `metadataStoreUrl`; also without `zk:`, with `zk://`, with `metadata-store:`
zk+null://h1:2181/ledgers    `bookkeeperMetadataServiceUri`

Hosts may stand in another order, some may be left out, and the port may be left out. A server belongs to one ensemble:
with one in common two stores are the same. With none in common nothing is known: a name and an address may be the same
server. Then the brokers' own registrations tell, which end with the brokers' sessions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from offloader.bookkeeper.uri import MetadataUri, parse_uri
from offloader.errors import ConfigError
from offloader.lifecycle.ledgers.refusals import WhereBrokersKeep
from offloader.ports.admin import BrokerStores

REGISTERED = "/loadbalance/brokers"  # below a metadata store's root: one node for each broker that runs
_LEDGERS = "/ledgers"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9]{1,5}(?:[,;/]|$))(?://)?")  # not a host before its port


@dataclass(frozen=True, slots=True)
class MetadataPlace:
    """A ZooKeeper, and the root of Pulsar's nodes in it: empty, or a path."""

    hosts: tuple[str, ...]
    root: str = ""

    def __str__(self) -> str:
        return f"zk:{','.join(self.hosts)}{self.root}"

    def shares_server(self, hosts: Collection[str]) -> bool:
        """Whether they surely are one ensemble."""
        return not {one.lower() for one in self.hosts}.isdisjoint(one.lower() for one in hosts)


def parse_place(text: str, setting: str) -> MetadataPlace:
    """Read a metadata store's URL. Raises ConfigError, which names `setting`, also for what is no ZooKeeper."""
    rest = text.strip().removeprefix("metadata-store:")
    scheme = _SCHEME.match(rest)
    name = scheme[0].rstrip("/") if scheme else "zk:"  # Pulsar's default
    uri = parse_uri(name + rest[scheme.end() if scheme else 0 :], setting)
    return MetadataPlace(uri.hosts, uri.root.removesuffix(_LEDGERS))


def beside(uri: MetadataUri) -> MetadataPlace:
    """Where Pulsar's nodes are if nobody says otherwise: beside BookKeeper's."""
    return MetadataPlace(uri.hosts, uri.root.rpartition("/")[0])


def same_bookkeeper(said: BrokerStores, ours: MetadataUri, *, same_metadata: bool) -> bool:
    """Whether a broker's BookKeeper is ours. `same_metadata`: its metadata are in the ZooKeeper that we reach."""
    if not said.bookkeeper:  # then its ledgers are in its metadata store
        place = _or_none(said.metadata)
        return same_metadata and place is not None and place.root + _LEDGERS == ours.root
    try:
        uri = parse_uri(said.bookkeeper, "")
    except ConfigError:
        return False
    # `metadata-store:zk:host/ledgers` is written, too, with the ledgers' own node at its end
    roots = {uri.root, uri.root.removesuffix(_LEDGERS)} if "//" not in said.bookkeeper else {uri.root}
    metadata = _or_none(said.metadata)
    with_metadata = same_metadata and metadata is not None and metadata.shares_server(uri.hosts)
    return ours.root in roots and (with_metadata or MetadataPlace(uri.hosts).shares_server(ours.hosts))


def as_kept(said: BrokerStores, ours: WhereBrokersKeep, *, metadata: bool, bookkeeper: bool) -> WhereBrokersKeep:
    """A broker's answer in our words where it is the same place, in its own where it is not, or cannot be compared."""
    elsewhere = f"{said.broker} says {said.metadata}, and is not registered at {ours.metadata}"
    other = said.bookkeeper or f"{said.metadata}{_LEDGERS}"
    return WhereBrokersKeep(
        ours.metadata if metadata else elsewhere,
        ours.bookkeeper if bookkeeper else f"{said.broker} says {other}, ours is {ours.bookkeeper}",
    )


def _or_none(text: str) -> MetadataPlace | None:
    try:
        return parse_place(text, "")
    except ConfigError:
        return None
