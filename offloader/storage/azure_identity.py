"""Our own identity at Azure, by whatever of its chain gives a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azure.core.exceptions import AzureError, ServiceRequestTimeoutError
from azure.identity import DefaultAzureCredential

LONGEST_WAIT = 10.0  # seconds for an answer: whoever gives tokens is near, and a silent one holds up each request
TOKEN_REQUESTS = 2  # for one token: it is asked for once more


class OwnIdentity:
    """A credential of Azure's client. Who once had a token has an identity: that none comes may pass."""

    def __init__(self, connect_timeout: float, read_timeout: float) -> None:
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
