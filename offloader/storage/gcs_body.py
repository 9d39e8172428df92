"""The body of an upload to Google Cloud Storage: what the object is, and its bytes, in one request.

The library's own uploads copy up to 8 MiB several times, take two requests for more, and give the whole body the
seconds that a connection may take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from offloader.model import MIB

PIECE = MIB  # what has to be on its way within the timeout


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
