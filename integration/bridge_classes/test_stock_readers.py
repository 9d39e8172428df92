"""Brokers' own classes read what is assembled: those of 4.0.8, which seek before each read, and those of 4.0.6, which
go on where they are, as brokers before 3.0.14 and 4.0.7 do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from dev.embedded.lock import OFFLOADER
from integration.bridge_classes.broker_classes import BrokerClasses, InstalledOffloader, StockReadError, digest_of
from offloader.bridge.core.assembly import assemble, index_metadata
from offloader.format.v1 import encode_ledger_index
from offloader.model import KIB, MIB, SegmentLayout
from tests.bridge.core.support import ArchivedTopic, archived

BEFORE = "offloader-4.0.6.lock"
UUID = "0b5d4e2c-6f3a-4f6e-9d7c-2f1f6f2a7c11"
UNCHANGED = "as-it-was"  # the same object with the magic of its first V2 block


@pytest.fixture(scope="module")
def topic() -> ArchivedTopic:
    """Ledgers over several segments with the usual cuts and with tiny ones, gaps, entries larger than a block and empty
    ones."""
    random = Random(7)
    sizes = [random.choice((0, 100, 2_000, 60_000)) for _ in range(600)]
    large = [3 * MIB, 0, 1_100 * KIB, 5, 2 * MIB]
    ledgers = {
        11: [random.randbytes(size) for size in (*sizes, *large)],
        12: [random.randbytes(random.randrange(300)) for _ in range(400)],
        13: [random.randbytes(size) for size in large],
    }
    ends = [(11, 200), (11, 201), (11, 450), (12, 100), (13, 2)]
    gaps = [(11, entry) for entry in (0, 7, *range(300, 320), 450, 604)] + [(12, entry) for entry in range(0, 400, 9)]
    return archived(ledgers, ends, gaps)


@pytest.fixture(scope="module")
def tiny() -> ArchivedTopic:
    """Blocks of a few entries, and parts whose index stands behind the padding."""
    random = Random(8)
    entries = [random.randbytes(random.randrange(300)) for _ in range(500)]
    return archived({14: entries}, [(14, 130)], cuts=SegmentLayout(2_000, 600, 200))


@pytest.fixture(scope="module")
def objects(topic: ArchivedTopic, tiny: ArchivedTopic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    for held in (topic, tiny):
        for ledger, entries in held.entries.items():
            data, index = _assembled(held, ledger, len(entries) - 1)
            _put(folder, f"{UUID}-ledger-{ledger}", data, index)
            if ledger == 14:
                _put(folder, UNCHANGED, held.objects["key-0"][:128] + data[128:], index)
    return folder


def _assembled(topic: ArchivedTopic, ledger: int, last: int) -> tuple[bytes, bytes]:
    coverage = topic.whole(ledger)
    plan = assemble(coverage, topic.sources, topic.filled(coverage.missing), copy_size=256 * MIB)
    metadata = index_metadata(last, plan.length, "public/default/persistent/t", 1, None)
    return topic.uploaded(plan), encode_ledger_index(plan.size, metadata, plan.index)


def _put(folder: Path, key: str, data: bytes, index: bytes) -> None:
    (folder / key).write_bytes(data)
    (folder / f"{key}-index").write_bytes(index)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> InstalledOffloader:
    return InstalledOffloader(BEFORE, tmp_path_factory.mktemp("installed") / "4.0.6")


@pytest.fixture(scope="module", params=[OFFLOADER, BEFORE], ids=["4.0.8", "4.0.6"])
def classes(
    request: pytest.FixtureRequest,
    objects: Path,
    before: InstalledOffloader,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerClasses]:
    newest = request.param == OFFLOADER
    folder = tmp_path_factory.mktemp("installed") / "4.0.8"
    installed = InstalledOffloader(OFFLOADER, folder) if newest else before
    with installed.reading(objects) as started:
        yield started


def ledgers_of(*topics: ArchivedTopic) -> Mapping[int, list[bytes]]:
    return {ledger: entries for topic in topics for ledger, entries in topic.entries.items()}


def test_every_entry_is_read_in_order_and_at_random(
    classes: BrokerClasses, topic: ArchivedTopic, tiny: ArchivedTopic
) -> None:
    random = Random(9)
    for ledger, entries in ledgers_of(topic, tiny).items():
        last = len(entries) - 1
        assert classes.open(ledger, f"{UUID}-ledger-{ledger}") == (last, sum(map(len, entries)))
        assert classes.read(0, last) == digest_of(entries, 0, last)
        for _ in range(60):
            first = random.randint(0, last)
            until = min(last, first + random.choice((0, 0, 3, 40)))
            assert classes.read(first, until) == digest_of(entries, first, until), (ledger, first, until)


def test_any_entry_can_be_the_first_that_a_handle_reads(classes: BrokerClasses, tiny: ArchivedTopic) -> None:
    """128 above all: a block's header, read as an entry, would have that id."""
    (entries,) = tiny.entries.values()
    for first in (0, 1, 127, 128, 129, 131, 499):
        for until in sorted({first, min(first + 1, 499), min(first + 30, 499)}):
            classes.open(14, f"{UUID}-ledger-14")
            assert classes.read(first, until) == digest_of(entries, first, until), (first, until)


def test_why_the_object_begins_with_a_v1_header(objects: Path, before: InstalledOffloader, tiny: ArchivedTopic) -> None:
    (entries,) = tiny.entries.values()
    with before.reading(objects, timeout=2_000) as reader:
        reader.open(14, UNCHANGED)
        assert reader.read(0, 130) == digest_of(entries, 0, 130)
        reader.open(14, UNCHANGED)
        with pytest.raises(StockReadError):
            reader.read(128, 129)
