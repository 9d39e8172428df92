"""Spark's processes import the installed PySpark, and Spark's zip only where they have another or none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from offloader import spark_python

PRINT = (
    "import os, pyspark, sys; print(pyspark.__file__, os.environ['PYTHONPATH'], os.environ['PYTHONHASHSEED'], "
    "sys.argv[1:])"
)


def spark_home(folder: Path, version: str) -> list[str]:
    """A Spark's zips of Python and one of its jars, as Spark names them in PYTHONPATH."""
    paths = [
        folder / "lib" / "pyspark.zip",
        folder / "lib" / "py4j-0.10.9.9-src.zip",
        folder / "jars" / "spark-core.jar",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("pyspark/__init__.py", "")
            archive.writestr("pyspark/version.py", version)
    return [str(path) for path in paths]


def installed(folder: Path, version: str) -> list[str]:
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").touch()
    (folder / "pyspark" / "version.py").write_text(version)
    return ["/nowhere", str(folder)]


def test_zips_go_where_the_same_pyspark_is_installed_and_nothing_else_does(tmp_path: Path) -> None:
    zips = spark_home(tmp_path / "spark", "4.3.0")
    own = str(Path(zips[0]).with_name("deps.zip"))  # YARN puts it beside them
    with zipfile.ZipFile(own, "w") as archive:
        archive.writestr("dep.py", "")
    given = [*zips, own, ""]
    assert spark_python.without_zips(given, installed(tmp_path / "site", "4.3.0")) == [zips[2], own, ""]


@pytest.mark.parametrize("version", ["4.3.1", None])
def test_a_cluster_whose_spark_is_another_keeps_its_own(tmp_path: Path, version: str | None) -> None:
    zips = spark_home(tmp_path / "spark", "4.3.0")
    paths = installed(tmp_path / "site", version) if version else ["/nowhere"]
    assert spark_python.without_zips(zips, paths) == zips


def test_a_zip_that_cannot_be_read_is_left_to_whoever_needs_it(tmp_path: Path) -> None:
    (tmp_path / "pyspark.zip").write_text("cut off")
    given = [str(tmp_path / "pyspark.zip"), str(tmp_path / "missing" / "pyspark.zip")]
    assert spark_python.without_zips(given, installed(tmp_path / "site", "4.3.0")) == given


def test_nothing_is_asked_where_spark_names_no_zip() -> None:
    assert spark_python.without_zips(["/users/own"], []) == ["/users/own"]


def test_the_command_is_python_with_the_same_arguments_and_environment(tmp_path: Path) -> None:
    import pyspark.version

    zips = spark_home(tmp_path, Path(pyspark.version.__file__).read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(zips[:2]), "PYTHONHASHSEED": "7"}
    command = [spark_python.beside(), "-c", PRINT, "-m", "an argument"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    imported, _, rest = said.partition(" ")
    assert Path(imported).samefile(pyspark.__file__)
    assert rest == " 7 ['-m', 'an argument']\n"


def test_a_python_without_the_command_beside_it_serves_itself(tmp_path: Path) -> None:
    assert spark_python.beside(str(tmp_path / "python")) == str(tmp_path / "python")
    assert Path(spark_python.beside(sys.executable)).name == spark_python.COMMAND
