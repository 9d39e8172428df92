"""Spark and what brokers have deleted of a ledger that they alone have: nobody records that, so tasks meet it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.errors import DataLostError
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.bridges import Bridging
from tests.archive.support import TOPIC, Archive
from tests.archive.test_bridged import whole


def begun(folder: Path) -> tuple[str, Callable[[], None]]:
    """The archive begins behind a bridged ledger, which is read where brokers have it until they delete it."""
    root = f"file://{folder}/archive"
    archive = Archive(store=open_store(StoreSettings(root)))
    archive.claim(1)
    bridging = Bridging(archive, f"file://{folder}/brokers")
    done = bridging.bridge({0: whole(0, 9)})
    return root, lambda: bridging.delete_in_pulsar(done, 0)


def rows(folder: Path, then: Callable[[], None], root: str, **options: str) -> int:
    """Of a query that was planned before something happens."""
    made = PulsarArchiveSource(
        {"root": root, "topics": str(TOPIC), "ledgers": f"file://{folder}/brokers", "format": "entries", **options}
    )
    reader = made.reader(made.schema())
    tasks = reader.partitions()
    then()
    return sum(found.num_rows for task in tasks for found in reader.read(task))


def nothing() -> None:
    """Brokers keep it."""


@pytest.mark.parametrize(
    "options", [{}, {"startingPosition": "0:0", "failOnDataLoss": "false"}, {"startingPosition": "1:0"}]
)
def test_a_query_has_what_brokers_have_left(tmp_path: Path, options: dict[str, str]) -> None:
    root, delete = begun(tmp_path)
    assert rows(tmp_path, nothing, root) == 10
    assert rows(tmp_path, delete, root, **options) == 0


def test_a_query_that_asks_for_more_is_told(tmp_path: Path) -> None:
    root, delete = begun(tmp_path)
    with pytest.raises(DataLostError, match="deleted by Pulsar") as told:
        rows(tmp_path, delete, root, startingPosition="0:0")
    assert "after this was planned" not in str(told.value)
