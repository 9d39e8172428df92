"""Keys that tokens are signed with, as Pulsar makes them. Pure."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NoBase64
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from offloader.errors import ConfigError

LEAST_SECRET = 32  # bytes: the least that HS256 is safe with
LEAST_RSA = 2048  # bits

_PEM = b"-----BEGIN "
_OF_SECRETS = ("HS256", "HS384", "HS512")
_OF_RSA = ("RS256", "RS384", "RS512")
_OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class TokenKey(NamedTuple):
    """A key, and the algorithms that it may be used with: those of its own kind, whatever a token asks for."""

    key: bytes | RSAPublicKey | EllipticCurvePublicKey
    algorithms: tuple[str, ...]


def secret_key(data: bytes) -> TokenKey:
    """As `pulsar tokens create-secret-key` writes it. Raises ConfigError."""
    if data.lstrip().startswith(_PEM):
        raise ConfigError("this is a key pair's, and no secret key; name a public key in tokenPublicKey")
    if len(data) < LEAST_SECRET:
        raise ConfigError(f"a secret key of {len(data)} bytes is too short: it has {LEAST_SECRET} bytes at least")
    return TokenKey(data, _OF_SECRETS)


def public_key(data: bytes) -> TokenKey:
    """As `pulsar tokens create-key-pair` writes it (DER), or PEM. RSA and elliptic curves. Raises ConfigError."""
    load = load_pem_public_key if data.lstrip().startswith(_PEM) else load_der_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError("this is no public key; `pulsar tokens create-key-pair` makes one") from error
    if isinstance(key, RSAPublicKey):
        if key.key_size < LEAST_RSA:
            raise ConfigError(f"an RSA key of {key.key_size} bits is too short: it has {LEAST_RSA} bits at least")
        return TokenKey(key, _OF_RSA)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _OF_CURVES:
        return TokenKey(key, (_OF_CURVES[key.curve.name],))
    raise ConfigError("a public key for tokens is an RSA key, or one of the curves P-256, P-384, P-521")


def inline_bytes(text: str) -> bytes:
    """Of a key that stands in the configuration: `data:;base64,…`, or base64 alone. Raises ConfigError."""
    head, comma, data = text.partition(",")
    try:
        if not text.startswith("data:"):
            return b64decode(text, validate=True)
        if not comma:
            raise ConfigError("a data: URL is data:;base64,KEY")
        return b64decode(data, validate=True) if head.endswith(";base64") else unquote_to_bytes(data)
    except NoBase64 as error:
        raise ConfigError("this is neither a file that exists nor base64") from error
