"""What the cluster's own subscriptions are called, by the configuration and by what brokers say of theirs."""

from __future__ import annotations

from contextlib import suppress

from offloader.errors import OffloadError
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.ports.admin import Admin


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
