"""Spark and what brokers have deleted of what was handed over to them: nobody records that, so tasks meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.errors import DataLostError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import PulsarTrimmed
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging, hand_over
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.archive.test_bridged import whole


def handed_over(folder: Path) -> str:
    """Three ledgers in five segments; brokers have the first two, and have deleted the first."""
    root = f"file://{folder}/archive"
    archive = Archive(store=open_store(StoreSettings(root)))  # type: ignore[arg-type]
    archive.claim()
    for number in range(5):
        ledger, half = divmod(number, 2)
        last = 10 * half + 9
        archive.add(stream(ledger, 10 * half, last), closed={ledger: last} if half else {})
    bridging = Bridging(archive, f"file://{folder}/brokers")
    done = bridging.bridge({0: whole(0), 1: whole(1)})
    hand_over(archive, 4)
    bridging.delete_in_pulsar(done, 0)
    return root


def rows(root: str, **options: str) -> int:
    made = PulsarArchiveSource({"root": root, "topics": str(TOPIC), **options})
    reader = made.reader(made.schema())
    return sum(found.num_rows for task in reader.partitions() for found in reader.read(task))


@pytest.mark.parametrize("form", ["entries", "messages"])
def test_a_query_without_a_begin_has_what_brokers_have_left_and_one_that_asks_for_more_is_told(
    tmp_path: Path, form: str
):
    root = handed_over(tmp_path)
    assert rows(root, format=form) == 30
    with pytest.raises(DataLostError, match="deleted by Pulsar") as told:
        rows(root, format=form, startingPosition="0:0")
    assert "after this was planned" not in str(told.value)
    assert rows(root, format=form, startingPosition="0:0", failOnDataLoss="false") == 30
    assert rows(root, format=form, startingPosition="1:0") == 30


def test_what_is_recorded_to_be_off_the_list_is_told_before_anything_is_read(tmp_path: Path):
    root = handed_over(tmp_path)
    catalogs = Catalogs(open_store(StoreSettings(root)), APPLICATION)
    catalogs.append(catalogs.head(TOPIC), PulsarTrimmed(0, 1, 86_400_000))
    assert rows(root) == 30
    with pytest.raises(DataLostError, match="it had no ledger below 1 any more"):
        rows(root, startingPosition="0:0")
