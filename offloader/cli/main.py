"""The program `offloader`."""

from __future__ import annotations

import click

from offloader.cli.groups import CommandSummary, Program

SUMMARIES = {
    "archive": CommandSummary("Show and undo deletions in the archive.", "offloader.cli.archive:archive_group"),
    "bridge": CommandSummary(
        "Show what stock brokers can read of the archive.", "offloader.bridge.commands:bridge_group"
    ),
    "catalog": CommandSummary("Rebuild or compact a topic's catalog.", "offloader.cli.catalog:catalog_group"),
    "config": CommandSummary("Check and explain the configuration.", "offloader.cli.explain:config_group"),
    "cost": CommandSummary("Show what the archive stores and costs.", "offloader.cli.cost:cost_command"),
    "doctor": CommandSummary("Check what an offload needs.", "offloader.cli.doctor:doctor_command"),
    "explain": CommandSummary("Say why data is still there.", "offloader.cli.explain_data:explain_command"),
    "gateway": CommandSummary("Serve archived topics to Pulsar clients.", "offloader.cli.gateway:gateway_group"),
    "ledgers": CommandSummary("Show, close and delete single BookKeeper ledgers.", "offloader.cli.ledgers:ledgers"),
    "migrate": CommandSummary(
        "Convert the broker's offloaded topics, and back.", "offloader.cli.migrate:migrate_group"
    ),
    "orphans": CommandSummary("Find and remove orphaned ledgers and objects.", "offloader.cli.orphans:orphans"),
    "run": CommandSummary("Offload the enabled topics until stopped.", "offloader.cli.run:run_command"),
    "shards": CommandSummary("Show the application's shards.", "offloader.cli.shards:shards_command"),
    "takeover": CommandSummary("Adopt another application's topics.", "offloader.cli.shards:takeover_command"),
    "topics": CommandSummary("List, read, export, restore and manage topics.", "offloader.cli.topics:topics"),
    "ui": CommandSummary("Serve pages that show the archive.", "offloader.cli.ui:ui"),
    "verify": CommandSummary("Check catalogs, journals and objects.", "offloader.cli.verify:verify_command"),
}


@click.group(
    cls=Program, summaries=SUMMARIES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="pulsar-streaming-offloader", prog_name="offloader")
def main() -> None:
    """Offload Pulsar topics into an object store, and read them back.

    Exit codes: 0 ok, 1 error, 2 findings, 3 overtaken by another process (do not restart).
    """
