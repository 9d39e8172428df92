"""The lock lists: which jars make up the embedded Pulsar, to the byte.

A list has one line per jar, sorted: `group:artifact:version[:classifier] size sha256`. Lines that begin with # are
comments. `relock.py` writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath

from offloader.errors import FatalError

PULSAR = "pulsar-4.0.7.lock"
PULSAR_4_2 = "pulsar-4.2.4.lock"
CLIENT_2_11 = "client-2.11.4.lock"
OFFLOADER = "offloader-4.0.8.lock"
HADOOP = "hadoop-3.4.2.lock"

_LINE = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)(?::([\w.-]+))? ([0-9]+) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One jar: its Maven coordinate, its size in bytes and its SHA-256 in hexadecimal. `classifier` is empty for
    most."""

    group: str
    artifact: str
    version: str
    classifier: str
    size: int
    sha256: str

    @property
    def coordinate(self) -> str:
        """`group:artifact:version[:classifier]`."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def path(self) -> PurePosixPath:
        """Where a Maven repository keeps it."""
        name = "-".join(filter(None, (self.artifact, self.version, self.classifier)))
        return PurePosixPath(*self.group.split("."), self.artifact, self.version, f"{name}.jar")


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars of a lock list. Raises FatalError for a line that is not of the form above."""
    lines = [line.strip() for line in text.splitlines()]
    return tuple(_parse_line(line) for line in lines if line and not line.startswith("#"))


def _parse_line(line: str) -> Jar:
    match = _LINE.fullmatch(line)
    if match is None:
        raise FatalError(f"damaged lock list: {line!r} is not 'group:artifact:version[:classifier] size sha256'")
    group, artifact, version, classifier, size, sha256 = match.groups()
    return Jar(group, artifact, version, classifier or "", int(size), sha256)


def load_lock(name: str) -> tuple[Jar, ...]:
    """The jars of one of the lists that come with this package."""
    return parse_lock(resources.files(__package__).joinpath(name).read_text())
