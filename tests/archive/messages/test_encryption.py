"""Decryption with many keys, with the wrong ones, and without the library. That it fits Pulsar: test_formats.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from offloader.archive.messages.message import MessageProblem
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.errors import ConfigError
from tests.archive.messages.encoder import Encoded, Producer, Sent, batch, chunked, run_of, single
from tests.archive.messages.rows import by_columns, by_messages

KEY = rsa.generate_private_key(65537, 1024)
OTHER = rsa.generate_private_key(65537, 1024)
DATA_KEY, NONCE = bytes(range(32)), bytes(12)


class Keys(dict[str, bytes]):
    """Private keys by name; counts how often it was asked."""

    asked = 0

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        self.asked += 1
        return self.get(name)


def pem(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def encrypted(entry: Encoded, *keys: tuple[str, rsa.RSAPrivateKey]) -> Encoded:
    sha1 = hashes.SHA1()
    for name, key in keys:
        value = key.public_key().encrypt(DATA_KEY, padding.OAEP(padding.MGF1(sha1), sha1, None))
        entry.metadata.encryption_keys.add(key=name, value=value)
    entry.metadata.encryption_param = NONCE
    return Encoded(entry.metadata, AESGCM(DATA_KEY).encrypt(NONCE, entry.payload, None), entry.rows, entry.messages)


def values(entries: list[Encoded], keys: Keys | None) -> list[tuple[bytes | None, MessageProblem | None]]:
    run, options = run_of([entry.data for entry in entries]), UnpackOptions(keys=keys)
    assert by_columns([run], options) == by_messages([run], options)
    return [(m.value, m.problem) for m in Unpacker(options).messages(run)]


def test_any_of_the_keys_is_enough() -> None:
    entry = encrypted(single(Producer(), Sent(b"secret")), ("a", OTHER), ("b", KEY))
    assert values([entry], Keys(b=pem(KEY))) == [(b"secret", None)]


def test_a_wrong_key_leaves_a_row_that_says_so() -> None:
    entry = encrypted(batch(Producer(), [Sent(b"1"), Sent(b"2")]), ("a", KEY))
    for keys in (None, Keys(), Keys(a=pem(OTHER))):
        assert values([entry], keys) == [(None, MessageProblem.UNDECRYPTABLE)]


def test_what_a_closed_entry_says_in_clear_is_shown() -> None:
    entry = encrypted(single(Producer(), Sent(b"secret", key=b"k", properties=(("a", "b"),))), ("a", KEY))
    (found,) = Unpacker().messages(run_of([entry.data]))
    assert (found.key, found.properties, found.publish_time) == (b"k", {"a": "b"}, Producer().publish_time)
    assert found.encryption is not None
    assert [key.name for key in found.encryption.keys] == ["a"]


def test_a_payload_that_was_changed_is_not_decrypted() -> None:
    entry = encrypted(single(Producer(), Sent(b"secret")), ("a", KEY))
    changed = Encoded(entry.metadata, entry.payload[:-1] + b"\0")
    short = Encoded(entry.metadata, b"x")
    assert {problem for _, problem in values([changed, short], Keys(a=pem(KEY)))} == {MessageProblem.UNDECRYPTABLE}


def test_compressed_before_encrypted() -> None:
    entry = encrypted(batch(Producer(compression=3), [Sent(b"x" * 500), Sent(b"y")]), ("a", KEY))
    assert values([entry], Keys(a=pem(KEY))) == [(b"x" * 500, None), (b"y", None)]


def test_each_chunk_is_encrypted_by_itself() -> None:
    chunks = [encrypted(e, ("a", KEY)) for e in chunked(Producer(compression=2), Sent(b"chunked " * 50), 3, "u")]
    assert values(chunks, Keys(a=pem(KEY))) == [(b"chunked " * 50, None)]
    chunks[1] = Encoded(chunks[1].metadata, b"changed")
    assert values(chunks, Keys(a=pem(KEY))) == [(None, MessageProblem.UNDECRYPTABLE)]


def test_a_data_key_is_opened_once() -> None:
    keys = Keys(a=pem(KEY))
    entry = encrypted(single(Producer(), Sent(b"secret")), ("a", KEY))
    list(Unpacker(UnpackOptions(keys=keys)).messages(run_of([entry.data] * 20)))
    assert keys.asked == 1


@pytest.mark.parametrize("bad", [b"", b"not PEM", pem(ed25519.Ed25519PrivateKey.generate())])
def test_a_key_that_cannot_be_used_is_a_configuration_error(bad: bytes) -> None:
    entry = encrypted(single(Producer(), Sent(b"secret")), ("a", KEY))
    with pytest.raises(ConfigError, match="'a'"):
        list(Unpacker(UnpackOptions(keys=Keys(a=bad))).messages(run_of([entry.data])))


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"\[encryption\]"):
        Unpacker(UnpackOptions(keys=Keys()))
