"""Ways to read a whole topic, each in a process of its own: `python -m benchmarks.readers WAY …` prints one line of
JSON.

The clock runs from before anything is opened to the last message; what a process needs to start (imports, Spark) is not
in it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module

SECONDS = 600
WIDTH = 2  # Spark's local cores


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a topic. `peak`: the process's largest resident memory, in bytes."""

    count: int
    size: int
    seconds: float
    peak: int


@dataclass(frozen=True, slots=True)
class Way:
    """How to read, and what: a way's name and its arguments."""

    name: str
    topic: str
    root: str = ""
    endpoint: str = ""
    service: str = ""
    messages: int = 0

    def start(self) -> subprocess.Popen[str]:
        """Begin to read in a process of its own, once the process is told to go."""
        command = [sys.executable, "-m", "benchmarks.readers", *(f"--{k}={v}" for k, v in asdict(self).items() if v)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )

    def read(self) -> Reading:
        """Read once."""
        return together([self])[0]


def together(ways: list[Way]) -> list[Reading]:
    """Several readers at the same time: all are told to go when the last one is ready."""
    processes = [way.start() for way in ways]
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a reader ended before it began: {process.args!r}")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=SECONDS)[0] for process in processes]
    return [Reading(**json.loads(answer.splitlines()[-1])) for answer in answers]


Work = Callable[[], tuple[int, int]]


def _raw_gets(way: Way) -> Work:
    from concurrent.futures import ThreadPoolExecutor

    from offloader.archive.reading.reader import DEFAULTS
    from offloader.metadata.layout import data_key
    from offloader.model import TopicName
    from offloader.storage.open import open_store
    from offloader.storage.settings import StoreSettings

    def work() -> tuple[int, int]:
        store = open_store(StoreSettings(way.root, way.endpoint), read_only=True)
        ends = {key: size for key, size in store.list() if key.startswith(data_key(TopicName.parse(way.topic), ""))}
        begins = [(k, at) for k, end in ends.items() if "/_" not in k for at in range(0, end, DEFAULTS.read_size)]
        with ThreadPoolExecutor(DEFAULTS.prefetch) as pool:
            sizes = list(pool.map(lambda each: len(store.read(each[0], each[1], DEFAULTS.read_size)[0]), begins))
        return len(sizes), sum(sizes)

    return work


def _python_entries(way: Way) -> Work:
    from offloader import Archive

    def work() -> tuple[int, int]:
        count = size = 0
        for entry in Archive(way.root, endpoint=way.endpoint).topic(way.topic).entries():
            count += 1
            size += len(entry.data)
        return count, size

    return work


def _python_tables(way: Way, *, entries: bool) -> Work:
    import pyarrow.compute as pc

    from offloader import Archive

    import_module("offloader.archive.messages.columns")  # or the first batch would

    def work() -> tuple[int, int]:
        count = size = 0
        topic = Archive(way.root, endpoint=way.endpoint).topic(way.topic)
        entry_columns, message_columns = ("data", "ledgerId", "entryId"), ("value", "__key", "__publishTime")
        for batch in topic.entry_batches(entry_columns) if entries else topic.record_batches(message_columns):
            count += batch.num_rows
            size += pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
        return count, size

    return work


def _python_messages(way: Way) -> Work:
    from offloader import Archive

    import_module("offloader.archive.messages.unpack")  # or the first message would

    def work() -> tuple[int, int]:
        count = size = 0
        for message in Archive(way.root, endpoint=way.endpoint).topic(way.topic).messages():
            count += 1
            size += len(message.value or b"")
        return count, size

    return work


def _spark(way: Way, *, entries: bool) -> Work:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{WIDTH}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")  # see docs/reading.md
    spark = builder.config("spark.driver.memory", "1g").getOrCreate()
    spark.range(1000).selectExpr("sum(id)").collect()
    reader = spark.read.format("pulsar-archive").option("root", way.root).option("endpoint", way.endpoint)
    if entries:
        reader = reader.option("format", "entries")
    column = "data" if entries else "value"

    def work() -> tuple[int, int]:
        frame = reader.option("topics", way.topic).load()
        count, size = frame.selectExpr("count(1)", f"sum(length({column}))").collect()[0]
        return int(count), int(size)

    work()  # Spark's Python workers have started and imported what they need
    return work


def _client(way: Way, name: str) -> Work:
    from benchmarks import clients

    def work() -> tuple[int, int]:
        messages = clients.WAYS[name](clients.connected(way.service), way.topic)
        count = size = 0
        while count < way.messages:
            for message in messages.more()[: way.messages - count]:
                count += 1
                size += len(message.data())
        return count, size

    return work


WAYS: dict[str, Callable[[Way], Work]] = {
    "raw-gets": _raw_gets,
    "python-entries": _python_entries,
    "python-entry-batches": lambda way: _python_tables(way, entries=True),
    "python-messages": _python_messages,
    "python-batches": lambda way: _python_tables(way, entries=False),
    "spark-entries": lambda way: _spark(way, entries=True),
    "spark-messages": lambda way: _spark(way, entries=False),
    "client-reader": lambda way: _client(way, "Reader"),
    "client-batch-receive": lambda way: _client(way, "batch_receive"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", choices=list(WAYS), required=True)
    for name in ("topic", "root", "endpoint", "service"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--messages", type=int, default=0)
    way = Way(**vars(parser.parse_args()))
    work = WAYS[way.name](way)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    count, size = work()
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(asdict(Reading(count, size, seconds, peak))), flush=True)
    os._exit(0)  # a client's threads must not keep the process


if __name__ == "__main__":
    main()
