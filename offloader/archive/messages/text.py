"""Protocol strings, which should be UTF-8 and need not be; keys, which are bytes or base64 of bytes."""

from __future__ import annotations

import binascii


def text(value: str | bytes) -> str:
    """A protobuf string: the library gives bytes where they are not UTF-8; those are replaced by U+FFFD."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def raw(value: str | bytes) -> bytes:
    """A protobuf string's bytes, as they stood in the entry."""
    return value if isinstance(value, bytes) else value.encode()


def unbase64(key: bytes) -> bytes:
    """A key that a client put into base64 because it is not text; as it stands where it is none."""
    try:
        return binascii.a2b_base64(key, strict_mode=True)
    except binascii.Error:
        return key
