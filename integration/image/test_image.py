"""The container image is what the manual says: built from this repository, run as a container, with a real Pulsar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pulsar as client_library
import pytest

from dev.docs.commands import command_paths
from integration.image.building import built_image
from integration.image.container import WRITABLE, Container, Image, health_check
from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, MODES, open_client, produce, random_contents
from integration.world import World, keep_everything
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings
from tests.invariants import check_invariants
from tests.storage.servers import free_port

pytestmark = [pytest.mark.pulsar, pytest.mark.image]

STOP_SECONDS = 120  # the stop time-out of the manual, of systemd's unit and of the chart
MESSAGES = 300
NAMESPACE = "public/contained"
TOPIC = TopicName.parse(f"persistent://{NAMESPACE}/orders")

COMMANDS = """
import sys
from click.testing import CliRunner
from offloader.cli.main import main
for path in sys.argv[1:]:
    result = CliRunner().invoke(main, [*path.split(), "--help"])
    assert result.exit_code == 0 and "Usage:" in result.output, (path, result.output)
    print(path)
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
found = spark.read.format("pulsar-archive").option("root", sys.argv[1]).option("topics", sys.argv[2]).load()
print("rows", found.count())
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built_image() as image:
        yield image


@pytest.fixture(scope="module")
def bill(image: Image) -> dict[str, Any]:
    return json.loads((image.root / "usr/share/pulsar-offloader/sbom.json").read_text())


