"""The program `offloader`."""

from __future__ import annotations

import click

from offloader.cli import (  # noqa: F401 (they add their commands to groups)
    cat,
    export,
    gateway_status,
    gateway_subscriptions,
    gateway_unlock,
    ledger_deletion,
    orphan_tail,
    peek,
    restore,
    topic_requests,
    trim_unloaded,
)
from offloader.cli.archive import archive_group
from offloader.cli.bridge import bridge_group
from offloader.cli.catalog import catalog_group
from offloader.cli.command import CommandGroup
from offloader.cli.cost import cost_command
from offloader.cli.cursors import copied, listing, removing  # noqa: F401
from offloader.cli.doctor import doctor_command
from offloader.cli.explain import config_group
from offloader.cli.explain_data import explain_command
from offloader.cli.gateway import gateway_group
from offloader.cli.ledgers import ledgers
from offloader.cli.migrate import migrate_group
from offloader.cli.orphans import decide, explain, orphans, pending, purge, quarantine, read, rescue, rescued, scan  # noqa: F401 (they add their commands)
from offloader.cli.run import run_command
from offloader.cli.shards import shards_command
from offloader.cli.subscriptions import subscriptions_group
from offloader.cli.takeover import takeover_command
from offloader.cli.topics import topics
from offloader.cli.ui import ui
from offloader.cli.verify import verify_command


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="pulsar-streaming-offloader", prog_name="offloader")
def main() -> None:
    """Offload Pulsar topics into an object store, and read them back.

    Exit codes: 0 ok, 1 error, 2 findings, 3 overtaken by another process (do not restart).
    """


for _command in (
    run_command,
    topics,
    verify_command,
    config_group,
    doctor_command,
    takeover_command,
    shards_command,
    catalog_group,
    ledgers,
    orphans,
    explain_command,
    archive_group,
    bridge_group,
    migrate_group,
    gateway_group,
    ui,
    subscriptions_group,
    cost_command,
):
    main.add_command(_command)
