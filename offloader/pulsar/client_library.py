"""Pulsar's own client for Python (the package `pulsar-client`, an extra), for what needs a stock client."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    ConfigError,
    FatalError,
    TopicNotFoundError,
)
from offloader.pulsar.auth import Authentication, authentication
from offloader.pulsar.settings import PulsarSettings

_REFUSED = {
    "AuthenticationError": AuthenticationFailedError,
    "AuthorizationError": AuthorizationFailedError,
    "IncompatibleSchema": FatalError,
    "TopicNotFound": TopicNotFoundError,
    "MessageTooBig": FatalError,
}


class NothingCameError(BrokerUnavailableError):
    """A time-out, which is no failure of a receive."""


def client_library(needed_by: str) -> ModuleType:
    """The package. Raises ConfigError where it is missing."""
    try:
        return importlib.import_module("pulsar")
    except ImportError as error:
        raise ConfigError(
            f"{needed_by}: the package pulsar-client is not installed; "
            "pip install 'pulsar-streaming-offloader[systemtopic]'"
        ) from error


def open_client(library: ModuleType, settings: PulsarSettings) -> Any:
    """One client, with connections and threads of its own."""
    with library_errors(library, "connecting"):
        return library.Client(
            settings.service_url,
            authentication=_credentials(library, authentication(settings)),
            operation_timeout_seconds=max(int(settings.operation_timeout), 1),
            connection_timeout_ms=int(settings.connect_timeout * 1000),
            tls_trust_certs_file_path=settings.tls_trust_certs_file or None,
            tls_allow_insecure_connection=settings.tls_allow_insecure,
            tls_validate_hostname=settings.tls_verify_hostname and not settings.tls_allow_insecure,
            # What matters comes as an exception; a log of its own would go between the lines of ours.
            logger=library.FileLogger(library.LoggerLevel.Error, "/dev/null"),
        )


@contextmanager
def library_errors(library: ModuleType, what: str) -> Iterator[None]:
    """The package's errors as ours."""
    try:
        yield
    except library.Timeout as error:
        raise NothingCameError(f"{what}: no answer in time") from error
    except library.PulsarException as error:
        kind = _REFUSED.get(type(error).__name__, BrokerUnavailableError)
        raise kind(f"{what}: {type(error).__name__} {error}") from error


def _credentials(library: ModuleType, ours: Authentication) -> Any:
    """Asked at each connect: a token may change."""
    supplier: Callable[[], str] = lambda: ours.data().decode()  # noqa: E731
    return library.AuthenticationToken(supplier) if ours.method == "token" else None
