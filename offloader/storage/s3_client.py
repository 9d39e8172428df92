"""From settings: an `S3Store` with its boto3 client and credentials, and what its bucket says of itself.

botocore reads the shared credentials file once in a process; whoever renews short-lived keys there writes it again.
Credentials of the usual AWS chain are read again when a file that they come from has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from offloader.errors import AccessDeniedError, ConfigError, StoreUnavailableError
from offloader.storage.rules import md5_text
from offloader.storage.s3 import DATA_TYPE, S3Store
from offloader.storage.s3_calls import REDIRECTED, code_of
from offloader.storage.settings import StoreSettings, known_options, number, one_of

# Enough for the threads of a worker; a connection is opened only when it is needed.
MAX_CONNECTIONS = 64
OPTIONS = (
    "retry_deadline",
    "connect_timeout",
    "read_timeout",
    "max_connections",
    "addressing_style",
    "payload_signing",
    "server_side_encryption",
    "kms_key_id",
    "storage_class",
    "request_payer",
)
ENCRYPTION = ("AES256", "aws:kms", "aws:kms:dsse")
ARCHIVE_TIERS = ("GLACIER", "DEEP_ARCHIVE")  # their objects cannot be read until they are restored
ADDRESSING = ("auto", "path", "virtual")
NO_RULES = "NoSuchLifecycleConfiguration"
PAYLOAD_SIGNING = ("auto", "always", "never")

# Of the session, which is for one thread at a time; its clients are for many.
_LOCK = threading.Lock()


class RenewedCredentials(Credentials):  # type: ignore[misc]  # botocore has no types
    """Those of `session`'s chain, which is asked again when one of its files is another one than before."""

    def __init__(self, session: Any, found: Credentials) -> None:
        super().__init__("", "", method=found.method)  # what has not been asked for yet is not fetched here
        self._chain = session.get_component("credential_provider")
        self._files = [
            Path(str(session.get_config_variable(name))).expanduser() for name in ("credentials_file", "config_file")
        ]
        self._lock = threading.Lock()
        self._found = found
        self._seen: Sequence[tuple[int, int, int] | None] = ()

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Those to sign the next request with."""
        with self._lock:
            seen = [_signature(path) for path in self._files]
            if seen != self._seen:
                self._seen = seen
                try:
                    self._found = self._chain.load_credentials() or self._found
                except BotoCoreError:  # it is being written: the former ones count until it is whole
                    self._seen = ()
            found = self._found
        return found.get_frozen_credentials()


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def open_s3(settings: StoreSettings) -> S3Store:
    """A store with a client of its own. Raises ConfigError; nothing is asked of the server yet."""
    bucket, _, prefix = settings.root.partition("://")[2].partition("/")
    if not bucket:
        raise ConfigError(f"{settings.setting}: {settings.root!r} names no bucket; write s3://bucket/prefix")
    options = known_options(settings, OPTIONS)
    try:
        client = new_client(settings, _config(options, settings))
        signing = one_of(PAYLOAD_SIGNING, options, "payload_signing", "auto")
        over_tls = client.meta.endpoint_url.startswith("https:")
        _sign_bodies(client, signing == "always" or (signing == "auto" and not over_tls))
        unsigned = None
        if signing == "auto" and not over_tls:
            unsigned = new_client(settings, _config(options, settings))
            _sign_bodies(unsigned, False)
        for each in (client, unsigned):
            if each is not None:
                each.meta.events.register("before-parameter-build.s3", partial(_add_parameters, _parameters(options)))
        client.meta.events.register("before-call.s3.DeleteObjects", _add_md5)
    except (BotoCoreError, ValueError) as e:
        raise ConfigError(f"store: {e}") from e
    attempt_timeout = client.meta.config.connect_timeout + client.meta.config.read_timeout
    return S3Store(
        client,
        bucket,
        prefix,
        unsigned=unsigned,
        retry_deadline=number(options, "retry_deadline", 60.0),
        attempt_timeout=attempt_timeout,
    )


def life_cycle_rules(settings: StoreSettings) -> tuple[str, Sequence[Mapping[str, Any]], str | None]:
    """Our prefix in the bucket, the bucket's rules as S3 gives them, and the server's date (HTTP).

    Raises AccessDeniedError where they may not be read or are not known to the server, StoreUnavailableError.
    """
    bucket, _, prefix = settings.root.partition("://")[2].partition("/")
    try:
        config = Config(s3={"addressing_style": _addressing_style(settings)}, connect_timeout=5, read_timeout=10)
        client = new_client(settings, config)
        answer = client.get_bucket_lifecycle_configuration(Bucket=bucket)
        return prefix, answer.get("Rules", ()), _date(answer)
    except ClientError as error:
        if code_of(error) == NO_RULES:
            return prefix, (), _date(error.response)
        raise AccessDeniedError(f"the rules of bucket {bucket} cannot be read ({code_of(error)})") from error
    except BotoCoreError as error:
        raise StoreUnavailableError(f"the rules of bucket {bucket} cannot be read: {error}") from error


def new_client(settings: StoreSettings, config: Config) -> Any:
    """A client of its own. Raises BotoCoreError, ValueError; nothing is asked of the server yet."""
    with _LOCK:
        client = _session().client(
            "s3",
            endpoint_url=settings.endpoint,
            region_name=settings.region,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            config=config,
        )
    if settings.endpoint is not None:
        client.meta.events.register_first("needs-retry.s3", _refuse_redirects)
    return client


def _refuse_redirects(response: tuple[Any, Any] | None = None, operation: Any = None, **_: object) -> None:
    """botocore takes a redirect for another region's; where it names none, it asks and is redirected without end."""
    if response is None:
        return
    answer = response[0]
    if 300 <= answer.status_code < 400 and answer.status_code != 304 and "x-amz-bucket-region" not in answer.headers:
        said = {"Code": REDIRECTED, "Message": f"to {answer.headers.get('location', 'nowhere')}"}
        raise ClientError({"Error": said, "ResponseMetadata": {"HTTPStatusCode": answer.status_code}}, operation.name)


