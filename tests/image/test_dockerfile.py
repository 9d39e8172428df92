"""The container has what the wheel is built of: the Dockerfile copies it, and .dockerignore lets it through."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from offloader.config.running import MetricsSettings

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def copied() -> set[str]:
    """What the Dockerfile takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return {source.removesuffix("/") for line in lines for source in line.split()[:-1]}


def let_through() -> set[str]:
    """What .dockerignore does not keep from the build."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    return {line.removeprefix("!").removesuffix("/") for line in lines if line.startswith("!")}


def build_inputs() -> set[str]:
    """What pyproject.toml builds the wheel of."""
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {"pyproject.toml", "hatch_build.py", "proto", PROJECT["project"]["readme"], *packages}


def test_the_image_is_built_of_all_that_the_wheel_is_built_of() -> None:
    assert build_inputs() <= copied()


def test_the_build_sees_what_the_dockerfile_copies_and_nothing_else() -> None:
    assert copied() == let_through()
    assert all((REPOSITORY / name).exists() for name in copied())


def pins(name: str) -> set[str]:
    return set(re.findall(r"^(\S+==\S+)", (REPOSITORY / name).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["requirements-runtime.lock", "requirements-build.lock"])
def test_the_container_installs_what_is_tested(name) -> None:
    assert pins(name)
    assert pins(name) <= pins("requirements.lock")


def test_the_containers_health_check_reaches_the_default_endpoint() -> None:
    settings = MetricsSettings()
    assert f"OFFLOADER_HEALTH_URL=http://{settings.host}:{settings.port}/healthz" in DOCKERFILE
    assert re.search(r"^USER (?!root|0)", DOCKERFILE, re.MULTILINE)
