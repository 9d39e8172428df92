"""Helm, and what it makes of our chart."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from integration.programs import built

VERSION = "v3.22.0"
MODULE = f"helm.sh/helm/v3/cmd/helm@{VERSION}"
REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "conf" / "helm" / "pulsar-offloader"
NAMESPACE = "pulsar"
KUBERNETES = "1.25"  # the oldest that the chart says it is for
SECONDS = 120


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of Helm's, to its end."""
    command = [str(built("helm", MODULE, VERSION)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def template(*values: Path, release: str = "pulsar-offloader", settings: Sequence[str] = ()) -> str:
    """What the chart installs with these files of values, as text."""
    files = [argument for file in values for argument in ("--values", file)]
    more = [argument for setting in settings for argument in ("--set", setting)]
    done = helm(
        "template", release, CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--no-hooks", *files, *more
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [found for found in yaml.safe_load_all(text) if found]
