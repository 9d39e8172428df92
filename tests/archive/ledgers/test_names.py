"""Names in a stock broker's bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.ledgers.names import LedgerKey, data_key, index_key, managed_ledger_name, parse_key, topic_of
from offloader.model import TopicName

from .support import UUID

TOPICS = st.builds(
    TopicName,
    st.just("public"),
    st.just("default"),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("orders-partition-3", "orders-partition-3"), ("off l*~+%é.x", "off+l*%7E%2B%25%C3%A9.x")],  # as 4.0.7 wrote them
)
def test_the_name_that_a_broker_gives(name, encoded):
    topic = TopicName("public", "default", name)
    assert managed_ledger_name(topic) == f"public/default/persistent/{encoded}"
    assert topic_of(f"public/default/persistent/{encoded}") == topic


@given(TOPICS)
def test_each_topic_has_a_name_of_its_own(topic):
    assert topic_of(managed_ledger_name(topic)) == topic
    assert managed_ledger_name(topic).count("/") == 3


@pytest.mark.parametrize("name", ["", "a/b/c", "public/default/non-persistent/x", "a/cluster/b/persistent/x", "a//persistent/x"])
def test_what_is_no_topic_is_refused(name):
    with pytest.raises(ValueError, match="persistent topic"):
        topic_of(name)


@given(st.uuids(), st.integers(0, 2**63 - 1))
def test_keys_are_taken_apart(uuid, ledger):
    assert parse_key(data_key(str(uuid), ledger)) == LedgerKey(str(uuid), ledger, is_index=False)
    assert parse_key(index_key(str(uuid), ledger)) == LedgerKey(str(uuid), ledger, is_index=True)


@pytest.mark.parametrize(
    "key", ["x", UUID, f"{UUID}-index", f"{UUID}-ledger-", f"{UUID}-ledger-07", f"{UUID}-ledger-7-index2", f"a/{UUID}-ledger-7"]
)
def test_other_keys_are_none_of_the_offloaders(key):
    assert parse_key(key) is None
