"""Uploads to Google Cloud Storage: parts are objects below `.uploads/<id>/`, and the commit composes them.

The commit creates the key where nothing is (generation 0): one that arrives late, or twice, replaces nothing. Google
composes at most 32 objects in one request; of more parts, neighbours are joined first. The names of parts and of joined
ones have their sizes and checksums: one name has one content, and what the commit made is compared with what the names
promise. Each helper object names the upload's key, so that any that is left over is listed as an open upload.

(Not by resumable uploads, which take one part after the other, nor by XML multipart uploads, whose completion takes no
condition and which the library offers for files alone.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

from google.cloud.storage import Blob

from offloader.errors import OutcomeUnknownError, PartRejectedError, RetryableError, UploadGoneError
from offloader.format import crc
from offloader.ports.object_store import OpenUpload, UploadedPart
from offloader.storage import rules
from offloader.storage.calls import Calls, looked_back
from offloader.storage.gcs_answers import is_made, ms_of
from offloader.storage.gcs_requests import GcsBucket

COMPOSE_LIMIT = 32
DATA_TYPE = "application/unknown"  # as Pulsar's own offloader has it
AT_ONCE = 8  # deletions
FOLDER = f"{rules.HELPER_FOLDERS[0]}/"
_KEY = "upload-key"  # of each helper object: the key that it is for
_OPEN = "open"  # the object that is there as long as the upload is open; it keeps the metadata


class GcsUploads:
    """The uploads below one root, which begins with `base` in the bucket."""

    def __init__(self, bucket: GcsBucket, calls: Calls, base: str) -> None:
        self._bucket = bucket
        self._calls = calls
        self._base = base

    def begin(self, key: str, meta: Mapping[str, str]) -> str:
        """A lost answer leaves nothing that is not listed: the request is repeated under the same name."""
        upload = rules.make_handle(key, uuid4().hex)
        self._send(f"beginning {key}", self._folder(upload) + _OPEN, b"", 0, {**meta, _KEY: key})
        return upload

    def put_part(self, upload: str, number: int, data: bytes, crc32c: int) -> UploadedPart:
        """Sent, and then looked whether the upload is still open: else what was sent goes again."""
        rules.check_crc(number, data, crc32c)
        key, _ = rules.split_handle(upload)
        what = f"uploading part {number} of {key}"
        part = UploadedPart(number, len(data), rules.part_etag(len(data), crc32c), crc32c)
        name = self._part(upload, part)
        self._send(what, name, data, crc32c, {_KEY: key})
        marker = self._folder(upload) + _OPEN
        if looked_back(what, partial(self._calls.read, what, partial(self._bucket.look, marker))) is None:
            self._calls.write(what, partial(self._bucket.delete, name))
            raise UploadGoneError(f"{self._calls.url}: the upload {upload} is gone")
        return part

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Blob:
        """The object of these parts."""
        key, _ = rules.split_handle(upload)
        listed = rules.check_parts(key, parts)
        folder = self._folder(upload)
        stored = {blob.name: blob for blob in self._list(f"completing {key}", folder)}
        opened = stored.get(folder + _OPEN)
        if opened is None:
            made = self._committed(key, listed, f"the upload of {key} is gone")
        else:
            made = self._completed(upload, listed, stored, opened)
        if stored:
            try:
                self._remove(f"completing {key}", folder)
            except RetryableError as e:
                raise OutcomeUnknownError(f"completing {key}: it is there, and so are parts of it: {e}") from e
        return made

    def abort(self, upload: str) -> None:
        """The marker goes first: what is sent from then on is taken back by whoever sends it."""
        self._remove(f"aborting {upload}", self._folder(upload))

    def open_uploads(self, prefix: str) -> Iterator[OpenUpload]:
        """By any object that an upload has left; it began when the first of them was written."""
        found: dict[str, OpenUpload] = {}
        for blob in self._list("listing uploads", self._base + FOLDER):
            upload_id = blob.name.removeprefix(self._base + FOLDER).partition("/")[0]
            key = (blob.metadata or {}).get(_KEY)
            if not key:  # not ours
                continue
            began = ms_of(blob.time_created)
            first = found.get(upload_id)
            if first is None or began < first.began_at:
                found[upload_id] = OpenUpload(key, rules.make_handle(key, upload_id), began)
        return iter([each for each in found.values() if each.key.startswith(prefix)])

    def _send(self, what: str, name: str, data: bytes, crc32c: int, meta: Mapping[str, str]) -> None:
        sending = partial(
            self._bucket.write, name, data, meta=meta, kind=DATA_TYPE, crc=rules.crc_text(crc32c), if_absent=False
        )
        self._calls.write(what, sending)

    def _completed(self, upload: str, parts: Sequence[UploadedPart], stored: Mapping[str, Blob], opened: Blob) -> Blob:
        missing = next((part for part in parts if not _is_stored(stored, self._part(upload, part), part)), None)
        if missing is None:
            return self._composed(upload, parts, opened)
        made = self._made(rules.split_handle(upload)[0], parts)
        if made is None:  # else another commit has just made the object, and removes the parts
            raise PartRejectedError(f"{upload}: part {missing.number} is missing or is another one")
        return made

    def _composed(self, upload: str, parts: Sequence[UploadedPart], opened: Blob) -> Blob:
        key, _ = rules.split_handle(upload)
        what, pieces = f"completing {key}", [(self._part(upload, part), part.crc32c, part.size) for part in parts]
        while len(pieces) > COMPOSE_LIMIT:
            groups = [pieces[at : at + COMPOSE_LIMIT] for at in range(0, len(pieces), COMPOSE_LIMIT)]
            pieces = [self._joined(upload, group) for group in groups]
        meta = {name: text for name, text in (opened.metadata or {}).items() if name != _KEY}
        composing = partial(
            self._bucket.compose,
            self._base + rules.check_key(key),
            [name for name, _, _ in pieces],
            meta=meta,
            kind=DATA_TYPE,
            if_absent=True,
        )
        made = self._calls.write(what, composing)
        if made is None:
            return self._committed(key, parts, f"another object is there in the place of {key}")
        if not is_made(made, *_sum_of(parts)):
            self._calls.write(what, partial(self._bucket.delete, made.name, made.generation))
            raise PartRejectedError(f"{upload}: the parts that are stored are not those that are named")
        return made

    def _joined(self, upload: str, pieces: Sequence[tuple[str, int, int]]) -> tuple[str, int, int]:
        """Neighbours, composed to a helper object."""
        key, _ = rules.split_handle(upload)
        size, total = sum(size for _, _, size in pieces), crc.combine((crc32c, size) for _, crc32c, size in pieces)
        first = pieces[0][0].rpartition("/")[2].partition("-")[0]
        name = f"{self._folder(upload)}{first}-joined-{rules.part_etag(size, total)}"
        joining = partial(
            self._bucket.compose,
            name,
            [name for name, _, _ in pieces],
            meta={_KEY: key},
            kind=DATA_TYPE,
            if_absent=False,
        )
        self._calls.write(f"completing {key}", joining)
        return name, total, size

    def _committed(self, key: str, parts: Sequence[UploadedPart], otherwise: str) -> Blob:
        made = self._made(key, parts)
        if made is None:
            raise UploadGoneError(f"{self._calls.url}: {otherwise}, and no object of these parts is")
        return made

    def _made(self, key: str, parts: Sequence[UploadedPart]) -> Blob | None:
        """The object, where it is made of these parts."""
        what = f"completing {key}"
        look = partial(self._bucket.look, self._base + rules.check_key(key))
        found = looked_back(what, partial(self._calls.read, what, look))
        return found if found is not None and is_made(found, *_sum_of(parts)) else None

    def _remove(self, what: str, folder: str) -> None:
        self._calls.write(what, partial(self._bucket.delete, folder + _OPEN))
        names = [blob.name for blob in self._list(what, folder)]
        self.delete(what, names)

    def delete(self, what: str, names: Sequence[str]) -> None:
        """Delete objects, several at once: the library's batches do not say which of them failed as what."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            deleting = [pool.submit(self._calls.write, what, partial(self._bucket.delete, name)) for name in names]
            try:
                for each in deleting:
                    each.result()
            finally:  # a store that does not answer is not waited for again for each of them
                pool.shutdown(cancel_futures=True)

    def _list(self, what: str, prefix: str) -> Iterator[Blob]:
        token: str | None = None
        while True:
            page = self._calls.read(what, partial(self._bucket.page, prefix, token=token))
            yield from page.blobs
            token = page.token
            if token is None:
                return

    def _folder(self, upload: str) -> str:
        return f"{self._base}{FOLDER}{rules.split_handle(upload)[1]}/"

    def _part(self, upload: str, part: UploadedPart) -> str:
        return f"{self._folder(upload)}{part.number:05}-{rules.part_etag(part.size, part.crc32c)}"


def _is_stored(stored: Mapping[str, Blob], name: str, part: UploadedPart) -> bool:
    found = stored.get(name)
    return found is not None and is_made(found, part.size, part.crc32c)


def _sum_of(parts: Iterable[UploadedPart]) -> tuple[int, int]:
    """Size and CRC32C of the object that consists of these."""
    listed = list(parts)
    return rules.total_size(listed), crc.combine((part.crc32c, part.size) for part in listed)
