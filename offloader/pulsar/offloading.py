"""How brokers offload by themselves, from what the admin REST says of it. Pure.

The policies have a name for any driver (`managedLedgerOffloadBucket`) and, older, one for each
(`s3ManagedLedgerOffloadBucket`); the read priority stands there as Java's name (`TIERED_STORAGE_FIRST`) or as in a
broker's configuration (`tiered-storage-first`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NEVER_SINCE = 4  # a lag below 0 is no lag
_OLDER = {"google-cloud-storage": "gcs"}


@dataclass(frozen=True, slots=True)
class BrokerOffloading:
    """What applies to a topic. Empty: not set. `deletion_lag_ms`: how long after an offload brokers delete BookKeeper's
    copy, as it is set: see `kept_ms`. `threshold_bytes`: from which size on they offload by themselves; None: never."""

    driver: str = ""
    bucket: str = ""
    endpoint: str = ""
    tiered_first: bool = True
    deletion_lag_ms: int | None = None
    threshold_bytes: int | None = None
    threshold_seconds: int | None = None

    def kept_ms(self, version: str) -> int | None:
        """How long after an offload brokers of a version keep BookKeeper's copy; None: for ever. With a lag below 0
        those of 4.0 keep it, those of 3.0 delete it at once (seen with 4.0.7, read in 3.0's source)."""
        lag = self.deletion_lag_ms
        if lag is None or lag >= 0:
            return lag
        found = re.match(r"(\d+)\.", version.strip())
        return None if found is not None and int(found[1]) >= _NEVER_SINCE else 0


def broker_offloading(policies: Mapping[str, object]) -> BrokerOffloading:
    """From `Admin.offload_policies`. Without a read priority it is tiered storage first, as in Pulsar."""
    driver = _text(policies, "managedLedgerOffloadDriver")
    older = f"{_OLDER.get(driver, 's3')}ManagedLedgerOffload"

    def one(name: str) -> str:
        return _text(policies, f"managedLedgerOffload{name}") or _text(policies, f"{older}{name}")

    priority = _text(policies, "managedLedgerOffloadedReadPriority").lower().replace("_", "-")
    return BrokerOffloading(
        driver=driver,
        bucket=one("Bucket"),
        endpoint=one("ServiceEndpoint"),
        tiered_first=priority in ("", "tiered-storage-first"),
        deletion_lag_ms=_number(
            policies, "managedLedgerOffloadDeletionLagInMillis", "managedLedgerOffloadDeletionLagMs"
        ),
        threshold_bytes=_least(
            policies, "managedLedgerOffloadThresholdInBytes", "managedLedgerOffloadAutoTriggerSizeThresholdBytes"
        ),
        threshold_seconds=_least(policies, "managedLedgerOffloadThresholdInSeconds"),
    )


def _text(policies: Mapping[str, object], name: str) -> str:
    value = policies.get(name)
    return value.strip() if isinstance(value, str) else ""


def _least(policies: Mapping[str, object], *names: str) -> int | None:
    """The first of these that is set; None for one below 0."""
    found = _number(policies, *names)
    return found if found is not None and found >= 0 else None


def _number(policies: Mapping[str, object], *names: str) -> int | None:
    """The first of these that is set."""
    for name in names:
        value = policies.get(name)
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if type(value) is int:
            return value
    return None
