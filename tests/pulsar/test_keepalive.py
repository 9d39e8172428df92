"""A connection that says nothing is asked, and given up if it does not answer."""

from offloader.pulsar.connection import KeepAlive


def test_silence_is_asked_about_once_and_then_given_up():
    alive = KeepAlive(30, now=0)
    assert not alive.ping_due(29)
    assert alive.wait(29) == 1
    assert alive.ping_due(30)
    assert not alive.ping_due(31)
    assert not alive.dead(59)
    assert alive.wait(59) == 1
    assert alive.dead(60)


def test_any_word_is_a_sign_of_life():
    alive = KeepAlive(30, now=0)
    assert alive.ping_due(30)
    alive.heard(31)
    assert not alive.dead(100)
    assert not alive.ping_due(60)
    assert alive.ping_due(61)
