"""S3 and what speaks like it: `s3://bucket/prefix`, with an endpoint for other servers than AWS.

boto3's low-level client, because only there are upload id, part number and ETag plain values that processes can pass
on. Each part and object is sent with its CRC32C, which AWS, versitygw and MinIO check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError
from crc32c import crc32c as checksum

from offloader.errors import (
    AccessDeniedError,
    FatalError,
    ObjectNotFoundError,
    UploadGoneError,
)
from offloader.model import MIB
from offloader.ports.object_store import NO_CRC, ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage import rules
from offloader.storage.calls import REQUESTS_OF_A_CALL, Calls, looked_back
from offloader.storage.forwarding import innermost
from offloader.storage.s3_answers import etag_of, is_made_of, named_part, plain_etag, stat_of, told
from offloader.storage.s3_calls import DAMAGED_ON_THE_WAY, S3, code_of, status_of
from offloader.storage.s3_copies import S3Copies, handle_for_copies, split_upload

T = TypeVar("T")

# The content types that Pulsar's own offloader gives to index and data objects.
INDEX_TYPE = "application/octet-stream"
DATA_TYPE = "application/unknown"
DELETE_BATCH = 1000
UNSIGNED_REFUSED = (400, 403, 501)  # how a server may refuse a request whose body is not signed
MIN_PART = 5 * MIB  # as S3_MIN_PART in config/limits.py, by which a configuration is refused


class S3Store:
    """`ObjectStore` in S3. `client` is a boto3 client without retries of its own (see `s3_client.py`) that waits at
    most `attempt_timeout` seconds for an answer, closed with the store.

    `unsigned`: another one that does not sign bodies, for parts, whose CRC32C is sent."""

    def __init__(
        self,
        client: Any,
        bucket: str,
        prefix: str = "",
        *,
        unsigned: Any = None,
        retry_deadline: float = 60.0,
        attempt_timeout: float = 35.0,
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.retry_deadline = retry_deadline
        self.longest_call = REQUESTS_OF_A_CALL * (retry_deadline + attempt_timeout)
        self._client = client
        self._unsigned = self._part_client = client if unsigned is None else unsigned
        self._bucket = bucket
        self._base = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._calls = Calls(self.url, retry_deadline, S3)
        self._copies = S3Copies(client, self._calls)
        self.endpoint: str = client.meta.endpoint_url

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        request: dict[str, Any] = {
            **self.place_of(key),
            "Body": data,
            "ContentType": DATA_TYPE if as_upload else INDEX_TYPE,
            "Metadata": rules.lower(meta),
            "ChecksumCRC32C": rules.crc_text(checksum(data)),
        }
        if if_absent:
            request["IfNoneMatch"] = "*"
        etag = self._calls.write(f"writing {key}", lambda: self._put_or_none(request))
        if etag is None:
            return looked_back(f"writing {key}", partial(rules.stat_if_equal, self, key, data))
        return Stat(len(data), etag, rules.lower(meta))

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:
        """A lost answer may leave an upload whose id nobody knows: it can never become an object."""
        request = {**self.place_of(key), "ContentType": DATA_TYPE, "Metadata": rules.lower(meta)}
        if not copies:
            request["ChecksumAlgorithm"] = "CRC32C"

        def send() -> str:
            return str(self._client.create_multipart_upload(**request)["UploadId"])

        handle = handle_for_copies if copies else rules.make_handle
        return handle(key, self._calls.write_once(f"beginning {key}", send))

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        """S3 keeps the last one of several under the same number."""
        key, upload_id, checked = split_upload(upload)
        request = {**self.place_of(key), "UploadId": upload_id, "PartNumber": number, "Body": data}
        request |= {"ChecksumCRC32C": rules.crc_text(crc32c)} if checked else {"ContentMD5": rules.md5_text(data)}
        if not checked:  # the MD5 would be that of damaged bytes
            rules.check_crc(number, data, crc32c)

        def send() -> str:
            try:
                return self._upload_part(request, self._part_client if checked else self._client)
            except ClientError as e:
                if code_of(e) in DAMAGED_ON_THE_WAY:
                    rules.check_crc(number, data, crc32c)
                raise

        etag = self._calls.write(f"uploading part {number} of {key}", send)
        return UploadedPart(number, len(data), etag, crc32c)

    def copy_part(
        self,
        upload: str,
        number: int,
        offset: int,  # noqa: ARG002
        source: ObjectStore,
        key: str,
        at: int,
        size: int,
        etag: str = "",
    ) -> UploadedPart | None:
        """With our credentials, which must be able to read the source."""
        origin = innermost(source)
        if not isinstance(origin, S3Store) or origin.endpoint != self.endpoint:
            return None
        target, upload_id, _ = split_upload(upload)
        what = f"copying part {number} of {target} from {origin.url}/{key}"
        request = {
            **self.place_of(target),
            "UploadId": upload_id,
            "PartNumber": number,
            "CopySource": origin.place_of(key),
        }
        request["CopySourceRange"] = f"bytes={at}-{at + size - 1}"
        if etag:
            request["CopySourceIfMatch"] = f'"{etag}"'
        copied = self._copies.copy(what, request)
        return None if copied is None else UploadedPart(number, size, copied, NO_CRC)

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """An answer for our own upload id is proof, if its ETag is the object's: versitygw 1.8 also answers so for an
        upload that is gone, where another object is there. Else the object decides."""
        key, upload_id, checked = split_upload(upload)
        listed = rules.check_parts(key, parts, MIN_PART)
        named = [named_part(part, checked=checked) for part in listed]
        request = {**self.place_of(key), "UploadId": upload_id, "MultipartUpload": {"Parts": named}}
        gone: UploadGoneError | None = None
        made = ""
        try:
            answer = self._calls.write(
                f"completing {key}", partial(told, self._client.complete_multipart_upload, request)
            )
            made = plain_etag(answer.get("ETag"))
        except UploadGoneError as e:
            gone = e
        found = looked_back(f"completing {key}", partial(self._head, key))
        if found is None or not self._is_made_of(key, found[0], listed, completed=made == found[1].etag):
            raise UploadGoneError(
                f"{self.url}: the upload of {key} is gone, and no object of these parts is there"
            ) from gone
        return found[1]

    def abort(self, upload: str) -> None:
        key, upload_id, _ = split_upload(upload)
        request = {**self.place_of(key), "UploadId": upload_id}
        try:
            self._calls.write(f"aborting {key}", lambda: self._client.abort_multipart_upload(**request))
        except (UploadGoneError, ObjectNotFoundError):
            return

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """MinIO tells only of uploads whose key is exactly the prefix."""
        ask = self._client.list_multipart_uploads
        for page in self._pages("listing uploads", ask, prefix, ("KeyMarker", "UploadIdMarker")):
            for found in page.get("Uploads", ()):
                key = found["Key"].removeprefix(self._base)
                began_at = int(found["Initiated"].timestamp() * 1000)
                yield OpenUpload(key, rules.make_handle(key, found["UploadId"]), began_at)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        if length == 0:
            return b"", rules.existing(self, key)
        request = self.place_of(key)
        if offset or length is not None:
            request["Range"] = f"bytes={offset}-" if length is None else f"bytes={offset}-{offset + length - 1}"
        found = self._calls.read(f"reading {key}", lambda: self._get_or_none(request))
        return found or (b"", rules.existing(self, key))

    def stat(self, key: str) -> Stat | None:
        found = self._head(key)
        return None if found is None else found[1]

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        from_there = {"StartAfter": self._base + start_after} if start_after else {}
        for page in self._objects(prefix, **from_there):
            for found in page.get("Contents", ()):
                yield found["Key"].removeprefix(self._base), found["Size"]

    def folders(self, prefix: str = "") -> Iterator[str]:
        for page in self._objects(prefix, Delimiter="/"):
            for found in page.get("CommonPrefixes", ()):
                yield found["Prefix"].removeprefix(self._base)

    def delete(self, keys: Iterable[str]) -> None:
        names = [{"Key": self._base + rules.check_key(key)} for key in keys]
        for start in range(0, len(names), DELETE_BATCH):
            batch = names[start : start + DELETE_BATCH]
            self._calls.write(f"deleting {len(batch)} objects", partial(self._delete, batch))

    def delete_if(self, key: str, etag: str) -> bool:
        """An answer that was lost looks like another one's deletion, which is the same: it is gone."""
        request = {**self.place_of(key), "IfMatch": f'"{etag}"'}
        found = self.stat(key)  # MinIO deletes whatever the etag
        if found is None or found.etag != etag:
            return found is None
        try:
            if self._calls.write(f"deleting {key}", partial(self._delete_or_refused, request)):
                return True
        except ObjectNotFoundError:
            return True
        return self._head(key) is None

    def keeps_versions(self) -> bool | None:
        """None where the role may not ask."""
        ask = partial(self._client.get_bucket_versioning, Bucket=self._bucket)
        try:
            return bool(self._calls.read("asking for versioning", ask).get("Status") == "Enabled")
        except (AccessDeniedError, FatalError):  # not every server knows the question
            return None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._unsigned.close()

    def _objects(self, prefix: str, **more: str) -> Iterator[Mapping[str, Any]]:
        return self._pages(f"listing {prefix}", self._client.list_objects_v2, prefix, ("ContinuationToken",), **more)

    def _pages(
        self, what: str, ask: Callable[..., Any], prefix: str, markers: Sequence[str], **more: str
    ) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing. `markers` say where the next one begins: an answer has them with `Next` before."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._base + prefix, **more}
        while True:
            page = self._calls.read(what, partial(told, ask, request))
            yield page
            if not page.get("IsTruncated", False):
                return
            request |= {marker: page.get(f"Next{marker}", "") for marker in markers}

    def place_of(self, key: str) -> dict[str, Any]:
        """Bucket and key, as requests name them."""
        return {"Bucket": self._bucket, "Key": self._base + rules.check_key(key)}

    def _upload_part(self, request: Mapping[str, Any], client: Any) -> str:
        """A server that refuses a part without a signed body, and takes the same with one, gets no other any more."""
        try:
            return etag_of(client.upload_part(**request))
        except ClientError as e:
            if client is self._client or status_of(e) not in UNSIGNED_REFUSED or code_of(e) in DAMAGED_ON_THE_WAY:
                raise
        etag = etag_of(self._client.upload_part(**request))
        self._part_client = self._client
        return etag

    def _put_or_none(self, request: Mapping[str, Any]) -> str | None:
        try:
            return etag_of(self._client.put_object(**request))
        except ClientError as e:
            if status_of(e) == 412:
                return None
            raise

    def _delete_or_refused(self, request: Mapping[str, Any]) -> bool:
        try:
            self._client.delete_object(**request)
        except ClientError as e:
            if status_of(e) == 412:
                return False
            raise
        return True

    def _get_or_none(self, request: Mapping[str, Any]) -> tuple[bytes, Stat] | None:
        try:
            answer = self._client.get_object(**request)
        except ClientError as e:
            if status_of(e) == 416:  # the range begins at the end or past it
                return None
            raise
        with closing(answer["Body"]) as body:
            return body.read(), stat_of(answer)

    def _head(self, key: str) -> tuple[Mapping[str, Any], Stat] | None:
        def send() -> tuple[Mapping[str, Any], Stat]:
            try:
                head = self._client.head_object(**self.place_of(key), ChecksumMode="ENABLED")
            except ClientError as e:
                if status_of(e) == 400:  # an answer to HEAD has no body: GET names the cause, expired credentials often
                    self._get_or_none({**self.place_of(key), "Range": "bytes=0-0"})
                raise
            return head, stat_of(head)

        try:
            return self._calls.read(f"looking at {key}", send)
        except ObjectNotFoundError:
            return None

    def _is_made_of(self, key: str, head: Mapping[str, Any], parts: Sequence[UploadedPart], *, completed: bool) -> bool:
        made = is_made_of(head, parts)
        if made is not None or completed:
            return made is not False
        size = rules.total_size(parts)
        try:
            return looked_back(
                f"completing {key}", lambda: rules.holds_parts(lambda at, n: self.read(key, at, n)[0], size, parts)
            )
        except ObjectNotFoundError:
            return False

    def _delete(self, batch: Sequence[Mapping[str, str]]) -> None:
        answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if failed:
            raise ClientError({"Error": failed[0], "ResponseMetadata": answer["ResponseMetadata"]}, "DeleteObjects")
