"""`offloader topics schemas`: the schemas of a topic that are archived."""

from __future__ import annotations

import click

from offloader.archive.shown import time_text
from offloader.cli.command import CommandSession, command
from offloader.cli.parsing import TOPIC
from offloader.cli.topics import chosen, journals_of, topics
from offloader.cursors.facts import archived_schemas
from offloader.model import TopicName


@topics.command()
@click.argument("topic", callback=TOPIC)
@command()
def schemas(session: CommandSession, topic: TopicName) -> None:
    """The archived schemas of a topic, by version: what `topics restore` uploads to its target. The partitions of a
    topic have their schemas together.

    \b
    JSON: an array of {topic, version, type, created, properties, schema}; schema is the definition's text.
    """
    found = archived_schemas(session.store, chosen(session, journals_of(session), topic))
    rows = [
        (
            topic.partitioned_name,
            schema.version,
            schema.type,
            time_text(schema.timestamp),
            dict(schema.properties),
            schema.data.decode(),
        )
        for schema in found
    ]
    columns = ("topic", "version", "type", "created", "properties", "schema")
    session.output.table(columns, rows, f"{topic} has no archived schemas")
