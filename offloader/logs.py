"""Logging of the application: short lines for people, or one JSON object a line.

Loggers are named after their module (`logging.getLogger(__name__)`). What a line is about goes into `extra`:
`log.info("committed %s", uuid, extra={"topic": topic})` becomes `12:34:56 INFO committer topic=… committed …`. Each
warning and error names its alarm in the manual: `extra={"see": "pin-moved"}` becomes
`…; see docs/running.md#pin-moved`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from offloader.errors import ConfigError
from offloader.printable import printable

LEVEL_VARIABLE = "OFFLOADER_LOG_LEVEL"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
ALARMS = "docs/running.md#"

# Libraries that log each of their calls at INFO.
TALKATIVE = ("py4j", "pyspark", "botocore", "boto3", "s3transfer", "urllib3", "httpx", "httpcore", "fsspec", "azure")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(
    level: str | None = None,
    *,
    structured: bool = False,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Log to `stream` (standard error) from `level` on, by default from OFFLOADER_LOG_LEVEL, else INFO.

    Replaces what an earlier call set up. `structured`: JSON lines. Raises ConfigError.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if structured else ShortLines())
    root = logging.getLogger()
    for old in [h for h in root.handlers if getattr(h, "of_offloader", False)]:
        root.removeHandler(old)
    vars(handler)["of_offloader"] = True
    root.addHandler(handler)
    root.setLevel(_level(level, environment))
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _level(flag: str | None, environment: Mapping[str, str]) -> str:
    where, text = ("log level", flag) if flag else (LEVEL_VARIABLE, environment.get(LEVEL_VARIABLE) or "INFO")
    level = {"WARN": "WARNING"}.get(text.upper(), text.upper())
    if level not in LEVELS:
        raise ConfigError(f"{where}: {text!r} is not a log level; use one of {', '.join(LEVELS)}")
    return level


class ShortLines(logging.Formatter):
    """`12:34:56 INFO committer topic=… message`; local time, one line (only a traceback takes more)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        clock = time.strftime("%H:%M:%S", self.converter(record.created))
        about = extras(record)
        see = f"; see {about.pop('see')}" if "see" in about else ""
        message = record.getMessage().removeprefix(f"{about.get('topic', '')}: ")  # errors begin with their topic
        words = (*(f"{name}={value}" for name, value in about.items()), message + see)
        line = " ".join((clock, record.levelname, record.name.rpartition(".")[2], *map(printable, words)))
        return "\n".join((line, *map(printable, "\n".join(_traceback(self, record)).splitlines())))


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, the extras, and the traceback as text."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            **extras(record),
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if traceback := "\n".join(_traceback(self, record)):
            fields["traceback"] = traceback
        return json.dumps(fields, default=str)


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller added to the record with `extra`; an alarm as the place in the manual."""
    added = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {**added, "see": f"{ALARMS}{added['see']}"} if "see" in added else added


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    found = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    return [*found, formatter.formatStack(record.stack_info)] if record.stack_info else found
