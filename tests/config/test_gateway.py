"""The section `gateway`: who may read is said by somebody."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from offloader.config.gateway import Gateway


def problem(**section: object) -> str:
    with pytest.raises(ValidationError) as found:
        Gateway.model_validate(section)
    return str(found.value)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"listen": "[::1]:6650"},
        {"listen": "localhost:0"},
        {"listen": "0.0.0.0:6650", "advertised": "pulsar://g:6650", "anyoneMayRead": True},
        {"listen": "[::]:6650", "advertised": "pulsar://g:6650", "tokenPublicKey": "k", "roles": {"*": "*"}},
        {"listen": "", "tls": {"certificate": "c", "key": "k"}},
        {"listen": "gateway:6650", "tokenSecretKey": "k", "roles": {"a": ["t/n", "t/*"], "b": "t/n"}},
    ],
)
def test_what_is_complete(section: dict[str, object]) -> None:
    Gateway.model_validate(section)


def test_clients_are_never_told_an_address_that_is_none() -> None:
    for listen in ("0.0.0.0:7000", "[::]:7000"):
        told = problem(listen=listen, anyoneMayRead=True)
        assert f"listen is {listen}, which no client can connect to" in told
        assert "set advertised, for example pulsar://gateway.example:7000" in told
        told = problem(tls={"listen": listen, "certificate": "c", "key": "k"}, anyoneMayRead=True)
        assert "set tls.advertised, for example pulsar+ssl://gateway.example:7000" in told


def test_nobody_opens_an_archive_by_mistake() -> None:
    for listen in ("0.0.0.0:6650", "[::]:6650", "gateway.example:6650", "10.0.0.1:6650"):
        assert "anyoneMayRead" in problem(listen=listen)
        assert "anyoneMayRead" in problem(httpListen=listen)
        assert "anyoneMayRead" in problem(tls={"listen": listen, "certificate": "c", "key": "k"})
        assert "anyoneMayRead" in problem(tls={"httpListen": listen, "certificate": "c", "key": "k"})
    assert "nothing is listened on" in problem(listen="")
    assert "nobody may read" in problem(tokenPublicKey="k")
    assert "anyoneMayRead" in problem(tokenPublicKey="k", roles={"a": "*"}, anyoneMayRead=True)
    assert "tokenPublicKey" in problem(roles={"a": "*"})
    assert "one key" in problem(tokenPublicKey="k", tokenSecretKey="k", roles={"a": "*"})


@pytest.mark.parametrize("namespace", ["", "tenant", "a/b/c", "*/b", "te*/a", "/", "a/", "persistent://a/b"])
def test_what_is_no_namespace(namespace: str) -> None:
    assert "is no namespace" in problem(tokenPublicKey="k", roles={"a": [namespace]})


def test_a_secret_key_is_not_shown() -> None:
    section = Gateway.model_validate({"tokenSecretKey": "s3cret", "roles": {"a": "*"}})
    assert "s3cret" not in repr(section)
    assert "s3cret" not in problem(tokenSecretKey="s3cret")


def test_addresses_of_this_machine_alone() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "[::1]", "localhost"):
        Gateway.model_validate({"listen": f"{host}:6650"})
    for host in ("0.0.0.0", "[::]", "10.0.0.1", "host"):
        assert "would read everything" in problem(listen=f"{host}:6650")


def test_addresses_that_are_none() -> None:
    tls = {"certificate": "c", "key": "k"}
    for wrong in ("x", "x:y", "host:70000", "http://host:1"):
        for section in ({"listen": wrong}, {"httpListen": wrong}, {"tls": {**tls, "listen": wrong}}):
            assert "no address to listen on" in problem(**section)
    for section in (
        {"advertised": "pulsar+ssl://a:1"},
        {"advertised": "pulsar://fd00::1:6650"},  # a pod's address where pods have IPv6
        {"advertised": "pulsar://a:1,b:1"},
        {"advertised": "pulsar://a:port"},
        {"tls": {**tls, "advertised": "pulsar://a:1"}},
    ):
        assert "no address of a gateway" in problem(**section)


def test_the_removed_end_says_what_to_do() -> None:
    told = problem(atEnd="handOver")
    assert "handOver was removed (1db0db3f is the last commit that has it): write wait or end, and" in told


def test_what_only_durable_subscriptions_use_needs_the_option() -> None:
    for setting in (
        {"durableRoles": {"*": "*"}, "anyoneMayRead": True},
        {"durableAcks": True},
        {"subscriptionsPerTopic": 9},
    ):
        name = next(iter(setting))
        assert f"{name} is set and durableSubscriptions is false; set that to true, or remove" in problem(**setting)
        Gateway.model_validate({**setting, "durableSubscriptions": True})
    assert not Gateway().durable_subscriptions
