"""From a URL to a store."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from offloader.errors import ConfigError, UnprovenStoreError
from offloader.storage.gcs import GcsStore
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryStore
from offloader.storage.open import open_store
from offloader.storage.s3 import S3Store
from offloader.storage.settings import StoreSettings
from tests.storage.servers import Stores


def test_each_url_has_its_store(tmp_path: Path, stores: Stores) -> None:
    kinds = {
        f"file://{tmp_path}": LocalStore,
        "memory://m": MemoryStore,
        "s3://bucket/a/b": S3Store,
        "S3://bucket": S3Store,
        "gs://bucket/a/b": GcsStore,
        "GCS://bucket": GcsStore,
    }
    for url, kind in kinds.items():
        endpoint = "http://localhost:4443" if kind is GcsStore else None  # else it looks for Google's credentials
        assert isinstance(stores.open(StoreSettings(url, endpoint, region="eu-west-1")), kind)


@pytest.mark.parametrize("root", ["sftp://c/p", "SFTP://c/P"])
def test_a_scheme_may_be_in_capitals_whichever_store_it_names(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    memory = fsspec.filesystem("memory")

    def url_to_fs(url: str, **_: object) -> tuple[object, str]:
        opened.append(url)
        return memory, "/root"

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    scheme, address = root.split("://")
    assert open_store(StoreSettings(root), read_only=True).url == f"{scheme.lower()}://{address}"
    assert opened == [f"{scheme.lower()}://{address}"]


def test_settings_can_be_sent_to_another_process_and_hide_the_secret() -> None:
    settings = StoreSettings("s3://b/p", "http://s:1", "r", "access", "very secret", (("retry_deadline", "3"),))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "very secret" not in repr(settings)


def test_a_file_url_is_decoded(tmp_path: Path) -> None:
    open_store(StoreSettings((tmp_path / "with space#and%").as_uri())).put("k", b"x")
    assert (tmp_path / "with space#and%" / "k").read_bytes() == b"x"


def test_memory_stores_of_one_name_are_one_bucket() -> None:
    open_store(StoreSettings("memory://same")).put("k", b"x")
    assert open_store(StoreSettings("memory://same")).read("k")[0] == b"x"
    assert open_store(StoreSettings("memory://other")).stat("k") is None


def test_the_options_of_s3_are_taken(stores: Stores) -> None:
    options = (("retry_deadline", "2.5"), ("connect_timeout", "1"), ("read_timeout", "4"))
    store = stores.open(StoreSettings("s3://b", region="r", options=options))
    assert store.retry_deadline == 2.5
    assert store.longest_call == 2 * (2.5 + 1 + 4)


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("", {}, "root"),
        ("/plain/path", {}, "file:///"),
        ("file://relative/path", {}, "absolute"),
        ("file:///", {}, "absolute"),
        ("file:///a?b", {}, "%3F"),
        ("file:///a", {"nonsense": "1"}, "options.nonsense: file:// takes no options"),
        ("FILE:///a", {"nonsense": "1"}, "options.nonsense: file:// takes no options"),
        ("memory://a", {"nonsense": "1"}, "options.nonsense: memory:// takes no options"),
        ("s3://", {}, "bucket"),
        ("s3:///prefix", {}, "bucket"),
        ("gs://", {}, "bucket"),
        ("gs://b", {"unknown": "1"}, "unknown"),
        ("gs://b", {"read_timeout": "soon"}, "read_timeout"),
        ("webhdfs://", {}, "webhdfs://namenode:9870/folder"),
        ("webhdfs://host", {}, "webhdfs://namenode:9870/folder"),
        ("webhdfs://host/", {}, "must name a folder"),
        ("webhdfs://host/a,b", {}, "comma"),
        ("webhdfs://host/a?b", {}, "must name a folder"),
        ("webhdfs://host:port/a", {}, "port"),
        ("webhdfs://me@host/a", {}, "webhdfs://namenode:9870/folder"),
        ("swebhdfs://host/a", {"standby": "me@other"}, "swebhdfs://namenode:9871/folder"),
        ("webhdfs://host/a", {"kerberos": "true"}, "options.kerberos: not an option of webhdfs://"),
        ("webhdfs://host/a", {"read_timeout": "soon"}, "read_timeout"),
        ("s3://b", {"unknown": "1"}, "unknown"),
        ("s3://b", {"retry_deadline": "soon"}, "retry_deadline"),
        ("s3://b", {"read_timeout": "-1"}, "read_timeout"),
        ("s3://b", {"max_connections": "0"}, "max_connections"),
        ("s3://b", {"addressing_style": "odd"}, "addressing_style"),
        ("s3://b", {"payload_signing": "false"}, "payload_signing: must be one of auto, always, never"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(url: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        open_store(StoreSettings(url, region="r", options=tuple(options.items())))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["bucket", "file://relative", "s3://", "nonsense://x"])
def test_a_wrong_url_is_reported_under_the_setting_that_gave_it(url: str) -> None:
    for settings in (StoreSettings(url, setting="--ledgers"), StoreSettings("file:///a").beside(url, "--ledgers")):
        with pytest.raises(ConfigError, match=r"^--ledgers: ") as caught:
            open_store(settings, read_only=True)
        assert "\n" not in str(caught.value)


def test_a_store_beside_another_is_reached_alike_but_options_are_of_one_scheme() -> None:
    s3 = StoreSettings("s3://b/p", "http://s:1", "r", "access", "secret", (("retry_deadline", "3"),))
    local = StoreSettings("file:///a", options=(("retry_deadline", "3"),))

    beside = s3.beside("s3://c", "--ledgers")
    assert (beside, beside.setting) == (
        StoreSettings("s3://c", "http://s:1", "r", "access", "secret", s3.options),
        "--ledgers",
    )
    assert s3.beside("file:///c", "--ledgers").options == ()
    for one, other in (
        ("gs://a", "gcs://b"),
        ("abfs://a", "abfss://b"),
        ("az://a", "abfs://b"),
        ("webhdfs://a/b", "swebhdfs://a/c"),
    ):  # one service
        assert StoreSettings(one, options=s3.options).beside(other, "--ledgers").options == s3.options
    assert local.beside("s3://c", "--ledgers").options == s3.options  # whoever gave them cannot have meant file://


@pytest.mark.parametrize(
    ("root", "beside", "kept"),
    [
        ("az://c/p", "s3://b", False),
        ("gs://c", "s3://b", False),
        ("s3://b", "abfss://c@account.dfs.core.windows.net/p", False),
        ("gs://c", "gcs://b", True),
        ("file:///a", "s3://b", True),
        ("webhdfs://a/b", "s3://b", True),
    ],
)
def test_no_service_is_reached_at_the_endpoint_of_another(root: str, beside: str, kept: bool) -> None:
    assert bool(StoreSettings(root, "https://one").beside(beside, "--ledgers").endpoint) is kept


def test_half_a_pair_of_keys_and_a_bad_endpoint_are_refused() -> None:
    for settings in (StoreSettings("s3://b", region="r", access_key="a"), StoreSettings("s3://b", "not a url", "r")):
        with pytest.raises(ConfigError):
            open_store(settings)


@pytest.mark.parametrize("error", [KeyError("uid not found: 1234"), OSError("No username set in the environment")])
def test_a_process_whose_user_has_no_name_is_told_to_say_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr("getpass.getuser", nameless)
    with pytest.raises(ConfigError, match=r"options\.user"):
        open_store(StoreSettings("webhdfs://host/a"))
    for options in ({"user": "me"}, {"delegation": "token"}):
        stores.open(StoreSettings("webhdfs://host/a", options=tuple(options.items())))


@pytest.mark.parametrize("read_only", [False, True])
def test_hdfs_by_its_own_protocol_is_refused_with_the_way_that_there_is(read_only: bool) -> None:
    with pytest.raises(UnprovenStoreError, match="webhdfs://namenode:9870/folder"):
        open_store(StoreSettings("hdfs://namenode:8020/folder"), read_only=read_only)


def test_a_store_without_a_proven_create_is_refused() -> None:
    with pytest.raises(UnprovenStoreError, match="hdfs"):
        open_store(StoreSettings("hdfs://host/path"))
