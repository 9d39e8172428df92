"""`offloader ui` in a real browser: every page, by keyboard, on a phone, light and dark, with hostile messages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.browser import DESK, PHONE
from offloader.printable import printable
from offloader.storage.local import LocalStore
from tests.viewer.example import BIDI, KIND_AT, KIND_NAMES, KINDS, ORDERS, SCRIPT, write

pytestmark = pytest.mark.browser

PAGES = (
    "/",
    "/tenant?name=shop",
    "/namespace?name=shop/orders",
    "/search?q=ship",
    f"/topic?name={ORDERS}",
    "/topic?name=shop/orders/shipped",
    f"/record?topic={ORDERS}&slot=9",
    f"/record?topic={ORDERS}&slot=18",
    f"/entries?topic={KINDS}",
    *(f"/entry?topic={KINDS}&at=30:{number}" for number in range(len(KIND_NAMES) + 3)),
    f"/entry?topic={KINDS}&at=30:{KIND_AT['batch']}&batch=3",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command itself, over an archive on disk."""
    folder = tmp_path_factory.mktemp("ui")
    (folder / "archive").mkdir()
    write(LocalStore(str(folder / "archive")))
    config = folder / "offloader.yaml"
    config.write_text(f"storage: {{root: 'file://{folder}/archive'}}\n")
    program = str(Path(sys.executable).with_name("offloader"))
    command = [program, "ui", "--config", str(config), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found.group()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_every_page_fits_and_complains_of_nothing(url, visit, size, scheme) -> None:
    visitor = visit(url, size, scheme)
    for path in PAGES:
        visitor.go(path)
        assert visitor.overflow() <= 0, path
        visitor.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert visitor.overflow() <= 0, f"{path}, with everything open"


def test_a_message_that_is_a_script_does_not_run(url, visit) -> None:
    visitor = visit(url)
    page = visitor.go(f"/entry?topic={KINDS}&at=30:{KIND_AT['script']}")
    assert page.title() != "owned"
    assert page.locator("#view-1").inner_text() == SCRIPT
    assert page.locator("#key").inner_text() == SCRIPT
    assert page.locator("main script, main img").count() == 0
    page = visitor.go(f"/entry?topic={KINDS}&at=30:{KIND_AT['bidi']}")
    assert page.locator("#key").inner_text() == printable(BIDI)


def test_by_keyboard_alone_a_segment_is_reached(url, visit) -> None:
    visitor = visit(url)
    page = visitor.go("/")
    assert visitor.by_keyboard(1) == ["Skip to the content"]
    page.keyboard.press("Enter")
    for wanted in ("shop", "orders", "created", "segment"):
        reach(visitor, wanted)
        with page.expect_navigation():
            page.keyboard.press("Enter")
    assert page.locator("h1").inner_text().startswith("segment")
    page.keyboard.press("/")
    page.keyboard.type("every-kind")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=every-kind")


def reach(visitor, wanted: str) -> None:
    """Tab until it has the focus, which can be seen."""
    for _ in range(60):
        if visitor.by_keyboard(1) in ([wanted], [f"shop/{wanted}"]):
            outline = visitor.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
            return
    pytest.fail(f"{wanted} is not reached by Tab")


def test_a_range_is_saved(url, visit) -> None:
    visitor = visit(url)
    page = visitor.go(f"/topic?name={ORDERS}")
    page.get_by_label("From", exact=True).fill("12:180")
    page.get_by_label("Up to").fill("12:189")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "created.jsonl"
    lines = [json.loads(line) for line in Path(saved.value.path()).read_text().splitlines()]
    assert lines[-1] == {"end": "complete", "count": 10}


def test_without_scripts_everything_is_there(url, visit) -> None:
    visitor = visit(url, scripts=False)
    page = visitor.go(f"/topic?name={ORDERS}")
    page.get_by_label("From a position or a publish time").fill("12:300")
    page.get_by_role("button", name="Show entries").click()
    page.get_by_role("link", name="12:300").click()
    assert page.locator("h1").inner_text() == "Entry 12:300"


def test_a_bar_leads_to_its_segment(url, visit) -> None:
    visitor = visit(url)
    page = visitor.go(f"/topic?name={ORDERS}")
    page.locator("svg.plot a:has(rect.bad)").first.click()
    page.wait_for_url("**/record?**")
    assert "gone before they were offloaded" in page.locator("main").inner_text()
