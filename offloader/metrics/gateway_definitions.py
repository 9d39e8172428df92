"""All series of `offloader gateway`, by name."""

from __future__ import annotations

from offloader.metrics.definitions import Definition, counter, gauge, histogram

CONNECTIONS = gauge("offloader_gateway_connections", "Clients that are connected.")
ACCEPTED = counter("offloader_gateway_connections_accepted", "Connections of clients, those that have ended, too.")
FULL = counter("offloader_gateway_connections_full", "Clients sent away: there were `gateway.connections`.")
REFUSED = counter("offloader_gateway_refused", "Requests answered with an error, by its name.", "error")
BUFFERED = gauge("offloader_gateway_buffered_bytes", "Bytes that clients have not taken from their sockets yet.")
TOPICS = gauge("offloader_gateway_topics", "Topics that are served at the moment.")
OWNED = gauge("offloader_gateway_owned_topics", "Topics whose durable subscriptions are at this gateway.")
OWNERSHIP = counter(
    "offloader_gateway_ownership_changes",
    "Topics that this gateway claimed, that another one took over, and that it gave back because nobody used them.",
    "change",
)
LEFT_TO_OTHERS = gauge(
    "offloader_gateway_truces", "Topics left to gateways that took them over while this one lived, for a while."
)
AWAY = gauge(
    "offloader_gateway_away", "1: the store has not answered for long, and other gateways may serve the topics."
)
MOVES = gauge("offloader_gateway_hand_overs_under_way", "Subscriptions on their way to the brokers.")
HAND_OVERS = counter(
    "offloader_gateway_hand_overs",
    "What went to the brokers (`reader`, `subscription`); subscriptions that these have one of, too (`refused`), that "
    "are served here again (`taken back`); consumers that stay here because they came back twice (`came back`).",
    "what",
)
SUBSCRIPTIONS = gauge("offloader_gateway_subscriptions", "Subscriptions that are served at the moment.", "durable")
CONSUMERS = gauge("offloader_gateway_consumers", "Consumers and readers that are subscribed.")
ENTRIES = counter("offloader_gateway_entries", "Entries delivered, those that came again, too.", "namespace")
MESSAGES = counter("offloader_gateway_messages", "Messages delivered, those that came again, too.", "namespace")
BYTES = counter("offloader_gateway_bytes", "Bytes of entries delivered.", "namespace")
REDELIVERED = counter("offloader_gateway_redelivered_entries", "Entries delivered once more.", "namespace")
ACKNOWLEDGEMENTS = counter(
    "offloader_gateway_acknowledgements",
    "Entries acknowledged; a cumulative one counts once.",
    "namespace",
)
WRITES = counter(
    "offloader_gateway_writes",
    "Writes of acknowledgements, by outcome.",
    "namespace",
    "outcome",
)
UNWRITTEN_AGE = gauge(
    "offloader_gateway_unwritten_seconds", "For how long acknowledgements have been waiting to be written at most."
)
WORK = gauge("offloader_gateway_work", "What waits for a thread, or is being done, by kind.", "kind")
WORK_AGE = gauge(
    "offloader_gateway_work_age_seconds", "For how long the oldest work has been in a thread, by kind.", "kind"
)
WORK_SECONDS = histogram(
    "offloader_gateway_work_seconds",
    "Duration of work in threads, waiting included: reading entries, looking into catalogs, acknowledgements in "
    "memory, writing them, brokers, patterns, names of other gateways, files of keys.",
    "kind",
)
TICKED = gauge("offloader_gateway_loop_age_seconds", "Time since the gateway's loop last turned.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Definition))
