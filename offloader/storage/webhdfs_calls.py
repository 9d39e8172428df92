"""Requests to HDFS by WebHDFS, in the loop of `calls.py`.

A namenode answers by itself, or sends us to the datanode that has the bytes or takes them. Its errors are exceptions of
Java, by name, in JSON. Where it has no better word it says IOException: that may pass for whoever reads, and tells
nothing of a write.

HDFS keeps a CRC of every few bytes, by default CRC32C of each 512. The checksum that it tells of a file is MD5 over the
MD5s of each block's CRCs, and how many bytes a CRC is of and how many CRCs a block has (0: the file is one block).
Hadoop digests the whole buffer that the MD5s are in: 32 bytes, doubled until they fit, the rest zeros.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx
from crc32c import crc32c

from offloader.errors import (
    AccessDeniedError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreFullError,
    StoreUnavailableError,
)
from offloader.json_text import parse_json
from offloader.storage.calls import Calls, ClientErrors

_ALGORITHM = re.compile(r"MD5-of-([0-9]{1,9})MD5-of-([1-9][0-9]{0,8})(CRC32C?)")
_CRCS: Mapping[str, Callable[[memoryview], int]] = {"CRC32": zlib.crc32, "CRC32C": crc32c}
_DIGEST = slice(2 * 12, 2 * 28)  # in hexadecimal, behind the two numbers that the algorithm's name has as well
_FIRST_BUFFER = 32
PIECE = 1024 * 1024  # of a body on its way
LONGEST_MESSAGE = 400

Body = Callable[[], Iterator[bytes]]  # made anew for each try

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_DAMAGED = "DamagedOnTheWay"  # the name of our own error, no namenode says so
_NOT_APPLIED = frozenset(
    {"StandbyException", "ObserverRetryOnActiveException", "RetriableException", "SafeModeException", _DAMAGED}
)
_FULL = frozenset(
    {"QuotaExceededException", "DSQuotaExceededException", "NSQuotaExceededException"}
    | {"QuotaByStorageTypeExceededException"}
)
_DENIED = frozenset(
    {"AccessControlException", "SecurityException", "AuthenticationException", "AuthorizationException"}
    | {"InvalidToken", "InvalidTokenException"}
)
_REFUSED = frozenset(
    {"IllegalArgumentException", "HadoopIllegalArgumentException", "UnsupportedOperationException"}
    | {"InvalidPathException", "PathComponentTooLongException", "MaxDirectoryItemsExceededException"}
    | {"ParentNotDirectoryException", "SnapshotException"}
)


def is_sum_of(told: Any, data: bytes) -> bool:
    """Whether an answer tells the checksum of these bytes. False also where it tells another kind of checksum, or one
    of what is stored in the place of the bytes (encrypted, or spread over machines with erasure coding)."""
    try:
        algorithm, digest = told["FileChecksum"]["algorithm"], told["FileChecksum"]["bytes"][_DIGEST]
        found = _ALGORITHM.fullmatch(algorithm)
    except (KeyError, TypeError):
        return False
    return found is not None and digest == file_sum(data, _CRCS[found[3]], int(found[2]), int(found[1])).hex()


def file_sum(data: bytes, crc: Callable[[memoryview], int], crc_of: int, crcs_of_block: int) -> bytes:
    """The MD5 of MD5s of CRCs. `crc_of`: bytes that each is of."""
    view = memoryview(data)
    block = crc_of * crcs_of_block or max(len(view), 1)
    sums = b"".join(_block_sum(view[at : at + block], crc, crc_of) for at in range(0, len(view), block))
    buffer = _FIRST_BUFFER
    while buffer < len(sums):
        buffer *= 2
    return _md5(sums.ljust(buffer, b"\0"))


def _block_sum(block: memoryview, crc: Callable[[memoryview], int], crc_of: int) -> bytes:
    crcs = array("I", (crc(block[at : at + crc_of]) for at in range(0, len(block), crc_of)))
    if sys.byteorder == "little":
        crcs.byteswap()
    return _md5(crcs)


def _md5(data: bytes | array[int]) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


class UnsupportedError(FatalError):
    """The namenode does not do this, whoever asks and whenever."""


class _AnswerError(Exception):
    """An answer that is no success. `name`: the exception's in Java, empty where it is none of Hadoop's."""

    def __init__(self, status: int, name: str, text: str) -> None:
        super().__init__(" ".join(f"{status} {name}: {text}".split())[:LONGEST_MESSAGE])
        self.status = status
        self.name = name


class WebHdfsCalls:
    """Makes requests with retries for at most `deadline` seconds (an attempt that was begun is not interrupted).

    `namenodes`: their addresses, `http://host:port`; of several, one is active. `who`: the parameters that say who we
    are.
    """

    def __init__(
        self, url: str, client: httpx.Client, namenodes: Sequence[str], who: Mapping[str, str], deadline: float
    ) -> None:
        self.url = url
        self._client = client
        self._namenodes = namenodes
        self._active = 0
        self._who = who
        self._reading = Calls(url, deadline, _errors(write=False))
        self._writing = Calls(url, deadline, _errors(write=True))

    def read(self, what: str, method: str, path: str, op: str, **parameters: str) -> Any:
        """A request that changes nothing that others see; the answer's JSON. Raises FileNotFoundError."""
        return self._reading.read(what, partial(self._told, method, path, op, parameters))

    def write(self, what: str, method: str, path: str, op: str, **parameters: str) -> Any:
        """A request that may be repeated; the answer's JSON, None where it has none. Raises FileNotFoundError and
        FileExistsError, which an earlier try of ours may have brought about; OutcomeUnknownError: no answer came."""
        return self._writing.write(what, partial(self._told, method, path, op, parameters))

    def fetch(self, what: str, path: str, offset: int, length: int) -> bytes:
        """So many bytes of a file that has them. Raises FileNotFoundError."""

        def send() -> bytes:
            with self._opened(path, offset=str(offset), length=str(length)) as answer:
                data = b"".join(answer.iter_raw())
            if len(data) != length:
                raise httpx.ReadError(f"{len(data)} bytes came instead of {length}")
            return data

        return self._reading.read(what, send)

    def create(self, what: str, new_path: Callable[[], str], data: bytes) -> str:
        """A file that has been proven to hold these bytes; else as `stream`."""
        return self._create(what, new_path, len(data), pieces(data), partial(self._prove, data))

    def stream(self, what: str, new_path: Callable[[], str], size: int, body: Body) -> str:
        """A file of these bytes under a name that nobody knows, another one for each try; its path. What a broken try
        leaves nobody ever names. Nothing shows yet that no byte has changed on the way."""
        return self._create(what, new_path, size, body, lambda _: None)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _create(
        self, what: str, new_path: Callable[[], str], size: int, body: Body, prove: Callable[[str], None]
    ) -> str:
        def send() -> str:
            path = new_path()
            with _alone(path):
                datanode = _datanode(self._ask("PUT", path, "CREATE", {"overwrite": "false"}))
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            answer = self._client.put(datanode, headers=headers, content=body())
            with _alone(path):
                _checked(answer)
                prove(path)
            return path

        return self._reading.read(what, send)

    def _prove(self, data: bytes, path: str) -> None:
        """By the checksum that HDFS tells, else by reading it back."""
        if data and not self._is_sum_told(path, data) and not self._is_read_back(path, data):
            raise _AnswerError(201, _DAMAGED, "other bytes than ours have arrived")

    def _is_sum_told(self, path: str, data: bytes) -> bool:
        try:
            datanode = _datanode(self._ask("GET", path, "GETFILECHECKSUM", {}))
            return is_sum_of(_json(_checked(self._client.get(datanode))), data)
        except _AnswerError:  # it may not do this; where it does nothing else either, reading tells what is wrong
            return False

    def _is_read_back(self, path: str, data: bytes) -> bool:
        view, at = memoryview(data), 0
        with self._opened(path) as answer:
            for piece in answer.iter_raw():
                if bytes(view[at : at + len(piece)]) != piece:
                    return False
                at += len(piece)
        return at == len(data)

    @contextmanager
    def _opened(self, path: str, **parameters: str) -> Iterator[httpx.Response]:
        """A file's bytes. Streamed: an answer that has its content lives until Python looks for cycles."""
        datanode = _datanode(self._ask("GET", path, "OPEN", parameters))
        with self._client.stream("GET", datanode) as answer:
            if answer.is_error:
                answer.read()
            yield _checked(answer)

    def _told(self, method: str, path: str, op: str, parameters: Mapping[str, str]) -> Any:
        return _json(self._ask(method, path, op, parameters))

    def _ask(self, method: str, path: str, op: str, parameters: Mapping[str, str]) -> httpx.Response:
        """An answer of the active namenode. Where it has none for us the next try asks another one: it may be starting
        again, or silent, while that has taken over."""
        namenode = self._active
        url = f"{self._namenodes[namenode]}/webhdfs/v1{quote(path)}"
        try:
            answer = self._client.request(method, url, params={"op": op, **self._who, **parameters})
            return _checked(answer)
        except (httpx.TransportError, _AnswerError) as error:
            if _is_passing(error, write=True):
                self._active = (namenode + 1) % len(self._namenodes)
            raise


