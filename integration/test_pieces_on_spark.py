"""A ledger whose parts Spark's executors send and read back: the same objects as of one process."""

from __future__ import annotations

from offloader.bridge.driver import spark as on_spark
from offloader.config.running import Spark
from offloader.offload.spark.session import session
from tests.archive.support import TOPIC
from tests.bridge.driver.test_spark import DATA, INDEX, builder_of, world
from tests.bridge.support import built

__all__ = ["world"]


def test_executors_write_what_one_process_writes(world, monkeypatch):
    monkeypatch.setattr(on_spark, "FEW", 0)
    made = world[0]
    spark = session(Spark(master="local[2]"), "pieces")
    try:
        builder, stores = builder_of(world, spark)
        assert built(builder.build(TOPIC, made.wanted)).copied == 0
    finally:
        spark.stop()
    made.build()
    for key in (DATA, INDEX):
        assert stores.bucket.read(key)[0] == made.bucket.read(key)[0]
