"""The image's bill of materials: what is installed, once each, with versions and hashes; the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from dev.image.sbom import debian_packages, document, java_archives, locked, main, python_packages

STATUS = """Package: tzdata
Status: install ok installed
Architecture: all
Version: 2025b-0+deb12u2
Description: time zones
 over: several lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: util-linux
Status: install ok installed
Architecture: amd64
Version: 1:2.38.1-5
"""


def jar(file: Path, **coordinates: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for number, (group, rest) in enumerate(coordinates.items()):
            name, version = rest.rsplit(":", 1)
            text = f"#made\ngroupId={group}\nartifactId={name}\nversion={version}\n"
            archive.writestr(f"META-INF/maven/{number}/pom.properties", text)
    return file


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def test_debian_packages_that_are_installed_have_their_versions() -> None:
    found = {component["name"]: component for component in debian_packages(STATUS)}
    assert {name: component["version"] for name, component in found.items()} == {
        "tzdata": "2025b-0+deb12u2",
        "util-linux": "1:2.38.1-5",
    }
    assert found["util-linux"]["purl"] == "pkg:deb/debian/util-linux@1%3A2.38.1-5?arch=amd64&distro=debian-12"


def test_a_wheel_has_its_own_hash_and_one_that_was_built_here_that_of_its_source(tmp_path: Path) -> None:
    fetched, built = tmp_path / "numpy-2.4.6-cp311-linux.whl", tmp_path / "py_spark-4.3.0-py3-none-any.whl"
    fetched.write_bytes(b"fetched")
    built.write_bytes(b"built")
    lock = locked(
        f"numpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:{digest(b'fetched')} \\\n"
        f"    --hash=sha256:{digest(b'another')}\npy-spark==4.3.0 \\\n    --hash=sha256:{digest(b'source')}\n"
    )
    found = list(python_packages([fetched, built], lock))
    assert [(one["name"], one["version"], [h["content"] for h in one["hashes"]]) for one in found] == [
        ("numpy", "2.4.6", [digest(b"fetched")]),
        ("py-spark", "4.3.0", [digest(b"source")]),
    ]


def test_a_wheel_that_the_lock_does_not_name_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger-1-py3-none-any.whl"
    stranger.write_bytes(b"?")
    with pytest.raises(SystemExit, match="is not in the lock file"):
        list(python_packages([stranger], {}))


def test_a_jar_has_its_coordinates_whatever_it_was_packed_with(tmp_path: Path) -> None:
    plain = jar(tmp_path / "kafka-clients-3.9.jar", **{"org.apache.kafka": "kafka-clients:3.9"})
    packed = jar(tmp_path / "netty-all-4.2.Final.jar", a="other:1", **{"io.netty": "netty-all:4.2.Final"})
    silent = jar(tmp_path / "scala-library-2.13.18.jar")
    found = list(java_archives([plain, packed, silent]))
    assert [component["purl"] for component in found] == [
        "pkg:maven/org.apache.kafka/kafka-clients@3.9",
        "pkg:maven/io.netty/netty-all@4.2.Final",
        "pkg:generic/scala-library-2.13.18.jar",
    ]
    assert (found[2]["name"], found[2]["version"]) == ("scala-library", "2.13.18")
    assert found[2]["hashes"][0]["content"] == digest(silent.read_bytes())


def test_a_bill_is_the_same_bytes_for_the_same_content_in_any_order() -> None:
    components = list(debian_packages(STATUS))
    one, other = document(components, "1.0"), document(reversed(components), "1.0")
    assert json.dumps(one) == json.dumps(other)
    assert one["serialNumber"] != document(components[:1], "1.0")["serialNumber"]


def test_the_command_writes_a_bill_of_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("wheels", "own", "jars"):
        (tmp_path / folder).mkdir()
    (tmp_path / "wheels" / "six-1.17.0-py2.py3-none-any.whl").write_bytes(b"six")
    (tmp_path / "own" / "pulsar_streaming_offloader-0.1.0-py3-none-any.whl").write_bytes(b"ours")
    jar(tmp_path / "jars" / "avro-1.12.jar")
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "lock").write_text(f"six==1.17.0 \\\n    --hash=sha256:{digest(b'six')}\n")
    options = {"debian": "status", "lock": "lock", "wheels": "wheels", "own": "own", "jars": "jars"}
    main([part for option, name in options.items() for part in (f"--{option}", str(tmp_path / name))])
    bill = json.loads(capsys.readouterr().out)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["version"] == "0.1.0"
    names = [component["name"] for component in bill["components"]]
    assert sorted(names) == ["avro", "pulsar-streaming-offloader", "six", "tzdata", "util-linux"]
