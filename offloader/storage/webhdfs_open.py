"""From settings to a `WebHdfsStore`."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import httpx

from offloader.errors import ConfigError
from offloader.storage.options import known_options, number
from offloader.storage.settings import StoreSettings
from offloader.storage.webhdfs import WebHdfsStore
from offloader.storage.webhdfs_calls import WebHdfsCalls

SCHEMES = {"webhdfs": ("http", 9870), "swebhdfs": ("https", 9871)}  # and the port of namenodes by default
OPTIONS = ("user", "delegation", "standby", "retry_deadline", "connect_timeout", "read_timeout", "max_connections")
MAX_CONNECTIONS = 64


def open_webhdfs(settings: StoreSettings) -> WebHdfsStore:
    """A store with connections of its own. Raises ConfigError; nothing is asked of the namenode yet."""
    options = known_options(settings, OPTIONS)
    base, namenodes = _place(settings, options)
    deadline = number(options, "retry_deadline", 60.0)
    connect, read = number(options, "connect_timeout", 5.0), number(options, "read_timeout", 30.0)
    connections = int(number(options, "max_connections", MAX_CONNECTIONS))
    client = httpx.Client(
        timeout=httpx.Timeout(read, connect=connect),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
    )
    url = f"{settings.scheme}://{settings.root.partition('://')[2].rstrip('/')}"
    calls = WebHdfsCalls(url, client, namenodes, _who(options), deadline)
    # A namenode that sends us on, and the datanode, each have so long.
    return WebHdfsStore(calls, base, retry_deadline=deadline, attempt_timeout=2 * (connect + read))


def _place(settings: StoreSettings, options: Mapping[str, str]) -> tuple[str, list[str]]:
    """The folder without its last slash, and the namenodes' addresses."""
    protocol, port = SCHEMES[settings.scheme]
    try:
        parts = urlsplit(settings.root)
        hosts = [parts.netloc, *filter(None, (host.strip() for host in options.get("standby", "").split(",")))]
        addresses = [urlsplit(f"//{host}") for host in hosts]
        namenodes = [f"{protocol}://{_host(address.hostname)}:{address.port or port}" for address in addresses]
    except ValueError as error:
        raise ConfigError(f"{settings.setting}: {settings.root!r}: {error}") from error
    base = unquote(parts.path).rstrip("/")
    if not all(address.hostname and address.username is None for address in addresses):
        raise ConfigError(f"{settings.setting}: {settings.root!r} must be {settings.scheme}://namenode:{port}/folder")
    if not base or parts.query or parts.fragment or "," in base or ":" in base:
        raise ConfigError(
            f"{settings.setting}: {settings.root!r} must name a folder without comma and colon, as in "
            f"{settings.scheme}://namenode:{port}/folder"
        )
    return base, namenodes


def _host(name: str | None) -> str:
    return f"[{name}]" if name and ":" in name else str(name)


def _who(options: Mapping[str, str]) -> dict[str, str]:
    """As Hadoop's own clients: a token of the cluster, else the name that we say, which a cluster without Kerberos
    believes."""
    if "delegation" in options:
        return {"delegation": options["delegation"]}
    user = options.get("user") or os.environ.get("HADOOP_USER_NAME")
    try:
        return {"user.name": user or getpass.getuser()}
    except (KeyError, OSError):  # in a container whose users have no names
        raise ConfigError("options.user: is not set, and this process' user has no name; set it") from None
