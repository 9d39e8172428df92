"""`offloader gateway status`."""

from __future__ import annotations

from dataclasses import asdict
from http.client import HTTPException, HTTPResponse
from urllib.request import ProxyHandler, build_opener

import click

from offloader.cli.command import OK, CommandSession, command
from offloader.cli.gateway import gateway_group
from offloader.cli.output import say
from offloader.cli.parsing import TIME
from offloader.config.gateway import address_of
from offloader.errors import ConfigError, DamagedRecordError, RetryableError
from offloader.gateway.status import GatewayStatus, SubscriptionStatus, from_json, rates
from offloader.gateway.telemetry import STATUS
from offloader.json_text import parse_json
from offloader.model import MIB

PATIENCE = 15.0  # seconds
MOST = 64 * MIB
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (where one listens, and how it is reached)
COLUMNS = (
    *("topic", "subscription", "type", "consumers", "markDelete", "backlog", "unacknowledged"),
    *("messagesPerSecond", "bytesPerSecond"),
)


@gateway_group.command("status")
@click.option("--interval", metavar="TIME", callback=TIME, default="1s", show_default=True,
              help="Rates are those of so long a time; 0: none.")  # fmt: skip
@command()
def gateway_status(session: CommandSession, interval: int) -> int:
    """Show the connections, subscriptions, backlogs and rates of a gateway that runs.

    It asks the gateway itself, at `gateway.metricsListen`. Shown are subscriptions that it serves now; those that have
    no consumer, or are another gateway's, are only in the bucket. No backlog is told where not all of a subscription is
    in the gateway's memory.

    \b
    JSON: {connections, consumers, buffered, accepted, full, refused, work, topics, owned, namespaces, subscriptions}
    """
    url = status_url(session.config.gateway.metrics_listen)
    before = _asked(url)
    session.dependencies.sleep(interval / 1000)
    seen = _asked(url) if interval else before
    speed = rates(before, seen)
    if session.output.name == "json":
        session.output.line("", asdict(seen))
        return OK
    say(
        f"{seen.connections} connections, {seen.consumers} consumers, {seen.topics} topics, {seen.owned} owned; "
        f"{seen.buffered} bytes are on their way to clients"
    )
    rows = [_row(one, speed.get((one.topic, one.name))) for one in seen.subscriptions]
    session.output.table(COLUMNS, rows, "No subscription is served at the moment")
    return OK


def status_url(listen: str) -> str:
    """Where a gateway tells of itself. Raises ConfigError where it does not."""
    if not listen:
        raise ConfigError("gateway.metricsListen is empty: the gateway tells nothing; name an address")
    host, port = address_of(listen)
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}{STATUS}" if ":" in host else f"http://{host}:{port}{STATUS}"


def _asked(url: str) -> GatewayStatus:
    try:
        answer: HTTPResponse
        with build_opener(ProxyHandler({})).open(url, timeout=PATIENCE) as answer:
            data = answer.read(MOST)
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise RetryableError(f"no gateway answers at {url} ({why}); does it run, with this configuration?") from error
    try:
        return from_json(parse_json(data))
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedRecordError(f"what answers at {url} is no gateway of this version") from error


def _row(one: SubscriptionStatus, speed: tuple[float, float] | None) -> tuple[object, ...]:
    messages, size = (None, None) if speed is None else (round(speed[0]), round(speed[1]))
    return (
        one.topic,
        one.name,
        one.type if one.durable else f"{one.type} (reader)",
        one.consumers,
        one.mark_delete,
        one.backlog,
        one.unacknowledged,
        messages,
        size,
    )
