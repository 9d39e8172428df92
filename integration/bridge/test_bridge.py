"""Topics of every kind are streamed, bridged and gone from BookKeeper; the broker is killed and started again; stock
clients in several languages read the same as before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.bridge.clients import StockClient, stock_clients
from integration.bridge.consumers import Halfway, halfway
from integration.bridge.hazards import HAZARDS, Ground
from integration.bridge.older_broker import older_broker
from integration.bridge.pieces import Pieces, pieces
from integration.bridge.place import Place, place
from integration.bridge.soak import run
from integration.bridge.topics import KINDS, Made
from integration.bridge.truth import Seen, see
from integration.soak import SOAK
from integration.starting import started
from integration.world import World
from offloader.cli.command import CommandDependencies, CommandSession
from offloader.cli.migration_report import proven
from offloader.cli.output import TextOutput
from offloader.storage.settings import StoreSettings
from tests.storage.servers import ACCESS_KEY, SECRET_KEY

pytestmark = [pytest.mark.pulsar, *([pytest.mark.spark] if SOAK else [])]

WITHOUT_ENTRY_METADATA = {"brokerEntryMetadataInterceptors": ""}


@dataclass(frozen=True)
class Bridged:
    """Everything that was made, what was seen of it before, and where."""

    place: Place
    clients: Sequence[StockClient]
    pieces: Pieces
    in_danger: Mapping[str, Seen]
    made: tuple[Made, ...]
    seen: tuple[Seen, ...]
    halfway: tuple[Halfway, ...]
    gone: int
    config: Path


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    with ExitStack() as stack:
        here = stack.enter_context(started(tmp_path_factory.mktemp("bridge"), place))
        clients = stack.enter_context(stock_clients(here.folder / "clients", here.service_url, go=SOAK))
        namespace = here.new_namespace()
        made = [one for name, kind in KINDS.items() if name != "plain" for one in kind(here, namespace)]
        here.restart(**WITHOUT_ENTRY_METADATA)
        made += KINDS["mixed"](here, namespace)
        for one in made:
            here.unload(one.topic)
        dangerous = [next(KINDS["plain"](here, namespace)) for _ in HAZARDS]
        seen = see(made, clients)
        in_danger = dict(zip(HAZARDS, see(dangerous, clients[:1]), strict=True))
        subscribed = halfway([one for one in seen if one.made.topic.name.startswith(SUBSCRIBED)])
        archive, config = _bridge(here, namespace, dangerous)
        gone = sum(len(here.forget_bookkeepers_copies(one.topic)) for one in made)
        here.restart()
        connected = stack.enter_context(pieces(here, archive))
        yield Bridged(here, clients, connected, in_danger, tuple(made), tuple(seen), tuple(subscribed), gone, config)


SUBSCRIBED = ("mixed", "partitioned")


def _bridge(here: Place, namespace: str, others: Sequence[Made]) -> tuple[StoreSettings, Path]:
    """With the application, in soaks on Spark. Its end says that every closed ledger is bridged and proven; but those
    of `others`."""
    connection = {"metadataServiceUri": here.cluster.books.metadata_uri}
    archive, topics = here.store.archive(namespace), {str(one.topic): {"brokerReadable": False} for one in others}
    with World(
        here,
        archive,
        here.folder / "worlds" / namespace,
        [namespace],
        connection=connection,
        topic_policies=topics,
        light=not SOAK,
    ) as world:
        return archive, world.catch_up(brokerReadable=True).config


def test_every_closed_ledger_is_read_from_objects_alone(bridged: Bridged) -> None:
    assert bridged.gone >= 2 * len(bridged.made)
    keys = bridged.place.store.keys()
    for one in bridged.made:
        *closed, open_ledger = bridged.place.ledgers(one.topic)
        assert all(ledger["offloaded"] for ledger in closed if ledger["entries"]), one.topic
        assert not open_ledger["offloaded"]
    assert len(keys) == 2 * bridged.gone


def test_stock_clients_read_what_they_read_before(bridged: Bridged) -> None:
    """Ids, bytes, keys, properties, times, batch indexes and order; two readers at once; compacted views."""
    assert [problem for seen in bridged.seen for problem in seen.again()] == []


def test_the_proof_of_a_migration_s_way_back_knows_every_kind_of_topic(bridged: Bridged, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with closing(CommandSession(CommandDependencies(), bridged.config, TextOutput())) as session:
        proofs = {one.topic: proven(session, one.topic) for one in bridged.made}
    assert {topic: proof.wrong for topic, proof in proofs.items() if proof.wrong} == {}
    assert all(proof.equal for proof in proofs.values())


def test_stock_clients_seek_to_any_message(bridged: Bridged) -> None:
    choice = random.Random(7)
    assert [problem for seen in bridged.seen for problem in seen.seek(choice, 100 if SOAK else 3)] == []


def test_durable_subscriptions_get_just_what_they_had_not_acknowledged(bridged: Bridged) -> None:
    assert bridged.halfway
    assert [problem for one in bridged.halfway for problem in one.rest()] == []


@pytest.mark.soak
def test_brokers_of_3_0_and_of_4_0_read_the_same_objects(bridged: Bridged) -> None:
    """What was bridged through 4.0 is read through 3.0, as where an upgrade is taken back; and the other way round."""
    here, some = bridged.place, bridged.seen[:: 1 if SOAK else 3]
    with older_broker(here):
        assert here.admin("GET", "brokers/version").text.startswith("3.0.")
        assert [problem for seen in some for problem in seen.again()] == []
        namespace = here.new_namespace()
        made = list(KINDS["mixed"](here, namespace))
        for one in made:
            here.unload(one.topic)
        later = see(made, bridged.clients)
        _bridge(here, namespace, [])
        assert sum(len(here.forget_bookkeepers_copies(one.topic)) for one in made) >= 2
        assert [problem for seen in later for problem in seen.again()] == []
    assert here.admin("GET", "brokers/version").text.startswith("4.0.")
    assert [problem for seen in (*some, *later) for problem in seen.again()] == []


@pytest.mark.parametrize("hazard", HAZARDS)
def test_no_hazard_takes_anything_from_readers(bridged: Bridged, hazard: str) -> None:
    ground = Ground(bridged.pieces, bridged.in_danger[hazard])
    ground.keep_bookkeepers_copies(0)  # the namespace is everybody's
    HAZARDS[hazard](ground)


@pytest.mark.soak
def test_traffic_goes_on_through_rounds_and_kills(bridged: Bridged) -> None:
    """No message is lost, and each that was confirmed comes, whoever is killed. `python -m integration.bridge.soak`
    does it hundreds of times."""
    assert run(bridged.place, 3, 1, seed=3) == []
