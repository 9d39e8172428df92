"""Google Cloud Storage: `gs://bucket/prefix`.

An object's etag is its generation, a number that Google gives each content once. Conditions are of generations, too:
0 is that of what is not there. Each object is sent with its CRC32C, which Google compares."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import google.auth
import requests
from crc32c import crc32c as checksum
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud.storage import Bucket, Client

from offloader.errors import AccessDeniedError, ConfigError, FatalError, ObjectNotFoundError
from offloader.ports.object_store import OpenUpload, Stat, UploadedPart
from offloader.storage import rules
from offloader.storage.calls import REQUESTS_OF_A_CALL, Calls, looked_back
from offloader.storage.gcs_answers import stat_of
from offloader.storage.gcs_calls import GOOGLE, HELP
from offloader.storage.gcs_requests import GcsBucket, Page
from offloader.storage.gcs_uploads import DATA_TYPE, FOLDER, GcsUploads
from offloader.storage.settings import StoreSettings, known_options, number

INDEX_TYPE = "application/octet-stream"  # as Pulsar's own offloader has it
_BEHIND_FOLDER = FOLDER[:-1] + chr(ord("/") + 1)
ENDPOINT = "https://storage.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
# Enough for the threads of a worker; a connection is opened only when it is needed.
MAX_CONNECTIONS = 64
# Else a thread of the library asks what the bucket is, for traces that nobody has switched on.
_NO_TRACES = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"
OPTIONS = ("retry_deadline", "connect_timeout", "read_timeout", "max_connections", "user_project")


class GcsStore:
    """`ObjectStore` in Google Cloud Storage. `bucket` waits at most `attempt_timeout` seconds for an answer, and is
    closed with the store."""

    def __init__(
        self,
        bucket: GcsBucket,
        name: str,
        prefix: str = "",
        *,
        retry_deadline: float = 60.0,
        attempt_timeout: float = 35.0,
    ) -> None:
        self.prefix = prefix.strip("/")
        self.url = f"gs://{name}/{prefix}".rstrip("/")
        self.retry_deadline = retry_deadline
        self.longest_call = REQUESTS_OF_A_CALL * (retry_deadline + attempt_timeout)
        self._bucket = bucket
        self._base = f"{self.prefix}/" if self.prefix else ""
        self._calls = Calls(self.url, retry_deadline, GOOGLE)
        self._uploads = GcsUploads(bucket, self._calls, self._base)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        send = partial(
            self._bucket.write,
            self._name(key),
            data,
            meta=rules.lower(meta),
            kind=DATA_TYPE if as_upload else INDEX_TYPE,
            crc=rules.crc_text(checksum(data)),
            if_absent=if_absent,
        )

        written = self._calls.write(f"writing {key}", send)
        return written or looked_back(f"writing {key}", partial(rules.stat_if_equal, self, key, data))

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        return self._uploads.begin(rules.check_key(key), rules.lower(meta))

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        return self._uploads.put_part(upload, number, data, crc32c)

    def copy_part(self, *_: object, **__: object) -> None:
        """Google copies whole objects, and no range of one."""

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        """Creates the key: where another object is, the upload counts as gone, and nothing is replaced."""
        return stat_of(self._uploads.commit(upload, parts))

    def abort(self, upload: str) -> None:
        self._uploads.abort(upload)

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """Also those of which only parts are left."""
        return self._uploads.open_uploads(prefix)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        if length == 0:
            return b"", rules.existing(self, key)
        found = self._calls.read(f"reading {key}", partial(self._bucket.read, self._name(key), offset, length))
        if found is None:
            raise ObjectNotFoundError(f"{self.url}: there is no object {key}")
        data, stat = found
        return data, stat or rules.existing(self, key)

    def stat(self, key: str) -> Stat | None:
        def look() -> Stat | None:
            found = self._bucket.look(self._name(key))
            return None if found is None else stat_of(found)

        return self._calls.read(f"looking at {key}", look)

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        """Open uploads are passed over, however many parts they have: the listing begins again behind them."""
        for key, size in self._listed(prefix, start_after):
            if key.startswith(FOLDER):
                yield from self._listed(prefix, _BEHIND_FOLDER)
                return
            if key > start_after:
                yield key, size

    def folders(self, prefix: str = "") -> Iterator[str]:
        for page in self._pages(prefix, delimiter="/"):
            for folder in page.folders:
                key = folder.removeprefix(self._base)
                if key != FOLDER:
                    yield key

    def delete(self, keys: Iterable[str]) -> None:
        names = [self._name(key) for key in keys]
        self._uploads.delete(f"deleting {len(names)} objects", names)

    def delete_if(self, key: str, etag: str) -> bool:
        """An answer that was lost looks like another one's deletion, which is the same: it is gone."""
        found = self.stat(key)
        if found is None or found.etag != etag:
            return found is None
        if self._calls.write(f"deleting {key}", partial(self._bucket.delete, self._name(key), int(etag))):
            return True
        return looked_back(f"deleting {key}", partial(self.stat, key)) is None

    def keeps_versions(self) -> bool | None:
        """By versioning or soft delete. None where the role may not ask."""
        try:
            told = self.told()
        except (AccessDeniedError, FatalError):
            return None
        return bool(told.versioning_enabled or told.soft_delete_policy.retention_duration_seconds)

    def told(self) -> Bucket:
        """The bucket with all that it says of itself."""
        return self._calls.read("asking what the bucket is", self._bucket.told)

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()

    def _listed(self, prefix: str, start: str) -> Iterator[tuple[str, int]]:
        for page in self._pages(prefix, start):
            for blob in page.blobs:
                yield blob.name.removeprefix(self._base), blob.size

    def _pages(self, prefix: str, start: str = "", delimiter: str | None = None) -> Iterator[Page]:
        token: str | None = None
        first = self._base + start if start else ""
        while True:
            ask = partial(self._bucket.page, self._base + prefix, start=first, token=token, delimiter=delimiter)
            page = self._calls.read(f"listing {prefix}", ask)
            yield page
            token = page.token
            if token is None:
                return

    def _name(self, key: str) -> str:
        return self._base + rules.check_key(key)


