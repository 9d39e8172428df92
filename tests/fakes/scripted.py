"""Faults for the processes of a whole application: `ScriptedFaults` wraps what a process reaches (see `Application`).

A JSON list has them. Each process counts for itself. A fault of the store:

    {"role": "driver", "call": "put", "key": "REGEX", "after": 0, "times": 1, "effect": "before|lost|repeated|hook",
     "hook": "kill|stop", "then": "kill|stop", "behind": [{"call": "put", "key": "REGEX"}]}

`hook` runs before the call, `then` after it; `kill` and `stop` send SIGKILL and SIGSTOP to the own process. `behind`
names calls, in their order, that must come before. A fault of the source:

    {"role": "worker", "source": "bytes_per_second|die", "topic": "REGEX", "value": 100000}

`bytes_per_second` delivers no faster; `die` kills the own process once so many bytes of the topic were delivered. And

    {"role": "worker", "outlive": true}

lets a worker survive the end of Spark's daemon and go on with its slices, as on a machine that is cut off.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from offloader.model import EntryRange, Gap, TopicName
from offloader.offload.worker.entry_sources import Wrapper
from offloader.ports.entry_source import EntryReader, EntrySource, Extent, RawEntry
from offloader.ports.object_store import ObjectStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults


@dataclass(frozen=True)
class ScriptedFaults(Wrapper):
    """The faults of one role, "driver" or "worker". `faults`: the JSON list of all roles."""

    role: str
    faults: str

    def source(self, source: EntrySource) -> EntrySource:
        for script in self._scripts():
            if "source" in script:
                source = ScriptedSource(source, script["source"], re.compile(script["topic"]), int(script["value"]))
        return source

    def store(self, store: ObjectStore) -> ObjectStore:
        """See `Wrapper.store`. A process opens its store in its main thread, which alone may say what a signal does."""
        mine = self._scripts()
        if any(script.get("outlive") for script in mine):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        planned = [fault for script in mine if "call" in script for fault in store_faults(script)]
        return FaultyStore(store, StoreFaults(planned)) if planned else store

    def _scripts(self) -> list[dict[str, Any]]:
        return [fault for fault in json.loads(self.faults) if fault["role"] == self.role]


def store_faults(script: Mapping[str, Any]) -> list[StoreFault]:
    """One script's fault, with others before it that wait for the calls that it is behind."""
    behind = script.get("behind", [])
    passed = 0

    def concerns(pattern: re.Pattern[str], number: int) -> Callable[[str], bool]:
        return lambda key: passed == number and pattern.search(key) is not None

    def advance() -> None:
        nonlocal passed
        passed += 1

    waiting = [
        StoreFault(step["call"], Effect.HOOK, key=concerns(re.compile(step["key"]), number), then=advance)
        for number, step in enumerate(behind)
    ]
    fault = StoreFault(
        call=script["call"],
        effect=Effect(script.get("effect", "hook")),
        key=concerns(re.compile(script.get("key", "")), len(behind)),
        times=int(script.get("times", 1)),
        after=int(script.get("after", 0)),
        hook=_signal_to_self(script.get("hook")),
        then=_signal_to_self(script.get("then")),
    )
    return [*waiting, fault]


def _signal_to_self(name: str | None) -> Callable[[], None] | None:
    if name is None:
        return None
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[name]
    return lambda: os.kill(os.getpid(), number)


class ScriptedSource:
    """An `EntrySource` that is slow or deadly for some topics."""

    def __init__(self, source: EntrySource, what: str, topics: re.Pattern[str], value: int) -> None:
        self._source = source
        self._what = what
        self._topics = topics
        self._value = value

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> EntryReader:
        reader = self._source.open(topic, ledger, entry, max_bytes=max_bytes, extent=extent)
        if not self._topics.search(str(topic)):
            return reader
        return DeadlyReader(reader, self._value) if self._what == "die" else SlowReader(reader, self._value)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """See `EntrySource.explain`."""
        return self._source.explain(topic, missing, limit=limit)


class SlowReader:
    """An `EntryReader` that gives one entry at a time, so many bytes a second."""

    def __init__(self, reader: EntryReader, bytes_per_second: int) -> None:
        self._reader = reader
        self._rate = bytes_per_second
        self._arrived: list[RawEntry] = []

    def read(self, timeout: float) -> list[RawEntry]:
        self._arrived = self._arrived or self._reader.read(timeout)
        if not self._arrived:
            return []
        entry = self._arrived.pop(0)
        time.sleep(len(entry.data) / self._rate)
        return [entry]

    def close(self) -> None:
        self._reader.close()


class DeadlyReader:
    """An `EntryReader` that kills its process once it has read so many bytes."""

    def __init__(self, reader: EntryReader, limit: int) -> None:
        self._reader = reader
        self._left = limit

    def read(self, timeout: float) -> list[RawEntry]:
        entries = self._reader.read(timeout)
        self._left -= sum(len(entry.data) for entry in entries)
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return entries

    def close(self) -> None:
        self._reader.close()
