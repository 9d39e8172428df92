"""The list of claims against the catalogs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offloader.archive.findings import Finding, FindingKind
from offloader.metadata.layout import CLAIMS, claim_key, parse_claim_key
from offloader.model import TopicName
from offloader.operations.verify.catalog_records import ReadCatalog
from offloader.ports.object_store import ObjectStore


def check_claims(store: ObjectStore, read: Mapping[TopicName, ReadCatalog], listed: Collection[str]) -> Iterator[Finding]:
    """Whether the list has all claims, and none that is over. What differs is looked at once more: it may have changed since."""
    claims = {topic: r.catalog.claim for topic, r in read.items()}
    owned = {
        claim_key(claim.application, topic): topic for topic, claim in claims.items() if claim is not None and claim.application
    }
    for key in sorted(owned.keys() - set(listed)):
        if store.stat(key) is None:
            yield Finding(FindingKind.MISSING_CLAIM, key, "the topic is claimed, and this does not say so", owned[key])
    damaged = {topic for topic, r in read.items() if not r.complete}
    for key in listed:
        said = parse_claim_key(key)
        if (
            key.startswith(f"{CLAIMS}/")
            and key not in owned
            and (said is None or said[1] not in damaged)
            and store.stat(key) is not None
        ):
            yield Finding(
                FindingKind.LEFT_OVER, key, "its topic is not claimed by this application, which looks into it at its next start"
            )
