"""The command `offloader-python`: Python for the processes that Spark starts, with the installed PySpark instead of
Spark's zip.

Spark puts its `pyspark.zip` first on PYTHONPATH. Python compiles anew each time what it imports from a zip: 0.9 s of
CPU for each process instead of 0.3, and Spark gives a process ten seconds to answer.
"""

from __future__ import annotations

import os
import sys
import zipimport
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NoReturn

COMMAND = "offloader-python"


def beside(python: str = sys.executable) -> str:
    """The command beside a Python; that Python where it was not installed."""
    command = Path(python).with_name(COMMAND)
    return str(command if command.exists() else python)


def main() -> NoReturn:
    """Becomes Python with the same arguments."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_zips(given, [p for p in sys.path if p not in given]))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 (no shell is wanted)


def without_zips(given: Sequence[str], installed: Sequence[str]) -> list[str]:
    """PYTHONPATH without Spark's zips, where the installed PySpark is of the same version (a cluster's may differ). A
    user's zips stay: YARN puts them into the same folder."""
    zips = [Path(path) for path in given if Path(path).name == "pyspark.zip"]
    version = _version_installed(installed)
    if version is None or any(_version_in(path) != version for path in zips):
        return list(given)
    of_spark = {*zips, *(found for path in zips for found in path.parent.glob("py4j-*.zip"))}
    return [path for path in given if Path(path) not in of_spark]


def _version_installed(paths: Sequence[str]) -> bytes | None:
    spec = PathFinder.find_spec("pyspark", list(paths))
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).with_name("version.py")
    return version.read_bytes() if version.exists() else None


def _version_in(archive: Path) -> bytes | None:
    try:
        return zipimport.zipimporter(str(archive)).get_data(f"pyspark{os.sep}version.py")
    except (OSError, zipimport.ZipImportError):
        return None
