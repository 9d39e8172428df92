"""HDFS by WebHDFS, against Hadoop's mini cluster: the whole contract, lost answers at every step, silence."""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from crc32c import crc32c

from integration.hdfs.cluster import Hdfs
from offloader.errors import (
    AccessDeniedError,
    FatalError,
    FormatVersionError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
    UnprovenStoreError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage import rules, webhdfs_uploads
from offloader.storage.settings import StoreSettings
from offloader.storage.webhdfs import LEFT_OVER_AFTER_MS
from tests.storage.contract import StoreContract
from tests.storage.proxy import Proxy, Rule, json_as_told
from tests.storage.servers import Stores, free_port
from tests.storage.subject import Subject, check_many_parts, noise, upload_parts

pytestmark = pytest.mark.hdfs

FOR_EVER = 10_000
IMPATIENT = {"retry_deadline": "0.3"}
STEPS_OF_A_COMMIT = 6  # requests that change something: folder closed, first part, others, key, folders removed


def op(request: str, name: str) -> bool:
    return f"op={name}&" in request


def renames(method: str, path: str) -> bool:
    return op(path, "RENAME")


def names(key: str, method: str, path: str) -> bool:
    """The rename that gives an object its key."""
    return op(path, "RENAME") and f"%2F{key}&" in path


def changes(method: str, path: str) -> bool:
    return method != "GET"


def sums(method: str, path: str) -> bool:
    return op(path, "GETFILECHECKSUM")


def anything(method: str, path: str) -> bool:
    return True


def refused(matches: Callable[[str, str], bool], exception: str, *, times: int = FOR_EVER, status: int = 403) -> Rule:
    """Answered by an exception of Java with this name."""
    told = {"RemoteException": {"exception": exception, "javaClassName": exception, "message": "in its place\n\tat x"}}
    return Rule(matches, times=times, status=status, code=json.dumps(told))


class TestHdfs(StoreContract):
    @pytest.fixture
    def subject(self, hdfs: Hdfs, stores: Stores) -> Subject:
        settings = hdfs.settings()
        return Subject(lambda: stores.open(settings), settings, keeps_meta=False)

    @pytest.fixture
    def few(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """So few parts are appended by one request."""
        monkeypatch.setattr(webhdfs_uploads, "SOURCES", 3)
        return 3

    def test_more_parts_than_one_request_appends(self, few: int, store: ObjectStore) -> None:
        check_many_parts(store, 3 * few + 2)

    def test_names_as_long_as_a_url_are_appended(self, hdfs: Hdfs, stores: Stores) -> None:
        settings = hdfs.settings()
        check_many_parts(stores.open(replace(settings, root=f"{settings.root}{'/långer' * 60}")), 110)

    def test_a_clock_that_is_ahead_removes_nothing(
        self, subject: Subject, hdfs: Hdfs, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert subject.settings is not None
        at = f"{urlsplit(subject.settings.root).path}/.tmp/theirs"
        ask(hdfs, "PUT", at, "MKDIRS").raise_for_status()
        ahead = time.time_ns() + 3 * LEFT_OVER_AFTER_MS * 1_000_000
        monkeypatch.setattr(time, "time_ns", lambda: ahead)
        stores.open(subject.settings).put("k", b"x")
        assert ask(hdfs, "GET", at, "GETFILESTATUS").is_success

    def test_an_upload_that_a_newer_version_has_begun_is_refused(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(webhdfs_uploads, "UPLOAD_VERSION", rules.UPLOAD_VERSION + 1)
        store.begin("k")
        with pytest.raises(FormatVersionError, match=r"upload.json has version 2, .*: run a newer one"):
            list(store.list_uploads())

    def test_a_listing_of_several_pages_is_whole(self, store: ObjectStore) -> None:
        keys = [f"page/{i:03}{'-' * (i % 2)}/{i}" for i in range(50)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        assert [key for key, _ in store.list()] == sorted(keys)
        assert [key for key, _ in store.list("page/", keys[29])] == [key for key in sorted(keys) if key > keys[29]]
        assert len(list(store.folders("page/"))) == len(keys)

    @pytest.mark.parametrize("key", ["a:b", "del\x7f"])
    def test_a_name_that_hdfs_does_not_allow_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(FatalError, match="HDFS"):
            store.put(key, b"x")

    def test_commits_side_by_side_make_one_object(self, few: int, store: ObjectStore, other: ObjectStore) -> None:
        for i in range(4):
            contents = [noise(1000, (i, n)) for n in range(8 * few)]
            upload = store.begin(f"k/{i}")
            with ThreadPoolExecutor(8) as pool:
                parts = list(pool.map(lambda n: send(store, upload, contents, n), range(len(contents))))  # noqa: B023
                done = list(pool.map(lambda one: one.commit(upload, parts).size, [store, other] * 2))  # noqa: B023
            assert done == [len(contents) * 1000] * 4
            assert store.read(f"k/{i}")[0] == b"".join(contents)
            assert list(store.list_uploads()) == []

    def test_what_a_killed_process_left_is_removed_after_a_day_and_not_before(
        self, subject: Subject, hdfs: Hdfs, stores: Stores
    ) -> None:
        assert subject.settings is not None
        root = urlsplit(subject.settings.root).path
        day_before = time.time_ns() // 1_000_000 - LEFT_OVER_AFTER_MS - 1000
        for name, modified in (("old", day_before), ("young", day_before + 60_000)):
            at = f"{root}/.tmp/{name}/upload.json"
            ask(hdfs, "PUT", at, "MKDIRS")
            ask(hdfs, "PUT", at.rpartition("/")[0], "SETTIMES", modificationtime=str(modified))
        stores.open(subject.settings).put("k", b"x")
        left = ask(hdfs, "GET", f"{root}/.tmp", "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        assert [entry["pathSuffix"] for entry in left] == ["young"]

    def test_what_another_user_left_keeps_nobody_from_writing(
        self, subject: Subject, hdfs: Hdfs, stores: Stores
    ) -> None:
        assert subject.settings is not None
        root = urlsplit(subject.settings.root).path
        theirs = f"{root}/.tmp/theirs"
        ask(hdfs, "PUT", f"{theirs}/upload.json", "MKDIRS").raise_for_status()
        day_before = time.time_ns() // 1_000_000 - LEFT_OVER_AFTER_MS - 1000
        ask(hdfs, "PUT", theirs, "SETTIMES", modificationtime=str(day_before)).raise_for_status()
        for folder in (root, f"{root}/.tmp"):
            ask(hdfs, "PUT", folder, "SETPERMISSION", permission="777").raise_for_status()
        stranger = stores.open(replace(subject.settings, options=(("user", "stranger"),)))
        stranger.put("k", b"x")
        assert stranger.read("k")[0] == b"x"
        assert ask(hdfs, "GET", theirs, "GETFILESTATUS").is_success

    def test_who_may_not_write_is_told_so(self, hdfs: Hdfs, subject: Subject, stores: Stores) -> None:
        assert subject.settings is not None
        stores.open(subject.settings).put("k", b"x")
        stranger = stores.open(replace(subject.settings, options=(("user", "stranger"),)))
        assert stranger.read("k")[0] == b"x"
        for call in (lambda: stranger.put("k", b"y"), lambda: stranger.delete(["k"]), lambda: stranger.begin("l")):
            with pytest.raises(AccessDeniedError, match="options user") as caught:
                call()
            assert "\n" not in str(caught.value)

    def test_a_quota_that_is_used_up_is_a_full_store(self, hdfs: Hdfs, subject: Subject, store: ObjectStore) -> None:
        assert subject.settings is not None
        store.put("k", b"x")
        ask(hdfs, "PUT", urlsplit(subject.settings.root).path, "SETQUOTA", namespacequota="6").raise_for_status()
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreFullError):
            list(pool.map(lambda i: store.put(f"more/{i}", b"x"), range(10)))

    def test_a_silent_namenode_is_not_waited_for(self, hdfs: Hdfs, stores: Stores) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            store = stores.open(hdfs.settings(silent.getsockname()[1], read_timeout="0.2", **IMPATIENT))
            for call in (lambda: store.stat("k"), lambda: store.put("k", b"x")):
                with pytest.raises(StoreUnavailableError, match="ReadTimeout"):
                    call()

    def test_a_silent_datanode_is_not_waited_for(self, hdfs: Hdfs, stores: Stores) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            Proxy(
                "127.0.0.1",
                hdfs.namenode,
                elsewhere={f"127.0.0.1:{hdfs.datanode}": f"127.0.0.1:{silent.getsockname()[1]}"},
            ) as proxy,
        ):
            mine = Stores()
            settings = hdfs.settings(proxy.port, read_timeout="0.2", **IMPATIENT)
            stores.open(hdfs.settings_of(settings)).put("k", b"x")
            store = mine.open(settings)
            for call in (lambda: store.read("k"), lambda: store.put("l", b"x")):
                with pytest.raises(StoreUnavailableError, match="ReadTimeout"):
                    call()
            assert store.stat("l") is None
            mine.close()

    def test_the_namenode_that_is_active_is_found(self, hdfs: Hdfs, stores: Stores) -> None:
        with Proxy("127.0.0.1", hdfs.namenode, json_as_told) as standby:
            standby.add(refused(anything, "StandbyException"))
            mine = Stores()
            store = mine.open(
                hdfs.settings(free_port(), standby=f"{urlsplit(standby.url).netloc}, 127.0.0.1:{hdfs.namenode}")
            )
            assert store.put("k", b"x", if_absent=True) is not None
            assert store.read("k")[0] == b"x"
            assert len(standby.requests) == 1
            mine.close()

    @pytest.mark.parametrize("exception", ["RetriableException", ""], ids=["starts", "silent"])
    def test_a_namenode_that_was_active_is_left_when_it_starts_again_or_falls_silent(
        self, hdfs: Hdfs, exception: str
    ) -> None:
        with (
            Proxy("127.0.0.1", hdfs.namenode, json_as_told) as former,
            socket.create_server(("127.0.0.1", 0)) as silent,
        ):
            former.add(refused(anything, exception))
            first = former.port if exception else silent.getsockname()[1]
            settings = hdfs.settings(first, standby=f"127.0.0.1:{hdfs.namenode}", read_timeout="0.5")
            mine = Stores()
            store = mine.open(settings)
            store.put("k", b"x")
            assert store.read("k")[0] == b"x"
            mine.close()


class TestHdfsWithFaults:
    """`store` and `impatient`, which soon gives up, go through two proxies, of the namenode and the datanode; `direct`
    does not."""

    @pytest.fixture
    def proxies(self, hdfs: Hdfs) -> Iterator[tuple[Proxy, Proxy]]:
        with ExitStack() as stack:
            yield hdfs.proxies(stack)

    @pytest.fixture
    def namenode(self, proxies: tuple[Proxy, Proxy]) -> Proxy:
        return proxies[0]

    @pytest.fixture
    def datanode(self, proxies: tuple[Proxy, Proxy]) -> Proxy:
        return proxies[1]

    @pytest.fixture
    def settings(self, hdfs: Hdfs, namenode: Proxy) -> StoreSettings:
        return hdfs.settings(namenode.port)

    @pytest.fixture
    def direct(self, hdfs: Hdfs, stores: Stores, settings: StoreSettings) -> ObjectStore:
        return stores.open(hdfs.settings_of(settings))

    @pytest.fixture
    def store(self, settings: StoreSettings) -> Iterator[ObjectStore]:
        stores = Stores()
        yield prepared(stores.open(settings))
        stores.close()  # before the proxies, which wait for their connections

    @pytest.fixture
    def impatient(self, settings: StoreSettings) -> Iterator[ObjectStore]:
        stores = Stores()
        yield prepared(stores.open(replace(settings, options=tuple(IMPATIENT.items()))))
        stores.close()

    def test_a_create_whose_answer_is_lost_is_ours(
        self, namenode: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        for key in ("slot", "a/new/folder"):
            lost = namenode.add(Rule(renames, times=2))
            written = store.put(key, b"token", if_absent=True)
            assert lost.times == 0
            assert written == direct.stat(key)

    def test_a_create_that_lost_its_answer_and_the_race_is_not_ours(
        self, namenode: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        direct.put("slot", b"theirs", if_absent=True)
        namenode.add(Rule(renames))
        assert store.put("slot", b"ours", if_absent=True) is None
        assert direct.read("slot")[0] == b"theirs"

    def test_a_write_without_any_answer_is_unknown(
        self, namenode: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        namenode.add(Rule(renames, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)
        assert direct.read("slot")[0] == b"token"

    @pytest.mark.parametrize("exception", ["StandbyException", "SafeModeException", "AccessControlException"])
    def test_a_lost_answer_followed_by_refusals_is_unknown(
        self, namenode: Proxy, impatient: ObjectStore, exception: str
    ) -> None:
        namenode.add(Rule(renames))
        namenode.add(refused(renames, exception))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token")

    def test_what_cannot_be_looked_at_after_a_lost_answer_is_unknown(
        self, namenode: Proxy, impatient: ObjectStore
    ) -> None:
        namenode.add(Rule(renames))
        namenode.add(Rule(anything, after=3, times=FOR_EVER, unsent=True))  # created, looked at, renamed
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)

    @pytest.mark.parametrize("exception", ["StandbyException", "SafeModeException", "RetriableException"])
    def test_who_asks_for_patience_gets_it_until_the_deadline(
        self, namenode: Proxy, store: ObjectStore, impatient: ObjectStore, exception: str
    ) -> None:
        namenode.add(refused(renames, exception, times=2))
        assert store.put("slot", b"x", if_absent=True) is not None
        namenode.add(refused(renames, exception))
        with pytest.raises(StoreUnavailableError):
            impatient.put("slot", b"y")

    def test_an_error_that_nobody_understands_leaves_a_write_unknown_and_a_read_unavailable(
        self, namenode: Proxy, impatient: ObjectStore
    ) -> None:
        namenode.add(refused(renames, "IOException"))
        with pytest.raises(OutcomeUnknownError) as caught:
            impatient.put("k", b"x")
        assert "\n" not in str(caught.value)
        namenode.add(refused(anything, "IOException"))
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    def test_bytes_whose_answer_is_lost_are_written_again_elsewhere(
        self, datanode: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        lost = datanode.add(Rule(changes))
        never_there = datanode.add(Rule(changes, unsent=True))
        assert store.put("k", b"x", if_absent=True) == direct.stat("k")
        assert lost.times == never_there.times == 0
        assert len({path for method, path in datanode.requests[-3:]}) == 3
        assert list(direct.list()) == [("k", 1)]

    def test_a_datanode_that_takes_nothing_is_unavailable_and_nothing_is_there(
        self, datanode: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        datanode.add(refused(changes, "IOException"))
        with pytest.raises(StoreUnavailableError):
            impatient.put("k", b"x", if_absent=True)
        assert direct.stat("k") is None

    def test_a_byte_that_changes_on_the_way_is_sent_again(
        self, datanode: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        changed = [datanode.add(Rule(changes, times=2, damaged=True))]
        store.put("k", noise(100_000))
        assert direct.read("k")[0] == noise(100_000)
        changed.append(datanode.add(Rule(changes, damaged=True)))
        upload = store.begin("l")
        changed.append(datanode.add(Rule(changes, damaged=True)))
        parts = upload_parts(store, upload, [noise(100_000)])
        store.commit(upload, parts)
        assert direct.read("l")[0] == noise(100_000)
        assert [rule.times for rule in changed] == [0, 0, 0]
        assert not any(op(path, "OPEN") for _, path in datanode.requests[:2]), "the checksum is enough"

    def test_bytes_that_always_change_on_the_way_never_count(
        self, datanode: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("l")
        datanode.add(Rule(changes, times=FOR_EVER, damaged=True))
        for call in (lambda: impatient.put("k", b"x"), lambda: impatient.put_part(upload, 1, 0, b"x", crc32c(b"x"))):
            with pytest.raises(StoreUnavailableError, match="other bytes than ours"):
                call()
        assert direct.stat("k") is None
        with pytest.raises(PartRejectedError):
            direct.commit(upload, [UploadedPart(1, 1, rules.part_etag(1, crc32c(b"x")), crc32c(b"x"))])

    @pytest.mark.parametrize("place", ["namenode", "datanode"])
    def test_a_cluster_that_tells_no_checksum_is_read_back(
        self, namenode: Proxy, datanode: Proxy, store: ObjectStore, direct: ObjectStore, place: str
    ) -> None:
        told = {"FileChecksum": {"algorithm": "COMPOSITE-CRC32C", "bytes": "00000000", "length": 4}}
        where = {"namenode": namenode, "datanode": datanode}[place]
        for rule in (
            refused(sums, "UnsupportedOperationException", status=400, times=2),
            refused(sums, "IOException", times=2),
            Rule(sums, times=2, status=404),
            Rule(sums, times=2, status=200, code=json.dumps(told)),
        ):
            where.add(rule)
            changed = datanode.add(Rule(changes, damaged=True))
            store.put("k", noise(3_000_000))
            assert direct.read("k")[0] == noise(3_000_000)
            assert rule.times == changed.times == 0

    def test_a_checksum_whose_answer_is_lost_is_asked_again(
        self, namenode: Proxy, datanode: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        lost = [namenode.add(Rule(sums)), datanode.add(Rule(sums))]
        assert store.put("k", b"x", if_absent=True) == direct.stat("k")
        assert [rule.times for rule in lost] == [0, 0]

    def test_who_removes_what_we_write_does_not_end_our_upload(
        self, datanode: Proxy, store: ObjectStore, impatient: ObjectStore
    ) -> None:
        upload = store.begin("k")
        datanode.add(refused(changes, "FileNotFoundException", status=404, times=1))
        parts = upload_parts(store, upload, [b"one"])
        store.commit(upload, parts)
        datanode.add(refused(changes, "FileNotFoundException", status=404))
        with pytest.raises(StoreUnavailableError):
            impatient.put("l", b"x")

    def test_a_body_that_is_cut_short_is_read_again(self, datanode: Proxy, store: ObjectStore) -> None:
        data = noise(300_000)
        store.put("k", data)
        cut = datanode.add(Rule(lambda method, path: method == "GET", times=2, cut=100_000))
        assert store.read("k")[0] == data
        assert store.read("k", 1000, 50_000)[0] == data[1000:51_000]
        assert cut.times == 0

    def test_a_body_that_is_always_cut_short_is_an_error(self, datanode: Proxy, impatient: ObjectStore) -> None:
        impatient.put("k", noise(300_000))
        datanode.add(Rule(lambda method, path: method == "GET", times=FOR_EVER, cut=100_000))
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    @pytest.mark.parametrize("step", range(STEPS_OF_A_COMMIT))
    def test_a_commit_loses_any_answer_and_happens(
        self, namenode: Proxy, store: ObjectStore, direct: ObjectStore, step: int
    ) -> None:
        contents = [noise(1000, 1), noise(1000, 2), noise(7, 3)]
        upload = store.begin("k")
        parts = upload_parts(store, upload, contents)
        lost = namenode.add(Rule(changes, after=step))
        assert store.commit(upload, parts) == direct.stat("k")
        assert lost.times == 0
        assert direct.read("k")[0] == b"".join(contents)
        assert list(direct.list_uploads()) == []

    @pytest.mark.parametrize("sent", [False, True])
    @pytest.mark.parametrize("step", range(STEPS_OF_A_COMMIT))
    def test_a_commit_that_breaks_off_anywhere_is_completed_by_another_process(
        self, namenode: Proxy, impatient: ObjectStore, direct: ObjectStore, step: int, sent: bool
    ) -> None:
        contents = [noise(1000, 1), noise(1000, 2), noise(7, 3)]
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, contents)
        namenode.add(Rule(changes, after=step, times=FOR_EVER, unsent=not sent))
        with pytest.raises(OffloadError):
            impatient.commit(upload, parts)
        assert direct.stat("k") is None or direct.read("k")[0] == b"".join(contents)
        direct.commit(upload, parts)
        assert direct.read("k")[0] == b"".join(contents)
        assert direct.commit(upload, parts).size == 2007
        assert [key for key, _ in direct.list()] == ["k"]
        assert list(direct.list_uploads()) == []

    def test_a_commit_that_breaks_off_can_be_aborted_and_is_listed_until_then(
        self, namenode: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"one", b"two"])
        namenode.add(Rule(lambda *request: names("k", *request), times=FOR_EVER, unsent=True))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert [found.upload for found in direct.list_uploads()] == [upload]
        direct.abort(upload)
        assert list(direct.list_uploads()) == []
        with pytest.raises(UploadGoneError):
            direct.commit(upload, parts)
        assert direct.stat("k") is None

    @pytest.mark.parametrize("exception", ["HadoopIllegalArgumentException", "UnsupportedOperationException"])
    def test_blocks_that_may_not_be_handed_over_are_copied(
        self, namenode: Proxy, datanode: Proxy, store: ObjectStore, exception: str
    ) -> None:
        asked = namenode.add(refused(lambda _, path: op(path, "CONCAT"), exception, status=400))
        contents = [noise(5_000_000, 1), noise(1000, 2), noise(7, 3)]
        upload = store.begin("k")
        parts = upload_parts(store, upload, contents)
        datanode.add(Rule(changes))  # the copy is made again
        store.commit(upload, parts)
        assert asked.times == FOR_EVER - 1
        assert store.read("k")[0] == b"".join(contents)
        assert [key for key, _ in store.list()] == ["k"]

    def test_a_copy_of_blocks_with_other_bytes_never_counts(
        self, namenode: Proxy, datanode: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        namenode.add(refused(lambda _, path: op(path, "CONCAT"), "UnsupportedOperationException", status=400))
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [noise(1000, 1), noise(7, 2)])
        for read in (False, True):  # on its way to the datanode; while it is read for the copy
            changed = datanode.add(Rule(lambda method, path: (method == "GET") is read, damaged=True))  # noqa: B023
            with pytest.raises(StoreUnavailableError, match="other bytes"):
                impatient.commit(upload, parts)
            assert changed.times == 0
            assert direct.stat("k") is None
        impatient.commit(upload, parts)
        assert direct.read("k")[0] == noise(1000, 1) + noise(7, 2)

    def test_commits_side_by_side_that_copy_make_one_object(
        self, namenode: Proxy, store: ObjectStore, impatient: ObjectStore
    ) -> None:
        namenode.add(refused(lambda _, path: op(path, "CONCAT"), "UnsupportedOperationException", status=400))
        for i in range(6):
            upload = store.begin(f"k/{i}")
            parts = upload_parts(store, upload, [noise(1000, 1), noise(1000, 2), noise(7, 3)])
            with ThreadPoolExecutor(4) as pool:
                done = list(pool.map(lambda one: one.commit(upload, parts).size, [store, impatient] * 2))  # noqa: B023
            assert done == [2007] * 4
            assert store.read(f"k/{i}")[0] == noise(1000, 1) + noise(1000, 2) + noise(7, 3)

    def test_who_renames_in_another_way_is_not_written_to(self, namenode: Proxy, settings: StoreSettings) -> None:
        mine = Stores()
        for status, json_text in ((200, '{"boolean": true}'), (200, '{"boolean": false}')):
            namenode.add(Rule(renames, status=status, code=json_text))
            with pytest.raises(UnprovenStoreError, match="HttpFS"):
                mine.open(settings).put("k", b"x")
        mine.close()

    def test_who_knows_no_numbers_is_not_written_to(self, namenode: Proxy, settings: StoreSettings) -> None:
        mine = Stores()
        namenode.add(refused(lambda _, path: "/.reserved/.inodes/" in path, "FileNotFoundException", status=404))
        with pytest.raises(UnprovenStoreError, match="router"):
            mine.open(settings).put("k", b"x")
        mine.close()

    def test_a_request_that_was_never_accepted_did_not_happen(self, hdfs: Hdfs, stores: Stores) -> None:
        nobody = stores.open(hdfs.settings(free_port(), **IMPATIENT))
        for call in (lambda: nobody.put("k", b"x", if_absent=True), lambda: nobody.read("k")):
            with pytest.raises(StoreUnavailableError, match="ConnectError"):
                call()


def prepared(store: ObjectStore) -> ObjectStore:
    """A store that has tried what its cluster does, so that the next request is the test's."""
    store.put("before", b"x")
    store.delete(["before"])
    return store


def send(store: ObjectStore, upload: str, contents: list[bytes], n: int) -> UploadedPart:
    """One part of several, all of 1,000 bytes."""
    return store.put_part(upload, n + 1, n * 1000, contents[n], crc32c(contents[n]))


def ask(hdfs: Hdfs, method: str, path: str, op: str, **parameters: str) -> httpx.Response:
    """Ask the namenode as the user who started it."""
    told = {"op": op, "user.name": getpass.getuser(), **parameters}
    return httpx.request(method, f"http://127.0.0.1:{hdfs.namenode}/webhdfs/v1{path}", params=told)
