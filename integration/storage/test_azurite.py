"""Azure Blob Storage's client against Azurite."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from integration.azurite import ACCOUNT, CONTAINER, KEY, AzuriteServer
from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    PartRejectedError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore
from offloader.storage import azure
from offloader.storage.azure import AzureStore
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract, StrictCopyContract
from tests.storage.servers import Stores
from tests.storage.subject import Subject, check_many_parts, noise, upload_parts

pytestmark = pytest.mark.azurite

FOR_EVER = 10_000


class TestAzurite(StoreContract, CopyContract, StrictCopyContract):
    @pytest.fixture
    def subject(self, azurite: AzuriteServer, stores: Stores) -> Subject:
        settings = azurite.settings(azurite.fresh_root())
        return Subject(lambda: stores.open(settings), settings, beside=lambda: stores.open(azurite.container_beside()))

    def test_a_listing_of_several_pages_is_whole(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(azure, "PAGE", 10)
        keys = [f"page/{i:05}" for i in range(45)]
        for key in keys:
            store.put(key, b"x")
        assert [key for key, _ in store.list()] == keys
        assert [key for key, _ in store.list("page/", "page/00021")] == keys[22:]
        assert list(store.folders()) == ["page/"]
        uploads = {store.begin(key) for key in keys}
        assert {found.upload for found in store.list_uploads("page/")} == uploads
        assert [key for key, _ in store.list()] == keys

    def test_of_a_listing_no_more_is_asked_for_than_is_taken(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(azure, "PAGE", 2)
        for key in ("a/1", "a/2", "a/3", "a/4", "a/5"):
            store.put(key, b"x")
        assert next(iter(store.list("a/", "a/3"))) == ("a/4", 1)
        assert list(store.list("a/", "b")) == []
        assert len(list(store.list("a/", "A"))) == 5

    def test_many_parts_become_one_object(self, store: ObjectStore) -> None:
        check_many_parts(store, 100)

    def test_a_process_that_was_overtaken_replaces_nothing(
        self, store: ObjectStore, other: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has seen the upload open, was stopped, and commits less when others have committed all of it."""
        assert isinstance(store, AzureStore)
        upload = store.begin("k")
        parts = upload_parts(store, upload, [noise(100, 1), noise(100, 2)])
        look = store._meta_of

        def stopped_when_it_had_seen(upload: str) -> Mapping[str, str]:
            monkeypatch.setattr(store, "_meta_of", look)
            seen = look(upload)
            other.commit(upload, parts)
            return seen

        monkeypatch.setattr(store, "_meta_of", stopped_when_it_had_seen)
        with pytest.raises(UploadGoneError):
            store.commit(upload, parts[:1])
        assert other.read("k")[0] == noise(100, 1) + noise(100, 2)

    def test_an_object_that_was_there_before_is_replaced(self, store: ObjectStore) -> None:
        store.put("k", b"of others")
        upload = store.begin("k")
        store.commit(upload, upload_parts(store, upload, [b"ours"]))
        assert store.read("k")[0] == b"ours"

    def test_uploads_of_one_key_go_on_beside_each_other_until_one_commits(self, store: ObjectStore) -> None:
        one, two = store.begin("k"), store.begin("k")
        of_one, of_two = upload_parts(store, one, [b"one"]), upload_parts(store, two, [b"two"])
        store.commit(one, of_one)
        with pytest.raises(PartRejectedError):  # its blocks went with the commit: its owner begins again
            store.commit(two, of_two)
        assert store.read("k")[0] == b"one"


class TestAccess:
    """Each way to say who we are, and what is said where that is nobody."""

    def test_a_connection_string_and_a_signature_give_access(self, azurite: AzuriteServer, stores: Stores) -> None:
        root = azurite.fresh_root()
        text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={azurite.url}"
        by_text = stores.open(StoreSettings(root, options=(("connection_string", text),)))
        by_text.put("k", b"x")
        may = ContainerSasPermissions(read=True, write=True, list=True, delete=True, create=True, add=True)
        signed = generate_container_sas(
            ACCOUNT, CONTAINER, account_key=KEY, permission=may, expiry="2099-01-01T00:00:00Z"
        )
        by_signature = stores.open(StoreSettings(root, azurite.url, options=(("sas_token", f"?{signed}"),)))
        assert by_signature.read("k")[0] == b"x"
        assert list(by_signature.list()) == [("k", 1)]
        upload = by_signature.begin("copied", copies=True)
        part = by_signature.copy_part(upload, 1, 0, by_signature, "k", 0, 1)
        assert part is not None
        by_signature.commit(upload, [part])
        by_signature.delete(["k"])
        assert by_text.read("copied")[0] == b"x"
        assert [key for key, _ in by_text.list()] == ["copied"]

    def test_a_signature_for_reading_alone_writes_nothing(self, azurite: AzuriteServer, stores: Stores) -> None:
        signed = generate_container_sas(
            ACCOUNT, CONTAINER, account_key=KEY, permission="rl", expiry="2099-01-01T00:00:00Z"
        )
        store = stores.open(StoreSettings(azurite.fresh_root(), azurite.url, options=(("sas_token", signed),)))
        assert list(store.list()) == []
        with pytest.raises(AccessDeniedError, match="roles") as caught:
            store.put("k", b"x")
        assert signed not in str(caught.value)

    def test_a_wrong_key_is_refused(self, azurite: AzuriteServer, stores: Stores) -> None:
        store = stores.open(azurite.settings(azurite.fresh_root(), account_key="AAAA"))
        for call in (lambda: store.put("k", b"x"), lambda: store.stat("k"), lambda: list(store.list())):
            with pytest.raises(AccessDeniedError, match="credentials") as caught:
                call()
            assert "\n" not in str(caught.value)

    def test_a_container_that_does_not_exist_is_named(self, azurite: AzuriteServer, stores: Stores) -> None:
        store = stores.open(azurite.settings("az://no-such-container/root"))
        calls = (
            lambda: store.put("k", b"x"),
            lambda: store.begin("k"),
            lambda: store.stat("k"),
            lambda: store.read("k"),
            lambda: list(store.list()),
            lambda: store.delete(["k"]),
        )
        for call in calls:
            with pytest.raises(BucketNotFoundError, match="no-such-container"):
                call()

    def test_a_lease_of_somebody_else_is_named(self, azurite: AzuriteServer, stores: Stores) -> None:
        store = stores.open(azurite.settings(azurite.fresh_root()))
        found = store.put("k", b"x")
        assert found is not None
        assert isinstance(store, AzureStore)
        lease = store.blob("k").acquire_lease()
        for call in (
            lambda: store.put("k", b"y"),
            lambda: store.delete(["k"]),
            lambda: store.delete_if("k", found.etag),
        ):
            with pytest.raises(FatalError, match="lease"):
                call()
        lease.release()

    def test_an_object_with_snapshots_is_not_deleted(self, azurite: AzuriteServer, stores: Stores) -> None:
        store = stores.open(azurite.settings(azurite.fresh_root()))
        store.put("k", b"x")
        assert isinstance(store, AzureStore)
        store.blob("k").create_snapshot()
        with pytest.raises(FatalError, match="snapshots"):
            store.delete(["k"])
        assert store.read("k")[0] == b"x"
