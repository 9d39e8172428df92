"""Pulsar's own command lines, each a process of its own: `pulsar-client`, `pulsar-perf` and `pulsar-admin`.

Those of 4.0.8 with the classes of 4.0.7: Maven Central has no others. What they say is compared; their log is not, but
for the counts of `pulsar-perf`, which are nowhere else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from dev.embedded.commands import SHORT_LIVED, JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from integration.gateway.topics import Made
from integration.processes import HANGS
from offloader.java import find_java

TOOLS = "tools-4.0.8.lock"
_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[\d:,]+ ")
_COUNTED = re.compile(r"Aggregated throughput stats --- (\d+) records received|ack failed (\d+) msg")


class CommandLines:
    """At one server: `service` is its address for clients, `web` the one for `pulsar-admin`."""

    def __init__(self, folder: Path, service: str, web: str) -> None:
        folder.mkdir(parents=True)
        self._commands = JavaCommands(find_java(), fetch_lock(PULSAR), folder, fetch_lock(TOOLS))
        self._settings = folder / "client.conf"
        self._settings.write_text(f"brokerServiceUrl={service}\nwebServiceUrl={web}\n")

    def client(self, *arguments: str) -> list[str]:
        """What it prints of the messages."""
        out = self._run("org.apache.pulsar.client.cli.PulsarClientTool", "256m", arguments)
        return [line for line in out.splitlines() if not _LOGGED.match(line)]

    def perf(self, *arguments: str) -> list[str]:
        """How many messages it got, and how many it could not acknowledge. Its histograms take much memory."""
        out = self._run("org.apache.pulsar.testclient.PulsarPerfTestTool", "1200m", arguments)
        return [found[0] for found in _COUNTED.finditer(out)]

    def admin(self, *arguments: str) -> list[str]:
        """Its lines, in some order."""
        return sorted(self._run("org.apache.pulsar.admin.cli.PulsarAdminTool", "256m", arguments).splitlines())

    def _run(self, program: str, heap: str, arguments: tuple[str, ...]) -> str:
        options = (f"-Xmx{heap}", *SHORT_LIVED, "-Dio.netty.tryReflectionSetAccessible=true")
        command = self._commands.program("tool", options, (program, str(self._settings), *arguments))
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        return done.stdout


def said_of_messages(at: CommandLines, single: Made, batched: Made, customers: Made, first: str) -> list[str]:
    """What all of them say. `first`: the id of a message of `single`."""
    consume = ("consume", "-p", "Earliest", "-s", "by-command-line")
    return [
        *at.client(*consume, "-n", "50", single.name),
        *at.client(*consume, "-n", "20", "-t", "Shared", single.name),  # goes on where the first one has ended
        *at.client("read", "-m", "earliest", "-n", "35", batched.name),
        *at.client("read", "-m", first, "-i", "-n", "5", single.name),
        *at.client(*consume, "-mp", "-st", "auto_consume", "-n", "10", customers.name),
        *at.perf("consume", "-m", "100", "-time", "60", "-sp", "Earliest", "-ss", "by-perf", single.name),
        *at.perf("read", "-m", first, "-n", "50", "-time", "60", single.name),
        *at.admin("topics", "list", single.name.removeprefix("persistent://").rpartition("/")[0]),
    ]
