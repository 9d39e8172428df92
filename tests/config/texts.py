"""Pieces of configuration files for these tests."""

from __future__ import annotations

import pytest

from offloader.config import Config
from offloader.errors import ConfigError

BASE = """\
application: orders-archive
pulsar: {serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080"}
storage: {root: "s3://archive/pulsar"}
"""


def parse(more: str = "", **environment: str) -> Config:
    return Config.parse(BASE + more, environment)


def refused(more: str, base: str = BASE) -> list[str]:
    """The lines with which a file is refused."""
    with pytest.raises(ConfigError) as error:
        Config.parse(base + more, {})
    return str(error.value).splitlines()
