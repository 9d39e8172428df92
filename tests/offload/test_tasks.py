"""A task answers for each of its slices, whatever it finds on its executor."""

import pickle

import pytest

from offloader.errors import StoreUnavailableError
from offloader.model import FailureKind
from offloader.offload.worker.secrets import Public
from offloader.offload.worker.tasks import WorkerSettings, _connections, run_slices
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings
from tests.fakes.scripted import ScriptedFaults
from tests.offload.test_worker import work


def test_a_store_that_cannot_be_opened_refuses_each_slice_and_says_why():
    settings = WorkerSettings(Public(PulsarSettings(), StoreSettings("s3://"), ()), None, threads=2)
    slices = [work("one"), work("other")]
    receipts = list(run_slices(slices, settings))
    assert [receipt.id.upload for receipt in receipts] == ["one", "other"]
    assert {receipt.failure_kind for receipt in receipts} == {FailureKind.FATAL}
    assert all("names no bucket" in receipt.failure_reason for receipt in receipts)


def test_workers_reach_what_their_pickled_settings_wrap(tmp_path):
    told = (
        '[{"role": "worker", "call": "begin", "effect": "before"}, {"role": "driver", "call": "begin", "effect": '
        '"before"}]'
    )
    public = Public(PulsarSettings(), StoreSettings(f"file://{tmp_path}"), ())
    settings = WorkerSettings(public, None, threads=2, wrapper=ScriptedFaults("worker", told))
    assert pickle.loads(pickle.dumps(settings)) == settings
    _, store = _connections(pickle.loads(pickle.dumps(settings)))
    assert store is _connections(settings)[1]
    with pytest.raises(StoreUnavailableError):
        store.begin("key")
    assert store.begin("key")
    plain = WorkerSettings(public, None, threads=2)
    assert _connections(plain)[1] is not store
