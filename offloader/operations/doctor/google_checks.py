"""Whether a bucket of Google's keeps what we write, and lets go of what we delete. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offloader.offload.core.check import Check, fail, ok, warn

NAME = "life-cycle"
DAY_S = 86_400
# Conditions of rules that concern former versions alone, or never all objects.
_ELSEWHERE = ("daysSinceNoncurrentTime", "noncurrentTimeBefore", "numNewerVersions", "matchesSuffix")


@dataclass(frozen=True, slots=True)
class GoogleBucket:
    """What a bucket says of itself: its rules as Google gives them, for how many seconds it keeps what is deleted
    (`soft_delete_s`) and forbids deletions (`retention_s`), and where our root is in it."""

    prefix: str = ""
    rules: Sequence[Mapping[str, Any]] = field(default=())
    soft_delete_s: int = 0
    retention_s: int = 0
    has_versions: bool = False
    holds: bool = False
    storage_class: str = "STANDARD"


def bucket(facts: GoogleBucket) -> Iterator[Check]:
    """What of it stands against parts that live for minutes, and segments that live for years."""
    found = [*_against_deletion(facts), *_prices(facts), *_rules(facts)]
    yield from found or [ok(NAME, "nothing in the bucket's settings touches our parts or objects")]


def _against_deletion(facts: GoogleBucket) -> Iterator[Check]:
    if facts.retention_s:
        text = f"the bucket's retention policy forbids deletions for {facts.retention_s} s: no segment can be completed"
        yield fail(NAME, text, "use a bucket without a retention policy")
    if facts.holds:
        text = "the bucket holds each new object: no segment can be completed"
        yield fail(NAME, text, "switch its default event-based hold off")


def _prices(facts: GoogleBucket) -> Iterator[Check]:
    if facts.soft_delete_s:
        text = f"what is deleted is kept, and paid, for {facts.soft_delete_s / DAY_S:.1f} d: each part of each segment"
        yield warn(NAME, text, "gcloud storage buckets update gs://BUCKET --clear-soft-delete")
    if facts.has_versions:
        text = "the bucket keeps former versions, and each part of each segment becomes one"
        yield warn(NAME, text, "switch object versioning off, or let former versions go by a rule")
    if facts.storage_class != "STANDARD":
        text = f"the bucket's default class is {facts.storage_class}: parts are paid for much longer than they live"
        yield warn(NAME, text, "make STANDARD the default class, and let a rule move segments later")


def _rules(facts: GoogleBucket) -> Iterator[Check]:
    for rule in facts.rules:
        condition = rule.get("condition", {})
        if not _applies(condition, facts.prefix):
            continue
        action = rule.get("action", {})
        if action.get("type") == "Delete":
            yield fail(
                NAME, f"a rule deletes objects below our root ({condition})", "take storage.root out of the rule"
            )


def _applies(condition: Mapping[str, Any], prefix: str) -> bool:
    """Whether a rule concerns the live objects below our prefix."""
    if condition.get("isLive") is False or any(name in condition for name in _ELSEWHERE):
        return False
    theirs = condition.get("matchesPrefix") or [""]
    return any(one.startswith(prefix) or prefix.startswith(one) for one in theirs)
