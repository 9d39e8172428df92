"""Credentials stay out of Spark's plans: each executor takes them from its own environment.

Spark's plans and task descriptions show whatever a query's function refers to. With a local master the executors'
environment is ours; on a cluster the operator sets it, and may give executors a role of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from offloader.errors import ConfigError
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings

AUTH_PARAMS = "OFFLOADER_PULSAR_AUTH_PARAMS"
STORAGE_OPTIONS = "OFFLOADER_STORAGE_OPTIONS"


@dataclass(frozen=True, slots=True)
class Public:
    """Settings without credentials, and the variables of an executor's environment that have these."""

    pulsar: PulsarSettings
    storage: StoreSettings
    variables: tuple[str, ...]


def without_secrets(pulsar: PulsarSettings, storage: StoreSettings) -> tuple[Public, dict[str, str]]:
    """What may be seen, and what each executor's environment must have. The path of a token's file may be seen."""
    secrets: dict[str, str] = {}
    if pulsar.auth_params and not pulsar.auth_params.startswith("file:"):
        secrets[AUTH_PARAMS] = pulsar.auth_params
        pulsar = replace(pulsar, auth_params="")
    if storage.options:
        secrets[STORAGE_OPTIONS] = json.dumps(dict(storage.options))
        storage = replace(storage, options=())
    storage = replace(storage, access_key=None, secret_key=None)
    return Public(pulsar, storage, tuple(secrets)), secrets


def with_secrets(public: Public, environment: Mapping[str, str]) -> tuple[PulsarSettings, StoreSettings]:
    """The settings as this executor uses them. Raises ConfigError."""
    pulsar, storage = public.pulsar, public.storage
    missing = [name for name in public.variables if not environment.get(name)]
    if missing:
        raise ConfigError(f"an executor's environment has no {missing[0]}: set it on every machine that runs executors")
    if AUTH_PARAMS in public.variables:
        pulsar = replace(pulsar, auth_params=environment[AUTH_PARAMS])
    if STORAGE_OPTIONS in public.variables:
        storage = replace(storage, options=_options(environment[STORAGE_OPTIONS]))
    return pulsar, storage


def _options(text: str) -> tuple[tuple[str, str], ...]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{STORAGE_OPTIONS} is not JSON") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{STORAGE_OPTIONS} is not a JSON object")
    return tuple(sorted((key, str(value)) for key, value in found.items()))
