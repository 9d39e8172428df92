"""Whether another gateway lives: it answers a CONNECT at the address that it tells its clients.

Any answer counts but a broker's, which may have got the address of a gateway that died: a broker tells another version
than a gateway, or asks for a token, which a gateway does not ask of gateways. A gateway that cannot reach the bucket is
silent. The answer decides only who may try to claim a topic: what is written is guarded by numbers in the bucket. So
the other one's certificate is not looked at, and nothing is told to it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from struct import Struct
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connect
from offloader.gateway.protocol.answers import SERVER_VERSION, Address
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import ASKS_WHETHER_IT_LIVES, ErrorCode
from offloader.pulsar.commands import command
from offloader.pulsar.frames import encode

log = logging.getLogger(__name__)

ANSWER_WITHIN = 3.0  # seconds
_LENGTHS = Struct(">II")
_LARGEST_ANSWER = 64 * 1024
KEPT = 1.0  # seconds for which an answer holds: many clients ask at the same time
_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


class LivingGateways:
    """On the loop. Of those who ask at the same time one is sent."""

    def __init__(self, workers: Workers, answer_within: float = ANSWER_WITHIN) -> None:
        self._workers = workers
        self._answer_within = answer_within
        self._asked: dict[Address, asyncio.Task[bool]] = {}

    async def is_living(self, address: Address) -> bool:
        """Whether somebody answers there."""
        asked = self._asked.get(address)
        if asked is None:
            asked = self._asked[address] = asyncio.create_task(self._ask(address))
            asked.add_done_callback(lambda _: self._keep_for_a_while(address))
        return await asyncio.shield(asked)

    def _keep_for_a_while(self, address: Address) -> None:
        asyncio.get_running_loop().call_later(KEPT, self._asked.pop, address)

    async def _ask(self, address: Address) -> bool:
        try:
            return await asyncio.wait_for(self._answers(address.url or address.tls), self._answer_within)
        except ssl.SSLError as error:  # it is there, and wants to see a certificate, for one
            log.debug("gateway: %s refuses: %s", address.tls, error)
            return True
        except (OSError, TimeoutError, ValueError) as error:
            log.info("gateway: nobody answers at %s: %s", address.url or address.tls, error)
            return False

    async def _answers(self, url: str) -> bool:
        to = urlsplit(url)
        host, port = to.hostname, to.port or _PORTS.get(to.scheme, 0)
        if host is None:
            raise ValueError("no address")
        # Not by asyncio: its threads for that are those of everything else, and a server of names may be silent.
        found = await self._workers.names(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        reader, writer = await _connected([str(each[4][0]) for each in found], port, secure=to.scheme == "pulsar+ssl")
        try:
            writer.write(encode(command(connect=Connect(client_version=ASKS_WHETHER_IT_LIVES))))
            return not _is_brokers(await _first_command(reader))
        except EOFError:
            return _shook_hands(to.scheme)
        except ConnectionError:  # its refusal may be lost where it has not read all that we sent
            if not _shook_hands(to.scheme):
                raise
            return True
        finally:
            writer.transport.abort()


async def _first_command(reader: StreamReader) -> BaseCommand | None:
    """None: something else than a command of the protocol. Raises EOFError where nothing whole comes."""
    _, size = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if size > _LARGEST_ANSWER:
        return None
    try:
        return BaseCommand.FromString(await reader.readexactly(size))
    except DecodeError:
        return None


def _is_brokers(answer: BaseCommand | None) -> bool:
    if answer is None:
        return False
    if answer.HasField("connected"):
        return answer.connected.server_version != SERVER_VERSION
    return answer.HasField("error") and answer.error.error in (ErrorCode.AUTHENTICATION, ErrorCode.AUTHORIZATION)


def _shook_hands(scheme: str) -> bool:
    """Whoever took part in a handshake may want to see a certificate before it says more."""
    return scheme == "pulsar+ssl"


async def _connected(hosts: Sequence[str], port: int, *, secure: bool) -> tuple[StreamReader, StreamWriter]:
    """With the first of them that accepts. Raises OSError."""
    for host in hosts[:-1]:
        try:
            return await asyncio.open_connection(host, port, ssl=_unchecked() if secure else None)
        except ssl.SSLError:
            raise  # it is there
        except OSError as error:  # refused, or no way leads to this address
            log.debug("gateway: nobody answers at %s: %s", host, error)
    return await asyncio.open_connection(hosts[-1], port, ssl=_unchecked() if secure else None)


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
