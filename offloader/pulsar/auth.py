"""Who we are: what goes into CONNECT, into the answer to a challenge, and into the REST calls' headers."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from offloader.errors import AuthenticationFailedError, ConfigError
from offloader.pulsar.settings import PulsarSettings

UNFIT = "has characters that no token has (or it is not text); copy it anew"
TOKEN_PLUGINS = ("token", "org.apache.pulsar.client.impl.auth.AuthenticationToken")


class Authentication:
    """How we prove who we are; this one is for clusters that ask nobody. Asked at each connect: a credential may
    change."""

    method = "none"

    def data(self) -> bytes:
        """What proves it to a broker. Raises AuthenticationFailedError."""
        return b""

    def headers(self) -> dict[str, str]:
        """The same for HTTP."""
        return {}


class TokenAuthentication(Authentication):
    """A JSON web token, given (`token:...`) or read from a file (`file:///path`)."""

    method = "token"

    def __init__(self, params: str) -> None:
        self._token: str | None = None
        self._path: Path | None = None
        if params.startswith("token:"):
            self._token = params.removeprefix("token:").strip()
            if not is_token(self._token):
                raise ConfigError(f"pulsar.authParams: the token {UNFIT}")
        elif params.startswith("file:"):
            self._path = Path(unquote(urlsplit(params).path))
        else:
            raise ConfigError("pulsar.authParams: write token:THE_TOKEN or file:///path/of/the/token")

    def data(self) -> bytes:
        """The token as it is now."""
        return self._current().encode()

    def headers(self) -> dict[str, str]:
        """A bearer token."""
        return {"Authorization": f"Bearer {self._current()}"}

    def _current(self) -> str:
        if self._path is None:
            return self._token or ""
        try:
            token = self._path.read_text(encoding="latin-1").strip()  # which reads anything
        except OSError as error:
            raise AuthenticationFailedError(f"the token file {self._path} cannot be read ({error.strerror})") from error
        if not is_token(token):
            raise AuthenticationFailedError(f"the token in {self._path} {UNFIT}")
        return token


def is_token(text: str) -> bool:
    """Whether it can stand in a header of HTTP: nothing but ASCII, and in one line."""
    return text.isascii() and text.isprintable()


def authentication(settings: PulsarSettings) -> Authentication:
    """What the settings name. Raises ConfigError."""
    if not settings.auth_plugin:
        return Authentication()
    if settings.auth_plugin in TOKEN_PLUGINS:
        return TokenAuthentication(settings.auth_params)
    raise ConfigError(f"pulsar.authPlugin: {settings.auth_plugin!r} is not supported; use token, or leave it out")
