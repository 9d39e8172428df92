"""Commands over an archive in memory, an in-memory Pulsar and the test's own clock."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from offloader.cli.command import CommandDependencies
from offloader.cli.main import main
from offloader.metadata.root import open_root
from tests.archive.support import Archive
from tests.fakes.cluster import MemoryCluster

CONFIG = """
application: app
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "file:///unused"}
spark: {trigger: 1s}
namespaces:
  public/default: {enabled: true}
"""


class Clock:
    """Sleeping is what makes time pass; `at` runs things at their time."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.slept = 0.0
        self.at: list[tuple[float, Any]] = []

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += max(int(seconds * 1000), 1)
        due = [action for when, action in self.at if when <= self.slept]
        self.at = [(when, action) for when, action in self.at if when > self.slept]
        for action in due:
            action()


@dataclass
class Line:
    """A command line."""

    folder: Path
    archive: Archive = field(default_factory=Archive)
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    clock: Clock = field(default_factory=Clock)
    probes: Any = None
    config: str = CONFIG

    def __post_init__(self) -> None:
        numbers = itertools.count()
        self.dependencies = CommandDependencies(
            store=lambda _: self.archive.store,
            admin=lambda _: self.cluster.admin,
            probes=lambda *_: self.probes,
            clock_ms=self.clock,
            sleep=self.clock.sleep,
            new_token=lambda: f"token-{next(numbers)}",
        )

    def root(self) -> Line:
        open_root(self.archive.store, "memory", self.archive.token)
        return self

    def run(self, *arguments: str, config: bool = True) -> Result:
        path = self.folder / "offloader.yaml"
        path.write_text(self.config, encoding="utf-8")
        chosen = ["--config", str(path)] if config else []
        return CliRunner(env={"OFFLOADER_CONFIG": None}).invoke(main, [*arguments, *chosen], obj=self.dependencies)

    def ok(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def error(self, *arguments: str, config: bool = True) -> str:
        """The one line of an error."""
        result = self.run(*arguments, config=config)
        assert result.exit_code == 1, result.output
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
        assert "Traceback" not in result.output
        return lines[0].removeprefix("error: ")

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def json_lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--output", "json").splitlines()]
