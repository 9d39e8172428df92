"""The image, built for tests with buildah into the user's cache, and its file system."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.image.build import build
from dev.image.tools import Tool
from integration.image.container import Image, config_of
from integration.programs import program_folder

TAG = "offloader-tests"
NEEDED = ("buildah", "unshare", "nsenter", "setpriv")


@contextmanager
def built_image() -> Iterator[Image]:
    """The image of this repository. What was built before is used again; what nothing needs any more goes."""
    tool = buildah()
    build(tool, f"{TAG}-build", stage="build")  # has a name, so that it stays
    build(tool, TAG)
    # What another session has in use stays, and is said to be an error.
    subprocess.run(tool.command("rmi", "--prune"), capture_output=True, check=False)
    container = _told(tool, "from", "--pull-never", TAG)
    try:
        config = config_of(_told(tool, "inspect", "--type", "image", TAG))
        yield Image(_path(tool, container), config, layers(tool, TAG))
    finally:
        _told(tool, "rm", container)


def layers(tool: Tool, tag: str) -> list[str]:
    """Digests of an image's layers, the base's first."""
    return json.loads(_told(tool, "inspect", "--type", "image", tag))["OCIv1"]["rootfs"]["diff_ids"]


def buildah() -> Tool:
    """With a storage of the tests' own, in the user's cache. Fails the test where it cannot work."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        why = f"{' and '.join(missing)} missing" if missing else "only root can run a container without a daemon"
        pytest.fail(f"{why}: as root, run .ci/packages", pytrace=False)
    folder = program_folder().parent / "images"
    return Tool("buildah", ("--root", str(folder / "storage"), "--runroot", str(folder / "run")))


def _path(tool: Tool, container: str) -> Path:
    return Path(_told(tool, "mount", container))


def _told(tool: Tool, *arguments: str) -> str:
    return subprocess.run(tool.command(*arguments), capture_output=True, text=True, check=True).stdout.strip()
