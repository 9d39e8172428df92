"""How many examples property tests try that let a whole world run: each does as much as dozens of smaller examples."""

from __future__ import annotations

import os

from hypothesis import settings

worlds = settings(max_examples=int(os.environ.get("OFFLOADER_EXAMPLES", "25")))
