"""Builds sdist and wheel: `python -m dev.release.build dist`. The wheel is built from the sdist, as others build it.

Each is built twice, from a copy of the sources in another folder: the bytes must be the same. The environment variable
SOURCE_DATE_EPOCH says which time the files have."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from offloader.errors import FatalError, OffloadError

REPOSITORY = Path(__file__).resolve().parents[2]
BESIDE = ("pyproject.toml", ".gitignore")  # in every sdist, whatever it includes


class Distributions(NamedTuple):
    """The two files of a release."""

    sdist: Path
    wheel: Path


def build(target: Path) -> Distributions:
    """Build into a folder. Raises FatalError where a second build gives other bytes."""
    with tempfile.TemporaryDirectory(prefix="offloader-release-") as name:
        folder = Path(name)
        _copy_sources(folder / "sources")
        first, second = (_built(folder / "sources", folder / each) for each in ("first", "and-the-second"))
        for one, other in zip(first, second, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise FatalError(f"{one.name}: built twice, it is not the same")
        target.mkdir(parents=True, exist_ok=True)
        return Distributions(*(Path(shutil.copy(each, target / each.name)) for each in first))


def _built(sources: Path, folder: Path) -> Distributions:
    copied, unpacked, made = folder / "sources", folder / "unpacked", folder / "made"
    shutil.copytree(sources, copied)
    sdist = _hatch(copied, "sdist", made)
    extract(sdist, unpacked)
    (inside,) = unpacked.iterdir()
    return Distributions(sdist, _hatch(inside, "wheel", made))


def _copy_sources(target: Path) -> None:
    """What an sdist has, and nothing that was generated: the build generates it, also while tests run beside."""
    said = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    target.mkdir(parents=True)
    for name in (*said["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], *BESIDE):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "_proto"))
        else:
            shutil.copy2(source, target / name)


def _hatch(sources: Path, kind: str, target: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise FatalError(f"the {kind} cannot be built: {done.stderr.strip() or done.stdout.strip()}")
    (made,) = target.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made


def main() -> int:
    """The command line of this module."""
    try:
        for made in build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
            print(f"{made}: {made.stat().st_size:,} bytes")  # noqa: T201 (a command)
    except OffloadError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def extract(path: Path, folder: Path) -> None:
    """Unpack a tar archive that this project has made. Python 3.11.2 has no filters, and 3.12 warns without one."""
    with tarfile.open(path) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202 (our own)


if __name__ == "__main__":
    sys.exit(main())
