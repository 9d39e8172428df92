"""The metadata service in memory does what every one must do."""

from __future__ import annotations

import pytest

from offloader.bookkeeper.layout import Layout
from offloader.errors import OutcomeUnknownError
from tests.fakes.ledger_metadata import MemoryMetadata

from .metadata_contract import METADATA, MetadataContract, World, closed


@pytest.fixture(params=Layout)
def memory(request):
    return MemoryMetadata(request.param)


class TestMemory(MetadataContract):
    @pytest.fixture(params=[Layout.FLAT, Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL])
    def world(self, request) -> World:
        store = MemoryMetadata(request.param)

        def goes():
            store.nodes.gone = True

        def comes():
            store.nodes.gone = False

        return World(store, store.cluster, goes, comes)


def test_a_write_whose_answer_is_lost_is_made(memory):
    memory.cluster.put_ledger(1, METADATA)
    metadata, version = memory.read(1)
    memory.nodes.lost_answers = 1
    with pytest.raises(OutcomeUnknownError):
        memory.write(1, closed(metadata, 1), version)
    assert memory.read(1) == (closed(metadata, 1), version + 1)


def test_times_are_those_of_the_clock():
    store = MemoryMetadata(clock=lambda: 12.5)
    store.cluster.put_ledger(1, METADATA)
    store.cluster.put_cookie("b", b"x")
    assert store.read(1).metadata.created_ms == 12500
    assert store.cookie("b").created_ms == 12500


def test_a_cluster_of_pulsars_own_metadata_driver_has_no_layout():
    store = MemoryMetadata()
    store.nodes.delete("/ledgers/LAYOUT")
    store.cluster.put_ledger(1, METADATA)
    assert store.read(1).version == 0
    assert store.layout is Layout.HIERARCHICAL
