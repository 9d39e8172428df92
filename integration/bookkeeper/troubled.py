"""Bookies whose adds go wrong: in this process, beside a real ZooKeeper, where they stand under a root of their own.

    with Troubled(cluster, bookies=6, seed=1) as troubled:
        writer = troubled.client()

An add is refused, or done and answered as refused; its connection is closed in place of an answer, done or not; it is
never answered; it comes late, after the client has given up, or only slowly, and so does all behind it on its
connection.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from integration.bookkeeper.cluster import BookKeeperCluster
from integration.bookkeeper.official import OfficialClient
from integration.bookkeeper.orphans import Orphan
from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper.entry_codec import decode, digest_for
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.status import BookieIOError
from tests.bookkeeper.bookie_answers import ScriptedRequest
from tests.bookkeeper.bookie_server import BookieFault, BookieServer

SLOW, LATE = 0.1, 4.0  # seconds; no client here waits as long as the second
_ALWAYS = 1 << 30
_ROOTS = itertools.count()


def _refused(answer: bytes) -> bytes:
    response = pb.Response.FromString(answer)
    response.status = response.add.status = BookieIOError.status
    return response.SerializeToString()


_REFUSED = BookieIOError.status
KINDS = {
    "refused": (0.006, 0.05, BookieFault(status=_REFUSED)),
    "done, said to be refused": (0.004, 0.03, BookieFault(spoil=_refused)),
    "cut off": (0.002, 0.01, BookieFault(status=_REFUSED, drop=True)),
    "done, cut off": (0.002, 0.01, BookieFault(drop=True)),
    "slow": (0.004, 0.004, BookieFault(delay=SLOW)),
    "done, never answered": (0.001, 0.001, BookieFault()),
    "late": (0.001, 0.001, BookieFault(delay=LATE)),
}
"""What goes wrong, and how likely: one in fifty for an add, one in ten for an add of a recovery."""


class Troubled:
    """A context manager. `official`: BookKeeper's own client there. `happened`: how often what went wrong."""

    def __init__(self, cluster: BookKeeperCluster, bookies: int, seed: int) -> None:
        self._cluster = cluster
        self._choice = random.Random(seed)
        self._stack = ExitStack()
        self._servers = [BookieServer() for _ in range(bookies)]
        self._root = f"/troubled-{next(_ROOTS)}"
        self.metadata_uri = f"zk+hierarchical://{cluster.zookeeper_address}{self._root}"
        self.happened: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.official = self.client()
            self.official.call("format")
            for server in self._servers:
                stack.enter_context(server)
                self._trouble(server, random.Random(self._choice.random()))
                self._cluster.zookeeper.create(f"{self._root}/available/{_id(server)}", b"")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def bookies(self) -> list[str]:
        """Their ids."""
        return [_id(server) for server in self._servers]

    def client(self) -> OfficialClient:
        """One more process with BookKeeper's own client."""
        return self._cluster.client(self.metadata_uri)

    def copies(self, orphan: Orphan, metadata: LedgerMetadata, last: int) -> list[int]:
        """Of each entry up to the last: how many bookies of its write set have it, as it was written."""
        kept = {_id(server): self._kept(server, orphan, metadata) for server in self._servers}
        return [
            sum(kept[bookie].get(entry) == orphan.contents.of(entry) for bookie in metadata.write_set(entry))
            for entry in range(last + 1)
        ]

    def _kept(self, server: BookieServer, orphan: Orphan, metadata: LedgerMetadata) -> dict[int, bytes]:
        with server.lock:
            found = server.bookie.ledgers.get(orphan.ledger)
            stored = dict(found.stored) if found else {}
        digest = digest_for(metadata)
        return {entry: decode(data, digest, orphan.ledger, entry).payload for entry, data in stored.items()}

    def _trouble(self, server: BookieServer, choice: random.Random) -> None:
        for name, (add, recovery_add, fault) in KINDS.items():
            likely = self._likely(name, {"add": add, "recovery-add": recovery_add}, choice)
            server.add(replace(fault, matches=likely, times=_ALWAYS))

    def _likely(
        self, name: str, likelihoods: Mapping[str, float], choice: random.Random
    ) -> Callable[[ScriptedRequest], bool]:
        def happens(asked: ScriptedRequest) -> bool:
            if choice.random() >= likelihoods.get(asked.operation, 0):
                return False
            self.happened[name] += 1
            return True

        return happens


def _id(server: BookieServer) -> str:
    return f"{server.address.host}:{server.address.port}"
