"""`topics export`: what is in the files, what they are called, and that there are none when it was interrupted."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offloader.archive.exporting import parquet
from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from offloader.model import Position
from tests.archive.messages.encoder import Producer, Sent, batch, chunked, single
from tests.archive.support import Archive, gap, stream
from tests.format.support import Stored

START = 1_700_000_000_000


def message(seconds: int) -> bytes:
    return single(Producer(publish_time=START + 1000 * seconds), Sent(f"m{seconds}".encode(), key=b"k")).data


@pytest.fixture
def archived(line):
    """Six messages in five entries, a gap and a loss."""
    line.archive.claim(1, 0)
    entries = [message(0), batch(Producer(publish_time=START), [Sent(b"a"), Sent(None)]).data, *(message(n) for n in (2, 3, 4))]
    line.archive.add([Stored(1, n, data) for n, data in enumerate(entries)], [gap(1, 5, 6)])
    line.archive.lose(Position(0, 1, 7), Position(0, 1, 8))
    return line


def export(line, *arguments: object) -> str:
    return line.ok("topics", "export", "orders", *map(str, arguments))


def names(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_messages_with_all_columns(archived, tmp_path) -> None:
    target = tmp_path / "out" / "orders.parquet"
    text = export(archived, "--to", target)
    table = pq.read_table(target)
    assert table.schema.equals(MESSAGE_SCHEMA)
    assert table.column("value").to_pylist() == [b"m0", b"a", None, b"m2", b"m3", b"m4"]
    assert table.column("__entryId").to_pylist() == [0, 1, 1, 2, 3, 4]
    assert text.splitlines() == [
        "# 1:7..1:8 is missing: lost: trimmed (accepted by accept-loss)",
        f"persistent://public/default/orders: 6 messages exported to {target} (1 files, {target.stat().st_size} bytes), "
        "2 positions in gaps, 1 stretches missing",
    ]
    assert names(tmp_path / "out") == ["orders.parquet"]


def test_the_summary_as_json(archived, tmp_path) -> None:
    (topic,) = archived.json("topics", "export", "orders", "--to", str(tmp_path / "x"))["topics"]
    path = tmp_path / "x" / "part-00000.parquet"
    assert topic == {
        "topic": "persistent://public/default/orders", "rows": 6, "gaps": 2, "withoutValue": {},
        "missing": [{"from": "1:7", "to": "1:8", "why": "lost: trimmed (accepted by accept-loss)"}],
        "files": [{"path": str(path), "rows": 6, "bytes": path.stat().st_size}],
    }  # fmt: skip


def test_columns_and_ranges(archived, tmp_path) -> None:
    target = tmp_path / "a.parquet"
    export(archived, "--to", target, "--columns", "__key, value", "--from", START + 2000, "--to", "1:3")
    assert not target.exists()


def test_entries(archived, tmp_path) -> None:
    target = tmp_path / "a.parquet"
    export(archived, "--to", target, "--entries")
    assert pq.read_table(target).schema.equals(ENTRY_SCHEMA)
    assert pq.read_table(target).column("data").to_pylist()[2:] == [message(n) for n in (2, 3, 4)]
