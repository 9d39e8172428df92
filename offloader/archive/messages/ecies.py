"""ECIES as Bouncy Castle does it by default, which Pulsar's Java client uses where a producer's public key is an EC key.

    [ephemeral public key, uncompressed point][data XOR stream][HMAC-SHA1, 20 bytes]

KDF2 with SHA-1 over the ephemeral key and the shared secret gives 16 bytes for the HMAC, then the stream. The HMAC also covers
the length of the (empty) encoding parameters, 8 bytes. Compared with what MessageCryptoBc of 4.0.7 encrypted.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric import ec

_MAC_KEY_SIZE = 16
_MAC_SIZE = 20
_EMPTY_PARAMETERS = bytes(8)


def ecies_decrypt(key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """Raises ValueError where the key does not fit."""
    point_size = 1 + 2 * ((key.curve.key_size + 7) // 8)
    point, hidden, said = encrypted[:point_size], encrypted[point_size:-_MAC_SIZE], encrypted[-_MAC_SIZE:]
    secret = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point))
    derived = _kdf2(point + secret, _MAC_KEY_SIZE + len(hidden))
    mac_key, stream = derived[:_MAC_KEY_SIZE], derived[_MAC_KEY_SIZE:]
    if not hmac.compare_digest(hmac.digest(mac_key, hidden + _EMPTY_PARAMETERS, "sha1"), said):
        raise ValueError("the HMAC does not match")
    return bytes(a ^ b for a, b in zip(hidden, stream, strict=True))


def _kdf2(secret: bytes, size: int) -> bytes:
    """ISO 18033-2's KDF2: hashes of the secret and a counter from 1 on."""
    rounds = -(-size // 20)
    found = b"".join(hashlib.sha1(secret + n.to_bytes(4), usedforsecurity=False).digest() for n in range(1, rounds + 1))
    return found[:size]
