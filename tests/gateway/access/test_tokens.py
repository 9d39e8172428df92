"""Tokens: what brokers take is taken, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offloader.errors import ConfigError
from offloader.gateway.access.access import RolePermissions, inline_bytes
from offloader.gateway.access.tokens import TokenClaims, TokenGatekeeper, TokenKey, public_key, secret_key
from offloader.gateway.values import ErrorCode, RefusedError
from tests.gateway.access.tokens import CURVE, NOW, OTHER_CURVE, RSA, SECRET, der, pem, token

MOST_BYTES = 16_384


def keeper(key: TokenKey | None = None, **claims: str) -> TokenGatekeeper:
    return TokenGatekeeper(lambda: key or secret_key(SECRET), TokenClaims(**claims))


def refused(gatekeeper: TokenGatekeeper, data: bytes, why: str, method: str = "token") -> None:
    with pytest.raises(RefusedError, match=why) as found:
        gatekeeper.role_of(method, data, NOW)
    assert found.value.code is ErrorCode.AUTHENTICATION


def by_hand(header: object, claims: object, key: bytes) -> bytes:
    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part(header) + b"." + part(claims)
    signature = hmac.new(key, signed, hashlib.sha256).digest()
    return signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_key(algorithm: str) -> None:
    assert keeper().role_of("token", token(SECRET, algorithm), NOW) == ("reader", None)


@pytest.mark.parametrize("written", [der, pem])
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS384"), (RSA, "RS512"), (CURVE, "ES256"), (OTHER_CURVE, "ES384")],
)
def test_a_public_key(key, algorithm, written) -> None:
    assert keeper(public_key(written(key))).role_of("token", token(key, algorithm), NOW) == ("reader", None)


def test_a_token_holds_until_it_expires() -> None:
    assert keeper().role_of("token", token(exp=NOW + 5), NOW) == ("reader", NOW + 5)
    refused(keeper(), token(exp=NOW), "has expired")
    refused(keeper(), token(nbf=NOW + 1), "not valid yet")
    assert keeper().role_of("token", token(nbf=NOW, iat=NOW + 100), NOW) == ("reader", None)


@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize("value", ["soon", [], True, {}])
def test_a_time_that_is_none(claim: str, value: object) -> None:
    data = by_hand({"alg": "HS256"}, {"sub": "reader", claim: value}, SECRET)
    refused(keeper(), data, f"claim {claim} is no time")


def test_a_time_too_far_away_for_a_clock() -> None:
    role, until = keeper().role_of("token", by_hand({"alg": "HS256"}, {"sub": "x", "exp": 10**400}, SECRET), NOW)
    assert role == "x"
    assert until == 2.0**40


def test_a_public_key_is_no_secret() -> None:
    for written in (der(RSA), pem(RSA)):
        confused = by_hand({"alg": "HS256", "typ": "JWT"}, {"sub": "admin"}, written)
        refused(keeper(public_key(written)), confused, "not one of ours")


def test_no_algorithm_is_none() -> None:
    for key in (secret_key(SECRET), public_key(der(RSA))):
        for name in ("none", "None", "", None, ["HS256"], {"a": 1}):
            unsigned = by_hand({"alg": name}, {"sub": "admin"}, SECRET).rpartition(b".")[0] + b"."
            refused(keeper(key), unsigned, "not one of ours")


def test_a_key_is_of_one_kind() -> None:
    refused(keeper(public_key(der(RSA))), token(CURVE, "ES256"), "not one of ours")
    refused(keeper(public_key(der(CURVE))), token(RSA, "RS256"), "not one of ours")
    refused(keeper(), token(RSA, "RS256"), "not one of ours")
    refused(keeper(), token(SECRET[::-1]), "not one of ours")


def test_a_changed_claim_breaks_the_signature() -> None:
    head, _, signature = token().split(b".")
    other = base64.urlsafe_b64encode(b'{"sub":"admin"}').rstrip(b"=")
    refused(keeper(), b".".join([head, other, signature]), "not one of ours")


def test_an_audience() -> None:
    wanted = keeper(audience="archive")
    for aud in ("archive", ["else", "archive"]):
        assert wanted.role_of("token", token(aud=aud), NOW)[0] == "reader"
    for data in (token(), token(aud="else"), token(aud=["else"]), token(aud="archive2")):
        refused(wanted, data, "for another service")
    assert keeper().role_of("token", token(aud="else"), NOW)[0] == "reader", "as with brokers: nobody looks"
    assert keeper(audience="a", audience_claim="for").role_of("token", token(**{"for": "a"}), NOW)[0] == "reader"


def test_the_claim_of_the_role() -> None:
    assert keeper(role="role").role_of("token", token(role=["first", "second"]), NOW)[0] == "first"
    for found in ("", [], None, [None], {"a": 1}):
        refused(keeper(role="role"), token(role=found), "names no role")
    refused(keeper(role="role"), token(), "names no role")


def test_whoever_shows_nothing_is_refused() -> None:
    refused(keeper(), b"", "a token is needed", method="")
    refused(keeper(), token(), "a token is needed", method="basic")
    refused(keeper(), b"", "not one of ours")


@given(st.binary(max_size=200))
@example(b"." * 50)
@example(base64.urlsafe_b64encode(b"[" * 9000) + b"..")
@example(base64.urlsafe_b64encode(b'{"alg":' + b"[" * 9000) + b"..")
@example(b"x" * (MOST_BYTES + 1))
@example(by_hand({"alg": "HS256"}, [], SECRET))
@example(by_hand({"alg": "HS256", "b64": False, "crit": ["b64"]}, {"sub": "x"}, SECRET))
def test_what_is_no_token_is_refused(data: bytes) -> None:
    refused(keeper(), data, "token")


def test_the_refusal_never_repeats_the_token() -> None:
    shown = token(SECRET[::-1])
    with pytest.raises(RefusedError) as found:
        keeper().role_of("token", shown, NOW)
    assert not any(part.decode() in str(found.value) for part in shown.split(b"."))


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 31, pem(RSA)])
def test_what_is_no_secret_key(data: bytes) -> None:
    with pytest.raises(ConfigError):
        secret_key(data)


@given(st.binary(max_size=100))
@example(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----")
def test_what_is_no_public_key(data: bytes) -> None:
    with pytest.raises(ConfigError, match="no public key"):
        public_key(data)


def test_keys_within_the_configuration() -> None:
    text = base64.b64encode(SECRET).decode()
    assert inline_bytes(text) == SECRET
    assert inline_bytes(f"data:;base64,{text}") == SECRET
    assert inline_bytes(f"data:application/octet-stream;base64,{text}") == SECRET
    assert inline_bytes("data:,a%20b") == b"a b"
    for wrong in ("data:", "/nowhere/it.key", "data:;base64,$"):
        with pytest.raises(ConfigError):
            inline_bytes(wrong)


def test_roles_read_the_namespaces_that_they_have() -> None:
    roles = RolePermissions({"a": ["x/y", "t/*"], "b": ["*"], "*": ["common/one"]}, {})
    namespaces = ("x/y", "x/z", "t/1", "common/one", "tt/1")
    read = {role: [name for name in namespaces if roles.may_read(role, name)] for role in ("a", "b", "c")}
    assert read == {"a": ["x/y", "t/1", "common/one"], "b": [*namespaces], "c": ["common/one"]}


def test_roles_subscribe_durably_where_it_is_said() -> None:
    roles = RolePermissions({"*": ["*"]}, {"a": ["x/y", "t/*"], "*": ["common/one"]})
    namespaces = ("x/y", "x/z", "t/1", "common/one")
    durable = {role: [name for name in namespaces if roles.may_subscribe(role, name)] for role in ("a", "b", "")}
    assert durable == {"a": ["x/y", "t/1", "common/one"], "b": ["common/one"], "": ["common/one"]}
