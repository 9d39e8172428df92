"""The section `lifecycle`: what is misspelt is told by its name, before anything is done by it."""

from __future__ import annotations

import pytest

from offloader.config import Config
from offloader.errors import ConfigError

BASE = """
application: app
pulsar: {serviceUrl: "pulsar://h:6650", adminUrl: "http://h:8080"}
storage: {root: "file:///archive"}
"""


def parsed(section: str) -> Config:
    return Config.parse(f"{BASE}lifecycle: {{{section}}}\n", {})


@pytest.mark.parametrize("url", ["nonsense", "s3://", "file://bucket", "s3://key:secret@bucket", "s3://bucket?x=1"])
def test_a_stock_bucket_that_is_no_stores_url_is_one_clear_error(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(f"stockBucket: '{url}'")
    assert str(error.value).startswith("lifecycle.stockBucket: ")
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["s3://pulsar-offload", "gs://pulsar-offload", "file:///var/offload"])
def test_a_stock_bucket_is_any_stores_url(url: str) -> None:
    assert parsed(f"stockBucket: '{url}'").lifecycle.stock_bucket == url
    assert parsed("stockBucket: ''").lifecycle.stock_bucket == ""


@pytest.mark.parametrize("store", ["nonsense", "", "host:2181/chroot", "etcd:http://h:2379", "zk://h:port/x", "zk://"])
def test_a_metadata_store_that_is_no_zookeeper_is_one_clear_error(store: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(f"metadataStores: ['zk://fine:2181', '{store}']")
    assert str(error.value).startswith("lifecycle.metadataStores: ")
    assert f"{store!r} names no ZooKeeper; write zk://host:2181/chroot" in str(error.value)
    assert "\n" not in str(error.value)


def test_metadata_stores_as_brokers_write_them() -> None:
    stores = ["zk://a:2181,b:2181/chroot", "zk:a:2181/chroot", "metadata-store:zk:a:2181"]
    assert parsed(f"metadataStores: {stores}").lifecycle.metadata_stores == stores
