"""What every command has: its options, what they open, and how its errors become lines and exit codes."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from offloader import logs
from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.metadata import MetadataTree
from offloader.cli.dependencies import ClosableAdmin, ClosableTopicStates, ClosableVisits, Dependencies
from offloader.cli.output import OUTPUTS, Output, say
from offloader.cli.parsing import with_options
from offloader.config import Config
from offloader.config.config import load_storage
from offloader.errors import ConfigError, OffloadError, OvertakenError
from offloader.metadata.catalog import Catalogs
from offloader.offload.settings import store_of
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import Subscriptions
from offloader.storage.buckets import Buckets
from offloader.storage.settings import StoreSettings

OK, ERROR, FINDINGS, OVERTAKEN = 0, 1, 2, 3
INTERRUPTED = 130

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
    def storage(self) -> StoreSettings:
        """How the archive is reached; all that a configuration for reading must say. Raises ConfigError."""
        return store_of(load_storage(self._path))

    @cached_property
    def store(self) -> ObjectStore:
        """The archive."""
        store = self.dependencies.store(self.storage)
        self._stack.callback(store.close)
        return store

    @cached_property
    def buckets(self) -> Buckets:
        """Buckets beside the archive's, for brokers."""
        buckets = Buckets(self.storage, self.dependencies.store)
        self._stack.callback(buckets.close)
        return buckets

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
    def topic_states(self) -> ClosableTopicStates:
        """What brokers say of topics' cursors."""
        found = self.dependencies.topic_states(self.config)
        self._stack.callback(found.close)
        return found

    @cached_property
    def visits(self) -> ClosableVisits:
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


def command(*, log_level: str = "WARNING") -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Make a function of (session, its own arguments), which may return an exit code, the body of a command.

    `log_level`: where neither option nor environment says another.
    """

    def decorate(body: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(body)
        @click.pass_context
        def run(ctx: click.Context, /, **arguments: Any) -> None:
            code = _run(ctx, body, log_level, **arguments)
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
    config_path: Path | None,
    output: str,
    log_level: str | None,
    log_format: str,
    debug: bool,
    **arguments: Any,
) -> int:
    """The one place where errors become lines and exit codes."""
    try:
        logs.set_up(log_level or default_level, structured=log_format == "json")
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


class CommandGroup(click.Group):
    """A group whose usage errors are one line and exit code 1, like all other errors; 2 means findings."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run; ends the process unless `standalone_mode` is off."""
        if sys.stdout is None:  # closed (`>&-`)
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (open to the end)
        standalone = extra.pop("standalone_mode", True)
        inherited: Any = super().main
        try:
            code = inherited(*args, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = ERROR
        except click.ClickException as error:
            say(f"error: {error.format_message()}", err=True)
            code = ERROR
        except click.Abort:
            say("error: interrupted", err=True)
            code = INTERRUPTED
        if standalone:
            sys.exit(code or OK)
        return code


class GroupWithDefault(click.Group):
    """A group of which one command is meant where options come first, or nothing."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """But for a question for help."""
        asks_for_help = args[:1] and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
