"""The embedded Pulsar: what it keeps, where it listens, and that nothing of it stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.processes import HANGS, LOOPBACK, group_is_alive, listeners, wait_until_gone
from integration.produce import (
    HANGS_MS,
    MODES,
    Produced,
    merged,
    mixed_contents,
    open_client,
    produce,
    produce_mixed,
    random_contents,
)
from offloader.errors import FatalError

pytestmark = pytest.mark.pulsar


def _consume(pulsar: PulsarStandalone, topic: str, count: int) -> list[bytes]:
    client = open_client(pulsar.service_url)
    try:
        reader = client.subscribe(topic, "check", initial_position=_earliest())
        return [reader.receive(timeout_millis=HANGS_MS).data() for _ in range(count)]
    finally:
        client.close()


def _payloads(seed: int, messages: int) -> list[bytes]:
    return [content.payload for _, part in mixed_contents(seed, messages) for content in part]


def _earliest() -> object:
    import pulsar

    return pulsar.InitialPosition.Earliest


def _entries(pulsar: PulsarStandalone, topic: str) -> int:
    """How many entries the broker says a topic has."""
    stats = pulsar.admin("GET", f"{topic.replace('://', '/')}/internalStats").json()
    return stats["currentLedgerEntries"] + sum(ledger["entries"] for ledger in stats["ledgers"][:-1])


def _keep(pulsar: PulsarStandalone, topic: str) -> None:
    """A subscription, so that nothing is trimmed."""
    pulsar.admin("PUT", f"{topic.replace('://', '/')}/subscription/keep", {"ledgerId": -1, "entryId": -1})


def _partitions(pulsar: PulsarStandalone, topic: str, count: int) -> None:
    pulsar.admin("PUT", f"{topic.replace('://', '/')}/partitions", count)


def test_every_kind_of_message_arrives(pulsar: PulsarStandalone, namespace: str) -> None:
    topic = f"persistent://{namespace}/mixed"
    pulsar.admin("PUT", f"persistent/{namespace}/mixed")
    _keep(pulsar, topic)
    produced = produce_mixed(pulsar.service_url, topic, seed=1, messages=200)
    assert produced.messages == 200 > produced.entries  # batches
    assert produced.entries == len(produced.positions[topic]) == _entries(pulsar, topic)
    assert _consume(pulsar, topic, 200) == _payloads(1, 200)


def test_the_same_seed_gives_the_same_entries(pulsar: PulsarStandalone, namespace: str) -> None:
    counts = set()
    for name in ("a", "b"):
        topic = f"persistent://{namespace}/{name}"
        _partitions(pulsar, topic, 3)
        produced = produce_mixed(pulsar.service_url, topic, seed=7, messages=100, largest=1000, partitioned=True)
        per_partition = [len(produced.positions[f"{topic}-partition-{n}"]) for n in range(3)]
        counts.add((produced.messages, produced.payload_bytes, *per_partition))
    assert len(counts) == 1


def test_ledgers_are_small(pulsar: PulsarStandalone, namespace: str) -> None:
    topic = f"persistent://{namespace}/small"
    pulsar.admin("PUT", f"persistent/{namespace}/small")
    _keep(pulsar, topic)
    client = open_client(pulsar.service_url)
    unbatched = next(mode for mode in MODES if not mode.batched)
    produced = merged([produce(client, topic, random_contents(3, 1200, largest=100), unbatched)])
    client.close()
    assert produced.entries == 1200
    assert len({ledger for ledger, _ in produced.positions[topic]}) >= 3


def _check_kept(pulsar: PulsarStandalone, topic: str, produced: Produced) -> None:
    assert _entries(pulsar, topic) == produced.entries
    assert _consume(pulsar, topic, produced.messages) == _payloads(5, produced.messages)


@pytest.mark.soak
@pytest.mark.parametrize("zookeeper", [False, True])
def test_data_and_ports_outlive_stop_and_kill(tmp_path: Path, zookeeper: bool) -> None:
    topic = "persistent://public/default/kept"
    with PatientPulsar(tmp_path, zookeeper=zookeeper, configuration=PULSAR_SETTINGS) as pulsar:
        pulsar.admin("PUT", "persistent/public/default/kept")
        _keep(pulsar, topic)
        produced = produce_mixed(pulsar.service_url, topic, seed=5, messages=50)
        urls = (pulsar.service_url, pulsar.admin_url)
        pulsar.restart()
        _check_kept(pulsar, topic, produced)
        if zookeeper:  # without it a broker may never find its bookie after a kill
            pulsar.kill()
            pulsar.start()
            assert _entries(pulsar, topic) == produced.entries
    with PatientPulsar(tmp_path, zookeeper=zookeeper, configuration=PULSAR_SETTINGS) as pulsar:
        assert (pulsar.service_url, pulsar.admin_url) == urls
        assert _entries(pulsar, topic) == produced.entries


def test_listens_on_loopback_only_and_leaves_no_process(tmp_path: Path) -> None:
    with PatientPulsar(tmp_path, zookeeper=True) as pulsar:
        zookeeper = int(
            subprocess.check_output(["pgrep", "-f", str(tmp_path / "zookeeper.args")], text=True).split()[0]
        )
        groups = [pulsar.pid, zookeeper]
        broker_and_bookie = listeners(pulsar.pid)
        assert set(broker_and_bookie) == {pulsar.ports.broker, pulsar.ports.web, pulsar.ports.bookie}
        everything = broker_and_bookie | listeners(zookeeper)
        assert pulsar.ports.zookeeper in everything
        assert set(everything.values()) <= LOOPBACK
    assert all(wait_until_gone(group, HANGS) for group in groups)


def test_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from dev.embedded.standalone import PulsarStandalone\n"
        "with PulsarStandalone(pathlib.Path(sys.argv[1])) as pulsar:\n"
        "    print(pulsar.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert group_is_alive(group)
        parent.send_signal(signal.SIGKILL)
    assert wait_until_gone(group, HANGS)


def test_a_failed_start_names_the_log(tmp_path: Path) -> None:
    pulsar = PulsarStandalone(tmp_path, configuration={"managedLedgerDefaultEnsembleSize": "many"})
    with pytest.raises(FatalError, match=r"pulsar\.log") as failure:
        pulsar.start()
    pulsar.web.close()
    assert "\n" not in str(failure.value)
    assert pulsar.log_tail(5)
