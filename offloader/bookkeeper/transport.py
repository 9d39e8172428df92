"""Connecting to a bookie: the socket, TLS (START_TLS on the plain connection), and who we are."""

from __future__ import annotations

import asyncio
import ssl

from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.auth import DISABLED, BookieAuthentication
from offloader.bookkeeper.connection import BookieConnection
from offloader.bookkeeper.requests import Dialect
from offloader.bookkeeper.settings import BookieSettings
from offloader.bookkeeper.v3 import accepts_tls, encode_start_tls
from offloader.errors import AuthenticationFailedError, BookieUnavailableError, FatalError, OffloadError


async def connect(settings: BookieSettings, bookie: str, address: BookieAddress, dialect: Dialect) -> BookieConnection:
    """A connection that is ready for requests.

    Raises BookieUnavailableError, AuthenticationFailedError, FatalError (certificate, no TLS there), ConfigError.
    """
    made: list[BookieConnection] = []

    def make() -> BookieConnection:
        made.append(BookieConnection(bookie, dialect, settings.request_timeout, settings.max_entry))
        return made[-1]

    try:
        async with asyncio.timeout(settings.connect_timeout):
            _, connection = await asyncio.get_running_loop().create_connection(make, address.host, address.port)
            await _shake_hands(settings, connection, address)
            return connection
    except BaseException as error:
        why = _explained(error, f"{bookie} at {address.host}:{address.port}", settings.connect_timeout)
        for connection in made:
            connection.fail(why)
        if isinstance(error, OSError | OffloadError):
            raise why from error
        raise


def _explained(error: BaseException, where: str, timeout: float) -> OffloadError:
    match error:
        case TimeoutError():
            return BookieUnavailableError(f"{where} did not answer within {timeout:g} s")
        case ssl.SSLCertVerificationError():
            return FatalError(
                f"{where}: its certificate is not trusted ({error.verify_message}); set the bookies' trusted "
                "certificates"
            )
        case OffloadError():
            return type(error)(f"{where}: {error}")
        case _:
            return BookieUnavailableError(f"{where} cannot be reached ({error})")


async def _shake_hands(settings: BookieSettings, connection: BookieConnection, address: BookieAddress) -> None:
    if settings.tls:
        await _start_tls(settings, connection, address)
    if settings.authentication is not None:
        await _authenticate(settings.authentication(), connection)


async def _start_tls(settings: BookieSettings, connection: BookieConnection, address: BookieAddress) -> None:
    if not accepts_tls(memoryview(await connection.exchange(encode_start_tls()))):
        raise FatalError("the bookie does not speak TLS")
    assert connection.transport is not None
    connection.transport = await asyncio.get_running_loop().start_tls(
        connection.transport, connection, settings.ssl_context(), server_hostname=address.host
    )


async def _authenticate(authentication: BookieAuthentication, connection: BookieConnection) -> None:
    """Say what the bookie's plugin asks for until neither has more to say."""
    payload: bytes | None = authentication.first()
    while payload is not None:
        answer = await connection.exchange(connection.dialect.encode_auth(authentication.plugin, payload))
        plugin, challenge = connection.dialect.decode_auth(memoryview(answer))
        if plugin == DISABLED:
            return
        if plugin != authentication.plugin:
            raise AuthenticationFailedError(f"the bookie asks for {plugin}, we have {authentication.plugin}")
        payload = authentication.next(challenge)
