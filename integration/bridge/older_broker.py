"""A broker of Pulsar 3.0 in the place of the 4.0's: before an upgrade, or after one that is taken back.

Maven Central has the brokers 3.0.0, 3.0.2 and 3.0.7, and an offloader of no 3.0. The oldest one of 3.x there is 3.3.5.
It reads objects as brokers before 3.0.14 do, and a broker of 3.0 takes it behind one class of ours. (2.10.1 lacks a
method that 3.0 calls; 3.3.5 alone has another one that returns something else.)
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from integration.bridge.place import Place
from integration.compiling import compiled
from offloader.java import find_java

BROKER, OFFLOADER = "pulsar-3.0.7.lock", "offloader-3.3.5.lock"
_SOURCE = Path(__file__).with_name("OlderBrokersOffloader.java")
_SERVICE = "META-INF/services/pulsar-offloader.yaml"
_UNUSED = ("rocksdbjni-", "grpc-netty-shaded-", "jetcd-core-shaded-")  # large, for other metadata stores
_NAMED = ("tiered-storage-", "managed-ledger-", "bookkeeper-", "pulsar-")  # by the source: javac looks no further


@contextmanager
def older_broker(here: Place) -> Iterator[None]:
    """It serves meanwhile, with the same ZooKeeper, bookie and bucket; then the newer one again."""
    folder, newer = here.cluster.directory, here.broker.commands
    jars = fetch_lock(BROKER)
    offloaders = folder / "older-offloaders"
    if not offloaders.exists():
        _install(offloaders, jars)
    try:
        here.broker.commands = JavaCommands(find_java(), jars, folder)
        here.restart(offloadersDirectory=offloaders.name)
        yield
    finally:
        here.broker.commands = newer
        here.restart(offloadersDirectory="offloaders")


def _install(folder: Path, jars: Sequence[Path]) -> None:
    (theirs,) = fetch_lock(OFFLOADER)
    folder.mkdir()
    classes = _compiled([*jars, theirs], folder / "classes")
    with (
        zipfile.ZipFile(theirs) as source,
        zipfile.ZipFile(folder / f"{theirs.stem}.nar", "w", zipfile.ZIP_STORED) as target,
    ):
        for name in source.namelist():
            if name != _SERVICE and not Path(name).name.startswith(_UNUSED):
                target.writestr(name, source.read(name))
        text = f"name: jcloud\ndescription: for older brokers\noffloaderFactoryClass: {_SOURCE.stem}\n"
        target.writestr(_SERVICE, text)
        for file in classes.iterdir():
            target.write(file, file.name)


def _compiled(jars: Sequence[Path], folder: Path) -> Path:
    return compiled(_SOURCE, [jar for jar in jars if jar.name.startswith(_NAMED)], folder)
