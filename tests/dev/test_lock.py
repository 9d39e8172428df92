"""Lock lists say exactly which jars, and a damaged list is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.embedded.lock import OFFLOADER, PULSAR, Jar, load_lock, parse_lock
from dev.embedded.relock import format_lock, lock_jar, parse_dependency
from offloader.errors import FatalError

_names = st.text("abz09.-_", min_size=1, max_size=8)
_jars = st.builds(
    Jar,
    group=_names,
    artifact=_names,
    version=_names,
    classifier=st.just("") | _names,
    size=st.integers(0, 2**40),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
)


@given(st.sets(_jars))
def test_what_is_written_is_read_back_sorted(jars: set[Jar]) -> None:
    assert parse_lock(format_lock(jars)) == tuple(sorted(jars))


@pytest.mark.parametrize(
    "line",
    [
        "group:artifact 1 " + "0" * 64,
        "group:artifact:1.0 one " + "0" * 64,
        "group:artifact:1.0 1 " + "0" * 63,
        "group:artifact:1.0:a:b 1 " + "0" * 64,
        "group:../../x:1.0 1 " + "0" * 64,
    ],
)
def test_a_damaged_line_is_refused(line: str) -> None:
    with pytest.raises(FatalError, match="damaged lock list"):
        parse_lock(line)


def test_a_jar_lies_where_a_maven_repository_has_it() -> None:
    (jar,) = parse_lock("io.netty:netty-epoll:4.1:linux-x86_64 7 " + "a" * 64)
    assert str(jar.path) == "io/netty/netty-epoll/4.1/netty-epoll-4.1-linux-x86_64.jar"
    assert jar.coordinate == "io.netty:netty-epoll:4.1:linux-x86_64"


def test_the_lists_of_this_package() -> None:
    pulsar, offloader = load_lock(PULSAR), load_lock(OFFLOADER)
    assert len(pulsar) == len({jar.path for jar in pulsar}) == 317
    assert "org.apache.pulsar:pulsar-broker:4.0.7" in {jar.coordinate for jar in pulsar}
    assert [jar.coordinate for jar in offloader] == ["org.apache.pulsar:tiered-storage-jcloud:4.0.8"]


@pytest.mark.parametrize(
    ("name", "artifact"),
    [
        ("pulsar-3.0.7", "pulsar-broker"),
        ("pulsar-4.2.4", "pulsar-broker"),
        ("offloader-3.3.5", "tiered-storage-jcloud"),
        ("offloader-4.0.6", "tiered-storage-jcloud"),
        ("tools-4.0.8", "pulsar-client-tools"),
        ("client-2.11.4", "pulsar-client"),
    ],
)
def test_the_lists_of_other_versions(name: str, artifact: str) -> None:
    version = name.rpartition("-")[2]
    assert f"org.apache.pulsar:{artifact}:{version}" in {jar.coordinate for jar in load_lock(f"{name}.lock")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("   net.jcip:jcip-annotations:jar:1.0:compile", ("net.jcip", "jcip-annotations", "1.0", "")),
        ("   org.x:y:jar:tests:4.17.2:runtime -- module y (auto)", ("org.x", "y", "4.17.2", "tests")),
    ],
)
def test_mavens_list_is_understood(line: str, expected: tuple[str, ...]) -> None:
    assert parse_dependency(line) == expected


def test_what_is_no_jar_is_refused() -> None:
    with pytest.raises(FatalError, match="not a jar"):
        parse_dependency("   org.x:y:pom:1.0:compile")


def test_a_jar_is_locked_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "g/a/1/a-1.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"abc")
    assert lock_jar(("g", "a", "1", ""), tmp_path) == Jar(
        "g", "a", "1", "", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
