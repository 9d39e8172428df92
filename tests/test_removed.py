"""Records of what was removed (`migrate --reference`, `bridge.keepSegments: false`), as the last commit wrote them that
supported it. Whoever meets one stops with one line that names the topic and that commit. Nothing of such a topic is
ever taken for deleted, missing or an orphan. `fixtures/removed.tar.xz` has a root for each case, and what made them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from shutil import copytree

import pytest

from dev.release.build import extract
from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.spark.data_source import PulsarArchiveSource
from offloader.config import Config
from offloader.errors import ConfigError, RemovedFeatureError
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.reader import KeptReaders
from offloader.lifecycle.bucket.reading import check_records
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata import requests
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import Journal
from offloader.metadata.layout import topic_folder
from offloader.metadata.takeover import takeover
from offloader.model import TopicName
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.pages.site import status_of
from offloader.ports.object_store import ObjectStore
from offloader.state.managed_ledger import ManagedLedger
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryStore
from tests.archive.ledgers.support import user_metadata
from tests.archive.support import APPLICATION, Archive
from tests.cli.support import CONFIG, Line
from tests.offload.simulation import Simulation

BRIDGED = "a bridge's round is under way that names it, or has just ended, or nobody can tell what the archive has"
OWNER = "managedledgername"

OLD = TopicName.parse("public/default/old")
SOUND = TopicName.parse("public/default/sound")
FRESH = TopicName.parse("public/default/fresh")
CATALOGS = ("referenced", "former", "pending", "begun", "deleted", "continued")
NEWEST = tuple(case for case in CATALOGS if case != "former")  # whose newest record tells of it
YEAR_MS = 365 * 24 * 3_600_000
NOW = 1_700_000_000_000 + YEAR_MS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("removed")
    extract(Path(__file__).parent / "fixtures" / "removed.tar.xz", made)
    return made


class Unchanged(LocalStore):
    """A bucket that nobody may write to or delete from, but for the store's clock and who owns a journal."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before = dict(self.content())

    def content(self) -> Iterator[tuple[str, bytes]]:
        return ((key, self.read(key)[0]) for key, _ in self.list() if not key.startswith(("_journal/", "_requests/")))

    def of(self, topic: TopicName) -> dict[str, bytes]:
        return {key: data for key, data in self.content() if key.startswith(topic_folder(topic))}

    def check(self) -> None:
        assert dict(self.content()) == self.before


def store_of(folder: Path, case: str) -> Unchanged:
    return Unchanged(folder / case / "root")


def tokens() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"00000000-0000-4000-9000-{next(numbers):012d}"


def archive_of(store: ObjectStore) -> ReadArchive:
    return ReadArchive(OpenArchive(Stores.of(store)))


def retention_of(store: ObjectStore) -> ArchiveRetention:
    catalogs, policy = Catalogs(store, APPLICATION), RetentionPolicy(minutes=1)
    deletion = ArchiveDeletion(store, catalogs, catalogs.append, lambda: None, lambda: NOW, "memory", APPLICATION)
    return ArchiveRetention(deletion, lambda _: policy, lambda _: None, 0)


def rebuilt(store: ObjectStore) -> None:
    rebuild(store, OLD, Given(APPLICATION, NOW), tokens())


def rebuilt_from_what_lies_beside(store: ObjectStore) -> None:
    """Every slot of the catalog is lost."""
    lost = {key for key, _ in store.list(topic_folder(OLD)) if "/_catalog/" in key}

    class Without(LocalStore):
        def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
            return (each for each in super().list(prefix, start_after) if each[0] not in lost)

    assert isinstance(store, LocalStore)
    rebuilt(Without(store.root))


def scanned(store: ObjectStore) -> None:
    BucketScanner(store, lambda: NOW, tokens(), 0).scan()


def served(store: ObjectStore) -> None:
    entries = ArchivedTopicEntries(archive_of(store)._opened, OLD, KeptReaders())
    entries.read((0, 0), 1_000, 10**6)


