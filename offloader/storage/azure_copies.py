"""Parts that Azure copies by itself, inside one account. It reads the source in our name, and wants to be told how."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobSasPermissions, generate_blob_sas

from offloader.errors import IntegrityError
from offloader.storage.azure_answers import told
from offloader.storage.azure_calls import code_of, status_of
from offloader.storage.calls import Calls

STORAGE_SCOPE = "https://storage.azure.com/.default"
SIGNED_FOR = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(minutes=15)
_UNKNOWN_CALL = frozenset({"UnsupportedHeader", "UnsupportedHttpVerb", "UnsupportedQueryParameter"})
_SOURCE_UNREADABLE = frozenset({"CannotVerifyCopySource", "CopySourceNotAllowed", "NoAuthenticationInformation"})


class AzureCopies:
    """Copies ranges inside one account, and remembers where the service does not do so for us."""

    def __init__(self, credential: Any, calls: Calls) -> None:
        self._credential = credential
        self._calls = calls
        self._known = True

    def copy(
        self, what: str, target: BlobClient, block: str, source: BlobClient, at: int, size: int, etag: str
    ) -> bool:
        """Whether the block was copied of the source with this etag. Raises as `copy_part` of the port does."""

        def send() -> bool:
            try:
                url, more = self._readable(source)
                headers = {"x-ms-source-if-match": f'"{etag}"'}
                told(target.stage_block_from_url(block, url, at, size, headers=headers, **more))
            except HttpResponseError as error:
                self._take_refusal(what, error)
                return False
            return True

        return self._known and self._calls.write(what, send)

    def _readable(self, source: BlobClient) -> tuple[str, dict[str, Any]]:
        """The source's URL, by which the service may read it. A client with a shared access signature has it there."""
        if hasattr(self._credential, "account_key"):
            now = datetime.now(UTC)
            signed = generate_blob_sas(
                str(source.account_name),
                source.container_name,
                source.blob_name,
                account_key=self._credential.account_key,
                permission=BlobSasPermissions(read=True),
                start=now - _CLOCKS_DIFFER,
                expiry=now + SIGNED_FOR,
            )
            return f"{source.url}?{signed}", {}
        if hasattr(self._credential, "get_token"):
            token = self._credential.get_token(STORAGE_SCOPE).token
            return source.url, {"source_authorization": f"Bearer {token}"}
        return source.url, {}

    def _take_refusal(self, what: str, error: HttpResponseError) -> None:
        code, status = code_of(error), status_of(error)
        if status == 412 or code == "SourceConditionNotMet":
            raise IntegrityError(f"{what}: the source is another object than the one that was looked at") from error
        if status == 416 or code == "InvalidRange":
            raise IntegrityError(f"{what}: the source ends before this range does") from error
        if status == 404 and code == "CannotVerifyCopySource":  # gone, or hidden from whom may not read it
            return
        if code in _UNKNOWN_CALL or code in _SOURCE_UNREADABLE or status in (405, 501):
            self._known = False
            return
        raise error
