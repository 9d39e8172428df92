"""A real Pulsar that was lost and built again, empty, under its name: it deletes no archive of the lost topics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from integration.patient import PatientPulsar
from integration.starting import started
from offloader.bookkeeper.connect import BookKeeperSettings, instance_id
from offloader.errors import AnotherClusterError
from offloader.metadata.root import open_root
from offloader.metadata.state import CatalogHead, Claim
from offloader.model import Position, TopicName
from offloader.offload.core.evidence import Being, being
from offloader.offload.driver.admin_queries import look_for, possible_witnesses, some_witnesses
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.memory import MemoryStore
from tests.metadata.support import tokens

pytestmark = pytest.mark.pulsar

KEPT, LOST, NEW = (TopicName.parse(f"public/default/{name}") for name in ("kept", "lost", "new"))
LOOKS, LOOK_EVERY_MS = 8, 10_000


def made(pulsar: PatientPulsar, topic: TopicName, at: int) -> CatalogHead:
    """A topic that is claimed as it is created."""
    pulsar.admin("PUT", topic.rest_path)
    with closing(admin_of(pulsar)) as admin:
        info = admin.topic_info(topic)
    begin = Position(0, info.ledgers.spans[0].ledger, 0)
    return CatalogHead(topic).after(Claim("app", 0, info.created, begin, at))


def admin_of(pulsar: PatientPulsar) -> AdminClient:
    return AdminClient(PulsarSettings(pulsar.service_url, pulsar.admin_url))


def instance(pulsar: PatientPulsar) -> str:
    return instance_id(BookKeeperSettings(f"zk:{pulsar.zookeeper_address}"))


def became(pulsar: PatientPulsar, missing: CatalogHead, others: Sequence[CatalogHead]) -> Being:
    """What looks for more than a minute prove."""
    clock = count(10**6, LOOK_EVERY_MS)
    witnesses = possible_witnesses(others)
    with closing(admin_of(pulsar)) as admin:
        looks = [
            look_for(
                admin,
                missing,
                some_witnesses(witnesses, missing.topic, missing.last_seen, turn),
                lambda: next(clock),
            )
            for turn in range(LOOKS)
        ]
        return being(admin.cluster(), looks)


def test_a_cluster_that_was_rebuilt_under_its_name_does_not_delete_the_lost_topics(tmp_path: Path) -> None:
    store = MemoryStore()
    with started(tmp_path / "first", lambda f: PatientPulsar(f, zookeeper=True)) as first:
        kept, lost = made(first, KEPT, 1), made(first, LOST, 2)
        assert became(first, lost, [kept]) is Being.SAME
        first.admin("DELETE", LOST.rest_path)
        assert became(first, lost, [kept]) is Being.DELETED, "a topic of ours that is there proves that it was deleted"
        root = open_root(store, "standalone", tokens(), bookkeeper=instance(first))
    with started(tmp_path / "second", lambda f: PatientPulsar(f, zookeeper=True)) as second:
        again, new = made(second, KEPT, 3), made(second, NEW, 4)
        assert became(second, lost, [kept, again, new]) is Being.UNKNOWN
        assert became(second, kept, [new]) is Being.UNKNOWN
        assert root.bookkeeper
        with pytest.raises(AnotherClusterError, match="it was rebuilt"):
            open_root(store, "standalone", tokens("b"), bookkeeper=instance(second))
