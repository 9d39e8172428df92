"""Certificates that the gateway shows."""

from __future__ import annotations

import ssl
from pathlib import Path

from offloader.config.gateway import GatewayTls
from offloader.errors import ConfigError
from offloader.gateway.access.reread import Reread


def tls_of(settings: GatewayTls) -> Reread[ssl.SSLContext]:
    """Raises ConfigError."""
    files = [settings.certificate, settings.key, *([settings.client_ca] if settings.client_ca else [])]
    return Reread("gateway.tls", list(map(Path, files)), lambda _: _context(settings))


def _context(settings: GatewayTls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password="")
        if settings.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(settings.client_ca)
    except OSError as error:  # which those of TLS are, too
        raise ConfigError(
            f"certificate, key and clientCa cannot be used ({error.strerror or error}): PEM files, a key without a "
            "password that belongs to the certificate"
        ) from error
    return context
