"""Writes docs/cli.md from the commands: `python -m dev.docs.commands docs/cli.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dev.docs.lines import wrapped
from offloader.archive.findings import FindingKind
from offloader.cli.command import OPTIONS
from offloader.cli.main import main
from offloader.cli.parsing import with_options

_INTRO = """\
# Command line

Generated from the code by `python -m dev.docs.commands docs/cli.md`; a test keeps it up to date.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | an error: one line `error: …` on standard error (a line for each problem of a configuration) |
| 2 | findings: `verify` found something, `topics peek` shows an entry that is damaged, a check of `doctor` fails, `run --until-caught-up` left topics behind, a ledger cannot be closed or has dangers, `orphans scan` has candidates, something stands against a deletion; each command says which |
| 3 | overtaken: another process owns the application's journal now; do not restart |

Results go to standard output, logs and errors to standard error. A topic is `persistent://tenant/namespace/name`;
`name` alone is in `public/default`. A position is `LEDGER:ENTRY`. A time is `10s`, `5m`, `2h`; a plain number is
seconds.

Every command has these options:

"""

_FINDINGS = """\
It changes nothing, but for the uploads that `--abort-uploads` ends.

| kind | meaning |
| --- | --- |
{kinds}
"""


def render() -> str:
    """The whole page."""
    common = _common_options()
    texts = [_INTRO, *map(_option_line, common)]
    for path, command in _commands("offloader", main):
        texts.append("\n" + "\n".join(_section(path, command, {option.name for option in common})))
    return wrapped("".join(texts))


def command_paths() -> Iterator[str]:
    """Every command, as it is typed after `offloader`."""
    return (path.removeprefix("offloader ") for path, _ in _commands("offloader", main))


def _common_options() -> list[click.Option]:
    def nothing() -> None: ...

    return [p for p in click.command()(with_options(nothing, *OPTIONS)).params if isinstance(p, click.Option)]


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(f"{path} {name}", found)
    else:
        yield path, command


def _section(path: str, command: click.Command, common: set[str | None]) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden and p.name not in common]
    usage = " ".join([path, *(_argument(a) for a in arguments), *(["[OPTIONS]"] if options else [])])
    yield f"## `{usage}`\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
    if command.name == "verify":
        yield _FINDINGS.format(kinds="\n".join(f"| `{kind}` | {kind.meaning} |" for kind in FindingKind))
    yield "".join(_option_line(option) for option in options)


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    return f"[{name}]…" if argument.nargs == -1 else name


def _option_line(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {_value(option)}"
    env = f" Environment: `{option.envvar}`." if option.envvar else ""
    default = f" Default: `{option.default}`." if option.show_default else ""
    return f"* {names}{value}: {option.help}{default}{env}\n"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "\\|".join(str(choice) for choice in option.type.choices)
    return option.metavar or option.type.name.upper()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
