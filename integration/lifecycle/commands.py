"""The command line beside a cluster, as an operator has it."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from integration.lifecycle.cluster import PulsarCluster
from offloader.cli.main import main

_JSON = json.JSONDecoder()
_NUMBERS = itertools.count()
QUARANTINE = 5.0
"""Seconds."""

CONFIG = """
application: operator
pulsar:
  serviceUrl: "{service}"
  adminUrl: "{admin}"
  metadataServiceUri: "{metadata}"
storage: {storage}
lifecycle:
  bookkeeperIsNotShared: true
  bucketIsNotShared: true
  quarantine: {quarantine:.0f}s
  quarantineFloor: 0s
  limits: {{percent: 100}}
{lifecycle}namespaces:
  {namespace}: {{enabled: true}}
"""
"""The floor is lowered as only tests may have it; orphans are most of what there is."""


@dataclass(frozen=True)
class Commands:
    """`offloader …` with a configuration for this cluster and a bucket that is empty at first."""

    config: Path

    @classmethod
    def beside(cls, cluster: PulsarCluster, folder: Path, namespace: str) -> Commands:
        """Its archive is a folder."""
        return cls._written(cluster, folder, namespace, {"root": f"file://{folder}/archive"}, {})

    @classmethod
    def beside_the_copies(cls, cluster: PulsarCluster, folder: Path, namespace: str) -> Commands:
        """Its archive is in the store of the brokers' own offloader, whose bucket it knows. Credentials are those of
        the environment."""
        copies = cluster.offloader
        assert copies is not None
        root = f"s3://{copies.bucket}/archive-{next(_NUMBERS)}"
        storage = {"root": root, "endpoint": copies.endpoint, "region": copies.region}
        return cls._written(cluster, folder, namespace, storage, {"stockBucket": f"s3://{copies.bucket}"})

    @classmethod
    def _written(
        cls, cluster: PulsarCluster, folder: Path, namespace: str, storage: dict[str, str], lifecycle: dict[str, str]
    ) -> Commands:
        cluster.all_back()  # all brokers are asked
        broker = cluster.broker()
        config = folder / "offloader.yaml"
        config.write_text(
            CONFIG.format(
                service=broker.service_url,
                admin=broker.admin_url,
                metadata=cluster.books.metadata_uri,
                storage=json.dumps(storage),
                lifecycle="".join(f"  {name}: {value}\n" for name, value in lifecycle.items()),
                namespace=namespace,
                quarantine=QUARANTINE,
            )
        )
        return cls(config)

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        """The one object that it prints."""
        (said,) = self.lines(*arguments, code=code)
        return said

    def delete(self, *what: object) -> dict[object, str]:
        """Take what `orphans quarantine` marks through both phases. What came of each that ended."""
        marked = self("orphans", "quarantine", *what, "--yes")
        assert {one["outcome"] for one in marked["marks"]} == {"marked"}, marked
        return self.purge()

    def purge(self) -> dict[object, str]:
        """The second phase, once the quarantine is over. Nothing went before, however long a command took."""
        time.sleep(QUARANTINE)
        purged = self("orphans", "purge", "--yes")
        assert (purged["failed"], purged["gaveUp"], purged["refusals"]) == ([], [], [])
        for one in purged["ended"]:
            took = datetime.fromisoformat(one["endedAt"]) - datetime.fromisoformat(one["markedAt"])
            assert took >= timedelta(seconds=QUARANTINE), one
        return {one["topic"] if one["id"] is None else one["id"]: one["answer"] for one in purged["ended"]}

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
