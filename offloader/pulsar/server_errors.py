"""ServerError codes of the binary protocol and what they mean to us."""

from __future__ import annotations

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    NotAllowedError,
    OffloadError,
    ProtocolError,
    SubscriptionBusyError,
    TopicMovedError,
    TopicNotFoundError,
)

# Codes that are not listed concern transactions, or are newer than this list: worth another try.
BY_CODE: dict[int, tuple[str, type[OffloadError]]] = {
    0: ("UnknownError", BrokerUnavailableError),
    1: ("MetadataError", BrokerUnavailableError),
    2: ("PersistenceError", BrokerUnavailableError),
    3: ("AuthenticationError", AuthenticationFailedError),
    4: ("AuthorizationError", AuthorizationFailedError),
    5: ("ConsumerBusy", SubscriptionBusyError),
    6: ("ServiceNotReady", TopicMovedError),
    7: ("ProducerBlockedQuotaExceededError", BrokerUnavailableError),
    8: ("ProducerBlockedQuotaExceededException", BrokerUnavailableError),
    9: ("ChecksumError", ProtocolError),
    10: ("UnsupportedVersionError", FatalError),
    11: ("TopicNotFound", TopicNotFoundError),
    # The broker was told not to create subscriptions by itself (allowAutoSubscriptionCreation=false).
    12: ("SubscriptionNotFound", NotAllowedError),
    13: ("ConsumerNotFound", TopicMovedError),
    14: ("TooManyRequests", BrokerUnavailableError),
    15: ("TopicTerminatedError", FatalError),
    16: ("ProducerBusy", BrokerUnavailableError),
    17: ("InvalidTopicName", FatalError),
    18: ("IncompatibleSchema", FatalError),
    19: ("ConsumerAssignError", BrokerUnavailableError),
    # A subscription type that is not enabled, a limit that is reached, a rate: roles that lack a right get 4.
    22: ("NotAllowedError", NotAllowedError),
    # Another producer has taken the topic over.
    25: ("ProducerFenced", FatalError),
}


def server_error(code: int, message: str, what: str = "") -> OffloadError:
    """The error for a code, in one line: what was asked, the code's name, the broker's own words."""
    name, error = BY_CODE.get(code, (f"error {code}", BrokerUnavailableError))
    words = " ".join(message.split()) or "no reason given"
    return error(f"{what + ': ' if what else ''}the broker answered {name}: {words}")
