"""Debian as the base of the image, made of its packages where no image of it can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from dev.image.tools import EPOCH
from offloader.errors import FatalError

RELEASE = "bookworm"
_LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
_EXCLUDES = "".join(f"path-exclude /{folder}/*\n" for folder in _LEFT_OUT if folder.startswith("usr"))
_COPYRIGHTS = "path-include /usr/share/doc/*/copyright\n"


def make_base(folder: Path) -> Path:
    """A tar archive of Debian's least system. Needs root."""
    if shutil.which("debootstrap") is None:
        raise FatalError(
            "there is no base image: it cannot be pulled, and debootstrap, which would make it, is not there; "
            "on Debian: apt-get install debootstrap"
        )
    if os.geteuid() != 0:
        raise FatalError("there is no base image: it cannot be pulled, and debootstrap makes one for root only")
    root = folder / "root"
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", RELEASE, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise FatalError(f"debootstrap has failed: {' '.join(last)}; see {root}/debootstrap/debootstrap.log")
    _slim(root)
    return _packed(root, folder / "base.tar")


def sources(first: str) -> str:
    """Debian's sources with updates and security, from the line that debootstrap writes."""
    kind, mirror, release, *components = first.split()
    parts = " ".join(components)
    updates = f"{kind} {mirror} {release}-updates {parts}"
    security = f"{kind} {mirror.removesuffix('/').removesuffix('/debian')}/debian-security {release}-security {parts}"
    return "\n".join((first.strip(), updates, security)) + "\n"


def _slim(root: Path) -> None:
    """What a container does not need goes, and stays away from packages that are installed later."""
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(_EXCLUDES + _COPYRIGHTS)
    for name in _LEFT_OUT:
        for path in (root / name).rglob("*"):
            if path.is_symlink() or (path.is_file() and path.name != "copyright"):
                path.unlink()
    listed = root / "etc/apt/sources.list"
    listed.write_text(sources(listed.read_text().splitlines()[0]))
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").write_text("")
    for log in (root / "var/log").rglob("*.log"):
        log.unlink()


def _packed(root: Path, archive: Path) -> Path:
    def fixed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.mtime = EPOCH
        return None if entry.ischr() or entry.isblk() else entry

    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.add(root, arcname=".", filter=fixed)
    return archive
