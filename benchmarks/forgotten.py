"""`forgotten`: what a real broker writes for a subscription's state in its two forms, and what comes again after it was
killed, beside ours."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pulsar

from benchmarks.clients import connected
from benchmarks.figures import Figure, Report
from benchmarks.options import Options
from dev.embedded.standalone import PulsarStandalone
from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bookkeeper.settings import BookieSettings
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import FatalError
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.model import Place, Position, TopicName
from offloader.storage.memory import MemoryStore

SUBSCRIPTION, FOLDER = "job", "cursor/"
PER_LEDGER = 12_000
STORED_EVERY = 1.2  # seconds: a broker stores a position at most once a second
RECEIVE_MS, QUIET_MS = 60_000, 5_000
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": str(PER_LEDGER),
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
LONG_ARRAYS = "managedLedgerPersistIndividualAckAsLongArray"
FORMS = {"ranges": "false", "long arrays": "true"}


@dataclass(frozen=True)
class Case:
    """`left`: whether the nth message is left unacknowledged."""

    name: str
    messages: int
    left: Callable[[int], bool]


CASES = (
    Case("every other of 30,000 acknowledged", 30_000, lambda n: n % 2 == 0),
    Case("all but the first of 29,000 acknowledged, three ledgers", 29_000, lambda n: n == 0),
)


@dataclass(frozen=True)
class Outcome:
    """`stored`: bytes of one store of the state. `forgotten`: acknowledged messages that came again."""

    stored: int
    forgotten: int


def run(options: Options) -> Report:
    """One round: nothing depends on speed."""
    figures: list[Figure] = []
    acknowledged: dict[str, list[Place]] = {}
    for form, setting in FORMS.items():
        folder = options.folder / f"pulsar-{setting}"
        with PulsarStandalone(folder, zookeeper=True, configuration={**SETTINGS, LONG_ARRAYS: setting}) as standalone:
            for case, outcome in _of_broker(standalone, acknowledged, options.say):
                figures += _figures(case, f"Pulsar's {form}", outcome)
    for case in CASES:
        figures += _figures(case, "ours", _ours(acknowledged[case.name]))
    return Report("forgotten", "a subscription's state in Pulsar 4.0.7, whose broker is killed, and in ours", figures)


def _figures(case: Case, form: str, outcome: Outcome) -> Iterator[Figure]:
    yield Figure(f"{case.name}: one store of {form}", outcome.stored, "bytes")
    yield Figure(f"{case.name}: come again from {form}", outcome.forgotten, "messages")


def _of_broker(
    standalone: PulsarStandalone, acknowledged: dict[str, list[Place]], say: Callable[[str], None]
) -> Iterator[tuple[Case, Outcome]]:
    topics = {case.name: f"persistent://public/default/case-{number}" for number, case in enumerate(CASES)}
    for case in CASES:
        acknowledged[case.name] = _acknowledge(standalone, topics[case.name], case)
        say(f"forgotten: {case.name}")
    stored = {case.name: _stored(standalone, topics[case.name]) for case in CASES}
    standalone.kill()
    standalone.start()
    for case in CASES:
        again = _received(standalone, topics[case.name])
        yield case, Outcome(stored[case.name], len(again & set(acknowledged[case.name])))


def _acknowledge(standalone: PulsarStandalone, topic: str, case: Case) -> list[Place]:
    with closing(connected(standalone.service_url)) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
        _produce(client, topic, case.messages)
        messages = [consumer.receive(RECEIVE_MS) for _ in range(case.messages)]
        done = [message for number, message in enumerate(messages) if not case.left(number)]
        for message in done[:-1]:
            consumer.acknowledge(message)
        time.sleep(STORED_EVERY)
        consumer.acknowledge(done[-1])  # this one is stored at once, and with it all others
        _settled(standalone, topic, done[-1])
    return list(map(_place, done))


def _produce(client: pulsar.Client, topic: str, messages: int) -> None:
    with closing(client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)) as producer:
        for number in range(messages):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()


def _settled(standalone: PulsarStandalone, topic: str, last: pulsar.Message) -> None:
    """Returns once the broker has the last acknowledgement, and has had the time to store it."""
    path = f"{TopicName.parse(topic).rest_path}/internalStats"
    wanted = f"..{_place(last)[0]}:{_place(last)[1]}]"
    for _ in range(100):
        stats = standalone.admin("GET", path).json()
        if wanted in stats["cursors"][SUBSCRIPTION]["individuallyDeletedMessages"]:
            time.sleep(STORED_EVERY)
            return
        time.sleep(0.1)
    raise FatalError(f"{topic}: the broker has not heard the last acknowledgement")


def _stored(standalone: PulsarStandalone, topic: str) -> int:
    """Bytes of the newest entry of the cursor's ledger."""
    settings = BookKeeperSettings(f"zk://{standalone.zookeeper_address}/ledgers", BookieSettings(), 10)
    tree, bookies = clients(settings)
    with closing(tree), closing(bookies):
        found = StoredTopics(tree, bookies, 10).cursor(TopicName.parse(topic), SUBSCRIPTION)
    if found is None or found.entry is None:
        raise FatalError(f"{topic}: the state of {SUBSCRIPTION} is not in a ledger")
    return len(found.entry)


def _received(standalone: PulsarStandalone, topic: str) -> set[Place]:
    """All that comes until nothing more does."""
    found: set[Place] = set()
    with closing(connected(standalone.service_url)) as client:
        consumer = client.subscribe(topic, SUBSCRIPTION)
        wait = RECEIVE_MS
        while True:
            try:
                found.add(_place(consumer.receive(wait)))
            except pulsar.Timeout:
                return found
            wait = QUIET_MS


def _place(message: pulsar.Message) -> Place:
    return message.message_id().ledger_id(), message.message_id().entry_id()


def _ours(done: Sequence[Place]) -> Outcome:
    """The same acknowledgements. As the broker's, the store that is measured follows one more acknowledgement."""
    store, tokens = MemoryStore(), (f"token-{number}" for number in itertools.count())
    first = FirstState(Position(0, min(done)[0], -1))

    def opened() -> DurableCursor:
        return DurableCursor.open(store, FOLDER, lambda: first, lambda: next(tokens))

    cursor = opened()
    _take(cursor, done[:-1])
    cursor.flush()
    before = dict(store.list(FOLDER))
    _take(cursor, done[-1:])
    cursor.flush()
    written = sum(size for key, size in store.list(FOLDER) if key not in before)
    again = opened()
    forgotten = sum(not again.is_acknowledged(Position(0, *place)) for place in done)
    return Outcome(written, forgotten)


def _take(cursor: DurableCursor, places: Iterable[Place]) -> None:
    for ledger, entry in places:
        cursor.acknowledge((0, ledger), entry, entry)
