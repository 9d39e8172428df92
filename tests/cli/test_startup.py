"""How soon a command begins: each imports only what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from offloader.cli.main import main
from offloader.metadata.root import open_root
from offloader.storage.local import LocalStore
from tests.archive.support import TOPIC, Archive, stream

HEAVY = ("boto3", "httpx", "kazoo", "numpy", "prometheus_client", "pulsar", "pyarrow", "pyspark", "rich.console")
HELP_SECONDS, LIST_SECONDS = 0.5, 1.0
TRIES = 5


@pytest.fixture
def config(tmp_path: Path) -> Path:
    archive = Archive()
    open_root(archive.store, "standalone", archive.token)
    archive.claim(1, 0)
    archive.add(stream(1, 0, 9))
    local = LocalStore(tmp_path / "archive")
    for key, _ in archive.store.list():
        local.put(key, archive.store.read(key)[0])
    path = tmp_path / "offloader.yaml"
    path.write_text(f"storage: {{root: 'file://{tmp_path / 'archive'}'}}\n", encoding="utf-8")
    return path


def cpu_seconds(code: str, *arguments: str) -> float:
    """The CPU time of one process."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


PROGRAM = "import sys; from offloader.cli.main import main; main(sys.argv[1:])"
LIBRARIES = "import click, google.protobuf.descriptor_pool, pydantic, yaml"


def begins_within(seconds: float, *arguments: str) -> bool:
    """Whether a command took no more CPU in one of some tries. On a slow or busy machine it may take more, in
    proportion to what the libraries alone take right after: 0.2 s on an idle core."""
    return any(
        cpu_seconds(PROGRAM, *arguments) < max(seconds, cpu_seconds(LIBRARIES) * seconds / 0.2) for _ in range(TRIES)
    )


def test_help_is_shown_at_once() -> None:
    assert begins_within(HELP_SECONDS, "--help")


@pytest.mark.parametrize("command", [["topics", "list"], ["topics", "segments", str(TOPIC)]], ids=lambda c: c[1])
def test_a_small_archive_is_listed_at_once(config: Path, command: list[str]) -> None:
    assert begins_within(LIST_SECONDS, *command, "--config", str(config))


@pytest.mark.parametrize("command", [["topics", "list"], ["topics", "segments", str(TOPIC)]], ids=lambda c: c[1])
def test_what_a_listing_does_not_need_is_not_imported(config: Path, command: list[str]) -> None:
    code = (
        "import sys; from offloader.cli.main import main\n"
        "assert not main(sys.argv[1:], standalone_mode=False)\n"
        f"print(*sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    arguments = [*command, "--output", "json", "--config", str(config)]
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr.strip()) == (0, "")
    assert TOPIC.name in ran.stdout


def test_every_command_of_the_help_is_there() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
