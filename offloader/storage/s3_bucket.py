"""What a bucket says of itself: asked once by the doctor, not needed for the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from offloader.errors import AccessDeniedError, StoreUnavailableError
from offloader.storage.s3_calls import code_of
from offloader.storage.s3_client import addressing_style
from offloader.storage.s3_session import new_client
from offloader.storage.settings import StoreSettings

NO_RULES = "NoSuchLifecycleConfiguration"


def life_cycle_rules(settings: StoreSettings) -> tuple[str, Sequence[Mapping[str, Any]], str | None]:
    """Our prefix in the bucket, the bucket's rules as S3 gives them, and the server's date (HTTP).

    Raises AccessDeniedError where they may not be read or are not known to the server, StoreUnavailableError.
    """
    bucket, _, prefix = settings.root.partition("://")[2].partition("/")
    try:
        config = Config(s3={"addressing_style": addressing_style(settings)}, connect_timeout=5, read_timeout=10)
        client = new_client(settings, config)
        answer = client.get_bucket_lifecycle_configuration(Bucket=bucket)
        return prefix, answer.get("Rules", ()), _date(answer)
    except ClientError as error:
        if code_of(error) == NO_RULES:
            return prefix, (), _date(error.response)
        raise AccessDeniedError(f"the rules of bucket {bucket} cannot be read ({code_of(error)})") from error
    except BotoCoreError as error:
        raise StoreUnavailableError(f"the rules of bucket {bucket} cannot be read: {error}") from error


def _date(answer: Mapping[str, Any]) -> str | None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    found = headers.get("date")
    return None if found is None else str(found)
