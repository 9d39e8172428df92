"""The nodes of managed ledgers and their cursors, page by page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.topic_nodes import PAGE, TopicTree
from offloader.model import TopicName
from offloader.state.names import encoded
from tests.fakes.memory_nodes import MemoryNodes

ROOT = "/managed-ledgers"
DOMAIN = "acme/orders/persistent"
NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
TOPICS = st.dictionaries(NAMES, st.dictionaries(NAMES, st.binary(max_size=3), max_size=3), max_size=8)


class CountingNodes(MemoryNodes):
    """`read`: how many nodes have been read one after the other."""

    read = 0

    def get_each(self, paths, ahead=64):
        for pair in super().get_each(paths, ahead):
            self.read += 1
            yield pair


def tree(topics, nodes=None) -> TopicTree:
    nodes = nodes or MemoryNodes()
    for topic, cursors in topics.items():
        nodes.put(f"{ROOT}/{DOMAIN}/{encoded(topic)}", topic.encode())
        for cursor, value in cursors.items():
            nodes.put(f"{ROOT}/{DOMAIN}/{encoded(topic)}/{encoded(cursor)}", value)
    return TopicTree(nodes, ROOT)


@given(TOPICS)
def test_every_topic_is_read_with_its_own_cursors(topics) -> None:
    found = tree(topics)
    names = found.names(DOMAIN)
    read = list(found.read(names))
    assert [name for name, _, _ in read] == names == sorted(f"{DOMAIN}/{encoded(topic)}" for topic in topics)
    values = {node.value.decode(): {name: one.value for name, one in cursors.items()} for _, node, cursors in read}
    assert values == topics
    assert {topic.name for topic in found.topics("acme/orders")} == topics.keys()


def test_what_is_not_there_is_left_out_and_the_order_is_that_of_the_names() -> None:
    found = tree({"a": {"s": b"1"}, "b": {}})
    wanted = [f"{DOMAIN}/{name}" for name in ("b", "missing", "a")]
    assert [name for name, _, _ in found.read(wanted)] == [wanted[0], wanted[2]]


def test_a_page_is_read_only_when_the_one_before_is_taken() -> None:
    nodes = CountingNodes()
    found = tree({f"t{number:04}": {"s": b"x"} for number in range(PAGE + 5)}, nodes)
    read = found.read(found.names(DOMAIN))
    next(read)
    assert nodes.read == PAGE + 1  # of the cursors no more than those of the topic that is taken
    for _ in range(PAGE - 1):
        next(read)
    assert nodes.read == 2 * PAGE  # its managed ledgers, and one cursor of each
    assert len(list(read)) == 5
    assert nodes.read == 2 * (PAGE + 5)


def test_a_cursor_that_is_deleted_meanwhile_is_left_out_and_others_keep_their_names() -> None:
    nodes = MemoryNodes()
    found = tree({"a": {"s": b"1", "t": b"2"}, "b": {"u": b"3"}}, nodes)
    read = found.read([f"{DOMAIN}/a", f"{DOMAIN}/b"])
    assert next(read)[2].keys() == {"s", "t"}
    nodes.delete(f"{ROOT}/{DOMAIN}/b/u")
    assert next(read)[2] == {}


def test_the_versions_of_all_nodes_are_kept() -> None:
    nodes = MemoryNodes()
    found = tree({"a": {"s": b"1"}}, nodes)
    nodes.put(f"{ROOT}/{DOMAIN}/a", b"a")
    ((_, node, cursors),) = found.read([f"{DOMAIN}/a"])
    assert (node.version, cursors["s"].version) == (1, 0)


def test_namespaces_of_the_old_form_have_a_cluster() -> None:
    nodes = MemoryNodes()
    for path in (DOMAIN, "acme/west/orders/persistent", "acme/pages/non-persistent"):
        nodes.put(f"{ROOT}/{path}/t", b"")
    found = TopicTree(nodes, ROOT)
    assert found.namespaces() == ["acme/orders"]
    assert sorted(found.domains(with_clusters=True)) == [DOMAIN, "acme/west/orders/persistent"]
    assert found.topics("acme/orders") == [TopicName("acme", "orders", "t")]
    assert found.topics("acme/none") == []