def spark_rows(store: ObjectStore) -> None:
    made = PulsarArchiveSource({"root": store.url, "topics": str(OLD)})
    reader = made.reader(made.schema())
    for task in reader.partitions():
        list(reader.read(task))


Door = Callable[[ObjectStore], object]

ALL: dict[str, Door] = {
    "catalog": lambda store: Catalogs(store, "").load(OLD),
    "archive": lambda store: list(archive_of(store).topic(OLD).items()),
    "gateway": served,
    "spark": spark_rows,
    "verify": verify,
    "quick verify": lambda store: verify(store, [OLD], quick=True),
    "orphan scan": scanned,
    "rebuild": rebuilt,
    "rebuild without the catalog": rebuilt_from_what_lies_beside,
    "retention": lambda store: retention_of(store).visit(OLD),
    "retention on request": lambda store: retention_of(store).asked(OLD),
    "deletion on request": lambda store: retention_of(store).delete(OLD, "somebody"),
    "orphans of brokers": lambda store: check_records(store, OLD, [0]),
}
"""Whoever reads the topic's records."""
HEADS: dict[str, Door] = {
    "head": lambda store: Catalogs(store, "").head(OLD),
    "append": lambda store: Catalogs(store, APPLICATION).append(
        Catalogs(store, "").head(OLD), Catalogs(store, "").load(SOUND).segments[0]
    ),
    "undelete": lambda store: retention_of(store).undelete(OLD, "somebody"),
}
"""Whoever reads the newest record."""
JOURNALS: dict[str, Door] = {
    "peek": lambda store: Journal.peek(store, APPLICATION),
    "start": lambda store: Journal.open(store, APPLICATION, tokens()),
    "verify": verify,
    "orphan scan": scanned,
    "rebuild": rebuilt,
    "takeover": lambda store: takeover(store, APPLICATION, "another", tokens(), NOW),
}
"""Whoever reads a journal."""
DOORS = [
    *((case, ALL, door) for case in CATALOGS for door in ALL),
    *((case, HEADS, door) for case in NEWEST for door in HEADS),
    *(("opened", JOURNALS, door) for door in JOURNALS),
]


def check_refusal(text: str) -> None:
    assert "\n" not in text
    assert "old" in text
    assert str(OLD) in text
    assert "1db0db3f" in text


@pytest.mark.parametrize(
    ("case", "doors", "door"), DOORS, ids=[f"{case}-{door.replace(' ', '-')}" for case, _, door in DOORS]
)
def test_each_door_refuses_it_in_one_line_and_changes_nothing(
    folder: Path, case: str, doors: dict[str, Door], door: str
) -> None:
    store = store_of(folder, case)
    with pytest.raises(RemovedFeatureError) as refused:
        doors[door](store)
    check_refusal(str(refused.value))
    store.check()


@pytest.mark.parametrize("case", CATALOGS)
def test_what_the_archive_may_read_in_a_bucket_of_brokers_is_no_orphan_of_theirs(folder: Path, case: str) -> None:
    """No list names it any more: brokers would have deleted it, had they been able to."""
    archive, brokers = LocalStore(folder / case / "root"), MemoryStore()
    for key, _ in (there := LocalStore(folder / case / "brokers")).list():  # a folder keeps no metadata
        brokers.put(key, there.read(key)[0], meta=user_metadata(OLD, "data", "memory"))
    keys, owner = [key for key, _ in brokers.list()], user_metadata(OLD, "data")[OWNER]
    lists = References("main", frozenset({"public/default"}), {owner: ManagedLedger((), 3, created_ms=1)})
    scanner = StockScanner(brokers, lambda: [lists], "memory", lambda: NOW, 0, alone=True)
    assert {each.key for each in scanner.scan()} == set(keys), "so that this can fail"
    scanner = replace(scanner, check_records=lambda *asked: check_records(archive, *asked))
    assert scanner.scan() == ()
    assert scanner.look(keys) == dict.fromkeys(keys, BRIDGED)


