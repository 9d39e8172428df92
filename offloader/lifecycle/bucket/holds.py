"""Which objects a policy's `hold` keeps: whatever is an orphan, nothing of a held topic goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from offloader.config.policies import Policies
from offloader.lifecycle.bucket.orphans import BucketOrphan, ObjectScan
from offloader.metadata.layout import RESCUED, topic_of
from offloader.model import TopicName

Held = Callable[[TopicName | None], str]
"""The name of the hold on a topic; "": nobody holds it. Of a topic that is not known (None): of any hold at all."""


def nobody(_: TopicName | None) -> str:
    """Nothing is held."""
    return ""


def holds(policies: Policies) -> Held:
    """As the configuration says it."""

    def held(topic: TopicName | None) -> str:
        if topic is not None:
            return str(policies.resolve("hold", policies.layers(topic.namespace, topic)).value)
        return next((name for each in policies.scopes() if (name := str(policies.resolve("hold", each).value))), "")

    return held


def why_held(held: Held, key: str, owner: TopicName | None, *, of_stock: bool) -> str:
    """Why an object stays because of a hold; "": none binds it. The topic is that of its path, whatever else is said of
    it. `owner`: for one of Pulsar's own offloader, whose path says nothing: what its metadata say."""
    if of_stock:
        topic = owner
    else:
        topic, _ = topic_of(key)
        if topic is None and key.startswith("_") and not key.startswith(f"{RESCUED}/"):
            return ""  # the root's own: it has nothing of any topic
    name = held(topic)
    unknown = "" if topic is not None else ", as far as anybody knows: it does not say of which topic it is"
    return f"held by {name}{unknown}" if name else ""


def why_orphan_held(held: Held, orphan: BucketOrphan) -> str:
    """The same of what a scan found."""
    return why_held(held, orphan.key, orphan.topic, of_stock=orphan.stock is not None)


def with_holds(scan: ObjectScan, held: Held) -> ObjectScan:
    """A scan as people are shown it: what is held stays, and says so."""

    def told(orphan: BucketOrphan) -> BucketOrphan:
        why = why_orphan_held(held, orphan)
        if not why:
            return orphan
        evidence = (*orphan.ruling.evidence, f"It stays as long as it is {why}.")
        return replace(orphan, ruling=replace(orphan.ruling, evidence=evidence, kept=True))

    return replace(scan, orphans=tuple(map(told, scan.orphans)))
