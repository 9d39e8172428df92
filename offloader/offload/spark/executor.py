"""What an executor runs first, on whatever machine Spark starts it. The function travels by value and needs only Python
and PyArrow. A machine that cannot run slices hands them back and says why: if Spark's task failed there, Spark would
give it to the same machine again until the query ends."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from offloader.errors import ExecutorUnfitError
from offloader.model import Receipt
from offloader.offload.worker.slice_worker import refused
from offloader.offload.worker.tasks import WorkerSettings
from offloader.version import PACKAGE, installed

# A receipt; or a slice that was not begun, and why.
SCHEMA = "receipt binary, slice binary, unfit string"
ARROW_SCHEMA = pa.schema([("receipt", pa.binary()), ("slice", pa.binary()), ("unfit", pa.string())])
Batches = Iterable[pa.RecordBatch]


def worker_function(settings: WorkerSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: slices in, rows of `SCHEMA` out. Spark's plans show its public `settings`."""
    packed, wanted, package, schema = pickle.dumps(settings), installed(), PACKAGE, ARROW_SCHEMA

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        # Nothing of this package may be named here before it is known to be there.
        import os
        from importlib.metadata import PackageNotFoundError, version

        slices = [value for batch in batches for value in batch.column(0).to_pylist()]
        try:
            found = version(package)
        except PackageNotFoundError:
            found = ""
        try:
            from offloader.offload.worker.tasks import answers
        except ImportError as error:
            unfit = str(error) or type(error).__name__
        else:
            unfit = "" if found == wanted else f"it has version {found or 'unknown'}, the driver {wanted}"
        if unfit:
            unfit = f"{os.uname().nodename}: {unfit}"
            yield pa.record_batch([[None] * len(slices), slices, [unfit] * len(slices)], schema=schema)
            return
        for receipt in answers(slices, packed):
            yield pa.record_batch([[receipt], [None], [None]], schema=schema)

    return work


def receipt_of(receipt: bytes | None, work: bytes | None, unfit: str | None) -> Receipt:
    """The driver's side: what a row says."""
    if receipt is not None:
        answer: Receipt = pickle.loads(receipt)  # noqa: S301 (our own workers')
        return answer
    assert work is not None, "a row without a receipt has its slice"
    return refused(pickle.loads(work), ExecutorUnfitError(f"an executor cannot run slices: {unfit}"))  # noqa: S301 (our own)
