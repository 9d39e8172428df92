"""What a bookie is told: everything small, on the loopback interface, and nothing that waits for a disk."""

from __future__ import annotations

from pathlib import Path

from dev.embedded.settings import loopback_interface

JAVA_OPTIONS = (
    "-Xmx96m",
    "-Xss512k",
    "-XX:MaxDirectMemorySize=64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it does not live long enough for more
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)

_SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
_ROCKSDB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"  # Pulsar's


def bookie_configuration(number: int, port: int, metadata_uri: str, directory: Path) -> dict[str, str]:
    """The settings of the bookie with this number, counted from 0.

    The second, fourth … has an id of its own, the others go by their address; the third, fourth … stores as Pulsar's
    bookies do, the first two as BookKeeper's own default says.
    """
    return {
        "bookiePort": str(port),
        "metadataServiceUri": metadata_uri,
        "journalDirectories": str(directory / "journal"),
        "ledgerDirectories": str(directory / "ledgers"),
        "ledgerStorageClass": _ROCKSDB if number % 4 >= 2 else _SORTED,
        **({"bookieId": f"bookie-{number}"} if number % 2 else {}),
        "advertisedAddress": "127.0.0.1",
        "listeningInterface": loopback_interface(),
        "allowLoopback": "true",
        "allowEphemeralPorts": "true",
        "zkTimeout": "6000",
        # A killed process loses nothing that it gave to the operating system.
        "journalSyncData": "false",
        "journalMaxGroupWaitMSec": "1",
        "journalPreAllocSizeMB": "1",
        "journalMaxSizeMB": "16",
        "journalMaxBackups": "5",  # with 0, one that is killed early can miss the journal that its mark still names
        "journalMaxMemorySizeMb": "8",
        "logSizeLimit": str(16 * 1024 * 1024),
        "entryLogFilePreallocationEnabled": "false",
        "skipListSizeLimit": str(4 * 1024 * 1024),
        "minUsableSizeForIndexFileCreation": "1024",
        "minUsableSizeForEntryLogCreation": "1024",
        "minUsableSizeForHighPriorityWrites": "1024",
        "diskUsageThreshold": "0.999",
        "diskUsageWarnThreshold": "0.999",
        "diskUsageLwmThreshold": "0.999",
        "dbStorage_writeCacheMaxSizeMb": "8",
        "dbStorage_readAheadCacheMaxSizeMb": "8",
        "dbStorage_rocksDB_blockCacheSize": str(4 * 1024 * 1024),
        "dbStorage_rocksDB_writeBufferSizeMB": "4",
        "allocatorPoolingPolicy": "UnpooledHeap",
        "serverNumIOThreads": "2",
        "numAddWorkerThreads": "1",
        "numReadWorkerThreads": "1",
        "numHighPriorityWorkerThreads": "1",
        "numLongPollWorkerThreads": "1",
    }
