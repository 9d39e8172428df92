"""What is given to others: sdist and wheel have what they must, are the same whenever they are built, and all that says
a version says the same."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dev.image.tools import Tool
from dev.release.build import REPOSITORY, build
from offloader.cli.main import main
from offloader.pulsar.commands import CLIENT_VERSION, connect
from offloader.version import installed, named

GENERATED = {f"offloader/_proto/{path.stem}_pb2.py" for path in (REPOSITORY / "proto").glob("*.proto")}
NOT_SHIPPED = (".pyc",)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sources() -> set[str]:
    """Every module and every page's piece of the two packages."""
    found = set[str]()
    for package in ("offloader", "pyspark_pulsar_archive"):
        for path in (REPOSITORY / package).rglob("*"):
            if path.is_file() and path.suffix not in NOT_SHIPPED and "_proto" not in path.parts:
                found.add(str(path.relative_to(REPOSITORY)))
    return found


@pytest.mark.large
def test_sdist_and_wheel_have_what_they_must_and_are_the_same_when_they_are_built_again(tmp_path: Path) -> None:
    """One test, as building takes its time: it builds each twice and compares."""
    made = build(tmp_path)
    version = project()["version"]
    assert made.wheel.name == f"pulsar_streaming_offloader-{version}-py3-none-any.whl"
    assert made.sdist.name == f"pulsar_streaming_offloader-{version}.tar.gz"
    names = names_in(made.wheel)
    packed = {name for name in names if ".dist-info/" not in name and not name.endswith(".pyi")}
    assert packed == sources() | GENERATED | {"offloader/_proto/__init__.py"}, "the sdist lacks what the wheel lacks"
    assert "offloader/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    with tarfile.open(made.sdist) as archive:
        given = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "CHANGELOG.md", "docs/format.md"} <= given
    assert not any(name.startswith(("tests/", "integration/", "dev/", "offloader/_proto")) for name in given)


def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_every_version_is_that_of_pyproject() -> None:
    version = project()["version"]
    assert installed() == version, "the environment is older than pyproject.toml: make setup"
    assert CliRunner().invoke(main, ["--version"]).stdout == f"offloader, version {version}\n"
    assert connect("none", b"").connect.client_version == CLIENT_VERSION
    image = Tool("buildah").build(REPOSITORY, "base", "tag", certificates=None)
    assert f"org.opencontainers.image.version={version}" in image
    assert named() == CLIENT_VERSION == f"pulsar-streaming-offloader/{version}"


def test_no_other_file_says_a_version_of_its_own() -> None:
    """Who needs it asks the installed package, or is asked by a test."""
    literal = re.compile(r"""^\s*(?:__version__|VERSION)\s*=\s*["']\d""", re.MULTILINE)
    for path in (REPOSITORY / "offloader").rglob("*.py"):
        assert not literal.search(path.read_text()), path
    version = project()["version"]
    charts = list((REPOSITORY / "conf").rglob("Chart.yaml"))
    assert charts
    for chart in charts:
        assert re.search(rf"^appVersion: [\"']?{re.escape(version)}[\"']?$", chart.read_text(), re.MULTILINE), chart
