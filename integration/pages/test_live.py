"""The page of `offloader run` in a real browser, and of a real application beside a real Pulsar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.application import RunningApplication
from integration.browser import DESK, PHONE, Visitor
from integration.patient import PatientPulsar
from integration.produce import open_client
from tests.offload.live.showing import Shown
from tests.offload.live.states import EVIL, STATES, failing, hostile, topic
from tests.storage.servers import free_port

pytestmark = pytest.mark.browser

Visit = Callable[..., Visitor]
Serve = Callable[[Shown], str]


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_complained_of_and_it_fits_on_a_phone(visit: Visit, serve: Serve, state: str) -> None:
    url = serve(STATES[state]())
    for size, scheme in ((DESK, "light"), (PHONE, "dark")):
        visitor = visit(url, size, scheme)
        for path in ("/", "/?state=Caught+up&q=partition", f"/topic?name={topic(3)}", "/alarms"):
            visitor.go(path)
            assert visitor.overflow() <= 0, path


@pytest.mark.parametrize("scripts", [True, False])
def test_what_others_call_themselves_stays_text(visit: Visit, serve: Serve, *, scripts: bool) -> None:
    url = serve(hostile())
    page = visit(url, scripts=scripts).go("/")
    shown = EVIL.replace("\u202e", "\\u202e")
    assert page.locator("p.trouble", has_text="alert(1)").inner_text() == shown
    assert page.locator("main script, main img").count() == 0
    page.get_by_role("link", name=shown).first.click()
    assert page.locator("h1").inner_text() == shown


def test_a_failing_topic_leads_to_what_is_to_be_done_by_keyboard(visit: Visit, serve: Serve) -> None:
    url = serve(failing())
    visitor = visit(url)
    page = visitor.go("/")
    assert page.get_by_text("4 of 19 topics need you.").is_visible()
    walk = visitor.by_keyboard()
    assert walk[0] == "Skip to the content"
    assert {"Show them", "All 19", "What to do: kind-fatal", "Metrics"} <= set(walk)
    page.get_by_role("link", name="What to do: kind-fatal").press("Enter")
    page.wait_for_url("**/alarms#kind-fatal")
    assert "permissions, configuration" in page.locator("#kind-fatal").inner_text()


def test_topics_are_found_without_a_mouse(visit: Visit, serve: Serve) -> None:
    url = serve(failing())
    page = visit(url).go("/")
    page.keyboard.press("/")
    page.keyboard.type("SHIPPED")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=SHIPPED")
    names = page.locator("th.topic a").all_inner_texts()
    assert names
    assert all("shipped" in name for name in names)


@pytest.mark.pulsar
def test_a_real_application_shows_its_topics(
    tmp_path: Path, pulsar: PatientPulsar, namespace: str, visit: Visit
) -> None:
    port = free_port()
    config = {
        "application": "looked-at",
        "pulsar": {"serviceUrl": pulsar.service_url, "adminUrl": pulsar.admin_url},
        "storage": {"root": (tmp_path / "archive").as_uri()},
        "spark": {"trigger": "500ms"},
        "discoveryInterval": "1s",
        "metrics": {"port": port},
        "policies": {"maxOffloadSegmentRolloverTimeInSeconds": 2, "partSizeInBytes": "1M"},
        "namespaces": {namespace: {"enabled": True}},  # that one alone: others have topics of other tests
    }
    with RunningApplication(json.dumps(config), tmp_path / "run", light=True) as application:
        application.start().wait_ready()
        client = open_client(pulsar.service_url)
        producer = client.create_producer(f"persistent://{namespace}/looked-at")
        for number in range(100):
            producer.send(f"message {number}".encode())
        client.close()
        visitor = visit(f"http://127.0.0.1:{port}")
        application.until(lambda: "Closed by" in visitor.page.content() or not visitor.go("/"), "with a segment")
        row = visitor.page.locator("tbody tr", has=visitor.page.get_by_role("link", name="looked-at")).first
        assert re.search(r"Caught up|Assigned|Closing|Sealing", row.inner_text())
        application.until(lambda: "1 topic, nobody needs you" in visitor.go("/").content(), "well")
        application.until(
            lambda: "0 entries" in visitor.go(f"/topic?name={namespace}/looked-at").content(), "without a lag"
        )
        visitor.leave()
        assert application.stop() == 0
