"""The Helm chart, and the manifests made of it: what Kubernetes would take, and what the application does with it.

There is no Kubernetes here: what its API server would check is checked as far as it can be seen in the objects."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from integration.chart.helm import CHART, REPOSITORY, helm, objects, template
from integration.chart.manifests import FOLDER, MANIFESTS, manifest
from integration.image.container import WRITABLE
from offloader.cli.main import main
from offloader.config import Config

pytestmark = pytest.mark.helm

Object = dict[str, Any]

DEFAULTS: tuple[Path, ...] = ()
GATEWAY = (CHART / "ci" / "gateway-values.yaml",)
EVERYTHING = (CHART / "ci" / "everything-values.yaml",)
SETS = pytest.mark.parametrize("values", [DEFAULTS, GATEWAY, EVERYTHING], ids=["defaults", "gateway", "everything"])
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VERSIONS = {
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}
SHARDS = 3
GATEWAYS = "gateway.enabled=true,config.gateway.listen=0.0.0.0:6650,config.gateway.metricsListen=0.0.0.0:9466"


def of_kind(found: list[Object], kind: str) -> list[Object]:
    return [one for one in found if one["kind"] == kind]


def named(found: list[Object], kind: str, name: str) -> Object:
    (one,) = [one for one in of_kind(found, kind) if one["metadata"]["name"] == name]
    return one


def pods(found: list[Object]) -> list[Object]:
    return [one["spec"]["template"] for one in of_kind(found, "Deployment")]


def container(pod: Object) -> Object:
    (only,) = pod["spec"]["containers"]
    return only


def ports(pod: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(pod)["ports"]}


def selects(labels: dict[str, str], found: dict[str, str]) -> bool:
    return labels.items() <= found.items()


@SETS
def test_helm_finds_nothing_wrong(values):
    files = [argument for file in values for argument in ("--values", file)]
    done = helm("lint", "--strict", CHART, *files)
    assert done.returncode == 0, done.stdout + done.stderr


@SETS
def test_every_object_is_of_a_kind_that_kubernetes_has_and_is_named_as_it_allows(values):
    found = objects(template(*values))
    assert {one["kind"]: one["apiVersion"] for one in found}.items() <= VERSIONS.items()
    keys = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(keys)) == len(keys)
    for one in found:
        assert NAME.fullmatch(one["metadata"]["name"]), one["metadata"]["name"]
        assert all(LABEL.fullmatch(value) for value in one["metadata"]["labels"].values())


def test_a_long_release_name_still_makes_names():
    found = objects(template(*EVERYTHING, release="a" * 53))
    assert all(NAME.fullmatch(one["metadata"]["name"]) for one in found)


@SETS
def test_every_selector_finds_the_pods_that_it_is_for_and_no_others(values):
    found = objects(template(*values))
    labels = [pod["metadata"]["labels"] for pod in pods(found)]
    for deployment in of_kind(found, "Deployment"):
        wanted = deployment["spec"]["selector"]["matchLabels"]
        assert [selects(wanted, one) for one in labels].count(True) == 1
        assert selects(wanted, deployment["spec"]["template"]["metadata"]["labels"])
    shards = len([one for one in labels if one["app.kubernetes.io/component"] == "offloader"])
    for service in of_kind(found, "Service"):
        chosen = [pod for pod in pods(found) if selects(service["spec"]["selector"], pod["metadata"]["labels"])]
        is_gateway = "gateway" in service["metadata"]["name"]
        assert len(chosen) == (1 if is_gateway else shards)
        assert all(
            ports(pod)[port["targetPort"]] == port["port"] for port in service["spec"]["ports"] for pod in chosen
        )
    for policy in of_kind(found, "NetworkPolicy"):
        wanted = policy["spec"]["podSelector"]["matchLabels"]
        chosen = [pod for pod in pods(found) if selects(wanted, pod["metadata"]["labels"])]
        assert chosen
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert all(opened == set(ports(pod)) for pod in chosen)
    for budget in of_kind(found, "PodDisruptionBudget"):
        assert [selects(budget["spec"]["selector"]["matchLabels"], one) for one in labels].count(True) == 1


@SETS
def test_probes_and_mounts_name_what_is_there_and_no_variable_stands_twice(values):
    found = objects(template(*values))
    for pod in pods(found):
        only, volumes = container(pod), {volume["name"] for volume in pod["spec"]["volumes"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert only[probe]["httpGet"]["port"] in ports(pod)
        assert {mount["name"] for mount in only["volumeMounts"]} == volumes
        variables = [variable["name"] for variable in only["env"]]
        assert len(set(variables)) == len(variables)
        assert len(set(ports(pod).values())) == len(only["ports"])
        accounts = [one["metadata"]["name"] for one in of_kind(found, "ServiceAccount")]
        assert pod["spec"]["serviceAccountName"] in accounts
        (configuration,) = [v for v in pod["spec"]["volumes"] if v["name"] == "configuration"]
        assert named(found, "ConfigMap", configuration["projected"]["sources"][0]["configMap"]["name"])


@SETS
def test_pods_run_as_the_image_is_meant_to_and_may_write_where_it_must(values):
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):\1$", dockerfile, re.MULTILINE)
    for pod in pods(objects(template(*values))):
        security, only = pod["spec"]["securityContext"], container(pod)
        assert security["runAsNonRoot"]
        assert {security["runAsUser"], security["runAsGroup"], security["fsGroup"]} == {int(user)}
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")}
        assert writable == set(WRITABLE)
        assert not pod["spec"]["automountServiceAccountToken"]


def test_the_cluster_may_choose_the_user():
    chosen = [f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")]
    for pod in pods(objects(template(*GATEWAY, settings=chosen))):
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@SETS
def test_one_process_a_shard_at_a_time(values):
    found = [
        one for one in of_kind(objects(template(*values)), "Deployment") if "gateway" not in one["metadata"]["name"]
    ]
    for deployment in found:
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    told = [
        [variable["value"] for variable in container(pod)["env"] if variable["name"] == "OFFLOADER_SHARD"]
        for pod in (deployment["spec"]["template"] for deployment in found)
    ]
    assert told == ([[str(index)] for index in range(SHARDS)] if values == EVERYTHING else [[]])


@SETS
def test_the_product_takes_the_configuration_and_listens_where_the_probes_ask(values, tmp_path, monkeypatch):
    found = objects(template(*values))
    (configuration,) = of_kind(found, "ConfigMap")
    file = tmp_path / "offloader.yaml"
    file.write_text(configuration["data"]["offloader.yaml"])
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    monkeypatch.setenv("PULSAR_TOKEN", "token:secret")
    for pod in pods(found):
        for variable in container(pod)["env"]:
            if "value" in variable:
                monkeypatch.setenv(variable["name"], variable["value"])
    checked = CliRunner().invoke(main, ["config", "check", "--config", str(file)])
    assert checked.exit_code == 0, checked.output
    config = Config.parse(file.read_text())
    for pod in pods(found):
        if container(pod)["name"] == "offloader":
            assert ports(pod) == {"metrics": config.metrics.port}
        else:
            listened = {"pulsar": config.gateway.listen, "http": config.gateway.http_listen}
            listened |= {"metrics": config.gateway.metrics_listen}
            listened |= {"pulsar-ssl": config.gateway.tls.listen} if config.gateway.tls else {}
            given = {name: int(address.rpartition(":")[2]) for name, address in listened.items() if address}
            assert ports(pod) == given


def test_the_values_of_the_manual_are_some_that_the_chart_and_the_product_take(tmp_path):
    page = (REPOSITORY / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"^```yaml my-values\.yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "my-values.yaml").write_text(text)
    found = objects(template(tmp_path / "my-values.yaml"))
    (configuration,) = of_kind(found, "ConfigMap")
    config = Config.parse(configuration["data"]["offloader.yaml"])
    assert config.pulsar.auth_params.get_secret_value() == "file:///etc/offloader/token"
    assert container(pods(found)[0])["image"] == "registry.example/offloader:0.1.0"


@pytest.mark.parametrize("section", ["shards", "gateway", "gateway.tls", "storage.options"])
def test_a_section_that_is_null_is_none(section):
    values = EVERYTHING if section == "gateway.tls" else DEFAULTS
    settings = ["networkPolicy.enabled=true", f"config.{section}=null"]
    assert of_kind(objects(template(*values, settings=settings)), "Deployment")


def test_large_numbers_stay_numbers():
    (configuration,) = of_kind(objects(template(*EVERYTHING)), "ConfigMap")
    assert "maxOffloadSegmentSizeInBytes: 268435456\n" in configuration["data"]["offloader.yaml"]


def test_secrets_are_named_and_never_written():
    found = objects(template(*EVERYTHING))
    assert not of_kind(found, "Secret")
    for pod in pods(found):
        assert container(pod)["envFrom"] == [{"secretRef": {"name": "offloader-environment"}}]
        (configuration,) = [v for v in pod["spec"]["volumes"] if v["name"] == "configuration"]
        assert configuration["projected"]["sources"][1] == {"secret": {"name": "offloader-files"}}


def test_another_configuration_starts_pods_anew():
    before, after = (pods(objects(template(settings=[f"config.application={name}"]))) for name in ("a", "b"))
    assert before[0]["metadata"]["annotations"] != after[0]["metadata"]["annotations"]


def test_the_rules_are_those_of_the_repository():
    (installed,) = of_kind(objects(template(*EVERYTHING)), "PrometheusRule")
    rules = REPOSITORY / "conf" / "prometheus" / "offloader.rules.yaml"
    assert installed["spec"] == yaml.safe_load(rules.read_text())


def test_the_monitor_finds_each_pod_once():
    found = objects(template(*EVERYTHING))
    (monitor,) = of_kind(found, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]
    (expression,) = wanted["matchExpressions"]
    (endpoint,) = monitor["spec"]["endpoints"]
    services = [
        service
        for service in of_kind(found, "Service")
        if selects(wanted["matchLabels"], service["metadata"]["labels"])
        and service["metadata"]["labels"][expression["key"]] in expression["values"]
    ]
    reached = [
        pod["metadata"]["labels"].get("offloader/shard", "gateway")
        for service in services
        for pod in pods(found)
        if selects(service["spec"]["selector"], pod["metadata"]["labels"])
    ]
    assert sorted(reached) == ["0", "1", "2", "gateway"]
    assert all(endpoint["port"] in [port["name"] for port in service["spec"]["ports"]] for service in services)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("config.metrics.host=127.0.0.1", "config.metrics.host must not be loopback"),
        ("config.metrics=null", "config.metrics.host must not be loopback"),
        ("config.shards.count=0", "config.shards.count must be a number above 0"),
        ("config.shards.count=two", "config.shards.count must be a number above 0"),
        ("config.metrics.port=0", "config.metrics.port must be a port"),
        ("gateway.enabled=true", "config.gateway is needed"),
        (
            f"{GATEWAYS},config.gateway.metricsListen=127.0.0.1:9466",
            "nobody outside of the pod reaches; write 0.0.0.0:9466",
        ),
        (f"{GATEWAYS},config.gateway.listen=localhost:6650", "config.gateway.listen is localhost:6650, which nobody"),
        (f"{GATEWAYS},config.gateway.listen=0.0.0.0:0", "names no port"),
        (f"{GATEWAYS},config.gateway.listen=", "clients come in there; write 0.0.0.0:6650"),
        ("config.pulsar.authParams=token:eyJ", "config.pulsar.authParams stands in config as it is"),
        ("config.metrics.pageToken=0123456789abcdef", "config.metrics.pageToken stands in config as it is"),
        ("config.storage.options.account_key=x", "config.storage.options.account_key stands in config as it is"),
        ("replicas=2", "replicas"),  # what the chart does not know
        ("environment.POD_IP=x", "POD_IP"),
    ],
)
def test_values_that_cannot_work_are_refused_in_a_line_that_says_what_to_do(setting, words):
    done = helm("template", "x", CHART, "--kube-version", "1.30", "--set", setting)
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_are_those_of_the_chart(name):
    assert (FOLDER / name).read_text() == manifest(name), "run: python -m integration.chart.manifests"


def test_the_charts_version_is_the_packages():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
