"""The metadata service's nodes as BookKeeper and Pulsar use them: ledgers, bookies, managed ledgers. Also what a
bookie's node says of where it listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from threading import Event
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from offloader._proto.bookie_service_pb2 import BookieServiceInfoFormat
from offloader.bookkeeper.api import BookieAddress, Cookie
from offloader.bookkeeper.layout import Layout, decode_layout, ledger_path
from offloader.bookkeeper.metadata_codec import decode_metadata, encode_metadata
from offloader.bookkeeper.model import LedgerMetadata, Versioned
from offloader.bookkeeper.nodes import Fired, Nodes
from offloader.bookkeeper.topic_nodes import TopicTree
from offloader.bookkeeper.uri import MetadataUri
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    FatalError,
    LedgerNotFoundError,
    TopicNotFoundError,
)
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.names import managed_ledger_name
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import decode_cursor_node

_Value = TypeVar("_Value")
_READ_ONLY = "readonly"
_NOT_NODES = {".", ".."}
CLIENT_PROTOCOL = "bookie-rpc"
HTTP_PROTOCOLS = ("http", "https")


class Watched(Generic[_Value]):
    """What `read` found, until what was given to it is called. Safe to use from several threads."""

    def __init__(self, read: Callable[[Fired], _Value]) -> None:
        self._read = read
        self._seen: tuple[_Value, Event] | None = None

    def get(self) -> _Value:
        """Raises what `read` raises; then the next call reads again."""
        seen = self._seen
        if seen is None or seen[1].is_set():
            expired = Event()
            self._seen = seen = self._read(expired.set), expired  # may have expired already
        return seen[0]


class MetadataTree:
    """A `LedgerMetadataStore` over a tree of nodes, whose session it closes.

    It reads where bookies are once, and again whenever a watch fires. `nodes`, `uri`: for what else is kept there.
    """

    def __init__(self, nodes: Nodes, uri: MetadataUri) -> None:
        self.nodes = nodes
        self.uri = uri
        self._writable = f"{uri.root}/available"
        self._read_only = f"{self._writable}/{_READ_ONLY}"
        self._available = Watched(self._read_available)
        self._addresses: dict[str, Watched[BookieAddress]] = {}

    @cached_property
    def layout(self) -> Layout:
        """How ledgers are kept. Raises FatalError where the URI says otherwise, or where there is no cluster."""
        path = f"{self.uri.root}/LAYOUT"
        node, wanted = self.nodes.get(path), self.uri.layout
        if node is None:
            if self.nodes.get(self._writable) is None:
                raise self._no_cluster()
            return wanted or Layout.HIERARCHICAL  # Pulsar's own metadata driver knows no other, and writes no node
        try:
            found = decode_layout(node.value)
        except (DamagedRecordError, FatalError) as error:
            raise type(error)(f"{path} at {self.uri}: {error}") from error
        if wanted not in (None, found):
            raise FatalError(
                f"{self.uri} asks for another layout than its cluster has ({found.value}): write zk:// instead"
            )
        return found

    def read(self, ledger: int) -> Versioned:
        """Sees every write that was made, or is in doubt, through this store."""
        node = self.nodes.get(self.path_of(ledger), latest=True)
        if node is None:
            raise LedgerNotFoundError(f"there is no ledger {ledger}")
        try:
            metadata = decode_metadata(node.value)
        except DamagedRecordError as error:
            raise DamagedRecordError(f"ledger {ledger}: {error}") from error
        created_ms = node.created_ms if metadata.created_ms is None else metadata.created_ms
        return Versioned(replace(metadata, created_ms=created_ms, listed_ms=node.created_ms), node.version)

    def has(self, ledger: int) -> bool:
        """Whether there is such a ledger."""
        return self.nodes.get(self.path_of(ledger), latest=True) is not None

    def write(self, ledger: int, metadata: LedgerMetadata, version: int) -> int:
        written = self.nodes.set(self.path_of(ledger), encode_metadata(metadata), version)
        if written is None:
            raise LedgerNotFoundError(f"there is no ledger {ledger} any more")
        return written

    def address(self, bookie: str) -> BookieAddress:
        watched = self._addresses.get(bookie)
        if watched is None:
            watched = self._addresses.setdefault(bookie, Watched(lambda fired: self._read_address(bookie, fired)))
        return watched.get()

    def http_url(self, bookie: str) -> str | None:
        """Where a registered bookie's HTTP server is; None: it publishes none, or is not registered."""
        found = (self.nodes.get(f"{folder}/{bookie}") for folder in (self._writable, self._read_only))
        node = next(filter(None, found), None)
        return None if node is None else decode_http_url(bookie, node.value)

    def bookies(self) -> frozenset[str]:
        """All ids that have ever been bookies here, and were not decommissioned: those with a cookie."""
        return frozenset(self.nodes.children(f"{self.uri.root}/cookies") or ()) | frozenset(self.available())

    def available(self) -> Mapping[str, bool]:
        return self._available.get()

    def cookie(self, bookie: str) -> Cookie | None:
        node = self.nodes.get(f"{self.uri.root}/cookies/{bookie}", latest=True)
        return None if node is None else Cookie(node.value, node.created_ms, node.modified_ms)

    def instance_id(self) -> str:
        """BookKeeper's instance id, which is made with the cluster; empty: it has none."""
        node = self.nodes.get(f"{self.uri.root}/INSTANCEID", latest=True)
        return "" if node is None else node.value.decode("utf-8", "replace").strip()

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        node = self.nodes.get(self.topic_path(topic), latest=True)
        if node is None:
            raise TopicNotFoundError(f"{topic} has no managed ledger in {self.uri}")
        try:
            return decode_managed_ledger(node.value, node.version)
        except DamagedRecordError as error:
            raise DamagedRecordError(f"{topic}: {error}") from error

    def cursors(self, topic: TopicName) -> Mapping[str, CursorState]:
        self.topic_path(topic)  # one that no node can have is refused
        read = next(TopicTree(self.nodes, self.uri.managed_ledgers).read([managed_ledger_name(topic)]), None)
        if read is None:
            raise TopicNotFoundError(f"{topic} has no managed ledger in {self.uri}")
        found = {}
        for name, node in read[2].items():
            try:
                found[name] = decode_cursor_node(node.value)
            except DamagedRecordError as error:
                raise DamagedRecordError(f"{topic}: subscription {name}: {error}") from error
        return found

    def close(self) -> None:
        """End the session."""
        self.nodes.close()

    def path_of(self, ledger: int) -> str:
        """A ledger's node. Raises LedgerNotFoundError for an id that no ledger can have."""
        return self.uri.root + ledger_path(self.layout, ledger)

    def topic_path(self, topic: TopicName) -> str:
        """A topic's own node. Raises TopicNotFoundError for a name that no node can have."""
        name = managed_ledger_name(topic)
        if not _NOT_NODES.isdisjoint(name.split("/")):
            raise TopicNotFoundError(f"{topic} has no managed ledger in {self.uri}: no node can have such a name")
        return f"{self.uri.managed_ledgers}/{name}"

    def _no_cluster(self) -> FatalError:
        return FatalError(f"there is no BookKeeper cluster at {self.uri}: it has no node {self._writable}")

    def _read_available(self, fired: Fired) -> Mapping[str, bool]:
        writable = self.nodes.children(self._writable, fired)
        if writable is None:
            raise self._no_cluster()
        read_only = self.nodes.children(self._read_only, fired) or ()  # where it appears, the other's watch fires
        return {**dict.fromkeys(read_only, False), **{bookie: True for bookie in writable if bookie != _READ_ONLY}}

    def _read_address(self, bookie: str, fired: Fired) -> BookieAddress:
        paths = (f"{folder}/{bookie}" for folder in (self._writable, self._read_only))
        node = next(filter(None, (self.nodes.get(path, fired) for path in paths)), None)
        if node is None:
            raise BookieUnavailableError(f"the bookie {bookie} is not registered")
        try:
            return decode_address(bookie, node.value)
        except DamagedRecordError as error:
            raise BookieUnavailableError(str(error)) from error


