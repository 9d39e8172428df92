"""A metadata service in memory, and what fills one: ledgers, bookies, topics."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.layout import Layout, encode_layout, ledger_path
from offloader.bookkeeper.metadata import MetadataTree, encode_address
from offloader.bookkeeper.metadata_codec import encode_metadata
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.uri import MetadataUri
from offloader.model import TopicName
from offloader.state.managed_ledger import ManagedLedger
from offloader.state.managed_ledger_codec import encode_context
from offloader.state.names import encoded, managed_ledger_name
from tests.fakes.memory_nodes import MemoryNodes

HEADER = struct.Struct(">2si")
Compression = ManagedLedgerInfoMetadata.CompressionType

MAGIC = bytes.fromhex("4778")

ADDRESS = MetadataUri(("memory:1",))
_CODECS = {Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd", Compression.SNAPPY: "snappy"}


class MemoryMetadata(MetadataTree):
    """A LedgerMetadataStore in memory: the same code over `nodes`. `cluster` fills it."""

    nodes: MemoryNodes

    def __init__(self, layout: Layout = Layout.HIERARCHICAL, clock: Callable[[], float] = time.time) -> None:
        self.nodes = MemoryNodes(clock)
        self.cluster = ClusterMetadata(self.nodes, ADDRESS, layout)
        self.cluster.format()
        super().__init__(self.nodes, ADDRESS)


class Writing(Protocol):
    """How nodes are put beside a client."""

    def put(self, path: str, value: bytes) -> None:
        """Create a node, and those above it, or change its value."""
        ...

    def delete(self, path: str) -> None:
        """Delete a node without children."""
        ...


class ClusterMetadata:
    """Puts into the metadata service at `uri` what bookies, brokers and writers of ledgers keep there."""

    def __init__(self, nodes: Writing, uri: MetadataUri, layout: Layout = Layout.HIERARCHICAL) -> None:
        self._nodes = nodes
        self._uri = uri
        self._layout = layout

    def format(self) -> None:
        """An empty cluster."""
        self._nodes.put(f"{self._uri.root}/LAYOUT", encode_layout(self._layout))
        self._nodes.put(f"{self._uri.root}/available/readonly", b"")

    def put_ledger(self, ledger: int, metadata: LedgerMetadata | bytes) -> None:
        """A new ledger, or another state of one."""
        value = metadata if isinstance(metadata, bytes) else encode_metadata(metadata)
        self._nodes.put(self._uri.root + ledger_path(self._layout, ledger), value)

    def delete_ledger(self, ledger: int) -> None:
        self._nodes.delete(self._uri.root + ledger_path(self._layout, ledger))

    def register(self, bookie: str, address: BookieAddress | None, *, read_only: bool = False) -> None:
        """`address` None: an older bookie, whose id says it."""
        self._nodes.put(self._registration(bookie, read_only=read_only), encode_address(address) if address else b"")

    def unregister(self, bookie: str, *, read_only: bool = False) -> None:
        self._nodes.delete(self._registration(bookie, read_only=read_only))

    def put_cookie(self, bookie: str, data: bytes) -> None:
        self._nodes.put(f"{self._uri.root}/cookies/{bookie}", data)

    def delete_cookie(self, bookie: str) -> None:
        self._nodes.delete(f"{self._uri.root}/cookies/{bookie}")

    def put_managed_ledger(
        self, topic: TopicName, ledger: ManagedLedger, packed: Compression = Compression.NONE
    ) -> None:
        self._nodes.put(self._topic(topic), encode_managed_ledger(ledger, packed))

    def put_cursor(self, topic: TopicName, name: str, info: bytes, packed: Compression = Compression.NONE) -> None:
        """`info`: a ManagedCursorInfo."""
        self._nodes.put(f"{self._topic(topic)}/{encoded(name)}", envelope(info, packed))

    def put_cluster(self, name: str, *brokers: str) -> None:
        """A Pulsar cluster with its brokers, which run."""
        self._nodes.put(f"{self._pulsar}/admin/clusters/{name}", b"{}")
        for broker in brokers:
            self._nodes.put(f"{self._pulsar}/loadbalance/brokers/{broker}", b"{}")

    def put_namespace(self, name: str) -> None:
        """A namespace's policies."""
        self._nodes.put(f"{self._pulsar}/admin/policies/{name}", b"{}")

    def put_schema(self, schema: str, locator: bytes) -> None:
        """`schema`: tenant/namespace/topic; `locator`: a SchemaLocator."""
        self._nodes.put(f"{self._pulsar}/schemas/{schema}", locator)

    def put_package(self, name: str, ledger: int) -> None:
        """A functions' package: a log of DistributedLog's, with one ledger."""
        path = f"{self._pulsar}/pulsar/functions/{name}/<default>/ledgers/logrecs_000000000000000001_{ledger}"
        self._nodes.put(path, f"5;{ledger};1;1;1;0;0;0".encode())

    @property
    def _pulsar(self) -> str:
        return self._uri.root.rpartition("/")[0]

    def _registration(self, bookie: str, *, read_only: bool) -> str:
        return f"{self._uri.root}/available/{'readonly/' if read_only else ''}{bookie}"

    def _topic(self, topic: TopicName) -> str:
        return f"{self._uri.managed_ledgers}/{managed_ledger_name(topic)}"


def encode_managed_ledger(ledger: ManagedLedger, compression: Compression = Compression.NONE) -> bytes:
    """The node's value."""
    info = ManagedLedgerInfo()
    for listed in ledger.ledgers:
        one = info.ledgerInfo.add(ledgerId=listed.ledger)
        if listed.entries or listed.size:
            one.entries, one.size = listed.entries, listed.size
        if listed.timestamp_ms:
            one.timestamp = listed.timestamp_ms
        if listed.context is not None:
            one.offloadContext.MergeFromString(encode_context(listed.context))
    for key, value in ledger.properties.items():
        info.properties.add(key=key, value=value)
    if ledger.terminated is not None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = ledger.terminated
    return envelope(info.SerializeToString(), compression)


def envelope(data: bytes, compression: Compression) -> bytes:
    """A message as Pulsar keeps it with this compression; NONE: as it is."""
    if compression == Compression.NONE:
        return data
    if compression == Compression.ZLIB:
        packed = zlib.compress(data)
    else:
        packed = pa.compress(data, codec=_CODECS[compression], asbytes=True)
    metadata = ManagedLedgerInfoMetadata(compressionType=compression, uncompressedSize=len(data)).SerializeToString()
    return HEADER.pack(MAGIC, len(metadata)) + metadata + packed
