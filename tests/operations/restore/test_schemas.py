"""What of the archived schemas goes to a target's registry, and which versions restored entries name."""

from __future__ import annotations

import pytest

from offloader.errors import AuthorizationFailedError, FatalError
from offloader.model import TopicName
from offloader.operations.restore.schemas import SchemaRegistry, SchemaVersions
from offloader.ports.admin import TopicSchema
from tests.operations.restore.registry import FakeRegistry, schemas_of

TARGET = TopicName.parse("public/default/again")
TRIED = TopicName.parse("public/default/tried")


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


def registry(fake: FakeRegistry, topic: TopicName = TARGET) -> SchemaRegistry:
    return SchemaRegistry(fake.rest(), topic)


def numbers(versions: SchemaVersions, *wanted: int) -> list[int]:
    return [int.from_bytes(versions.of(number.to_bytes(8))) for number in wanted]


def test_schemas_are_uploaded_in_order_and_keep_their_versions(fake: FakeRegistry) -> None:
    versions = registry(fake).upload(schemas_of("a", "b", "c"))
    assert fake.definitions(TARGET) == [("AVRO", "a"), ("AVRO", "b"), ("AVRO", "c")]
    assert numbers(versions, 0, 1, 2) == [0, 1, 2]
    uploads = len(fake.uploads)
    assert numbers(registry(fake).upload(schemas_of("a", "b", "c")), 0, 1, 2) == [0, 1, 2]
    assert len(fake.uploads) == uploads, "another call uploads nothing"


def test_partitions_have_the_schemas_of_their_topic(fake: FakeRegistry) -> None:
    registry(fake, TopicName.parse("public/default/again-partition-3")).upload(schemas_of("a"))
    assert fake.definitions(TARGET) == [("AVRO", "a")]


def test_versions_are_mapped_to_those_that_the_target_has(fake: FakeRegistry) -> None:
    fake.add(TARGET, *schemas_of("x", "b"))
    versions = registry(fake).upload(schemas_of("a", "b", "c", first=3))
    assert numbers(versions, 3, 4, 5) == [2, 1, 3]
    with pytest.raises(FatalError, match=r"name schema version 1, which is not archived.*another schema"):
        versions.of((1).to_bytes(8))
    assert numbers(versions, 0) == [0], "uploaded by hand, and taken by none that is archived"
    with pytest.raises(FatalError, match=r"has no schema version 9.*--ignore-schemas"):
        versions.of((9).to_bytes(8))


def test_what_is_no_version_of_pulsar_stays(fake: FakeRegistry) -> None:
    versions = registry(fake).upload([])
    assert versions.of(b"") == b""
    assert versions.of(b"\x01") == b"\x01"


def test_types_without_a_definition_are_not_uploaded(fake: FakeRegistry) -> None:
    """Such is what a deleted schema leaves."""
    versions = registry(fake).upload([*schemas_of("a"), TopicSchema(1, "NONE"), *schemas_of("b", first=2)])
    assert fake.definitions(TARGET) == [("AVRO", "a"), ("AVRO", "b")]
    assert numbers(versions, 0, 2) == [0, 1]


def test_keys_and_values_are_found_by_their_definition(fake: FakeRegistry) -> None:
    both = schemas_of('{"key":1,"value":2}', '{"key":1,"value":3}', kind="KEY_VALUE")
    fake.add(TARGET, *schemas_of("x"), both[1])
    assert registry(fake).missing(both) == [both[0]]
    assert numbers(registry(fake).upload(both), 0, 1) == [2, 1]


def test_a_schema_that_is_refused_is_named_with_the_remedy(fake: FakeRegistry) -> None:
    fake.refused = {"b"}
    with pytest.raises(FatalError, match=r"again: .* refuses schema version 1 \(AVRO\).*schemaCompatibilityStrategy"):
        registry(fake).upload(schemas_of("a", "b"))


def test_to_try_an_upload_leaves_nothing(fake: FakeRegistry) -> None:
    missing = schemas_of("a", "b")
    registry(fake).try_upload(missing, TRIED)
    assert fake.uploads == ["tried", "tried"]
    assert fake.topics == {}
    fake.refused = {"b"}
    with pytest.raises(FatalError, match=r"again: .* refuses schema version 1"):
        registry(fake).try_upload(missing, TRIED)
    assert fake.topics == {}


def test_to_try_an_upload_tries_it_behind_what_the_topic_has(fake: FakeRegistry) -> None:
    fake.add(TARGET, *schemas_of("x", "y"))
    fake.refused = {"y"}
    registry(fake).try_upload(schemas_of("a"), TRIED)  # `y` is there, whatever is in force by now
    fake.refused = {"a"}
    with pytest.raises(FatalError, match="refuses schema version 0"):
        registry(fake).try_upload(schemas_of("a"), TRIED)
    assert fake.definitions(TARGET) == [("AVRO", "x"), ("AVRO", "y")]


def test_who_may_not_upload_is_refused_when_it_is_tried(fake: FakeRegistry) -> None:
    fake.forbidden = True
    with pytest.raises(AuthorizationFailedError):
        registry(fake).try_upload(schemas_of("a"), TRIED)
    fake.add(TARGET, *schemas_of("a"))
    assert numbers(registry(fake).upload(schemas_of("a")), 0) == [0], "another role has uploaded it"