class Place:
    """A namespace with a topic, an archive in a folder, and the configuration that containers see."""

    def __init__(self, image: Image, pulsar: PatientPulsar, folder: Path) -> None:
        self.image, self.pulsar, self.folder = image, pulsar, folder
        self.archive = folder / "archive"
        self.archive.mkdir()
        os.chown(self.archive, *map(int, image.user))
        self.metrics, self.gateway = free_port(), free_port()
        self.storage = StoreSettings(f"file://{self.archive}")
        (folder / "config").mkdir()
        (folder / "config" / "offloader.yaml").write_text(json.dumps(self._config()))
        self._stack = ExitStack()
        self._runs = 0

    def container(self) -> Container:
        """One that is not started yet; whatever runs in it ends with the test."""
        self._runs += 1
        binds = {self.folder / "config": ("/etc/offloader", "ro"), self.archive: (str(self.archive), "rw")}
        environment = {
            "OFFLOADER_HEALTH_URL": f"http://127.0.0.1:{self.metrics}/healthz",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        made = Container(self.image, self.folder / f"run-{self._runs}", binds, environment)
        return self._stack.enter_context(made)

    def close(self) -> None:
        self._stack.close()

    def _config(self) -> dict[str, Any]:
        return {
            "application": "contained",
            "pulsar": {"serviceUrl": self.pulsar.service_url, "adminUrl": self.pulsar.admin_url},
            "storage": {"root": self.storage.root},
            "spark": {"master": "local[2]", "trigger": "500ms"},
            "metrics": {"port": self.metrics},
            "policies": {"maxOffloadSegmentRolloverTimeInSeconds": "1s"},
            "namespaces": {NAMESPACE: {"enabled": True}},
            "gateway": {"listen": f"127.0.0.1:{self.gateway}", "metricsListen": "", "anyoneMayRead": True},
        }


@pytest.fixture(scope="module")
def place(image: Image, pulsar: PatientPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The topic is produced; nothing is offloaded yet."""
    pulsar.create_namespace(NAMESPACE)
    keep_everything(pulsar, NAMESPACE)
    pulsar.admin("PUT", TOPIC.rest_path)
    client = open_client(pulsar.service_url)
    produce(client, str(TOPIC), random_contents(7, MESSAGES, largest=2000), MODES[0])
    client.close()
    place = Place(image, pulsar, tmp_path_factory.mktemp("contained"))
    try:
        yield place
    finally:
        place.close()


@pytest.fixture(scope="module")
def offloaded(place: Place) -> Container:
    """`run`, as the image says it, until the topic is offloaded; it still runs."""
    running = place.container().start()
    base = f"http://127.0.0.1:{place.metrics}"

    def answers(path: str) -> httpx.Response | None:
        try:
            return httpx.get(f"{base}{path}", timeout=10.0)
        except httpx.TransportError:
            return None

    running.until(lambda: (answer := answers("/readyz")) and answer.is_success, "it was ready")
    with World(place.pulsar, place.storage, place.folder / "world", [NAMESPACE], application="contained") as world:
        world.see()
        running.until(world.at_rest, "everything was offloaded")
    return running


def test_every_command_answers(image: Image, tmp_path: Path) -> None:
    paths = list(command_paths())
    with Container(image, tmp_path / "c") as container:
        told = container.run("-c", COMMANDS, *paths, entrypoint=["python"])
    assert told.split("\n")[:-1] == paths


def test_the_entry_point_is_the_command_of_this_version(image: Image, bill: dict[str, Any], tmp_path: Path) -> None:
    with Container(image, tmp_path / "c") as container:
        assert container.run("--version").strip() == f"offloader, version {bill['metadata']['component']['version']}"


def test_nothing_is_root_and_nothing_but_the_named_folders_is_writable(image: Image, tmp_path: Path) -> None:
    look = "id -u; find / -xdev -writable ! -type l 2>/dev/null; grep CapBnd /proc/self/status; touch /tmp/scratch"
    with Container(image, tmp_path / "c") as container:
        user, *writable, capabilities = container.run("-c", look, entrypoint=["sh"]).splitlines()
    assert user == "10001"
    assert sorted(writable) == sorted(WRITABLE)
    assert int(capabilities.split()[1], 16) == 0


def test_the_bill_of_materials_names_all_that_is_installed(image: Image, bill: dict[str, Any], tmp_path: Path) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    components = bill["components"]
    assert len({component["bom-ref"] for component in components}) == len(components)
    by_kind: dict[str, dict[str, Any]] = {}
    for component in components:
        kind = component["purl"].split("/")[0]
        name = component["properties"][0]["value"] if "properties" in component else component["name"]
        by_kind.setdefault("java" if "properties" in component else kind, {})[name] = component

    with Container(image, tmp_path / "debian") as container:
        listed = container.run("-W", "-f", "${Package} ${Version}\n", entrypoint=["dpkg-query"])
    debian = {name: found["version"] for name, found in by_kind["pkg:deb"].items()}
    assert debian == dict(line.split() for line in listed.splitlines())
    assert {"openjdk-17-jre-headless", "python3.11", "tini"} <= debian.keys()

    code = "from importlib.metadata import distributions as d; [print(x.name, x.version) for x in d()]"
    with Container(image, tmp_path / "python") as container:
        listed = container.run("-c", code, entrypoint=["python"])
    installed = {name.replace("_", "-").lower(): version for name, version in map(str.split, listed.splitlines())}
    assert {name: found["version"] for name, found in by_kind["pkg:pypi"].items()} == installed
    assert all(found["hashes"] for found in by_kind["pkg:pypi"].values())
    assert "pip" not in installed

    (jars,) = (image.root / "opt/offloader/lib").glob("python3*/site-packages/pyspark/jars")
    assert by_kind["java"].keys() == {jar.name for jar in jars.iterdir()}
    assert all(found["hashes"] for found in by_kind["java"].values())


def test_files_are_compiled_and_the_compiled_ones_name_no_time(image: Image) -> None:
    for source in (image.root / "opt/offloader/lib").glob("python3*/site-packages/offloader/cli/*.py"):
        (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", "bit 0: by hash; bit 1, to be checked, is not set (PEP 552)"


def test_the_application_offloads_and_its_health_check_and_metrics_answer(place: Place, offloaded: Container) -> None:
    checked = offloaded.inside(
        f"OFFLOADER_HEALTH_URL=http://127.0.0.1:{place.metrics}/healthz", *health_check(place.image)
    )
    assert checked.returncode == 0, checked.stderr
    wrong = offloaded.inside("OFFLOADER_HEALTH_URL=http://127.0.0.1:1/healthz", *health_check(place.image))
    assert wrong.returncode != 0
    assert "offloader_topics{" in httpx.get(f"http://127.0.0.1:{place.metrics}/metrics").text
    assert offloaded.inside("cat", "/proc/1/comm").stdout.strip() == "tini"


def test_the_doctor_finds_it_sound(place: Place, offloaded: Container) -> None:
    checks = [json.loads(line) for line in place.container().run("doctor", "--output", "json").splitlines()]
    assert {check["verdict"] for check in checks} <= {"ok", "warning"}, checks


def test_stop_ends_it_with_code_0_within_the_stop_time(place: Place, offloaded: Container) -> None:
    begin = time.monotonic()
    assert offloaded.stop() == 0, offloaded.text()[-3000:]
    assert time.monotonic() - begin < STOP_SECONDS
    with World(place.pulsar, place.storage, place.folder / "after", [NAMESPACE], application="contained") as world:
        check_invariants(world.store, world.truths(), at_rest=True)


def test_the_shell_reads_every_message(place: Place, offloaded: Container) -> None:
    lines = place.container().run("topics", "cat", str(TOPIC), "--output", "json").splitlines()
    assert len([line for line in lines if line.startswith("{")]) == MESSAGES


def test_spark_reads_every_message_and_finds_the_data_source(place: Place, offloaded: Container) -> None:
    told = place.container().run("-c", SPARK, place.storage.root, str(TOPIC), entrypoint=["python"])
    assert f"rows {MESSAGES}" in told.splitlines()


def test_the_gateway_serves_every_message(place: Place, offloaded: Container) -> None:
    serving = place.container().start("gateway")
    url = f"pulsar://127.0.0.1:{place.gateway}"
    client = client_library.Client(url, operation_timeout_seconds=HANGS_MS // 1000)
    try:
        reader = client.create_reader(str(TOPIC), client_library.MessageId.earliest)
        for _ in range(MESSAGES):
            reader.read_next(timeout_millis=HANGS_MS)
        assert not reader.has_message_available()
    finally:
        client.close()
    assert serving.stop() == 0, serving.text()[-3000:]
