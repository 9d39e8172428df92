"""Runs one test of the checkout in the working directory, and writes which functions of the product it executes.

It is a script that needs nothing of `dev`: the checkout may be older than it. Arguments: a JSON object with `test`,
`begin`, `end` and `topic`, and the file for the result. Nothing counts before the first call of a function in `begin`,
and nothing from the first call of one in `end` on (empty: the test's end)."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

NO_PATH = ("offloader/_proto/", "offloader/testing/")
OPTIMIZED = 1  # CO_OPTIMIZED: a function's code, not that of a module or a class
INLINED = ("<listcomp>", "<setcomp>", "<dictcomp>")  # no function any more from Python 3.12 on
MOST_SEARCHED = 1_000  # elements of a collection


class Recorder:
    """The functions that were executed, and those among them that a topic's name passes. Any thread."""

    def __init__(self, root: Path, begin: list[str], end: list[str], topic: str) -> None:
        self._root = f"{root}{os.sep}"
        self._begin, self._end = frozenset(begin), frozenset(end)
        self._topic, self._bare = topic, topic.removeprefix("persistent://")
        self._parts = set(self._bare.rpartition("/")[::2])  # namespace and local name
        self._modules: dict[CodeType, str] = {}  # empty: not the product's
        self._entered: dict[CodeType, int] = {}
        self._stops: set[CodeType] = set()
        self._names: set[str] = set()
        self.began = self.ended = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.ended or event not in ("call", "return"):
            return
        code = frame.f_code
        if event == "call":
            self.began = self.began or code.co_qualname in self._begin
            self.ended = self.began and code.co_qualname in self._end
        if not self.began or self.ended:
            return
        module = self._modules.get(code)
        if module is None:
            module = self._modules[code] = self._module(code)
        if module:
            self._entered.setdefault(code, len(self._entered))
            if self._topic:
                self._look_for_topic(frame)

    def result(self) -> dict[str, Any]:
        """JSON."""
        stops = sorted(self._stops, key=self._entered.__getitem__)
        return {
            "began": self.began,
            "files": sorted({self._modules[code] for code in self._entered}),
            "stops": [f"{self._modules[code]}:{code.co_qualname}" for code in stops],
            "names": sorted(self._names),
        }

    def _module(self, code: CodeType) -> str:
        if not (code.co_flags & OPTIMIZED and code.co_filename.startswith(self._root)):
            return ""
        path = Path(code.co_filename).relative_to(self._root).as_posix()
        return path if path.startswith("offloader/") and not path.startswith(NO_PATH) else ""

    def _look_for_topic(self, frame: FrameType) -> None:
        for name, value in frame.f_locals.items():
            if name.startswith(".") or name == "self":
                continue
            if self._is_topic(value):
                self._names.add(name)
                if not frame.f_code.co_name.endswith(INLINED):
                    self._stops.add(frame.f_code)
            elif self._is_part(value) or self._has_topic(value):
                self._names.add(name)

    def _is_topic(self, value: object) -> bool:
        return type(value).__name__ == "TopicName" and str(value) == self._topic

    def _is_part(self, value: object) -> bool:
        return isinstance(value, str) and (value in self._parts or self._bare in value)

    def _has_topic(self, value: object) -> bool:
        if not isinstance(value, list | tuple | set | frozenset | dict) or len(value) > MOST_SEARCHED:
            return False
        return any(self._is_topic(element) for element in list(value))


def main() -> None:
    """Arguments: see the module."""
    run, answer = json.loads(sys.argv[1]), Path(sys.argv[2])
    sys.path[0] = str(Path.cwd())
    recorder = Recorder(Path.cwd(), run["begin"], run["end"], run["topic"])
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    code = pytest.main([run["test"], "-q", "-p", "no:cacheprovider", "-p", "no:xdist"])
    sys.setprofile(None)
    threading.setprofile(None)
    answer.write_text(json.dumps({"passed": code == pytest.ExitCode.OK, **recorder.result()}), encoding="utf-8")


if __name__ == "__main__":
    main()
