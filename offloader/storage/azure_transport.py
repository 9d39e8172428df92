"""The HTTP below Azure's client: one attempt, whole bodies, and errors that show no secret."""

from __future__ import annotations

import io
from typing import Any

import requests
from azure.core.exceptions import AzureError, ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter

from offloader.storage.azure_calls import hidden

WHOLE = 1 << 31  # no body is longer: it is handed on in one piece
SENT_AT_ONCE = 256 << 10  # bytes of a body, which must leave within the time to connect


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
