"""What tells our own messages and consumers from those of others: pure, no I/O.

A mark is made with a secret that lies in the bucket. Whoever copies a message of ours copies its mark as well, and says
with it only what we have said; a mark on anything else is not ours."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

MARK = "offloader-mark"
_MESSAGE, _CONSUMER = b"message\0", b"consumer\0"


@dataclass(frozen=True, slots=True)
class OwnMark:
    """`secret`: see `open_mark`."""

    secret: bytes = field(repr=False)

    def of_message(self, data: bytes) -> dict[str, str]:
        """The property of a message of ours."""
        return {MARK: self._mark(_MESSAGE + data)}

    def is_on_message(self, data: bytes, properties: Mapping[str, str]) -> bool:
        """Whether we have sent this. On a retry letter that somebody made of it, too."""
        return self._is(properties.get(MARK), _MESSAGE + data)

    def of_consumer(self, name: str) -> dict[str, str]:
        """The property of a consumer of ours."""
        return {MARK: self._mark(_CONSUMER + name.encode())}

    def is_on_consumer(self, name: str, properties: Mapping[str, object]) -> bool:
        """Whether a consumer is ours: this process's, or another one's with the same bucket."""
        return self._is(properties.get(MARK), _CONSUMER + name.encode())

    def _mark(self, data: bytes) -> str:
        return hmac.new(self.secret, data, hashlib.sha256).hexdigest()

    def _is(self, mark: object, data: bytes) -> bool:
        said = mark.encode(errors="replace") if isinstance(mark, str) else b""
        return hmac.compare_digest(said, self._mark(data).encode())