def decode_address(bookie: str, data: bytes) -> BookieAddress:
    """Where a bookie listens, from the value of its registration. Older bookies leave that empty: their id is
    `host:port`.

    Raises DamagedRecordError, and BookieUnavailableError where it publishes no end point for clients.
    """
    if not data:
        return _of_id(bookie)
    try:
        info = BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise DamagedRecordError(f"the registration of the bookie {bookie} cannot be read: {error}") from error
    for endpoint in info.endpoints:
        if endpoint.protocol == CLIENT_PROTOCOL:
            if not endpoint.host or not 0 < endpoint.port < 2**16:
                raise DamagedRecordError(f"the bookie {bookie} listens at {endpoint.host!r}, port {endpoint.port}")
            return BookieAddress(endpoint.host, endpoint.port)
    raise BookieUnavailableError(f"the bookie {bookie} publishes no end point {CLIENT_PROTOCOL}")


def decode_http_url(bookie: str, data: bytes) -> str | None:
    """Where its HTTP server is, from the same value; None: it says nothing of one. A server that listens on all
    interfaces, or on the bookie's own, is asked at the bookie's address. Raises DamagedRecordError."""
    try:
        info = BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise DamagedRecordError(f"the registration of the bookie {bookie} cannot be read: {error}") from error
    found = next((one for one in info.endpoints if one.protocol in HTTP_PROTOCOLS and 0 < one.port < 2**16), None)
    if found is None:
        return None
    host = next((one.host for one in info.endpoints if one.protocol == CLIENT_PROTOCOL and one.host), "")
    if found.host not in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not listened on)
        host = found.host
    return f"{found.protocol}://{f'[{host}]' if ':' in host else host}:{found.port}" if host else None


def encode_address(address: BookieAddress) -> bytes:
    """The value of the registration of a bookie that listens there."""
    info = BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", protocol=CLIENT_PROTOCOL, host=address.host, port=address.port)
    return info.SerializeToString()


def _of_id(bookie: str) -> BookieAddress:
    host, _, port = bookie.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and len(port) <= 5) or not 0 < int(port) < 2**16:
        raise BookieUnavailableError(f"the bookie {bookie} does not publish where it listens")
    return BookieAddress(host.strip("[]"), int(port))
