"""Which shard of the configured application a command speaks to about a topic."""

from __future__ import annotations

from offloader.cli.command import CommandSession
from offloader.metadata.deal import is_shard_of
from offloader.model import TopicName
from offloader.offload.settings import deal


def shard_to_ask(session: CommandSession, topic: TopicName) -> str:
    """The name of the shard that has the topic; where none has it, of the one to which it is dealt."""
    config = session.config
    if config.shards is None:
        return config.application
    owner = "" if (claim := session.catalogs.head(topic).claim) is None else claim.application
    return owner if is_shard_of(owner, config.application) else deal(config).owner_of(topic)


def is_ours(session: CommandSession, owner: str) -> bool:
    """Whether an owner is the configured application, or a shard of it."""
    config = session.config
    return owner == config.application if config.shards is None else is_shard_of(owner, config.application)
