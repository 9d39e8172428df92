"""JSON that others wrote."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def parse_json(data: bytes | str) -> Any:
    """The text's value. Raises ValueError, and nothing else, for what is no JSON, nests too deep for Python, or has
    text that cannot be written again (half of a surrogate pair)."""
    text = data if isinstance(data, str) else data.decode()
    try:
        found = json.loads(text, parse_constant=_no_number)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON's")
