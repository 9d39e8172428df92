"""What travels to executors: nothing secret, and nothing that needs this package before it is known to be there."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from offloader.errors import ConfigError
from offloader.model import FailureKind
from offloader.offload.spark.executor import receipt_of, worker_function
from offloader.offload.spark.plan_server import PlanAddress
from offloader.offload.worker.secrets import with_secrets, without_secrets
from offloader.offload.worker.tasks import WorkerSettings
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings
from offloader.version import installed
from tests.offload.test_worker import work

ARROW_SCHEMA = pa.schema([("receipt", pa.binary()), ("slice", pa.binary()), ("unfit", pa.string())])

AUTH_PARAMS = "OFFLOADER_PULSAR_AUTH_PARAMS"
STORAGE_OPTIONS = "OFFLOADER_STORAGE_OPTIONS"

TOKEN = "token:eyJ-very-secret"
SECRET = "s3cr3t-of-the-store"
PULSAR = PulsarSettings(auth_plugin="token", auth_params=TOKEN)
STORE = StoreSettings(
    "gs://bucket", access_key=SECRET, secret_key=SECRET, options=(("project", "p"), ("token", SECRET))
)

# What an executor does with the function, in a Python that has PyArrow and no more.
BARE = """
import pickle, sys
import pyarrow as pa
work = pickle.loads(open(sys.argv[1], "rb").read())
batch = pa.record_batch([pa.array([b"one", b"other"], pa.binary())], ["slice"])
rows = [row for found in work([batch]) for row in found.to_pylist()]
assert "offloader" not in sys.modules
print([row["receipt"] for row in rows], [row["slice"] for row in rows], rows[0]["unfit"])
"""


def test_what_travels_names_no_credential() -> None:
    public, secrets = without_secrets(PULSAR, STORE)
    function = cloudpickle.dumps(worker_function(WorkerSettings(public, None, 2)))
    assert set(secrets) == {AUTH_PARAMS, STORAGE_OPTIONS}
    for secret in (TOKEN, SECRET):
        assert secret.encode() not in function
        assert secret not in repr(public)


def test_an_executor_puts_in_what_its_environment_has() -> None:
    public, secrets = without_secrets(PULSAR, STORE)
    pulsar, storage = with_secrets(public, secrets)
    assert pulsar == PULSAR
    assert (storage.root, storage.options) == (STORE.root, STORE.options)
    pulsar, _ = with_secrets(public, secrets | {AUTH_PARAMS: "token:of-a-role-that-only-reads"})
    assert pulsar.auth_params == "token:of-a-role-that-only-reads"


def test_a_token_s_file_is_each_machine_s_own_and_its_path_no_secret() -> None:
    settings = PulsarSettings(auth_plugin="token", auth_params="file:///etc/offloader/token")
    public, secrets = without_secrets(settings, StoreSettings("file:///archive"))
    assert secrets == {}
    assert with_secrets(public, {}) == (settings, StoreSettings("file:///archive"))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, f"an executor's environment has no {AUTH_PARAMS}: set it on every machine"),
        ({AUTH_PARAMS: TOKEN}, f"no {STORAGE_OPTIONS}"),
        ({AUTH_PARAMS: TOKEN, STORAGE_OPTIONS: "token=x"}, f"{STORAGE_OPTIONS} is not JSON"),
        ({AUTH_PARAMS: TOKEN, STORAGE_OPTIONS: json.dumps(["token"])}, f"{STORAGE_OPTIONS} is not a JSON object"),
    ],
)
def test_an_environment_that_lacks_something_is_told_of(environment: dict[str, str], said: str) -> None:
    public, _ = without_secrets(PULSAR, STORE)
    with pytest.raises(ConfigError, match=said):
        with_secrets(public, environment)


def test_a_machine_without_this_package_hands_its_slices_back(tmp_path: Path) -> None:
    public, _ = without_secrets(PULSAR, STORE)
    function = tmp_path / "function"
    function.write_bytes(cloudpickle.dumps(worker_function(WorkerSettings(public, None, 2))))
    site = Path(pa.__file__).parents[1]
    # No .pth file of the site is read, so that only what lies in it is there; and not what this package is installed
    # by.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYTHONPATH": str(site)
    }
    command = [getattr(sys, "_base_executable", sys.executable), "-S", "-c", BARE, str(function)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[None, None] [b'one', b'other'] ")
    assert done.stdout.rstrip().endswith("No module named 'offloader'")


def test_a_machine_with_another_version_hands_its_slices_back(monkeypatch: pytest.MonkeyPatch) -> None:
    public, _ = without_secrets(PULSAR, STORE)
    monkeypatch.setattr("offloader.offload.spark.executor.installed", lambda: "9.9")
    function = worker_function(WorkerSettings(public, None, 2))
    packed = pickle.dumps(work("one"))
    batch = pa.record_batch([pa.array([packed], pa.binary())], ["slice"])
    (found,) = function([batch])
    assert found.schema == ARROW_SCHEMA
    (row,) = found.to_pylist()
    assert row["slice"] == packed
    assert f"it has version {installed() or 'unknown'}, the driver 9.9" in row["unfit"]


def test_a_slice_that_was_handed_back_is_one_that_failed_and_may_be_tried_again() -> None:
    receipt = receipt_of(None, pickle.dumps(work("one")), "worker-3: No module named 'offloader'")
    assert (receipt.id.upload, receipt.parts, receipt.failure_kind) == ("one", (), FailureKind.RETRYABLE)
    assert "an executor cannot run slices: worker-3: No module named 'offloader'" in receipt.failure_reason


def test_the_plan_server_s_key_travels_in_a_file_of_ours_alone(tmp_path: Path) -> None:
    address = PlanAddress("127.0.0.1", 1, b"key-of-the-server")
    file = tmp_path / "plans"
    address.write(str(file))
    assert PlanAddress.read(str(file)) == address
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"key" not in repr(address).encode()
