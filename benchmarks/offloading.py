"""The whole application in a process of its own, and what its log says of its batches."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.pulsar import Cluster
from integration.launcher import program
from offloader.errors import FatalError
from offloader.model import Source

BATCH = re.compile(r"batch plan=(\d+) lane=\w+ slices=\d+ bytes=(\d+) took=(\d+) ms longest slice=(\d+) ms")
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch: seconds (of the wall clock) when its receipts came, bytes read, and how long batch and longest
    slice took."""

    at: float
    size: int
    took: float
    longest: float


class Offloading:
    """`offloader run` on a namespace, to a folder of its own, or to the `storage` (YAML) that is named.

    `spark`, `limits`, `policies`: other sections of these names, or more of them (YAML). `faults`: see
    `tests.fakes.scripted`. `namespace` empty: those that are enabled in Pulsar. `source` bookkeeper: straight
    from the bookie.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        folder: Path,
        *,
        trigger: str = "1s",
        roll: str = "600s",
        storage: str = "",
        source: Source = Source.BROKER,
        spark: str = "",
        limits: str = "",
        policies: str = "",
        faults: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._program = program(faults)
        folder.mkdir(parents=True)
        self.archive = folder / "archive"
        self.log = folder / "log"
        self.application = folder.name
        self._config = folder / "offloader.yaml"
        more = (
            f', source: bookkeeper, metadataServiceUri: "{cluster.metadata_uri}"' if source is Source.BOOKKEEPER else ""
        )
        self._config.write_text(
            f"""
application: {self.application}
pulsar: {{serviceUrl: "{cluster.standalone.service_url}", adminUrl: "{cluster.standalone.admin_url}"{more}}}
discoveryInterval: {"60s" if namespace else "1s"}
storage: {{{storage or f'root: "file://{self.archive.resolve()}"'}}}
spark: {spark or f"{{trigger: {trigger}}}"}
limits: {{{limits}}}
metrics: {{port: 0}}
policies: {{maxOffloadSegmentRolloverTimeInSeconds: {roll}{f", {policies}" if policies else ""}}}
namespaces: {{{f"{namespace}: {{enabled: true}}" if namespace else ""}}}
"""
        )

    @contextmanager
    def running(self, *arguments: str, level: str = "DEBUG") -> Iterator[subprocess.Popen[bytes]]:
        """The driver's process; ended at the end."""
        options = ["--config", str(self._config), "--log-level", level, "--log-format", "json", *arguments]
        with self.log.open("ab") as log:
            process = subprocess.Popen([*self._program, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(STOP_SECONDS)

    def until_caught_up(self) -> None:
        """Run to the end. Raises FatalError with the log's last line."""
        with self.running("--until-caught-up", "--timeout", "600s") as process:
            code = process.wait()
        if code != 0:
            raise FatalError(f"the application ended with {code}: {self.log.read_text().splitlines()[-1]}")

    def lines(self) -> Iterator[tuple[float, str]]:
        """(time, message) of what was logged."""
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                record = json.loads(line)
                yield datetime.fromisoformat(record["time"]).timestamp(), record["message"]

    def batches(self) -> list[Batch]:
        """Its micro-batches so far."""
        found = ((at, BATCH.match(message)) for at, message in self.lines())
        return [Batch(at, int(m[2]), int(m[3]) / 1000, int(m[4]) / 1000) for at, m in found if m is not None]
