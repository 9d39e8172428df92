"""What each page shows: values for its template, from a few requests to the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from offloader.archive.messages.message import MAX_MESSAGE, Message, MessageProblem
from offloader.archive.peek.entry import is_sound, preview
from offloader.archive.peek.place import Peeked, owner_facts, peek_facts
from offloader.archive.records import LazyTopicRecords
from offloader.archive.selection import Selection, parse_bound, selected
from offloader.archive.shown import size_of_value
from offloader.errors import ConfigError, FatalError
from offloader.metadata import layout
from offloader.metadata.history import History
from offloader.metadata.manifest import row_of
from offloader.metadata.state import CatalogHead
from offloader.model import MIB, Loss, Position, Segment, TopicName
from offloader.pages.rendering import Renderer, url
from offloader.pages.site import Page, PageAnswer, PageRequest
from offloader.viewer.directory import TopicRow
from offloader.viewer.downloads import FORMS, items_of, lines_of
from offloader.viewer.rows import EntryRow, entry_row, few_of, record_row, start_of, state_of
from offloader.viewer.schemas import views_of
from offloader.viewer.timeline import Piece, timeline, title
from offloader.viewer.viewed import MUCH, ViewedArchive, outline, position_named, topic_named

T = TypeVar("T")

TOPICS_A_PAGE = 50
NAMES_A_PAGE = 200
RECORDS_A_PAGE = 64
ENTRIES_A_PAGE = 50
BYTES_A_PAGE = 32 * MIB  # of entries
MESSAGES_A_PAGE = 50
ROWS = 200  # of the tables of a segment

WORDS = {
    MessageProblem.UNDECRYPTABLE: "It is encrypted, and no key that was given opens it: start the pages with "
    "--private-key NAME=FILE.",
    MessageProblem.DAMAGED: "Its bytes are no message. `offloader verify` says whether the stored object is damaged, or"
    " whether it was written like this.",
    MessageProblem.TOO_LARGE: "It is larger than is opened here; `offloader topics cat --max-message-size` opens it.",
    MessageProblem.CHUNKS_MISSING: "Some of its chunks are not in the archive.",
    MessageProblem.CHUNKS_TOO_FAR: "Its first chunks lie further back than is read here; `offloader topics cat` from "
    "there on puts it together.",
    MessageProblem.CHUNKS_DROPPED: "Too many chunked messages were open at once.",
}


@dataclass(frozen=True)
class ArchivePages:
    """`clock`: seconds that only grow."""

    archive: ViewedArchive
    renderer: Renderer
    clock: Callable[[], float]

    def paths(self) -> Mapping[str, Page]:
        """The pages by their paths."""
        return {
            "/": self.first,
            "/tenant": self.tenant,
            "/namespace": self.namespace,
            "/search": self.search,
            "/topic": self.topic,
            "/record": self.record,
            "/entries": self.entries,
            "/entry": self.entry,
            "/value": self.value,
            "/download": self.download,
        }

    def first(self, request: PageRequest) -> PageAnswer:
        """The tenants."""
        found = self.archive.directory.tenants()
        names, turn = _turned(found.names, request, NAMES_A_PAGE)
        return self._page("tenants.html", names=names, turn=turn, complete=found.complete, url_of=self.archive.url)

    def tenant(self, request: PageRequest) -> PageAnswer:
        """A tenant's namespaces."""
        name = _needed(request, "name")
        found = self.archive.directory.namespaces(name)
        names, turn = _turned(found.names, request, NAMES_A_PAGE)
        return self._page("tenant.html", name=name, names=names, turn=turn, complete=found.complete)

    def namespace(self, request: PageRequest) -> PageAnswer:
        """A namespace's topics."""
        name, wanted = _needed(request, "name"), request.get("filter").casefold()
        if not all(name.partition("/")[::2]):
            raise ConfigError(f"{name!r} is no namespace; write TENANT/NAMESPACE")
        rows, complete = self.archive.directory.topics(name)
        matching = [row for row in rows if wanted in row.name.name.casefold()]
        shown, turn = _turned(matching, request, TOPICS_A_PAGE)
        return self._page(
            "namespace.html",
            name=name,
            rows=self._topic_rows(shown),
            filter=request.get("filter"),
            count=len(matching),
            turn=turn,
            complete=complete,
        )

    def search(self, request: PageRequest) -> PageAnswer:
        """Topics by a part of their name; the topic itself where it is a whole one."""
        text = request.get("q")
        if not text:
            return PageAnswer.see("/")
        try:
            topic = TopicName.parse(text)
        except ValueError:
            topic = None
        if topic is not None and (self.archive.records(topic) or self.archive.opened.partitions(topic)):
            return PageAnswer.see(url("/topic", name=topic))
        found = self.archive.directory.search(text)
        return self._page("search.html", q=text, rows=found.rows, complete=found.complete)

    def topic(self, request: PageRequest) -> PageAnswer:
        """A topic's segments on a time axis, and some of its records; the partitions of a partitioned one."""
        name = topic_named(_needed(request, "name"))
        records = self.archive.records(name)
        partitions = self.archive.opened.partitions(name) if name.partition < 0 else []
        if records is None:
            if not partitions:
                raise self.archive.opened.unknown(name, "; the first page lists what is")
            return self._partitions(name, partitions, request)
        history, head = records.recorded, records.head
        first = request.number("first", most=head.next_slot)
        after = request.number("after", head.next_slot, head.next_slot)
        if after < first:
            raise ConfigError("after: it comes before first; exchange the two")
        pieces = outline(history, first, after)
        turn = PageTurn.of(request, after - first, RECORDS_A_PAGE)
        newest = after - turn.start
        shown = _records(history, max(newest - RECORDS_A_PAGE, first), newest)
        return self._page(
            "topic.html",
            topic=name,
            head=head,
            state=state_of(head),
            figure=timeline(pieces, head.removed.told, lambda piece: _link(name, piece)),
            first=first,
            after=after,
            whole=(first, after) == (0, head.next_slot),
            pieces=[piece for piece in pieces if piece.count > 1],
            title=title,
            rows=[record_row(piece, head) for piece in reversed(shown)],
            turn=turn,
            deleted=head.removed.told,
            partitions=len(partitions),
        )

    def _partitions(self, name: TopicName, partitions: Sequence[TopicName], request: PageRequest) -> PageAnswer:
        shown, turn = _turned(partitions, request, TOPICS_A_PAGE)
        rows = self._topic_rows([TopicRow(each) for each in shown])
        return self._page("partitions.html", topic=name, rows=rows, count=len(partitions), turn=turn)

    def record(self, request: PageRequest) -> PageAnswer:
        """One record of the catalog: a segment with all that it is made of, a loss."""
        name = topic_named(_needed(request, "topic"))
        records = self._records(name)
        head = records.head
        slot = request.number("slot", most=max(head.next_slot - 1, 0))
        catalog = records.recorded.catalog(range(slot, slot + 1))
        piece = _records(records.recorded, slot, slot + 1)[0]
        segment = next(iter(catalog.segments), None)
        return self._page(
            "record.html",
            topic=name,
            slot=slot,
            last=head.next_slot - 1,
            row=record_row(piece, head),
            record=piece.record,
            segment=segment,
            facts=next(iter(owner_facts(piece.record).values())) if isinstance(piece.record, Segment | Loss) else {},
            objects=self._objects(name, segment) if segment is not None else [],
            rows=ROWS,
        )

    def _objects(self, topic: TopicName, segment: Segment) -> list[tuple[str, str, str]]:
        """Kind, key, and what the store says of it."""
        keys = [("record", layout.record_key(topic, segment.uuid))]
        if segment.size:
            data, index = layout.data_key(topic, segment.uuid), layout.index_key(topic, segment.uuid)
            keys = [("data", data), ("index", index), *keys]
        found = []
        for kind, key in keys:
            stat = self.archive.opened.store.stat(key)
            found.append((kind, key, "not there" if stat is None else f"{stat.size:,} bytes"))
        return found

    def entries(self, request: PageRequest) -> PageAnswer:
        """Entries from a position or a time on."""
        name = topic_named(_needed(request, "topic"))
        topic, selection = self.archive.topic(name), _selection(request)
        if selection.published_from is not None:
            position = topic.seek(time=selection.published_from)
            if position is None:
                raise FatalError(f"{name}: nothing was published at or after {request.get('from')}")
            selection = Selection(position)
        found = topic.items(selection)
        rows, size, following = list[EntryRow](), 0, None
        with closing(found):  # type: ignore[type-var]
            for item in found:
                if len(rows) == ENTRIES_A_PAGE or size > BYTES_A_PAGE:
                    following = start_of(item)
                    break
                rows.append(entry_row(item))  # its bytes are let go
                size += rows[-1].size
        return self._page(
            "entries.html",
            topic=name,
            start=request.get("from"),
            rows=rows,
            following=following,
        )

    def entry(self, request: PageRequest) -> PageAnswer:
        """One position: where it is stored, its messages, every field."""
        name, position = topic_named(_needed(request, "topic")), position_named(_needed(request, "at"))
        topic = self.archive.topic(name)
        found = topic.peek(position)
        messages = self.archive.messages(topic, found)  # refuses what is too much, before all of it is taken apart
        facts = peek_facts(found, MAX_MESSAGE)
        chosen = _chosen(request, messages)
        shown, turn = _turned(messages, request, MESSAGES_A_PAGE)
        return self._page(
            "entry.html",
            topic=name,
            found=found,
            facts=facts,
            few=few_of(facts),
            sound="entry" not in facts or is_sound(facts["entry"]),
            messages=[(each, size_of_value(each), preview(each.value or b"")) for each in shown],
            count=len(messages),
            turn=turn,
            chosen=chosen,
            **self._views(name, chosen),
            neighbours=_neighbours(found),
        )

    def _views(self, topic: TopicName, message: Message | None) -> dict[str, object]:
        if message is None or message.value is None:
            return {"views": [], "no_schema": "", "problem": _words(message), "size": 0}
        schema, why = self.archive.schema(topic, message)
        return {"views": views_of(message.value, schema), "no_schema": why, "problem": "", "size": len(message.value)}

    def value(self, request: PageRequest) -> PageAnswer:
        """The bytes of a message's value, or of the whole entry."""
        name, position = topic_named(_needed(request, "topic")), position_named(_needed(request, "at"))
        topic = self.archive.topic(name)
        found = topic.peek(position)
        if found.stored is None:
            raise FatalError(f"{name}: there is no entry at {position}")
        where = f"{name.name}-{position.ledger}-{position.entry}"
        if request.get("entry"):
            return PageAnswer.download(found.stored.entry.data, f"{where}.entry")
        chosen = _chosen(request, self.archive.messages(topic, found))
        if chosen is None or chosen.value is None:
            raise FatalError(f"{name}: the message at {position} has no value: {_words(chosen) or 'it is null'}")
        batch = "" if chosen.batch_index < 0 else f"-{chosen.batch_index}"
        return PageAnswer.download(chosen.value, f"{where}{batch}.bin")

    def download(self, request: PageRequest) -> PageAnswer:
        """A range, as `topics cat` prints it."""
        name, form = topic_named(_needed(request, "topic")), request.get("format") or "json"
        if form not in FORMS:
            raise ConfigError(f"format: {form!r} is none of {', '.join(FORMS)}")
        topic, entries = self.archive.topic(name, MUCH), request.get("what") == "entries"
        found = items_of(topic, _selection(request), self.archive.keys, entries=entries)
        body = lines_of(found, form, self.clock)
        ending = "jsonl" if form == "json" else "txt"
        return PageAnswer.download(body, f"{name.name}.{ending}")

    def _topic_rows(self, rows: Sequence[TopicRow]) -> list[tuple[TopicRow, CatalogHead | None, str]]:
        """With what the catalogs of those that have no partitions say, or why that cannot be read."""
        heads = self.archive.heads([row.name for row in rows if not row.partitions])
        return [(row, heads.found.get(row.name), heads.failed.get(row.name, "")) for row in rows]

    def _records(self, topic: TopicName) -> LazyTopicRecords:
        records = self.archive.records(topic)
        if records is None:
            raise self.archive.opened.unknown(topic, "; the first page lists what is")
        return records

    def _page(self, template: str, **values: object) -> PageAnswer:
        return PageAnswer(self.renderer.render(template, **values))


