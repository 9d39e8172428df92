"""Parts of bridged objects go through Spark's executors, where the brokers' bucket copies nothing by itself, and what
was built is read back there: many GiB, in the session that the application has anyhow."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError

from offloader.bridge.transfer import (
    BridgeStores,
    CheckBlocks,
    CheckedBlocks,
    PieceThreads,
    SendPart,
    SentPart,
    check_blocks,
    send_part,
)
from offloader.errors import ExecutorUnfitError, OffloadError
from offloader.offload.worker.secrets import Public, with_secrets
from offloader.storage.open import open_store
from offloader.version import PACKAGE, installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # executors import this module, too, and need none

FEW = 2  # tasks that are done here: a job would take longer
Answer = tuple[bytes | None, str]  # a result, or why the executor cannot work
_opening = threading.Lock()
PieceTask = SendPart | CheckBlocks
PieceResult = SentPart | CheckedBlocks


def piece_function(settings: PieceSettings) -> Callable[[Iterable[bytes]], Iterator[Answer]]:
    """For `mapPartitions`: it travels by value. Spark's plans show its public `settings`."""
    packed, wanted, package = pickle.dumps(settings), installed(), PACKAGE

    def work(tasks: Iterable[bytes]) -> Iterator[Answer]:
        # Nothing of this package may be named here before it is known to be there.
        import os
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version(package)
        except PackageNotFoundError:
            found = ""
        try:
            from offloader.bridge.driver.spark import piece_results
        except ImportError as error:
            unfit = str(error) or type(error).__name__
        else:
            unfit = "" if found == wanted else f"it has version {found or 'unknown'}, the driver {wanted}"
        if unfit:
            yield None, f"{os.uname().nodename}: {unfit}"
            return
        for result in piece_results(tasks, packed):
            yield result, ""

    return work


@dataclass(frozen=True)
class PieceJobs:
    """`PieceWorkers` of the application's Spark session. `at_once`: tasks of a job. Spark takes jobs first in, first
    out, so a batch of a lane waits for one small job at most; each task is of one part, or of 64 MiB to read."""

    spark: SparkSession
    public: Public
    at_once: int

    def send(self, stores: BridgeStores, tasks: Sequence[SendPart]) -> Iterator[SentPart]:
        if len(tasks) <= FEW:
            return PieceThreads().send(stores, tasks)
        return cast("Iterator[SentPart]", self._run(stores, tasks))

    def check(self, stores: BridgeStores, tasks: Sequence[CheckBlocks]) -> Iterator[CheckedBlocks]:
        if len(tasks) <= FEW:
            return PieceThreads().check(stores, tasks)
        return cast("Iterator[CheckedBlocks]", self._run(stores, tasks))

    def _run(self, stores: BridgeStores, tasks: Sequence[PieceTask]) -> Iterator[PieceResult]:
        function = piece_function(PieceSettings(self.public, stores.bucket.url))
        step = max(self.at_once, 1)
        for first in range(0, len(tasks), step):
            packed = [pickle.dumps(task) for task in tasks[first : first + step]]
            try:
                context = self.spark.sparkContext
                answers = context.parallelize(packed, len(packed)).mapPartitions(function).collect()
            except (Py4JError, ConnectionError) as error:
                why = str(error).partition("\n")[0]
                raise ExecutorUnfitError(f"a Spark job of the bridge failed: {why}") from error
            for answer in answers:
                yield _result_of(answer)


def _result_of(answer: Answer) -> PieceResult:
    packed, unfit = answer
    if packed is None:
        raise ExecutorUnfitError(f"an executor cannot bridge: {unfit}")
    result: PieceResult | PieceFailure = pickle.loads(packed)  # noqa: S301 (our own workers')
    if isinstance(result, PieceFailure):
        raise result.kind(result.text)
    return result


@dataclass(frozen=True, slots=True)
class PieceSettings:
    """How an executor reaches the archive and, alike, the brokers' bucket."""

    public: Public
    bucket: str


@dataclass(frozen=True, slots=True)
class PieceFailure:
    """What a task raised."""

    kind: type[OffloadError]
    text: str


def piece_results(tasks: Iterable[bytes], packed: bytes) -> Iterator[bytes]:
    """Pickled results of pickled tasks, in their order; behind a failure none."""
    settings: PieceSettings = pickle.loads(packed)  # noqa: S301 (our own driver's)
    for each in tasks:
        task: PieceTask = pickle.loads(each)  # noqa: S301 (the same)
        try:
            stores = _stores(settings)
            done = send_part(task, stores) if isinstance(task, SendPart) else check_blocks(task, stores)
        except OffloadError as error:
            yield pickle.dumps(PieceFailure(type(error), str(error)))
            return
        yield pickle.dumps(done)


_open: dict[PieceSettings, BridgeStores] = {}


def _stores(settings: PieceSettings) -> BridgeStores:
    """Kept for the process: Spark uses its Python workers again."""
    with _opening:
        if settings not in _open:
            archive = with_secrets(settings.public, os.environ)[1]
            bucket = archive.beside(settings.bucket, "bridge.bucket")
            _open[settings] = BridgeStores(open_store(archive, read_only=True), open_store(bucket))
        return _open[settings]
