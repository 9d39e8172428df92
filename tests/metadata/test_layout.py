"""Key names: every name has its own place, and every key tells whose it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.bucket.names import KeyStanding, NamesInForce, placed
from offloader.metadata import layout, listing
from offloader.metadata.journals import Journals
from offloader.metadata.layout import KeyKind, TopicKey
from offloader.metadata.stock_keys import parse_key
from offloader.model import Position, TopicName
from offloader.storage.memory import MemoryStore
from offloader.storage.metered import MeteredStore

from .support import TOPIC

UUID = "00000000-1111-2222-3333-444444444444"
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.text("_./%ab", min_size=1, max_size=6)
topics = st.builds(TopicName, names, names, names)


def test_the_layout_is_the_design_s():
    assert layout.data_key(TOPIC, UUID) == f"acme/orders/placed-partition-3/{UUID}"
    assert layout.index_key(TOPIC, UUID) == f"acme/orders/placed-partition-3/{UUID}-index"
    assert layout.catalog_folder(TOPIC) + layout.slot_name(12) == (
        "acme/orders/placed-partition-3/_catalog/00000000000000000000/00000000000000000012"
    )
    assert layout.record_key(TOPIC, UUID) == f"acme/orders/placed-partition-3/{UUID}-record"
    assert layout.claim_key("app", TOPIC) == "_claims/app/acme/orders/placed-partition-3"
    assert layout.epoch_folder("app", 3) == "_journal/app/00000000000000000003/"
    assert layout.requests_folder("app") == "_requests/app/"
    assert layout.ROOT == "_root"


def test_a_topic_s_name_is_one_folder():
    assert layout.topic_folder(TopicName("acme", "orders", "a/b c")) == "acme/orders/a%2Fb%20c/"
    assert layout.topic_folder(TopicName("_journal", ".uploads", "..")) == "%5Fjournal/%2Euploads/%2E./"


@given(topics)
def test_a_key_tells_its_topic(topic: TopicName):
    assert layout.parse_topic_key(layout.data_key(topic, UUID)) == TopicKey(topic, KeyKind.DATA, uuid=UUID)
    assert layout.parse_topic_key(layout.index_key(topic, UUID)) == TopicKey(topic, KeyKind.INDEX, uuid=UUID)
    assert layout.parse_topic_key(layout.record_key(topic, UUID)) == TopicKey(topic, KeyKind.RECORD, uuid=UUID)
    slot = layout.catalog_folder(topic, 3) + layout.slot_name(5)
    assert layout.parse_topic_key(slot) == TopicKey(topic, KeyKind.CATALOG, generation=3, slot=5)
    assert layout.parse_claim_key(layout.claim_key("a/b", topic)) == ("a/b", topic)


@given(topics)
def test_no_name_leads_out_of_its_folder_or_into_ours(topic: TopicName):
    folders = layout.topic_folder(topic).split("/")
    assert len(folders) == 4
    assert not {".", "..", ""} & set(folders[:3])
    assert not any(f.startswith(("_", ".")) for f in folders[:3])


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1), names)
def test_a_journal_key_tells_epoch_and_slot(epoch: int, slot: int, application: str):
    key = layout.epoch_folder(application, epoch) + layout.slot_name(slot)
    assert layout.parse_journal_key(application, key) == (epoch, slot)


def test_what_is_not_ours_is_nobody_s():
    store = MemoryStore()
    for key in (
        "_root",
        "_journal/app/1/2",
        "a",
        "a/b",
        f"a/b/{UUID}",
        "acme/orders/t/readme",
        f"acme/orders/a b/{UUID}",
    ):
        assert layout.parse_topic_key(key) is None
    assert layout.parse_journal_key("app", "_journal/app/1/2") is None
    assert list(listing.topics(store)) == []


def test_digits_of_other_scripts_number_nothing():
    arabic = "\u0660" * 19 + "\u0661"
    assert layout.parse_slot(arabic) is None
    topic = TopicName("acme", "orders", "t")
    for key in (
        f"_catalog/{arabic}/{arabic}",
        f"_manifests/{arabic}/newest",
        f"_manifests/{0:020d}/{arabic[0]}-{0:020d}",
    ):
        assert layout.parse_topic_key(layout.topic_folder(topic) + key) is None
    assert parse_key(f"{UUID}-ledger-1\u0660") is None
    with pytest.raises(ValueError, match="is not a position"):
        Position.parse("\u0661:\u0661")


def test_a_thousand_topics_take_few_requests():
    plain, asked = MemoryStore(), []
    for number in range(1000):
        topic = TopicName("acme", "orders", f"topic-partition-{number}")
        plain.put(layout.data_key(topic, UUID), b"")
    store = MeteredStore(plain, lambda verb, _, __: asked.append(verb))
    assert len(list(listing.topics(store))) == 1000
    assert asked == ["list"] * 3
    assert len(listing.partitions(store, TopicName("acme", "orders", "topic"))) == 1000
    assert asked == ["list"] * 4


@given(st.sets(topics, max_size=6))
def test_all_topics_of_a_root_are_listed(expected: set[TopicName]):
    store = MemoryStore()
    for foreign in ("_root", "_journal/app/1/2", "_requests/app/x", "a", "a/b", "zzz"):
        store.put(foreign, b"")
    for topic in expected:
        store.put(layout.data_key(topic, UUID), b"")
        store.put(layout.catalog_folder(topic) + layout.slot_name(0), b"")
    found = list(listing.topics(store))
    assert sorted(found) == sorted(expected)


@given(topics, names, st.integers(0, layout.LAST_EPOCH), st.integers(0, 10**20 - 1))
def test_copies_and_subscriptions_tell_what_they_are(topic: TopicName, subscription: str, first: int, second: int):
    copy = layout.cursor_copies_folder(topic) + layout.slot_name(first)
    assert layout.parse_topic_key(copy) == TopicKey(topic, KeyKind.CURSORS, time=first)
    facts = layout.facts_folder(topic) + layout.slot_name(first)
    assert layout.parse_topic_key(facts) == TopicKey(topic, KeyKind.FACTS, time=first)
    record = f"{layout.subscription_folder(topic, subscription)}{layout.newest_first(first)}/{layout.slot_name(second)}"
    folder = layout.subscription_folder(topic, subscription)
    assert layout.parse_subscription_folder(topic, folder) == subscription
    assert layout.parse_subscription_folder(topic, layout.subscriptions_folder(topic)) is None
    assert layout.parse_topic_key(record) == TopicKey(
        topic, KeyKind.SUBSCRIPTION, subscription=subscription, epoch=first, slot=second
    )


@pytest.mark.parametrize("rest", ["_cursors/1", "_facts/x", "_subscriptions/a/b", "_subscriptions//1/1"])
def test_what_only_looks_like_a_copy_is_none(rest: str):
    assert layout.parse_topic_key(layout.topic_folder(TOPIC) + rest) is None


def test_the_bucket_s_scan_knows_who_names_copies_and_subscriptions():
    folders = (layout.cursor_copies_folder(TOPIC), layout.facts_folder(TOPIC))
    keys = [folder + layout.slot_name(1) for folder in folders]
    keys.append(f"{layout.subscription_folder(TOPIC, 'job')}{layout.newest_first(1)}/{layout.slot_name(0)}")
    for key in keys:
        assert placed(key, 1, NamesInForce(Journals({}), "cluster")).standing is KeyStanding.NAMED


def test_the_bucket_s_scan_leaves_alone_what_a_removed_command_wrote():
    key = f"{layout.topic_folder(TOPIC)}_protected/{layout.slot_name(1)}"
    assert layout.parse_topic_key(key) is None
    found = placed(key, 1, NamesInForce(Journals({}), "cluster"))
    assert found.standing is KeyStanding.FOREIGN
    assert found.by == "`subscriptions protect` wrote it; the last commit to support that is 1db0db3f"
