"""`offloader topics export`: into Parquet."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from offloader.archive.messages.encryption import KeyReader
from offloader.archive.reading.reader import ReadOptions
from offloader.archive.selection import Bound, selected
from offloader.archive.spark.values import parse_names
from offloader.archive.topic import ArchivedTopic
from offloader.cli.command import CommandSession, command
from offloader.cli.parsing import TOPIC, parsed, positive_size
from offloader.cli.progress_bar import download_progress
from offloader.cli.reading import (
    LedgersOption,
    archived_partitions,
    range_options,
    reading_options,
)
from offloader.cli.topics import topics
from offloader.errors import ConfigError
from offloader.model import MIB, TopicName
from offloader.operations.export.destination import Destination
from offloader.operations.export.export import Advance, ParquetFiles, Tally, Wanted, export

MAX_FILE_BYTES = 256 * MIB


def parse_target(text: str) -> Path:
    """A local path. Raises ValueError."""
    if "://" in text or not text.strip():
        raise ValueError(f"{text!r} is no path of this machine; export to a file or folder here, then copy it")
    return Path(text)


@topics.command("export")
@click.argument("topic", callback=TOPIC)
@click.option(
    "--to",
    "to",
    metavar="FILE.parquet|FOLDER",
    callback=parsed(parse_target),
    required=True,
    help="A file, or a folder of files.",
)
@range_options("--until")
@click.option(
    "--columns", metavar="NAMES", callback=parsed(parse_names), help="Only these columns, with commas between them."
)
@click.option("--entries", is_flag=True, help="The entries as BookKeeper stored them instead of messages.")
@click.option(
    "--max-file-bytes",
    metavar="SIZE",
    callback=positive_size("no file has no bytes; write a size above 0, or leave it out"),
    help="In a folder: end a file at about this size, above 0; 256M by default.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier export.")
@reading_options
@command()
def export_command(
    session: CommandSession,
    topic: TopicName,
    *,
    to: Path,
    start: Bound | None,
    end: Bound | None,
    columns: tuple[str, ...] | None,
    entries: bool,
    max_file_bytes: int | None,
    overwrite: bool,
    private_keys: KeyReader | None,
    reading: ReadOptions,
    ledgers: LedgersOption,
) -> None:
    """Write a topic's archived messages to Parquet. The columns are those of the Spark source (docs/reading.md).

    All files appear at once when everything is written; an export that is interrupted leaves nothing. Of a partitioned
    topic all partitions are exported, each to a file `FILE-partition-N.parquet` or to a folder of its own below FOLDER.

    \b
    JSON: {message, topics}; a topic is {topic, rows, gaps, missing, withoutValue, files}, a file {path, rows, bytes},
    something missing {from, to, why}; withoutValue counts messages by the reason in column __problem.
    """
    wanted = Wanted(selected(start, end), columns, entries, private_keys)
    schema = wanted.schema
    sources = archived_partitions(session, topic, ledgers, reading)
    partitioned = sources[0].name != topic
    target = Destination(to, session.dependencies.new_token(), partitioned=partitioned, overwrite=overwrite)
    if target.is_file and max_file_bytes is not None:
        raise ConfigError("--max-file-bytes: FILE.parquet is one file; name a folder in --to")
    target.check([source.name for source in sources])
    size = None if target.is_file else max_file_bytes or MAX_FILE_BYTES
    with target, _progress(topic, sources, wanted) as advance:
        done = []
        for source in sources:
            with ParquetFiles(schema, target.paths(source.name), size) as files:
                tally = export(source, wanted, files, advance)
            tally.files = [replace(file, path=target.final(file.path)) for file in tally.files]
            done.append(tally)
        target.publish()
    _show(session, topic, target.pattern(to), wanted, done)


def _progress(topic: TopicName, sources: list[ArchivedTopic], wanted: Wanted) -> AbstractContextManager[Advance]:
    """A bar, only on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return nullcontext(lambda _: None)
    total = sum(source.size(wanted.selection) for source in sources)
    return download_progress(f"{topic}", max(total, 1), console)


def _show(session: CommandSession, topic: TopicName, to: Path, wanted: Wanted, done: list[Tally]) -> None:
    files = [file for tally in done for file in tally.files]
    lost = [missing for tally in done for missing in tally.missing]
    rows, size = sum(tally.rows for tally in done), sum(file.size for file in files)
    what = "entries" if wanted.entries else "messages"
    gaps = sum(tally.gaps for tally in done)
    problems = sum((tally.problems for tally in done), Counter[str]())
    text = (
        f"{topic}: {rows} {what} exported to {to} ({len(files)} files, {size} bytes), {gaps} positions in gaps, "
        f"{len(lost)} stretches missing"
    ) + "".join(f", {count} messages without value: {why}" for why, count in sorted(problems.items()))
    details = [f"# {m.start}..{m.end} is missing: {m.why}" for m in lost]
    session.output.message(text, details, topics=[_fields(tally) for tally in done])


def _fields(tally: Tally) -> dict[str, object]:
    return {
        "topic": str(tally.topic),
        "rows": tally.rows,
        "gaps": tally.gaps,
        "missing": [{"from": str(m.start), "to": str(m.end), "why": m.why} for m in tally.missing],
        "withoutValue": dict(tally.problems),
        "files": [{"path": str(file.path), "rows": file.rows, "bytes": file.size} for file in tally.files],
    }
