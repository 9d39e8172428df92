"""The command lines of the embedded Pulsar's Java programs, and the files that they read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.embedded.settings import LOG4J, properties
from dev.embedded.shared_classes import shared_classes, sharing
from dev.embedded.zookeeper import zookeeper_configuration
from offloader.java import Java

_OPENED = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
)
_PULSAR_OPTIONS = (
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=1g",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
)
_ZOOKEEPER_OPTIONS = ("-Xmx128m",)
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For what does not live long enough to gain from better machine code: half of the processor time of a start."""


@dataclass(frozen=True, slots=True)
class JavaCommands:
    """Writes the files into `directory` and gives the commands to run there. `own`: folders with more classes."""

    java: Java
    jars: Sequence[Path]
    directory: Path
    own: Sequence[Path] = ()

    def zookeeper(self, port: int) -> list[str]:
        """ZooKeeper alone: the one inside Pulsar's standalone listens on all interfaces."""
        (self.directory / "zookeeper.conf").write_text(properties(zookeeper_configuration(port)))
        program = ("org.apache.zookeeper.server.ZooKeeperServerMain", "zookeeper.conf")
        return self.program("zookeeper", (*_ZOOKEEPER_OPTIONS, *SHORT_LIVED), program)

    def pulsar(
        self, settings: Mapping[str, str], bookie_port: int, metadata_url: str | None, options: Sequence[str] = ()
    ) -> list[str]:
        """Broker and bookie. `metadata_url` None: metadata in an embedded store. `options`: more of Java's."""
        (self.directory / "standalone.conf").write_text(properties(settings))
        program = ["org.apache.pulsar.PulsarStandaloneStarter", "--config", "standalone.conf"]
        program += ["--no-functions-worker", "--no-stream-storage", "--advertised-address", "127.0.0.1"]
        program += ["--bookkeeper-port", str(bookie_port)]
        program += ["--metadata-url", metadata_url] if metadata_url else []
        return self.program("pulsar", (*_PULSAR_OPTIONS, *options), program)

    def program(self, name: str, options: Sequence[str], program: Sequence[str]) -> list[str]:
        """Run a class of the jars with its arguments and `options` of Java. `name`: of the program's own files."""
        log4j = self.directory / "log4j2.xml"
        log4j.write_text(LOG4J)
        # native libraries are unpacked into it, and stay there after a kill
        temporary = self.directory / "tmp" / name
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        arguments = [
            *options,
            *sharing(shared_classes(self.java, self.jars)),
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={temporary}",
            f"-Dlog4j.configurationFile={log4j}",
            "-cp",
            os.pathsep.join(str(path) for path in (*self.jars, *self.own)),
        ]
        file = self.directory / f"{name}.args"
        file.write_text("".join(f"{_quoted(argument)}\n" for argument in arguments))
        return [str(self.java.executable), f"@{file}", *program]


def _quoted(argument: str) -> str:
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
