"""Payloads decrypted, as Pulsar's producers encrypt them: AES-GCM under a data key, which is encrypted for each public
key.

RSA keys with OAEP and SHA-1 (Java, C++, Go and Python clients), EC keys with ECIES (the Java client). The nonce is the
metadata's `encryption_param`, the tag stands behind the payload.

ECIES is as Bouncy Castle does it by default:

    [ephemeral public key, uncompressed point][data XOR stream][HMAC-SHA1, 20 bytes]

KDF2 with SHA-1 over the ephemeral key and the shared secret gives 16 bytes for the HMAC, then the stream. The HMAC also
covers the length of the (empty) encoding parameters, 8 bytes. Compared with what MessageCryptoBc of 4.0.7 encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from offloader._proto.pulsar_messages_pb2 import EncryptionKeys, MessageMetadata
from offloader.archive.messages.envelope import text
from offloader.archive.messages.message import Encryption, EncryptionKey
from offloader.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEPT_DATA_KEYS = 1000
_MAC_KEY_SIZE = 16
_MAC_SIZE = 20
_EMPTY_PARAMETERS = bytes(8)


class KeyReader(Protocol):
    """Gives the private keys of encrypted messages."""

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        """The key in PEM; None: it is not here. `metadata`: what the producer's key reader gave with the public key."""


@dataclass(frozen=True)
class PemFiles:
    """Private keys from PEM files. `paths`: by the name that the producer gave the key, the file.

    >>> PemFiles({"orders-key": "/run/keys/orders.pem"}).private_key("another", {}) is None
    True
    """

    paths: Mapping[str, str]

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:  # noqa: ARG002 (KeyReader's signature)
        """Raises ConfigError where the file cannot be read."""
        if name not in self.paths:
            return None
        try:
            return Path(self.paths[name]).read_bytes()
        except OSError as error:
            raise ConfigError(f"private key {name}: {error}") from error


def encryption_of(metadata: MessageMetadata) -> Encryption | None:
    """How an entry was encrypted, None where it was not."""
    if not metadata.encryption_keys:
        return None
    keys = tuple(EncryptionKey(text(key.key), tuple(_key_metadata(key).items())) for key in metadata.encryption_keys)
    return Encryption(keys, text(metadata.encryption_algo))


class Decryptor:
    """Decrypts with the keys of a key reader. Raises ConfigError where the library for it is not installed."""

    def __init__(self, keys: KeyReader) -> None:
        if find_spec("cryptography") is None:
            raise ConfigError(
                "decrypting needs the package `cryptography`: install pulsar-streaming-offloader[encryption]"
            )
        self._keys = keys
        self._ciphers: dict[bytes, AESGCM] = {}

    def decrypt(self, metadata: MessageMetadata, payload: bytes | memoryview) -> bytes | None:
        """The payload; None where no key opens it. Raises ConfigError for a private key that cannot be used."""
        from cryptography.exceptions import InvalidTag

        for key in metadata.encryption_keys:
            cipher = self._ciphers.get(key.value) or self._open(key)
            if cipher is None:
                continue
            try:
                return cipher.decrypt(metadata.encryption_param, payload, None)
            except (InvalidTag, ValueError):
                continue  # another key with the same name, or a payload that is not what was encrypted
        return None

    def _open(self, key: EncryptionKeys) -> AESGCM | None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        pem = self._keys.private_key(text(key.key), _key_metadata(key))
        if pem is None:
            return None
        try:
            cipher = AESGCM(_data_key(text(key.key), pem, key.value))
        except ValueError:
            return None  # encrypted for another key
        if len(self._ciphers) >= _KEPT_DATA_KEYS:
            self._ciphers.clear()
        self._ciphers[key.value] = cipher
        return cipher


def _data_key(name: str, pem: bytes, encrypted: bytes) -> bytes:
    """Raises ValueError where it was encrypted for another key; ConfigError where the key cannot be used."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"private key {name!r} is not an unencrypted PEM key: {error}") from error
    if isinstance(key, rsa.RSAPrivateKey):
        sha1 = hashes.SHA1()  # noqa: S303 (what Pulsar's clients use)
        return key.decrypt(encrypted, padding.OAEP(padding.MGF1(sha1), sha1, None))
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _ecies_decrypt(key, encrypted)
    raise ConfigError(
        f"private key {name!r} is a {type(key).__name__}; Pulsar's clients encrypt for RSA and EC keys only"
    )


def _ecies_decrypt(key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """Raises ValueError where the key does not fit."""
    from cryptography.hazmat.primitives.asymmetric import ec

    point_size = 1 + 2 * ((key.curve.key_size + 7) // 8)
    point, hidden, said = encrypted[:point_size], encrypted[point_size:-_MAC_SIZE], encrypted[-_MAC_SIZE:]
    secret = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point))
    rounds = range(1, -(-(_MAC_KEY_SIZE + len(hidden)) // 20) + 1)  # KDF2 of ISO 18033-2
    derived = b"".join(hashlib.sha1(point + secret + n.to_bytes(4), usedforsecurity=False).digest() for n in rounds)
    mac_key, stream = derived[:_MAC_KEY_SIZE], derived[_MAC_KEY_SIZE : _MAC_KEY_SIZE + len(hidden)]
    if not hmac.compare_digest(hmac.digest(mac_key, hidden + _EMPTY_PARAMETERS, "sha1"), said):
        raise ValueError("the HMAC does not match")
    return bytes(a ^ b for a, b in zip(hidden, stream, strict=True))


def _key_metadata(key: EncryptionKeys) -> dict[str, str]:
    return {text(pair.key): text(pair.value) for pair in key.metadata}
