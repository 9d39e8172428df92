"""`from offloader import Archive`: what is public is there, costs nothing before it is used, and does what its examples
say."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import offloader
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.storage.local import LocalStore
from tests.archive.support import Archive as Built
from tests.archive.support import gap
from tests.format.support import Stored, checksummed

ROOT = Path(__file__).parents[1]
NAMED = re.compile("s3://pulsar-archive/production|file:///tmp/pulsar-archive")  # what the examples call the archive
MANUAL = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "reading.md").read_text(), re.MULTILINE | re.DOTALL)
START = 1_795_269_600_000
EXPENSIVE = {"boto3", "botocore", "fsspec", "google", "httpx", "numpy", "pandas", "pyarrow", "pydantic", "pyspark"}


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def examples() -> list[doctest.DocTest]:
    """Of everything public, and of its methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    homes = {
        inspect.getmodule(value) for value in map(offloader.__getattr__, offloader.__all__) if inspect.isclass(value)
    }
    found = [test for home in homes for test in finder.find(home) if test.examples]
    return sorted(found, key=lambda test: test.name)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The archive of the examples: four messages, one a minute, and a gap."""
    folder = tmp_path_factory.mktemp("archive") / "root"
    built = Built(LocalStore(folder))
    built.claim(12, 0)
    metadata = [
        MessageMetadata(producer_name="p", sequence_id=n, publish_time=START + 60_000 * n, partition_key=key)
        for n, key in enumerate(("alice", "bob", "alice", "bob"))
    ]
    entries = [Stored(12, n, checksummed(each, f"order {n}".encode())) for n, each in enumerate(metadata)]
    built.add(entries, [gap(12, 4, 5)])
    return folder.as_uri()


def test_importing_it_is_cheap() -> None:
    assert EXPENSIVE & modules_after("import offloader") == set()
    assert {"pyarrow", "boto3", "httpx", "pyspark"} & modules_after(
        "from offloader import Archive, Selection, Position"
    ) == set()


@pytest.mark.parametrize("name", offloader.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(offloader, name)

    assert name in dir(offloader)
    assert not inspect.isclass(value) or inspect.getdoc(value)


def test_no_other_name_is() -> None:
    with pytest.raises(AttributeError, match="module 'offloader' has no attribute 'Archiv'"):
        offloader.Archiv  # noqa: B018 (it is what raises)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_examples_do_what_they_say(example: doctest.DocTest, root: str) -> None:
    public: dict[str, Any] = {name: getattr(offloader, name) for name in offloader.__all__}
    for step in example.examples:
        step.source = NAMED.sub(root, step.source)
    with offloader.Archive(root) as archive:
        example.globs = {**public, "orders": archive.topic("orders")}
        said: list[str] = []
        assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("code", [code for code in MANUAL if "with Archive(" in code and "pulsar=" not in code])
def test_the_manual_s_examples_run(code: str, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(NAMED.sub(root, code), {})
    if "archive.topics(" in code:
        messages = [
            f"12:{n} -1 {START + 60_000 * n} {key!r} b'order {n}'" for n, key in enumerate([b"alice", b"bob"] * 2)
        ]
        assert capsys.readouterr().out.splitlines()[1:] == messages


def test_what_reads_an_archive_has_an_example() -> None:
    having = {test.name.removeprefix("offloader.archive.") for test in examples()}
    calls = {
        f"{home}.{kind.__name__}.{name}"
        for home, kind in (("archive", offloader.Archive), ("topic", offloader.ArchivedTopic))
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    of_topics = {f"topic.ArchivedTopic.{name}" for name in ("first_position", "read", "unpacking")}
    assert calls - having == {"archive.Archive.close", *of_topics}


def test_the_wheel_says_that_it_is_typed() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    assert {"offloader/py.typed", "offloader/_proto/__init__.py", "offloader/cli/main.py"} <= shipped
    assert not any(path.startswith(("dev/", "tests/")) for path in shipped)


def test_the_wheel_has_what_pages_are_made_of() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    kinds = (".html", ".css", ".js", ".svg")
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "offloader").rglob("*") if path.suffix in kinds}
    assert len(there) >= 7
    assert there <= shipped
