"""Log lines are short, one line each, and say what they are about."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest

from offloader import logs
from offloader.errors import ConfigError


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(name) for name in logs.TALKATIVE)]
    levels, handlers = [logger.level for logger in loggers], list(root.handlers)
    yield
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def written(*, structured: bool = False, level: str | None = None, **environment: str) -> io.StringIO:
    stream = io.StringIO()
    logs.set_up(level, structured=structured, stream=stream, environment=environment)
    return stream


def test_a_short_line() -> None:
    stream = written()
    logging.getLogger("offloader.offload.committer").info(
        "committed %s", "u1", extra={"topic": "persistent://a/b/c", "bytes": 7}
    )
    clock, rest = stream.getvalue().split(" ", 1)
    assert time.strptime(clock, "%H:%M:%S")
    assert rest == "INFO committer topic=persistent://a/b/c bytes=7 committed u1\n"


def test_a_topic_that_an_error_begins_with_is_named_once() -> None:
    stream = written()
    error = ConfigError("persistent://a/b/c: it does not exist")
    logging.getLogger("offloader.offload.registry").warning("%s", error, extra={"topic": "persistent://a/b/c"})
    assert stream.getvalue().split(" ", 1)[1] == "WARNING registry topic=persistent://a/b/c it does not exist\n"


def test_an_alarm_ends_with_its_place_in_the_manual() -> None:
    stream = written()
    logging.getLogger("offloader.pin").error("moved", extra={"see": "pin-moved", "topic": "t"})
    assert stream.getvalue().endswith(" ERROR pin topic=t moved; see docs/running.md#pin-moved\n")


def test_the_time_is_the_records() -> None:
    formatter = logs.ShortLines()
    formatter.converter = time.gmtime
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "m", "created": 45296.5})
    assert formatter.format(record) == "12:34:56 INFO x m"


def test_what_is_logged_cannot_forge_a_line() -> None:
    stream = written()
    logging.getLogger("a").warning("one\ntwo", extra={"topic": "x\n00:00:00 ERROR"})
    assert len(stream.getvalue().splitlines()) == 1


def test_a_traceback_follows_its_line() -> None:
    stream = written()
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("a").exception("broken")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("ERROR a broken")
    assert lines[1].startswith("Traceback")
    assert lines[-1] == "ValueError: why"


def test_json_lines() -> None:
    stream = written(structured=True)
    logging.getLogger("offloader.pin").info(
        "moved\nto %d", 5, extra={"topic": "t", "error": ValueError("x"), "level": "mine", "see": "a"}
    )
    line = json.loads(stream.getvalue())
    assert len(stream.getvalue().splitlines()) == 1
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "offloader.pin",
        "message": "moved\nto 5",
        "topic": "t",
        "error": "x",
        "see": "docs/running.md#a",
    }


def test_json_time_is_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "m", "created": 45296.0625, "msecs": 62.5})
    assert json.loads(logs.JsonLines().format(record))["time"] == "1970-01-01T12:34:56.062Z"


def test_a_json_line_holds_the_traceback() -> None:
    stream = written(structured=True)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("a").exception("broken", stack_info=True)
    traceback = json.loads(stream.getvalue())["traceback"]
    assert "ValueError: why" in traceback
    assert "Stack (most recent call last)" in traceback


@pytest.mark.parametrize(
    ("flag", "variable", "level"),
    [
        (None, "", logging.INFO),
        (None, "debug", logging.DEBUG),
        ("warn", "", logging.WARNING),
        ("error", "debug", logging.ERROR),
    ],
)
def test_the_flag_wins_over_the_variable(flag, variable, level) -> None:
    written(level=flag, OFFLOADER_LOG_LEVEL=variable)
    assert logging.getLogger().level == level


def test_an_unknown_level_is_refused_at_the_place_that_said_it() -> None:
    with pytest.raises(ConfigError, match=r"^OFFLOADER_LOG_LEVEL: 'loud' is not a log level; use one of DEBUG, INFO"):
        written(OFFLOADER_LOG_LEVEL="loud")
    with pytest.raises(ConfigError, match=r"^log level: 'loud'"):
        written(level="loud")


def test_libraries_that_tell_everything_are_quiet_also_at_debug() -> None:
    stream = written(level="DEBUG")
    for name in ("py4j.clientserver", "pyspark.sql", "botocore.hooks"):
        logging.getLogger(name).info("detail")
        logging.getLogger(name).warning("trouble")
    assert stream.getvalue().count("trouble") == 3
    assert "detail" not in stream.getvalue()


def test_setting_up_twice_writes_each_line_once_and_to_the_later_stream() -> None:
    first, second = written(), written()
    logging.getLogger("a").info("line")
    assert first.getvalue() == ""
    assert second.getvalue().count("line") == 1
