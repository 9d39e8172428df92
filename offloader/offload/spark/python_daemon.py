"""The process from which Spark forks its Python workers, where executors run in the driver's JVM.

It loads once what each slice needs, so that a worker has it when it begins. Spark ends a worker that was idle for a
minute: the next one would load everything again, which takes longer than a small slice. On a cluster Spark's own daemon
runs: a machine that lacks this package has to say so (see `executor`)."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
from pyspark import daemon

from offloader.offload.worker import tasks

LOADED = (pd, pa, tasks)  # PyArrow loads pandas when it makes the first array

if __name__ == "__main__":
    daemon.manager()
