"""`make demo`: a real Pulsar, producers and the offloader side by side; then everything is read back and compared, and
read once more by Pulsar's own client after Pulsar has stopped. With KEEP=1 all of it goes on, with pages to look at,
until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import FrameType

import httpx
import pulsar
from rich.console import Console

from dev.demo.orders import events
from dev.embedded.settings import ENTRY_METADATA
from dev.embedded.standalone import PulsarStandalone
from offloader import logs
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.topic import ArchivedTopic
from offloader.cli.run import live_table
from offloader.config import Config
from offloader.errors import FatalError, OffloadError
from offloader.gateway.application import GatewayApplication
from offloader.java import find_java
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.requests import Request, RequestKind
from offloader.model import Position, TopicName
from offloader.offload.application import Application
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.runtime.connections import pulsar_settings, store_settings
from offloader.storage.open import open_store

FOLDER = Path("demo-data")
NAMESPACE = "public/orders"
TOPICS = {"created": 0, "paid": 0, "audit-log": 0, "shipped": 2}  # name: partitions
ORDERS = f"persistent://{NAMESPACE}/created"
PRODUCE_SECONDS = 30
SEAL_SECONDS = 90
START_SECONDS = 120
READ_SECONDS = 10.0
ARCHIVE_PAGES = "127.0.0.1:9465"
KEEP = "KEEP"  # an environment variable
TRICKLE_SECONDS = 1.0


class Stopped(Exception):  # noqa: N818 (not an error: somebody pressed Ctrl-C)
    """The demo was asked to end early."""


@dataclass
class Production:
    """What the producers have sent so far."""

    messages: int = 0
    size: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)


def main() -> int:
    """Run the demo. Returns the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    try:
        with _signals():
            return _demo(console)
    except OffloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Stopped:
        console.print("stopped; everything that the demo started has ended")
        return 130


def _demo(console: Console) -> int:
    find_java()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    console.print("[bold]1/6[/] a real Apache Pulsar 4.0.7 starts (the first time its jars are fetched)")
    with ExitStack() as live:
        standalone = live.enter_context(PulsarStandalone(FOLDER.resolve() / "pulsar", configuration=CONFIGURATION))
        _prepare(standalone)
        config = _configuration(standalone)
        production, compared = _offload(console, live, standalone, config)
        if os.environ.get(KEEP, "") not in ("", "0"):
            return _keep(console, live, standalone, config, production, compared)
        console.print("[bold]5/6[/] Pulsar and the offloader stop")
    gateway = f"`offloader gateway --config {FOLDER}/offloader.yaml`"
    console.print(f"[bold]6/6[/] {gateway} starts; Pulsar's own Python client reads {ORDERS} from it")
    read = _read_by_gateway(config, ORDERS)
    return _summary(console, config, production, compared, read)


def _keep(
    console: Console,
    stack: ExitStack,
    standalone: PulsarStandalone,
    config: Config,
    production: Production,
    compared: list[Compared],
) -> int:
    """Everything goes on until Ctrl-C, a message a second too."""
    console.print("[bold]5/6[/] nothing stops; the gateway is read beside it, and `offloader ui` starts")
    read = _read_by_gateway(config, ORDERS)
    code = _summary(console, config, production, compared, read)
    stack.enter_context(_archive_pages())
    trickle = threading.Event()
    thread = threading.Thread(target=_trickle, args=(standalone.service_url, trickle))
    thread.start()
    stack.callback(thread.join)
    stack.callback(trickle.set)
    console.print("\n[bold]6/6[/] running until Ctrl-C:")
    for name, url in (
        ("the application's page", f"http://{config.metrics.host}:{config.metrics.port}/"),
        ("the archive's pages", f"http://{ARCHIVE_PAGES}/"),
        ("metrics", f"http://{config.metrics.host}:{config.metrics.port}/metrics"),
        ("Pulsar", f"{standalone.service_url} and {standalone.admin_url}"),
    ):
        console.print(f"  {name}: {url}")
    try:
        threading.Event().wait()
    except Stopped:
        console.print("stopping; what was archived stays")
    return code


