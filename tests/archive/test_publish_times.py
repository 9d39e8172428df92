"""A range of publish times selects the same, whichever reader is used: also where a publish time is none that a
calendar or column has."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql.datasource import InputPartition

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.archive import Archive
from offloader.archive.items import ArchivedEntry
from offloader.archive.selection import Selection
from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.archive.topic import ArchivedTopic
from offloader.cli.main import main
from offloader.storage.local import LocalStore
from tests.archive.support import Archive as Built
from tests.format.support import Stored, checksummed

NOW = 1_700_000_000_000
LARGEST = 2**63 - 1
# As the number is read; on the wire it is unsigned.
TIMES = [NOW, -1, NOW + 10, LARGEST, 0, -LARGEST - 1, LARGEST // 1000 + 1, NOW + 20, 1, NOW + 5]
RANGES = [
    (None, -1), (None, 0), (0, None), (None, NOW + 5), (NOW + 5, None), (NOW + 5, NOW + 10), (0, LARGEST),
    (1, LARGEST - 1),
    (NOW + 11, None), (LARGEST, None), (None, LARGEST), (2**64 - 5, None), (NOW + 21, LARGEST // 1000),
]  # fmt: skip
Bounds = tuple[int | None, int | None]


def entry(time: int, *, odd: bool = False) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time % 2**64)
    return with_unknown_group(metadata, b"x") if odd else checksummed(metadata, b"x")


def with_unknown_group(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Metadata that only protobuf itself can read."""
    group = bytes([100 << 3 & 0x7F | 0x80 | 3, 100 >> 4, 100 << 3 & 0x7F | 0x80 | 4, 100 >> 4])
    encoded = metadata.SerializeToString() + group
    return struct.pack(">I", len(encoded)) + encoded + payload


@pytest.fixture(scope="module", params=["a segment each", "one segment", "parsed one by one"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("times") / "root"
    built = Built(LocalStore(folder))
    built.claim(1, 0)
    odd = request.param == "parsed one by one"
    entries = [Stored(1, number, entry(time, odd=odd)) for number, time in enumerate(TIMES)]
    for some in [[one] for one in entries] if request.param == "a segment each" else [entries]:
        built.add(some)
    return folder


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands log to a stream that ends with their call."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def topic(root: Path) -> ArchivedTopic:
    return Archive(root.as_uri()).topic("orders")


def by_entries(root: Path, early: int | None, late: int | None) -> list[int]:
    return [one.position.entry for one in topic(root).entries(Selection(published_from=early, published_to=late))]


def by_items(root: Path, early: int | None, late: int | None) -> list[int]:
    found = topic(root).items(Selection(published_from=early, published_to=late))
    return [one.position.entry for one in found if isinstance(one, ArchivedEntry)]


def by_messages(root: Path, early: int | None, late: int | None) -> list[int]:
    return [one.position.entry for one in topic(root).messages(Selection(published_from=early, published_to=late))]


def by_record_batches(root: Path, early: int | None, late: int | None) -> list[int]:
    found = topic(root).record_batches(["__entryId"], Selection(published_from=early, published_to=late))
    return [number for batch in found for number in batch.column(0).to_pylist()]


def by_entry_batches(root: Path, early: int | None, late: int | None) -> list[int]:
    found = topic(root).entry_batches(["entryId"], Selection(published_from=early, published_to=late))
    return [number for batch in found for number in batch.column(0).to_pylist()]


def by_count(root: Path, early: int | None, late: int | None) -> int:
    return sum(
        batch.num_rows for batch in topic(root).entry_batches([], Selection(published_from=early, published_to=late))
    )


def as_text(time: int) -> str:
    """As users write it: small numbers would be taken for seconds."""
    return str(time) if time > 10**11 else (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)).isoformat()


def by_spark(form: str, column: str) -> Callable[[Path, int | None, int | None], list[int]]:
    def read(root: Path, early: int | None, late: int | None) -> list[int]:
        bounds = {"startingTime": early, "endingTime": late}
        given = {name: as_text(time) for name, time in bounds.items() if time is not None}
        source = PulsarArchiveSource(
            {"root": root.as_uri(), "topic": "orders", "format": form, "columns": column, **given}
        )
        reader = source.reader(source.schema())
        parts: list[InputPartition] = list(reader.partitions())
        return [number for part in parts for batch in reader.read(part) for number in batch.column(0).to_pylist()]

    return read


def by_cat(*options: str) -> Callable[[Path, int | None, int | None], list[int]]:
    def read(root: Path, early: int | None, late: int | None) -> list[int]:
        config = root.parent / "offloader.yaml"
        config.write_text(f"storage: {{root: {root.as_uri()}}}\n")
        bounds = [
            word
            for name, time in (("--from", early), ("--to", late))
            if time is not None
            for word in (name, as_text(time))
        ]
        call = ["topics", "cat", "orders", *options, *bounds, "-o", "json", "--config", str(config)]
        result = CliRunner().invoke(main, call)
        assert result.exit_code == 0, result.output
        return [int(json.loads(line)["position"].split(":")[1]) for line in result.stdout.splitlines()]

    return read


READERS = [by_entries, by_items, by_messages, by_record_batches, by_entry_batches]
TEXT = [by_spark("messages", "__entryId"), by_spark("entries", "entryId"), by_cat(), by_cat("--entries")]


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_every_reader_selects_the_same(root: Path, bounds: Bounds) -> None:
    early, late = bounds
    said = [n for n, time in enumerate(TIMES) if (early is None or time >= early) and (late is None or time <= late)]

    found = {read.__name__: read(root, early, late) for read in READERS}
    assert found == dict.fromkeys(found, said)
    assert by_count(root, early, late) == len(said)
    assert [read(root, early, late) for read in TEXT] == [said] * len(TEXT)
    if late is None:
        first = topic(root).seek(time=early)
        assert (None if first is None else first.entry) == next(iter(said), None)


@pytest.mark.parametrize("end", [-1, 0, NOW + 5, LARGEST - 1])
def test_ranges_that_follow_each_other_leave_out_no_message(root: Path, end: int) -> None:
    for read in READERS:
        both = read(root, None, end) + read(root, end + 1, None)
        assert sorted(both) == list(range(len(TIMES))), read.__name__
