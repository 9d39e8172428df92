"""How many examples the property tests try: OFFLOADER_EXAMPLES (default 100; long runs set thousands)."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "offloader",
    max_examples=int(os.environ.get("OFFLOADER_EXAMPLES", "100")),
    deadline=None,  # two cores and a garbage collector make times meaningless
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
)
settings.load_profile("offloader")
