"""Exactly once under kills, as `test_kills.py` shows it on disk and on S3, on every other store.

And on S3 by moto, which needs nothing but Python.

What differs from store to store is how a part comes to be and how a commit ends: a worker is killed while it uploads,
and its application right after the commit of a segment. Soaks have all kinds of kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.azurite import AzuriteServer
from integration.fake_gcs import GoogleServer
from integration.hdfs.cluster import Hdfs
from integration.killing import ALL, Sizes, kill_a_worker_and_after_a_commit, kill_and_check
from integration.soak import SOAK
from integration.test_kills import S3
from tests.storage.servers import S3Server

SIZES = Sizes(parts=("1M", "2M", "8M"))
KILLS = ALL * 2 if SOAK else (kill_a_worker_and_after_a_commit,)

pytestmark = [pytest.mark.pulsar, pytest.mark.spark, pytest.mark.timeout(14_400 if SOAK else 3_600)]


def test_exactly_once_under_kills_on_s3(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path, moto: S3Server
) -> None:
    kill_and_check(pulsar, namespace, moto.settings(moto.fresh_root()), tmp_path, S3, seed=6, kills=KILLS)


@pytest.mark.soak
@pytest.mark.hdfs
def test_exactly_once_under_kills_on_hdfs(pulsar: PulsarStandalone, namespace: str, tmp_path: Path, hdfs: Hdfs) -> None:
    kill_and_check(pulsar, namespace, hdfs.settings(), tmp_path, SIZES, seed=3, kills=KILLS, light_end=not SOAK)


@pytest.mark.fake_gcs
def test_exactly_once_under_kills_on_google(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path, fake_gcs: GoogleServer
) -> None:
    storage = fake_gcs.settings(fake_gcs.fresh_root())
    kill_and_check(pulsar, namespace, storage, tmp_path, SIZES, seed=4, kills=KILLS, light_end=not SOAK)


@pytest.mark.soak
@pytest.mark.azurite
def test_exactly_once_under_kills_on_azure(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path, azurite: AzuriteServer
) -> None:
    storage = azurite.settings(azurite.fresh_root())
    kill_and_check(pulsar, namespace, storage, tmp_path, SIZES, seed=5, kills=KILLS, light_end=not SOAK)
