"""What the embedded Pulsar is told."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from dev.embedded.commands import JavaCommands
from dev.embedded.settings import OffloaderSettings, Ports, free_ports, ports_of, properties, standalone_configuration
from dev.embedded.zookeeper import zookeeper_configuration
from offloader.errors import FatalError
from offloader.java import Java

PORTS = Ports(broker=20001, web=20002, bookie=20003, zookeeper=20004)


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(50, random.Random(1))
    assert len(set(ports)) == 50
    for port in ports:
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))


def test_a_port_in_use_is_passed_over() -> None:
    (expected,) = free_ports(1, random.Random(7))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", expected))
        assert free_ports(1, random.Random(7)) != [expected]


def test_ports_stay_with_their_directory(tmp_path: Path) -> None:
    assert ports_of(tmp_path) == ports_of(tmp_path)


def test_everything_is_on_loopback() -> None:
    settings = standalone_configuration(PORTS, {}, None)
    assert settings["bindAddress"] == settings["advertisedAddress"] == "127.0.0.1"
    assert settings["listeningInterface"].startswith("lo")
    assert zookeeper_configuration(PORTS.zookeeper)["clientPortAddress"] == "127.0.0.1"


@pytest.mark.parametrize("largest", [1024 * 1024, 5 * 1024 * 1024, 20 * 1024 * 1024])
def test_the_bookie_takes_more_than_the_largest_message(largest: int) -> None:
    settings = standalone_configuration(PORTS, {"maxMessageSize": str(largest)}, None)
    assert int(settings["nettyMaxFrameSizeBytes"]) >= int(settings["maxMessageSize"]) + 64 * 1024


def test_overrides_win() -> None:
    assert standalone_configuration(PORTS, {"clusterName": "mine"}, None)["clusterName"] == "mine"


def test_pulsars_own_offloader_is_only_there_when_asked_for() -> None:
    offloader = OffloaderSettings("http://127.0.0.1:9000", "bucket", "key", "secret")
    assert "offloadersDirectory" not in standalone_configuration(PORTS, {}, None)
    settings = standalone_configuration(PORTS, {}, offloader)
    assert settings["managedLedgerOffloadServiceEndpoint"] == "http://127.0.0.1:9000"
    assert "secret" not in properties(settings)
    assert offloader.environment["ACCESS_KEY_SECRET"] == "secret"


def test_a_value_of_two_lines_is_refused() -> None:
    with pytest.raises(FatalError, match="clusterName"):
        properties({"clusterName": "a\nbindAddress=0.0.0.0"})


def commands(directory: Path) -> JavaCommands:
    java = Java(Path("/opt/jdk"), Path("/opt/jdk/bin/java"), 17)
    return JavaCommands(java, [Path("/cache/a b.jar"), Path("/cache/c.jar")], directory)


def test_pulsar_command_and_files(tmp_path: Path) -> None:
    (tmp_path / "tmp" / "pulsar" / "left-by-a-kill").mkdir(parents=True)
    command = commands(tmp_path).pulsar({"clusterName": "x"}, PORTS.bookie, "zk:127.0.0.1:20004")
    assert command[:2] == ["/opt/jdk/bin/java", f"@{tmp_path}/pulsar.args"]
    assert command[-2:] == ["--metadata-url", "zk:127.0.0.1:20004"]
    assert (tmp_path / "standalone.conf").read_text() == "clusterName=x\n"
    assert '"/cache/a b.jar:/cache/c.jar"\n' in (tmp_path / "pulsar.args").read_text()
    assert not list((tmp_path / "tmp" / "pulsar").iterdir())


def test_zookeeper_command_and_files(tmp_path: Path) -> None:
    command = commands(tmp_path).zookeeper(PORTS.zookeeper)
    assert command[-1] == "zookeeper.conf"
    assert "clientPort=20004\n" in (tmp_path / "zookeeper.conf").read_text()


def test_without_a_metadata_url_the_embedded_store_is_used(tmp_path: Path) -> None:
    assert "--metadata-url" not in commands(tmp_path).pulsar({}, PORTS.bookie, None)