@dataclass(frozen=True, slots=True)
class PageTurn:
    """Where a page of many stands, and the numbers of those before and after it (None: there is none)."""

    number: int
    pages: int
    start: int
    before: int | None
    after: int | None

    @classmethod
    def of(cls, request: PageRequest, count: int, size: int) -> PageTurn:
        """Pages are counted from 1. Raises ConfigError."""
        pages = max(-(-count // size), 1)
        number = min(max(request.number("page", 1), 1), pages)
        before, after = number - 1 or None, number + 1 if number < pages else None
        return cls(number, pages, (number - 1) * size, before, after)


def _turned(found: Sequence[T], request: PageRequest, size: int) -> tuple[Sequence[T], PageTurn]:
    turn = PageTurn.of(request, len(found), size)
    return found[turn.start : turn.start + size], turn


def _needed(request: PageRequest, name: str) -> str:
    found = request.query.get(name, "")  # names may begin and end with spaces
    if not found:
        raise ConfigError(f"{name}: the address does not say it")
    return found


def _selection(request: PageRequest) -> Selection:
    """What lies between the positions or times of an address. Raises ConfigError."""
    try:
        begin, end = (parse_bound(text) if (text := request.get(name)) else None for name in ("from", "to"))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return selected(begin, end)


def _records(history: History, first: int, after: int) -> list[Piece]:
    numbers = range(first, after)
    return [
        Piece(number, number + 1, row_of(written.record), written.record)
        for number, written in zip(numbers, history.read(numbers), strict=True)
    ]


def _link(topic: TopicName, piece: Piece) -> str:
    if piece.count == 1:
        return url("/record", topic=topic, slot=piece.first)
    return url("/topic", name=topic, first=piece.first, after=piece.after)


def _chosen(request: PageRequest, messages: Sequence[Message]) -> Message | None:
    """The only message, or the one of a batch that is asked for."""
    if len(messages) == 1 and not request.get("batch"):
        return messages[0]
    if not request.get("batch"):
        return None
    number = request.number("batch")
    found = next((message for message in messages if max(message.batch_index, 0) == number), None)
    if found is None:
        raise FatalError(f"there is no message {number} in this entry")
    return found


def _words(message: Message | None) -> str:
    return WORDS[message.problem] if message is not None and message.problem is not None else ""


def _neighbours(found: Peeked) -> tuple[Position | None, Position | None]:
    """The entry ids before and after, as far as the same ledger may have them."""
    position = found.position
    return position.previous_entry if position.entry > 0 else None, position.next_entry
