"""A task answers for each of its slices, whatever it finds on its executor."""

from offloader.model import FailureKind
from offloader.offload.worker.secrets import Public
from offloader.offload.worker.tasks import WorkerSettings, run_slices
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings
from tests.offload.test_worker import work


def test_a_store_that_cannot_be_opened_refuses_each_slice_and_says_why():
    settings = WorkerSettings(Public(PulsarSettings(), StoreSettings("s3://"), ()), None, threads=2)
    slices = [work("one"), work("other")]
    receipts = list(run_slices(slices, settings))
    assert [receipt.upload for receipt in receipts] == ["one", "other"]
    assert {receipt.failure_kind for receipt in receipts} == {FailureKind.FATAL}
    assert all("names no bucket" in receipt.failure_reason for receipt in receipts)
