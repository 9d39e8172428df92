from __future__ import annotations

import crc32c

from offloader.format.reader import entries, read_blocks
from offloader.metadata import layout
from tests.streaming.simulation import Simulation


def check(sim: Simulation) -> None:
    for name, topic in sim.roster.topics.items():
        truth = {(e.ledger, e.entry): e for e in sim.cluster.entries(name)}
        catalog = sim.context.catalogs.load(name)
        seen = {}
        for segment in catalog.segments:
            if segment.size:
                data, stat = sim.store.read(layout.data_key(name, segment.uuid))
                assert len(data) == segment.size and crc32c.crc32c(data) == segment.crc32c
                for block in read_blocks(data):
                    for entry in entries(block):
                        key = (block.header.ledger, entry.entry)
                        assert key not in seen, f"{key} twice"
                        seen[key] = bytes(entry.data)
            for gap in segment.gaps:
                for i in range(gap.first, gap.last + 1):
                    assert truth[gap.ledger, i].hidden == gap.kind
                    assert (gap.ledger, i) not in seen
                    seen[gap.ledger, i] = None
        end = catalog.end
        expected = {k: (e.data if e.delivered else None) for k, e in truth.items() if end and k <= (end.ledger, end.entry)}
        begin = catalog.claim.begin
        expected = {k: v for k, v in expected.items() if k >= (begin.ledger, begin.entry)}
        assert seen.keys() == expected.keys(), (seen.keys() ^ expected.keys())
        assert seen == expected
        delivered = [k for k, e in truth.items() if e.delivered and k >= (begin.ledger, begin.entry)]
        assert not delivered or max(delivered) <= (end.ledger, end.entry)
