"""From settings: an `AzureStore` with its client. The HTTP below the client: one attempt, whole bodies, and errors that
show no secret. Also our own identity, for settings that name no credentials."""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from azure.core.exceptions import AzureError, ServiceRequestTimeoutError, ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient
from requests.adapters import HTTPAdapter

from offloader.errors import ConfigError, FatalError
from offloader.storage.azure import AzureStore
from offloader.storage.azure_calls import hidden
from offloader.storage.azure_names import check_name
from offloader.storage.settings import StoreSettings, known_options, number

WHOLE = 1 << 31  # no body is longer: it is handed on in one piece
SENT_AT_ONCE = 256 << 10  # bytes of a body, which must leave within the time to connect
MAX_CONNECTIONS = 64  # enough for the threads of a worker; one is opened only when it is needed
PUBLIC_CLOUD = "core.windows.net"
LARGEST_PUT = 1 << 31  # in one request: what is put is small, what is large goes in parts
LONGEST_WAIT = 10.0  # seconds for an answer: whoever gives tokens is near, and a silent one holds up each request
TOKEN_REQUESTS = 2  # for one token: it is asked for once more
_CREDENTIALS = ("connection_string", "account_key", "sas_token")
OPTIONS = ("account_name", *_CREDENTIALS, "retry_deadline", "connect_timeout", "read_timeout", "max_connections")
# As the programs of Azure name them in the environment; the first that is set counts.
_ENVIRONMENT = {
    "connection_string": ("AZURE_STORAGE_CONNECTION_STRING",),
    "account_name": ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
    "account_key": ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN",),
}
_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$root|\$web")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.(.+)")


class OneAttempt(RequestsTransport):  # type: ignore[misc]  # it is imported when it is asked for
    """Reads each body to its end before it hands on the answer: else the client would ask by itself, three times, for a
    body that breaks off, and wait each time as long as for an answer."""

    def __init__(self, *, connect_timeout: float, read_timeout: float, max_connections: int) -> None:
        session = requests.Session()
        adapter = _Adapter(pool_maxsize=max_connections)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        super().__init__(
            session=session,
            connection_timeout=connect_timeout,
            read_timeout=read_timeout,
            connection_data_block_size=WHOLE,
        )

    def send(self, request: Any, **kwargs: Any) -> Any:
        """Make a request. Its body goes as a stream: in one piece, all of it must leave within the time to connect."""
        if isinstance(request.data, bytes) and request.data:
            request.data = io.BytesIO(request.data)
        try:
            response = super().send(request, **kwargs)
            if kwargs.get("stream"):
                _read_to_its_end(response.internal_response)
        except AzureError as error:  # its text has the URL, and that may have a signature
            error.message = hidden(str(error.message))
            error.args = (error.message,)
            raise
        return response


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        super().init_poolmanager(*args, **more, blocksize=SENT_AT_ONCE)


def _read_to_its_end(response: requests.Response) -> None:
    try:
        _ = response.content
    except requests.RequestException as error:
        raise ServiceResponseError(error, error=error) from None


@dataclass(frozen=True, slots=True)
class AzurePlace:
    """What the URL says. `account` and `cloud` are "" where it does not name them."""

    container: str
    prefix: str
    account: str = ""
    cloud: str = PUBLIC_CLOUD


@dataclass(frozen=True, slots=True)
class AzureAccess:
    """Who we are to an account. Nothing but its name: the process' own identity decides."""

    account: str = ""
    connection_string: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)


class OwnIdentity:
    """Our own identity at Azure, by whatever of its chain gives a token: a credential of Azure's client. Who once had a
    token has an identity: that none comes may pass."""

    def __init__(self, connect_timeout: float, read_timeout: float) -> None:
        from azure.identity import DefaultAzureCredential  # takes its time to import, and few need it

        read = min(read_timeout, LONGEST_WAIT)
        self.longest_wait = TOKEN_REQUESTS * (connect_timeout + read)
        self._chain = DefaultAzureCredential(connection_timeout=connect_timeout, read_timeout=read, retry_total=1)
        self._known = False

    def get_token(self, *scopes: str, **more: Any) -> Any:
        """A token, as azure-core asks for it."""
        return self._asked(lambda: self._chain.get_token(*scopes, **more))

    def get_token_info(self, *scopes: str, **more: Any) -> Any:
        """A token, and when to ask for the next one."""
        return self._asked(lambda: self._chain.get_token_info(*scopes, **more))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            token = ask()
        except AzureError as e:
            if not self._known:
                raise
            raise ServiceRequestTimeoutError(f"no token comes: {e.message}", error=e) from e
        self._known = True
        return token


