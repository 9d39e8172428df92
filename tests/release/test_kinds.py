"""The newest archive has an example of each kind of object that is written now, and each says its version.

Where this fails, something new is written. As long as the archive's version is not released, write it again; else write
another one beside it, `3b`, and so on: what is released stays as it is."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from offloader._proto import metadata_pb2 as pb
from offloader.format import blocks, index, v1
from offloader.metadata import layout
from offloader.metadata.catalog_codec import plain
from offloader.metadata.envelope import unwrap
from offloader.metadata.layout import CLAIMS, DELETION, PROOF, REQUESTS, SHARDS, KeyKind, parse_topic_key
from tests.release.golden import NEWEST, Golden, unpacked

STANDING = struct.Struct(">4sII")

HEAD_MAGIC = b"PSOH"
MAGIC = b"PSOM"
DONE = ".done"
SEEN = ".seen"

VERSIONED = {MAGIC, HEAD_MAGIC, blocks.MAGIC_V1, blocks.MAGIC_V2, index.MAGIC, v1.MAGIC}
"""How objects begin that say their version: by their magic, or by the record's field behind it."""


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return unpacked(NEWEST, tmp_path_factory.mktemp("newest"))


def test_each_kind_of_record_is_there(newest: Golden) -> None:
    kinds = {unwrap(key, plain(data)).kind for key, data in newest.records()}
    assert kinds == set(pb.Body.DESCRIPTOR.fields_by_name)


def test_each_message_is_in_some_record(newest: Golden) -> None:
    found = {message.DESCRIPTOR.name for key, data in newest.records() for message in messages(key, data)}
    told = {name for name in pb.DESCRIPTOR.message_types_by_name if name != "Record"}
    assert told == found


def messages(key: str, data: bytes) -> Iterator[Message]:
    """All that a record, and the head before it, consist of."""
    if data.startswith(HEAD_MAGIC):
        yield from inside(pb.Head.FromString(data[STANDING.size :][: STANDING.unpack_from(data)[2]]))
    body = unwrap(key, plain(data)).body
    yield from inside(body)
    for topic in body.journal.topics:
        yield from inside(pb.Topic.FromString(topic))


def inside(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        for each in (value if field.is_repeated else [value]) if field.message_type else ():
            yield from inside(each)


def test_each_place_of_the_layout_has_an_object(newest: Golden) -> None:
    keys = [key for key, _ in newest.store.list()]
    places = {value for name, value in vars(layout).items() if name.isupper() and str(value).startswith("_")}
    assert {piece for key in keys for piece in key.split("/") if piece.startswith("_")} == places - {PROOF}
    assert {parsed.kind for parsed in map(parse_topic_key, keys) if parsed is not None} == set(KeyKind)


def test_each_object_says_its_version_but_those_of_which_only_the_name_counts(newest: Golden) -> None:
    for store in (newest.store, newest.bucket):
        for key, _ in store.list():
            data = store.read(key)[0]
            if data[:4] in VERSIONED or is_name_alone(key):
                continue
            assert key.startswith((f"{REQUESTS}/", f"{SHARDS}/"))
            assert json.loads(data)["version"] == 1
    descriptions = list(newest.root.glob(".uploads/*/upload.json"))
    assert descriptions
    assert all(json.loads(each.read_text())["version"] == 1 for each in descriptions)


def is_name_alone(key: str) -> bool:
    """Whether nothing follows from the object's bytes: notes that are looked into, and hints."""
    notes = (f"{CLAIMS}/", f"{DELETION}/memory/archive/")
    return key.startswith(notes) or key.endswith((SEEN, "/newest"))


def test_requests_are_seen_done_and_not_seen(newest: Golden) -> None:
    names = {key.rpartition("/")[2] for key, _ in newest.store.list(f"{REQUESTS}/sim/")}
    asked = {name for name in names if "." not in name}
    assert {(name + SEEN in names, name + DONE in names) for name in asked} == {
        (True, True),
        (True, False),
        (False, False),
    }
