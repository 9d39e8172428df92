"""On an executor: parts of bridged objects that are sent, and blocks that are read back."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.bridge.piece_tasks import (
    BridgeStores,
    CheckBlocks,
    CheckedBlocks,
    SendPart,
    SentPart,
    check_blocks,
    send_part,
)
from offloader.errors import OffloadError
from offloader.offload.worker.secrets import Public, with_secrets
from offloader.storage.open import open_store

PieceTask = SendPart | CheckBlocks
PieceResult = SentPart | CheckedBlocks


@dataclass(frozen=True, slots=True)
class PieceSettings:
    """How an executor reaches the archive and, alike, the brokers' bucket."""

    public: Public
    bucket: str


@dataclass(frozen=True, slots=True)
class PieceFailure:
    """What a task raised."""

    kind: type[OffloadError]
    text: str


def piece_results(tasks: Iterable[bytes], packed: bytes) -> Iterator[bytes]:
    """Pickled results of pickled tasks, in their order; behind a failure none."""
    settings: PieceSettings = pickle.loads(packed)  # noqa: S301 (our own driver's)
    for each in tasks:
        task: PieceTask = pickle.loads(each)  # noqa: S301 (the same)
        try:
            stores = _stores(settings)
            done = send_part(task, stores) if isinstance(task, SendPart) else check_blocks(task, stores)
        except OffloadError as error:
            yield pickle.dumps(PieceFailure(type(error), str(error)))
            return
        yield pickle.dumps(done)


_open: dict[PieceSettings, BridgeStores] = {}
_opening = threading.Lock()


def _stores(settings: PieceSettings) -> BridgeStores:
    """Kept for the process: Spark uses its Python workers again."""
    with _opening:
        if settings not in _open:
            archive = with_secrets(settings.public, os.environ)[1]
            bucket = archive.beside(settings.bucket, "bridge.bucket")
            _open[settings] = BridgeStores(open_store(archive, read_only=True), open_store(bucket))
        return _open[settings]
