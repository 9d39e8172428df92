"""A proxy before ZooKeeper that freezes a connection at a chosen frame.

    with proxy.freezing(lambda asked: any(one.path == path for one in asked)) as frozen:
        ...
        held = frozen.wait()      # what the frame would have written
        frozen.release()          # or kill the client while `burying` what it had

From the chosen frame on nothing that the client sends reaches the server; what the server sends still arrives.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Self

from integration.lifecycle.frames import FrameError, Frames, NodeWrite, close_session, framed, writes
from integration.processes import HANGS

Chosen = Callable[[Sequence[NodeWrite]], bool]
"""Whether a frame that writes this is the one."""

_CHUNK = 1 << 16


class Freeze:
    """One freeze to come. The first frame that is chosen is held, and all behind it on its connection."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.held: tuple[NodeWrite, ...] = ()
        self._frozen = threading.Event()
        self._goes_on = threading.Event()
        self._over = threading.Lock()  # taken by the one frame that is held
        self.dropped = False
        self.link: Link | None = None  # the connection that is frozen

    def wait(self, seconds: float = HANGS) -> tuple[NodeWrite, ...]:
        """Until it is frozen: what the frame would write."""
        assert self._frozen.wait(seconds), "no such frame came"
        return self.held

    @property
    def happened(self) -> bool:
        return self._frozen.is_set()

    def release(self) -> None:
        """What was held goes on its way."""
        self._goes_on.set()

    def drop(self) -> None:
        """What was held is never sent."""
        self.dropped = True
        self._goes_on.set()

    def hold(self, link: Link, asked: tuple[NodeWrite, ...]) -> None:
        """The connection's thread waits here, if this is the frame."""
        if not self.chosen(asked) or not self._over.acquire(blocking=False):
            return
        self.held, self.link = asked, link
        self._frozen.set()
        self._goes_on.wait()


class Link:
    """One client's connection and ours to the server.

    `doomed`: the client is about to die. Its session is then ended as itself would: the server forgets its ephemeral
    nodes at once, and not only when the session expires.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.port: int = client.getpeername()[1]
        self.doomed = False
        self.ended = threading.Event()
        self._left = threading.Semaphore(1)  # the second of its two threads closes the sockets

    def end(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """What each of its threads does last."""
        if not self._left.acquire(blocking=False):
            self.client.close()
            self.server.close()

    def client_is_gone(self) -> None:
        with contextlib.suppress(OSError):
            if self.doomed:
                self.server.sendall(close_session())  # the server closes the connection once it is done
            else:
                self.server.shutdown(socket.SHUT_WR)


class FreezingProxy:
    """Before the server at `port` on 127.0.0.1; itself at `address`."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._freezes: list[Freeze] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for freeze in self._freezes:
            freeze.drop()
        for link in self._open_links():
            link.end()

    @contextlib.contextmanager
    def freezing(self, chosen: Chosen) -> Iterator[Freeze]:
        """From now on, the first frame that is chosen is held. On leaving, what is held and was not dropped goes on."""
        freeze = Freeze(chosen)
        with self._lock:
            self._freezes.append(freeze)
        try:
            yield freeze
        finally:
            with self._lock:
                self._freezes.remove(freeze)
            freeze.release()

    @contextlib.contextmanager
    def burying(self, ports: Collection[int]) -> Iterator[None]:
        """The client whose connections have these ports dies within. What is held of it is never sent, and its sessions
        have ended on leaving."""
        doomed = [link for link in self._open_links() if link.port in ports]
        for link in doomed:
            link.doomed = True
        yield
        with self._lock:
            freezes = list(self._freezes)
        for freeze in freezes:
            if freeze.link in doomed:
                freeze.drop()
        for link in doomed:
            assert link.ended.wait(HANGS), "a session did not end"

    def _open_links(self) -> list[Link]:
        with self._lock:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:  # the server is away: so are we
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, server)
            with self._lock:
                self._links.append(link)
            threading.Thread(target=self._to_server, args=(link,), name="to-server", daemon=True).start()
            threading.Thread(target=self._to_client, args=(link,), name="to-client", daemon=True).start()

    def _to_server(self, link: Link) -> None:
        frames, first = Frames(), True
        passed = True
        with contextlib.suppress(OSError):
            while passed and (data := link.client.recv(_CHUNK)):
                for payload in frames.feed(data):
                    passed = passed and (first or self._passes(link, payload))
                    first = False
                    if passed:
                        link.server.sendall(framed(payload))
        link.client_is_gone()
        link.leave()

    def _passes(self, link: Link, payload: bytes) -> bool:
        """Once it may. False: it is dropped, and so is all behind it."""
        with self._lock:
            freezes = list(self._freezes)
        if not freezes:
            return True
        try:
            asked = writes(payload)
        except FrameError:
            return True
        for freeze in freezes:
            freeze.hold(link, asked)
            if freeze.dropped and freeze.link is link and freeze.held is asked:
                return False
        return True

    def _to_client(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(_CHUNK):
                with contextlib.suppress(OSError):  # a dead client's answers go nowhere
                    link.client.sendall(data)
        link.end()
        with self._lock:
            self._links.remove(link)
        link.ended.set()
        link.leave()
