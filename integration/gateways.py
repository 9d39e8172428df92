"""`offloader gateway` as processes over one bucket, and consumers of two makings.

Pulsar's own Python client, and one that waits for the answer to each acknowledgement."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulsar
import yaml

from integration.processes import HANGS, suspend
from offloader._proto.pulsar_wire_pb2 import BaseCommand, Ping, Subscribe
from offloader.errors import ProtocolError
from offloader.pulsar.commands import acknowledge_each, command, connect, flow, lookup
from tests.gateway.raw import RawClient
from tests.storage.servers import free_port

PATIENCE = 1.0  # seconds without a sign of life, after which a client asks, and after as many again looks up elsewhere
LOOK_UP_WITHIN = 10.0  # seconds: the gateway that is asked may itself wait for another one
PERMITS = 10
Entry = int


class GatewayProgram:
    """One address, and the process that serves there now."""

    def __init__(self, folder: Path, storage: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.log = folder / "log"
        self._config = folder / "gateway.yaml"
        self._config.write_text(yaml.safe_dump({"application": "app", "storage": dict(storage), "gateway": {
            "listen": f"127.0.0.1:{self.port}", "metricsListen": "", "durableSubscriptions": True, "durableAcks": True,
            "flushInterval": "500ms", "refreshInterval": "200ms", "claimInterval": "500ms",
        }, "pulsar": {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": "http://127.0.0.1:1"}}))  # fmt: skip
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once clients may come."""
        with self.log.open("ab") as log:
            program = [str(Path(sys.executable).with_name("offloader")), "gateway", "--config", str(self._config)]
            self._process = subprocess.Popen(
                program, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        until(self._listens, f"{self.url} serves")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def suspend(self) -> None:
        suspend(self.process.pid)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM; it ends by itself."""
        self.process.terminate()
        assert self.process.wait(HANGS) == 0, self.log.read_text()[-2000:]

    def end(self) -> None:
        """Whatever it was doing."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + HANGS
    while not holds():
        assert time.monotonic() < deadline, f"it never came to be that {what}"
        time.sleep(0.02)


class Taken:
    """What consumers got and acknowledged; some entries are never acknowledged. `confirmed`: it was answered that they
    are durable."""

    def __init__(self, is_kept: Callable[[Entry], bool]) -> None:
        self.is_kept = is_kept
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._received, self._acknowledged, self._confirmed = set[Entry](), set[Entry](), set[Entry]()
        self.deliveries = 0

    def received(self, entry: Entry) -> None:
        with self._lock:
            self.deliveries += 1
            self._received.add(entry)

    def acknowledged(self, entry: Entry) -> None:
        with self._lock:
            self._acknowledged.add(entry)

    def confirm(self, entry: Entry) -> None:
        with self._lock:
            self._confirmed.add(entry)

    def all_of(self) -> tuple[set[Entry], set[Entry], set[Entry]]:
        """Received, acknowledged, confirmed."""
        with self._lock:
            return set(self._received), set(self._acknowledged), set(self._confirmed)


class Taking:
    """Consumers in threads, from the time that they are entered."""

    def __init__(self, taken: Taken, *consumers: Callable[[Taken], None]) -> None:
        self._taken = taken
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(consumer,)) for consumer in consumers]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._taken.over.set()
        for thread in self._threads:
            thread.join(HANGS)
            assert not thread.is_alive()
        assert not self._errors, self._errors

    def _run(self, consumer: Callable[[Taken], None]) -> None:
        try:
            consumer(self._taken)
        except BaseException as error:
            self._errors.append(error)
            raise


def stock_consumer(urls: Sequence[str], topic: str, subscription: str) -> Callable[[Taken], None]:
    """Pulsar's own Python client. Its acknowledgements are not answered."""

    def take(taken: Taken) -> None:
        client = pulsar.Client(
            "pulsar://" + ",".join(url.removeprefix("pulsar://") for url in urls),
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        consumer = client.subscribe(
            topic,
            subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=PERMITS,
        )
        while not taken.over.is_set():
            try:
                got = consumer.receive(100)
            except pulsar.Timeout:
                continue
            entry = got.message_id().entry_id()
            taken.received(entry)
            if not taken.is_kept(entry):
                with suppress(pulsar.PulsarException):  # its gateway has just gone: the message comes again
                    consumer.acknowledge(got)
                    taken.acknowledged(entry)
        client.shutdown()  # without a farewell, which nobody may be there to answer

    return take


def confirming_consumer(urls: Sequence[str], topic: str, subscription: str) -> Callable[[Taken], None]:
    """It waits for the answer to each acknowledgement, and goes elsewhere as soon as a gateway is silent."""

    def take(taken: Taken) -> None:
        for url in itertools.cycle(urls):
            if taken.over.is_set():
                return
            with suppress(OSError, EOFError, ProtocolError):
                where = _led_to(url, topic)
                with _connected(where) as client:
                    _consume(client, topic, subscription, taken)
            time.sleep(0.05)

    return take


def _connected(url: str) -> RawClient:
    client = RawClient(url)
    client.socket.settimeout(PATIENCE)
    client.send(connect("", b""))
    return client


def _led_to(url: str, topic: str) -> str:
    with _connected(url) as client:
        client.socket.settimeout(LOOK_UP_WITHIN)
        client.send(lookup(1, topic, authoritative=False))
        return client.until("lookup_response").lookup_response.broker_service_url


def _consume(client: RawClient, topic: str, subscription: str, taken: Taken) -> None:
    asked = Subscribe(
        topic=topic,
        subscription=subscription,
        type=Subscribe.SHARED,
        consumer_id=1,
        request_id=2,
        initial_position=Subscribe.EARLIEST,
    )
    client.send(command(subscribe=asked))
    if not client.answer().HasField("success"):
        return
    client.send(flow(1, PERMITS))
    requests, waiting = itertools.count(10), dict[int, Entry]()
    while not taken.over.is_set():
        heard = _heard(client)
        if heard.HasField("message"):
            client.send(flow(1, 1))
            entry = heard.message.message_id.entry_id
            taken.received(entry)
            if not taken.is_kept(entry):
                number = next(requests)
                waiting[number] = entry
                taken.acknowledged(entry)
                client.send(acknowledge_each(1, number, [heard.message.message_id]))
        elif heard.HasField("ack_response"):
            entry = waiting.pop(heard.ack_response.request_id)
            if not heard.ack_response.HasField("error"):
                taken.confirm(entry)
        elif heard.HasField("close_consumer"):
            return


def _heard(client: RawClient) -> BaseCommand:
    """The next command; silence is asked about once. Raises TimeoutError."""
    try:
        return client.command()
    except TimeoutError:
        client.send(command(ping=Ping()))
        return client.command()
