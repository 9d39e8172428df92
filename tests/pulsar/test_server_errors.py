"""What a broker's error code lets the caller do."""

import pytest

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    NotAllowedError,
    OutcomeUnknownError,
    RetryableError,
    SubscriptionBusyError,
    TopicMovedError,
    TopicNotFoundError,
)
from offloader.pulsar.server_errors import BY_CODE, server_error


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (3, AuthenticationFailedError),
        (4, AuthorizationFailedError),
        (5, SubscriptionBusyError),
        (6, TopicMovedError),
        (11, TopicNotFoundError),
        (12, NotAllowedError),
        (13, TopicMovedError),
        (14, BrokerUnavailableError),
        (22, NotAllowedError),
    ],
)
def test_codes_have_their_class(code, error):
    assert type(server_error(code, "why")) is error


@pytest.mark.parametrize("code", [0, 1, 2, 19, 24, 1000])
def test_troubles_of_the_broker_and_unknown_codes_may_be_tried_again(code):
    assert isinstance(server_error(code, "why"), RetryableError)


def test_no_answer_of_the_broker_is_an_unknown_outcome():
    assert not any(issubclass(error, OutcomeUnknownError) for _, error in BY_CODE.values())


def test_the_message_is_one_line_with_what_was_asked_and_the_brokers_words():
    assert str(server_error(5, "Exclusive consumer\n is  connected", "pinning t")) == (
        "pinning t: the broker answered ConsumerBusy: Exclusive consumer is connected"
    )
    assert "no reason given" in str(server_error(0, ""))
