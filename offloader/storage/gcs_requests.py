"""Single requests to one bucket of Google Cloud Storage, by the public classes of its library.

Its own retries are off everywhere (`calls.py`). Bytes go by its session alone: `Blob` downloads them without what the
headers say of the object, so that each read would cost two requests more. Its uploads copy up to 8 MiB several times,
take two requests for more, and give the whole body the seconds that a connection may take.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from google.api_core.exceptions import GoogleAPICallError, from_http_response
from google.cloud.storage import Blob, Bucket
from urllib3.exceptions import IncompleteRead

from offloader.model import MIB
from offloader.ports.object_store import Stat
from offloader.storage.gcs_answers import stat_in, stat_told, whole
from offloader.storage.gcs_calls import is_absent, is_conflict

PIECE = MIB  # what has to be on its way within the timeout
PAGE = 1000
ABSENT = 0  # the generation of what is not there
_FIELDS = "kind,items(name,size,generation,updated,timeCreated,crc32c,metadata),prefixes,nextPageToken"


class MultipartBody:
    """`multipart/related`, sent piece by piece: the bytes are not copied. Can be sent again."""

    def __init__(self, resource: Mapping[str, Any], data: bytes) -> None:
        boundary = uuid4().hex
        self.content_type = f"multipart/related; boundary={boundary}"
        described = json.dumps(resource)
        head = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{described}\r\n--{boundary}\r\n"
        self._head = f"{head}Content-Type: {resource['contentType']}\r\n\r\n".encode()
        self._data = memoryview(data)
        self._tail = f"\r\n--{boundary}--".encode()

    def __len__(self) -> int:
        return len(self._head) + len(self._data) + len(self._tail)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._head
        for at in range(0, len(self._data), PIECE):
            yield self._data[at : at + PIECE]
        yield self._tail


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of a listing. `token`: where the next one begins, None after the last."""

    blobs: Sequence[Blob]
    folders: Sequence[str]
    token: str | None


class GcsBucket:
    """Makes one request a call. Raises what Google's libraries raise; see `gcs_calls.py`."""

    def __init__(self, bucket: Bucket, session: Any, timeout: tuple[float, float]) -> None:
        self._bucket = bucket
        self._session = session
        self._client = bucket.client
        self._options: dict[str, Any] = {"timeout": timeout, "retry": None}
        self._timeout = timeout
        self._payer = {"userProject": bucket.user_project} if bucket.user_project else {}

    def look(self, name: str) -> Blob | None:
        """What the store says of an object; None: there is none."""
        blob = self._bucket.blob(name)
        try:
            blob.reload(**self._options)
        except GoogleAPICallError as e:
            if is_absent(e):
                return None
            raise
        return whole(blob)

    def write(
        self, name: str, data: bytes, *, meta: Mapping[str, str], kind: str, crc: str, if_absent: bool = False
    ) -> Stat | None:
        """Send an object, which the store compares with its CRC32C. None: it was to be created, and one is there."""
        body = MultipartBody({"name": name, "contentType": kind, "crc32c": crc, "metadata": dict(meta)}, data)
        asked = {"uploadType": "multipart", **self._payer}
        if if_absent:
            asked["ifGenerationMatch"] = str(ABSENT)
        url = f"{self._client.api_endpoint}/upload/storage/v1{self._bucket.path}/o"
        headers = {"Content-Type": body.content_type}
        with self._session.post(url, params=asked, data=body, headers=headers, timeout=self._timeout) as answer:
            if answer.status_code != 200:
                error = from_http_response(answer)
                if if_absent and is_conflict(error):
                    return None
                raise error
            return stat_told(answer.json())

    def read(self, name: str, offset: int, length: int | None) -> tuple[bytes, Stat | None] | None:
        """Bytes and what their headers say; without a Stat: the range begins at the end or past it. None: there is no
        such object."""
        found = self._get(name, offset, length)
        if found is not None or self.look(name) is None:
            return found
        return self._get(name, offset, length)  # it was written since

    def page(self, prefix: str, *, start: str = "", token: str | None = None, delimiter: str | None = None) -> Page:
        """One page of the objects below a prefix, from `start` on."""
        found = self._client.list_blobs(
            self._bucket,
            prefix=prefix or None,
            start_offset=start or None,
            page_token=token,
            delimiter=delimiter,
            page_size=PAGE,
            fields=_FIELDS,
            **self._options,
        )
        page = next(found.pages)
        if "kind" not in page.raw_page:  # nobody's answer is no empty bucket
            raise ValueError("it is no listing")
        return Page(list(page), sorted(page.prefixes), found.next_page_token)

    def delete(self, name: str, generation: int | None = None) -> bool:
        """Delete an object, which may be missing. False: it has another generation than this."""
        try:
            self._bucket.blob(name).delete(if_generation_match=generation, **self._options)
        except GoogleAPICallError as e:
            if is_conflict(e):
                return False
            if not is_absent(e):
                raise
        return True

    def compose(
        self, name: str, sources: Iterable[str], *, meta: Mapping[str, str], kind: str, if_absent: bool
    ) -> Blob | None:
        """Join objects to another one. None: a source is not there or, where it was to be created, one is."""
        blob = self._bucket.blob(name)
        blob.metadata = dict(meta)
        blob.content_type = kind
        try:
            blob.compose(
                [self._bucket.blob(source) for source in sources],
                if_generation_match=ABSENT if if_absent else None,
                **self._options,
            )
        except GoogleAPICallError as e:
            if is_conflict(e) or is_absent(e):
                return None
            raise
        return whole(blob)

    def told(self) -> Bucket:
        """The bucket with all that it says of itself."""
        self._bucket.reload(**self._options)
        return self._bucket

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _get(self, name: str, offset: int, length: int | None) -> tuple[bytes, Stat | None] | None:
        headers = {"Accept-Encoding": "identity"}
        if offset or length is not None:
            headers["Range"] = f"bytes={offset}-{'' if length is None else offset + length - 1}"
        place = self._bucket.blob(name)
        asked = {"alt": "media", **self._payer}
        url = f"{self._client.api_endpoint}/download/storage/v1{place.path}"
        with self._session.get(url, params=asked, headers=headers, timeout=self._timeout, stream=True) as answer:
            if answer.status_code == 404:
                return None
            if answer.status_code == 416:
                return b"", None
            if answer.status_code not in (200, 206):
                raise from_http_response(answer)
            data, found = answer.raw.read(), stat_in(answer.headers)
        asked_for = max(0, found.size - offset if length is None else min(length, found.size - offset))
        if len(data) != asked_for:  # a proxy on the way may not know ranges, or not say how much it was to send
            raise IncompleteRead(len(data), asked_for - len(data))
        return data, found
