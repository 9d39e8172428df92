"""What the store's options add to requests: encryption, storage class, who pays; and the checksum of deletions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest
from crc32c import crc32c

from offloader.errors import ConfigError
from offloader.storage.open import open_store
from offloader.storage.s3 import S3Store
from offloader.storage.settings import StoreSettings
from tests.storage.servers import Clients, S3Server, Stores

KEY = "arn:aws:kms:us-east-1:1:key/k"


class Sent:
    """The headers and body of each operation's last request."""

    def __init__(self, store: S3Store) -> None:
        self.requests: dict[str, tuple[dict[str, str], bytes]] = {}
        for client in Clients.of(store):
            client.meta.events.register("before-send.s3", self._note)

    def _note(self, request: AWSPreparedRequest, event_name: str, **_: object) -> None:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        body = request.body if isinstance(request.body, bytes) else b""
        self.requests[event_name.rpartition(".")[2]] = headers, body


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def opened(moto: S3Server, stores: Stores, **options: str) -> S3Store:
    store = stores.open(moto.settings(moto.fresh_root(), **options))
    assert isinstance(store, S3Store)
    return store


def written(store: S3Store) -> Mapping[str, Any]:
    """An index, a data object in one request and one in parts; what the server says of each."""
    store.put("index", b"index")
    store.put("small", b"data", if_absent=True, as_upload=True)
    upload = store.begin("data")
    store.commit(upload, [store.put_part(upload, 1, 0, b"data", crc32c(b"data"))])
    assert store.read("data")[0] == b"data"
    return {key: Clients.of(store).signed.head_object(**store.place_of(key)) for key in ("index", "small", "data")}


@pytest.mark.parametrize("encryption", ["AES256", "aws:kms"])
def test_objects_are_encrypted_as_the_options_say(moto: S3Server, stores: Stores, encryption: str) -> None:
    key = {"kms_key_id": KEY} if encryption == "aws:kms" else {}
    heads = written(opened(moto, stores, server_side_encryption=encryption, **key))
    assert {head["ServerSideEncryption"] for head in heads.values()} == {encryption}
    assert {head.get("SSEKMSKeyId") for head in heads.values()} == {key.get("kms_key_id")}


def test_only_data_objects_get_the_storage_class(moto: S3Server, stores: Stores) -> None:
    heads = written(opened(moto, stores, storage_class="STANDARD_IA"))
    assert {key: head.get("StorageClass", "STANDARD") for key, head in heads.items()} == {
        "index": "STANDARD",
        "small": "STANDARD_IA",
        "data": "STANDARD_IA",
    }


def test_a_data_object_has_the_same_content_type_in_one_request_as_in_parts(moto: S3Server, stores: Stores) -> None:
    heads = written(opened(moto, stores))
    assert {key: head["ContentType"] for key, head in heads.items()} == {
        "index": "application/octet-stream",
        "small": "application/unknown",
        "data": "application/unknown",
    }


def test_who_asks_pays(moto: S3Server, stores: Stores) -> None:
    store = opened(moto, stores, request_payer="requester")
    sent = Sent(store)
    written(store)
    list(store.list())
    store.delete(["index", "data"])
    asked = {name for name, (headers, _) in sent.requests.items() if headers.get("x-amz-request-payer") == "requester"}
    assert asked == set(sent.requests) > {"PutObject", "GetObject", "HeadObject", "UploadPart", "ListObjectsV2"}


def test_a_deletion_of_several_objects_has_the_md5_of_its_body(moto: S3Server, stores: Stores) -> None:
    store = opened(moto, stores)
    sent = Sent(store)
    store.put("a", b"")
    store.delete(["a", "b"])
    headers, body = sent.requests["DeleteObjects"]
    assert base64.b64decode(headers["content-md5"]) == hashlib.md5(body).digest()
    assert b"<Key>" in body
    assert not list(store.list())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"server_side_encryption": "aes"}, "server_side_encryption: must be one of AES256"),
        ({"kms_key_id": KEY}, "kms_key_id: needs server_side_encryption: aws:kms"),
        ({"storage_class": "DEEP_ARCHIVE"}, "storage_class: objects of DEEP_ARCHIVE cannot be read at once"),
        ({"request_payer": "me"}, "request_payer: must be one of requester"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_store(StoreSettings("s3://bucket", None, "eu-west-1", "key", "secret", tuple(options.items())))
