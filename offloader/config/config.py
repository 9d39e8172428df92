"""The configuration as a whole: one YAML file, checked completely before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeVar

from pydantic import Field, ValidationError

import offloader.config.document as document
import offloader.config.limits as limits
from offloader.config.bridging import Bridge, out_of_reach
from offloader.config.connections import Pulsar, Storage
from offloader.config.cost import CostSettings
from offloader.config.gateway import Gateway
from offloader.config.hints import problems_of
from offloader.config.levels import NamespaceSection, PolicyLevel
from offloader.config.lifecycle import Lifecycle, too_short, unreachable
from offloader.config.normalise import normalise
from offloader.config.policies import Policies
from offloader.config.problems import refuse
from offloader.config.running import Limits, MetricsSettings, Shards, Spark, too_soon
from offloader.config.section import Section
from offloader.config.units import Time
from offloader.errors import ConfigError

M = TypeVar("M", bound=Section)


class Config(Section):
    """Everything that the file says. Frozen; may be pickled."""

    application: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description=(
            "Name of this application: letters, digits, `.`, `_` and `-`. It owns the journal and the claims on topics."
        ),
    )
    pulsar: Pulsar
    storage: Storage
    spark: Spark = Spark()
    cluster: PolicyLevel = Field(PolicyLevel(), alias="policies")
    namespaces: dict[str, NamespaceSection] = Field(default_factory=dict)
    discovery_interval_ms: Time = Field(
        60_000, gt=0, description="How often namespaces, topics and policies are looked up."
    )
    metrics: MetricsSettings = MetricsSettings()
    limits: Limits = Limits()
    lifecycle: Lifecycle = Lifecycle()
    bridge: Bridge = Bridge()
    gateway: Gateway = Gateway()
    cost: CostSettings = CostSettings()
    shards: Shards | None = Field(None, description="Several processes share the application's topics.")

    @classmethod
    def load(cls, path: str | Path, environment: Mapping[str, str] = os.environ) -> Self:
        """Read and check a file. Raises ConfigError, a line for each problem."""
        return cls.parse(read_text(path), environment)

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Check a file's text. Raises ConfigError, a line for each problem."""
        written = normalise(document.read(text, environment))
        config = _validated(cls, written)
        has_bookies = config.pulsar.metadata_service_uri is not None
        found = limits.check(
            config.policies, config.storage.root, has_bookies=has_bookies, endpoint=config.storage.endpoint
        )
        of_lifecycle = (*unreachable(config.lifecycle, has_bookies=has_bookies), *too_short(config.lifecycle))
        of_bridge = out_of_reach(config.policies, config.storage.scheme, has_bookies=has_bookies)
        of_shards = too_soon(config.shards, config.spark.trigger_ms)
        refuse((*found, *of_lifecycle, *of_bridge, *of_shards), written.lines)
        return config

    @property
    def policies(self) -> Policies:
        """The three levels, to be merged for each topic."""
        explicit = "source" in self.pulsar.model_fields_set
        filled = self.pulsar.metadata_service_uri is not None
        return Policies(self.cluster, self.namespaces, self.pulsar.source if explicit else None, filled=filled)


class ArchiveConfig(Section):
    """What commands need that only read the archive, and the gateway."""

    storage: Storage
    gateway: Gateway = Gateway()


def parse_archive(text: str, environment: Mapping[str, str] = os.environ) -> Config | ArchiveConfig:
    """The text of a configuration, or of a file that has sections of `ArchiveConfig` alone. Raises ConfigError."""
    written = normalise(document.read(text, environment))
    sections = {info.alias or name for name, info in ArchiveConfig.model_fields.items()}
    if not written.value or set(written.value) - sections:
        return Config.parse(text, environment)
    return _validated(ArchiveConfig, written)


def _validated(model: type[M], written: document.Document) -> M:
    try:
        return model.model_validate(written.value)
    except ValidationError as error:
        refuse(problems_of(error, model), written.lines)
        raise


def read_text(path: str | Path) -> str:
    """A file's text. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
