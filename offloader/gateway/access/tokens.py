"""Tokens of clients, as Pulsar's brokers take them: JSON web tokens, and the keys that they are signed with. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from offloader.errors import ConfigError
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.json_text import parse_json
from offloader.model import KIB

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


MOST_BYTES = 16 * KIB
FOR_EVER = 2.0**40  # seconds: a time behind it is none


class TokenClaims(NamedTuple):
    """Where a token says what. `audience` None: a token for whatever service is good."""

    role: str = "sub"
    audience: str | None = None
    audience_claim: str = "aud"


class TokenGatekeeper:
    """`Gatekeeper` by tokens. `key`: the one that they are signed with now."""

    method = "token"

    def __init__(self, key: Callable[[], TokenKey], claims: TokenClaims) -> None:
        self._key = key
        self._claims = claims
        self._signed = jwt.PyJWS(options={"enforce_minimum_key_length": True})

    def role_of(self, method: str, data: bytes, now: float) -> tuple[str, float | None]:
        """The role, and when the token expires. Raises RefusedError, which never repeats the token."""
        if method != self.method:
            _refuse(f"a token is needed, and {method or 'nothing'!r} was shown")
        said = self._said(data)
        until = _time(said, "exp")
        if until is not None and until <= now:
            _refuse("the token has expired")
        begin = _time(said, "nbf")
        if begin is not None and begin > now:
            _refuse("the token is not valid yet")
        self._check_audience(said)
        return self._role(said), until

    def _said(self, data: bytes) -> dict[str, Any]:
        """What somebody with our key has signed."""
        if len(data) > MOST_BYTES:
            _refuse(f"a token has {MOST_BYTES} bytes at most")
        key, algorithms = self._key()
        try:
            said = parse_json(self._signed.decode(data.strip(), key, list(algorithms)))
        except (jwt.PyJWTError, ValueError) as error:
            raise RefusedError(
                ErrorCode.AUTHENTICATION,
                f"the token is not one of ours: it must be signed with {' or '.join(algorithms)}",
            ) from error
        if not isinstance(said, dict):
            _refuse("the token has no claims")
        return said

    def _check_audience(self, said: dict[str, Any]) -> None:
        wanted, claim = self._claims.audience, self._claims.audience_claim
        found = said.get(claim)
        if wanted is not None and wanted not in (found if isinstance(found, list) else [found]):
            _refuse(f"the token is for another service: its claim {claim} does not have {wanted}")

    def _role(self, said: dict[str, Any]) -> str:
        """Of several the first, as brokers take it."""
        claim = self._claims.role
        found = said.get(claim)
        role = found[0] if isinstance(found, list) and found else found
        if not isinstance(role, str) or not role:
            _refuse(f"the token names no role: its claim {claim} must be a text")
        return role


def _time(said: dict[str, Any], claim: str) -> float | None:
    """A claim in seconds since 1970. Raises RefusedError."""
    found = said.get(claim)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        _refuse(f"the token's claim {claim} is no time")
    return float(max(min(found, FOR_EVER), 0))


def _refuse(text: str) -> NoReturn:
    raise RefusedError(ErrorCode.AUTHENTICATION, text)
