"""The command line beside a cluster, as an operator has it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from integration.lifecycle.cluster import PulsarCluster
from offloader.cli.main import main

_JSON = json.JSONDecoder()
QUARANTINE = 5.0
"""Seconds: longer than a scan and a deletion's first phase take here."""

CONFIG = """
application: operator
pulsar:
  serviceUrl: "{service}"
  adminUrl: "{admin}"
  metadataServiceUri: "{metadata}"
storage: {{root: "file://{folder}"}}
lifecycle:
  bookkeeperIsNotShared: true
  quarantine: {quarantine:.0f}s
  quarantineFloor: 0s
  limits: {{percent: 100}}
namespaces:
  {namespace}: {{enabled: true}}
"""
"""The floor is lowered as only tests may have it; orphans are most of what there is."""


@dataclass(frozen=True)
class Commands:
    """`offloader …` with a configuration for this cluster and a bucket that is empty at first."""

    config: Path

    @classmethod
    def beside(cls, cluster: PulsarCluster, folder: Path, namespace: str) -> Commands:
        broker = cluster.broker()
        config = folder / "offloader.yaml"
        config.write_text(
            CONFIG.format(
                service=broker.service_url,
                admin=broker.admin_url,
                metadata=cluster.books.metadata_uri,
                folder=folder / "archive",
                namespace=namespace,
                quarantine=QUARANTINE,
            )
        )
        return cls(config)

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        """The one object that it prints."""
        (said,) = self.lines(*arguments, code=code)
        return said

    def lines(self, *arguments: object, code: int = 0) -> list[Any]:
        """All objects that it prints."""
        line = [str(one) for one in (*arguments, "--output", "json", "--config", self.config)]
        result = CliRunner().invoke(main, line)
        assert result.exit_code == code, (line, result.exit_code, result.output, result.exception)
        found, text = [], result.stdout.strip()
        while text:
            said, end = _JSON.raw_decode(text)
            found.append(said)
            text = text[end:].lstrip()
        return found
