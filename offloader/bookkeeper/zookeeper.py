"""ZooKeeper as a tree of nodes, through kazoo."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import Fired, Node
from offloader.bookkeeper.uri import MetadataUri, parse_uri
from offloader.errors import (
    AccessDeniedError,
    FatalError,
    MetadataUnavailableError,
    OutcomeUnknownError,
    VersionConflictError,
)

try:
    from kazoo import exceptions
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.interfaces import IAsyncResult
    from kazoo.protocol.states import KazooState
except ImportError as error:
    raise FatalError("reading ZooKeeper needs kazoo: pip install 'pulsar-streaming-offloader[bookkeeper]'") from error

TIMEOUT = 10.0  # seconds

_RECONNECTING = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
_REFUSED = (exceptions.NoAuthError, exceptions.AuthFailedError)
_LOST = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
)
_FAILED = (exceptions.KazooException, KazooTimeoutError)

log = logging.getLogger(__name__)


def connect(
    uri: str | MetadataUri, *, timeout: float = TIMEOUT, options: Mapping[str, Any] | None = None
) -> MetadataTree:
    """The metadata of the cluster that a URI names. `options`: more of KazooClient's (use_ssl, auth_data …).

    `timeout`: seconds that a call may take. Raises ConfigError, MetadataUnavailableError.
    """
    parsed = parse_uri(uri) if isinstance(uri, str) else uri
    return MetadataTree(ZooKeeper(parsed.hosts, timeout=timeout, options=options), parsed)


class ZooKeeper:
    """The `Nodes` of a ZooKeeper. A session that expires is begun anew."""

    def __init__(
        self, hosts: tuple[str, ...], *, timeout: float = TIMEOUT, options: Mapping[str, Any] | None = None
    ) -> None:
        self._name = ",".join(hosts)
        self._timeout = timeout
        self._changed = threading.Condition()
        self._lost = self._closing = False
        self._client = KazooClient(
            self._name,
            # the session's: a call outlasts a server that hangs where there is another
            timeout=timeout / min(len(hosts), 2),
            connection_retry=dict(_RECONNECTING),
            logger=_Quiet(log, {}),
            **(options or {}),
        )
        self._client.add_listener(self._note)
        try:
            self._client.start(timeout)
        except KazooTimeoutError as error:
            raise self._unavailable() from error

    def get(self, path: str, fired: Fired | None = None, *, latest: bool = False) -> Node | None:
        found = self._ask(path, lambda: self._client.get_async(path, _watch(fired)), latest=latest)
        if found is None:
            return None
        value, stat = found
        return Node(value or b"", stat.version, stat.ctime, stat.mtime)

    def children(self, path: str, fired: Fired | None = None) -> list[str] | None:
        found: list[str] | None = self._ask(path, lambda: self._client.get_children_async(path, _watch(fired)))
        return found

    def set(self, path: str, value: bytes, version: int) -> int | None:
        deadline = time.monotonic() + self._timeout
        self._await_connection(deadline)
        try:
            stat = self._client.set_async(path, value, version).get(timeout=_left(deadline))
        except exceptions.NoNodeError:
            return None
        except exceptions.BadVersionError as error:
            raise VersionConflictError(f"{path}: somebody else changed it after version {version}") from error
        except _REFUSED as error:
            raise self._refused(path) from error
        except _FAILED as error:
            raise OutcomeUnknownError(
                f"{path}: the answer of ZooKeeper at {self._name} to a write was lost ({_text(error)})"
            ) from error
        written: int = stat.version
        return written

    def close(self) -> None:
        """Takes a moment; where the server hangs, up to the session's time-out."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._client.stop()
        self._client.close()

    def _ask(self, path: str, begin: Callable[[], IAsyncResult], *, latest: bool = False) -> Any:
        """What a read finds, None where there is no such node. It is repeated where the connection is lost."""
        deadline = time.monotonic() + self._timeout
        while True:
            self._await_connection(deadline)
            try:
                synced = self._client.sync_async(path) if latest else None
                found = begin()  # both are on their way: the server answers in order
                if synced is not None:
                    synced.get(timeout=_left(deadline))
                return found.get(timeout=_left(deadline))
            except exceptions.NoNodeError:
                return None
            except _REFUSED as error:
                raise self._refused(path) from error
            except _LOST:
                continue
            except _FAILED as error:
                raise self._unavailable(error) from error

    def _await_connection(self, deadline: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._client.connected or self._closing, _left(deadline))
            if self._closing:
                raise MetadataUnavailableError(f"the session with ZooKeeper at {self._name} is closed")
            if not self._client.connected:
                raise self._unavailable()

    def _note(self, state: str) -> None:
        with self._changed:
            if state == KazooState.SUSPENDED and not self._closing:
                self._lost = True
                log.warning("the connection to ZooKeeper at %s was lost", self._name, extra={"see": "zookeeper-lost"})
            elif state == KazooState.CONNECTED and self._lost:
                self._lost = False
                log.info("ZooKeeper at %s answers again", self._name)
            self._changed.notify_all()

    def _unavailable(self, error: Exception | None = None) -> MetadataUnavailableError:
        reason = f" ({_text(error)})" if isinstance(error, exceptions.KazooException) else ""
        return MetadataUnavailableError(f"ZooKeeper at {self._name} did not answer within {self._timeout:g} s{reason}")

    def _refused(self, path: str) -> AccessDeniedError:
        return AccessDeniedError(f"ZooKeeper at {self._name} refuses access to {path}")


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns of each attempt to connect; the session itself logs what matters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level if level >= logging.ERROR else logging.DEBUG, msg, *args, **kwargs)


def _watch(fired: Fired | None) -> Callable[[object], None] | None:
    return None if fired is None else lambda _: fired()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
