"""HDFS as a process of its own: Hadoop's mini cluster, a namenode and a datanode in one Java, fetched once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dev.embedded.commands import SHORT_LIVED, JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import HADOOP
from dev.embedded.process import JavaProcess
from integration.compiling import compiled
from integration.processes import HANGS
from offloader.java import find_java
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy, json_as_told

_SOURCE = Path(__file__).with_name("MiniCluster.java")
_SERVES = re.compile(r"^serves (\d+) (\d+)$", re.M)


@dataclass(frozen=True)
class Hdfs:
    """A cluster: where its namenode and its datanode are asked by HTTP, on 127.0.0.1."""

    namenode: int
    datanode: int
    pid: int

    def settings(self, namenode: int | None = None, *, scheme: str = "webhdfs", **options: str) -> StoreSettings:
        """A root that nobody uses. `namenode`: another port that leads there."""
        root = f"{scheme}://127.0.0.1:{namenode or self.namenode}/roots/{uuid.uuid4().hex}"
        return StoreSettings(root, options=tuple(options.items()))

    def proxies(self, stack: ExitStack) -> tuple[Proxy, Proxy]:
        """One before the namenode, which sends clients to the other, before the datanode."""
        datanode = stack.enter_context(Proxy("127.0.0.1", self.datanode, json_as_told))
        elsewhere = {f"127.0.0.1:{self.datanode}": f"127.0.0.1:{datanode.port}"}
        namenode = stack.enter_context(Proxy("127.0.0.1", self.namenode, json_as_told, elsewhere))
        return namenode, datanode

    def settings_of(self, proxied: StoreSettings) -> StoreSettings:
        """The same root without a proxy before it."""
        return StoreSettings(f"webhdfs://127.0.0.1:{self.namenode}{urlsplit(proxied.root).path}")


@contextmanager
def running(folder: Path) -> Iterator[Hdfs]:
    """A cluster whose files are in `folder`."""
    folder.mkdir(parents=True)
    java, jars = find_java(), fetch_lock(HADOOP)
    classes = compiled(_SOURCE, jars, folder / "classes")
    commands = JavaCommands(java, jars, folder, [classes])
    log = folder / "hdfs.log"
    program = commands.program("hdfs", ("-Xmx512m", *SHORT_LIVED), ("MiniCluster", str(folder / "data")))
    process = JavaProcess(program, folder, log)
    try:
        process.await_ready(lambda: _SERVES.search(log.read_text()) is not None, HANGS)
        found = _SERVES.search(log.read_text())
        assert found is not None
        yield Hdfs(int(found[1]), int(found[2]), process.pid)
    finally:
        process.kill()
