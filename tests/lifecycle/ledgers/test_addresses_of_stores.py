"""A metadata store's URL with a host that begins with a digit."""

from __future__ import annotations

import pytest

from offloader.lifecycle.ledgers.places import MetadataPlace, parse_place


@pytest.mark.parametrize(
    ("text", "hosts", "root"),
    [
        ("zk:127.0.0.1:2182", ("127.0.0.1:2182",), ""),
        ("zk:10.0.0.1,10.0.0.2:2182/chroot", ("10.0.0.1:2181", "10.0.0.2:2182"), "/chroot"),
        ("metadata-store:zk:127.0.0.1:2182", ("127.0.0.1:2182",), ""),
        ("127.0.0.1:2182/chroot", ("127.0.0.1:2182",), "/chroot"),
        ("zk:2182", ("zk:2182",), ""),
        ("zk:2182,zk2:2182/chroot", ("zk:2182", "zk2:2182"), "/chroot"),
        ("zk:1st-host:2182", ("1st-host:2182",), ""),
    ],
)
def test_an_address_is_no_port(text: str, hosts: tuple[str, ...], root: str) -> None:
    assert parse_place(text, "x") == MetadataPlace(hosts, root)
