"""`offloader subscriptions protect`: what brokers forget is acknowledged again."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import click

from offloader.cli.command import FINDINGS, OK, CommandGroup, CommandSession, command
from offloader.cli.cursors.listing import TIMEOUT, Target, chosen_topics, names_of, parse_target, stored_topics
from offloader.cli.parsing import parsed
from offloader.config.gateway import address_of
from offloader.config.protection import ProtectionSettings
from offloader.cursors.protection_store import ProtectionStore
from offloader.errors import OffloadError, TopicNotFoundError
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.protecting.looks import ProtectionLooks
from offloader.lifecycle.topics.protecting.protector import Protector
from offloader.lifecycle.topics.protecting.rounds import ProtectionRounds
from offloader.lifecycle.topics.protecting.told import LookOutcome, Told
from offloader.metrics.protection import ProtectionMetrics
from offloader.metrics.server import MetricsServer
from offloader.model import TopicName

log = logging.getLogger(__name__)

SETTLES = 2.0  # seconds between two looks, at least: a reset that is stored has taken effect by then


@click.group("subscriptions", cls=CommandGroup)
def subscriptions_group() -> None:
    """Subscriptions of live topics."""


@subscriptions_group.command("protect")
@click.argument("targets", metavar="[TOPIC|NAMESPACE]...", nargs=-1, callback=parsed(parse_target))
@click.option("--once", is_flag=True, help="Look twice, 2 s apart, tell how each subscription stands, and end.")
@click.option("--dry-run", is_flag=True, help="Acknowledge and write nothing: say what would be, and why not.")
@TIMEOUT
@command(log_level="INFO")
def protect(session: CommandSession, targets: tuple[Target, ...], *, once: bool, dry_run: bool, timeout: int) -> int:
    """Acknowledge again what brokers forget, until stopped (SIGTERM, Ctrl-C).

    Brokers forget acknowledgements when a topic is loaded anew, after a crash or a clean unload. Each
    protection.interval it looks at the topics that are loaded, of all namespaces where none is named. It acknowledges
    only what it saw acknowledged, and only where it is proven that nobody has reset the subscription. Anything else
    that goes back is left alone and told. Several may run at once. A topic that is not loaded is loaded only where its
    broker would forget something. Needs pulsar.metadataServiceUri and bookies, and a super user's role.

    Exit code 2, with --once: something is not protected any more, or could not be acknowledged or looked at.

    \b
    JSON: one object a line, for each subscription of which there is news (with --once: for each): {topic, subscription,
    outcome, entries, batches, why}; outcome is protected, not yet, waiting, ended, would acknowledge, acknowledged
    again or failed; entries and batches: acknowledged again, or to be; where it is protected, what a crash would make
    the broker forget now. subscription is empty where a whole topic could not be looked at.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = session.config.protection
    stored = stored_topics(session, timeout)
    stored = replace(stored, silence=min(stored.silence, settings.interval_ms / 1000))
    looks = ProtectionLooks(session.topic_states, stored, names_of(session))
    dependencies, metrics = session.dependencies, ProtectionMetrics()

    def wait(seconds: float) -> bool:
        metrics.health.tick()  # also where topics are at rest: nothing is looked at, and nothing told of them
        return stop.wait(seconds)

    protector = Protector(
        looks,
        session.subscriptions,
        ProtectionStore(session.store, dependencies.new_token),
        dependencies.clock_ms,
        dry_run=dry_run,
    )
    with ThreadPoolExecutor(settings.at_once, "protector") as pool:
        rounds = ProtectionRounds(
            protector,
            lambda: _topics(stored, targets, once=once),
            lambda: session.subscriptions.uses().keys(),
            pool,
            settings.at_once,
            VisitPace(60 * settings.looks_a_second),
            dependencies.clock_ms,
            wait,
        )
        if once:
            return _once(session, rounds, stop)
        with served(metrics, settings):
            return _run(session, rounds, metrics, stop)


