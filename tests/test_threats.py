"""SECURITY.md: each threat names the test that shows what happens, and what no other test shows is shown here."""

from __future__ import annotations

import re
from pathlib import Path

from click import Context

from offloader.archive.archive import Archive as Reader
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.cli.main import main
from offloader.config import Config
from offloader.config.gateway import GatewayTls
from offloader.operations.verify.verify import verify
from tests.archive.support import TOPIC, Archive, stream

PAGE = Path(__file__).resolve().parents[1] / "SECURITY.md"
NAMED = re.compile(r"\[`(?:\w+\.)?test_\w+`\]\((?:tests|integration)/[\w/]+\.py\)")
LEAST = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "file:///unused"}
"""
LOOPBACK = ("127.0.0.1", "")


def rows() -> list[list[str]]:
    table = PAGE.read_text().partition("\n| who | tries to |")[2]
    return [line.strip("|").split(" | ") for line in table.splitlines()[2:] if line.startswith("|")]


def test_each_threat_names_a_test() -> None:
    """Whether they exist, `tests/test_docs.py` looks, as of every link of that form."""
    assert len(rows()) > 25
    for who, threat, happens, shown in rows():
        assert NAMED.search(shown), f"{who.strip()}, {threat}: no test shows it"
        assert happens.strip()


def test_it_says_who_is_trusted_how_to_report_and_what_is_supported() -> None:
    titles = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert titles == ["Reporting", "Supported versions", "What is trusted", "What is not trusted", "Threats"]
    assert "@" not in PAGE.read_text(), "reports go through the repository's advisories"


def test_by_default_nothing_listens_beyond_this_machine() -> None:
    config = Config.parse(LEAST, {})
    gateway = config.gateway
    said = [
        config.metrics.host,
        *(each.rpartition(":")[0] for each in (gateway.listen, gateway.http_listen, gateway.metrics_listen)),
        *(str(GatewayTls.model_fields[name].default).rpartition(":")[0] for name in ("listen", "http_listen")),
    ]
    assert set(said) <= set(LOOPBACK), said
    page = main.get_command(Context(main), "ui")
    assert page is not None
    listen = next(option for option in page.params if option.name == "listen")
    assert str(listen.default).startswith("127.0.0.1:")


def test_a_bucket_writer_who_forges_all_of_it_is_believed() -> None:
    """Checksums find accidents. Nothing is signed: an archive that was made up is as sound as any."""
    forged = Archive()
    forged.claim(7)
    forged.add(stream(7, 0, 4))
    assert verify(forged.store).findings == ()
    entries = list(Reader(OpenArchive(Stores.of(forged.store))).topic(TOPIC).entries())
    assert len(entries) == 5
