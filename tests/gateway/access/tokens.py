"""Keys, and tokens signed with them."""

from __future__ import annotations

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET = b"0123456789abcdef" * 4
NOW = 1_700_000_000.0
RSA = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
OTHER_CURVE = ec.generate_private_key(ec.SECP384R1())


def der(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def token(key: object = SECRET, algorithm: str = "HS256", **claims: object) -> bytes:
    return jwt.encode({"sub": "reader", **claims}, key, algorithm).encode()
