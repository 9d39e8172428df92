"""In front of an S3 server: what Cloudflare R2 refuses, parts of different length."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

from tests.storage.proxy import Proxy

MESSAGE = "All non-trailing parts must have the same length."


class EqualPartsFront(Proxy):
    """`completed` and `refused`: how many uploads, by the answer to their completion."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.answers = Counter[str]()
        self._sizes: dict[tuple[str, str], int] = {}  # of a part, by upload and number

    def forward(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        upload = query.get("uploadId", "")
        if method == "PUT" and upload:
            self._sizes[upload, query["partNumber"]] = _copied(headers) or len(body)
        if method == "POST" and upload:
            numbers = [e.text or "" for e in ElementTree.fromstring(body).iter() if e.tag.endswith("PartNumber")]
            sizes = [self._sizes[upload, number] for number in numbers]
            if len(set(sizes[:-1])) > 1 or (sizes[:-1] and sizes[-1] > sizes[0]):
                self.answers["refused"] += 1
                error = f"<Error><Code>InvalidPart</Code><Message>{MESSAGE}</Message></Error>".encode()
                return 400, [("Content-Type", "application/xml")], error
            self.answers["completed"] += 1
        return super().forward(method, path, headers, body)


def _copied(headers: Any) -> int:
    first, _, last = (headers.get("x-amz-copy-source-range") or "").removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1 if last else 0
