"""The S3 server that brokers and the application share, behind proxies of which each side has one.

OFFLOADER_BRIDGE_STORE says which: `moto` (by default) or `minio`, which takes minutes to build once (soaks and
benchmarks want it). moto's data end with it, so a kill of the store is a proxy that answers nobody.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from benchmarks import minio
from integration.soak import SOAK
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server, free_port, serving

BROKERS_BUCKET = "brokers"
ARCHIVE_BUCKET = BUCKET
_ALWAYS = 10**9


@dataclass(frozen=True)
class SharedStore:
    """`brokers`, `ours`: the proxies, through which they reach it."""

    server: S3Server
    brokers: Proxy
    ours: Proxy

    def archive(self, name: str) -> StoreSettings:
        """A root of ours that nobody else uses."""
        return StoreSettings(f"s3://{ARCHIVE_BUCKET}/{name}", self.ours.url, REGION, ACCESS_KEY, SECRET_KEY)

    def bucket(self) -> StoreSettings:
        """The brokers' bucket, as we reach it."""
        return StoreSettings(f"s3://{BROKERS_BUCKET}", self.ours.url, REGION, ACCESS_KEY, SECRET_KEY)

    def client(self) -> Any:
        """boto3's, beside the proxies. Close it."""
        return _client(self.server.url)

    def keys(self, bucket: str = BROKERS_BUCKET) -> dict[str, int]:
        """Sizes by key."""
        s3 = self.client()
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        found = {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", [])}
        s3.close()
        return found

    @contextmanager
    def without_server_side_copy(self) -> Iterator[Rule]:
        """It answers `NotImplemented` to us, as some S3 servers do."""
        copies = Rule(
            lambda method, _: method == "PUT", _ALWAYS, status=501, code="NotImplemented", header="x-amz-copy-source"
        )
        with _in_force(self.ours, copies):
            yield copies

    @contextmanager
    def down(self, *, for_brokers: bool = True) -> Iterator[None]:
        """Whoever asks meanwhile is hung up on."""
        with ExitStack() as stack:
            for proxy in (self.ours, self.brokers) if for_brokers else (self.ours,):
                stack.enter_context(_in_force(proxy, Rule(lambda *_: True, _ALWAYS, unsent=True)))
            yield


@contextmanager
def shared_store(folder: Path) -> Iterator[SharedStore]:
    """Started, with both buckets."""
    with ExitStack() as stack:
        chosen = os.environ.get("OFFLOADER_BRIDGE_STORE") or ("minio" if SOAK else "moto")
        server = stack.enter_context(minio.running(folder) if chosen == "minio" else _moto(folder))
        s3 = _client(server.url)
        s3.create_bucket(Bucket=BROKERS_BUCKET)
        s3.close()
        proxies = [stack.enter_context(Proxy(server.host, server.port)) for _ in range(2)]
        yield SharedStore(server, *proxies)


@contextmanager
def _moto(folder: Path) -> Iterator[S3Server]:
    port = free_port()
    command = [sys.executable, "-m", "integration.bridge.moto_program", str(port)]
    with serving(command, port, folder / "log") as server:
        yield server


@contextmanager
def _in_force(proxy: Proxy, rule: Rule) -> Iterator[None]:
    proxy.add(rule)
    try:
        yield
    finally:
        rule.times = 0


def _client(url: str) -> Any:
    access = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "region_name": REGION}
    return boto3.client("s3", endpoint_url=url, **access)
