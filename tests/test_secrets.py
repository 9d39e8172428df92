"""No secret stands in what is printed of settings, in a debugger or in a log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest

from offloader.archive.spark.parsing import parse_options
from offloader.bookkeeper.settings import BookieSettings, PlainAuthentication
from offloader.config import Config
from offloader.errors import BrokerUnavailableError, ConfigError
from offloader.pages.access import PageAccess
from offloader.pulsar.auth import authentication
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.runtime.connections import pulsar_settings, store_settings
from offloader.storage.settings import StoreSettings

SECRET = "s3cr3t"
FILE = f"""
application: a
pulsar: {{serviceUrl: "pulsar://b:6650", adminUrl: "http://b:8080", authPlugin: token, authParams: "token:{SECRET}"}}
storage: {{root: "gs://bucket/x", options: {{token: "{SECRET}"}}}}
metrics: {{pageToken: "{SECRET}-that-nobody-guesses"}}
spark: {{conf: {{spark.ssl.keyPassword: "{SECRET}"}}}}
namespaces: {{public/default: {{enabled: true}}}}
"""


def _settings() -> Iterator[object]:
    config = Config.parse(FILE, {})
    pulsar, store = pulsar_settings(config), store_settings(config.storage)
    assert SECRET in pulsar.auth_params
    assert SECRET in dict(store.options).values()
    yield from (config.metrics, PageAccess(f"{SECRET}-that-nobody-guesses"))
    yield from (config, config.pulsar, config.storage, config.spark, pulsar, store, store.beside("gs://other", "x"))
    yield authentication(pulsar)
    yield RestClient(pulsar)
    yield BookieSettings(authentication=partial(PlainAuthentication, "plugin", SECRET.encode()))
    yield PlainAuthentication("plugin", SECRET.encode())
    yield StoreSettings("s3://bucket", access_key=SECRET, secret_key=SECRET)
    yield PageAccess(SECRET * 3)
    yield parse_options({"root": "gs://bucket/x", "topic": "a/b/c", "storage.token": SECRET})


@pytest.mark.parametrize("one", list(_settings()), ids=lambda one: type(one).__name__)
def test_no_settings_show_a_secret(one: object) -> None:
    shown = [repr(one), str(one), f"{one}", "%r" % (one,), repr([one])]  # noqa: UP031 (as loggers do)
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize("url", [f"sftp://me:{SECRET}@host/x", f"https://:{SECRET}@host/x"])
def test_a_url_with_a_password_is_refused_without_showing_it(url: str) -> None:
    for make in (lambda: StoreSettings(url), lambda: StoreSettings("s3://bucket", endpoint=url)):
        with pytest.raises(ConfigError, match="the URL has a password in it") as refused:
            make()
        assert SECRET not in str(refused.value)


def test_no_log_of_a_call_that_fails_shows_the_token(caplog: pytest.LogCaptureFixture) -> None:
    pulsar = PulsarSettings(
        admin_url="http://127.0.0.1:1", auth_plugin="token", auth_params=f"token:{SECRET}", connect_timeout=0.2
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(BrokerUnavailableError) as refused:
        RestClient(pulsar).get("clusters")
    assert SECRET not in repr(refused.value)
    assert SECRET not in caplog.text
