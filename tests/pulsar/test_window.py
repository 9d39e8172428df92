"""Permits: what arrives fits, and the broker is never left without permits while there is room."""

from hypothesis import given
from hypothesis import strategies as st

from offloader.pulsar.reader import Window, message_count
from tests.pulsar.entries import entry

MAX_ENTRIES = 10_000


class Broker:
    """Sends while it has permits; an entry takes as many as it has messages, the last one more than are left."""

    def __init__(self, window, entries):
        self.window, self.entries, self.permits = window, list(entries), 0
        self.most_held = 0
        self.refused = 0

    def flow(self, permits):
        self.permits += permits

    def send(self, count):
        """Up to `count` entries, as one burst: granting happens as they arrive."""
        while count and self.permits > 0 and self.entries:
            size, messages = self.entries[0]
            if not self.window.fits(size):
                self.refused += 1
                return
            self.entries.pop(0)
            self.permits -= messages
            self.window.arrived(size, messages)
            self.most_held = max(self.most_held, self.window.held)
            self.flow(self.window.grant())
            count -= 1


sizes = st.integers(1, 3000)
batches = st.integers(1, 500)


@given(st.lists(st.tuples(sizes, batches), max_size=60), st.integers(1, 5000), st.data())
def test_what_is_held_fits_or_is_one_entry_and_all_of_it_arrives(entries, max_bytes, data):
    window = Window(max_bytes)
    broker = Broker(window, entries)
    largest = max((size for size, _ in entries), default=0)
    broker.flow(window.grant())
    for _ in range(len(entries) + 1):
        broker.send(data.draw(st.integers(1, 30)))
        assert window.held <= max(max_bytes, largest)
        window.taken()
        broker.flow(window.grant())
        assert broker.permits > 0, "nothing is held, so the broker must be able to send"
    broker.send(len(entries))
    while broker.entries:
        window.taken()
        broker.flow(window.grant())
        broker.send(len(entries))
    assert not broker.entries


@given(sizes, batches, st.integers(1, 100), st.integers(3000, 100_000))
def test_entries_of_one_size_never_overflow(size, messages, count, max_bytes):
    window = Window(max_bytes)
    broker = Broker(window, [(size, messages)] * count)
    broker.flow(window.grant())
    while broker.entries:
        broker.send(1000)
        assert broker.refused == 0
        window.taken()
        broker.flow(window.grant())
    assert broker.most_held <= max_bytes


def test_nothing_is_trusted_before_a_size_is_known_and_trust_doubles():
    window = Window(1_000_000)
    assert window.grant() == 1
    granted = []
    for _ in range(6):
        window.arrived(10, 1)
        window.taken()
        granted.append(window.grant())
    assert granted[0] == 2
    assert granted == sorted(granted)


def test_the_window_is_bounded_however_small_the_entries_are():
    window = Window(2**40)
    window.grant()
    for _ in range(100):
        window.arrived(1, 1)
        window.taken()
        window.grant()
    assert window._permits <= MAX_ENTRIES


def test_a_new_subscription_begins_without_permits():
    window = Window(1000)
    window.grant()
    window.arrived(10, 1)
    window.taken()
    window.reset()
    assert window.grant() == 1


@given(st.integers(0, 100), st.none() | st.integers(1, 10_000), st.none() | st.integers(0, 2**40))
def test_messages_are_counted_as_the_broker_counts(size, messages, index):
    assert message_count(entry(size, messages, index=index)) == (messages or 1)


@given(st.binary(max_size=60))
def test_an_entry_that_is_none_counts_as_one_message_at_least(data):
    assert message_count(data) >= 1
    assert message_count(b"\x0e\x01" + data) >= 1
    assert message_count(b"\x0e\x02" + data) >= 1
