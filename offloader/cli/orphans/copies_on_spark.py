"""Copies of Pulsar's own offloader, read back by Spark's executors: the entries' checksums are work for many cores."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from offloader.cli.output import say
from offloader.config.running import Spark
from offloader.errors import OffloadError
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.offload.worker.secrets import Public, with_secrets, without_secrets
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings

A_TASK = 16  # copies: a task that dies is tried again, with all of them


@dataclass(frozen=True, slots=True)
class CopiesOnSpark:
    """`VerifyCopies` as a Spark job. `bucket`: the URL of theirs, reached as the archive is. Executors get settings and
    secrets as those of the application do."""

    spark: Spark
    bucket: str
    archive: StoreSettings

    def __call__(self, ledgers: Collection[CopiedLedger]) -> Mapping[int, bool]:
        from py4j.protocol import Py4JError  # Spark takes a second to import

        from offloader.offload.spark.session import is_local, session

        public, secrets = without_secrets(PulsarSettings(), self.archive)
        if is_local(self.spark.master):
            os.environ.update(secrets)  # before the JVM starts: its Python processes inherit it
        tasks = shares(ledgers)
        try:
            found = session(self.spark, "orphans")
            try:
                read = partial(read_back, self.bucket, public)
                return dict(found.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(read).collect())
            finally:
                found.stop()
        except (Py4JError, OffloadError) as error:
            why = str(error).partition("\n")[0]
            say(f"scan: the Spark job failed, no copy counts as read back: {why}", err=True)
            return {}


def shares(ledgers: Iterable[CopiedLedger]) -> list[list[CopiedLedger]]:
    """Of a ledger all that lists say is in one share."""
    ordered = sorted(ledgers)
    found: list[list[CopiedLedger]] = []
    for one in ordered:
        if not found or (len(found[-1]) >= A_TASK and found[-1][-1].ledger != one.ledger):
            found.append([])
        found[-1].append(one)
    return found


def read_back(bucket: str, public: Public, tasks: Iterable[list[CopiedLedger]]) -> Iterator[tuple[int, bool]]:
    """On an executor. What it cannot read it leaves out; the ledger stays suspect then."""
    copies = stock_copies(bucket, with_secrets(public, os.environ)[1])
    for ledgers in tasks:
        yield from copies(ledgers).items()
