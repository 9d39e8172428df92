"""Writing manifests: every `FAN` records of a catalog's log are summed up in a leaf, every `FAN` leaves in a node
above, and so on.

Nothing but time depends on it. What is written follows from records that never change, so that two who write, one of
them late, write the same bytes. Everything that a manifest refers to is there before it: interrupted anywhere, it goes
on where it was."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.metadata.history import History
from offloader.metadata.layout import manifest_key, newest_key, records_key
from offloader.metadata.manifest import FAN, Manifest, ManifestRow, before_next, completed
from offloader.metadata.manifest_codec import encode_manifest
from offloader.metadata.state import CatalogHead
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_to_compare


def compact(store: ObjectStore, head: CatalogHead) -> int:
    """Write the leaves missing up to a head; returns how many. Raises DamagedRecordError, what the store raises."""
    history = History(store, head)
    first = history.leaves
    for number in range(first, head.next_slot // FAN):
        made, data = history.leaf(number)
        for key, each in objects_of(head.topic, head.generation, made, data).items():
            store.put(key, each, if_absent=True)
        _hint(store, head, number + 1)
    return head.next_slot // FAN - first


def mend(store: ObjectStore, head: CatalogHead) -> list[str]:
    """Write anew every manifest up to a head that is missing or does not say what its records say. Returns the keys
    written.

    It believes no manifest: it reads all records, a leaf's at a time. Raises as `compact`."""
    history = History(store, head)
    before: tuple[ManifestRow, ...] = ()
    mended: list[str] = []
    for number in range(head.next_slot // FAN):
        made, data = history.leaf(number, before)
        wanted = objects_of(head.topic, head.generation, made, data)
        for key in [key for key, each in wanted.items() if read_to_compare(store, key, len(each)) != each]:
            store.put(key, wanted[key])
            mended.append(key)
        before = before_next(made)
    if head.next_slot >= FAN:
        _hint(store, head, head.next_slot // FAN)
    return mended


def objects_of(topic: TopicName, generation: int, made: Manifest, data: Iterable[bytes]) -> dict[str, bytes]:
    """A leaf's objects by key, in the order of writing: its records, the manifests complete with it, itself."""
    manifests = {
        manifest_key(topic, generation, *each.node): encode_manifest(topic, each) for each in (*completed(made), made)
    }
    return {records_key(topic, generation, made.node.number): b"".join(data)} | manifests


def _hint(store: ObjectStore, head: CatalogHead, leaves: int) -> None:
    store.put(newest_key(head.topic, head.generation), str(leaves).encode())
