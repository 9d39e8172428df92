"""What docs/reading.md begins with works: it is run here, but for Spark and for what needs a live topic."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.cli.main import main
from offloader.storage.local import LocalStore
from tests.archive.support import Archive
from tests.format.support import Stored, checksummed

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "reading.md").read_text()
FENCED = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROOT = "s3://pulsar-archive/production"
HOUR = 3_600_000


def examples(heading: str) -> dict[str, str]:
    """What a section has for Python, Spark and the shell."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    python, spark, shell = FENCED.findall(section)
    assert (python[0], spark[0], shell[0]) == ("python", "python", "sh")
    assert "spark." in spark[1]
    return {"python": python[1], "spark": spark[1], "shell": shell[1]}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Four messages around the hour of the page: before its beginning, at both its ends, and after it."""
    start = int(datetime(2026, 11, 21, 14, tzinfo=UTC).timestamp() * 1000)
    built = Archive(LocalStore(tmp_path / "root"))
    built.claim(3, 0)
    times = (start - 1, start, start + HOUR - 1, start + HOUR)
    metadata = [MessageMetadata(producer_name="p", sequence_id=n, publish_time=at) for n, at in enumerate(times)]
    built.add([Stored(3, n, checksummed(each, b"order %d" % n)) for n, each in enumerate(metadata)])
    return (tmp_path / "root").as_uri()


@pytest.mark.parametrize(
    ("heading", "orders"), [("Read everything of a topic", [0, 1, 2, 3]), ("Read an hour", [1, 2])]
)
def test_python_and_the_shell_read(
    heading: str, orders: list[int], root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = examples(heading)
    exec(here["python"].replace(ROOT, root), {})
    assert re.findall(r"order (\d)", capsys.readouterr().out) == [str(n) for n in orders]
    config = tmp_path / "offloader.yaml"
    (storage,) = re.findall(r"`(storage: .*?)`", PAGE)
    config.write_text(storage.replace(ROOT, root))
    result = CliRunner(env={"OFFLOADER_CONFIG": str(config)}).invoke(main, here["shell"].split()[1:])
    assert result.exit_code == 0, result.output
    assert re.findall(r"order (\d)", result.stdout) == [str(n) for n in orders]


@pytest.mark.parametrize("heading", ["Read everything of a topic", "Read an hour", "Follow a topic"])
def test_the_rest_names_what_there_is(heading: str) -> None:
    here = examples(heading)
    for name in ("python", "spark"):
        compile(here[name], heading, "exec")
    imports = "".join(line for line in here["python"].splitlines(keepends=True) if line.startswith("from "))
    exec(imports, {})
    table = PAGE.partition("\n### Options\n")[2].partition("\n### ")[0]
    options = {"topics", *re.findall(r'option\("(\w+)"', here["spark"])}
    assert not {option for option in options if f"`{option}`" not in table}
