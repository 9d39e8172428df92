"""How a cluster is reached: URLs, credentials, certificates."""

import pickle

import pytest

from offloader.errors import AuthenticationFailedError, ConfigError
from offloader.pulsar.auth import Authentication, TokenAuthentication, authentication
from offloader.pulsar.settings import PulsarSettings


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("pulsar://a", ["a:6650"]),
        ("pulsar+ssl://a/", ["a:6651"]),
        ("pulsar://a:1,b,c:3/", ["a:1", "b:6650", "c:3"]),
        ("pulsar://[::1]:7", ["[::1]:7"]),  # written with brackets
    ],
)
def test_service_urls(url, hosts):
    assert [str(host) for host in PulsarSettings(service_url=url).service_hosts] == hosts


@pytest.mark.parametrize(
    "url", ["", "a:6650", "http://a", "pulsar://", "pulsar://a:x", "pulsar://a,,b", "pulsar://a/b,c"]
)
def test_urls_that_are_none_are_refused_by_name(url):
    with pytest.raises(ConfigError, match=r"pulsar\.serviceUrl"):
        _ = PulsarSettings(service_url=url).service_hosts


def test_each_admin_host_becomes_a_url():
    assert PulsarSettings(admin_url="https://a:1,b").admin_urls == ("https://a:1", "https://b:8443")


def test_settings_travel_to_workers():
    settings = PulsarSettings(service_url="pulsar://a,b")
    assert settings.service_hosts
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_token_file_is_read_again_each_time(tmp_path):
    path = tmp_path / "token"
    auth = authentication(PulsarSettings(auth_plugin="token", auth_params=f"file://{path}"))
    with pytest.raises(AuthenticationFailedError, match="cannot be read"):
        auth.data()
    path.write_text("one\n")
    assert auth.data() == b"one"
    path.write_text("two\n")
    assert auth.data() == b"two"
    assert auth.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("content", [b"\xe2\x28\xa1", "t\xf6ken".encode(), b"two\nlines"])
def test_a_file_without_a_token_is_named(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    auth = TokenAuthentication(f"file://{path}")
    for ask in (auth.data, auth.headers):
        with pytest.raises(AuthenticationFailedError, match=f"the token in {path} has characters"):
            ask()


def test_a_given_token_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"pulsar\.authParams: the token has characters") as caught:
        TokenAuthentication("token:t\xf6ken")
    assert "t\xf6ken" not in str(caught.value)


def test_a_given_token():
    assert TokenAuthentication("token:abc").data() == b"abc"


def test_nobody_asks():
    auth = authentication(PulsarSettings())
    assert type(auth) is Authentication
    assert (auth.data(), auth.headers()) == (b"", {})


def test_what_is_not_supported_says_so():
    with pytest.raises(ConfigError, match=r"pulsar\.authPlugin"):
        authentication(PulsarSettings(auth_plugin="kerberos"))
    with pytest.raises(ConfigError, match=r"pulsar\.authParams"):
        authentication(PulsarSettings(auth_plugin="token", auth_params="abc"))


def test_a_missing_certificate_file_is_named():
    with pytest.raises(ConfigError, match="tlsTrustCertsFilePath"):
        PulsarSettings(tls_trust_certs_file="/nowhere").ssl_context()
