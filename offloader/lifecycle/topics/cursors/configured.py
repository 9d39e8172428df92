"""From the configuration, and from what brokers say of theirs, to what removals of subscriptions go by."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from offloader.config.lifecycle import Lifecycle
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.configured import timing_of
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.ports.admin import Admin


def removal_timing(section: Lifecycle) -> DeletionTiming:
    """A removal's delays. Compaction has no part in it."""
    return replace(timing_of(section), longest_compaction=0)


def subscription_names(pin: str, admin: Admin | None) -> SubscriptionNames:
    """What the cluster's own subscriptions are called; as by default where brokers cannot be asked, or are not to be.
    `pin`: our own."""
    said: dict[str, str] = {}
    if admin is not None:
        with suppress(OffloadError):  # for super users; the defaults are what nearly everybody has
            said = dict(admin.runtime_configuration())
    names = (name.strip() for name in said.get("additionalSystemCursorNames", "").strip("[]").split(","))
    prefix = said.get("replicatorPrefix") or SubscriptionNames().replicator_prefix
    return SubscriptionNames(pin, prefix, frozenset(filter(None, names)))
