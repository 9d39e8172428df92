"""What is found in an object against what its record says: nothing missing, nothing wrong, nothing more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import groupby

from offloader.archive.items import DAMAGED, EntryRun, Missing, ReadItem
from offloader.archive.object_range import ObjectRange, Run, SplitPoint
from offloader.archive.reading.checksums import damaged_entries, uncovered_entries
from offloader.archive.reading.scan import BrokenEntry
from offloader.errors import DamagedObjectError, OffloadError
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.model import EntryRange


class OnDamage(StrEnum):
    """What entries that cannot be read do: reading fails, or goes on and tells of them as missing."""

    FAIL = "fail"
    SKIP = "skip"


class RangeVerifier:
    """Goes through a range's positions, in order. Raises DamagedObjectError that names object, offset and position, or,
    where damage is skipped, gives what could not be read as Missing."""

    def __init__(self, object_range: ObjectRange, on_damage: OnDamage) -> None:
        self._range = object_range
        self._skip = on_damage is OnDamage.SKIP
        self._runs = iter(object_range.runs)
        self._run: Run | None = None
        self._entry = 0  # the next one of the run
        self._gaps: list[Run] = []  # between the run before and this one
        self._why = ""
        self._deleted = False
        self._done = False

    @property
    def satisfied(self) -> bool:
        """Whether nothing that may follow in the object matters any more."""
        return self._done and not self._range.ends_object

    def begin(self) -> Iterator[Missing]:
        """The gaps before the first entry."""
        return self._next_run()

    def fault(self, fault: BrokenEntry) -> None:
        """Damage, of which what follows will show what it has cost."""
        if not self.satisfied:
            self._damage(fault.why, fault.ledger, fault.entry)

    def wrong_part(self, part: SplitPoint, found: int, items: Iterable[ReadItem]) -> Iterator[ReadItem]:
        """A part's bytes are not those that were recorded. Where damage is skipped: of the items found in it only the
        entries whose own checksum covers all of them."""
        why = (
            f"offset {part.begin}: the part of {part.size} bytes has CRC32C {found:08x}, its record says "
            f"{part.crc32c or 0:08x}"
        )
        told = self._told(why, part.ledger, part.entry)
        for item in items:
            yield from (item,) if isinstance(item, Missing) else self._covered(item, told)

    def _covered(self, found: EntryRun, why: str) -> Iterator[ReadItem]:
        uncovered = (found.first + number for number in uncovered_entries(found.data, found.bounds))
        return self._without(found, _consecutive(found.ledger, uncovered), lambda _: why)

    def unreadable(self, error: OffloadError) -> None:
        """An object that is not there, or whose index cannot be read."""
        if not self._skip:
            raise error
        self._why = str(error)

    def deleted(self, told: str) -> None:
        """What follows was deleted since it was planned."""
        self._why, self._deleted = told, True

    def take(self, found: EntryRun) -> Iterator[ReadItem]:
        """What is wanted of a run that was found; its bytes are still to be checked."""
        rest: EntryRun | None = found
        while rest is not None:
            rest = self._without_lead(rest)
            run = self._run
            if rest is None or run is None:
                return
            if (rest.ledger, rest.first) > (run.ledger, self._entry):
                yield from self._miss(run, rest)
                continue
            after = min(rest.after, run.after)
            self._why = ""
            yield rest.part(self._entry, after)
            rest = rest.part(after, rest.after) if after < rest.after else None
            yield from self._advance(after)

    def finish(self) -> Iterator[Missing]:
        """There is no more."""
        while self._run is not None:
            run = self._run
            if not self._why:
                self._damage("it is missing: what is there ends before it", run.ledger, self._entry)
            yield self._lost(replace(run, first=self._entry), self._why)
            yield from self._next_run()

    def _next_run(self) -> Iterator[Missing]:
        self._gaps = []
        for run in self._runs:
            if run.gap is None:
                self._run, self._entry = run, run.first
                return
            self._gaps.append(run)
            yield Missing(self._range.start_of(run), self._range.end_of(run), f"a gap: {run.gap}", run.gap)
        self._run, self._done = None, True

    def _advance(self, after: int) -> Iterator[Missing]:
        assert self._run is not None
        self._entry = after
        if after == self._run.after:
            yield from self._next_run()

    def _without_lead(self, found: EntryRun) -> EntryRun | None:
        """Without what was read along before the next wanted entry. Raises for what should not be there."""
        run = self._run
        wanted = None if run is None else (run.ledger, self._entry)
        if wanted is not None and (found.ledger, found.first) >= wanted:
            return found
        for gap in self._gaps:
            if gap.ledger == found.ledger and found.first <= gap.last and found.last >= gap.first:
                entry = max(found.first, gap.first)
                self._damage(f"{_where(found, entry)}: it is there, where the record has a gap", found.ledger, entry)
        if wanted is None and self._range.ends_object:
            self._damage(
                f"{_where(found, found.first)}: it is in the object, but not in its record", found.ledger, found.first
            )
        inside = wanted is not None and found.ledger == wanted[0] and found.after > wanted[1]
        return found.part(wanted[1], found.after) if wanted is not None and inside else None

    def _miss(self, run: Run, found: EntryRun) -> Iterator[Missing]:
        """What is wanted before a run that was found."""
        if not self._why:
            name = f"{found.ledger}:{found.first}"
            self._damage(f"{_where(found, found.first)}: {name} stands here instead", run.ledger, self._entry)
        after = min(run.after, found.first) if found.ledger == run.ledger else run.after
        yield self._lost(EntryRange(run.ledger, self._entry, after), self._why)
        yield from self._advance(after)

    def checked(self, items: Iterable[ReadItem]) -> Iterator[ReadItem]:
        """The entries whose own checksums match, of what `take` gave."""
        for item in items:
            yield from (item,) if isinstance(item, Missing) else self._sound(item)

    def _sound(self, found: EntryRun) -> Iterator[ReadItem]:
        def why(entry: int) -> str:
            return self._told(f"{_where(found, entry)}: its checksum does not match its bytes", found.ledger, entry)

        damaged = (found.first + number for number in damaged_entries(found.data, found.bounds))
        return self._without(found, (EntryRange.closed(found.ledger, entry, entry) for entry in damaged), why)

    def _without(self, found: EntryRun, lost: Iterable[EntryRange], why: Callable[[int], str]) -> Iterator[ReadItem]:
        begin = found.first
        for each in lost:
            if each.first > begin:
                yield found.part(begin, each.first)
            yield self._lost(each, why(each.first))
            begin = each.after
        if begin < found.after:
            yield found.part(begin, found.after)

    def _damage(self, why: str, ledger: int, entry: int) -> None:
        """Raise, or remember why the next positions are missing."""
        if not self._deleted:
            self._why = self._told(why, ledger, entry)

    def _told(self, why: str, ledger: int, entry: int) -> str:
        """Raise, or say it."""
        text = f"{self._range.object.data_key}: {why} ({ledger}:{entry})"
        if not self._skip:
            raise DamagedObjectError(text)
        return text

    def _lost(self, lost: EntryRange, why: str) -> Missing:
        if self._deleted:
            return Missing(self._range.start_of(lost), self._range.end_of(lost), why, deleted=True)
        key = self._range.object.data_key
        return Missing(self._range.start_of(lost), self._range.end_of(lost), DAMAGED + why, damaged=key)


def _consecutive(ledger: int, numbers: Iterable[int]) -> Iterator[EntryRange]:
    """Consecutive entries together."""
    for _, each in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        together = [number for _, number in each]
        yield EntryRange.closed(ledger, together[0], together[-1])


def sound_lead(items: Iterable[ReadItem]) -> Iterator[ReadItem]:
    """The items up to the first entry that its own checksum does not prove, whatever is wrong with their part."""
    for item in items:
        if isinstance(item, Missing):
            yield item
            continue
        doubtful = (*uncovered_entries(item.data, item.bounds), *damaged_entries(item.data, item.bounds))
        sound = min(doubtful, default=item.count)
        if sound > 0:
            yield item.part(item.first, item.first + sound)
        if doubtful:
            return


def _where(found: EntryRun, entry: int) -> str:
    """Where an entry's length stands in the object."""
    return f"offset {found.offset + found.bounds[2 * (entry - found.first)] - ENTRY_HEADER_SIZE}"
