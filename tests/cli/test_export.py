"""`topics export`: what is in the files, what they are called, and that there are none when it was interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from offloader.cli.main import main
from offloader.model import Position
from offloader.operations.export import export as exporting
from offloader.storage.local import LocalStore
from tests.archive.messages.encoder import Producer, Sent, batch, chunked, single
from tests.archive.support import Archive, gap, stream
from tests.examples import few
from tests.format.support import Stored

START = 1_700_000_000_000


def message(seconds: int) -> bytes:
    return single(Producer(publish_time=START + 1000 * seconds), Sent(f"m{seconds}".encode(), key=b"k")).data


@pytest.fixture
def archived(line):
    """Six messages in five entries, a gap and a loss."""
    line.archive.claim(1, 0)
    entries = [
        message(0),
        batch(Producer(publish_time=START), [Sent(b"a"), Sent(None)]).data,
        *(message(n) for n in (2, 3, 4)),
    ]
    line.archive.add([Stored(1, n, data) for n, data in enumerate(entries)], [gap(1, 5, 6)])
    line.archive.lose(Position(0, 1, 7), Position(0, 1, 8))
    return line


def export(line, *arguments: object) -> str:
    return line.ok("topics", "export", "orders", *map(str, arguments))


def names(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_messages_with_all_columns(archived, tmp_path: Path) -> None:
    target = tmp_path / "out" / "orders.parquet"
    text = export(archived, "--to", target)
    table = pq.read_table(target)
    assert table.schema.equals(MESSAGE_SCHEMA)
    assert table.column("value").to_pylist() == [b"m0", b"a", None, b"m2", b"m3", b"m4"]
    assert table.column("__entryId").to_pylist() == [0, 1, 1, 2, 3, 4]
    assert text.splitlines() == [
        "# 1:7..1:8 is missing: lost: trimmed (accepted by accept-loss)",
        f"persistent://public/default/orders: 6 messages exported to {target} (1 files, {target.stat().st_size} "
        "bytes), 2 positions in gaps, 1 stretches missing",
    ]
    assert names(tmp_path / "out") == ["orders.parquet"]


def test_the_summary_as_json(archived, tmp_path: Path) -> None:
    (topic,) = archived.json("topics", "export", "orders", "--to", str(tmp_path / "x"))["topics"]
    path = tmp_path / "x" / "part-00000.parquet"
    assert topic == {
        "topic": "persistent://public/default/orders", "rows": 6, "gaps": 2, "withoutValue": {},
        "missing": [{"from": "1:7", "to": "1:8", "why": "lost: trimmed (accepted by accept-loss)"}],
        "files": [{"path": str(path), "rows": 6, "bytes": path.stat().st_size}],
    }  # fmt: skip


def test_columns_and_ranges(archived, tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    export(archived, "--to", target, "--columns", "__key, value", "--from", START + 2000, "--until", "1:3")
    table = pq.read_table(target)
    assert table.to_pydict() == {"__key": [b"k", b"k"], "value": [b"m2", b"m3"]}


def test_entries(archived, tmp_path: Path) -> None:
    export(archived, "--to", tmp_path / "a.parquet", "--entries")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.equals(ENTRY_SCHEMA)
    assert table.column("data").to_pylist()[2:] == [message(n) for n in (2, 3, 4)]
    bounds = ("--from", START + 2000, "--until", START + 3000)
    export(archived, "--to", tmp_path / "b.parquet", "--entries", "--columns", "entryId", *bounds)
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == {"entryId": [2, 3]}


def test_a_message_without_its_value_is_told_of_whatever_the_columns_are(line, tmp_path: Path) -> None:
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, message(0)), Stored(1, 1, chunked(Producer(), Sent(b"abcd"), 2, "u")[1].data)])
    text = export(line, "--to", tmp_path / "a.parquet", "--columns", "value")
    assert text.endswith("0 stretches missing, 1 messages without value: chunks-missing\n")
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"value": [b"m0", None]}


def test_damage_is_an_error_or_skipped_and_told(line, tmp_path: Path) -> None:
    line.archive.claim(1, 0)
    line.archive.add([Stored(1, 0, message(0)), Stored(1, 1, b"opaque")])
    assert line.error("topics", "export", "orders", "--to", str(tmp_path / "x")).startswith("public/default/orders/")
    assert names(tmp_path) == ["offloader.yaml"]
    assert export(line, "--to", tmp_path / "x", "--on-damage", "skip").endswith("1 messages without value: damaged\n")


def test_a_folder_has_files_of_about_a_size(line, tmp_path: Path) -> None:
    line.archive.claim(1, 0)
    entries = [single(Producer(), Sent(os.urandom(5_000))).data for _ in range(60)]
    for first in range(0, 60, 10):
        line.archive.add([Stored(1, first + n, data) for n, data in enumerate(entries[first : first + 10])])
    export(line, "--to", tmp_path / "out", "--max-file-bytes", "40K", "--entries")
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == [f"part-{n:05}.parquet" for n in range(len(files))]
    assert len(files) > 3
    table = pa.concat_tables([pq.read_table(path) for path in files])
    assert table.column("data").to_pylist() == entries


def test_a_topic_without_messages_is_a_file_without_rows(line, tmp_path: Path) -> None:
    line.archive.claim(1, 0)
    for target in ("a.parquet", "folder"):
        export(line, "--to", tmp_path / target)
        assert pq.read_table(tmp_path / target).num_rows == 0
        assert pq.read_table(tmp_path / target).schema.names == MESSAGE_SCHEMA.names


@pytest.fixture
def partitioned(line):
    for number in (0, 2, 10):
        built = Archive(line.archive.store, replace(line.archive.topic, name=f"orders-partition-{number}"))
        built.claim(number + 1, 0)
        built.add(stream(number + 1, 0, number))
    other = Archive(line.archive.store, replace(line.archive.topic, name="orders-partition-2-copy"))
    other.claim(50, 0)
    return line


def test_a_partitioned_topic_is_exported_partition_by_partition(partitioned, tmp_path: Path) -> None:
    said = export(partitioned, "--to", tmp_path / "a" / "orders.parquet")
    assert f"exported to {tmp_path / 'a' / 'orders-partition-N.parquet'} (3 files" in said, (
        "the file that was named is none"
    )
    assert names(tmp_path / "a") == [f"orders-partition-{n}.parquet" for n in (0, 10, 2)]
    assert pq.read_table(tmp_path / "a" / "orders-partition-2.parquet").num_rows == 3
    found = partitioned.json("topics", "export", "orders", "--to", str(tmp_path / "b"))["topics"]
    assert [(topic["topic"][-2:], topic["rows"]) for topic in found] == [("-0", 1), ("-2", 3), ("10", 11)]
    for number in (0, 2, 10):
        assert (
            pq.read_table(tmp_path / "b" / f"orders-partition-{number}" / "part-00000.parquet").num_rows == number + 1
        )


def test_what_is_there_is_replaced_only_when_asked(archived, tmp_path: Path) -> None:
    for target in (tmp_path / "a.parquet", tmp_path / "folder"):
        arguments = ("topics", "export", "orders", "--to", str(target))
        archived.ok(*arguments)
        assert archived.error(*arguments) == f"{target} is there already; --overwrite replaces it"
        archived.ok(*arguments, "--overwrite", "--until", "1:0")
        assert pq.read_table(target).num_rows == 1
    assert names(tmp_path) == ["a.parquet", "folder", "folder/part-00000.parquet", "offloader.yaml"]
    (tmp_path / "empty").mkdir()
    export(archived, "--to", tmp_path / "empty")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    mine = str(tmp_path / "mine")
    text = archived.error("topics", "export", "orders", "--to", mine, "--overwrite")
    assert text == f"{mine} has more in it than an export, and is not replaced; choose another folder"
    (tmp_path / "plain").write_text("x")
    assert archived.error("topics", "export", "orders", "--to", str(tmp_path / "plain"), "--overwrite").endswith(
        "is no folder, and no file with .parquet"
    )
    (tmp_path / "d.parquet").mkdir()
    text = archived.error("topics", "export", "orders", "--to", str(tmp_path / "d.parquet"))
    assert text.endswith("is no file; a name that ends with .parquet means one")
    assert archived.error("topics", "export", "orders", "--to", "/dev/full", "--overwrite").startswith(
        "/dev/full is no folder"
    )
    assert archived.error("topics", "export", "orders", "--to", "x" * 300).endswith(
        "cannot be written: File name too long"
    )


def test_what_a_link_leads_to_is_replaced_and_not_the_link(archived, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    export(archived, "--to", tmp_path / "link")
    export(archived, "--to", tmp_path / "link", "--overwrite")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["part-00000.parquet"]


@pytest.mark.parametrize("target", ["x.parquet", "folder"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_export_that_is_interrupted_leaves_what_was_there(
    archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target, failure
) -> None:
    export(archived, "--to", tmp_path / target, "--until", "1:0")
    before = names(tmp_path)

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(exporting, "_sync", fail)
    result = archived.run("topics", "export", "orders", "--to", str(tmp_path / target), "--overwrite")
    assert result.exit_code == (130 if failure is KeyboardInterrupt else 1)
    assert "Traceback" not in result.output
    assert (names(tmp_path), pq.read_table(tmp_path / target).num_rows) == (before, 1)


# A file of so many row groups that it is certainly not done when the signal comes.
SLOWLY = """
import signal, time
from offloader.operations.export import export as exporting
from offloader.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
exporting.GROUP_BYTES = 1000
write = exporting._OpenFile.write


