"""The secret of our marks is made once a cluster, and what lies there instead is damage."""

from __future__ import annotations

from itertools import count

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, OutcomeUnknownError
from offloader.lifecycle.deletion.system_topic.opening import open_mark
from offloader.metadata.envelope import wrap
from offloader.metadata.layout import deletion_secret_key
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

KEY = deletion_secret_key("c")
SECRETS = count()


def opened(store: ObjectStore, cluster: str = "c"):
    return open_mark(store, cluster, lambda: "token", lambda: b"secret %25d" % next(SECRETS))


def test_it_is_made_once_and_others_have_another_one() -> None:
    store = MemoryStore()
    first = opened(store)
    assert opened(store) == first
    assert opened(store, "d") != first
    assert opened(MemoryStore()) != first
    assert "secret" not in repr(first)


def test_of_two_who_make_it_at_once_both_have_the_same() -> None:
    store, theirs = MemoryStore(), []
    between = StoreFault("put", Effect.HOOK, hook=lambda: theirs.append(opened(store)))
    assert opened(FaultyStore(store, StoreFaults([between]))) == theirs[0]


def test_a_lost_answer_is_asked_for_again() -> None:
    store = MemoryStore()
    with pytest.raises(OutcomeUnknownError):
        opened(FaultyStore(store, StoreFaults([StoreFault("put", Effect.LOST)])))
    assert opened(store) == opened(store)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"noise",
        wrap("t", pb.Body(deletion_switch=pb.DeletionSwitch(on=True))),
        wrap("t", pb.Body(system_topic_secret=pb.SystemTopicSecret())),
    ],
)
def test_what_is_no_secret_is_damage(data: bytes) -> None:
    store = MemoryStore()
    store.put(KEY, data)
    with pytest.raises(DamagedRecordError, match="system-topic-secret"):
        opened(store)
