"""Pulsar's own, ledger-based offloader in the embedded Pulsar: what it writes is what our readers must understand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from dev.embedded.settings import SMALL_LEDGERS, OffloaderSettings
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import MODES, open_client, produce, random_contents
from integration.stock_store import stock_store

pytestmark = pytest.mark.pulsar

_TOPIC = "persistent/public/default/offloaded"
_SETTINGS = {"bucket": "ledgers", "access_key": "key", "secret_key": "secret"}


@pytest.fixture
def endpoint() -> Iterator[str]:
    with stock_store() as endpoint:
        yield endpoint


def _s3(endpoint: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )


def _wait_until_offloaded(pulsar: PatientPulsar) -> dict[str, Any]:
    deadline = time.monotonic() + HANGS
    while (status := pulsar.admin("GET", f"{_TOPIC}/offload").json())["status"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return status


def test_closed_ledgers_are_offloaded(tmp_path: Path, endpoint: str) -> None:
    s3 = _s3(endpoint)
    s3.create_bucket(Bucket=_SETTINGS["bucket"])
    settings = OffloaderSettings(endpoint, **_SETTINGS)
    with PatientPulsar(tmp_path, configuration=SMALL_LEDGERS, offloader=settings) as pulsar:
        pulsar.admin("PUT", _TOPIC)
        pulsar.admin("PUT", f"{_TOPIC}/subscription/keep", {"ledgerId": -1, "entryId": -1})
        client = open_client(pulsar.service_url)
        produced = produce(client, _TOPIC.replace("/", "://", 1), random_contents(3, 1200, largest=1000), MODES[-1])
        client.close()
        ((*_, (ledger, entry)),) = produced.positions.values()
        pulsar.admin("PUT", f"{_TOPIC}/offload", {"ledgerId": ledger, "entryId": entry})
        assert _wait_until_offloaded(pulsar)["status"] == "SUCCESS"
        ledgers = pulsar.admin("GET", f"{_TOPIC}/internalStats").json()["ledgers"]
    offloaded = [one["ledgerId"] for one in ledgers if one["offloaded"]]
    keys = {found["Key"] for found in s3.list_objects_v2(Bucket=_SETTINGS["bucket"])["Contents"]}
    s3.close()
    assert len(offloaded) == 2
    assert sorted(key.rsplit("-", 1)[1] for key in keys if not key.endswith("-index")) == sorted(map(str, offloaded))
