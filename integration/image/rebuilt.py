"""Our layers are the same bytes when they are built anew: `python -m integration.image.rebuilt` (ten minutes)."""

from __future__ import annotations

import subprocess

from dev.image.build import build
from integration.image.building import TAG, buildah, layers

OURS = {2: "Python's packages", 3: "this package", 4: "the bill of materials"}
"""By place: those before are the base and Debian's packages."""


def main() -> None:
    """Build twice, each time with nothing of what was built before; say and compare the digests."""
    tool = buildah()
    found = []
    for number in (1, 2):
        tag = f"{TAG}-anew-{number}"
        build(tool, tag, cached=False)
        found.append(layers(tool, tag))
        subprocess.run(tool.command("rmi", tag), capture_output=True, check=True)
    for place, name in OURS.items():
        print(f"{name}: {found[0][place]}")
    different = [name for place, name in OURS.items() if found[0][place] != found[1][place]]
    if different:
        raise SystemExit(f"built anew, these layers are different: {', '.join(different)}")


if __name__ == "__main__":
    main()
