"""Key names: every name has its own place, and every key tells whose it is."""

from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata import layout
from offloader.metadata.layout import KeyKind, TopicKey
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore

from .support import TOPIC

UUID = "00000000-1111-2222-3333-444444444444"
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.text("_./%ab", min_size=1, max_size=6)
topics = st.builds(TopicName, names, names, names)


def test_the_layout_is_the_design_s():
    assert layout.data_key(TOPIC, UUID) == f"acme/orders/placed-partition-3/{UUID}"
    assert layout.index_key(TOPIC, UUID) == f"acme/orders/placed-partition-3/{UUID}-index"
    assert layout.catalog_folder(TOPIC) + layout.slot_name(12) == "acme/orders/placed-partition-3/_catalog/00000000000000000012"
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
    slot = layout.catalog_folder(topic) + layout.slot_name(5)
    assert layout.parse_topic_key(slot) == TopicKey(topic, KeyKind.CATALOG, slot=5)


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
    for key in ("_root", "_journal/app/1/2", "a", "a/b", f"a/b/{UUID}", "acme/orders/t/readme", f"acme/orders/a b/{UUID}"):
        assert layout.parse_topic_key(key) is None
    assert layout.parse_journal_key("app", "_journal/app/1/2") is None
    assert list(layout.topics(store)) == []


@given(st.sets(topics, max_size=6))
def test_all_topics_of_a_root_are_listed(expected: set[TopicName]):
    store = MemoryStore()
    for foreign in ("_root", "_journal/app/1/2", "_requests/app/x", "a", "a/b", "zzz"):
        store.put(foreign, b"")
    for topic in expected:
        store.put(layout.data_key(topic, UUID), b"")
        store.put(layout.catalog_folder(topic) + layout.slot_name(0), b"")
    found = list(layout.topics(store))
    assert sorted(found) == sorted(expected)
