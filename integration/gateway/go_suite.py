"""The Go client's own tests of readers and consumers, at a broker and at the gateway: what passes there passes here.

The gateway has a source that takes what they produce. Prints a block for docs/testing.md.

python -m integration.gateway.go_suite [TEST …]
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dev.embedded.settings import BATCH_INDEX_ACKS, Ports, ports_of
from dev.embedded.standalone import PulsarStandalone
from integration.programs import program_folder
from offloader.errors import FatalError
from offloader.model import MIB
from tests.gateway.writable.gateway import writable_gateway

VERSION = "v0.18.0"
MODULE = f"github.com/apache/pulsar-client-go@{VERSION}"
SUM = "h1:YsySoOds7WCXkRcOKHb85gk/v1Jndp+2oCkkRQEowUA="
SERVICE, ADMIN = 6650, 8080  # many of the tests know no other ports
LARGEST = MIB  # of an entry: so their own broker is configured
FILES = (
    "reader",
    "consumer",
    "consumer_multitopic",
    "consumer_regex",
    "consumer_zero_queue",
    "message_chunking",
    "schema",
    "table_view",
)
OTHERS = {
    "client_impl_test.go": [
        "TestTopicPartitions",
        "TestNamespaceTopicsNamespaceDoesNotExit",
        "TestNamespaceTopicsNamespaceDoesNotExitWebURL",
        "TestHTTPTopicPartitions",
        "TestRetryWithMultipleHttpHosts",
        "TestAutoCloseIdleConnection",
    ]
}
"""The rest of this file is about TLS and tokens that their own broker is configured for."""
LEFT_OUT = {
    "TestReconnectConsumer": "starts a broker in Docker",
    "TestReconnectedBrokerSendPermits": "starts a broker in Docker",
    "TestConsumerKeepReconnectingAndThenCallClose": "starts a broker in Docker",
    "TestConsumerMetadata": "asks the admin REST for a broker's statistics",
    "TestClientVersion": "asks the admin REST for a broker's statistics",
    "TestChunksEnqueueFailed": "is about a broker's bound for what is produced",
    "TestDeadLetterTopicWithInitialSubscription": "is about a subscription that comes with a producer",
}
DIFFERENCES = {
    "TestNamespaceTopicsNamespaceDoesNotExitWebURL": "an archive does not know which namespaces there are: such a one "
    "has no topics",
}
"""What fails at the gateway on purpose."""
TRIES = 5  # some fail by chance, see docs/testing.md
SECONDS = 120  # for hanging


class Outcome(NamedTuple):
    """How often a test was tried, and whether it passed at last."""

    passed: bool
    tries: int
    seconds: float

    def __str__(self) -> str:
        if not self.passed:
            return f"failed {self.tries} times"
        return "passed" if self.tries == 1 else f"passed at try {self.tries}"


class GoSuite:
    """The tests, as one program. `logs`: what they say."""

    def __init__(self, logs: Path) -> None:
        command = ["go", "mod", "download", "-json", MODULE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FatalError(f"{MODULE} cannot be had: {done.stderr or done.stdout}")
        module = json.loads(done.stdout)
        if module["Sum"] != SUM:
            raise FatalError(f"{MODULE} is another one: {module['Sum']}")
        self._sources = Path(module["Dir"]) / "pulsar"
        self._program = program_folder() / f"pulsar-client-go-tests-{VERSION}"
        self._logs = logs

    @property
    def tests(self) -> dict[str, list[str]]:
        """Those that are run, by file."""
        found = {f"{name}_test.go": self._tests_of(name) for name in FILES}
        return {file: [name for name in names if name not in LEFT_OUT] for file, names in found.items()} | OTHERS

    def _tests_of(self, name: str) -> list[str]:
        text = (self._sources / f"{name}_test.go").read_text()
        return re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)

    def build(self) -> None:
        """Unless the user's cache has it; takes some minutes."""
        if self._program.exists():
            return
        self._program.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._program.with_suffix(".new")
        command = ["go", "test", "-p", "2", "-c", "-o", str(scratch), "."]
        subprocess.run(command, cwd=self._sources, check=True)
        scratch.replace(self._program)

    def run(self, name: str, where: str) -> Outcome:
        """In a process of its own: some end it."""
        for number in range(1, TRIES + 1):
            log, begun = self._logs / f"{where}-{name}-{number}.log", time.monotonic()
            command = [str(self._program), "-test.v", f"-test.run=^{name}$", f"-test.timeout={SECONDS}s"]
            with log.open("wb") as out:
                done = subprocess.run(
                    command, cwd=self._sources, stdout=out, stderr=out, timeout=SECONDS + 60, check=False
                )
            seconds = time.monotonic() - begun
            if done.returncode == 0 and f"--- PASS: {name} " in log.read_text(errors="replace"):
                return Outcome(True, number, seconds)
        return Outcome(False, TRIES, seconds)


