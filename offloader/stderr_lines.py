"""Standard error as JSON lines alone, whoever writes to it: Spark's JVM, its Python workers, a library, a traceback."""

from __future__ import annotations

import logging
import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from offloader.json_text import parse_json
from offloader.logs import JsonLines

# What Spark logs: `26/11/29 06:00:00 WARN TaskSetManager: Lost task …`.
_SPARK = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<logger>[\w.$]+): (?P<message>.*)")
_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_CHUNK = 65_536
LONGEST = 1_000_000  # bytes of a line that are kept in memory until its end


@contextmanager
def stderr_as_json() -> Iterator[TextIO]:
    """Turn what other code and child processes write to standard error into JSON lines. Yields the stream for our own.

    A thread reads their lines from a pipe. At the end it writes what has arrived; what child processes write later is
    gone. The stream stays open, as log handlers keep it.
    """
    own = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    incoming, outgoing = os.pipe()
    stopped, stop = os.pipe()
    sys.stderr.flush()
    os.dup2(outgoing, 2)
    os.close(outgoing)
    reader = threading.Thread(target=_copy, args=(incoming, stopped, own), name="stderr-lines", daemon=True)
    reader.start()
    try:
        yield own
    finally:
        sys.stderr.flush()
        os.dup2(own.fileno(), 2)
        os.close(stop)
        reader.join()
        os.close(incoming)
        os.close(stopped)


def json_line(line: str) -> str:
    """A line of others as one of ours; one that is a JSON object already stays."""
    with suppress(ValueError):
        if line.startswith("{") and isinstance(parse_json(line), dict):
            return line
    found = _SPARK.fullmatch(line)
    level, logger, message = found.group("level", "logger", "message") if found else ("INFO", "stderr", line)
    fields = {"levelname": _LEVELS.get(level, level), "name": logger, "msg": message}
    return JsonLines().format(logging.makeLogRecord(fields))


def _copy(incoming: int, stopped: int, own: TextIO) -> None:
    """Until the other end of `stopped` is closed and nothing is left to read."""
    rest = b""
    while True:
        ready = select.select([incoming, stopped], [], [])[0]
        if incoming not in ready:
            break
        *lines, rest = (rest + os.read(incoming, _CHUNK)).split(b"\n")
        if len(rest) > LONGEST:
            lines, rest = [*lines, rest], b""
        for line in lines:
            _write(line, own)
    _write(rest, own)


def _write(line: bytes, own: TextIO) -> None:
    text = line.decode("utf-8", "backslashreplace").rstrip()
    if text:
        with suppress(OSError):  # a full disk, or nobody reads: whoever writes must not wait for this thread
            own.write(json_line(text) + "\n")
