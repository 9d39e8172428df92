"""Whether the store lets us work, and keeps what we write. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offloader.config.units import format_time
from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    OffloadError,
    PartRejectedError,
    UnprovenStoreError,
)
from offloader.metadata.state import Root
from offloader.offload.core.check import Check, fail, ok, warn

DAY_MS = 86_400_000
SKEW_WARN_S = 30
SKEW_FAIL_S = 14 * 60  # S3 refuses at 15 minutes

REMEDIES: Mapping[type[OffloadError], str] = {
    AccessDeniedError: (
        "allow what docs/permissions.md lists for this store; on S3 s3:PutObject, GetObject, ListBucket, DeleteObject, "
        "AbortMultipartUpload and ListBucketMultipartUploads"
    ),
    BucketNotFoundError: "create the bucket or folder, or correct storage.root",
    PartRejectedError: (
        "where the store takes only parts of equal length, as Cloudflare R2 does, set policies.equalParts: true; else "
        "what its message says"
    ),
    UnprovenStoreError: "use a store that creates objects atomically (S3, a local folder), or switch its caches off",
}


# What Azure does by itself, in the words of S3's rules.
AZURES_RULE: Mapping[str, Any] = {
    "ID": "of Azure itself",
    "Status": "Enabled",
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
}


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """What a bucket says of itself: its life-cycle rules as S3 gives them, and where our root is in it.
    `has_folders`: they are objects there, as in Azure's accounts with a hierarchical namespace."""

    prefix: str
    rules: Sequence[Mapping[str, Any]] = field(default=())
    has_folders: bool = False


def works(name: str, what: str, answer: OffloadError | None) -> Check:
    """Something that was tried on the store."""
    if answer is None:
        return ok(name, what)
    remedies = (text for kind, text in REMEDIES.items() if isinstance(answer, kind))
    return fail(name, str(answer), next(remedies, "check storage.root, endpoint and credentials"))


def root(found: Root | OffloadError | None, cluster: str | OffloadError) -> Check:
    """A root holds the topics of one cluster."""
    name = "root"
    if isinstance(found, OffloadError):
        return fail(name, str(found), "restore _root, or choose another storage.root")
    if found is None:
        return ok(name, "it is empty: the first start makes it ours")
    if isinstance(cluster, str) and found.cluster != cluster:
        text = f"it holds topics of cluster {found.cluster}, this is cluster {cluster}"
        return fail(name, text, "choose another storage.root for each cluster")
    return ok(name, f"it holds topics of cluster {found.cluster}")


def life_cycle(facts: BucketFacts | OffloadError, longest_roll_ms: int) -> Iterator[Check]:
    """Rules that end our uploads while segments are open, or delete segments."""
    name = "life-cycle"
    if isinstance(facts, OffloadError):
        remedy = "allow s3:GetLifecycleConfiguration (at Google storage.buckets.get), or look at the rules yourself"
        yield warn(name, f"not known: {facts}", remedy)
        return
    if facts.has_folders:
        text = "the account has a hierarchical namespace: its folders would be listed as objects"
        yield fail("folders", text, "use an account without one")
    rules = [rule for rule in facts.rules if _applies(rule, facts.prefix)]
    found = [check for rule in rules for check in _rule(name, rule, longest_roll_ms)]
    yield from found or [ok(name, "no rule of the bucket touches our uploads or objects")]


def clock(name: str, offset_s: float | None) -> Iterator[Check]:
    """`offset_s`: how far the other side's clock is ahead of ours; None: it does not say."""
    if offset_s is None:
        return
    text = f"its clock differs from ours by {abs(offset_s):.0f} s"
    if abs(offset_s) >= SKEW_FAIL_S:
        yield fail(name, f"{text}: requests are refused", "set this machine's clock (NTP)")
    elif abs(offset_s) >= SKEW_WARN_S:
        yield warn(name, text, "set this machine's clock (NTP)")
    else:
        yield ok(name, text)


def _rule(name: str, rule: Mapping[str, Any], longest_roll_ms: int) -> Iterator[Check]:
    label = rule.get("ID") or "without a name"
    days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
    if days is not None and days * DAY_MS < 2 * longest_roll_ms:
        text = f"rule {label} ends uploads after {days} d, a segment may be open for {format_time(longest_roll_ms)}"
        yield fail(
            name, text, "lower maxOffloadSegmentRolloverTimeInSeconds, or let the rule, if it is yours, wait 7 days"
        )
    if any(key in rule.get("Expiration", {}) for key in ("Days", "Date")):
        yield fail(name, f"rule {label} deletes objects below our root", "take storage.root out of the rule's prefix")
    for transition in rule.get("Transitions", ()):
        storage = str(transition.get("StorageClass", ""))
        if storage in ("GLACIER", "DEEP_ARCHIVE"):
            text = f"rule {label} moves objects to {storage}: they cannot be read until they are restored"
            yield warn(name, text, "use a class that can be read at once")


def _applies(rule: Mapping[str, Any], prefix: str) -> bool:
    """Whether a rule concerns keys below our prefix; rules by tag or size never concern all of them."""
    if rule.get("Status") != "Enabled":
        return False
    wanted = rule.get("Filter", {})
    wanted = wanted.get("And", wanted)
    if wanted.get("Tag") or wanted.get("Tags"):
        return False
    theirs = str(wanted.get("Prefix", rule.get("Prefix", "")))
    return theirs.startswith(prefix) or prefix.startswith(theirs)
