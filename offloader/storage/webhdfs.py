"""HDFS by WebHDFS, the REST interface of its namenodes: `webhdfs://namenode:9870/folder`, `swebhdfs://` with TLS.

A file is visible in HDFS while it is written, so each is written without a name under `.tmp/`, proven to hold our
bytes, and then renamed. A rename that must not overwrite has one winner: the namenode decides. A reader names the file
that it looked at by its number, so its bytes are of one version. Metadata is not kept. Multipart uploads are in
`webhdfs_uploads.py`.

HttpFS and routers are others than namenodes: their renames do not refuse, or they know no numbers. The first write
tries it.

HDFS lists names in the order of their bytes, but takes bytes for signed ones: what is not ASCII comes before all that
is. So each such character of a key is written as DEL and six digits: that keeps the order of keys, and is never seen
with our own keys, which are ASCII.
"""

from __future__ import annotations

import getpass
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import httpx

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    FatalError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnprovenStoreError,
    UploadGoneError,
)
from offloader.json_text import parse_json
from offloader.ports.object_store import OpenUpload, Stat, UploadedPart
from offloader.storage import rules
from offloader.storage.calls import looked_back
from offloader.storage.rules import check_key
from offloader.storage.settings import StoreSettings, known_options, number
from offloader.storage.webhdfs_calls import WebHdfsCalls
from offloader.storage.webhdfs_files import File, WebHdfsFiles
from offloader.storage.webhdfs_uploads import CLOSED, DESCRIPTION, WebHdfsUpload

_ESCAPE = "\x7f"
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{6}})")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
LEFT_OVER_AFTER_MS = 86_400_000
READ_ATTEMPTS = 20
CALLS_OF_ONE = 10  # a write that is proven by reading, into a new folder whose rename is looked up twice
SCHEMES = {"webhdfs": ("http", 9870), "swebhdfs": ("https", 9871)}  # and the port of namenodes by default
OPTIONS = ("user", "delegation", "standby", "retry_deadline", "connect_timeout", "read_timeout", "max_connections")
MAX_CONNECTIONS = 64


def path_of(key: str) -> str:
    """An object's path below the root. Raises FatalError for a key that HDFS cannot hold."""
    if ":" in check_key(key) or _ESCAPE in key:
        raise FatalError(f"{key!r} cannot be an object's key: HDFS allows no colon in names, and DEL is taken")
    return written(key)


def written(text: str) -> str:
    """A key, or the beginning of one, as it is in a path."""
    return _FOREIGN.sub(lambda found: f"{_ESCAPE}{ord(found[0]):06x}", text)


def key_of(path: str) -> str:
    """The key of a path below the root; what nobody of us has written stays as it is."""
    return _ESCAPED.sub(lambda found: _character(found[0], int(found[1], 16)), path)


def before(folder: str, path: str) -> str:
    """A name in the folder behind which all entries come that a listing from this path on may have; "" from the first
    on. `folder` ends with a slash, or is empty.

    A folder's slash may sort behind characters of the path (`b-` is before `b/`), so the folders count, too, whose name
    the path goes on behind with such a character."""
    name = path.removeprefix(folder).partition("/")[0] if path.startswith(folder) else ""
    cut = next((at for at, character in enumerate(name) if character < "/"), len(name))
    return name[: max(cut - 1, 0)]


def _character(text: str, number: int) -> str:
    return chr(number) if 0x80 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else text