def pieces(data: bytes) -> Body:
    """A body of bytes that are there: sent at once they would be copied as a whole."""
    view = memoryview(data)
    return lambda: (bytes(view[at : at + PIECE]) for at in range(0, len(view), PIECE))


def _json(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    try:
        return parse_json(answer.content)
    except ValueError:
        raise _AnswerError(answer.status_code, "", "the answer is no JSON") from None


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Whatever befalls a file whose name only we know, somebody has meddled with it: another one may do better."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise _AnswerError(404, "IOException", f"{path}: {error}") from error


def _datanode(answer: httpx.Response) -> str:
    """Where a namenode sends us for the bytes."""
    url = answer.headers.get("Location", "")
    if not url.startswith(("http://", "https://")):
        raise _AnswerError(answer.status_code, "", "no datanode is named")
    return str(url)


def _checked(answer: httpx.Response) -> httpx.Response:
    """Raises FileNotFoundError, FileExistsError, _AnswerError."""
    if answer.status_code < 400:
        return answer
    try:
        told = parse_json(answer.content)["RemoteException"]
        name, text = str(told["exception"]), str(told["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        name, text = "", answer.reason_phrase
    if name == "FileNotFoundException":
        raise FileNotFoundError(text)
    if name == "FileAlreadyExistsException":
        raise FileExistsError(text)
    raise _AnswerError(answer.status_code, name, text)


def _errors(*, write: bool) -> ClientErrors:
    return ClientErrors(
        "WebHDFS's",
        raised=(httpx.TransportError, _AnswerError),
        foreign=(),
        is_passing=partial(_is_passing, write=write),
        may_have_happened=_may_have_happened,
        typed=partial(_typed, write=write),
    )


def _is_passing(error: BaseException, *, write: bool) -> bool:
    if isinstance(error, httpx.TransportError):
        return True
    if not isinstance(error, _AnswerError):
        return False
    if error.name in _NOT_APPLIED or error.status == 429 or (error.status >= 500 and error.status != 501):
        return True
    return not write and error.name == "IOException"


def _may_have_happened(error: BaseException) -> bool:
    if isinstance(error, httpx.TransportError):
        return not isinstance(error, _NOT_SENT)
    return isinstance(error, _AnswerError) and error.status in (500, 502, 504) and error.name not in _NOT_APPLIED


def _typed(what: str, error: BaseException, *, write: bool) -> OffloadError:
    text = f"{what}: {_said(error)}"
    if _is_passing(error, write=write) or not isinstance(error, _AnswerError):
        return StoreUnavailableError(text)
    if error.name in _FULL:
        return StoreFullError(f"{text}; raise the quota")
    if error.name in _DENIED or (error.status in (401, 403) and not error.name):
        return AccessDeniedError(f"{text}; check the options user and delegation, and the folder's permissions")
    if error.name in _REFUSED:
        return UnsupportedError(text)
    if not error.name and not write:
        return FatalError(f"{text}; this is no WebHDFS of a namenode: check storage.root")
    return OutcomeUnknownError(text) if write else StoreUnavailableError(text)


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, _AnswerError) else f"{type(error).__name__}: {error}".rstrip(": ")
