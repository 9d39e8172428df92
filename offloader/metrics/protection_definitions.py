"""All series of `offloader subscriptions protect`, by name."""

from __future__ import annotations

from offloader.metrics.definitions import Definition, counter, gauge

SUBSCRIPTIONS = gauge(
    "offloader_protection_subscriptions",
    "Subscriptions of topics that were looked at in the last round, by standing: `protected`; `not yet` (something was "
    "stored between any two looks); `waiting`; `ended` (told, and protected anew from then on); `failed`; with "
    "`--dry-run` also `would acknowledge`.",
    "namespace",
    "standing",
)
AT_STAKE = gauge(
    "offloader_protection_at_stake_entries",
    "Acknowledged entries that are protected, and that a crash would make brokers forget now.",
    "namespace",
)
ENTRIES = counter("offloader_protection_acknowledged_entries", "Entries acknowledged again.", "namespace")
BATCHES = counter(
    "offloader_protection_acknowledged_batches", "Batches of which messages were acknowledged again.", "namespace"
)
ENDED = counter(
    "offloader_protection_ended",
    "Subscriptions of which what was acknowledged before is not protected any more: somebody's reset, or what cannot "
    "be told from one.",
    "namespace",
)
FAILURES = counter(
    "offloader_protection_failures", "Looks and acknowledgements that failed; they are tried again.", "namespace"
)
ROUND_SECONDS = gauge("offloader_protection_round_seconds", "Duration of the last round of looks at all topics.")
ROUND_AGE = gauge("offloader_protection_round_age_seconds", "Time since a round of looks last ended.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Definition))
