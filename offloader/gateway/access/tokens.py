"""Tokens of clients: JSON web tokens, as Pulsar's brokers take them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jwt

from offloader.gateway.access.keys import TokenKey
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.json_text import parse_json
from offloader.model import KIB

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
