"""Whether the objects of bridged ledgers are still in the bucket, as long as brokers list these ledgers: brokers look
for them only when somebody reads."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.bridge.objects import BridgedObjects
from offloader.metadata.bridges import BridgedLedger
from offloader.model import TopicName
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore


def broken_objects(
    admin: Admin, bucket: ObjectStore, topic: TopicName, ledgers: Iterable[BridgedLedger]
) -> dict[int, str]:
    """What is wrong with the objects of those that are listed, by ledger: presence and size, two requests a ledger.
    Brokers take a ledger off the list and then delete its objects, so the list is asked for after an object is missed,
    and then the object again. Raises what both raise."""
    objects, known = BridgedObjects(bucket), tuple(ledgers)
    suspects = objects.faults(known)
    if not suspects:
        return {}
    listed = admin.topic_info(topic).ledgers
    return objects.faults(one for one in known if one.ledger in suspects and one.ledger in listed)