def open_gcs(settings: StoreSettings) -> GcsStore:
    """A store with a client of its own. Raises ConfigError, AccessDeniedError where there are no credentials; nothing
    is asked of the store yet."""
    name, _, prefix = settings.root.partition("://")[2].partition("/")
    if not name:
        raise ConfigError(f"{settings.setting}: {settings.root!r} names no bucket; write gs://bucket/prefix")
    options = known_options(settings, OPTIONS)
    os.environ.setdefault(_NO_TRACES, "true")
    timeout = number(options, "connect_timeout", 5.0), number(options, "read_timeout", 30.0)
    deadline = number(options, "retry_deadline", 60.0)
    session = _session(settings.endpoint, int(number(options, "max_connections", MAX_CONNECTIONS)))
    try:
        client = Client(
            project=None,
            credentials=session.credentials,
            client_options={"api_endpoint": (settings.endpoint or ENDPOINT).rstrip("/")},
            _http=session,
        )
        bucket = client.bucket(name, user_project=options.get("user_project"))
    except ValueError as e:
        raise ConfigError(f"store: {e}") from e
    waits = 1 if isinstance(session.credentials, AnonymousCredentials) else 2  # the first one for a token
    return GcsStore(
        GcsBucket(bucket, session, timeout), name, prefix, retry_deadline=deadline, attempt_timeout=waits * sum(timeout)
    )


def _session(endpoint: str | None, connections: int) -> AuthorizedSession:
    """Its connections, and Google's usual credentials. Nobody who listens shall get a token: over http:// there is
    none, as emulators want it."""
    try:
        plain = endpoint is not None and not endpoint.startswith("https://")
        credentials = AnonymousCredentials() if plain else google.auth.default(scopes=[SCOPE])[0]
    except GoogleAuthError as e:
        raise AccessDeniedError(f"no credentials for the store: {' '.join(str(e).split())}; {HELP}") from e
    session = AuthorizedSession(credentials, auth_request=Request(requests.Session()))
    session.max_redirects = 0
    for scheme in ("https://", "http://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=connections))
    return session
