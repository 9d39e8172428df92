"""The prepared runs: tests of a checkout that take one path through the product, and what they execute."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("profile_run.py")
TIMEOUT_S = 600


class RunError(Exception):
    """A prepared run is not in the checkout, fails, or never comes to its beginning."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """Of `tests`, `begin` and `end`, the first that a checkout has counts: names change from commit to commit."""

    tests: tuple[str, ...]  # pytest ids
    begin: tuple[str, ...]  # qualified names of functions: the first call of one begins the run
    end: tuple[str, ...] = ()  # and of one of these ends it; empty: the test's end
    topic: str = ""  # whose name is followed


_UPLOAD = ("tests/offload/test_driver.py::test_the_empty_batch_with_which_a_query_begins_ends_no_plan",)
PATHS = {
    "entry to catalog": PreparedRun(_UPLOAD, ("TopicRegistry.update",)),
    "row to DataFrame": PreparedRun(
        ("tests/archive/spark/test_batch.py::test_every_message_in_the_topics_order",),
        ("PulsarArchiveSource.reader",),
        ("World.rows",),
    ),
    "ledger scan to deletion": PreparedRun(
        ("tests/lifecycle/deletion/test_one_scan.py::test_what_is_due_goes_in_rounds_after_one_scan",),
        ("ClusterScanner.scan",),
    ),
    "gateway message": PreparedRun(
        ("tests/gateway/test_stock_client.py::test_a_reader_reads_all_of_it_in_order",), ("Connection.connection_made",)
    ),
}
ADOPTION = PreparedRun(_UPLOAD, ("TopicRegistry.update",), ("decide",), "persistent://public/default/t")


def traced_rows(root: Path) -> dict[str, int]:
    """The rows of the table that come from runs. `root`: a checkout with generated code. Raises RunError."""
    rows = {f"files on the path {title}": len(execute(root, run)["files"]) for title, run in PATHS.items()}
    adoption = execute(root, ADOPTION)
    rows["stops of a topic's name in adoption"] = len(adoption["stops"])
    rows["returns to a module that it had left"] = returns([stop.split(":")[0] for stop in adoption["stops"]])
    rows["names for it and its parts"] = len(adoption["names"])
    return rows


def execute(root: Path, run: PreparedRun) -> dict[str, Any]:
    """`files` that executed a function, `stops` and `names` of the topic. Raises RunError."""
    test = next((test for test in run.tests if has_test(root, test)), None)
    if test is None:
        raise RunError(f"no test of {run.tests} is in the checkout: add its present id to dev/size/runs.py")
    wanted = {"test": test, "begin": run.begin, "end": run.end, "topic": run.topic}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        command = [sys.executable, str(SCRIPT), json.dumps(wanted), str(answer)]
        done = subprocess.run(  # noqa: S603 (this Python)
            command, cwd=root, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        if not answer.exists():
            raise RunError(f"{test} did not run: {done.stderr[-2000:]}")
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if not result["passed"]:
        raise RunError(f"{test} failed:\n{done.stdout[-4000:]}")
    if not result["began"]:
        raise RunError(f"{test} calls none of {run.begin}: add its present name to dev/size/runs.py")
    return result


def returns(modules: list[str]) -> int:
    """How often a way comes back to a module that it had left."""
    left, present, count = set[str](), "", 0
    for module in modules:
        if module != present:
            count += module in left
            left.add(present)
            present = module
    return count


def has_test(root: Path, test: str) -> bool:
    """Whether a checkout has the test with this pytest id."""
    path, _, function = test.partition("::")
    file = root / path
    return file.exists() and f"def {function.partition('[')[0]}(" in file.read_text(encoding="utf-8")
