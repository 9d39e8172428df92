"""What `AzureStore` is opened with, which names it takes, and what it says of what is no Azure. The rest is shown with
Azurite: integration/storage/test_azurite.py."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from azure.core.credentials import AccessTokenInfo
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobProperties, ImmutabilityPolicy
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from offloader.model import MIB
from offloader.ports.object_store import NO_CRC, ObjectStore, UploadedPart
from offloader.storage import azure_client
from offloader.storage.azure import AzureStore
from offloader.storage.azure_answers import stat_of
from offloader.storage.azure_client import open_azure
from offloader.storage.azure_names import block_id, check_name, in_order, listed_from
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.answering import one_answer
from tests.storage.subject import noise

KEY, SIGNATURE = "a2V5", "sv=2026-06-06&sig=s3cr3t%2Bs"
OPTIONS = {"account_name": "account", "account_key": KEY}
READS: dict[str, Callable[[ObjectStore], object]] = {
    "read": lambda store: store.read("k"),
    "stat": lambda store: store.stat("k"),
    "list": lambda store: list(store.list()),
    "folders": lambda store: list(store.folders()),
    "list_uploads": lambda store: list(store.list_uploads()),
}
WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("k", b"x", if_absent=True),
    "begin": lambda store: store.begin("k"),
    "put_part": lambda store: store.put_part("id:k", 1, 0, b"x", crc32c(b"x")),
    "delete": lambda store: store.delete(["k"]),
}


def opened(root: str, options: Mapping[str, str] = OPTIONS, endpoint: str | None = None, **outside: str) -> AzureStore:
    store = open_azure(StoreSettings(root, endpoint, options=tuple(options.items())), outside)
    store.close()
    return store


@pytest.mark.parametrize(
    ("root", "account"),
    [
        ("az://container/a/b", "https://account.blob.core.windows.net/"),
        ("abfs://container", "https://account.blob.core.windows.net/"),
        ("ABFSS://container@account.dfs.core.windows.net/a", "https://account.blob.core.windows.net/"),
        ("abfss://container@account.dfs.core.chinacloudapi.cn/a", "https://account.blob.core.chinacloudapi.cn/"),
        ("az://container@account.blob.core.windows.net/a", "https://account.blob.core.windows.net/"),
    ],
)
def test_each_url_names_a_container_and_an_account(root: str, account: str) -> None:
    store = opened(root)
    assert store.account == account
    assert store.url == root.replace("ABFSS", "abfss")


@pytest.mark.parametrize(
    ("options", "outside", "kind"),
    [
        (OPTIONS, {}, "SharedKeyCredentialPolicy"),
        ({}, {"AZURE_STORAGE_ACCOUNT": "account", "AZURE_STORAGE_KEY": KEY}, "SharedKeyCredentialPolicy"),
        ({}, {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": KEY}, "SharedKeyCredentialPolicy"),
        ({}, {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=account;AccountKey={KEY}"}, "SharedKeyCredentialPolicy"),
        ({"account_name": "account", "sas_token": SIGNATURE}, {"AZURE_STORAGE_KEY": KEY}, "NoneType"),
        ({"account_name": "account"}, {}, "OwnIdentity"),
        ({}, {"AZURE_STORAGE_ACCOUNT": "account"}, "OwnIdentity"),
    ],
)
def test_credentials_are_those_of_the_options_then_the_environments_then_our_own_identity(
    options: dict[str, str], outside: dict[str, str], kind: str
) -> None:
    store = opened("az://container", options, **outside)
    assert type(store._service.credential).__name__ == kind
    assert store.account == "https://account.blob.core.windows.net/"


@pytest.mark.parametrize(
    ("root", "options", "text"),
    [
        ("az://", OPTIONS, "names no container"),
        ("az://c/p", OPTIONS, "names no container"),
        ("az://Container/p", OPTIONS, "names no container"),
        ("az://container@account/p", OPTIONS, "names no container"),
        ("az://container/dot./p", OPTIONS, "dot"),
        ("az://container", {}, "account_name: is not set"),
        ("az://container", {"account_key": KEY}, "account_name: is not set"),
        ("az://container", {"account_name": "No Account"}, "account_name"),
        ("az://container", {"account_name": "account", "account_key": "no key"}, "account_key: is no key"),
        ("az://container", {**OPTIONS, "sas_token": SIGNATURE}, "give one of them"),
        ("az://container", {"account_name": "account", "sas_token": "sv=1"}, "sas_token"),
        ("az://container", {"connection_string": "nonsense"}, "onnection string"),
        ("az://container", {**OPTIONS, "unknown": "1"}, "unknown"),
        ("az://container", {**OPTIONS, "read_timeout": "soon"}, "read_timeout"),
        (
            "az://container@other.dfs.core.windows.net",
            {"connection_string": "AccountName=account;AccountKey=a2V5"},
            "account other",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(root: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        opened(root, options)
    assert "\n" not in str(caught.value)
    assert "no key" not in str(caught.value).replace("is no key", "")


def test_an_identity_is_not_shown_to_whoever_listens() -> None:
    with pytest.raises(ConfigError, match="HTTPS"):
        opened("az://container", {"account_name": "account"}, "http://127.0.0.1:1/account")


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Who gives tokens to this machine; nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "x")
        yield silent


def of_our_own_identity(**more: str) -> ObjectStore:
    options = {"account_name": "account", "retry_deadline": "0.1", **more}
    return open_azure(
        StoreSettings("az://container", "https://127.0.0.1:1/account", options=tuple(options.items())), {}
    )


def test_who_gives_tokens_and_is_silent_is_not_waited_for(identity: socket.socket) -> None:
    store = of_our_own_identity(connect_timeout="0.3", read_timeout="0.3")
    began = time.monotonic()
    with pytest.raises(AccessDeniedError, match="log in"):
        store.stat("k")
    assert time.monotonic() - began < store.longest_call
    store.close()


def test_no_token_may_pass_for_whom_had_one(identity: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    one = AccessTokenInfo("token", int(time.time()) + 60)  # so soon over that each request asks for another
    answers = iter([one])

    def token(*_: object, **__: object) -> AccessTokenInfo:
        try:
            return next(answers)
        except StopIteration:
            raise ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token") from None

    monkeypatch.setattr(DefaultAzureCredential, "get_token_info", token)
    store = of_our_own_identity()
    for call in (lambda: store.stat("k"), lambda: store.put("k", b"x", if_absent=True), lambda: store.stat("k")):
        with pytest.raises(StoreUnavailableError):
            call()
    store.close()
    fresh = of_our_own_identity()
    with pytest.raises(AccessDeniedError):
        fresh.stat("k")
    fresh.close()


def test_timeouts_are_those_of_the_options() -> None:
    store = opened("az://container", {**OPTIONS, "retry_deadline": "2", "connect_timeout": "1", "read_timeout": "4"})
    assert store.retry_deadline == 2
    assert store.longest_call == 2 * (2 + 1 + 4)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "offloader.storage.azure_client", None)
    with pytest.raises(ConfigError, match="install the extra azure"):
        open_store(StoreSettings("az://container"))


@pytest.mark.parametrize("key", ["a.", "a./b", "a\\b", "a\n", "\ue000", "\uffff", "k" * 1023, "a/" * 300 + "b"])
def test_a_key_that_azure_would_change_or_refuse_is_refused_before(key: str) -> None:
    store = opened("az://container/ab")
    for call in (store.stat, store.read, store.begin, lambda k: store.put(k, b"x"), lambda k: store.delete([k])):
        with pytest.raises(FatalError, match="Azure") as caught:
            call(key)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["a.b/..c", "ünï/日本/🙂", "?#%;+ &=", "k" * 1021])
def test_any_other_key_is_a_name(key: str) -> None:
    assert check_name("ab/", key) == f"ab/{key}"


@given(st.integers(1, 10_000), st.integers(0, 2**31), st.integers(0, 2**32 - 1))
def test_ids_of_blocks_are_of_one_length_and_tell_uploads_parts_and_bytes_apart(
    number: int, size: int, crc: int
) -> None:
    one = block_id("a" * 32, UploadedPart(number, size, "", crc))
    others = [
        block_id("b" * 32, UploadedPart(number, size, "", crc)),
        block_id("a" * 32, UploadedPart(number + 1, size, "", crc)),
        block_id("a" * 32, UploadedPart(number, size + 1, "", crc)),
        block_id("a" * 32, UploadedPart(number, size, "", crc ^ 1)),
        block_id("a" * 32, UploadedPart(number, size, "", NO_CRC)),
    ]
    assert one not in others
    assert {len(each) for each in [one, *others]} == {56}


def utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


KEYS = st.lists(st.text(st.sampled_from("a-/.é\ud7ff\uffee🙂"), max_size=4), unique=True)


@given(KEYS, st.sampled_from(["utf-16", "code points"]))
def test_a_listing_is_in_our_order_whichever_the_servers_is(keys: list[str], order: str) -> None:
    listed = sorted(keys, key=utf16 if order == "utf-16" else None)
    assert [key for key, _ in in_order((key, 0) for key in listed)] == sorted(keys)


@given(KEYS, st.text(st.sampled_from("a-/é\uffee🙂"), min_size=1, max_size=4), st.sampled_from([utf16, str.encode]))
def test_no_key_is_left_out_where_a_listing_begins_late(
    keys: list[str], after: str, order: Callable[[str], bytes]
) -> None:
    listed = [key for key in keys if order(key) >= order(listed_from(after))]
    assert {key for key in keys if key > after} <= set(listed)


@contextmanager
def answering(status: int, page: bytes = b"", **headers: str) -> Iterator[tuple[ObjectStore, list[str]]]:
    """A store whose endpoint gives this answer to everything, and the paths that it was asked for."""
    options = (*OPTIONS.items(), ("retry_deadline", "0.1"))
    with one_answer(status, page, headers) as (url, asked):
        store = open_store(StoreSettings("az://container/p", f"{url}/account", options=options))
        try:
            yield store, asked
        finally:
            store.close()


@pytest.mark.parametrize("call", READS | WRITES)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_an_endpoint_that_only_redirects_is_asked_once_and_named(call: str, status: int) -> None:
    with answering(status, b"<html>moved</html>", Location="https://elsewhere/k") as (store, asked):
        with pytest.raises(FatalError, match=r"check storage\.endpoint"):
            (READS | WRITES)[call](store)
        assert len(asked) == 1


@pytest.mark.parametrize("call", READS | WRITES)
def test_a_404_that_is_not_azures_is_no_absent_object(call: str) -> None:
    with (
        answering(404, b"<html>not found</html>") as (store, _),
        pytest.raises(FatalError, match=r"check storage\.endpoint"),
    ):
        (READS | WRITES)[call](store)


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("page", [b"", b"<!doctype html><html lang=en><title>Console</title></html>", b"{}"])
def test_an_answer_of_another_service_is_no_object_and_no_listing(call: str, page: bytes) -> None:
    with answering(200, page) as (store, _), pytest.raises(FatalError, match=r"check storage\.endpoint"):
        READS[call](store)


@pytest.mark.parametrize("told", [True, False])
def test_an_account_says_whether_it_has_real_folders(told: bool) -> None:
    headers = {"x-ms-version": "2021-12-02", "x-ms-is-hns-enabled": str(told).lower()}
    with answering(200, **headers) as (store, _):
        assert isinstance(store, AzureStore)
        assert store.has_folders() is told
    with answering(403, **{"x-ms-error-code": "AuthorizationFailure"}) as (store, _):
        assert isinstance(store, AzureStore)
        assert store.has_folders() is None


@pytest.mark.parametrize("call", WRITES)
def test_a_write_that_another_service_answers_may_have_happened(call: str) -> None:
    with answering(200) as (store, _), pytest.raises(OutcomeUnknownError, match=r"check storage\.endpoint"):
        WRITES[call](store)


def test_no_error_and_no_log_shows_a_signature_or_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    for options in ({"sas_token": SIGNATURE}, OPTIONS):
        store = open_azure(
            StoreSettings(
                "az://container",
                f"http://127.0.0.1:{port}/account",
                options=(*options.items(), ("retry_deadline", "0.1")),
            ),
            {},
        )
        for call in (READS | WRITES).values():
            with pytest.raises(OffloadError) as caught:
                call(store)
            said = "".join(traceback.format_exception(caught.value))
            assert "s3cr3t" not in said
            assert KEY not in said
        store.close()
    assert "s3cr3t" not in caplog.text
    assert KEY not in caplog.text


def test_credentials_are_not_shown() -> None:
    for access in (
        azure_client.access_of(OPTIONS, {}),
        azure_client.access_of({"account_name": "account", "sas_token": SIGNATURE}, {}),
        azure_client.access_of({"connection_string": f"AccountName=account;AccountKey={KEY}"}, {}),
    ):
        assert KEY not in repr(access)
        assert "s3cr3t" not in repr(access)


def test_on_a_slow_line_bytes_may_take_longer_than_to_connect() -> None:
    """Bytes that are sent in one go get no more time than a connection."""
    arrived: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # of what it accepts

        def read_slowly() -> None:
            with listening.accept()[0] as line:
                while len(found := line.recv(1 << 16)):
                    arrived.append(len(found))
                    time.sleep(0.03)
                    if sum(arrived) > 8 * MIB:
                        return

        thread = threading.Thread(target=read_slowly)
        thread.start()
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}/account"
        options = (*OPTIONS.items(), ("retry_deadline", "0.1"), ("connect_timeout", "0.6"))
        store = open_store(StoreSettings("az://container/p", endpoint, options=options))
        with pytest.raises(OutcomeUnknownError):
            store.put("k", noise(8 * MIB))
        thread.join()
        store.close()
    assert sum(arrived) > 8 * MIB


def test_what_azure_keeps_is_shown() -> None:
    found = BlobProperties()
    found.size, found.etag = 1, '"e"'
    assert (stat_of(found).held, stat_of(found).held_until) == (False, 0)
    found.has_legal_hold = True
    found.immutability_policy = ImmutabilityPolicy(expiry_time=datetime(2100, 1, 1, tzinfo=UTC))
    assert (stat_of(found).held, stat_of(found).held_until) == (True, 4_102_444_800_000)
