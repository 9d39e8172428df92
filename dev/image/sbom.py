"""What the image holds, as a bill of materials (CycloneDX 1.5). Runs while the image is built: standard library only.

The same content gives the same bytes: nothing of it is a time or a chance.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Component = dict[str, Any]

_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)")
_HASH = re.compile(r"--hash=sha256:(?P<sha256>[0-9a-f]{64})")
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*(?:-.+)?)\.jar")
_NAMESPACE = uuid.UUID("b3b1a4c8-5f0c-4c58-9d0a-6f2f5f6f1a76")


def document(components: Iterable[Component], version: str) -> dict[str, Any]:
    """The bill of an image that holds these components."""
    ordered = sorted(components, key=lambda component: str(component["bom-ref"]))
    body = json.dumps(ordered, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, body)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": "pulsar-streaming-offloader",
                "version": version,
            }
        },
        "components": ordered,
    }


def debian_packages(status: str) -> Iterator[Component]:
    """The packages that a dpkg status file calls installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[\w-]+: ", line))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{_quoted(version)}?arch={fields['Architecture']}&distro=debian-12"
            yield _component(name, version, purl)


def locked(lock: str) -> dict[tuple[str, str], frozenset[str]]:
    """Name and version to the hashes that a lock file allows."""
    found: dict[tuple[str, str], set[str]] = {}
    hashes: set[str] = set()
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            hashes = found.setdefault((_normal(pinned["name"]), pinned["version"]), set())
        hashes.update(_HASH.findall(line))
    return {key: frozenset(value) for key, value in found.items()}


def python_packages(
    wheels: Iterable[Path], lock: Mapping[tuple[str, str], frozenset[str]], *, own: bool = False
) -> Iterator[Component]:
    """What was installed from wheels. Their hashes are those of the lock: that of the wheel, or where it was built here
    that of the source it was built of."""
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        digest = sha256(wheel)
        allowed = lock.get((_normal(name), version), frozenset())
        if not allowed and not own:
            raise SystemExit(f"error: {wheel.name} is not in the lock file; build the image from its lock")
        hashes = {digest} if digest in allowed or own else allowed
        yield _component(_normal(name), version, f"pkg:pypi/{_normal(name)}@{_quoted(version)}", hashes)


def java_archives(jars: Iterable[Path]) -> Iterator[Component]:
    """Spark's jars, with their coordinates where they tell them."""
    for jar in jars:
        group, name, version = _coordinates(jar)
        purl = f"pkg:maven/{group}/{name}@{_quoted(version)}" if group else f"pkg:generic/{jar.name}"
        yield _component(name, version, purl, [sha256(jar)], jar.name)


def sha256(file: Path) -> str:
    """The digest of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _component(name: str, version: str, purl: str, hashes: Iterable[str] = (), file: str = "") -> Component:
    component: Component = {
        "type": "library",
        "bom-ref": f"{purl}#{file}" if file else purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if hashes := sorted(hashes):
        component["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
    if file:
        component["properties"] = [{"name": "file", "value": file}]
    return component


def _coordinates(jar: Path) -> tuple[str, str, str]:
    """Group, name and version. One that holds others, too, has the coordinates that its file's name begins with."""
    with zipfile.ZipFile(jar) as archive:
        listed = [name for name in sorted(archive.namelist()) if name.endswith("/pom.properties")]
        properties = [_properties(archive.read(name).decode(errors="replace")) for name in listed]
    for told in properties:
        if jar.name.startswith(f"{told.get('artifactId')}-{told.get('version')}"):
            return told.get("groupId", ""), told["artifactId"], told["version"]
    match = _JAR.fullmatch(jar.name)
    return ("", match["name"], match["version"]) if match else ("", jar.stem, "unknown")


def _properties(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _quoted(version: str) -> str:
    return version.replace("+", "%2B").replace(":", "%3A")


def main(arguments: list[str]) -> None:
    """Write the bill of what was installed to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--debian", "--lock", "--wheels", "--own", "--jars"):
        parser.add_argument(option, type=Path, required=True)
    given = parser.parse_args(arguments)
    (own,) = given.own.glob("*.whl")
    components = [
        *debian_packages(given.debian.read_text()),
        *python_packages(sorted(given.wheels.glob("*.whl")), locked(given.lock.read_text())),
        *python_packages([own], {}, own=True),
        *java_archives(sorted(given.jars.glob("*.jar"))),
    ]
    json.dump(document(components, own.name.split("-")[1]), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
