"""Exactly once, whatever is killed and whenever: every entry once and byte for byte, on disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.killing import ALL, KINDS, Sizes, kill_and_check, kill_driver, leave_workers_behind
from integration.soak import SOAK
from offloader.storage.settings import StoreSettings
from tests.storage.servers import S3Server

DISK = Sizes(parts=("1M", "2M", "8M"))
S3 = Sizes(parts=("5M", "8M"), segments=("6M", "12M", "40M"))
KILLS = ALL * 8 if SOAK else tuple(dict.fromkeys(KINDS))  # each once
FEW = ALL * 8 if SOAK else (kill_driver, leave_workers_behind)

pytestmark = [pytest.mark.pulsar, pytest.mark.spark, pytest.mark.timeout(14_400 if SOAK else 3_600)]


def test_exactly_once_under_kills_on_disk(pulsar: PulsarStandalone, namespace: str, tmp_path: Path) -> None:
    storage = StoreSettings((tmp_path / "archive").as_uri())
    kill_and_check(pulsar, namespace, storage, tmp_path, DISK, seed=1, kills=FEW)


@pytest.mark.soak
@pytest.mark.versitygw
def test_exactly_once_under_kills_on_s3(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path, versitygw: S3Server
) -> None:
    storage = versitygw.settings(versitygw.fresh_root())
    kill_and_check(pulsar, namespace, storage, tmp_path, S3, seed=2, kills=KILLS)
