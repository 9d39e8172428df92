"""Azure Blob Storage: `az://container/prefix`, with an account from the options, the URL or the environment.

Azure knows no uploads: blocks that are not committed yet belong to a blob's name, and the service drops them a week
after the last of them, or when anything is committed under that name. So an upload is a marker of ours, an empty blob
`.uploads/<key>/<id>`: it holds the metadata, shows the upload in listings, and its absence is what ends it. A block's
id has the upload's, its number, size and CRC32C in it. So uploads of one key do not meet, and a commit names exactly
the bytes that were sent for it.

Each block is sent with its MD5, which the service checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobClient, BlobPrefix, BlobServiceClient, ContentSettings

from offloader.errors import (
    AccessDeniedError,
    FatalError,
    ObjectNotFoundError,
    UploadGoneError,
)
from offloader.ports.object_store import NO_CRC, ObjectStore, OpenUpload, Stat, UploadedPart
from offloader.storage import rules
from offloader.storage.azure_answers import etag_of, milliseconds, next_page, stat_of, stat_of_range, told
from offloader.storage.azure_calls import AZURE, code_of, is_conflict, status_of
from offloader.storage.azure_copies import AzureCopies
from offloader.storage.azure_names import block_id, check_name, in_order, listed_from, marker_name, split_marker
from offloader.storage.calls import REQUESTS_OF_A_CALL, Calls, looked_back
from offloader.storage.forwarding import innermost

INDEX_TYPE, DATA_TYPE = "application/octet-stream", "application/unknown"  # as in S3
DELETE_BATCH = 256  # the most that one request takes
PAGE = 5000  # the most that one answer lists
_UPLOADS = f"{rules.HELPER_FOLDERS[0]}/"


class AzureStore:
    """`ObjectStore` in a container. `service` is a client without retries of its own (see `azure_client.py`) that waits
    at most `attempt_timeout` seconds for an answer, closed with the store."""

    def __init__(
        self,
        url: str,
        service: BlobServiceClient,
        container: str,
        prefix: str = "",
        *,
        retry_deadline: float = 60.0,
        attempt_timeout: float = 35.0,
    ) -> None:
        self.url = url
        self.retry_deadline = retry_deadline
        self.longest_call = REQUESTS_OF_A_CALL * (retry_deadline + attempt_timeout)
        self.account: str = service.primary_endpoint.partition("?")[0]  # behind it: a shared access signature
        self._service = service
        self._container = service.get_container_client(container)
        self._base = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._calls = Calls(url, retry_deadline, AZURE)
        self._copies = AzureCopies(service.credential, self._calls)

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
            "length": len(data),
            "metadata": rules.lower(meta),
            "content_settings": ContentSettings(content_type=DATA_TYPE if as_upload else INDEX_TYPE),
            "overwrite": not if_absent,
            "validate_content": "md5",
        }
        blob = self.blob(key)

        def send() -> str | None:
            try:
                return etag_of(blob.upload_blob(data, **request))
            except HttpResponseError as e:
                if if_absent and is_conflict(e):
                    return None
                raise

        etag = self._calls.write(f"writing {key}", send)
        if etag is None:
            return looked_back(f"writing {key}", partial(rules.stat_if_equal, self, key, data))
        return Stat(len(data), etag, rules.lower(meta))

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        self.blob(key)
        upload = rules.make_handle(key, uuid4().hex)
        marker = self._marker(upload)

        def send() -> None:
            told(marker.upload_blob(b"", metadata=rules.lower(meta), overwrite=True))

        self._calls.write(f"beginning {key}", send)
        return upload

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        """A part for an upload that has ended becomes a block that nothing names: the service drops it in a week."""
        key, upload_id = rules.split_handle(upload)
        rules.check_crc(number, data, crc32c)
        part = UploadedPart(number, len(data), rules.part_etag(len(data), crc32c), crc32c)
        blob, block, what = self.blob(key), block_id(upload_id, part), f"uploading part {number} of {key}"
        checked = {"Content-MD5": rules.md5_text(data)}

        def send() -> None:
            told(blob.stage_block(block, data, length=len(data), headers=dict(checked)))

        if data:  # Azure takes no empty block
            self._calls.write(what, send)
        looked_back(what, partial(self._meta_of, upload))
        return part

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
        """Within one account, with our own rights. Two requests: Azure does not say what it does with a range that the
        source does not have."""
        origin = innermost(source)
        if not isinstance(origin, AzureStore) or origin.account != self.account:
            return None
        target, upload_id = rules.split_handle(upload)
        what = f"copying part {number} of {target} from {origin.url}/{key}"
        found = rules.existing(origin, key)
        rules.check_source(f"{what}: {key}", found, etag, at + size)
        part = UploadedPart(number, size, f"{size}-copied", NO_CRC)
        block = block_id(upload_id, part)
        if not self._copies.copy(what, self.blob(target), block, origin.blob(key), at, size, found.etag):
            rules.existing(origin, key)
            return None
        looked_back(what, partial(self._meta_of, upload))
        return part

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """In the place of nothing, or of what was seen before the upload was seen open: a process that others have
        overtaken replaces nothing of theirs."""
        key, upload_id = rules.split_handle(upload)
        listed = rules.check_parts(key, parts)
        blocks = [block_id(upload_id, part) for part in listed if part.size]
        try:
            if self._commit(upload, key, blocks, etag=None) is None:
                self._commit_over(upload, key, blocks)
        except UploadGoneError:
            if not self._is_made_of(key, blocks):
                raise
        looked_back(f"completing {key}", partial(self.abort, upload))
        found = looked_back(f"completing {key}", partial(self.stat, key))
        if found is None or found.size != rules.total_size(listed):
            raise UploadGoneError(f"{self.url}: {key} is another object than the one that was completed")
        return found

    def abort(self, upload: str) -> None:
        """Blocks cannot be deleted: they vanish at the key's next commit, at the latest in a week."""
        key, _ = rules.split_handle(upload)
        try:
            self._calls.write(f"ending the upload of {key}", self._marker(upload).delete_blob)
        except ObjectNotFoundError:
            return

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        listing = partial(
            self._container.list_blobs, name_starts_with=self._base + _UPLOADS + prefix, results_per_page=PAGE
        )
        for found in self._listed("listing uploads", listing):
            key, upload_id = split_marker(found.name.removeprefix(self._base + _UPLOADS))
            if key.startswith(prefix):
                yield OpenUpload(key, rules.make_handle(key, upload_id), milliseconds(found.creation_time))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        if length == 0:
            return b"", rules.existing(self, key)
        blob = self.blob(key)
        asked = (offset if offset or length is not None else None, length)

        def send() -> tuple[bytes, Stat] | None:
            try:
                found = blob.download_blob(*asked, max_concurrency=1)
            except HttpResponseError as e:
                if status_of(e) == 416:  # the range begins at the end or past it
                    return None
                raise
            return b"".join(found.chunks()), stat_of_range(found.properties)

        return self._calls.read(f"reading {key}", send) or (b"", rules.existing(self, key))

    def stat(self, key: str) -> Stat | None:
        return self._head(f"looking at {key}", self.blob(key))

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        if start_after > prefix and not start_after.startswith(prefix):
            return  # behind all that begins so
        first = listed_from(start_after)  # which must be within the prefix
        begin = self._base + first if first > prefix and first.startswith(prefix) else None
        listing = partial(
            self._container.list_blobs, name_starts_with=self._base + prefix, start_from=begin, results_per_page=PAGE
        )
        found = ((one.name.removeprefix(self._base), one.size) for one in self._listed(f"listing {prefix}", listing))
        ours = ((key, size) for key, size in found if key > start_after and not key.startswith(_UPLOADS))
        yield from in_order(ours)

    def folders(self, prefix: str = "") -> Iterator[str]:
        listing = partial(self._container.walk_blobs, name_starts_with=self._base + prefix, results_per_page=PAGE)
        found = (one.name for one in self._listed(f"listing {prefix}", listing) if isinstance(one, BlobPrefix))
        keys = (name.removeprefix(self._base) for name in found)
        yield from (key for key, _ in in_order((key, 0) for key in keys if key != _UPLOADS))

    def delete(self, keys: Iterable[str]) -> None:
        names = [check_name(self._base, key) for key in keys]
        for start in range(0, len(names), DELETE_BATCH):
            batch = names[start : start + DELETE_BATCH]
            self._calls.write(f"deleting {len(batch)} objects", partial(self._delete, batch))

    def delete_if(self, key: str, etag: str) -> bool:
        """An answer that was lost looks like another one's deletion, which is the same: it is gone."""
        blob = self.blob(key)

        def send() -> bool:
            try:
                blob.delete_blob(etag=f'"{etag}"', match_condition=MatchConditions.IfNotModified)
            except HttpResponseError as e:
                if is_conflict(e):
                    return False
                raise
            return True

        try:
            return self._calls.write(f"deleting {key}", send) or self.stat(key) is None
        except ObjectNotFoundError:
            return True

    def keeps_versions(self) -> bool | None:
        """Whether deletions are soft. None where the role may not ask; versioning is told to managers of the account
        alone."""
        try:
            told = self._calls.read("asking for soft delete", self._service.get_service_properties)
        except (AccessDeniedError, FatalError):
            return None
        kept = told.get("delete_retention_policy")
        return True if kept is not None and kept.enabled else None

    def has_folders(self) -> bool | None:
        """Whether the account has a hierarchical namespace. None where the role may not ask."""
        try:
            told = self._calls.read("asking what the account is", self._service.get_account_information)
        except (AccessDeniedError, FatalError):
            return None
        return bool(told.get("is_hns_enabled"))

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def blob(self, key: str) -> BlobClient:
        """The client of an object. Raises FatalError for a name that Azure would change."""
        return self._container.get_blob_client(check_name(self._base, key))

    def _marker(self, upload: str) -> BlobClient:
        return self._container.get_blob_client(f"{self._base}{_UPLOADS}{marker_name(*rules.split_handle(upload))}")

    def _meta_of(self, upload: str) -> Mapping[str, str]:
        """The metadata of an upload. Raises UploadGoneError where it has ended."""
        found = self._head(f"looking at upload {upload}", self._marker(upload))
        if found is None:
            raise UploadGoneError(f"{self.url}: the upload {upload} is gone")
        return found.meta

    def _commit(self, upload: str, key: str, blocks: Sequence[str], *, etag: str | None) -> str | None:
        """Commit blocks in the place of the object with this etag, or of none. None: another one is there."""
        request: dict[str, Any] = {
            "metadata": dict(self._meta_of(upload)),
            "content_settings": ContentSettings(content_type=DATA_TYPE),
            "match_condition": MatchConditions.IfMissing,
        }
        if etag is not None:
            request |= {"match_condition": MatchConditions.IfNotModified, "etag": f'"{etag}"'}
        blob, named = self.blob(key), [BlobBlock(block) for block in blocks]

        def send() -> str | None:
            try:
                return etag_of(blob.commit_block_list(named, **request))
            except HttpResponseError as e:
                if is_conflict(e):
                    return None
                raise

        return self._calls.write(f"completing {key}", send)

    def _commit_over(self, upload: str, key: str, blocks: Sequence[str]) -> None:
        """Where an object is there already: it is ours, when an answer was lost, or it is replaced."""
        found = looked_back(f"completing {key}", partial(self.stat, key))
        if self._is_made_of(key, blocks):
            return
        if self._commit(upload, key, blocks, etag=found.etag if found else None) is None:
            raise UploadGoneError(f"{self.url}: another object came in the place of {key}, which was to be completed")

    def _is_made_of(self, key: str, blocks: Sequence[str]) -> bool:
        """Whether an object is made of exactly these blocks, whose ids tell whose they are and what is in them."""
        ask = partial(self.blob(key).get_block_list, "committed")

        def look() -> bool:
            try:
                committed, _ = self._calls.read(f"looking at {key}", ask)
            except ObjectNotFoundError:
                return False
            return [block.id for block in committed] == blocks

        return looked_back(f"completing {key}", look)

    def _head(self, what: str, blob: BlobClient) -> Stat | None:
        try:
            return self._calls.read(what, lambda: stat_of(blob.get_blob_properties()))
        except ObjectNotFoundError:
            return None

    def _listed(self, what: str, listing: Callable[[], Any]) -> Iterator[Any]:
        """What is listed, page by page: one that fails is asked for again."""
        pages = listing().by_page()
        while (page := self._calls.read(what, partial(next_page, pages))) is not None:
            yield from page

    def _delete(self, batch: Sequence[str]) -> None:
        answers = list(self._container.delete_blobs(*batch, raise_on_any_failure=False))
        if len(answers) != len(batch) and all(answer.status_code < 300 for answer in answers):
            raise ValueError(f"it tells of {len(answers)} deletions of {len(batch)}")
        for answer in answers:
            if answer.status_code >= 300:
                error = HttpResponseError(response=answer)
                if not (answer.status_code == 404 and code_of(error) in ("", "BlobNotFound")):
                    raise error
