"""The same topics at a broker and in an archive, and `offloader gateway` over that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from integration.gateway.clients import StockClient
from integration.gateway.topics import Made, Maker
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.world import World, keep_everything
from offloader.storage.settings import StoreSettings

_SMALL = {"maxOffloadSegmentRolloverTimeInSeconds": "2s"}
_ADDRESS = re.compile(r"serving .* at (pulsar://\S+)")


def archived(
    pulsar: PatientPulsar, namespace: str, java: StockClient, folder: Path
) -> tuple[Mapping[str, Made], StoreSettings]:
    """Topics of all kinds, and where they are archived, completely."""
    pulsar.create_namespace(namespace)
    keep_everything(pulsar, namespace)
    store = StoreSettings((folder / "archive").as_uri())
    with World(pulsar, store, folder / "world", [namespace], policies=_SMALL, light=True) as world:
        topics = Maker(pulsar, namespace, java, folder).all()
        world.see()
        world.catch_up()
        assert all(world.at_rest_in(each) for made in topics.values() for each in made.archived)
    return topics, store


@contextmanager
def gateway(archive: StoreSettings, folder: Path, **settings: Any) -> Iterator[tuple[str, int]]:
    """`offloader gateway` as a process: its address and its id. It must stop well."""
    configuration, log = folder / "gateway.yaml", folder / "gateway.log"
    storage = {"root": archive.root, "endpoint": archive.endpoint, "region": archive.region}
    keys = {"AWS_ACCESS_KEY_ID": archive.access_key, "AWS_SECRET_ACCESS_KEY": archive.secret_key}
    environment = {**os.environ, **{key: value for key, value in keys.items() if value}}
    configuration.write_text(
        yaml.safe_dump(
            {
                "application": "tests",
                "pulsar": {"serviceUrl": "pulsar://127.0.0.1:1", "adminUrl": "http://127.0.0.1:1"},
                "storage": {key: value for key, value in storage.items() if value},
                "gateway": {
                    "listen": "127.0.0.1:0",
                    "metricsListen": "",
                    "durableSubscriptions": True,
                    "flushInterval": "500ms",
                    **settings,
                },
            }
        )
    )
    program = str(Path(sys.executable).with_name("offloader"))
    with log.open("wb") as out:
        command = [program, "gateway", "--config", str(configuration)]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        yield _address(process, log), process.pid
    finally:
        process.terminate()
        assert process.wait(HANGS) == 0, log.read_text()[-3000:]


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + HANGS
    while (found := _ADDRESS.search(log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.05)
    return found[1]
