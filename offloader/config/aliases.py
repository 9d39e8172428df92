"""Names of PIP-76's text and of Pulsar: aliases where they mean the same as a policy field, the rest with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from offloader.config.units import format_time, parse_size, parse_time
from offloader.model import MIB


@dataclass(frozen=True, slots=True)
class Alias:
    """Stands for `target`. `read` turns a value, in the unit of the alias's name, into one of `target`; raises
    ValueError."""

    target: str
    read: Callable[[object], object]


def _minutes(value: object) -> str:
    return format_time(parse_time(value, 60_000))


# A block means the same there, although Pulsar uploads each as a part of its own.
_BLOCK = Alias("blockSizeInBytes", parse_size)

ALIASES: Mapping[str, Alias] = {
    "maxSizePerOffloadSegmentMbytes": Alias("maxOffloadSegmentSizeInBytes", partial(parse_size, unit=MIB)),
    "maxOffloadSegmentRolloverTimeMinutes": Alias("maxOffloadSegmentRolloverTimeInSeconds", _minutes),
    "managedLedgerOffloadMaxBlockSizeInBytes": _BLOCK,
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": _BLOCK,
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": _BLOCK,
}

_THRESHOLD = (
    "streaming offload copies entries as they arrive and knows no threshold; use enabled, "
    "and maxOffloadSegmentSizeInBytes or maxOffloadSegmentRolloverTimeInSeconds for when a segment is closed"
)
_DELETION = (
    "the offloader deletes nothing in BookKeeper, Pulsar trims what is offloaded; use the namespace's retention in "
    "Pulsar"
)
_READING = "is about how brokers read offloaded data; set it in Pulsar"
_STORE = "where data is stored is set once for the application; use storage.root, storage.endpoint and storage.region"
_CREDENTIALS = "credentials come from the usual AWS chain (environment, profile, role), never from this file"
_LEDGERS = (
    "rolls ledgers, not segments; use maxOffloadSegmentSizeInBytes or maxOffloadSegmentRolloverTimeInSeconds, "
    "or set it in the brokers"
)
_PARTS = "in PIP-76 a block is also an upload part; use partSizeInBytes for parts and blockSizeInBytes for blocks"

_S3 = "s3ManagedLedgerOffload"
_GCS = "gcsManagedLedgerOffload"

REFUSED: Mapping[str, str] = {
    "managedLedgerOffloadThresholdInBytes": _THRESHOLD,
    "managedLedgerOffloadThresholdInSeconds": _THRESHOLD,
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": _THRESHOLD,
    "managedLedgerOffloadDeletionLagInMillis": _DELETION,
    "managedLedgerOffloadDeletionLagMs": _DELETION,
    "managedLedgerOffloadedReadPriority": _READING,
    "managedLedgerDataReadPriority": _READING,
    "managedLedgerOffloadPrefetchRounds": _READING,
    "managedLedgerOffloadReadBufferSizeInBytes": _READING,
    f"{_S3}ReadBufferSizeInBytes": _READING,
    f"{_GCS}ReadBufferSizeInBytes": _READING,
    "managedLedgerOffloadDriver": _STORE,
    "managedLedgerOffloadBucket": _STORE,
    "managedLedgerOffloadRegion": _STORE,
    "managedLedgerOffloadServiceEndpoint": _STORE,
    f"{_S3}Bucket": _STORE,
    f"{_S3}Region": _STORE,
    f"{_S3}ServiceEndpoint": _STORE,
    f"{_GCS}Bucket": _STORE,
    f"{_GCS}Region": _STORE,
    "fileSystemURI": _STORE,
    "fileSystemProfilePath": _STORE,
    f"{_S3}CredentialId": _CREDENTIALS,
    f"{_S3}CredentialSecret": _CREDENTIALS,
    f"{_S3}Role": _CREDENTIALS,
    f"{_S3}RoleSessionName": _CREDENTIALS,
    f"{_GCS}ServiceAccountKeyFile": (
        "credentials come from Google's application default credentials, or from storage.options"
    ),
    "managedLedgerOffloadMaxThreads": "is not a policy here; use limits.threadsPerTask and limits.sealers",
    "managedLedgerExtraConfigurations": "extra settings of the store go to storage.options",
    "offloadersDirectory": "there are no offloader archives to load; remove it",
    "OffloadMethod": "this offloader always works streaming-based; remove it",
    "offloadMethod": "this offloader always works streaming-based; remove it",
    "minBlockSizeInBytes": _PARTS,
    "writeBufferSizeInBytes": "there is no write buffer, a worker holds one part a thread; use partSizeInBytes",
    "managedLedgerMaxEntriesPerLedger": _LEDGERS,
    "managedLedgerMinLedgerRolloverTimeMinutes": _LEDGERS,
    "managedLedgerMaxLedgerRolloverTimeMinutes": _LEDGERS,
    "managedLedgerMaxSizePerLedgerMbytes": _LEDGERS,
    "managedLedgerInactiveLedgerRolloverTimeSeconds": _LEDGERS,
    "defaultRetentionTimeInMinutes": _DELETION,
}

REMOVED: Mapping[tuple[str, ...], str] = {
    ("protection",): (
        "`subscriptions protect` was removed (the last commit to support it is 1db0db3f); remove this section, and "
        "set in the brokers what docs/cursors.md lists"
    ),
    ("bridge", "keepSegments"): (
        "was removed (the last commit to support it is 1db0db3f), segments always stay beside what brokers read: take "
        "it out; to keep one copy, shorten Pulsar's retention"
    ),
}
"""Sections, and settings by section and name, that were removed, and what to do instead."""
