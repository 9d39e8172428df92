"""Retention of the archive with a real Pulsar, a real application and its Spark: what goes, what stays, what readers
are told meanwhile, and what an operator can take back."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from click.testing import CliRunner

from integration.application import RunningApplication
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import MODES, open_client, produce, random_contents
from integration.pulsar.waiting import until
from integration.spark import patiently, session
from integration.world import World, keep_everything
from offloader import Archive
from offloader.archive.items import Missing
from offloader.cli.main import main
from offloader.errors import OffloadError
from offloader.model import Position, Segment, TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

ALL_BUT_THE_NEWEST = {"archiveRetentionTimeInMinutes": 0, "archiveRetentionSizeInMB": 0}
SEALED_SOON = {"maxOffloadSegmentRolloverTimeInSeconds": "1s"}
A_MEGABYTE = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 1}
NOTHING = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
GRACE = 8.0
SEGMENTS = 3

Place = tuple[int, int]
_SINGLE = next(mode for mode in MODES if not mode.batched)
_JSON = json.JSONDecoder()


@dataclass
class Shop:
    """A topic, its archive, and the command line."""

    pulsar: PatientPulsar
    world: World
    topic: TopicName
    application: RunningApplication

    def grow(self, seed: int, smallest: int = 0, largest: int = 2_000) -> None:
        """One more segment."""
        before = len(self.segments())
        client = open_client(self.pulsar.service_url)
        produce(client, str(self.topic), random_contents(seed, 60, smallest=smallest, largest=largest), _SINGLE)
        client.close()
        self.application.until(lambda: len(self.segments()) > before, f"done with segment {before}")
        self.world.see()
        self.application.until(lambda: self.world.at_rest_in(self.topic), "at rest")

    def grow_by_a_ledger(self, seed: int) -> None:
        """One more segment, of more than a megabyte, in a ledger of its own."""
        if self.segments():
            self.pulsar.admin("PUT", f"{self.topic.rest_path}/unload")
        self.grow(seed, 25_000, 40_000)

    def ledgers(self) -> list[int]:
        """Those that Pulsar has."""
        return [span.ledger for span in self.world.admin.topic_info(self.topic).ledgers.spans]

    def segments(self) -> tuple[Segment, ...]:
        return self.world.catalog(self.topic).segments

    def run(self, *arguments: str, code: int = 0) -> list[Any]:
        line = [*arguments, "--output", "json", "--config", str(self.application.config)]
        result = CliRunner().invoke(main, line)
        assert result.exit_code == code, (line, result.exit_code, result.output, result.exception)
        found, text = [], result.stdout.strip()
        while text:
            said, end = _JSON.raw_decode(text)
            found.append(said)
            text = text[end:].lstrip()
        return found

    def plan(self) -> dict[str, Any]:
        (found,) = self.run("archive", "retention", "plan", str(self.topic))
        return found

    def deletion_is_done(self) -> bool:
        """Ask for what is pending once more. The grace ends by the broker's clock, too, which tells whole seconds."""
        self.run("archive", "retention", "run", str(self.topic), "--yes")
        return self.plan()["pending"] is None

    def entries(self) -> dict[Place, bytes]:
        """All that the archive gives now."""
        return {each.position.place: each.data for each in self.archive_topic().entries()}

    def archive_topic(self) -> Any:
        return Archive(self.world.storage.root).topic(self.topic)


@contextmanager
def shop(
    pulsar: PatientPulsar, namespace: str, folder: Path, policies: dict[str, Any], **lifecycle: str
) -> Iterator[Shop]:
    topic = TopicName.parse(f"{namespace}/placed")
    with World(
        pulsar,
        StoreSettings((folder / "archive").as_uri()),
        folder / "world",
        [namespace],
        policies=SEALED_SOON,
        topic_policies={str(topic): policies},
        lifecycle=lifecycle,
    ) as world:
        pulsar.admin("PUT", topic.rest_path)
        yield Shop(pulsar, world, topic, world.new_application().start().wait_ready())