@contextmanager
def broker(folder: Path, **_: Any) -> Iterator[None]:
    """A broker of 4.0.7, at the ports that the tests know."""
    found = folder / "broker"
    found.mkdir()
    free = ports_of(folder)
    (found / "ports.json").write_text(json.dumps(asdict(Ports(SERVICE, ADMIN, free.bookie, free.zookeeper))))
    with PulsarStandalone(found, configuration={**BATCH_INDEX_ACKS, "maxMessageSize": str(LARGEST)}):
        yield


@contextmanager
def gateway(_: Path, **settings: Any) -> Iterator[None]:
    with writable_gateway(SERVICE, ADMIN, LARGEST, **settings):
        yield


PLACES: Mapping[str, Callable[..., AbstractContextManager[None]]] = {"broker": broker, "gateway": gateway}


def check_ports() -> None:
    """Raises FatalError where somebody has them."""
    for port in (SERVICE, ADMIN):
        with socket.socket() as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError as error:
                raise FatalError(f"127.0.0.1:{port} is taken, and Go's tests know no other port") from error


def table(tests: Mapping[str, Sequence[str]], found: Mapping[str, Mapping[str, Outcome]]) -> Iterator[str]:
    """How many of each file pass, and what is to be said of single ones."""
    yield f"| file | tests | {' | '.join(f'passed at the {where}' for where in found)} |"
    yield f"| --- | ---{' | ---' * len(found)} |"
    for file, names in tests.items():
        passed = [str(sum(each[name].passed for name in names)) for each in found.values()]
        yield f"| {file} | {len(names)} | {' | '.join(passed)} |"
    yield f"\n| test | {' | '.join(found)} |"
    yield f"| ---{' | ---' * len(found)} |"
    for name in chain.from_iterable(tests.values()):
        outcomes = [each[name] for each in found.values()]
        if any(outcome.tries > 1 for outcome in outcomes):
            yield f"| `{name}` | {' | '.join(map(str, outcomes))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="The Go client's own tests, at a broker and at the gateway.")
    parser.add_argument("tests", nargs="*", help="only these; all where none is named")
    parser.add_argument("--only", choices=PLACES, help="only there")
    parser.add_argument("--logs", type=Path, default=None, help="an empty folder for what the tests say")
    parser.add_argument("--durable-acks", action="store_true", help="the gateway's `durableAcks`")
    arguments = parser.parse_args()
    settings = {"durableAcks": True, "flushInterval": "100ms"} if arguments.durable_acks else {}
    check_ports()
    found: dict[str, dict[str, Outcome]] = {}
    with tempfile.TemporaryDirectory(prefix="go-suite-") as folder:
        logs = arguments.logs or Path(folder) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        suite = GoSuite(logs)
        suite.build()
        tests = {"named": arguments.tests} if arguments.tests else suite.tests
        for where in [arguments.only] if arguments.only else PLACES:
            with PLACES[where](Path(folder), **settings):
                found[where] = {}
                for name in chain.from_iterable(tests.values()):
                    found[where][name] = outcome = suite.run(name, where)
                    print(f"{where}: {name}: {outcome} ({outcome.seconds:.1f} s)", flush=True)
    print("", *table(tests, found), sep="\n")
    failed = {name for name, outcome in found.get("gateway", {}).items() if not outcome.passed}
    return 1 if failed - DIFFERENCES.keys() else 0


if __name__ == "__main__":
    raise SystemExit(main())
