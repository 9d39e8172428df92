"""Build hook: generates offloader/_proto from proto/*.proto. Also a command: `python hatch_build.py`."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a command, without the build backend
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent


def generate(root: Path = ROOT) -> None:
    """Write the generated modules and their type stubs."""
    out = root / "offloader" / "_proto"
    out.mkdir(exist_ok=True)
    (out / "__init__.py").write_text('"""Generated from proto/ at build time."""\n')
    sources = sorted(str(p) for p in (root / "proto").glob("*.proto"))
    include = str(resources.files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{root / 'proto'}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed: see above")


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Runs `generate` before a wheel, an sdist or an editable install is built."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:  # noqa: ARG002 (the hook's signature)
        """Called by hatchling before each build."""
        generate(Path(self.root))


if __name__ == "__main__":
    generate()
    sys.exit(0)
