"""A ledger whose parts Spark's executors send and read back: the same objects as of one process."""

from __future__ import annotations

from offloader.config.running import Spark
from offloader.offload.spark import piece_jobs
from offloader.offload.spark.session import session
from tests.archive.support import TOPIC
from tests.bridge.support import built
from tests.offload.test_piece_jobs import DATA, INDEX, builder_of, world

__all__ = ["world"]


def test_executors_write_what_one_process_writes(world, monkeypatch):
    monkeypatch.setattr(piece_jobs, "FEW", 0)
    made, archive, bucket = world
    spark = session(Spark(master="local[2]"), "pieces")
    try:
        builder, stores = builder_of(made, archive, bucket, spark)
        assert built(builder.build(TOPIC, made.wanted)).copied == 0
    finally:
        spark.stop()
    made.build()
    for key in (DATA, INDEX):
        assert stores.bucket.read(key)[0] == made.bucket.read(key)[0]
