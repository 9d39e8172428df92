"""The last entries of the ledgers of cursors named `__compaction`, from bookies, without fencing.

A ledger that is closed says which entry is its last one. Of an open one each bookie says its own last entry; the
greatest counts where as many bookies have it as an acknowledgement takes, and where so few are silent that nothing
acknowledged can be hidden with them. In doubt it is not known, and whatever depends on it is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass
from functools import partial

from offloader.bookkeeper.api import Bookies
from offloader.bookkeeper.entry_codec import decode, digest_for
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import NO_ENTRY, LedgerMetadata, StoredEntry
from offloader.errors import DamagedRecordError, LedgerNotFoundError, OffloadError
from offloader.lifecycle.ledgers.decoding import decode_last_entry, or_unreadable
from offloader.lifecycle.ledgers.patient import PatientNodes
from offloader.lifecycle.ledgers.references import UnreadableNode
from offloader.state.subscription import CursorState

AT_ONCE = 200  # ledgers whose bookies are asked at a time

Answers = dict[str, Future[bytes]]


@dataclass(frozen=True, slots=True)
class LastEntries:
    """`path_of`: of a ledger's node. `timeout`: seconds that a bookie may take, connecting included."""

    nodes: PatientNodes
    bookies: Bookies
    path_of: Callable[[int], str]
    timeout: float

    def of(self, ledgers: Mapping[str, int]) -> dict[str, CursorState | UnreadableNode]:
        """By managed ledger. Raises MetadataUnavailableError."""
        found: dict[str, CursorState | UnreadableNode] = {}
        left = list(ledgers.items())
        for begin in range(0, len(left), AT_ONCE):
            found.update(self._some(dict(left[begin : begin + AT_ONCE])))
        return found

    def _some(self, ledgers: Mapping[str, int]) -> Iterator[tuple[str, CursorState | UnreadableNode]]:
        known = dict(zip(ledgers, self._metadata(list(ledgers.values())), strict=True))
        asked = {name: self._ask(ledgers[name], one) for name, one in known.items() if isinstance(one, LedgerMetadata)}
        for name, one in known.items():
            if isinstance(one, UnreadableNode):
                yield name, one
                continue
            try:
                entry = self._last(ledgers[name], one, asked[name])
            except OffloadError as error:
                yield name, UnreadableNode(0, f"the last entry of ledger {ledgers[name]}: {error}")
            else:
                yield name, or_unreadable(partial(decode_last_entry, entry.payload, ledgers[name]), 0)

    def _metadata(self, ledgers: list[int]) -> Iterator[LedgerMetadata | UnreadableNode]:
        paths = [self._path(ledger) for ledger in ledgers]
        nodes = dict(self.nodes.get_each(path for path in paths if path))
        for ledger, path in zip(ledgers, paths, strict=True):
            node = nodes.get(path)
            try:
                yield UnreadableNode(0, f"there is no ledger {ledger}") if node is None else decode_metadata(node.value)
            except DamagedRecordError as error:
                yield UnreadableNode(0, f"ledger {ledger}: {error}")

    def _path(self, ledger: int) -> str:
        """Empty where no ledger can have such an id."""
        try:
            return self.path_of(ledger)
        except LedgerNotFoundError:
            return ""

    def _ask(self, ledger: int, metadata: LedgerMetadata) -> Answers:
        if metadata.closed:
            entry = metadata.last_entry
            bookies = metadata.write_set(entry) if entry != NO_ENTRY else ()
        else:
            entry, bookies = NO_ENTRY, metadata.fragments[-1].ensemble
        return {bookie: self.bookies.read(bookie, ledger, entry) for bookie in bookies}

    def _last(self, ledger: int, metadata: LedgerMetadata, asked: Answers) -> StoredEntry:
        """Raises LedgerNotFoundError and others: it is not known."""
        heard = self._heard(ledger, metadata, asked, metadata.last_entry if metadata.closed else None)
        if metadata.closed:
            if not heard:
                raise LedgerNotFoundError("no bookie gave it")
            return next(iter(heard.values()))
        if len(asked) - len(heard) >= metadata.ack_quorum:
            raise LedgerNotFoundError(f"only {len(heard)} of {len(asked)} bookies said what they have")
        last = max(one.entry for one in heard.values())
        behind = [bookie for bookie in metadata.write_set(last) if bookie in heard and heard[bookie].entry < last]
        again = {bookie: self.bookies.read(bookie, ledger, last) for bookie in behind}
        heard.update(self._heard(ledger, metadata, again, last))
        copies = Counter(one.payload for one in heard.values() if one.entry == last)
        payload, count = copies.most_common(1)[0]
        if count < metadata.ack_quorum:
            raise LedgerNotFoundError(f"entry {last} is not on as many bookies as confirm it")
        return next(one for one in heard.values() if one.entry == last and one.payload == payload)

    def _heard(
        self, ledger: int, metadata: LedgerMetadata, asked: Answers, entry: int | None
    ) -> dict[str, StoredEntry]:
        """The sound answers. Whoever denies, or is silent, says nothing of what is acknowledged."""
        digest, heard = digest_for(metadata), {}
        for bookie, future in asked.items():
            try:
                heard[bookie] = decode(future.result(self.timeout), digest, ledger, entry)
            except (OffloadError, NoAnswerError):
                future.cancel()
        return heard
