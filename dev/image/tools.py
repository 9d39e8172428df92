"""The programs that build images, and what they are told."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from offloader.errors import FatalError
from offloader.version import installed

TOOLS = ("docker", "podman", "buildah")
BASE = "debian:bookworm-slim"
EPOCH = 1_767_225_600  # 2026-01-01: the time of every file in our layers
VERSION_LABEL = "org.opencontainers.image.version"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_ANSWERS = {"docker": ("version",), "podman": ("info",), "buildah": ("info",)}  # `docker version` also asks the daemon


@dataclass(frozen=True, slots=True)
class Tool:
    """One of `TOOLS`. `options` stand before each subcommand."""

    name: str
    options: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """A command of the tool."""
        return [self.name, *self.options, *arguments]

    def build(
        self, context: Path, base: str, tag: str, *, certificates: Path | None, cached: bool = True, stage: str = ""
    ) -> list[str]:
        """The command that builds the image of the Dockerfile in `context`, or one of its stages."""
        flags = ["--build-arg", f"BASE={base}", "--label", f"{VERSION_LABEL}={installed()}", "--tag", tag]
        if stage:
            flags += ["--target", stage]
        if certificates is not None:
            flags += ["--secret", f"id=certificates,src={certificates}"]
        if not cached:
            flags.append("--no-cache")
        if self.name != "docker":
            # Only this format has health checks.
            flags += ["--format", "docker", "--timestamp", str(EPOCH), "--layers"]
        if self.name == "buildah":
            flags += ["--isolation", "chroot"]
        return self.command("build", *flags, str(context))

    def from_folder(self, archive: Path, tag: str) -> list[list[str]]:
        """The commands that make an image of a file system in a tar archive."""
        if self.name != "buildah":
            return [self.command("import", str(archive), tag)]
        name = f"base-{archive.parent.name}"
        return [
            self.command("from", "--name", name, "scratch"),
            self.command("add", name, str(archive), "/"),
            self.command("commit", "--rm", "--timestamp", str(EPOCH), name, tag),
        ]


def working(
    names: Sequence[str] = TOOLS,
    find: Callable[[str], object] = shutil.which,
    answers: Callable[[list[str]], bool] | None = None,
) -> Tool:
    """The first that is installed and works: a docker without its daemon does not."""
    for name in names:
        if find(name) and (answers or _succeeds)([name, *_ANSWERS[name]]):
            return Tool(name)
    raise FatalError(
        f"no image can be built: {' or '.join(names)} is needed, and answers here; on Debian, as root: "
        "apt-get install buildah debootstrap"
    )


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0  # noqa: S603
