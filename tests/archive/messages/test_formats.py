"""What Pulsar's own classes wrote is read as what was put in (fixtures/README.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from offloader.archive.messages.message import Message, MessageProblem
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from tests.archive.messages.encoder import run_of
from tests.archive.messages.rows import by_columns, by_messages

FIXTURES = Path(__file__).parent / "fixtures"
ENTRIES = {
    name: bytes.fromhex(data)
    for name, data in (line.split("\t") for line in (FIXTURES / "entries.tsv").read_text().splitlines())
}
CODECS = ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]


class Keys:
    """The fixtures' private keys."""

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        assert metadata == {"version": "7"}
        return (FIXTURES / f"{name}.key").read_bytes()


def messages(*names: str, keys: Keys | None = None) -> list[Message]:
    options = UnpackOptions(keys=keys)
    run = run_of([ENTRIES[name] for name in names])
    assert by_columns([run], options) == by_messages([run], options)
    return list(Unpacker(options).messages(run))


def assert_is_the_batch(found: list[Message]) -> None:
    values = [None if n == 4 else f"value {n} ".encode() * (20 + n) for n in range(6)]
    assert [m.value for m in found] == values
    assert [m.key for m in found] == [b"key-0", b"key-1", b"key-2"] * 2
    assert [m.properties for m in found] == [{"n": str(n)} for n in range(6)]
    assert [m.event_time for m in found] == [1_600_000_000_000 + n for n in range(6)]
    assert [m.sequence_id for m in found] == list(range(6))
    assert [m.batch_index for m in found] == list(range(6))
    assert {m.producer_name for m in found} == {"java"}


@pytest.mark.parametrize("codec", CODECS)
def test_batches(codec: str) -> None:
    assert_is_the_batch(messages(f"batch-{codec}"))


@pytest.mark.parametrize("codec", CODECS)
def test_single_messages(codec: str) -> None:
    (found,) = messages(f"one-{codec}")
    assert (found.value, found.key, found.ordering_key, found.batch_index) == (b"hello " * 50, b"\0\1\2", b"\1\0", -1)


def encrypted(message: Message) -> object:
    """Names and metadata of the keys, and the algorithm."""
    assert message.encryption is not None
    return *((key.name, key.metadata) for key in message.encryption.keys), message.encryption.algorithm


@pytest.mark.parametrize("key", ["rsa", "ec256", "ec521"])
def test_encrypted_batches(key: str) -> None:
    found = messages(f"encrypted-{key}", keys=Keys())
    assert_is_the_batch(found)
    assert {encrypted(m) for m in found} == {((key, (("version", "7"),)), "")}


@pytest.mark.parametrize("key", ["rsa", "ec256", "ec521"])
def test_without_its_key_an_encrypted_batch_is_one_row_that_names_the_key(key: str) -> None:
    (found,) = messages(f"encrypted-{key}")
    assert (found.value, found.problem, found.batch_index, found.batch_size) == (
        None,
        MessageProblem.UNDECRYPTABLE,
        -1,
        6,
    )
    assert encrypted(found) == ((key, (("version", "7"),)), "")


def test_an_encrypted_message_in_chunks() -> None:
    (found,) = messages("chunk-0", "one-NONE", "chunk-1", "chunk-2", keys=Keys())[1:]
    assert found.value == b"chunked value " * 300
    assert (found.position.entry, found.first_chunk and found.first_chunk.entry) == (3, 0)


def test_without_its_key_an_encrypted_message_in_chunks_is_one_row() -> None:
    (found,) = messages("chunk-0", "chunk-1", "chunk-2")
    assert (found.position.entry, found.value, found.problem) == (2, None, MessageProblem.UNDECRYPTABLE)