def test_a_request_of_the_removed_kind_is_answered_with_a_refusal(folder: Path) -> None:
    store = store_of(folder, "asked")
    (key,) = (key for key, _ in store.list("_requests/") if not key.endswith(".done"))
    name = key.rsplit("/", 1)[1]
    assert requests.pending(store, APPLICATION, NOW) == []
    outcome = requests.outcome_of(store, APPLICATION, name)
    assert outcome is not None
    assert not outcome.ok
    check_refusal(outcome.message)


@pytest.mark.parametrize("case", NEWEST)
def test_the_application_goes_on_without_it_and_says_why(folder: Path, tmp_path: Path, case: str) -> None:
    copytree(folder / case / "root", tmp_path / "root")
    store = LocalStore(tmp_path / "root")
    before = Unchanged(tmp_path / "root").of(OLD)
    sim = Simulation(1, store=store, application=APPLICATION, retention="archiveRetentionTimeInMinutes: 1")
    for topic in (OLD, FRESH):
        sim.cluster.create(topic)
    sim.produce(FRESH, 30)
    sim.rounds(10, 30_000)
    assert list(sim.registry.topics) == [FRESH]
    check_refusal(sim.registry.refused[OLD])
    assert Unchanged(tmp_path / "root").of(OLD) == before
    sim.close()


def line_of(folder: Path, case: str, at: Path) -> Line:
    return Line(at, Archive(store=store_of(folder, case)))


@pytest.mark.parametrize("case", NEWEST)
@pytest.mark.parametrize("command", ["topics list", "archive retention plan", "cost --no-pulsar"])
def test_commands_over_all_topics_name_it_and_show_the_others(
    folder: Path, tmp_path: Path, case: str, command: str
) -> None:
    line = line_of(folder, case, tmp_path)
    line.config += "policies: {archiveRetentionTimeInMinutes: 1}\n"
    result = line.run(*command.split())
    assert result.exit_code == 1, result.output
    (told,) = (each for each in result.stderr.splitlines() if str(OLD) in each)
    check_refusal(told)
    assert str(OLD) not in result.stdout
    if command != "cost --no-pulsar":
        assert SOUND.name in result.stdout


@pytest.mark.parametrize("case", CATALOGS)
@pytest.mark.parametrize("command", ["topics segments old", "verify old", "topics cat old", "catalog rebuild old"])
def test_commands_for_it_say_so_in_one_line(folder: Path, tmp_path: Path, case: str, command: str) -> None:
    check_refusal(line_of(folder, case, tmp_path).error(*command.split()))


@pytest.mark.parametrize("case", NEWEST)
@pytest.mark.parametrize("command", ["archive retention plan", "archive retention run", "archive undelete"])
def test_commands_for_its_end_do_not_say_that_there_is_nothing(
    folder: Path, tmp_path: Path, case: str, command: str
) -> None:
    result = line_of(folder, case, tmp_path).run(*command.split(), str(OLD))
    assert (result.exit_code, result.stdout) == (1, "")
    check_refusal(result.stderr.strip())


@pytest.mark.parametrize("case", CATALOGS)
def test_a_page_of_it_is_not_said_to_be_absent(folder: Path, case: str) -> None:
    with pytest.raises(RemovedFeatureError) as refused:
        list(archive_of(store_of(folder, case)).topic(OLD).items())
    assert status_of(refused.value) is HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("command", ["topics list", "orphans scan --bucket-only", "verify"])
def test_commands_that_need_the_journal_say_so_in_one_line(folder: Path, tmp_path: Path, command: str) -> None:
    check_refusal(line_of(folder, "opened", tmp_path).error(*command.split()))


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_removed_setting_is_refused_in_one_line_that_says_what_to_do_instead(value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config.parse(CONFIG + f"bridge: {{keepSegments: {value}, topicsAtOnce: 2}}\n", {})
    told = str(refused.value)
    assert told.startswith("bridge.keepSegments: was removed")
    assert "shorten Pulsar's retention" in told
    assert "\n" not in told
