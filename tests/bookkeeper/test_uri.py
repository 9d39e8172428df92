"""Metadata service URIs in all their forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.layout import Layout
from offloader.bookkeeper.uri import MetadataUri, parse_uri
from offloader.errors import ConfigError

TWO = ("h1:2181", "h2:2182")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk://h1:2181,h2:2182/ledgers", MetadataUri(TWO)),
        ("zk://h1:2181;h2:2182/ledgers", MetadataUri(TWO)),
        ("zk://h1,h2:2182", MetadataUri(TWO)),
        ("zk://h1:2181,h2:2182/", MetadataUri(TWO)),
        ("zk+null://h1:2181;h2:2182/chroot/ledgers", MetadataUri(TWO, "/chroot/ledgers")),
        ("zk+flat://h1/ledgers/", MetadataUri(("h1:2181",), "/ledgers", Layout.FLAT)),
        ("zk+hierarchical://h1/ledgers", MetadataUri(("h1:2181",), "/ledgers", Layout.HIERARCHICAL)),
        ("ZK+LongHierarchical://h1/a/b", MetadataUri(("h1:2181",), "/a/b", Layout.LONG_HIERARCHICAL)),
        ("zk:h1:2181,h2:2182", MetadataUri(TWO)),
        ("zk:h1:2181;h2:2182/chroot", MetadataUri(TWO, "/chroot/ledgers")),
        ("zk:h1/a/b/", MetadataUri(("h1:2181",), "/a/b/ledgers")),
        ("metadata-store:zk:h1:2181,h2:2182", MetadataUri(TWO)),
        ("metadata-store:zk:h1:2181;h2:2182/chroot", MetadataUri(TWO, "/chroot/ledgers")),
        (" zk://[::1]:2181,10.0.0.1/ledgers ", MetadataUri(("[::1]:2181", "10.0.0.1:2181"))),
    ],
)
def test_every_form_is_read(text, expected):
    assert parse_uri(text) == expected


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("zk://h1/ledgers", "/managed-ledgers"),
        ("zk://h1/chroot/ledgers", "/chroot/managed-ledgers"),
        ("zk:h1", "/managed-ledgers"),
        ("zk:h1/a/b", "/a/b/managed-ledgers"),
    ],
)
def test_pulsars_nodes_are_beside_bookkeepers(text, path):
    assert parse_uri(text).managed_ledgers == path


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ("etcd:http://h1:2379", "etcd"),
        ("metadata-store:etcd:http://h1:2379", "etcd"),
        ("oxia://h1:6648/default", "oxia"),
        ("metadata-store:oxia://h1:6648/default", "oxia"),
        ("rocksdb:///data/metadata", "rocksdb"),
        ("rocksdb:/data/metadata", "rocksdb"),
        ("memory:local", "memory"),
        ("etcd+hierarchical://h1/ledgers", "etcd"),
    ],
)
def test_other_stores_are_refused_in_one_line(text, store):
    with pytest.raises(
        ConfigError, match=rf"^pulsar\.metadataServiceUri: .*from ZooKeeper only \(zk:\), not from {store}$"
    ):
        parse_uri(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not name a store"),
        ("h1:2181,h2:2181", "does not name a store; write zk://"),
        ("h1:2181/ledgers", "does not name a store"),
        ("localhost", "does not name a store"),
        ("zk+ms://h1/ledgers", "'ms' is no layout; use one of flat, hierarchical, longhierarchical"),
        ("zk://", "'' is not host:port"),
        ("zk://h1,,h2/ledgers", "'' is not host:port"),
        ("zk://h1:0/ledgers", "'h1:0' is not host:port"),
        ("zk://h1:65536/ledgers", "is not host:port"),
        ("zk:///ledgers", "'' is not host:port"),
        ("zk://h 1/ledgers", "is not host:port"),
        (f"zk://{'x' * 64}/ledgers", "is not host:port"),
        ("zk://h1//ledgers", "is no path"),
        ("zk://h1/a/../ledgers", "is no path"),
    ],
)
def test_what_cannot_be_understood_is_refused(text, problem):
    with pytest.raises(ConfigError, match=problem):
        parse_uri(text)


def test_the_error_names_the_setting():
    with pytest.raises(ConfigError, match=r"^namespaces\.a/b\.pulsar\.metadataServiceUri: "):
        parse_uri("x", "namespaces.a/b.pulsar.metadataServiceUri")


@pytest.mark.parametrize("text", ["zk+flat://h1:2181,h2:2182/a/ledgers", "zk://h1:2181/ledgers"])
def test_it_is_shown_as_it_is_written(text):
    assert str(parse_uri(text)) == text


@given(st.text() | st.text("zk:/+;,.[]h1").map("zk:".__add__))
def test_any_text_is_read_or_refused(text):
    try:
        uri = parse_uri(text)
    except ConfigError:
        return
    assert parse_uri(str(uri)) == uri
