"""A planned data object comes into the brokers' bucket: parts that the store copies by itself, others through workers,
then the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from offloader.ahead import map_ahead, unawaited_pool
from offloader.bridge.core.pieces import ObjectPlan, PlannedPart, SourceRange
from offloader.bridge.core.upload_parts import STREAMED_PART
from offloader.bridge.piece_tasks import BridgeStores, SendPart, absent
from offloader.bridge.piece_workers import PieceWorkers
from offloader.errors import IntegrityError, ObjectNotFoundError, OffloadError
from offloader.ports.object_store import ObjectStore, UploadedPart

COPIES_AT_ONCE = 8  # requests, whose bytes pass through nobody


class CopiesRefusedError(Exception):
    """The store copies nothing by itself: the parts are to be planned for sending. Never leaves the building."""


@dataclass
class BuildingCost:
    """What an upload took."""

    requests: int = 0
    copied: int = 0
    streamed: int = 0


@dataclass(frozen=True)
class PartUploader:
    """`etags`: of the sources, by key."""

    stores: BridgeStores
    workers: PieceWorkers
    etags: Mapping[str, str]
    took: BuildingCost = field(default_factory=BuildingCost)

    def upload(self, key: str, plan: ObjectPlan, meta: Mapping[str, str]) -> None:
        """Write the object, in the place of whatever is there. Raises CopiesRefusedError, and as `ObjectStore` and
        `send_part` do; then this upload is ended, as far as that can be done now."""
        bucket = self.stores.bucket
        upload = bucket.begin(key, meta=meta, copies=True)
        self.took.requests += 1
        try:
            bucket.commit(upload, self._parts(upload, plan))
            self.took.requests += 1
        except BaseException:
            with suppress(OffloadError):
                bucket.abort(upload)
            raise

    def _parts(self, upload: str, plan: ObjectPlan) -> list[UploadedPart]:
        parts = self._copied(upload, [part for part in plan.parts if part.copies])
        left = [part for part in plan.parts if part.number not in parts]
        if any(part.copies and part.size > STREAMED_PART for part in left):
            raise CopiesRefusedError
        etags = tuple(self.etags.items())
        sent = self.workers.send(self.stores, [SendPart(upload, part, etags) for part in left])
        for part, done in zip(left, sent, strict=True):
            parts[part.number] = done.part
            self.took.requests += done.requests
            self.took.streamed += part.size
        return [parts[number] for number in sorted(parts)]

    def _copied(self, upload: str, wanted: Iterable[PlannedPart]) -> dict[int, UploadedPart]:
        """Those that the store has copied, by number."""
        with unawaited_pool(COPIES_AT_ONCE, "bridge-copy") as pool:
            answers = list(map_ahead(pool, partial(self._copy, upload), wanted, COPIES_AT_ONCE))
        found = {part.number: part for part in answers if part is not None}
        self.took.requests += len(answers)
        self.took.copied += sum(part.size for part in found.values())
        return found

    def _copy(self, upload: str, part: PlannedPart) -> UploadedPart | None:
        (piece,) = part.pieces
        source = piece.source
        if not isinstance(source, SourceRange):
            raise IntegrityError(f"part {part.number} is to be copied, and is of no object")
        stores = self.stores
        try:
            return stores.bucket.copy_part(
                upload,
                part.number,
                part.offset,
                stores.archive,
                source.key,
                source.offset,
                source.size,
                self.etags[source.key],
            )
        except ObjectNotFoundError as error:
            raise absent(source.key) from error


def end_uploads(bucket: ObjectStore, key: str) -> None:
    """End the uploads of a key that others have left open: nobody knows their handles any more."""
    for found in list(bucket.list_uploads(key)):
        if found.key == key:
            bucket.abort(found.upload)
