"""Copies that executors read back: what a task does, without Spark. A job is compared in `integration`."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from offloader.cli.orphans.copies_on_spark import CopiesOnSpark, read_back, shares
from offloader.config.running import Spark
from offloader.errors import ConfigError, FatalError
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.metadata.stock_keys import data_key, index_key
from offloader.offload.worker.secrets import without_secrets
from offloader.pulsar.settings import PulsarSettings
from offloader.state.managed_ledger import OffloadContext
from offloader.state.names import topic_of
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import messages, objects

A_TASK = 16

NAME = "t/ns/persistent/a"
ENTRIES = messages(7, 5)


def copy_of(ledger: int, number: int = 0) -> CopiedLedger:
    context = OffloadContext(str(UUID(int=(ledger << 64) + number + 1)), True, True)
    return CopiedLedger(ledger, NAME, context, len(ENTRIES) - 1, sum(map(len, ENTRIES)))


@pytest.fixture
def bucket(tmp_path: Path):
    """Every third copy is damaged, every fourth is not there."""
    settings = StoreSettings(tmp_path.as_uri())
    store = open_store(settings)
    for ledger in range(1, 101):
        data, index = objects(ledger, ENTRIES, topic_of(NAME))
        if ledger % 4:
            one = copy_of(ledger)
            store.put(data_key(one.copy.uuid, ledger), data[:-1] if ledger % 3 == 0 else data)
            store.put(index_key(one.copy.uuid, ledger), index)
    return settings


@pytest.mark.parametrize("seed", range(5))
def test_tasks_say_what_one_process_says(bucket, seed) -> None:
    ledgers = [copy_of(ledger) for ledger in range(1, 101)] + [copy_of(ledger, 1) for ledger in range(1, 9)]
    Random(seed).shuffle(ledgers)
    public, _ = without_secrets(PulsarSettings(), bucket)
    told = dict(chain.from_iterable(read_back(bucket.root, public, [task]) for task in shares(ledgers)))
    assert told == stock_copies(bucket.root, bucket)(ledgers)
    assert set(told.values()) == {True, False}
    assert told.keys() == {ledger for ledger in range(1, 101) if ledger % 4}


def test_of_a_ledger_all_is_in_one_task() -> None:
    ledgers = [copy_of(ledger, number) for ledger in range(100) for number in range(ledger % 5)]
    found = shares(ledgers)
    assert sorted(chain.from_iterable(found)) == sorted(ledgers)
    assert max(map(len, found)) < A_TASK + 5
    named = [{one.ledger for one in task} for task in found]
    assert sum(map(len, named)) == len(set().union(*named))


def test_an_executor_without_the_secrets_says_which_one_it_lacks(bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    public, secrets = without_secrets(PulsarSettings(), replace(bucket, options=(("key", "secret"),)))
    for name in secrets:
        monkeypatch.delenv(name, raising=False)
    assert "secret" not in str(public)
    with pytest.raises(ConfigError, match="an executor's environment has no"):
        list(read_back(bucket.root, public, [[copy_of(1)]]))


def test_a_job_that_fails_is_told_and_nothing_counts_as_read_back(
    bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_arguments):
        raise FatalError("no Java")

    monkeypatch.setattr("offloader.offload.spark.session.session", away)
    assert CopiesOnSpark(Spark(), bucket.root, bucket)([copy_of(1)]) == {}
    assert "the Spark job failed, no copy counts as read back: no Java" in capsys.readouterr().err
