"""What commands print on standard output: text for people, or JSON for programs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import click
from rich.cells import cell_len

from offloader.printable import printable

# What is not a terminal gets lines of any length: nothing is cut off or wrapped.
ENDLESS = 1_000_000


def say(text: str, *, err: bool = False) -> None:
    """Print one line. Nothing else prints text on a terminal, but for `cat`'s formats: it may be of others."""
    click.echo(printable(text), err=err)


def say_failed(name: object, error: object) -> None:
    """Print an error about one of several things, with the name of it once."""
    say(f"error: {name}: {str(error).removeprefix(f'{name}: ')}", err=True)


def text_or_none(value: object) -> str | None:
    """A value as text; None stays None."""
    return None if value is None else str(value)


class Output(ABC):
    """One of the two ways to print."""

    name: ClassVar[str]

    @abstractmethod
    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
        """Rows under columns. Text says `empty` where there are none; JSON is one array of objects with the columns as
        keys."""

    @abstractmethod
    def message(self, text: str, details: Sequence[str] = (), **fields: object) -> None:
        """The details' lines, then one line. JSON is one object: `message` (that line) and the fields."""

    def line(self, text: str, fields: Mapping[str, object]) -> None:
        """One of many lines, printed as soon as it is known. JSON is one object a line."""
        self.lines([text], fields)

    @abstractmethod
    def lines(self, texts: Sequence[str], fields: Mapping[str, object]) -> None:
        """The same with several lines for one object."""


MANY = 1000  # rows: rich takes some ms for each


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """The same lines without style, fast."""
    texts = [[*columns], *(["" if value is None else printable(str(value)) for value in row] for row in rows)]
    widths = [max(cell_len(text[number]) for text in texts) for number in range(len(columns))]
    for text in texts:
        cells = (value + " " * (width - cell_len(value)) for value, width in zip(text, widths, strict=True))
        yield "  ".join(cells).rstrip()


class TextOutput(Output):
    """For people."""

    name = "text"

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
        if not rows:
            say(empty)
            return
        if len(rows) > MANY:
            for text in plain_table(columns, rows):
                say(text)
            return
        from rich.console import Console  # rich takes 0.1 s to import
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for number, column in enumerate(columns):
            numeric = all(isinstance(row[number], int) for row in rows)
            table.add_column(column, no_wrap=True, overflow="ignore", justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(Text("" if value is None else printable(str(value))) for value in row))
        console = Console(highlight=False, soft_wrap=True, width=ENDLESS)
        with console.capture() as captured:
            console.print(table)
        for line in captured.get().splitlines():
            click.echo(line.rstrip())  # styled

    def message(self, text: str, details: Sequence[str] = (), **fields: object) -> None:
        self.lines((*details, text), fields)

    def lines(self, texts: Sequence[str], fields: Mapping[str, object]) -> None:  # noqa: ARG002
        for text in texts:
            say(text)


class JsonOutput(Output):
    """For programs."""

    name = "json"

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:  # noqa: ARG002
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        click.echo(json.dumps(found, indent=2, default=str))

    def message(self, text: str, details: Sequence[str] = (), **fields: object) -> None:  # noqa: ARG002
        click.echo(json.dumps({"message": text, **fields}, indent=2, default=str))

    def lines(self, texts: Sequence[str], fields: Mapping[str, Any]) -> None:  # noqa: ARG002
        click.echo(json.dumps(fields, default=str))


OUTPUTS: Mapping[str, type[Output]] = {output.name: output for output in (TextOutput, JsonOutput)}
