"""What every command has: its options, what they open, and how its errors become lines and exit codes."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from offloader import logs
from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.dependencies import ClosableAdmin, Dependencies
from offloader.cli.output import OUTPUTS, Output, say
from offloader.cli.parsing import with_options
from offloader.config import Config
from offloader.config.config import ArchiveConfig, parse_archive, read_text
from offloader.errors import ConfigError, OffloadError, OvertakenError
from offloader.metadata.catalog import Catalogs
from offloader.offload.settings import store_of
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import Subscriptions
from offloader.stderr_lines import stderr_as_json
from offloader.storage.settings import StoreSettings

OK, ERROR, FINDINGS, OVERTAKEN = 0, 1, 2, 3

OPTIONS = (
    click.option("--config", "config_path", type=click.Path(path_type=Path), envvar="OFFLOADER_CONFIG",
                 show_envvar=True, help="The configuration file."),
    click.option("-o", "--output", type=click.Choice(sorted(OUTPUTS, reverse=True)), default="text", show_default=True,
                 help="What to print: text for people, JSON for programs."),
    click.option("--log-level", type=click.Choice(logs.LEVELS, case_sensitive=False), envvar=logs.LEVEL_VARIABLE,
                 show_envvar=True, help="Least level that is logged, on standard error."),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
                 help="Short lines, or a JSON object a line."),
    click.option("--debug", is_flag=True, help="Show where an error comes from."),
)  # fmt: skip


class CommandSession:
    """One call of a command. What it opens, it opens when it is first needed and closes at its end."""

    def __init__(self, dependencies: Dependencies, config_path: Path | None, output: Output) -> None:
        self.dependencies = dependencies
        self.output = output
        self._config_path = config_path
        self._bookkeeper: tuple[MetadataTree, Bookies] | None = None
        self._stack = ExitStack()
        self.asked: dict[str, str] = {}  # the application that each request went to

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises ConfigError."""
        return Config.load(self._path)

    @cached_property
    def archive_config(self) -> Config | ArchiveConfig:
        """What a command needs that only reads the archive. Raises ConfigError."""
        return parse_archive(read_text(self._path))

    @cached_property
    def storage(self) -> StoreSettings:
        """How the archive is reached. Raises ConfigError."""
        return store_of(self.archive_config.storage)

    @cached_property
    def store(self) -> ObjectStore:
        """The archive."""
        store = self.dependencies.store(self.storage)
        self._stack.callback(store.close)
        return store

    @cached_property
    def admin(self) -> ClosableAdmin:
        """Pulsar's admin REST."""
        admin = self.dependencies.admin(self.config)
        self._stack.callback(admin.close)
        return admin

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions as brokers have them."""
        found = self.dependencies.subscriptions(self.config)
        self._stack.callback(found.close)
        return found

    @cached_property
    def visits(self) -> ClosableAdmin:
        """Brokers, as far as unloaded topics are visited."""
        visits = self.dependencies.visits(self.config)
        self._stack.callback(visits.close)
        return visits

    def bookkeeper(self, timeout: float, config: Config | None = None) -> tuple[MetadataTree, Bookies]:
        """The bookies' metadata, and the bookies. `timeout`: seconds that a bookie may take, at the least; `config`:
        another cluster's. The first call's count.

        Raises ConfigError, MetadataUnavailableError.
        """
        if self._bookkeeper is None:
            store, bookies = self._bookkeeper = self.dependencies.bookkeeper(config or self.config, timeout)
            self._stack.callback(store.close)
            self._stack.callback(bookies.close)
        return self._bookkeeper

    @cached_property
    def catalogs(self) -> Catalogs:
        """The archive's catalogs, for reading."""
        return Catalogs(self.store, "")

    @property
    def _path(self) -> Path:
        if self._config_path is None:
            raise ConfigError("no configuration: name one with --config FILE or in OFFLOADER_CONFIG")
        return self._config_path

    def close(self) -> None:
        """Close what was opened."""
        self._stack.close()


def command(
    *, log_level: str = "WARNING", starts_spark: bool = False
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a function of (session, its own arguments), which may return an exit code, the body of a command.

    `log_level`: where neither option nor environment says another. `starts_spark`: others write to standard error, too.
    """

    def decorate(body: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(body)
        @click.pass_context
        def run(ctx: click.Context, /, **arguments: Any) -> None:
            code = _run(ctx, body, log_level, starts_spark=starts_spark, **arguments)
            if code:
                ctx.exit(code)

        decorated: Callable[..., None] = run
        return with_options(decorated, *OPTIONS)

    return decorate


def _run(
    ctx: click.Context,
    body: Callable[..., int | None],
    default_level: str,
    *,
    starts_spark: bool,
    config_path: Path | None,
    output: str,
    log_level: str | None,
    log_format: str,
    debug: bool,
    **arguments: Any,
) -> int:
    """The one place where errors become lines and exit codes."""
    structured = log_format == "json"
    try:
        with stderr_as_json() if structured and starts_spark else nullcontext() as stream:
            logs.set_up(log_level or default_level, structured=structured, stream=stream)
            session = CommandSession(ctx.obj or Dependencies(), config_path, OUTPUTS[output]())
            try:
                return body(session, **arguments) or OK
            finally:
                session.close()
    except OffloadError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            say(f"error: {line}", err=True)
        return OVERTAKEN if isinstance(error, OvertakenError) else ERROR
    except OSError as error:  # of our own output: whatever else the system refuses is an OffloadError
        if debug:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of it is not tried again
        if not isinstance(error, BrokenPipeError):  # else whoever reads it has enough of it
            say(f"error: the output cannot be written: {error.strerror or error}", err=True)
        return ERROR