@contextmanager
def _archive_pages() -> Iterator[None]:
    """`offloader ui`, as an operator starts it."""
    command = [str(Path(sys.executable).with_name("offloader")), "ui", "--config", str(FOLDER / "offloader.yaml")]
    with (FOLDER / "ui.log").open("w") as log:
        process = subprocess.Popen([*command, "--listen", ARCHIVE_PAGES], stdout=log, stderr=log)  # noqa: S603
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(f"http://{ARCHIVE_PAGES}/"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise FatalError(f"`offloader ui` did not start: {(FOLDER / 'ui.log').read_text().strip()}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=READ_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _trickle(service_url: str, stop: threading.Event) -> None:
    """Something to look at."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(ORDERS, block_if_queue_full=True)
    for event in events(ORDERS.rpartition("/")[2]):
        if stop.wait(TRICKLE_SECONDS):
            break
        producer.send(event.payload, partition_key=event.key, properties=event.properties)
    client.close()


def _offload(
    console: Console, stack: ExitStack, standalone: PulsarStandalone, config: Config
) -> tuple[Production, list[Compared]]:
    console.print(
        f"[bold]2/6[/] `offloader run --config {FOLDER}/offloader.yaml` starts; producers write for {PRODUCE_SECONDS} s"
    )
    application = _start(config, stack)
    console.print(f"    its page, while it runs: http://{config.metrics.host}:{config.metrics.port}/ (KEEP=1 keeps it)")
    production = Production()
    producers = [threading.Thread(target=_produce, args=(standalone.service_url, n, production)) for n in TOPICS]
    stack.callback(_end_producers, producers, production)
    for thread in producers:
        thread.start()
    with _table(console, application):
        _wait(lambda: False, application, PRODUCE_SECONDS)
        _end_producers(producers, production)
    console.print("[bold]3/6[/] every open segment is closed by hand (`offloader topics offload TOPIC`) and sealed")
    admin = AdminClient(pulsar_settings(config))
    stack.callback(admin.close)
    ends = _close_all(config, admin)
    with _table(console, application):
        _wait(lambda: _sealed(application, ends), application, SEAL_SECONDS)
    console.print("[bold]4/6[/] every entry is read back from the files and from the broker, and compared")
    return production, [_compare(config, name, end) for name, end in sorted(ends.items())]


CONFIGURATION = {
    **ENTRY_METADATA,
    "managedLedgerMaxEntriesPerLedger": "2000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


def _prepare(standalone: PulsarStandalone) -> None:
    standalone.create_namespace(NAMESPACE)
    # Kept for ever, so that the broker's copy can be compared at the end.
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    standalone.admin("POST", f"namespaces/{NAMESPACE}/retention", forever)
    for name, partitions in TOPICS.items():
        if partitions:
            standalone.admin("PUT", f"persistent/{NAMESPACE}/{name}/partitions", partitions)


def _configuration(standalone: PulsarStandalone) -> Config:
    """conf/demo.yaml with its variables filled in, written where the user can go on with it."""
    values = {
        "OFFLOADER_DEMO_SERVICE_URL": standalone.service_url,
        "OFFLOADER_DEMO_ADMIN_URL": standalone.admin_url,
        "OFFLOADER_DEMO_FOLDER": str(FOLDER.resolve() / "archive"),
    }
    text = (Path("conf") / "demo.yaml").read_text()
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    path = FOLDER / "offloader.yaml"
    path.write_text(text)
    return Config.load(path)


def _start(config: Config, stack: ExitStack) -> Application:
    logs.set_up("WARNING", stream=stack.enter_context((FOLDER / "offloader.log").open("w")))
    application = Application(config)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            application.run()
        except OffloadError as error:
            failed.append(error)
            application.ready.set()

    thread = threading.Thread(target=run, name="application")
    with _stderr_to(FOLDER / "spark.log"):  # what Spark's JVM says while it starts and later
        thread.start()
        stack.callback(thread.join)
        stack.callback(application.stop)
        application.ready.wait(START_SECONDS)
    if failed:
        raise failed[0]
    return application


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write there; the screen is for the demo's own lines."""
    sys.stderr.flush()
    screen = os.dup(sys.stderr.fileno())
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(screen, sys.stderr.fileno())
        os.close(screen)


def _produce(service_url: str, name: str, production: Production) -> None:
    """A shop's orders, most in batches, some compressed."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        f"persistent://{NAMESPACE}/{name}",
        batching_enabled=name != "paid",
        compression_type=pulsar.CompressionType.LZ4 if name == "audit-log" else pulsar.CompressionType.NONE,
        block_if_queue_full=True,
    )
    for number, event in enumerate(events(name), 1):
        if production.stop.is_set():
            break
        producer.send_async(
            event.payload, lambda _result, _position: None, partition_key=event.key, properties=event.properties
        )
        production.messages += 1
        production.by_topic[name] += 1
        production.size += len(event.payload)
        if number % 100 == 0:
            production.stop.wait(0.1)
    producer.flush()
    client.close()


def _end_producers(producers: list[threading.Thread], production: Production) -> None:
    production.stop.set()
    for thread in producers:
        if thread.ident is not None:
            thread.join()


@contextmanager
def _table(console: Console, application: Application) -> Iterator[None]:
    """The live table; where there is no terminal, it is printed once at the end."""
    live = live_table(console, application)
    if not console.is_terminal:
        yield
        console.print(live.get_renderable())
        return
    with live:
        yield


def _wait(done: Callable[[], bool], application: Application, seconds: float) -> None:
    """Until `done`, or for at most so long; ends early when the application does."""
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline and not application.ended.wait(0.2):
        pass


def _close_all(config: Config, admin: AdminClient) -> dict[TopicName, Position]:
    store = open_store(store_settings(config.storage))
    ends: dict[TopicName, Position] = {}
    for topic in admin.topics(NAMESPACE):
        last = admin.topic_info(topic).last_confirmed
        if last is not None and last[1] >= 0:
            ends[topic] = Position(0, *last)
            now = time.time_ns() // 1_000_000
            request = Request(RequestKind.CLOSE, topic, now, "demo", ends[topic])
            requests.submit(store, config.application, request, new_token=lambda: os.urandom(8).hex())
    store.close()
    return ends


def _sealed(application: Application, ends: dict[TopicName, Position]) -> bool:
    topics = application.driver.registry.topics if application.driver else {}
    reached = {name: topics[name].catalog.end for name in ends if name in topics}
    return all((end := reached.get(name)) is not None and end >= wanted for name, wanted in ends.items())


@dataclass(frozen=True)
class Compared:
    """One topic: entries in the broker, entries in segments, equal ones."""

    topic: TopicName
    broker: int
    archived: int
    equal: int
    segments: int

    @property
    def same(self) -> bool:
        return self.broker == self.archived == self.equal


def _compare(config: Config, topic: TopicName, end: Position) -> Compared:
    store = open_store(store_settings(config.storage))
    source = BrokerSource(pulsar_settings(config))
    try:
        catalog = Catalogs(store, config.application).load(topic)
        broker = _from_broker(source, topic, catalog.claim.begin if catalog.claim else end, end)
        archived = equal = 0
        for entry in ArchivedTopic.of(store, catalog).entries():
            archived += 1
            equal += broker.get(entry.position.place) == entry.data
        return Compared(topic, len(broker), archived, equal, len(catalog.segments))
    finally:
        source.close()
        store.close()


def _from_broker(
    source: BrokerSource, topic: TopicName, begin: Position, end: Position
) -> dict[tuple[int, int], bytes]:
    reader = source.open(topic, begin.ledger, begin.entry, max_bytes=16 * 1024 * 1024)
    found: dict[tuple[int, int], bytes] = {}
    try:
        while end.place not in found:
            batch = reader.read(READ_SECONDS)
            if not batch:
                break
            found.update(((e.ledger, e.entry), e.data) for e in batch if (e.ledger, e.entry) <= end.place)
    finally:
        reader.close()
    return found


def _read_by_gateway(config: Config, topic: str) -> int:
    """How many messages Pulsar's own client reads of an archived topic, without a Pulsar."""
    store = open_store(store_settings(config.storage))
    address: Queue[str | OffloadError] = Queue()
    quiet = config.gateway.model_copy(update={"metrics_listen": ""})
    server = GatewayApplication(OpenArchive(Stores.of(store)), quiet, lambda: os.urandom(8).hex(), address.put)

    def serve() -> None:
        try:
            server.run()
        except OffloadError as error:
            address.put(error)

    thread = threading.Thread(target=serve, name="gateway")
    thread.start()
    try:
        url = address.get(timeout=START_SECONDS)
        if isinstance(url, OffloadError):
            raise url
        return _count(url, topic)
    finally:
        server.stop()
        thread.join()
        store.close()


def _count(url: str, topic: str) -> int:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader, found = client.create_reader(topic, pulsar.MessageId.earliest), 0
    while reader.has_message_available():
        reader.read_next(int(READ_SECONDS * 1000))
        found += 1
    client.close()
    return found


def _summary(console: Console, config: Config, production: Production, compared: list[Compared], read: int) -> int:
    produced = production.by_topic[ORDERS.rpartition("/")[2]]
    same = bool(compared) and all(c.same for c in compared) and read == produced
    console.print()
    for c in compared:
        verdict = "equal" if c.same else "DIFFERENT"
        console.print(
            f"  {c.topic}: {c.broker:,} entries in Pulsar, {c.archived:,} in {c.segments} segments: {verdict}"
        )
    console.print(f"\n  {production.messages:,} messages produced, {sum(c.broker for c in compared):,} entries")
    console.print(f"  {read:,} of {produced:,} messages of {ORDERS} read by Pulsar's own client, without a Pulsar")
    console.print(f"  [bold]{'every entry equal, byte for byte' if same else 'NOT EQUAL: see above'}[/]")
    console.print(f"  segments, catalog and journal: {config.storage.root}")
    console.print("\n  what to try next:")
    for line in ("topics list", f"topics segments {ORDERS}", f"topics cat {ORDERS} --limit 5", "verify", "gateway"):
        console.print(f"    .venv/bin/offloader {line} --config {FOLDER}/offloader.yaml")
    return 0 if same else 2


@contextmanager
def _signals() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (Python's signature)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except httpx.HTTPError as error:
        print(f"error: the embedded Pulsar did not answer: {error}", file=sys.stderr)
        sys.exit(1)
