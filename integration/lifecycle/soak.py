"""Makes every orphan again and again, pauses brokers across deletions, and prints a block for docs/testing.md.

python -m integration.lifecycle.soak --makings 3 --pauses 20
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import boto3

from dev.embedded.settings import OffloaderSettings
from integration.lifecycle import bequests, topics
from integration.lifecycle.bequests import BEQUESTS
from integration.lifecycle.cluster import PulsarCluster
from integration.lifecycle.ground import KEPT, TRIMMED, Ground
from integration.lifecycle.looking import Looking, looking
from integration.lifecycle.makings import MAKINGS, LeftBehind, trim_cut
from integration.lifecycle.reading import account, controls, everything
from integration.lifecycle.rounds import SENT, Outcome, Session, checking, paused_round, plainly, rewriting
from integration.stock_store import stock_store
from offloader.lifecycle.deletion.guarded import GuardedOutcome
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.scanned import LedgerScan

BUCKET, KEY, SECRET = "lifecycle-ledgers", "key", "secret"
SYSTEM = "pulsar/system"


@contextmanager
def offloading_cluster(folder: Path) -> Iterator[PulsarCluster]:
    """A cluster whose brokers have Pulsar's own offloader and a bucket for it."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(stock_store())
        access = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        s3 = boto3.client("s3", endpoint_url=endpoint, **access)
        s3.create_bucket(Bucket=BUCKET)
        s3.close()
        offloader = OffloaderSettings(endpoint, BUCKET, KEY, SECRET)
        yield stack.enter_context(PulsarCluster(folder, offloader=offloader))


@dataclass
class Tally:
    """What came of it. `wrong`: whatever should not have been, in words."""

    made: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def compare(self, made: list[LeftBehind], scan: LedgerScan, used: set[int], foreign: set[int]) -> None:
        found = {one.ledger.ledger: one for one in scan.verdicts}
        for one in made:
            verdict = found.get(one.ledger)
            if verdict is None:
                self.wrong.append(f"not found: {one}")
            elif (verdict.kind, verdict.standing) != (one.kind, one.standing):
                self.wrong.append(f"{one}: {verdict.kind}, {verdict.standing}")
        self.wrong += [f"referenced: {found[ledger]}" for ledger in sorted(used & found.keys())]
        self.wrong += [f"foreign: {found[ledger]}" for ledger in sorted(foreign & found.keys())]
        self.wrong += [f"missing: {one}" for one in scan.missing]
        self.wrong += [f"refused: {one}" for one in scan.refusals]

    def paused(self, what: str, outcome: Outcome) -> None:
        self.pauses[f"{what}: {outcome.read} of {outcome.told} read"] += 1
        if outcome != Outcome(SENT, SENT, SENT, GuardedOutcome.DELETED.name):
            self.wrong.append(f"{what}: {outcome}")


def make(ground: Ground, tally: Tally, times: int) -> list[LeftBehind]:
    """Every orphan so many times."""
    made = []
    for number in range(times):
        for name, making in {**MAKINGS, **BEQUESTS}.items():
            begun = time.monotonic()
            found = making(ground)
            tally.made[name] += 1
            tally.kills[name] += len(found)
            made += found
            print(f"{number + 1}. {name}: {len(found)} ledgers, {time.monotonic() - begun:.1f} s", flush=True)
    return made


def pause(ground: Ground, product: Looking, tally: Tally, rounds: int) -> None:
    """So many rounds of each kind, and one without a guard."""
    for number in range(rounds):
        for session in Session:
            tally.paused(f"suspect, {session.value}", paused_round(ground, rewriting(product), session))
        print(f"{number + 1}. pause: {dict(tally.pauses)}", flush=True)
    left = trim_cut(ground)
    ground.subscribe(left[0].topic, topics.SUBSCRIPTION)
    certain = checking(product, [one.ledger for one in left])
    tally.paused("certain", paused_round(ground, certain, topic=left[0].topic))
    outcome = paused_round(ground, plainly(product))
    print(f"without a guard: {outcome}", flush=True)
    tally.pauses[f"without a guard: {outcome.read} of {outcome.told} read"] += 1


def delete(ground: Ground, product: Looking, tally: Tally, scan: LedgerScan) -> list[LedgerVerdict]:
    """All that is certain, under guard; and from every bookie."""
    going = [one for one in scan.verdicts if one.deletable]
    for verdict in going:
        done = product.delete(product.verdict(verdict.ledger.ledger))
        if done.outcome is not GuardedOutcome.DELETED:
            tally.wrong.append(f"{verdict.ledger.ledger}: {done}")
    ground.cluster.collect()
    return going


def run(folder: Path, makings: int, pauses: int) -> Tally:
    """All of it, on one cluster."""
    tally = Tally()
    with offloading_cluster(folder) as cluster, looking(cluster) as product:
        ground = Ground(cluster)
        used = controls(ground)
        said = everything(ground, used)
        made = make(ground, tally, makings)
        foreign = {*bequests.foreign_ledgers(ground).values(), bequests.package_ledger(ground)}
        ground.cluster.all_back()
        begun = time.monotonic()
        scan = product.scan()
        print(f"scan: {scan.ledgers} ledgers, {time.monotonic() - begun:.2f} s, {dict(scan.counts)}", flush=True)
        tally.compare(made, scan, account(ground, (KEPT, TRIMMED, SYSTEM)), foreign)
        by_itself = Counter(str(one.kind) for one in scan.verdicts) - Counter(str(one.kind) for one in made)
        going = delete(ground, product, tally, scan)
        if everything(ground, used) != said:
            tally.wrong.append("topics read otherwise than before")
        print(f"deleted: {Counter(str(one.kind) for one in going)}", flush=True)
        pause(ground, product, tally, pauses)
        missing = product.scan().missing
        tally.wrong += [f"missing in the end: {one}" for one in missing]
        ground.close()
        _report(tally, scan, going, by_itself)
    return tally


def _report(tally: Tally, scan: LedgerScan, going: list[LedgerVerdict], by_itself: Counter[str]) -> None:
    print("\n| orphans of | made | ledgers |\n| --- | --- | --- |")
    for name, times in tally.made.items():
        print(f"| {name} | {times} | {tally.kills[name]} |")
    counts = {str(standing): scan.counts[standing] for standing in Standing}
    print(f"\n{scan.ledgers} ledgers: {counts}; by themselves: {dict(by_itself)}; deleted: {len(going)}")
    print(f"left-over managed ledgers: {len(scan.leftovers)}")
    for what, times in tally.pauses.items():
        print(f"{times} times {what}")
    print(f"wrong: {len(tally.wrong)}")
    for one in tally.wrong:
        print(f"  {one}")


def main() -> int:
    """0: nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--makings", type=int, default=3)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return 1 if run(folder, arguments.makings, arguments.pauses).wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