class WebHdfsStore:
    """`ObjectStore` in a folder of HDFS, which the first write makes. `attempt_timeout`: seconds that one try takes at
    most. Closes `calls`."""

    def __init__(self, calls: WebHdfsCalls, base: str, *, retry_deadline: float, attempt_timeout: float) -> None:
        self.url = calls.url
        self.retry_deadline = retry_deadline
        self.longest_call = CALLS_OF_ONE * (retry_deadline + attempt_timeout)
        self._base = base
        self._calls = calls
        self._uploads, self._temporary = (f"{base}/{name}" for name in rules.HELPER_FOLDERS)
        self._files = WebHdfsFiles(calls, self._temporary)
        self._preparing = threading.Lock()
        self._prepared = False

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,  # noqa: ARG002
        if_absent: bool = False,
        as_upload: bool = False,  # noqa: ARG002
    ) -> Stat | None:
        """Metadata is not kept."""
        target = self._path(key)
        self._prepare()
        path, file = self._files.create(f"writing {key}", data)
        try:
            self._files.rename(path, file, target, replace=not if_absent)
        except FileExistsError:
            self._files.remove(path)
            return looked_back(f"{self.url}: writing {key}", partial(rules.stat_if_equal, self, key, data))
        except FileNotFoundError as error:
            raise OutcomeUnknownError(f"{self.url}: writing {key}: {error}") from error
        return _stat(file)

    def begin(self, key: str, *, meta: Mapping[str, str] | None = None, copies: bool = False) -> str:  # noqa: ARG002
        self._path(key)
        self._prepare()
        upload = rules.make_handle(key, uuid4().hex)
        self._folder(upload).create(key, time.time_ns() // 1_000_000)
        return upload

    def put_part(self, upload: str, number: int, offset: int, data: bytes, crc32c: int) -> UploadedPart:  # noqa: ARG002
        rules.check_crc(number, data, crc32c)
        part = UploadedPart(number, len(data), rules.part_etag(len(data), crc32c), crc32c)
        self._prepare()
        try:
            self._folder(upload).write(part, data)
        except FileNotFoundError:
            raise UploadGoneError(f"{self.url}: the upload {upload} is gone") from None
        return part

    def copy_part(self, *_: object, **__: object) -> None:
        """HDFS copies nothing by itself."""

    def commit(self, upload: str, parts: Iterable[UploadedPart]) -> Stat:
        key, _ = rules.split_handle(upload)
        listed = rules.check_parts(key, parts)
        folder = self._folder(upload)
        try:
            folder.close(listed)
            path, file = folder.assemble(listed)
            self._files.rename(path, file, self._path(key), replace=True)
        except FileNotFoundError:
            self._must_be_made_of(key, listed)
        folder.remove()
        return rules.existing(self, key)

    def abort(self, upload: str) -> None:
        self._folder(upload).remove()

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """Also those whose commit was begun."""
        for name, file in self._files.list(self._uploads):
            if not file.is_folder:
                continue
            found = self._files.status(f"{self._uploads}/{name}{DESCRIPTION}")
            if found is None or found.size > rules.LARGEST_DESCRIPTION:
                continue
            # ended since, or not ours
            with suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
                info = parse_json(self._files.read(found, 0, found.size))
                rules.check_upload_version(f"{self.url}: {self._uploads}/{name}{DESCRIPTION}", info)
                if info["key"].startswith(prefix):
                    upload_id = name.rstrip("/").removesuffix(CLOSED)
                    yield OpenUpload(info["key"], rules.make_handle(info["key"], upload_id), int(info["began_at"]))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        for _ in range(READ_ATTEMPTS):
            found = self._file(key)
            if found is None:
                raise ObjectNotFoundError(f"{self.url}: there is no object {key}")
            rest = max(found.size - offset, 0)
            with suppress(FileNotFoundError):  # replaced or deleted since we looked
                return self._files.read(found, offset, rest if length is None else min(length, rest)), _stat(found)
        raise StoreUnavailableError(f"{self.url}: {key} is replaced faster than it can be read")

    def stat(self, key: str) -> Stat | None:
        found = self._file(key)
        return None if found is None else _stat(found)

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        wanted, after = written(prefix), written(start_after)
        found = self._walk(wanted[: wanted.rfind("/") + 1], wanted, after)
        return ((key_of(path), size) for path, size in found)

    def folders(self, prefix: str = "") -> Iterator[str]:
        wanted = written(prefix)
        found = (path for path, _ in self._entries(wanted[: wanted.rfind("/") + 1], wanted, ""))
        return (key_of(path) for path in found if path.endswith("/") and path.startswith(wanted))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._files.remove(self._path(key))

    def delete_if(self, key: str, etag: str) -> bool:
        return rules.delete_if_same(self, key, etag)

    def keeps_versions(self) -> bool | None:
        """A snapshot may keep what is deleted."""
        return None

    def close(self) -> None:
        self._calls.close()

    def _walk(self, folder: str, wanted: str, after: str) -> Iterator[tuple[str, int]]:
        """Folder by folder: those that come before are passed over, and what nobody takes is not listed."""
        for path, size in self._entries(folder, wanted, after):
            if rules.may_be_listed(path, wanted, after):
                yield from self._walk(path, wanted, after) if path.endswith("/") else ((path, size),)

    def _entries(self, folder: str, wanted: str, after: str) -> Iterator[tuple[str, int]]:
        """Paths directly in a folder, with the closing slash of folders, in order: all that a listing may have of
        them."""
        begin = max(before(folder, wanted), before(folder, after))
        for name, file in self._files.list(f"{self._base}/{folder}".rstrip("/"), begin):
            path = folder + name
            if path > wanted and not path.startswith(wanted) and not wanted.startswith(path):
                return
            if path.rstrip("/") not in rules.HELPER_FOLDERS:
                yield path, file.size

    def _prepare(self) -> None:
        """Before the first write: that a namenode answers, and what others have left."""
        if self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                self._sweep(self._prove_namenode())
                self._prepared = True

    def _prove_namenode(self) -> int:
        """Try what others than namenodes do otherwise. The time there, in ms."""
        one, file = self._files.create("a trial", b"1")
        two, _ = self._files.create("a trial", b"2")
        if not self._files.renames_like_hadoop(one, two):
            raise UnprovenStoreError(
                f"{self.url}: no namenode answers here (HttpFS?): its renames do not say that a name is taken, so "
                "nothing is created atomically; let storage.root name a namenode"
            )
        if not self._files.reads_by_number(file):
            raise UnprovenStoreError(
                f"{self.url}: no namenode answers here (a router?): it finds no file by its number, so what is read "
                "may be of two versions; let storage.root name a namenode"
            )
        self._files.remove(one)
        self._files.remove(two)
        return file.modified_at

    def _sweep(self, now: int) -> None:
        # What processes that were killed have left: nobody can come back to a temporary name.
        for name, file in self._files.list(self._temporary):
            if file.modified_at < now - LEFT_OVER_AFTER_MS:
                with suppress(AccessDeniedError):  # another user's: a process of theirs removes it
                    self._files.remove(f"{self._temporary}/{name.rstrip('/')}", recursive=True)

    def _file(self, key: str) -> File | None:
        found = self._files.status(self._path(key))
        return None if found is None or found.is_folder else found

    def _path(self, key: str) -> str:
        return f"{self._base}/{path_of(key)}"

    def _folder(self, upload: str) -> WebHdfsUpload:
        return WebHdfsUpload(self._files, f"{self._uploads}/{rules.split_handle(upload)[1]}")

    def _must_be_made_of(self, key: str, parts: Sequence[UploadedPart]) -> None:
        found = self.stat(key)
        if found is None or not rules.holds_parts(lambda at, size: self.read(key, at, size)[0], found.size, parts):
            raise UploadGoneError(f"{self.url}: the upload of {key} is gone") from None


def _stat(file: File) -> Stat:
    return Stat(file.size, file.etag, modified_at=file.modified_at)


def open_webhdfs(settings: StoreSettings) -> WebHdfsStore:
    """A store with connections of its own. Raises ConfigError; nothing is asked of the namenode yet."""
    options = known_options(settings, OPTIONS)
    base, namenodes = _place(settings, options)
    deadline = number(options, "retry_deadline", 60.0)
    connect, read = number(options, "connect_timeout", 5.0), number(options, "read_timeout", 30.0)
    connections = int(number(options, "max_connections", MAX_CONNECTIONS))
    client = httpx.Client(
        timeout=httpx.Timeout(read, connect=connect),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
    )
    url = f"{settings.scheme}://{settings.root.partition('://')[2].rstrip('/')}"
    calls = WebHdfsCalls(url, client, namenodes, _who(options), deadline)
    # A namenode that sends us on, and the datanode, each have so long.
    return WebHdfsStore(calls, base, retry_deadline=deadline, attempt_timeout=2 * (connect + read))


def _place(settings: StoreSettings, options: Mapping[str, str]) -> tuple[str, list[str]]:
    """The folder without its last slash, and the namenodes' addresses."""
    protocol, port = SCHEMES[settings.scheme]
    try:
        parts = urlsplit(settings.root)
        hosts = [parts.netloc, *filter(None, (host.strip() for host in options.get("standby", "").split(",")))]
        addresses = [urlsplit(f"//{host}") for host in hosts]
        namenodes = [f"{protocol}://{_host(address.hostname)}:{address.port or port}" for address in addresses]
    except ValueError as error:
        raise ConfigError(f"{settings.setting}: {settings.root!r}: {error}") from error
    base = unquote(parts.path).rstrip("/")
    if not all(address.hostname and address.username is None for address in addresses):
        raise ConfigError(f"{settings.setting}: {settings.root!r} must be {settings.scheme}://namenode:{port}/folder")
    if not base or parts.query or parts.fragment or "," in base or ":" in base:
        raise ConfigError(
            f"{settings.setting}: {settings.root!r} must name a folder without comma and colon, as in "
            f"{settings.scheme}://namenode:{port}/folder"
        )
    return base, namenodes


def _host(name: str | None) -> str:
    return f"[{name}]" if name and ":" in name else str(name)


def _who(options: Mapping[str, str]) -> dict[str, str]:
    """As Hadoop's own clients: a token of the cluster, else the name that we say, which a cluster without Kerberos
    believes."""
    if "delegation" in options:
        return {"delegation": options["delegation"]}
    user = options.get("user") or os.environ.get("HADOOP_USER_NAME")
    try:
        return {"user.name": user or getpass.getuser()}
    except (KeyError, OSError):  # in a container whose users have no names
        raise ConfigError("options.user: is not set, and this process' user has no name; set it") from None
