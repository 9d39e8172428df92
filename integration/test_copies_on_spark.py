"""Copies of Pulsar's own offloader that executors read back: the same answer as of one process."""

from __future__ import annotations

from offloader.cli.orphans.copies_on_spark import CopiesOnSpark
from offloader.config.running import Spark
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from tests.cli.test_copies_on_spark import bucket, copy_of

__all__ = ["bucket"]


def test_executors_say_what_one_process_says(bucket):
    ledgers = [copy_of(ledger) for ledger in range(1, 101)]
    told = CopiesOnSpark(Spark(master="local[2]"), bucket.root, bucket)(ledgers)
    assert told == stock_copies(bucket.root, bucket)(ledgers)
    assert len(told) == 75
