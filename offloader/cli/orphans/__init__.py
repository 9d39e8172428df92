"""`offloader orphans …`: what nobody refers to, in BookKeeper and in the bucket, and what becomes of it."""

from __future__ import annotations

import click

from offloader.cli.groups import SpreadGroup

MODULES = tuple(
    f"offloader.cli.orphans.{name}"
    for name in ("decide", "explain", "pending", "purge", "quarantine", "rescue", "rescued", "scan")
)


@click.group(cls=SpreadGroup, modules=MODULES)
def orphans() -> None:
    """What nobody refers to: ledgers in BookKeeper, objects in the bucket."""