def slowly(self, table):
    size = write(self, table)
    time.sleep(0.1)
    return size


exporting._OpenFile.write = slowly
main()
"""


@pytest.mark.usefixtures("line")
@pytest.mark.parametrize("target", ["x.parquet", "folder"])
@pytest.mark.parametrize("before", few([True, False], 1))
def test_ctrl_c_in_the_middle_of_a_file_is_one_line_and_leaves_what_was_there(tmp_path: Path, target, before) -> None:
    built = Archive(LocalStore(tmp_path / "archive"))
    built.claim(1, 0)
    built.add(stream(1, 0, 2_000))
    (tmp_path / "offloader.yaml").write_text(f"storage: {{root: {built.store.url}}}\n")
    (tmp_path / "out").mkdir()
    command = ["topics", "export", "orders", "--overwrite"]
    command += ["--to", str(tmp_path / "out" / target), "--config", str(tmp_path / "offloader.yaml")]
    if before:
        assert CliRunner().invoke(main, [*command, "--until", "1:0"]).exit_code == 0
    there = names(tmp_path / "out")

    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not any(path.stat().st_size > 1000 for path in (tmp_path / "out").glob(".*/*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, errors) == (130, "", "\nerror: interrupted\n")  # behind the terminal's ^C
    assert names(tmp_path / "out") == there
    if before:
        assert pq.read_table(tmp_path / "out" / target).num_rows == 1


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(5, "Input/output error")])
def test_a_folder_that_cannot_be_replaced_is_put_back(
    archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure
) -> None:
    export(archived, "--to", tmp_path / "folder", "--until", "1:0")
    before, replace = names(tmp_path), Path.replace

    def fail(path: Path, target: Path) -> Path:
        if path.name.endswith(".partial"):
            raise failure
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail)
    result = archived.run("topics", "export", "orders", "--to", str(tmp_path / "folder"), "--overwrite")
    assert result.exit_code == (130 if failure is KeyboardInterrupt else 1)
    assert (names(tmp_path), pq.read_table(tmp_path / "folder").num_rows) == (before, 1)


def test_where_it_cannot_be_written(archived, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "cannot be made: Not a directory" in archived.error(
        "topics", "export", "orders", "--to", str(tmp_path / "file" / "x")
    )
    text = archived.error("topics", "export", "orders", "--to", "s3://bucket/x")
    assert text == (
        "Invalid value for '--to': 's3://bucket/x' is no path of this machine; export to a file or folder here, then "
        "copy it"
    )
    text = archived.error("topics", "export", "orders", "--to", str(tmp_path / "a.parquet"), "--max-file-bytes", "1M")
    assert text == "--max-file-bytes: FILE.parquet is one file; name a folder in --to"


@pytest.mark.parametrize(
    ("size", "says"), [("0", "write a size above 0"), ("0M", "write a size above 0"), ("-1", "is not a size")]
)
def test_a_size_that_no_file_can_have_is_refused(archived, tmp_path: Path, size, says) -> None:
    text = archived.error("topics", "export", "orders", "--to", str(tmp_path / "out"), "--max-file-bytes", size)
    assert text.startswith("Invalid value for '--max-file-bytes': ")
    assert says in text
    assert names(tmp_path) == ["offloader.yaml"]


def test_memory_is_bounded(line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "GROUP_BYTES", 30_000)
    line.archive.claim(1, 0)
    for first in range(0, 60, 10):
        line.archive.add([Stored(1, first + n, single(Producer(), Sent(os.urandom(5_000))).data) for n in range(10)])
    export(line, "--to", tmp_path / "a.parquet")
    groups = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert max(groups.row_group(n).num_rows for n in range(groups.num_row_groups)) < 20


def test_progress_is_shown_on_a_terminal_only(archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("topics", "export", "orders", "--overwrite", "--to", str(tmp_path / "a.parquet"), "--until", "1:3")
    assert archived.run(*arguments).stderr == ""
    monkeypatch.setattr("offloader.cli.export.Console", partial(Console, force_terminal=True, width=200))
    result = archived.run(*arguments)
    assert "persistent://public/default/orders" in result.stderr
    assert len(result.stdout.splitlines()) == 1
