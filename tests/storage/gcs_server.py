"""Google Cloud Storage's JSON API in memory, as far as `GcsStore` uses it, with all of its conditions: emulators
compose and delete whatever the generation."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from crc32c import crc32c

from offloader.storage.rules import crc_text
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import json_error

BUCKET = "bucket"
COMPOSES = 32
LISTING = "storage#objects"
OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)(/compose)?")


class RefusedError(Exception):
    """An error of Google's: its status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Stored:
    """One generation of an object."""

    data: bytes
    resource: dict[str, Any]


@dataclass
class Google:
    """Buckets with what they say of themselves, and their objects."""

    host: str = "127.0.0.1"
    port: int = 0
    buckets: dict[str, dict[str, Any]] = field(default_factory=lambda: {BUCKET: {}})
    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    retained: bool = False  # by a policy: nothing is deleted
    lock: threading.RLock = field(default_factory=threading.RLock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def fresh_root(self) -> str:
        return f"gs://{BUCKET}/root-{next(self.numbers)}"

    def settings(self, root: str, *, endpoint: str | None = None, **options: str) -> StoreSettings:
        return StoreSettings(root, endpoint or self.url, options=tuple(options.items()))

    def found(self, bucket: str, name: str) -> Stored:
        self.bucket(bucket)
        if (bucket, name) not in self.objects:
            raise RefusedError(404, "notFound")
        return self.objects[bucket, name]

    def bucket(self, name: str) -> dict[str, Any]:
        if name not in self.buckets:
            raise RefusedError(404, "notFound")
        return self.buckets[name]

    def write(self, bucket: str, resource: dict[str, Any], data: bytes, asked: dict[str, str]) -> dict[str, Any]:
        """A new generation, where the condition holds and the checksum is that of the bytes."""
        self.bucket(bucket)
        name = resource["name"]
        self.check(bucket, name, asked)
        crc = crc_text(crc32c(data))
        if resource.get("crc32c", crc) != crc:
            raise RefusedError(400, "invalid")
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        resource = {
            **{key: resource[key] for key in ("name", "metadata", "contentType") if key in resource},
            "bucket": bucket,
            "size": str(len(data)),
            "crc32c": crc,
            "generation": str(next(self.numbers)),
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "timeCreated": now,
            "updated": now,
        }
        self.objects[bucket, name] = Stored(data, resource)
        return resource

    def check(self, bucket: str, name: str, asked: dict[str, str]) -> None:
        wanted = asked.get("ifGenerationMatch")
        there = self.objects.get((bucket, name))
        if wanted is not None and wanted != (there.resource["generation"] if there else "0"):
            raise RefusedError(412, "conditionNotMet")

    def compose(self, bucket: str, name: str, request: dict[str, Any], asked: dict[str, str]) -> dict[str, Any]:
        sources = request["sourceObjects"]
        if not 1 <= len(sources) <= COMPOSES:
            raise RefusedError(400, "invalid")
        data = b"".join(self.found(bucket, source["name"]).data for source in sources)
        return self.write(bucket, {**request["destination"], "name": name}, data, asked)

    def listed(self, bucket: str, asked: dict[str, str]) -> dict[str, Any]:
        self.bucket(bucket)
        prefix, start, delimiter = (asked.get(each, "") for each in ("prefix", "startOffset", "delimiter"))
        names = sorted(name for at, name in self.objects if at == bucket and name.startswith(prefix) and name >= start)
        if delimiter:
            rests = ((name, name[len(prefix) :].partition(delimiter)) for name in names)
            folders = sorted({prefix + head + slash for _, (head, slash, _) in rests if slash})
            return {"kind": LISTING, "prefixes": folders, "items": []}
        names = [name for name in names if name > asked.get("pageToken", "")]
        most = int(asked.get("maxResults", "1000"))
        answer: dict[str, Any] = {
            "kind": LISTING,
            "items": [self.objects[bucket, name].resource for name in names[:most]],
        }
        return answer | ({"nextPageToken": names[most - 1]} if len(names) > most else {})

    def delete(self, bucket: str, name: str, asked: dict[str, str]) -> None:
        self.found(bucket, name)
        self.check(bucket, name, asked)
        if self.retained:
            raise RefusedError(403, "retentionPolicyNotMet")
        del self.objects[bucket, name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent at once: in two pieces it would wait for an acknowledgement
    google: Google

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        try:
            with self.google.lock:
                status, headers, answer = self._answer(url.path, asked, body)
        except RefusedError as e:
            status = e.status
            headers, answer = json_error(e.status, e.reason)
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = serve  # noqa: N815 (the base class looks for these names)

    def _answer(self, path: str, asked: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        google = self.google
        if path.startswith("/upload/"):
            return self._upload(path.split("/")[5], asked, body)
        if (named := OBJECT.fullmatch(path)) is not None:
            bucket, name = named[1], unquote(named[2])
            if named[3]:
                return _told(google.compose(bucket, name, json.loads(body), asked))
            if self.command == "DELETE":
                google.delete(bucket, name, asked)
                return 204, {}, b""
            found = google.found(bucket, name)
            return self._media(found) if asked.get("alt") == "media" else _told(found.resource)
        bucket, _, rest = path.removeprefix("/storage/v1/b/").partition("/")
        return _told(google.listed(bucket, asked) if rest == "o" else google.bucket(bucket))

    def _upload(self, bucket: str, asked: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        boundary = b"--" + re.findall('boundary="?([^"]+)', self.headers["Content-Type"])[0].encode()
        pieces = body.removeprefix(boundary).removesuffix(boundary + b"--").strip(b"-")
        described, _, content = pieces.partition(b"\r\n" + boundary)
        resource = json.loads(described.partition(b"\r\n\r\n")[2])
        return _told(self.google.write(bucket, resource, content.partition(b"\r\n\r\n")[2][:-2], asked))

    def _media(self, found: Stored) -> tuple[int, dict[str, str], bytes]:
        resource, size = found.resource, len(found.data)
        headers = {f"x-goog-meta-{name}": text for name, text in resource.get("metadata", {}).items()}
        headers |= {"x-goog-generation": resource["generation"], "x-goog-stored-content-length": str(size)}
        headers["Last-Modified"] = format_datetime(datetime.fromisoformat(resource["updated"]), usegmt=True)
        ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if ranged is None:
            return 200, headers, found.data
        if int(ranged[1]) >= size:
            return 416, {}, b""
        return 206, headers, found.data[int(ranged[1]) : int(ranged[2]) + 1 if ranged[2] else None]

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _told(resource: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(resource).encode()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64


@contextmanager
def google_in_memory() -> Iterator[Google]:
    """The server, at a port of this machine, until the end."""
    google = Google()
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"google": google})) as server:
        google.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="google")
        thread.start()
        try:
            yield google
        finally:
            server.shutdown()
            thread.join()
