"""What the JVMs of many tests share is made before the first of them: the loaded classes of Pulsar and of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pyspark

from dev.embedded.commands import SHORT_LIVED
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from dev.embedded.settings import TRANSACTIONS
from dev.embedded.shared_classes import make, shared_classes, sharing
from dev.embedded.standalone import PulsarStandalone
from integration.processes import HANGS
from offloader.errors import OffloadError
from offloader.java import find_java
from offloader.offload.spark.session import SETTINGS

_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_DRIVER = "spark.driver.extraJavaOptions"
_SESSION = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
with builder.config(sys.argv[1], sys.argv[2]).getOrCreate() as spark:
    spark.range(10).mapInPandas(lambda frames: frames, "id long").count()
    spark.readStream.format("rate").load().writeStream.format("noop").start().awaitTermination(2)
"""


def driver_options() -> dict[str, str]:
    """Those of the JVM that the application and sessions of ours start."""
    return {_DRIVER: " ".join([SETTINGS[_DRIVER], *sharing(_spark())])}


def make_shared_classes(marks: Collection[str]) -> None:
    """Of what tests with these marks start."""
    try:
        if "pulsar" in marks:
            make(shared_classes(find_java(), fetch_lock(PULSAR)), _run_pulsar)
        if "spark" in marks:
            make(_spark(), _run_spark)
    except (OffloadError, OSError, subprocess.SubprocessError) as error:
        print(f"no classes are shared: {error}")


@cache
def _spark() -> Path:
    return shared_classes(find_java(), sorted(_SPARK_JARS.iterdir()))


def _run_pulsar(folder: Path, options: tuple[str, ...]) -> None:
    """With metadata in ZooKeeper, as most brokers here have it."""
    with PulsarStandalone(
        folder / "pulsar", zookeeper=True, configuration=TRANSACTIONS, java_options=(*SHORT_LIVED, *options)
    ) as pulsar:
        pulsar.create_namespace("public/classes")
        pulsar.admin("PUT", "persistent/public/classes/topic")
        pulsar.admin("GET", "persistent/public/classes/topic/internalStats")


def _run_spark(folder: Path, options: tuple[str, ...]) -> None:
    """In a process of its own, whose JVM ends with it."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    subprocess.run(
        [sys.executable, "-c", _SESSION, _DRIVER, " ".join([SETTINGS[_DRIVER], *options])],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=HANGS,
        check=True,
    )
