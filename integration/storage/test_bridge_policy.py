"""The policy for the brokers' bucket, word by word: it is enough to build bridged objects and to take them away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from integration.storage import roles
from offloader.bridge.building import LedgerBuilder
from offloader.bridge.objects import remove_objects
from offloader.bridge.transfer import BridgeStores
from offloader.errors import AccessDeniedError
from tests.archive.support import TOPIC
from tests.bridge.support import built
from tests.bridge.test_requests import written
from tests.storage.servers import Stores

pytestmark = pytest.mark.versitygw

BASE = ("ReadAndWrite", "DeleteHelpersOnly", "List")
BRIDGE = ("BridgedObjects", "ListBridged")


def test_the_policy_is_enough_to_bridge_and_to_withdraw(tmp_path: Path, stores: Stores) -> None:
    with roles.running(tmp_path) as server:
        wanted = written(stores.open(server.administrator()))
        role = server.role(*BASE, *BRIDGE)
        archive, bucket = stores.open(role), stores.open(replace(role, root=f"s3://{roles.BROKERS}"))
        bridge = BridgeStores(archive, bucket)
        found = built(LedgerBuilder(bridge).build(TOPIC, wanted))
        assert found.copied > 0
        assert len(list(bucket.list())) == 2
        remove_objects(bucket, [found.ledger])
        assert list(bucket.list()) == []
        with pytest.raises(AccessDeniedError):
            bucket.put("another-key", b"x")
        stores.close()
