"""`offloader ui`: the archive as pages."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import click

from offloader.archive.messages.encryption import PemFiles
from offloader.archive.opened import CatalogCache, OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.cli.command import CommandSession, command
from offloader.cli.output import say
from offloader.cli.parsing import parse_pair, parsed
from offloader.config.gateway import address_of
from offloader.errors import ConfigError
from offloader.storage.open import AZURE_SCHEMES
from offloader.storage.settings import StoreSettings

# Whoever looks at a page does not wait as long for a store as an offload does.
IMPATIENT = {"retry_deadline": "8", "read_timeout": "8", "connect_timeout": "4"}
TAKE_THEM = frozenset({"s3", "gs", "gcs", "webhdfs", "swebhdfs", *AZURE_SCHEMES})


@click.command("ui")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9465",
    show_default=True,
    help="Where to listen. Addresses that others can reach need a token.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with the token that whoever looks must show, at least 16 characters.",
)
@click.option(
    "--host-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Without a token: another name of this machine that the pages may be asked for by; may be repeated.",
)
@click.option(
    "--private-key",
    "private_keys",
    metavar="NAME=FILE",
    multiple=True,
    callback=parsed(parse_pair),
    help="A PEM file that opens messages which were encrypted for the key NAME.",
)
@command(log_level="INFO")
def ui(
    session: CommandSession,
    *,
    listen: str,
    token_file: Path | None,
    names: tuple[str, ...],
    private_keys: tuple[tuple[str, str], ...],
) -> None:
    """Serve pages that show the archive: topics, segments on a time axis, entries, messages (SIGTERM, Ctrl-C: stop).

    They need no application and no Pulsar, only read the bucket, and write nothing. Without --token-file only this
    machine may look, by the name localhost or 127.0.0.1.
    """
    from offloader.pages.access import PageAccess  # Jinja takes 0.1 s to import
    from offloader.pages.rendering import Renderer
    from offloader.pages.server import WebServer
    from offloader.pages.site import Site
    from offloader.viewer.pages import ArchivePages
    from offloader.viewer.viewed import MOST_RECORDS, MOST_TOPICS, ViewedArchive

    try:
        host, port = address_of(listen)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from error
    access = PageAccess.of(host, _token(token_file), names)
    keys = PemFiles(dict(private_keys)) if private_keys else None
    storage = impatient(session.storage)
    store = session.closing(session.dependencies.store(storage))
    stores = session.closing(Stores(storage, borrowed=store))
    catalogs = CatalogCache(store, MOST_RECORDS, MOST_TOPICS)
    archive = ViewedArchive(OpenArchive(stores, catalogs=catalogs), time.monotonic, keys)
    renderer = Renderer("offloader.viewer", shared={"brand": "Pulsar archive"})
    site = Site(ArchivePages(archive, renderer, time.monotonic).paths(), renderer, access)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = WebServer(site, host, port, setting="--listen", instead="choose another, or port 0")
    try:
        say(f"showing {store.url} at {server.url}", err=True)
        stop.wait()
    finally:
        server.close()


def impatient(storage: StoreSettings) -> StoreSettings:
    """The same store, given up sooner, as far as its options do not say when."""
    if storage.scheme not in TAKE_THEM:
        return storage
    return replace(storage, options=tuple((IMPATIENT | dict(storage.options)).items()))


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"--token-file: {path} cannot be read: {why}") from error
