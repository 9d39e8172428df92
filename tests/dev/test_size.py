"""The table of the code's size and shape counts what it says, and its prepared runs are tests of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.size.__main__ import table
from dev.size.counts import count, internal_names, read_modules
from dev.size.moved import moved_lines
from dev.size.runs import ADOPTION, PATHS, PreparedRun, RunError, execute, has_test, returns

ROOT = Path(__file__).parents[2]
PRODUCT = {
    "offloader/__init__.py": "",
    "offloader/_proto/made_pb2.py": "class Made: ...\n",
    "offloader/model/topic.py": "class TopicName:\n    def __str__(self):\n        return 'persistent://a/b/c'\n",
    "offloader/driver/core.py": "class Core:\n    class Inner: ...\n\n\nLIMIT = 1\n",
    "offloader/driver/steps.py": (
        "from offloader.driver import core\nfrom offloader.model.topic import TopicName\n\n\n"
        "def unused():\n    pass\n\n\n"
        "def name_of(topic):\n    text = str(topic)\n    return [len(each) for each in [text]]\n\n\n"
        "def begin():\n    return name_of(TopicName())\n\n\n"
        "def end():\n    return unused()\n"
    ),
    "tests/test_steps.py": (
        "from offloader.driver.core import Core\nfrom offloader.driver.steps import begin, end, name_of\n"
        "from offloader.model.topic import TopicName\n\n\n"
        "def test_it():\n    name_of(TopicName())\n    begin()\n    end()\n"
        "    assert not hasattr(Core, '_x') or Core()._x or Core()._replace()\n\n\n"
        "def test_that_fails():\n    begin()\n    raise AssertionError\n    from offloader import Public\n"
    ),
}
RUN = PreparedRun(("tests/test_steps.py::test_it",), ("begin",), ("end",), "persistent://a/b/c")


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return written(tmp_path, PRODUCT)


def test_files_lines_classes_and_importers_are_counted_without_generated_code(tree: Path) -> None:
    assert count(tree) == {
        "files of offloader/": 4,
        "lines of offloader/": 27,
        "files of tests/": 1,
        "lines of tests/": 16,
        "classes in offloader/": 3,
        "modules with one importing module": 2,
        "internal names that only tests import": 4,
        "private members that tests access": 1,
    }


def test_a_name_that_another_package_imports_is_not_internal(tree: Path) -> None:
    names = internal_names(read_modules(tree, "offloader"), read_modules(tree, "tests"))
    assert names == {
        ("offloader.driver.core", "Core"),
        ("offloader.driver.steps", "begin"),
        ("offloader.driver.steps", "end"),
        ("offloader.driver.steps", "name_of"),
    }


def test_a_run_has_the_files_and_names_between_its_beginning_and_its_end(tree: Path) -> None:
    result = execute(tree, RUN)
    assert result["files"] == ["offloader/driver/steps.py", "offloader/model/topic.py"]
    assert result["stops"] == ["offloader/driver/steps.py:name_of"]
    assert result["names"] == ["each", "text", "topic"]


@pytest.mark.large
@pytest.mark.parametrize(
    ("tests", "begin", "message"),
    [
        ("tests/test_steps.py::test_nothing", "begin", "add its present id"),
        ("tests/test_steps.py::test_it", "nothing", "add its present name"),
        ("tests/test_steps.py::test_that_fails", "begin", "failed"),
    ],
)
def test_a_run_that_measures_nothing_is_an_error(tree: Path, tests: str, begin: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        execute(tree, PreparedRun((tests,), (begin,)))


@pytest.mark.parametrize("run", [*PATHS.values(), ADOPTION])
def test_the_prepared_runs_are_in_this_checkout(run: PreparedRun) -> None:
    assert any(has_test(ROOT, test) for test in run.tests)


def test_returns_are_to_modules_that_were_left() -> None:
    assert returns(["a", "a", "b", "a", "c", "b", "b"]) == 2


def test_lines_of_renamed_files_and_of_moved_definitions_are_moved(tmp_path: Path) -> None:
    body = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(20))
    moved = "class Moved:\n    first = 1\n    second = 2\n"
    before = written(tmp_path / "before", {"offloader/a.py": body, "offloader/b.py": "X = 1\n" + moved})
    after = written(
        tmp_path / "after",
        {"offloader/new/a.py": body + "Y = 1\n", "offloader/b.py": "X = 1\n", "offloader/c.py": moved},
    )
    assert moved_lines(before, after, "offloader") == 80 + 3
    assert moved_lines(before, before, "offloader") == 0


def test_the_table_is_markdown() -> None:
    assert table(["before", "after"], [("files", "1,000", "9")]) == (
        "|       | before | after |\n| ----- | -----: | ----: |\n| files |  1,000 |     9 |"
    )
