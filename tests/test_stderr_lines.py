"""Standard error as JSON lines alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from offloader.stderr_lines import json_line

PROGRAM = """
import logging, os, subprocess, sys, warnings
from offloader import logs
from offloader.stderr_lines import stderr_as_json

with stderr_as_json() as stream:
    logs.set_up("INFO", structured=True, stream=stream)
    logging.getLogger("ours").info("from the logger")
    warnings.warn("from a warning", stacklevel=1)
    os.write(2, b"from C, \\xff, without an end of line")
    os.write(2, b"\\n26/11/29 06:00:00 WARN TaskSetManager: Lost task 0.0: x\\n\\n")
    subprocess.run(["sh", "-c", "echo from a child >&2"], check=True)
    child = subprocess.Popen(["sh", "-c", "sleep 60; echo too late >&2"])
    os.write(2, b"the last, without an end")
child.kill()
print("plain again", file=sys.stderr)
"""


def test_everything_on_standard_error_is_a_json_line_while_it_is_wanted() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    *lines, last = done.stderr.splitlines()
    assert last == "plain again"
    told = [json.loads(line) for line in lines]
    assert [one["message"] for one in told if one["logger"] == "ours"] == ["from the logger"]
    others = [(one["level"], one["logger"], one["message"]) for one in told if one["logger"] != "ours"]
    assert others[0][2].endswith("UserWarning: from a warning")
    assert others[-4:] == [
        ("INFO", "stderr", "from C, \\xff, without an end of line"),
        ("WARNING", "TaskSetManager", "Lost task 0.0: x"),
        ("INFO", "stderr", "from a child"),
        ("INFO", "stderr", "the last, without an end"),
    ]


@pytest.mark.parametrize("line", ['{"message": "of a worker"}', "{}"])
def test_a_line_that_is_a_json_object_stays(line: str) -> None:
    assert json_line(line) == line


@pytest.mark.parametrize("line", ["{x}", "[1]", "plain", '"text"', "{" * 5000])
def test_any_other_line_is_the_message(line: str) -> None:
    assert json.loads(json_line(line))["message"] == line
