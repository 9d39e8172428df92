"""There, back, and there again: a topic with each state of ledger is migrated, each way interrupted at a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from integration.bridge.place import Place
from integration.bridge.rounds import SET, STEPS, HttpStep, Rounds, between_proxies
from integration.bridge.store import ARCHIVE_BUCKET, BROKERS_BUCKET
from integration.lifecycle.proxy import FreezingProxy
from integration.processes import HANGS
from integration.produce import produce_mixed
from integration.pulsar.waiting import until
from integration.world import KEEP, PIN, World
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry
from offloader.archive.topic import ArchivedTopic
from offloader.metadata.stock_keys import parse_key
from offloader.model import MIB, TopicName
from offloader.operations.verify.verify import verify
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from tests.storage.proxy import Proxy
from tests.storage.servers import ACCESS_KEY, SECRET_KEY

THERE, BACK, AGAIN = "to-streaming", "to-ledger-based", "to-streaming again"
HOUR_MS = 3_600_000
Entries = dict[tuple[int, int], bytes]

_OURS = rf"^/{ARCHIVE_BUCKET}/"
_SEEN, _DONE, _JOURNAL = r"/_requests/.*\.seen", r"/_requests/.*\.done", r"/_journal/"
THRESHOLD, LET_GO = "the brokers' threshold is set", "the topic is let go"
_THRESHOLD = HttpStep("PUT", "/offloadPolicies|/offloadThreshold", of_admin=True)
_COPYING: Mapping[str, HttpStep] = {
    "the request is taken": HttpStep("PUT", _SEEN),
    "a copy is begun": HttpStep("POST", _OURS + r".*\?uploads"),
    "a part is copied": HttpStep("PUT", _OURS + r".*partNumber="),
    "a copy is completed": HttpStep("POST", _OURS + r".*uploadId="),
    "an index is written": HttpStep("PUT", _OURS + r".*-index"),
    "a copy is committed": HttpStep("PUT", "/_catalog/", after=1),
    "the request is answered": HttpStep("PUT", _DONE),
    THRESHOLD: _THRESHOLD,
}
WAYS: Mapping[str, Mapping[str, HttpStep]] = {
    THERE: {
        **_COPYING,
        "the claim is recorded": HttpStep("PUT", "/_catalog/"),
        "the journal has the topic": HttpStep("PUT", _JOURNAL, after=1),
    },
    BACK: {
        **STEPS,
        "the request is taken": HttpStep("PUT", _SEEN),
        "the journal has the hand-over": HttpStep("PUT", _JOURNAL),
        "brokers read everything": HttpStep("PUT", _DONE),
        THRESHOLD: _THRESHOLD,
        "the release is taken": HttpStep("PUT", _SEEN, after=1),
        LET_GO: HttpStep("PUT", _DONE, after=1),
        SET: HttpStep("", ""),
    },
    AGAIN: _COPYING,
}


class Ways(Rounds):
    """One topic in a namespace of its own. What `entries` has was produced, and is not trimmed."""

    def __init__(self, place: Place, world: World, topic: TopicName, admin: Proxy, zookeeper: FreezingProxy) -> None:
        super().__init__(place, world, topic, admin, zookeeper)
        self.entries: Entries = {}
        self._seeds = iter(range(10**6))
        self._command: subprocess.Popen[str] | None = None

    # What there is

    def produce(self, messages: int = 130) -> None:
        produce_mixed(self.place.service_url, str(self.topic), seed=next(self._seeds), messages=messages, largest=6_000)
        self.entries |= self.delivered(max(self.entries, default=(0, 0)))

    def delivered(self, after: tuple[int, int] = (0, 0)) -> Entries:
        """What brokers deliver from there up to the topic's end."""
        told = self.place.stats(self.topic)["lastConfirmedEntry"].partition(":")
        last, found = (int(told[0]), int(told[2])), dict[tuple[int, int], bytes]()
        settings = PulsarSettings(service_url=self.place.service_url, admin_url=self.place.admin_url)
        with (
            closing(BrokerSource(settings)) as source,
            closing(source.open(self.topic, *after, max_bytes=16 * MIB)) as reader,
        ):
            while max(found, default=(-1, -1)) < last:
                arrived = reader.read(HANGS)
                assert arrived, f"{self.topic} ends with {max(found)} and not with {last}"
                found.update({(each.ledger, each.entry): each.data for each in arrived})
        return found

    def of_each_state(self, *, open_one: bool) -> None:
        """Ledgers that are trimmed, offloaded and deleted, offloaded and kept, closed, and open; the last one may be
        empty."""
        self._retain({"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        self.produce()
        self.place.unload(self.topic)
        until(self._is_trimmed)
        self._retain(KEEP)
        self.entries.clear()
        self.offloaded_by_brokers(deleted=True)
        self.offloaded_by_brokers(deleted=False)
        self.produce()
        self.place.unload(self.topic)
        if open_one:
            self.produce(20)

    def offloaded_by_brokers(self, *, deleted: bool) -> None:
        """More, in ledgers that a stock broker offloads by itself."""
        lag = 0 if deleted else HOUR_MS
        self.place.admin("PUT", f"namespaces/{self.topic.namespace}/offloadDeletionLagMs", lag)
        self.produce()
        self.place.unload(self.topic)
        self.place.offload(self.topic)
        if deleted:
            self.place.forget_bookkeepers_copies(self.topic)

    def _retain(self, policy: Mapping[str, int]) -> None:
        self.place.admin("POST", f"namespaces/{self.topic.namespace}/retention", policy)

    def _is_trimmed(self) -> bool:
        self.place.trim(self.topic)
        listed = {one["ledgerId"] for one in self.place.ledgers(self.topic)}
        return not listed & {ledger for ledger, _ in self.entries}

    # What is done

    def start(self) -> None:
        """Commands want one that answers."""
        super().start()
        assert self._running is not None
        self._running.wait_ready()

    def go(self, way: str, step: str, when: str) -> list[dict[str, Any]]:
        """Give a way's command, interrupt it at a step, and give it again; what it says then."""
        with self._window(way, f"{when} {step}" if step else ""):
            if step:
                self._begin(way)
                self._interrupt(way, step, when)
            if self._command is not None:  # who gave it may also wait for the next process
                told, _ = self._command.communicate(timeout=HANGS)
                if self._command.returncode == 0:
                    self._command = None
                    return [json.loads(line) for line in told.splitlines()]
            self._begin(way)
            assert self._command is not None
            told, errors = self._command.communicate(timeout=HANGS)
            assert self._command.returncode == 0, f"{way}, interrupted {when} {step}: {told} {errors}"
            self._command = None
            return [json.loads(line) for line in told.splitlines()]

    def _interrupt(self, way: str, step: str, when: str) -> None:
        if step == THRESHOLD:  # that is the command's: the application goes on
            self._at(WAYS[way][step], when, self.end_command)
            return
        if step == SET:
            self._kill_at_set(when)
        else:
            self._at(WAYS[way][step], when, self._kill)
        if when == "before":
            self.end_command()
        self.end()
        self.start()

    def _begin(self, way: str) -> None:
        assert self._running is not None
        back = way == BACK
        words = ["migrate", BACK if back else THERE, self.topic.namespace, *(["--yes"] if back else [])]
        program = str(Path(sys.executable).with_name("offloader"))
        self._command = subprocess.Popen(
            [program, *words, "--config", str(self._running.config), "-o", "json", "--timeout", "150s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
        )

    def end_command(self) -> None:
        command, self._command = self._command, None
        if command is not None:
            command.kill()
            command.communicate()

    # What must hold

    def check_there(self) -> None:
        """The archive has each entry once, brokers offload nothing by themselves, and the subscription keeps it."""
        until(lambda: self._alive() and self._is_archived())
        found = [(item.position.place, item.data) for item in self._archived() if isinstance(item, ArchivedEntry)]
        assert dict(found) == self.entries
        assert len(found) == len(self.entries)
        assert self._threshold() == -1
        assert PIN in self._subscriptions()

    def check_back(self, told: list[dict[str, Any]], *, claimed_again: bool) -> None:
        """Brokers deliver everything, without what BookKeeper had of offloaded ledgers, and nobody of us keeps it.

        `claimed_again`: a later start may have claimed the topic, which the configuration still enables."""
        for proof in (one for one in told if "equal" in one):  # none, where it was let go of before that was repeated
            assert (proof["wrong"], proof["equal"] + proof["unarchived"]) == ("", len(self.entries)), proof
        assert self._threshold() == 0
        assert claimed_again or PIN not in self._subscriptions()
        self.place.admin("PUT", f"namespaces/{self.topic.namespace}/offloadDeletionLagMs", 0)
        self.place.forget_bookkeepers_copies(self.topic)
        assert self.delivered() == self.entries

    def check_verified(self) -> None:
        """Nothing of the archive is wrong. Who is killed before it hears of its upload cannot name that."""
        folder = f"{self.topic.namespace}/{self.topic.encoded}/"
        found = [one for one in verify(self.world.store).findings if one.key and folder in one.key]
        wrong = [one for one in found if one.kind is not FindingKind.OPEN_UPLOAD]
        assert wrong == [], wrong

    def check_no_object_is_left_over(self) -> None:
        """Each object in the brokers' bucket is one that the topic's list names."""
        named = self.world.admin.offloaded_copies(self.topic)
        kept = {f"{uuid}-ledger-{ledger}{end}" for ledger, uuid in named.items() for end in ("", "-index")}
        ours = {ledger for ledger, _ in self.entries}
        told = {key: parse_key(key) for key in self.place.store.keys(BROKERS_BUCKET)}
        left = {key for key, found in told.items() if found is not None and found.ledger in ours}
        assert not left - kept, sorted(left - kept)

    def _archived(self) -> Iterator[Any]:
        return ArchivedTopic.of(self.world.store, self.world.catalog(self.topic)).items()

    def _is_archived(self) -> bool:
        end = self.world.catalog(self.topic).end
        return end is not None and end.place >= max(self.entries)

    def _threshold(self) -> int:
        return int(self.place.admin("GET", f"namespaces/{self.topic.namespace}/offloadThreshold").text)

    def _subscriptions(self) -> list[str]:
        return list(self.place.admin("GET", f"{self.topic.rest_path}/subscriptions").json())


def migrate(place: Place, steps: Mapping[str, tuple[str, str]], *, open_one: bool) -> None:
    """A topic of its own, there, back, and there again. `steps`: where each way is interrupted, and when."""
    namespace = place.new_namespace()
    topic = place.new_topic(namespace, "ways")
    with ways(place, topic, namespace) as found:
        found.of_each_state(open_one=open_one)
        place.admin("PUT", f"namespaces/{namespace}/offloadThreshold", 10**12)
        found.start()
        found.go(THERE, *steps[THERE])
        found.produce(30)
        found.check_there()
        found.check_back(found.go(BACK, *steps[BACK]), claimed_again=steps[BACK][0] == LET_GO)
        found.offloaded_by_brokers(deleted=False)
        found.produce(30)
        found.go(AGAIN, *steps[AGAIN])
        found.check_there()
        found.end()
        found.check_verified()
        found.check_no_object_is_left_over()


@contextmanager
def ways(place: Place, topic: TopicName, namespace: str) -> Iterator[Ways]:
    """Between proxies, as `rounds`."""
    lifecycle = {"stockBucket": f"s3://{BROKERS_BUCKET}"}
    bridge = {"minInterval": "0s", "unloadsAMinute": 1000, "ledgersAtOnce": 3}
    with ExitStack() as stack:
        world, admin, zookeeper = stack.enter_context(
            between_proxies(place, namespace, "ways", policies={}, lifecycle=lifecycle, bridge=bridge)
        )
        found = Ways(place, world, topic, admin, zookeeper)
        stack.callback(found.end)
        stack.callback(found.end_command)
        yield found
