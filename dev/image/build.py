"""Builds the container image: `python -m dev.image.build`, or `make image`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from dev.image.base import RELEASE, make_base
from dev.image.tools import BASE, CERTIFICATES, TOOLS, Tool, working
from offloader.errors import FatalError, OffloadError

REPOSITORY = Path(__file__).resolve().parents[2]
OWN_BASE = f"localhost/debian:{RELEASE}-debootstrap"


def build(tool: Tool, tag: str, *, cached: bool = True, stage: str = "") -> None:
    """Build the image of this repository, or one of its stages."""
    certificates = CERTIFICATES if CERTIFICATES.exists() else None
    base = base_image(tool)
    _run(tool.build(REPOSITORY, base, tag, certificates=certificates, cached=cached, stage=stage))


def base_image(tool: Tool) -> str:
    """The base, there for the tool: pulled, or made of Debian's packages where it cannot be pulled."""
    if _has(tool, OWN_BASE):
        return OWN_BASE
    pulled = subprocess.run(tool.command("pull", BASE), capture_output=True, check=False)  # noqa: S603
    if pulled.returncode == 0:
        return BASE
    click.echo(f"{BASE} cannot be pulled: a base is made of Debian's packages", err=True)
    with tempfile.TemporaryDirectory(prefix="offloader-image-") as folder:
        for command in tool.from_folder(make_base(Path(folder)), OWN_BASE):
            _run(command)
    return OWN_BASE


def _has(tool: Tool, image: str) -> bool:
    command = tool.command("inspect", "--type", "image", image)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def _run(command: list[str]) -> None:
    """Run a command of the tool; its output is shown as it comes."""
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:  # noqa: S603
        raise FatalError(f"failed, see above: {' '.join(command)}")


@click.command(help=__doc__)
@click.option("--tag", default="offloader", show_default=True, help="The image's name.")
@click.option("--tool", "name", type=click.Choice(TOOLS), help="Builds it; otherwise the first of these that works.")
@click.option("--no-cache", is_flag=True, help="Use no layer that was built before.")
def main(tag: str, name: str | None, no_cache: bool) -> None:  # noqa: FBT001 (click calls it)
    """The command line of this module."""
    try:
        tool = working((name,) if name else TOOLS)
        build(tool, tag, cached=not no_cache)
    except OffloadError as error:
        raise SystemExit(f"error: {error}") from error
    click.echo(f"built {tag} with {tool.name}")


if __name__ == "__main__":
    main()
