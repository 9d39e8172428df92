"""boto3's clients. What boto3 knows of services is read once in a process: that takes twenty times as long as making a
client."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import ClientError

from offloader.storage.settings import StoreSettings

REDIRECTED = "Redirected"  # the code of our own error, no store says so

_LOCK = threading.Lock()  # a session is for one thread at a time, its clients are for many


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
    """botocore takes a redirect for another region's, and where it names none asks for it and is redirected, without
    end."""
    if response is None:
        return
    answer = response[0]
    if 300 <= answer.status_code < 400 and answer.status_code != 304 and "x-amz-bucket-region" not in answer.headers:
        said = {"Code": REDIRECTED, "Message": f"to {answer.headers.get('location', 'nowhere')}"}
        raise ClientError({"Error": said, "ResponseMetadata": {"HTTPStatusCode": answer.status_code}}, operation.name)


@cache
def _session() -> Session:
    return Session()
