"""Groups of commands. A command's module is imported when the command is called: many are slow to import."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

from offloader.cli.output import say

USAGE_ERROR, INTERRUPTED = 1, 130  # exit codes


class CommandSummary(NamedTuple):
    """A command that is not imported yet: what its line in the help says, and where it is (`module:name`)."""

    text: str
    place: str


class SpreadGroup(click.Group):
    """A group of which several modules have commands. `modules`: imported for a command that is not known without
    them."""

    def __init__(self, *args: Any, modules: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them."""
        self._import()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        if cmd_name not in self.commands:
            self._import()
        return super().get_command(ctx, cmd_name)

    def _import(self) -> None:
        for module in self._modules:
            import_module(module)


class Program(click.Group):
    """All commands. A usage error is one line and exit code 1, like all other errors; 2 means findings. `summaries`: of
    commands that are imported when they are called."""

    def __init__(self, *args: Any, summaries: Mapping[str, CommandSummary] = {}, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, by the alphabet."""
        return sorted({*self._summaries, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, imported now."""
        if cmd_name not in self._summaries:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._summaries[cmd_name].place.partition(":")
        found: click.Command = getattr(import_module(module), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, without an import."""
        known = {name: click.Command(name, short_help=summary.text) for name, summary in self._summaries.items()}
        click.Group(commands={**self.commands, **known}).format_commands(ctx, formatter)

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
            code = USAGE_ERROR
        except click.ClickException as error:
            say(f"error: {error.format_message()}", err=True)
            code = USAGE_ERROR
        except click.Abort:
            say("error: interrupted", err=True)
            code = INTERRUPTED
        if standalone:
            sys.exit(code or 0)
        return code


class GroupWithDefault(SpreadGroup):
    """A group of which one command is meant where options come first, or nothing."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """But for a question for help."""
        asks_for_help = args[:1] and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class GroupWithArguments(GroupWithDefault):
    """The same, and of which that command is meant where an argument comes first."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is no command's name is an argument of the default one."""
        if args and args[0] in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        name = self.meant_by(args)
        return name, self.commands[name], args

    def meant_by(self, args: Sequence[str]) -> str:  # noqa: ARG002
        """The command that these arguments are for."""
        return self.default