def open_azure(settings: StoreSettings, environment: Mapping[str, str] = os.environ) -> AzureStore:
    """A store with a client of its own. Raises ConfigError; nothing is asked of the service yet."""
    place = place_of(settings)
    options = known_options(settings, OPTIONS)
    access = access_of(options, environment)
    connect, read = number(options, "connect_timeout", 5.0), number(options, "read_timeout", 30.0)
    connections = int(number(options, "max_connections", MAX_CONNECTIONS))
    client: dict[str, Any] = {
        "transport": OneAttempt(connect_timeout=connect, read_timeout=read, max_connections=connections),
        "retry_total": 0,  # see calls.py
        "permit_redirects": False,
        "max_single_put_size": LARGEST_PUT,
        "max_single_get_size": WHOLE,
        "max_chunk_get_size": WHOLE,
    }
    try:
        service = _service(place, access, settings.endpoint, connect, read, client)
    except (ValueError, TypeError) as e:
        raise ConfigError(f"storage: {' '.join(str(e).split())}") from None
    if place.account and service.account_name != place.account:
        raise ConfigError(
            f"{settings.setting}: the URL names account {place.account}, the credentials are for {service.account_name}"
        )
    url = f"{settings.scheme}://{settings.root.partition('://')[2]}".rstrip("/")
    deadline = number(options, "retry_deadline", 60.0)
    token: float = getattr(service.credential, "longest_wait", 0.0)
    return AzureStore(
        url, service, place.container, place.prefix, retry_deadline=deadline, attempt_timeout=token + connect + read
    )


def place_of(settings: StoreSettings) -> AzurePlace:
    """What a URL names: `az://container/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`. Raises
    ConfigError."""
    where, _, prefix = settings.root.partition("://")[2].partition("/")
    container, at, host = where.partition("@")
    found = _HOST.fullmatch(host)
    if not _CONTAINER.fullmatch(container) or (at and found is None):
        raise ConfigError(
            f"{settings.setting}: {settings.root!r} names no container; write az://container/prefix or "
            f"abfss://container@account.dfs.{PUBLIC_CLOUD}/prefix (a container has 3 to 63 of a-z, 0-9 and -)"
        )
    try:
        if prefix.strip("/"):
            check_name("", prefix.strip("/"))
    except FatalError as e:
        raise ConfigError(f"{settings.setting}: {e}") from None
    return AzurePlace(container, prefix, found[1], found[2]) if found else AzurePlace(container, prefix)


def access_of(options: Mapping[str, str], environment: Mapping[str, str]) -> AzureAccess:
    """Credentials of the options; where there are none, of the environment. Raises ConfigError."""
    given = [name for name in _CREDENTIALS if options.get(name)]
    if len(given) > 1:
        raise ConfigError(f"options.{given[1]}: there is {given[0]}, too; give one of them")
    outside = {name: _first(environment, names) for name, names in _ENVIRONMENT.items()}
    if not given:  # of several that the environment has, the first one
        given = [name for name in _CREDENTIALS if outside[name]][:1]
    found = {name: options.get(name) or outside[name] for name in given}
    name = options.get("account_name") or outside["account_name"]
    if name and not _ACCOUNT.fullmatch(name):
        raise ConfigError(f"options.account_name: {name!r} is no account's name; it has 3 to 24 of a-z and 0-9")
    key = found.get("account_key", "")
    try:
        base64.b64decode(key, validate=True)
    except binascii.Error:
        raise ConfigError("options.account_key: is no key of an account, which is base64") from None
    signature = found.get("sas_token", "").lstrip("?")
    if signature and "sig=" not in signature:
        raise ConfigError("options.sas_token: is no shared access signature, which has sig= in it")
    return AzureAccess(name, found.get("connection_string", ""), key, signature)


def _service(
    place: AzurePlace, access: AzureAccess, endpoint: str | None, connect: float, read: float, client: Mapping[str, Any]
) -> BlobServiceClient:
    if access.connection_string:
        return BlobServiceClient.from_connection_string(access.connection_string, **client)
    account = place.account or access.account
    if not account and not endpoint:
        raise ConfigError(
            "options.account_name: is not set; name the account, set AZURE_STORAGE_ACCOUNT, or write "
            f"abfss://container@account.dfs.{PUBLIC_CLOUD}/prefix"
        )
    url = endpoint or f"https://{account}.blob.{place.cloud}"
    if access.signature:
        return BlobServiceClient(f"{url}?{access.signature}", **client)
    if access.key:
        if not account:
            raise ConfigError("options.account_name: is not set, and account_key is; name the account")
        return BlobServiceClient(url, {"account_name": account, "account_key": access.key}, **client)
    return BlobServiceClient(url, OwnIdentity(connect, read), **client)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
