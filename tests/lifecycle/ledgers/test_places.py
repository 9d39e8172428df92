"""Whether brokers keep their metadata where we look: by servers in common, and never by a guess."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.uri import parse_uri
from offloader.errors import ConfigError
from offloader.lifecycle.ledgers.places import MetadataPlace, as_kept, beside, parse_place, same_bookkeeper
from offloader.lifecycle.ledgers.refusals import WhereBrokersKeep
from offloader.ports.admin import BrokerStores

LOCAL = MetadataPlace(("127.0.0.1:2181",))
TWO = MetadataPlace(("a:2181", "b:2182"), "/east")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("zk:127.0.0.1:2181", LOCAL),
        ("127.0.0.1:2181", LOCAL),
        ("127.0.0.1", LOCAL),
        ("zk://127.0.0.1", LOCAL),
        ("zk:127.0.0.1:2181/", LOCAL),
        ("metadata-store:zk:127.0.0.1:2181", LOCAL),
        ("zk:a:2181,b:2182/east", TWO),
        ("a:2181,b:2182/east", TWO),
        ("a,b:2182/east", TWO),
        (" zk://a:2181,b:2182/east ", TWO),
        ("zk:2181", MetadataPlace(("zk:2181",))),  # a host of that name
        ("zk:2181,zk2:2181/x", MetadataPlace(("zk:2181", "zk2:2181"), "/x")),
        ("zk:zk:2181", MetadataPlace(("zk:2181",))),
        ("zk:[::1]:2181/x", MetadataPlace(("[::1]:2181",), "/x")),
    ],
)
def test_stores_as_pulsar_writes_them(text, place):
    assert parse_place(text, "here") == place
    assert parse_place(str(place), "here") == place


@pytest.mark.parametrize("text", ["rocksdb:///data", "etcd:http://h:2379", "oxia://h:6648", "memory:local", "", "zk:"])
def test_other_stores_are_refused_with_the_name_of_who_says_so(text):
    with pytest.raises(ConfigError, match=r"^broker-1: "):
        parse_place(text, "broker-1")


def test_one_server_in_common_is_one_ensemble():
    assert MetadataPlace(("c:1", "B:2182")).shares_server(TWO.hosts)
    assert not MetadataPlace(("c:1", "b:2181")).shares_server(TWO.hosts)
    assert not MetadataPlace(("10.0.0.1:2181",)).shares_server(("a:2181",))  # nobody knows


def test_pulsars_nodes_are_beside_bookkeepers():
    assert beside(parse_uri("zk://a:2181/east/ledgers")) == MetadataPlace(("a:2181",), "/east")
    assert beside(parse_uri("zk://a:2181/ledgers")) == MetadataPlace(("a:2181",))


SAME = [
    ("zk:a:2181,b:2182/east", "", "zk://b:2182/east/ledgers"),
    ("zk:a:2181,b:2182", "", "zk://10.0.0.1:2181/ledgers"),  # registered with us, so its addresses are
    ("zk:a:2181", "zk+null://a:2181/ledgers", "zk://10.0.0.1:2181/ledgers"),
    ("zk:a:2181/east", "metadata-store:zk:a:2181/ledgers", "zk://a:2181/ledgers"),
    ("zk:a:2181", "metadata-store:zk:a:2181", "zk://a:2181/ledgers"),
    ("zk:a:2181", "zk+hierarchical://c:2181/bk", "zk+hierarchical://c:2181/bk"),
]
OTHER = [
    ("zk:a:2181/east", "", "zk://a:2181/ledgers"),
    ("zk:a:2181", "zk+null://c:2181/ledgers", "zk://a:2181/ledgers"),
    ("zk:a:2181", "zk+null://a:2181/other", "zk://a:2181/ledgers"),
    ("rocksdb://data", "", "zk://a:2181/ledgers"),
    ("zk:a:2181", "etcd:x", "zk://a:2181/ledgers"),
]


@pytest.mark.parametrize(("metadata", "bookkeeper", "ours"), SAME)
def test_the_same_bookkeeper(metadata, bookkeeper, ours):
    assert same_bookkeeper(BrokerStores("b:1", metadata, "", bookkeeper), parse_uri(ours), same_metadata=True)


@pytest.mark.parametrize(("metadata", "bookkeeper", "ours"), OTHER)
def test_another_bookkeeper(metadata, bookkeeper, ours):
    assert not same_bookkeeper(BrokerStores("b:1", metadata, "", bookkeeper), parse_uri(ours), same_metadata=True)


def test_beside_metadata_that_are_elsewhere_nothing_is_the_same():
    said = BrokerStores("b:1", "zk:a:2181")
    assert not same_bookkeeper(said, parse_uri("zk://a:2181/ledgers"), same_metadata=False)


def test_what_cannot_be_compared_is_said():
    ours = WhereBrokersKeep("zk:a:2181", "zk://a:2181/ledgers")
    said = BrokerStores("b:1", "zk:c:2181")
    assert as_kept(said, ours, metadata=True, bookkeeper=True) == ours
    assert as_kept(said, ours, metadata=False, bookkeeper=False) == WhereBrokersKeep(
        "b:1 says zk:c:2181, and is not registered at zk:a:2181",
        "b:1 says zk:c:2181/ledgers, ours is zk://a:2181/ledgers",
    )