@cache
def _session() -> Session:
    """Once in a process: it reads what boto3 knows of services, which takes twenty times as long as making a client."""
    core = get_session()
    found = core.get_credentials()
    if found is not None:
        core._credentials = RenewedCredentials(core, found)  # noqa: SLF001 (its setter takes keys alone)
    return Session(botocore_session=core)


def _addressing_style(settings: StoreSettings) -> str:
    """Whether the bucket is in the path or in the host's name. Raises ConfigError."""
    # Other servers than AWS are often reached by a host name that has no names for buckets below it.
    own_endpoint = settings.endpoint is not None
    return one_of(ADDRESSING, dict(settings.options), "addressing_style", "path" if own_endpoint else "auto")


def _sign_bodies(client: Any, signed: bool) -> None:  # noqa: FBT001 (botocore's setting)
    """Whether requests are signed with their body's SHA-256, which takes 7 ms of CPU here and there for 8 MiB. TLS
    protects bodies from others, and CRC32C parts from damage; botocore's own rule knows only checksums that it made."""
    client.meta.config.s3["payload_signing_enabled"] = signed


def _config(options: Mapping[str, str], settings: StoreSettings) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1},  # see calls.py
        connect_timeout=number(options, "connect_timeout", 5.0),
        read_timeout=number(options, "read_timeout", 30.0),
        max_pool_connections=int(number(options, "max_connections", MAX_CONNECTIONS)),
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": _addressing_style(settings)},
        tcp_keepalive=True,
    )


def _parameters(options: Mapping[str, str]) -> dict[str, str]:
    """What operations that know it are to say besides. Raises ConfigError."""
    found = {}
    if "server_side_encryption" in options:
        found["ServerSideEncryption"] = one_of(ENCRYPTION, options, "server_side_encryption", "")
    if "kms_key_id" in options:
        if not found.get("ServerSideEncryption", "").startswith("aws:kms"):
            raise ConfigError("options.kms_key_id: needs server_side_encryption: aws:kms")
        found["SSEKMSKeyId"] = options["kms_key_id"]
    if "request_payer" in options:
        found["RequestPayer"] = one_of(("requester",), options, "request_payer", "")
    if "storage_class" in options:
        found["StorageClass"] = options["storage_class"]
        if options["storage_class"] in ARCHIVE_TIERS:
            raise ConfigError(
                f"options.storage_class: objects of {options['storage_class']} cannot be read at once; GLACIER_IR can"
            )
    return found


def _add_parameters(wanted: Mapping[str, str], params: dict[str, Any], model: Any, **_: object) -> None:
    """The storage class is that of data objects alone: all others are small, and read often."""
    for name in wanted.keys() & model.input_shape.members.keys():
        if name != "StorageClass" or params.get("ContentType") == DATA_TYPE:
            params.setdefault(name, wanted[name])


def _add_md5(params: dict[str, Any], **_: object) -> None:
    """Some servers, and buckets with an object lock, refuse a deletion of several objects without it."""
    body = params["body"]
    params["headers"]["Content-MD5"] = md5_text(body if isinstance(body, bytes) else body.encode())


def _date(answer: Mapping[str, Any]) -> str | None:
    found: str | None = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return found
