"""The store in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from offloader.storage.local import LocalStore
from offloader.storage.open import StoreSettings
from tests.storage.bench import Bench
from tests.storage.contract import StoreContract
from tests.storage.contract_uploads import StrictUploadContract


class TestLocal(StoreContract, StrictUploadContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        root = tmp_path / "root"
        return Bench(lambda: LocalStore(root), StoreSettings(root.as_uri()), keeps_meta=True)
