"""A Spark session for tests, in which nothing is registered, and what is asked of it on a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar
from unittest.mock import patch

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from integration.processes import HANGS
from integration.sharing import driver_options
from offloader import spark_python
from offloader.java import find_java
from tests.storage.servers import ACCESS_KEY, SECRET_KEY

T = TypeVar("T")

# What Spark says of a Python process that took more than ten seconds to start: nobody can set that limit.
TOO_LATE = "connect back"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",  # as docs/reading.md recommends
}


def credentials() -> AbstractContextManager[object]:
    """Those of the tests' stores, in the environment while Java starts: it hands on to Python workers what it was
    started with, and outlives its first session. Whichever test of a process starts it, the others need them."""
    return patch.dict(os.environ, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)


@contextmanager
def session(name: str, master: str = "local[2]", **conf: str) -> Iterator[SparkSession]:
    """Local, with two cores, or of another master; says nothing."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = spark_python.beside()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (CONF | driver_options() | conf).items():
        builder = builder.config(key, value)
    with credentials():
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    try:
        yield found
    finally:
        found.stop()


def patiently(ask: Callable[[], T]) -> T:
    """What `ask` gives; asked again where a Python process of Spark's was too late: nobody supervises a session as the
    application does."""
    deadline = time.monotonic() + HANGS
    while True:
        try:
            return ask()
        except (PySparkException, Py4JJavaError) as error:
            if TOO_LATE not in str(error) or time.monotonic() > deadline:
                raise
