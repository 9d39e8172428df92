"""boto3's clients. What boto3 knows of services is read once in a process: that takes twenty times as long as making a client."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from boto3.session import Session
from botocore.config import Config

from offloader.storage.open import StoreSettings

_LOCK = threading.Lock()  # a session is for one thread at a time, its clients are for many


def new_client(settings: StoreSettings, config: Config) -> Any:
    """A client of its own. Raises BotoCoreError, ValueError; nothing is asked of the server yet."""
    with _LOCK:
        return _session().client(
            "s3",
            endpoint_url=settings.endpoint,
            region_name=settings.region,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            config=config,
        )


@cache
def _session() -> Session:
    return Session()
