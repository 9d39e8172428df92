"""Brokers that ask who we are and what we may: the least that the offloader's role needs, and what it says where that
is not granted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pulsar as client
import pytest
from click.testing import CliRunner

import offloader
from integration.application import RunningApplication
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import MODES, PatientClient, produce, random_contents
from integration.pulsar.test_system_topics import FAILED, World
from integration.pulsar.waiting import until
from integration.starting import started
from offloader.cli.main import main
from offloader.errors import AuthenticationFailedError, AuthorizationFailedError
from offloader.lifecycle.deletion.system_topic.acceptor import SystemTopicAcceptor
from offloader.lifecycle.deletion.system_topic.messages import write_message
from offloader.metadata.catalog import Catalogs
from offloader.model import Position, TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.lifecycle.deletion.support import candidate
from tests.lifecycle.system_topic.support import Examiner, Told, asked
from tests.storage.servers import free_port

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

SECRET = b"a secret of thirty-two bytes or more"
NAMESPACE = "shop/orders"
TOPIC = TopicName.parse(f"{NAMESPACE}/new")

OURS = Path(offloader.__file__).parent


def no_traceback_of_ours(log: str) -> bool:
    """Spark's process for a source may show its own when its other end goes first."""
    return f'File "{OURS}/' not in log


def token(role: str) -> str:
    """A JSON Web Token (RFC 7519) that brokers with our secret take for this role's."""
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256"}, {"sub": role})]
    signed = b".".join(map(_encoded, parts))
    return (signed + b"." + _encoded(hmac.digest(SECRET, signed, hashlib.sha256))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    """A Pulsar with authentication and authorization. Role `admin` may do everything, `offloader` administers the
    tenant `shop`."""
    settings = {
        **PULSAR_SETTINGS,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "superUserRoles": "admin",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('admin')}",
    }

    def pulsar_of_admin(folder: Path) -> PatientPulsar:
        standalone = PatientPulsar(folder, configuration=settings)
        standalone.web.headers["Authorization"] = f"Bearer {token('admin')}"
        return standalone

    with started(tmp_path_factory.mktemp("guarded"), pulsar_of_admin) as standalone:
        standalone.admin("PUT", "tenants/shop", {"adminRoles": ["offloader"], "allowedClusters": ["standalone"]})
        standalone.create_namespace(NAMESPACE)
        standalone.admin("POST", f"namespaces/{NAMESPACE}/permissions/reader", ["consume"])
        standalone.admin(
            "POST", f"namespaces/{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
        yield standalone


@pytest.fixture
def run(guarded: PatientPulsar, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """`offloader run --until-caught-up` in a role: the exit code and what was logged."""

    def run(role: str, *, vouched: bool, name: str = "tests") -> tuple[int, str]:
        (tmp_path / role).write_text(token(role))
        config = {
            "application": name,
            "pulsar": {
                "serviceUrl": guarded.service_url,
                "adminUrl": guarded.admin_url,
                "authPlugin": "token",
                "authParams": (tmp_path / role).as_uri(),
                "entriesAreExact": vouched,
            },
            "storage": {"root": (tmp_path / "archive").as_uri()},
            "spark": {"master": "local[2]", "trigger": "500ms"},
            "metrics": {"port": free_port()},
            "namespaces": {NAMESPACE: {"enabled": True}},
        }
        with RunningApplication(json.dumps(config), tmp_path / f"run-{role}-{vouched}") as application:
            code = application.run_until_caught_up(HANGS)
            return code, "\n".join(application.log_lines())

    return run


@pytest.fixture(scope="module")
def last(guarded: PatientPulsar) -> Position:
    """The last position of what the topic holds."""
    guarded.admin("PUT", TOPIC.rest_path)
    guarded.admin("PUT", f"{TOPIC.rest_path}/subscription/keep", {"ledgerId": -1, "entryId": -1})
    logger = client.ConsoleLogger(client.LoggerLevel.Error)
    producer = PatientClient(
        guarded.service_url, authentication=client.AuthenticationToken(token("admin")), logger=logger
    )
    produced = produce(producer, str(TOPIC), random_contents(1, 200, largest=10_000), MODES[0])
    producer.close()
    return Position(0, *produced.positions[str(TOPIC)][-1])


def test_an_administrator_of_the_tenant_is_enough_where_the_operator_vouches_for_exact_entries(
    run, last, tmp_path
) -> None:
    code, log = run("offloader", vouched=False)
    assert code == 1
    assert "set pulsar.entriesAreExact: true" in log
    assert no_traceback_of_ours(log)
    code, log = run("offloader", vouched=True)
    assert code == 0, log
    store = open_store(StoreSettings((tmp_path / "archive").as_uri()))
    assert Catalogs(store, "tests").load(TOPIC).end == last


def test_what_only_a_super_user_may_read_hides_no_other_policy(guarded, last, tmp_path) -> None:
    guarded.admin("POST", f"namespaces/{NAMESPACE}/messageTTL", 60)
    reached = {"serviceUrl": guarded.service_url, "adminUrl": guarded.admin_url, "authPlugin": "token"}
    config = {
        "application": "tests",
        "pulsar": {**reached, "authParams": f"token:{token('offloader')}"},
        "storage": {"root": (tmp_path / "archive").as_uri()},
        "namespaces": {NAMESPACE: {"enabled": True}},
    }
    (tmp_path / "offloader.yaml").write_text(json.dumps(config))
    result = CliRunner().invoke(main, ["doctor", "--config", str(tmp_path / "offloader.yaml"), "--output", "json"])
    guarded.admin("DELETE", f"namespaces/{NAMESPACE}/messageTTL")
    checks = {check["check"]: check for check in map(json.loads, result.stdout.splitlines())}
    verdicts = {name: checks[name]["verdict"] for name in ("message-ttl", "backlog-quota", "retention", "read-topic")}
    assert verdicts == {"message-ttl": "fail", "backlog-quota": "ok", "retention": "ok", "read-topic": "ok"}
    assert checks["subscription-expiration"]["verdict"] == "warn"
    assert "not known" in checks["subscription-expiration"]["message"]
    assert "let the role read it" in checks["subscription-expiration"]["remedy"]


@contextmanager
def system_topics(guarded: PatientPulsar, role: str) -> Iterator[tuple[World, Told]]:
    """PIP-186's topics, as a role sees them."""
    settings = PulsarSettings(
        service_url=guarded.service_url,
        admin_url=guarded.admin_url,
        auth_plugin="token",
        auth_params=f"token:{token(role)}",
    )
    admin = AdminClient(settings)
    with ExitStack() as stack:
        stack.callback(admin.close)
        yield World(settings, admin.rest, stack), Told()


def gave_up(door: SystemTopicAcceptor, told: Told) -> bool:
    door.run()
    return told.counts["gave up"] > 0


def test_a_role_that_may_produce_and_consume_needs_an_administrator_for_the_system_topics_only_to_make_them(
    guarded, caplog
) -> None:
    until(lambda: guarded.answer("GET", "namespaces/pulsar/system").is_success)
    guarded.admin("POST", "namespaces/pulsar/system/permissions/clerk", ["produce", "consume"])
    guarded.admin("POST", "tenants/pulsar", {"adminRoles": ["chief"], "allowedClusters": ["standalone"]})
    with system_topics(guarded, "clerk") as (world, told):
        assert not world.publisher(told).announce(candidate(1))
        assert "make the role an administrator of tenant pulsar" in caplog.text
        with pytest.raises(AuthorizationFailedError, match="make the role an administrator of tenant pulsar"):
            world.acceptor(Examiner(), told).run()
    with system_topics(guarded, "chief") as (world, told):
        assert world.publisher(told).announce(candidate(1))
    for role in ("clerk", "chief"):
        with system_topics(guarded, role) as (world, told):
            examine = Examiner(lambda _: FAILED)
            door = world.acceptor(examine, told)
            door.run()
            assert world.publisher(told).announce(candidate(2))
            world.send(write_message(asked(3)))
            until(partial(gave_up, door, told))
            assert set(examine.asked) == {asked(3)}
    with system_topics(guarded, "reader") as (world, told):
        assert not world.publisher(told).announce(candidate(4))
        with pytest.raises((AuthorizationFailedError, AuthenticationFailedError)):
            world.acceptor(Examiner(), told).run()


def test_a_role_that_may_only_consume_is_told_so(run, last) -> None:
    code, log = run("reader", vouched=True)
    assert code == 2
    assert f"not looked at: {NAMESPACE}: " in log
    assert "Don't have permission to administrate resources on this tenant" in log
    assert no_traceback_of_ours(log)
