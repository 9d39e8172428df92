"""Parts that S3 copies by itself, and uploads that take such parts.

Uploads for copies are begun without a checksum algorithm. AWS would want each part's checksum named at the completion
and gives that of a copied part; MinIO wants it, too, and gives none (minio/minio#20649). Without an algorithm AWS takes
no CRC32C of a part either ("Checksum Type mismatch"), so what passes through us goes with its MD5, which all servers
check and a bucket with object lock asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from offloader.errors import IntegrityError
from offloader.storage import rules
from offloader.storage.calls import Calls
from offloader.storage.s3_calls import code_of, status_of

_PLAIN = "~"  # what the handle of an upload without checksums begins with; no server's ids have it
_UNKNOWN_CALL = frozenset({"NotImplemented", "MethodNotAllowed"})
_NO_SUCH_RANGE = frozenset({"InvalidRange", "InvalidArgument"})


def handle_for_copies(key: str, upload_id: str) -> str:
    """The handle of an upload that was begun without a checksum algorithm."""
    return rules.make_handle(key, _PLAIN + upload_id)


def split_upload(upload: str) -> tuple[str, str, bool]:
    """(key, S3's upload id, whether it takes checksums) of a handle."""
    key, upload_id = rules.split_handle(upload)
    return key, upload_id.removeprefix(_PLAIN), not upload_id.startswith(_PLAIN)


class S3Copies:
    """Copies ranges inside one server, and remembers where that server does not know how."""

    def __init__(self, client: Any, calls: Calls) -> None:
        self._client = client
        self._calls = calls
        self._known = True

    def copy(self, what: str, request: Mapping[str, Any]) -> str | None:
        """The part's etag; None: it cannot be copied. Raises as `copy_part` of the port does."""
        return self._calls.write(what, lambda: self._send(what, request)) if self._known else None

    def _send(self, what: str, request: Mapping[str, Any]) -> str | None:
        try:
            answer = self._client.upload_part_copy(**request)
        except ClientError as error:
            if status_of(error) == 412:
                raise IntegrityError(f"{what}: the source is another object than the one that was looked at") from error
            self._take_refusal(what, error)
            return None
        copied = answer.get("CopyPartResult", {}).get("ETag")
        if copied is None:  # an old server does not look at the source, and took an empty part
            self._known = False
            return None
        return str(copied).strip('"')

    def _take_refusal(self, what: str, error: ClientError) -> None:
        code, status = code_of(error), status_of(error)
        if code in _UNKNOWN_CALL or status in (405, 501):
            self._known = False
            return
        if code == "InvalidRequest":  # AWS copies no range of an object of up to 5 MB
            return
        if code in _NO_SUCH_RANGE:
            raise IntegrityError(f"{what}: the source ends before this range does ({error})") from error
        raise error
