"""The root's identity, and the proof that its store may hold metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from offloader._proto import metadata_pb2 as pb
from offloader.errors import (
    AnotherClusterError,
    ConfigError,
    DamagedRecordError,
    FatalError,
    ObjectNotFoundError,
    UnprovenStoreError,
)
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import PROOF, ROOT, proof_key
from offloader.metadata.log import read_record
from offloader.metadata.state import Root
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)


def open_root(
    store: ObjectStore, cluster: str, new_uuid: Callable[[], str], *, bookkeeper: str = "", create: bool = True
) -> Root:
    """The root, made where it does not exist yet; the store is proven first. `bookkeeper`: BookKeeper's instance id,
    recorded where none is; empty: not known.

    With `create` false nothing is written. Raises UnprovenStoreError, AnotherClusterError, ConfigError,
    FormatVersionError."""
    if create:
        prove(store, new_uuid())
        token = new_uuid()
        store.put(ROOT, _encoded(Root(token, cluster, bookkeeper)), if_absent=True)
    root = read_root(store)
    if root.cluster != cluster:
        raise AnotherClusterError(
            f"{store.url} holds topics of cluster {root.cluster}, this is cluster {cluster}: "
            f"choose another bucket or folder, or correct the cluster's name"
        )
    if "" not in (bookkeeper, root.bookkeeper) and root.bookkeeper != bookkeeper:
        raise AnotherClusterError(
            f"{store.url} holds topics of a cluster {cluster} with BookKeeper's instance id {root.bookkeeper}, this "
            f"one has {bookkeeper}: it was rebuilt. Choose another bucket or folder, or correct "
            "pulsar.metadataServiceUri"
        )
    if create and bookkeeper and not root.bookkeeper:
        return _with_instance(store, replace(root, bookkeeper=bookkeeper))
    return root


def _with_instance(store: ObjectStore, root: Root) -> Root:
    """Record the instance id in a root that has none. A store may refuse that, for a retention rule."""
    try:
        store.put(ROOT, _encoded(root))
    except FatalError as error:
        log.info("BookKeeper's instance id cannot be recorded: %s", error)
        return replace(root, bookkeeper="")
    return root


def _encoded(root: Root) -> bytes:
    return wrap(root.uuid, pb.Body(root=pb.Root(uuid=root.uuid, cluster=root.cluster, bookkeeper=root.bookkeeper)))


def read_root(store: ObjectStore) -> Root:
    """Whose root it is. Raises ConfigError where there is none."""
    try:
        opened = unwrap(ROOT, read_record(store, ROOT))
    except ObjectNotFoundError as error:
        raise ConfigError(
            f"storage.root: nothing was offloaded to {store.url} yet; check it, or start `offloader run`"
        ) from error
    if opened.kind != "root":
        raise DamagedRecordError(f"{ROOT}: a {opened.kind} record is no root")
    found = opened.body.root
    return Root(found.uuid, found.cluster, found.bookkeeper)


def prove(store: ObjectStore, token: str) -> None:
    """Whether the store creates atomically and lists what it has written. Raises UnprovenStoreError.

    It cannot prove that racing writers are told apart: the contract tests do that for each kind of store."""
    key = proof_key(token)
    try:
        if store.put(key, b"first", if_absent=True) is None:
            raise UnprovenStoreError(
                f"{store.url} refuses to create an object that is not there: it cannot hold metadata"
            )
        if store.put(key, b"second", if_absent=True) is not None or store.read(key, 0, 10)[0] != b"first":
            raise UnprovenStoreError(
                f"{store.url} overwrites where it must create: it cannot hold metadata, use another store"
            )
        if key not in (found for found, _ in store.list(f"{PROOF}/")):
            raise UnprovenStoreError(f"{store.url} does not list what was just written: switch listing caches off")
    finally:
        store.delete([key])
