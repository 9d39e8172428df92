"""What a newer version wrote is refused in one line that says what to do, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.bridge.log import BridgeLog
from offloader.cursors.copy_store import read_copy
from offloader.cursors.durable import DurableCursor
from offloader.cursors.facts import read_facts
from offloader.cursors.stored import kept_subscription
from offloader.errors import FormatVersionError
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.system_topic.opening import open_mark
from offloader.lifecycle.topics.cursors.former import pending_former
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import plain
from offloader.metadata.envelope import unwrap
from offloader.metadata.former_offload import FormerOffloads
from offloader.metadata.heartbeats import Heartbeats
from offloader.metadata.journal import Journal
from offloader.metadata.layout import subscription_folder
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.root import read_root
from offloader.ports.object_store import ObjectStore
from tests.lifecycle.rescue.support import KEPT
from tests.release.beside import MARKED
from tests.release.golden import BRIDGED, CLUSTER, FIRST, LONG, LOST, MOVED, REBUILT, SECOND, Golden, newer

VERSION = 1


def token() -> str:
    return "token"


LONGS = f"{LONG.tenant}/{LONG.namespace_part}/{LONG.name}"
READERS: dict[str, Callable[[ObjectStore], object]] = {
    "_root": read_root,
    "_journal/sim/": lambda store: Journal.peek(store, "sim"),
    "_journal/sim~1/": lambda store: Journal.peek(store, SECOND.name),
    "public/default/lost/_catalog/": lambda store: Catalogs(store, "").head(LOST),
    "public/default/rebuilt/_catalog/": lambda store: Catalogs(store, "").head(REBUILT),
    "public/second/moved/_catalog/": lambda store: Catalogs(store, "").head(MOVED),
    "public/default/bridged/_bridge/": lambda store: BridgeLog(store, token).load(BRIDGED),
    f"{LONGS}/_manifests/": lambda store: Catalogs(store, "").history(LONG).row(0),
    f"{LONGS}/_subscriptions/": lambda store: kept_subscription(store, LONG, "reader"),
    f"{LONGS}/_cursors/": lambda store: read_copy(store, LONG),
    f"{LONGS}/_facts/": lambda store: read_facts(store, LONG),
    "_gateways/": lambda store: ClaimLog(store, token).newest(LONG),
    "_migration/": lambda store: FormerOffloads(store, token).newest("public/default"),
    "_rescued/": lambda store: Rescues(store, CLUSTER).rescued(KEPT),
    "_deletion/memory/records/": lambda store: DeletionQueue(store, CLUSTER, token).read(MARKED[0].name),
    "_deletion/memory/switch/": lambda store: DeletionQueue(store, CLUSTER, token).switch(),
    "_deletion/memory/cursors/": lambda store: pending_former(store, CLUSTER),
    "_deletion/memory/system-topic-secret": lambda store: open_mark(store, CLUSTER, token, lambda: b""),
}
"""Who reads what is below a key, and nothing that is below the ones before."""


def test_each_kind_of_record_of_a_newer_version_is_refused(golden: Golden) -> None:
    kinds = set[str]()
    for key, data in golden.records():
        kind = unwrap(key, plain(data)).kind
        if kind in kinds:
            continue
        kinds.add(kind)
        with pytest.raises(FormatVersionError) as refused:
            unwrap(key, plain(newer(data)))
        check_one_line(refused.value)
        assert key in str(refused.value)
    assert kinds == set(pb.Body.DESCRIPTOR.fields_by_name)


def test_whoever_meets_a_newer_record_stops_and_says_to_upgrade(golden: Golden) -> None:
    for part, read in READERS.items():
        read(golden.store)
        golden.raise_versions(part)
        with pytest.raises(FormatVersionError) as refused:
            read(golden.store)
        check_one_line(refused.value)


def test_no_gateway_goes_on_with_a_newer_subscription(golden: Golden) -> None:
    golden.raise_versions(f"{LONGS}/_subscriptions/")
    with pytest.raises(FormatVersionError) as refused:
        DurableCursor.open(golden.store, subscription_folder(LONG, "reader"), None, token)
    check_one_line(refused.value)


def check_one_line(error: FormatVersionError) -> None:
    assert str(error).endswith("run a newer one")
    assert "\n" not in str(error)


def test_a_newer_sign_of_life_is_taken_for_none(golden: Golden) -> None:
    """Nothing follows from it but whether it is worth trying: shards of two versions live side by side."""
    key = f"_shards/{FIRST.application}/{SECOND.index}"
    said = json.loads(golden.store.read(key)[0])
    golden.store.put(key, json.dumps({**said, "version": VERSION + 1}).encode())
    signs = Heartbeats(golden.store, FIRST.application).all()
    assert signs[SECOND.index].heartbeat is None
    assert signs[FIRST.index].heartbeat is not None


def test_a_request_of_a_newer_version_is_answered_with_what_to_do(golden: Golden) -> None:
    store = golden.store
    (name, _), *_ = requests.pending(store, "sim", golden.said["now"])
    key = f"_requests/sim/{name}"
    store.put(key, store.read(key)[0].replace(b'"version": 1', b'"version": 99'))
    assert name not in dict(requests.pending(store, "sim", golden.said["now"]))
    outcome = requests.outcome_of(store, "sim", name)
    assert outcome is not None
    assert not outcome.ok
    assert "written by a newer version: run that one" in outcome.message