class Readers:
    """Read all of a topic again and again, each in its way: whatever is not given must be told as deleted by policy."""

    def __init__(self, shop: Shop) -> None:
        self.reads: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._shop = shop
        self._truth = shop.entries()
        self._stopping = threading.Event()
        self._random = Random(1)
        ways: list[Callable[[], None]] = [self._at_once, self._slowly, self._messages, self._singly]
        self._threads = [threading.Thread(target=self._loop, args=(way,)) for way in ways]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(HANGS)

    def _loop(self, way: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                way()
            except (OffloadError, AssertionError) as error:
                self.wrong.append(f"{way.__name__}: {error!r}")
                return
            self.reads[way.__name__] += 1

    def _at_once(self) -> None:
        self._read(0.0)

    def _slowly(self) -> None:
        """Planned before a deletion, read during it."""
        self._read(0.02)

    def _read(self, pause: float) -> None:
        got: dict[Place, bytes] = {}
        hidden: set[Place] = set()
        for each in self._shop.archive_topic().items():
            if isinstance(each, Missing):
                assert each.deleted, each
                assert "deleted by" in each.why, each
                hidden |= {place for place in self._truth if each.start.place <= place <= each.end.place}
            else:
                got[each.position.place] = each.data
                time.sleep(pause)
        self._check(got, hidden)

    def _messages(self) -> None:
        places = {message.position.place for message in self._shop.archive_topic().messages()}
        assert places <= self._truth.keys()

    def _singly(self) -> None:
        """One entry at a time, anywhere."""
        topic = self._shop.archive_topic()
        incarnation = topic.last_position().incarnation
        for place in self._random.sample(sorted(self._truth), 5):
            found = topic.peek(Position(incarnation, *place))
            if found.missing is None:
                assert found.stored.entry.data == self._truth[place]
            else:
                assert found.missing.deleted, found.missing

    def summary(self) -> str:
        """For the page of what was shown."""
        reads = sum(self.reads.values())
        return f"{reads} reads {dict(self.reads)}, {dict(self.told)}, {len(self.wrong)} wrong answers"

    def check(self) -> None:
        """Every reader has read, also while nothing was gone yet and after it was; none got a wrong answer."""
        print(self.summary())
        assert not self.wrong
        assert self.reads.keys() == {"_at_once", "_slowly", "_messages", "_singly"}
        assert all(reads > 0 for reads in self.reads.values())
        assert self.told["whole"] > 1
        assert self.told["told"] > 1

    def _check(self, got: dict[Place, bytes], hidden: set[Place]) -> None:
        assert got.items() <= self._truth.items()
        assert not hidden & got.keys()
        assert hidden | got.keys() == self._truth.keys()
        self.told["told" if hidden else "whole"] += 1


def test_what_is_due_goes_while_it_is_read_and_an_operator_can_take_it_back(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    settings = {"archiveGrace": f"{GRACE:.0f}s", "quarantineFloor": "0s", "deletionInterval": "1h"}
    with shop(pulsar, namespace, tmp_path, ALL_BUT_THE_NEWEST, **settings) as made:
        for seed in range(SEGMENTS):
            made.grow(seed)
        *old, newest = made.segments()
        everything = made.entries()
        name = str(made.topic)
        with Readers(made) as readers:
            (due,) = made.plan()["due"]
            assert due["segments"] == len(old) >= SEGMENTS - 1
            made.run("archive", "retention", "run", name)  # without --yes
            assert made.plan()["pending"] is None
            made.run("archive", "retention", "run", name, "--yes")
            assert made.plan()["pending"]["reason"]
            made.run("archive", "undelete", name)
            assert made.plan()["pending"] is None
            assert made.entries() == everything
            made.run("archive", "retention", "run", name, "--yes")
            until(made.deletion_is_done)
            until(lambda: readers.wrong or readers.told["told"] > 1)
        readers.check()
        kept = {place: data for place, data in everything.items() if place >= newest.start.place}
        assert made.entries() == kept
        summary = made.run("verify", name)[-1]
        assert summary["findings"] == [], summary
        assert f"{len(old)} segments are deleted" in summary["message"], summary
        assert _rows(made) == kept.keys()
        made.grow(SEGMENTS)
        assert "deletion" in made.run("archive", "delete", name, "--yes")[0]["message"]
        assert len(made.entries()) < len(kept) + 60  # told at once
        made.run("archive", "undelete", name)
        assert kept.items() <= made.entries().items()
        assert not any("Traceback" in line for line in made.application.log_lines())


def test_what_pulsar_has_trimmed_goes_where_that_is_followed_and_nothing_else(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    settings = {"archiveGrace": f"{GRACE:.0f}s", "quarantineFloor": "0s", "deletionInterval": "1h"}
    with shop(pulsar, namespace, tmp_path, {"followPulsarRetention": True}, **settings) as made:
        beside = replace(made, topic=TopicName.parse(f"{namespace}/kept"))
        pulsar.admin("PUT", beside.topic.rest_path)
        for seed in range(SEGMENTS):
            made.grow_by_a_ledger(seed)
            beside.grow_by_a_ledger(seed + SEGMENTS)
        everything, of_both = made.entries(), beside.entries()
        name = str(made.topic)
        with Readers(made) as readers:
            # Nothing is trimmed yet: nothing goes.
            assert "nothing is due" in made.run("archive", "retention", "run", name, "--yes")[0]["message"]
            pulsar.admin("POST", f"namespaces/{namespace}/retention", json=A_MEGABYTE)
            for each in (made, beside):
                until(partial(_trimmed, each))
            first = made.ledgers()[0]
            old = [segment for segment in made.segments() if max(held.ledger for held in segment.ledgers) < first]
            assert old
            assert made.plan()["due"] == []  # the application has not seen it yet
            for each in (made, beside):
                each.run("archive", "retention", "run", str(each.topic), "--yes")
            pending = made.plan()["pending"]
            assert (pending["reason"], pending["ranges"][-1]["end"]) == ("follows-pulsar", str(old[-1].end))
            until(made.deletion_is_done)
            until(lambda: readers.wrong or readers.told["told"] > 1)
        readers.check()
        kept = {place: data for place, data in everything.items() if place > old[-1].end.place}
        assert made.entries() == kept
        assert kept
        assert beside.entries() == of_both  # Pulsar has trimmed it, too
        for each in (made, beside):
            assert each.run("verify", str(each.topic))[-1]["findings"] == []
        # Where Pulsar keeps nothing that is acknowledged, the archive does not follow.
        pulsar.admin("POST", f"namespaces/{namespace}/retention", json=NOTHING)
        until(lambda: "is refused" in made.plan()["note"])
        made.grow_by_a_ledger(2 * SEGMENTS)
        until(lambda: _trimmed(made))
        before = made.entries()
        made.run("archive", "retention", "run", name, "--yes")
        assert made.plan()["pending"] is None
        assert made.entries() == before
        assert not any("Traceback" in line for line in made.application.log_lines())


def test_what_is_taken_back_with_a_hold_is_not_deleted_again(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    settings = {"archiveGrace": "15s", "quarantineFloor": "0s", "deletionInterval": "1s"}
    with shop(pulsar, namespace, tmp_path, ALL_BUT_THE_NEWEST, **settings) as made:
        name = str(made.topic)
        for seed in range(2):
            made.grow(seed)
        everything = len(made.segments())
        for hold in ((), ("--hold", "court")):
            made.application.until(lambda: made.plan()["pending"] is not None, "recording what goes")
            (undone,) = made.run("archive", "undelete", name, *hold)
            assert ("until its policy deletes it again" in undone["message"]) != bool(hold)
        (said,) = made.run("archive", "retention", "run", name, "--yes")
        assert "nothing goes: held by court" in said["message"]
        plan = made.plan()
        assert (plan["pending"], plan["note"], plan["deleted"]["segments"]) == (None, "held by court", 0)
        assert len(made.segments()) == everything
        made.run("archive", "lift-hold", name)
        made.application.until(lambda: made.plan()["pending"] is not None, "recording what goes")


AHEAD = """
import os, time
_real = time.time_ns
time.time_ns = lambda: _real() + (400 * 86_400 * 10**9 if os.path.exists({flag!r}) else 0)
"""


@pytest.mark.soak
def test_a_process_whose_clock_is_a_year_ahead_for_a_while_deletes_nothing(
    pulsar: PatientPulsar, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_everything(pulsar, namespace)
    settings = {"archiveGrace": "1s", "quarantineFloor": "0s", "deletionInterval": "1s"}
    with shop(pulsar, namespace, tmp_path, {"archiveRetentionTimeInMinutes": 525_600}, **settings) as made:
        for seed in range(SEGMENTS):
            made.grow(seed)
        made.application.stop()
        everything = made.entries()
        flag = tmp_path / "ahead"
        (tmp_path / "sitecustomize.py").write_text(AHEAD.format(flag=str(flag)))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        flag.touch()
        made.application = made.world.new_application().start().wait_ready()
        name, wrong = str(made.topic), "policies of time wait: this host's clock is 400 days ahead of"
        made.application.until(lambda: made.application.logged(wrong), "waiting for clocks that agree")
        for _ in range(2):
            made.run("archive", "retention", "run", name, "--yes")
        assert made.plan()["pending"] is None
        flag.unlink()  # set right while it runs
        right = "policies of time wait: only this host tells the time"  # broker and archive are on this host
        made.application.until(lambda: made.application.logged(right), "comparing clocks again")
        assert "nothing is due" in made.run("archive", "retention", "run", name, "--yes")[0]["message"]
        assert made.entries() == everything


def _trimmed(made: Shop) -> bool:
    """Whether Pulsar has deleted a ledger of which the archive has entries."""
    made.pulsar.admin("POST", f"{made.topic.rest_path}/trim")
    oldest = min(place[0] for place in made.entries())
    return made.ledgers()[0] > oldest


def _rows(made: Shop) -> set[Place]:
    """The positions that a Spark query of the topic gives that names no begin."""
    with session("retention") as spark:
        options = {"root": made.world.storage.root, "topics": str(made.topic), "format": "entries"}
        found = patiently(spark.read.format("pulsar-archive").options(**options).load)
        return {(row.ledgerId, row.entryId) for row in patiently(found.select("ledgerId", "entryId").collect)}
