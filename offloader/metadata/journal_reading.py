"""Reading all applications' journals of a root from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from offloader.errors import FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.envelope import unwrap
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.journals import DamagedJournal, Journals
from offloader.metadata.layout import JOURNAL, epoch_folder, journal_folder
from offloader.metadata.log import NumberedLog, read_record
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def applications(store: ObjectStore) -> list[str]:
    """Every application that has a journal; one listing call a thousand."""
    return [unquote(folder.split("/")[1]) for folder in store.folders(f"{JOURNAL}/")]


def read_journals(store: ObjectStore, names: Iterable[str]) -> Journals:
    """The journals as they are now. Raises only what the store raises."""
    states: dict[str, Mapping[TopicName, TopicState]] = {}
    epochs: dict[str, int] = {}
    ended: set[str] = set()
    damaged: list[DamagedJournal] = []
    tokens: list[tuple[str, str]] = []
    for application in names:
        start = JournalStart(store, application)
        try:
            loaded = start.load()
            tokens += _tokens(store, application, loaded.epoch)
            states[application] = {topic: encoded.state for topic, encoded in start.decode(loaded).items()}
            epochs[application] = loaded.epoch
            if loaded.taken_over_by:
                ended.add(application)
        except (IntegrityError, FormatVersionError) as error:
            folder = journal_folder(application)
            named = re.search(rf"{re.escape(folder)}\d+/\d+", str(error))
            damaged.append(DamagedJournal(named.group() if named else folder, str(error)))
    return Journals(states, frozenset(ended), tuple(damaged), tuple(tokens), epochs)


def _tokens(store: ObjectStore, application: str, epoch: int) -> Iterator[tuple[str, str]]:
    """Of the epoch's records as they are now: what is removed meanwhile is none any more."""
    log = NumberedLog(store, epoch_folder(application, epoch))
    for slot in log.slots():
        try:
            key = log.key(slot)
            yield key, unwrap(key, read_record(store, key)).token
        except ObjectNotFoundError:
            continue
