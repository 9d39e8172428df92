"""A bucket's life-cycle rules, asked over HTTP."""

from __future__ import annotations

import boto3
import pytest
from moto.server import ThreadedMotoServer

from offloader.errors import AccessDeniedError
from offloader.operations.doctor.probes import RealProbes, ahead
from offloader.operations.doctor.store_checks import BucketFacts
from offloader.storage import s3_client
from offloader.storage.s3_client import life_cycle_rules
from offloader.storage.settings import StoreSettings
from tests.config.texts import BASE
from tests.runtime.support import runtime_of

KEYS = {"region_name": "us-east-1", "aws_access_key_id": "key", "aws_secret_access_key": "secret"}


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def settings(endpoint: str, root: str) -> StoreSettings:
    return StoreSettings(root, endpoint, "us-east-1", "key", "secret")


def test_rules_prefix_and_clock(endpoint) -> None:
    client = boto3.client("s3", endpoint_url=endpoint, **KEYS)
    client.create_bucket(Bucket="archive")
    prefix, rules, date = life_cycle_rules(settings(endpoint, "s3://archive/production"))
    assert (prefix, list(rules)) == ("production", [])
    offset = ahead(date)
    assert offset is not None
    assert abs(offset) < 5
    rule = {
        "ID": "tidy",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
    }
    client.put_bucket_lifecycle_configuration(Bucket="archive", LifecycleConfiguration={"Rules": [rule]})
    client.close()
    _, rules, _ = life_cycle_rules(settings(endpoint, "s3://archive"))
    assert [r["AbortIncompleteMultipartUpload"] for r in rules] == [{"DaysAfterInitiation": 3}]


def test_rules_that_cannot_be_read(endpoint) -> None:
    with pytest.raises(AccessDeniedError, match="the rules of bucket absent cannot be read"):
        life_cycle_rules(settings(endpoint, "s3://absent/x"))


@pytest.mark.parametrize("root", ["s3://absent/x", "S3://absent/x"])
def test_a_bucket_is_asked_however_its_scheme_is_written(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "life_cycle_rules", lambda settings: (settings.root, (), None))
    probes = RealProbes(runtime_of(BASE.replace("s3://archive/pulsar", root)))
    assert probes.bucket() == (BucketFacts(root), None)
