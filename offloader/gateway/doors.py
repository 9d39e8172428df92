"""Opens what the settings name: with and without TLS, for the binary protocol and for HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from offloader.config.gateway import Gateway, address_of
from offloader.errors import ConfigError, OffloadError
from offloader.gateway.access.access import Access
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.listener import GatewayListener, Tls
from offloader.gateway.topics.workers import Workers

Listen = Callable[[str, int, Tls | None], Awaitable[int]]


class Doors:
    """Where clients come in, and what they need for it."""

    def __init__(self, settings: Gateway, access: Access, listener: GatewayListener, workers: Workers) -> None:
        self._settings = settings
        self._workers = workers
        self._access = access
        self._listener = listener

    async def open(self) -> Address:
        """Where clients come in. Raises ConfigError."""
        settings, listener = self._settings, self._listener
        plain = await self._opened("gateway.listen", settings.listen, listener.listen)
        http = await self._opened("gateway.httpListen", settings.http_listen, listener.listen_http)
        here = Address(settings.advertised or _url("pulsar", plain))
        https = None
        if settings.tls is not None and self._access.tls is not None:
            tls, files = settings.tls, self._access.tls
            secure = await self._opened("gateway.tls.listen", tls.listen, listener.listen, files.now)
            https = await self._opened("gateway.tls.httpListen", tls.http_listen, listener.listen_http, files.now)
            here = here._replace(tls=tls.advertised or _url("pulsar+ssl", secure, here.url))
        listener.http = Address(_url("http", http, here.url or here.tls), _url("https", https, here.tls or here.url))
        return here

    async def look_at_files(self) -> Sequence[OffloadError]:
        """Whoever was let in with another key must show a new token. Nothing is returned: what files have that is of
        no use is in the log."""
        if await self._workers.files(self._access.look):
            self._listener.ask_again()
        return ()

    async def _opened(self, setting: str, listen: str, door: Listen, tls: Tls | None = None) -> tuple[str, int] | None:
        if not listen:
            return None
        host, port = address_of(listen)
        try:
            return host, await door(host, port, tls)
        except OSError as error:
            raise ConfigError(f"{setting}: cannot listen on {listen} ({error.strerror})") from error


def _url(scheme: str, opened: tuple[str, int] | None, advertised: str = "") -> str:
    """Empty: it is not open. `advertised`: another URL, whose host it has."""
    if opened is None:
        return ""
    host = urlsplit(advertised).hostname or opened[0]
    return f"{scheme}://[{host}]:{opened[1]}" if ":" in host else f"{scheme}://{host}:{opened[1]}"
