"""`offloader orphans …`: what nobody refers to, in BookKeeper and in the bucket, and what becomes of it."""

from __future__ import annotations

import click


@click.group()
def orphans() -> None:
    """What nobody refers to: ledgers in BookKeeper, objects in the bucket."""
