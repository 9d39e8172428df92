"""The pages show what is archived, in few requests, and whatever a producer wrote stays text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.errors import StoreUnavailableError
from offloader.metadata import layout
from offloader.model import MIB, Position, SegmentLayout, TopicName
from offloader.pages.site import Site
from offloader.printable import printable
from offloader.storage.memory import MemoryStore
from offloader.viewer import pages, viewed
from tests.archive.messages.encoder import Producer, Sent, batch, single
from tests.archive.support import Archive
from tests.format.support import Stored
from tests.pages.calling import Page, Reply, ask
from tests.viewer.example import BIDI, KIND_AT, KINDS, ORDERS, SCRIPT, every_kind, write
from tests.viewer.support import site_of


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    found = MemoryStore()
    write(found)
    return found


@pytest.fixture(scope="module")
def site(store: MemoryStore) -> Site:
    return site_of(store)


def get(site: Site, path: str, **query: object) -> Reply:
    return ask(site, f"{path}?{urlencode({k.rstrip('_'): str(v) for k, v in query.items()}, errors='surrogatepass')}")


def page(site: Site, path: str, **query: object) -> Page:
    reply = get(site, path, **query)
    assert reply.status == 200, reply.text
    return Page(reply.text)


def kind(site: Site, name: str, **query: object) -> Page:
    return page(site, "/entry", topic=KINDS, at=f"30:{KIND_AT[name]}", **query)


def test_from_the_first_page_everything_can_be_reached(site: Site) -> None:
    """Links lead to pages that are there, and to every segment and entry that is shown."""
    seen: dict[str, str] = {}
    due = ["/"]
    while due and len(seen) < 200:
        target = due.pop(0)
        if target in seen:
            continue
        reply = ask(site, target)
        assert reply.status in (200, 404), f"{target}: {reply.status}"
        if reply.status == 404:
            assert "/entry?" in target, f"{target} is linked and not there"  # the entry after a ledger's last
            continue
        seen[target] = reply.headers["Content-Type"]
        if reply.headers["Content-Type"].startswith("text/html"):
            due += [
                href for tag, attributes in Page(reply.text).elements if tag == "a" and (href := linked(attributes))
            ]
    kinds = {urlsplit(target).path for target in seen}
    assert {"/", "/tenant", "/namespace", "/topic", "/record", "/entry", "/entries", "/download"} <= kinds
    records = {parse_qs(urlsplit(target).query)["slot"][0] for target in seen if target.startswith("/record")}
    assert len(records) > 20


def linked(attributes: dict[str, str | None]) -> str | None:
    href = attributes.get("href") or ""
    return href if href.startswith("/") and not href.startswith("/static") else None


def test_tables_have_headers_and_figures_say_what_they_are(site: Site) -> None:
    shown = page(site, "/topic", name=ORDERS)
    assert all(attributes.get("scope") for tag, attributes in shown.elements if tag == "th")
    figures = [attributes for tag, attributes in shown.elements if tag == "svg" and attributes.get("class") == "plot"]
    assert all(attributes["aria-label"] and attributes["role"] == "img" for attributes in figures)
    assert figures
    assert not any(
        "style" in attributes or any(k.startswith("on") for k in attributes) for _, attributes in shown.elements
    )


def test_a_topic_shows_segments_gaps_losses_and_deletions(site: Site) -> None:
    shown = page(site, "/topic", name=ORDERS)
    bars = {attributes["class"] for tag, attributes in shown.elements if tag == "rect"}
    assert bars == {"good", "warn", "bad", "gone"}
    assert "3 segments of" in shown.text
    assert "deleted by the policy keepFor 60 d" in shown.text
    assert "claimed by app" in shown.text


def test_a_loss_and_a_deleted_segment_say_what_became_of_them(site: Site) -> None:
    assert "gone before they were offloaded: trimmed" in page(site, "/record", topic=ORDERS, slot=18).text
    deleted = page(site, "/record", topic=ORDERS, slot=1)
    assert "not there" in deleted.text
    assert "There is no entry here: deleted by" in page(site, "/entry", topic=ORDERS, at="12:0").text
    assert "There is no entry here: lost: trimmed" in page(site, "/entry", topic=KINDS, at="30:16").text
    assert "a gap (marker)" in page(site, "/entry", topic=KINDS, at="30:14").text


def test_partitions_have_an_overview(site: Site) -> None:
    shown = page(site, "/topic", name="shop/orders/shipped")
    assert "3 archived partitions" in shown.text
    assert "3 partitions" in page(site, "/namespace", name="shop/orders").text


def test_payloads_are_shown_by_their_schema_as_json_text_and_hex(site: Site) -> None:
    assert kind(site, "json").by_id["view-1"] == '{\n  "order": 7,\n  "items": [\n    "apple",\n    "pear"\n  ]\n}'
    assert json.loads(kind(site, "avro").by_id["view-1"]) == {"id": 77, "customer": "Zo\u00eb", "paid": True}
    assert "The schema does not fit" in kind(site, "bad-avro").text
    assert "schema version 9 is not archived" in kind(site, "unknown-schema").text
    assert kind(site, "binary").by_id["view-1"].startswith("00000000  00 01 02 03")
    assert "The value is null." in kind(site, "null").text
    assert "no key that was given opens it" in kind(site, "encrypted").text
    assert "not what its frame says" in kind(site, "broken").text
    assert "Consumers get nothing of this entry by itself" in kind(site, "marker").text
    assert "a value in two chunks a value in two chunks" in kind(site, "chunk-2").by_id["view-1"]


def test_of_a_batch_each_message_can_be_looked_at(site: Site) -> None:
    assert "5 messages in a batch" in kind(site, "batch").text
    shown = kind(site, "batch", batch=3)
    assert (shown.by_id["key"], shown.by_id["view-1"]) == ("key-3", "number 3")
    assert get(site, "/entry", topic=KINDS, at=f"30:{KIND_AT['batch']}", batch=9).status == 404


def test_what_is_a_script_stays_text(site: Site) -> None:
    shown = kind(site, "script")
    assert shown.by_id["key"] == shown.by_id["view-1"] == SCRIPT
    assert shown.tags.count("script") == 1  # our own
    assert "img" not in shown.tags[shown.tags.index("main") :]
    hidden = kind(site, "bidi")
    assert hidden.by_id["key"] == printable(BIDI)
    assert not any(char in hidden.text for char in "\u202e\x1b\x00")


def test_values_and_entries_are_downloads(site: Site) -> None:
    at = f"30:{KIND_AT['script']}"
    value, entry = get(site, "/value", topic=KINDS, at=at), get(site, "/value", topic=KINDS, at=at, entry=1)
    assert value.body == SCRIPT.encode()
    assert entry.body == every_kind()[KIND_AT["script"]]
    for reply in (value, entry):
        assert reply.headers["Content-Type"] == "application/octet-stream"
        assert reply.headers["Content-Disposition"].startswith('attachment; filename="every-kind-30-1.')


def test_a_range_is_a_download_that_says_how_it_ended(site: Site) -> None:
    reply = get(site, "/download", topic=ORDERS, from_="12:180", to="12:182")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert [line["position"] for line in lines[:-1]] == ["12:180", "12:181", "12:182"]
    assert lines[-1] == {"end": "complete", "count": 3}
    text = get(site, "/download", topic=ORDERS, from_="12:180", to="12:182", format="text").text
    assert text.splitlines()[-1] == "# 3: complete"
    entries = get(site, "/download", topic=KINDS, what="entries", format="hex").text
    assert "is missing: lost" in entries


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/topic", {}, 400),
        ("/topic", {"name": "shop/orders/none"}, 404),
        ("/topic", {"name": "non-persistent://a/b/c"}, 400),
        ("/topic", {"name": "\ud800"}, 404),
        ("/topic", {"name": ORDERS, "page": "x"}, 400),
        ("/topic", {"name": ORDERS, "page": "9" * 30}, 400),
        ("/topic", {"name": ORDERS, "first": 5, "after": 2}, 400),
        ("/topic", {"name": ORDERS, "after": 10**9}, 400),
        ("/record", {"topic": ORDERS, "slot": 10**6}, 400),
        ("/entry", {"topic": ORDERS, "at": "1"}, 400),
        ("/entry", {"topic": ORDERS, "at": "999:1"}, 404),
        ("/entries", {"topic": ORDERS, "from": "yesterday"}, 400),
        ("/entries", {"topic": ORDERS, "from": "2999-01-01T00:00:00Z"}, 404),
        ("/download", {"topic": ORDERS, "format": "exe"}, 400),
        ("/download", {"topic": ORDERS, "from": "12:9", "to": "12:1"}, 400),
        ("/value", {"topic": ORDERS, "at": "12:0"}, 404),
    ],
)
def test_bad_input_is_one_line(site: Site, path: str, query: dict[str, object], status: int) -> None:
    reply = get(site, path, **query)
    assert reply.status == status
    assert "Traceback" not in reply.text


def test_entries_are_found_by_position_and_time_and_have_a_next_page(site: Site) -> None:
    first = page(site, "/entries", topic=ORDERS, from_="12:300")
    links = [href for tag, attributes in first.elements if (href := attributes.get("href")) and "/entries?" in href]
    assert any("from=12%3A350" in href for href in links)
    timed = page(site, "/entries", topic=ORDERS, from_="2026-11-21T12:00:00Z")
    assert "2026-11-21 12:00:00" in timed.text
    assert "12:00:00" in next(each for each in timed.texts if "2026-11-21" in each)


def test_topics_are_found_by_a_part_of_their_name_or_at_once_by_the_whole(site: Site) -> None:
    assert "every-kind" in page(site, "/search", q="EVERY").text
    assert get(site, "/search", q=str(ORDERS)).status == 303
    assert get(site, "/search", q="shop/orders/shipped").status == 303
    assert "No topic is named like this" in page(site, "/search", q="<none>").text


def test_a_store_that_does_not_answer_is_one_line(store: MemoryStore) -> None:
    class Silent(MemoryStore):
        def folders(self, prefix: str = "") -> Iterator[str]:
            raise StoreUnavailableError("memory://: no answer")

        def read(self, key: str, offset: int = 0, length: int | None = None):
            raise StoreUnavailableError("memory://: no answer")

        stat = read

        def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
            raise StoreUnavailableError("memory://: no answer")

    silent = site_of(Silent())
    for target in ("/", f"/topic?name={ORDERS}", f"/entry?topic={ORDERS}&at=1:1", f"/download?topic={ORDERS}"):
        reply = ask(silent, target)
        assert reply.status == 503
        assert "memory://: no answer" in Page(reply.text).text


def test_damage_is_told_in_its_place() -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.claim(1, 0)
    segment = archive.add([Stored(1, n, single(Producer(), Sent(b"x" * 50)).data) for n in range(5)])
    key = layout.data_key(archive.topic, segment.uuid)
    data = bytearray(store.read(key)[0])
    data[300] ^= 1
    store.delete([key])
    store.put(key, bytes(data))
    assert "damaged" in page(site_of(store), "/entries", topic=archive.topic).text
    store.delete([layout.slot_key(archive.topic, 0, 1)])
    store.put(layout.slot_key(archive.topic, 0, 1), b"no record")
    assert get(site_of(store), "/topic", name=archive.topic).status == 503
    assert "cannot be read" in page(site_of(store), "/namespace", name="public/default").text


def test_what_is_huge_is_cut_or_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.claim(1, 0)
    many = tuple((f"name {number}", "x" * 100) for number in range(1000))
    huge = single(Producer(), Sent(b"x" * 2 * MIB, key=b"\x00" * MIB, properties=many)).data
    several = batch(Producer(), [Sent(b"") for _ in range(50)]).data
    archive.add([Stored(1, 0, huge), Stored(1, 1, several)], cuts=SegmentLayout())
    reply = get(site_of(store), "/entry", topic=archive.topic, at="1:0")
    assert (reply.status, len(reply.body) < MIB) == (200, True)
    assert "more)" in reply.text
    assert "1,000 in all" in reply.text
    monkeypatch.setattr(viewed, "MOST_MESSAGES", 49)
    assert "too many for a page" in get(site_of(store), "/entry", topic=archive.topic, at="1:1").text


def test_many_fields_of_one_entry_are_no_page_of_many_megabytes() -> None:
    store = MemoryStore()
    archive = Archive(store)
    archive.claim(1, 0)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()
    group = b"\xc3\x3e" + b"\xc0\x3e\x00" * 200 + b"\xc4\x3e"  # fields that no version of Pulsar has
    metadata += b"\xc3\x3e" + group * 200 + b"\xc4\x3e"
    archive.add([Stored(1, 0, len(metadata).to_bytes(4) + metadata + b"x")])
    reply = get(site_of(store), "/entry", topic=archive.topic, at="1:0")
    assert (reply.status, len(reply.body) < 2 * MIB) == (200, True)
    assert "There is more" in reply.text


@pytest.mark.parametrize("name", ["public", "/", "public/", "/default"])
def test_what_is_no_namespace_is_told_so(site: Site, name: str) -> None:
    assert "is no namespace" in get(site, "/namespace", name=name).text


def test_a_page_of_large_entries_has_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BYTES_A_PAGE", 1_000)
    store = MemoryStore()
    archive = Archive(store)
    archive.claim(1, 0)
    archive.add([Stored(1, number, single(Producer(), Sent(b"x" * 600)).data) for number in range(5)])
    assert "From 1:2 on" in page(site_of(store), "/entries", topic=archive.topic).text.replace("0:1:2", "1:2")


@pytest.mark.parametrize("part", ["a\u202eb", "a\u3000b", "a\\b", 'a"<b>'])
def test_forms_send_names_as_they_are(part: str) -> None:
    store = MemoryStore()
    topic = TopicName("public", part, part)
    archive = Archive(store, topic)
    archive.claim(1, 0)
    archive.add([Stored(1, 0, single(Producer(), Sent(b"x")).data)])
    site = site_of(store)
    pages_with_forms = [page(site, "/topic", name=topic), page(site, "/entries", topic=topic)]
    sent = [a["value"] for each in pages_with_forms for _, a in each.elements if a.get("name") == "topic"]
    assert sent == [str(topic)] * 3
    names = [a["value"] for _, a in page(site, "/namespace", name=topic.namespace).elements if a.get("name") == "name"]
    assert names == [topic.namespace]


TEXTS = st.text() | st.sampled_from([SCRIPT, BIDI, "</pre>", "&lt;", "{{ 7 * 7 }}", "\n", "\r\n"])


@settings(max_examples=40)
@given(TEXTS, TEXTS, st.binary(max_size=80) | TEXTS.map(lambda text: text.encode("utf-8", "replace")))
def test_whatever_a_producer_writes_is_exactly_that_text(name: str, key: str, value: bytes) -> None:
    """And the page has no element more than it has of a harmless message."""
    name, key = (each.encode("utf-8", "replace").decode() for each in (name, key))
    shown, harmless = (entry_page(name, key, value), entry_page("a", "b", value))
    assert shown.tags == harmless.tags
    assert shown.by_id.get("key", "") == printable(key)
    assert printable(name) in shown.by_id["properties"]


def entry_page(name: str, key: str, value: bytes) -> Page:
    store = MemoryStore()
    topic = TopicName("public", "default", f"t {name[:40]} ")
    archive = Archive(store, topic)
    archive.claim(1, 0)
    sent = Sent(value, key=key.encode(), properties=((name, key),))
    archive.add([Stored(1, 0, single(Producer(name=name), sent).data)])
    return page(site_of(store), "/entry", topic=topic, at=Position(0, 1, 0))


def test_many_topics_are_shown_a_page_at_a_time() -> None:
    store = MemoryStore()
    for number in range(120):
        Archive(store, TopicName("a", "b", f"t{number:04d}")).claim(1, 0)
    site = site_of(store)
    assert "Page 1 of 3" in page(site, "/namespace", name="a/b").text
    assert "t0119" in page(site, "/namespace", name="a/b", page=3).text
    assert "1 topics" in page(site, "/namespace", name="a/b", filter="0042").text
