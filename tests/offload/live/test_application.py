"""The running application's own page: who may see it, and what it says before the first view and at the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import ValidationError

from offloader.config import Config
from offloader.errors import ConfigError, OvertakenError
from offloader.metrics import Metrics
from offloader.offload.application import Application
from offloader.offload.driver.driver import Driver
from tests.offload.live.showing import caught_up, view
from tests.pages.calling import ask

TOKEN = "0123456789abcdef"
CONFIG = """
application: app
pulsar: {{serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}}
storage: {{root: "memory://"}}
metrics: {{{metrics}}}
"""


def application(metrics: str = "") -> Application:
    return Application(Config.parse(CONFIG.format(metrics=metrics), {}))


def healthy() -> Metrics:
    metrics = Metrics()
    for service in ("store", "pulsar"):
        metrics.health.checked(service)
    return metrics


def test_before_the_first_view_it_says_that_it_starts():
    reply = ask(application()._site(healthy()), "/")
    assert reply.status == 503
    assert "the application is starting" in reply.text


def test_it_says_that_it_stops_and_why_it_ends():
    app = application()
    site = app._site(healthy())
    app.driver = cast("Driver", SimpleNamespace(view=view(caught_up("t")), stop=lambda: None))
    assert "It stops" not in ask(site, "/").text
    app.stop()
    assert "It stops, as asked, after the present batch." in ask(site, "/").text
    app._fail(OvertakenError("another process owns the journal of app now"))
    assert "It ends: another process owns the journal of app now" in ask(site, "/").text


def test_other_machines_see_it_with_the_token_alone():
    app = application(f"host: 0.0.0.0, pageToken: {TOKEN!r}")
    app.driver = cast("Driver", SimpleNamespace(view=view(caught_up("t"))))
    site = app._site(healthy())
    elsewhere = {"REMOTE_ADDR": "10.0.0.9", "HTTP_HOST": "offloader:9464"}
    assert ask(site, "/", **elsewhere).status == 401
    assert ask(site, "/", HTTP_AUTHORIZATION=f"Bearer {TOKEN}", **elsewhere).status == 200
    assert ask(application("host: 0.0.0.0")._site(healthy()), "/", **elsewhere).status == 403


def test_a_token_that_can_be_guessed_is_refused_with_the_setting_s_name():
    with pytest.raises((ConfigError, ValidationError), match="pageToken"):
        application("pageToken: short")
