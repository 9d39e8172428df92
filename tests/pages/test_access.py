"""Pages are seen from this machine alone, or by whoever has the token."""

from __future__ import annotations

import pytest

from offloader.errors import ConfigError
from offloader.pages.access import Allowance, PageAccess, is_loopback

TOKEN = "a-token-that-nobody-guesses"
HERE = {"HTTP_HOST": "localhost:9465", "REMOTE_ADDR": "127.0.0.1"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:80", "127.8.8.8", "[::1]:9465", "box:9465"])
def test_without_a_token_this_machine_is_asked_by_its_own_names(host: str) -> None:
    access = PageAccess.of("127.0.0.1", names=["Box"])
    assert access.verdict(HERE | {"HTTP_HOST": host}) is Allowance.ALLOWED


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
def test_a_name_that_only_resolves_to_this_machine_is_refused(host: str) -> None:
    assert PageAccess().verdict(HERE | {"HTTP_HOST": host}) is Allowance.REFUSED


@pytest.mark.parametrize("peer", ["10.0.0.7", "::ffff:10.0.0.7", "2001:db8::1", ""])
def test_without_a_token_nobody_comes_from_elsewhere(peer: str) -> None:
    assert PageAccess().verdict(HERE | {"REMOTE_ADDR": peer}) is Allowance.REFUSED


@pytest.mark.parametrize(
    "header",
    [
        "HTTP_X_FORWARDED_FOR",
        "HTTP_X_FORWARDED_PROTO",
        "HTTP_X_FORWARDED_CLIENT_CERT",
        "HTTP_X_ENVOY_EXPECTED_RQ_TIMEOUT_MS",
        "HTTP_FORWARDED",
        "HTTP_VIA",
        "HTTP_X_REAL_IP",
    ],
)
def test_what_comes_through_a_proxy_does_not_come_from_this_machine(header: str) -> None:
    assert PageAccess().verdict({**HERE, header: "10.0.0.7"}) is Allowance.REFUSED


def test_a_token_opens_from_anywhere_in_a_header_or_as_its_cookie() -> None:
    access = PageAccess.of("0.0.0.0", TOKEN)
    away = {"HTTP_HOST": "archive.example", "REMOTE_ADDR": "10.0.0.7"}
    assert access.verdict(away) is Allowance.TOKEN_WANTED
    assert access.verdict(HERE) is Allowance.TOKEN_WANTED
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        assert access.verdict(away | {"HTTP_AUTHORIZATION": header}) is Allowance.ALLOWED
    for header in (f"Bearer {TOKEN}x", "Bearer ", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}\udcff"):
        assert access.verdict(away | {"HTTP_AUTHORIZATION": header}) is Allowance.TOKEN_WANTED
    cookie = f"a=b; {access.cookie_name}={access.cookie_value}"
    assert access.verdict(away | {"HTTP_COOKIE": cookie}) is Allowance.ALLOWED
    for other in (f"{access.cookie_name}={TOKEN}", f"x={access.cookie_value}", "\x00=;;,", f"{access.cookie_name}="):
        assert access.verdict(away | {"HTTP_COOKIE": other}) is Allowance.TOKEN_WANTED


def test_the_cookie_is_not_the_token_and_another_tokens_cookie_is_another() -> None:
    one, other = PageAccess(TOKEN), PageAccess(TOKEN + "2")
    assert TOKEN not in one.cookie_value + one.cookie_name
    assert one.cookie_name != other.cookie_name
    assert one.cookie_value != other.cookie_value


def test_no_token_is_no_key() -> None:
    assert not PageAccess().is_token("")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "archive.example", ""])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="a token is needed"):
        PageAccess.of(host)
    assert PageAccess.of(host, TOKEN).token == TOKEN


@pytest.mark.parametrize("token", ["short", "x" * 15, "ä" * 20, "with a space in it!", "with a line\nend in it"])
def test_a_token_that_can_be_guessed_or_sent_by_nobody_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match=r"^token: ") as refused:
        PageAccess(token)
    assert len(str(refused.value).splitlines()) == 1


def test_no_access_shows_its_token() -> None:
    assert TOKEN not in repr(PageAccess(TOKEN))


def test_names_of_hosts() -> None:
    access = PageAccess(names=frozenset({"a"}))
    verdicts = [access.verdict(HERE | {"HTTP_HOST": text}) for text in ("A:1", "a", "[::1]:9", "[::1]", ":9", "b:1")]
    assert verdicts == [Allowance.ALLOWED] * 4 + [Allowance.REFUSED] * 2
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("1.2.3.4")
