"""`offloader gateway …`: the server, and what can be known of it."""

from __future__ import annotations

import logging
import os
import signal
import sys

import click

from offloader.cli.command import OK, CommandSession, command
from offloader.cli.groups import GroupWithDefault
from offloader.cli.output import say


class RunByDefault(GroupWithDefault):
    """`offloader gateway --config FILE` runs it."""

    default = "run"


MODULES = ("offloader.cli.gateway_status", "offloader.cli.gateway_subscriptions")


@click.group("gateway", cls=RunByDefault, modules=MODULES)
def gateway_group() -> None:
    """Archived topics for Pulsar's own clients. Without a command's name it is `run`."""


@gateway_group.command("run")
@command(log_level="INFO")
def run_gateway(session: CommandSession) -> int:
    """Serve archived topics to Pulsar's own clients, without a broker (SIGTERM, Ctrl-C: stop).

    Readers and consumers connect to it as to a broker, at `gateway.listen`. Nobody can produce. Nothing is written to
    the bucket unless `gateway.durableSubscriptions` lets clients have durable subscriptions. Clients show tokens where
    `gateway.tokenPublicKey` or `tokenSecretKey` is set; `gateway.roles` says what they may read.
    """
    from offloader.gateway.application import GatewayApplication

    chosen = session.archive_config.gateway
    application = GatewayApplication(
        session.open_archive(),
        chosen,
        session.dependencies.new_token,
        lambda url: say(f"serving {session.store.url} at {url}", err=True),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.stop())
    application.run()
    if application.left:  # threads that hang would keep the process for ever; all that can be written is
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(OK)
    return OK
