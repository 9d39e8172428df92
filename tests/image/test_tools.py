"""Which program builds the image, and what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.image.base import sources
from dev.image.tools import Tool, working
from offloader.errors import FatalError


def test_a_docker_without_its_daemon_is_passed_over() -> None:
    tool = working(find=lambda name: name != "podman", answers=lambda command: command[0] != "docker")
    assert tool.name == "buildah"


def test_the_first_that_works_is_taken() -> None:
    assert working(find=lambda _: True, answers=lambda _: True).name == "docker"


def test_where_none_works_one_line_says_what_to_install() -> None:
    with pytest.raises(FatalError, match="apt-get install buildah debootstrap"):
        working(find=lambda _: True, answers=lambda _: False)


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_every_tool_builds_over_the_base_that_is_there(name) -> None:
    command = Tool(name).build(Path("/here"), "base", "tag", certificates=None)
    assert command[:2] == [name, "build"]
    assert command[-1] == "/here"
    assert "BASE=base" in command
    assert "--secret" not in command


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_health_checks_and_fixed_times_are_asked_for(name) -> None:
    command = Tool(name).build(Path("/here"), "base", "tag", certificates=Path("/authorities"))
    assert command[command.index("--format") + 1] == "docker"
    assert "--timestamp" in command
    assert "id=certificates,src=/authorities" in command


def test_a_base_gets_security_updates_from_the_mirror_that_it_was_made_from() -> None:
    assert sources("deb http://mirror.example/debian bookworm main") == (
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/debian bookworm-updates main\n"
        "deb http://mirror.example/debian-security bookworm-security main\n"
    )