@contextmanager
def served(metrics: ProtectionMetrics, settings: ProtectionSettings) -> Iterator[None]:
    """Where the configuration says so."""
    if not settings.metrics_listen:
        yield
        return
    server = MetricsServer(
        metrics.registry,
        metrics.health,
        *address_of(settings.metrics_listen),
        setting="protection.metricsListen",
        instead="choose another, or nothing",
    )
    try:
        yield
    finally:
        server.close()


def _topics(stored: StoredTopics, targets: Iterable[Target], *, once: bool) -> list[TopicName]:
    """A named topic that is not there is an error; whoever is not asked `once` goes on with the others."""
    found = dict[TopicName, None]()
    for target in (*targets,) or (None,):
        try:
            found |= dict.fromkeys(chosen_topics(stored, target))
        except TopicNotFoundError as error:
            if once:
                raise
            log.warning("not protected now: %s", error, extra={"see": "not-protected"})
    return list(found)


def _once(session: CommandSession, rounds: ProtectionRounds, stop: threading.Event) -> int:
    done = [one for one in rounds.round() if one.outcome is LookOutcome.RESTORED or one.is_finding]
    if not stop.wait(SETTLES):
        done += rounds.round()
    _tell(session, done)
    return FINDINGS if any(one.is_finding for one in done) else OK


def _run(session: CommandSession, rounds: ProtectionRounds, metrics: ProtectionMetrics, stop: threading.Event) -> int:
    clock_ms, interval = session.dependencies.clock_ms, session.config.protection.interval_ms
    while not stop.is_set():
        begun = clock_ms()
        try:
            _tell(session, rounds.news(_counted(rounds.round(), metrics)))
        except OffloadError as error:
            log.warning("not protected now: %s", error, extra={"see": "not-protected"})
            metrics.round_failed(str(error))
        else:
            metrics.round_ended(max(clock_ms() - begun, 0) / 1000)
        took = max(clock_ms() - begun, 0)
        if took > interval:
            log.warning(
                "a round of looks at subscriptions took %d s, longer than protection.interval",
                took / 1000,
                extra={"see": "protection-slow"},
            )
        rest = max((interval - took) / 1000, SETTLES)
        with metrics.health.waiting("the next round", rest):
            stop.wait(rest)
    return OK


def _counted(told: Iterable[Told], metrics: ProtectionMetrics) -> Iterator[Told]:
    for one in told:
        namespace, outcome = one.topic.namespace, one.outcome
        if outcome is LookOutcome.RESTORED:
            metrics.acknowledged(namespace, one.entries, one.batches)
        elif outcome is LookOutcome.ENDED:
            metrics.ended(namespace)
        elif outcome is LookOutcome.FAILED:
            metrics.failed(namespace)
        is_protected = outcome in (LookOutcome.PROTECTED, LookOutcome.RESTORED)
        standing = LookOutcome.PROTECTED if is_protected else outcome
        metrics.looked(namespace, str(standing), one.entries if outcome is LookOutcome.PROTECTED else 0)
        yield one


def _tell(session: CommandSession, told: Iterable[Told]) -> None:
    for one in told:
        fields = {
            "topic": str(one.topic),
            "subscription": one.subscription,
            "outcome": str(one.outcome),
            "entries": one.entries,
            "batches": one.batches,
            "why": one.why,
        }
        session.output.line(one.text, fields)
        if one.outcome is LookOutcome.ENDED:
            log.warning(
                "no longer protected topic=%s subscription=%s: %s",
                one.topic,
                one.subscription,
                one.why,
                extra={"see": "protection-ended"},
            )
        elif one.outcome is LookOutcome.FAILED:
            log.warning(
                "not protected topic=%s subscription=%s: %s",
                one.topic,
                one.subscription,
                one.why,
                extra={"see": "not-protected"},
            )
