"""From settings: an `S3Store` with its boto3 client, and what its bucket says of itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from offloader.errors import AccessDeniedError, ConfigError, StoreUnavailableError
from offloader.storage.options import known_options, number, one_of
from offloader.storage.s3 import S3Store
from offloader.storage.s3_calls import REDIRECTED, code_of
from offloader.storage.settings import StoreSettings

# Enough for the threads of a worker; a connection is opened only when it is needed.
MAX_CONNECTIONS = 64
OPTIONS = (
    "retry_deadline",
    "connect_timeout",
    "read_timeout",
    "max_connections",
    "addressing_style",
    "payload_signing",
)
ADDRESSING = ("auto", "path", "virtual")
NO_RULES = "NoSuchLifecycleConfiguration"
PAYLOAD_SIGNING = ("auto", "always", "never")

# Of the session, which is for one thread at a time; its clients are for many.
_LOCK = threading.Lock()


def open_s3(settings: StoreSettings) -> S3Store:
    """A store with a client of its own. Raises ConfigError; nothing is asked of the server yet."""
    bucket, _, prefix = settings.root.partition("://")[2].partition("/")
    if not bucket:
        raise ConfigError(f"{settings.setting}: {settings.root!r} names no bucket; write s3://bucket/prefix")
    options = known_options(settings, OPTIONS)
    try:
        client = new_client(settings, _config(options, settings))
        client.meta.config.s3["payload_signing_enabled"] = _signs_payloads(options, client.meta.endpoint_url)
    except (BotoCoreError, ValueError) as e:
        raise ConfigError(f"store: {e}") from e
    attempt_timeout = client.meta.config.connect_timeout + client.meta.config.read_timeout
    return S3Store(
        client, bucket, prefix, retry_deadline=number(options, "retry_deadline", 60.0), attempt_timeout=attempt_timeout
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
    return Session()


def _addressing_style(settings: StoreSettings) -> str:
    """Whether the bucket is in the path or in the host's name. Raises ConfigError."""
    # Other servers than AWS are often reached by a host name that has no names for buckets below it.
    own_endpoint = settings.endpoint is not None
    return one_of(ADDRESSING, dict(settings.options), "addressing_style", "path" if own_endpoint else "auto")


def _signs_payloads(options: Mapping[str, str], endpoint: str) -> bool:
    """Whether requests are signed with their body's SHA-256: 7 ms of CPU for 8 MiB. Over https:// TLS and each part's
    CRC32C protect it; botocore's own rule is the same, but knows only checksums that it made itself."""
    wanted = one_of(PAYLOAD_SIGNING, options, "payload_signing", "auto")
    return wanted == "always" or (wanted == "auto" and not endpoint.startswith("https:"))


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


def _date(answer: Mapping[str, Any]) -> str | None:
    found: str | None = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return found
