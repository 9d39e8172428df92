"""What a bucket of Google's may not do with parts and segments, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from offloader.errors import AccessDeniedError
from offloader.offload.core.check import Verdict
from offloader.operations.doctor import google_checks
from offloader.operations.doctor.google_checks import GoogleBucket
from offloader.operations.doctor.probes import RealProbes
from tests.config.texts import BASE
from tests.runtime.support import runtime_of
from tests.storage.gcs_server import BUCKET, google_in_memory
from tests.storage.proxy import Proxy, Rule, json_error

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
DELETE = {"action": {"type": "Delete"}, "condition": {"age": 30}}


def deleting(**condition: object) -> dict[str, Any]:
    return {**DELETE, "condition": {"age": 30, **condition}}


@pytest.mark.parametrize(
    ("facts", "verdicts"),
    [
        ({}, [OK]),
        ({"rules": [DELETE]}, [FAIL]),
        ({"rules": [deleting(matchesPrefix=["logs/"])]}, [OK]),
        ({"rules": [deleting(matchesPrefix=["logs/", "archive/"])]}, [FAIL]),
        ({"rules": [deleting(matchesPrefix=["archive/production/public/"])]}, [FAIL]),
        ({"rules": [deleting(isLive=False)]}, [OK]),
        ({"rules": [deleting(isLive=True)]}, [FAIL]),
        ({"rules": [deleting(numNewerVersions=3)]}, [OK]),
        ({"rules": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 1}}]}, [OK]),
        ({"soft_delete_s": 604_800}, [WARN]),
        ({"has_versions": True}, [WARN]),
        ({"storage_class": "NEARLINE"}, [WARN]),
        ({"retention_s": 60}, [FAIL]),
        ({"holds": True}, [FAIL]),
        ({"retention_s": 60, "soft_delete_s": 604_800, "rules": [DELETE]}, [FAIL, WARN, FAIL]),
    ],
)
def test_settings_of_a_bucket(facts: dict[str, Any], verdicts: list[Verdict]) -> None:
    assert [check.verdict for check in google_checks.bucket(GoogleBucket("archive/production", **facts))] == verdicts


def probes(endpoint: str) -> RealProbes:
    text = BASE.replace('"s3://archive/pulsar"', f'"gs://{BUCKET}/pulsar", endpoint: "{endpoint}"')
    return RealProbes(runtime_of(text))


def test_a_bucket_tells_of_itself() -> None:
    with google_in_memory() as server:
        assert probes(server.url).bucket() == (GoogleBucket("pulsar"), None)
        server.buckets[BUCKET] = {
            "lifecycle": {"rule": [DELETE]},
            "softDeletePolicy": {"retentionDurationSeconds": "604800"},
            "retentionPolicy": {"retentionPeriod": "60"},
            "versioning": {"enabled": True},
            "defaultEventBasedHold": True,
            "storageClass": "COLDLINE",
        }
        (facts, _) = probes(server.url).bucket() or (None, None)
        assert facts == GoogleBucket("pulsar", (DELETE,), 604_800, 60, True, True, "COLDLINE")


def test_a_bucket_that_may_not_be_asked() -> None:
    with google_in_memory() as server, Proxy(server.host, server.port, json_error) as proxy:
        proxy.add(Rule(lambda *_: True, times=100, status=403, code="forbidden"))
        with pytest.raises(AccessDeniedError, match="roles"):
            probes(proxy.url).bucket()
