"""The schemas of a restored topic, in the target's schema registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from offloader.errors import FatalError
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from offloader.pulsar.rest import RestClient
from offloader.pulsar.schema_rest import schema_versions, schemas_path, version_number

BY_HAND = "upload the source's schemas in their order (pulsar-admin schemas upload), or restore with --ignore-schemas"
KEY_VALUE = "KEY_VALUE"
WITHOUT_DEFINITION = {"NONE", "BYTES"}  # a registry takes no upload of these
REFUSED = {409, 422}  # not compatible, not valid
NOTHING_THERE = {401, 403, 404}  # a role that may not delete schemas may not upload them either
NO_VERSION = -1


class SchemaRefusedError(FatalError):
    """The registry takes a schema not at all, or not behind the ones that it has."""


class SchemaVersions:
    """The version in the target of each schema version that archived entries name. `mapped`: by archived version.
    `has`: whether the target has a version; asked about versions whose schemas are not archived."""

    def __init__(self, target: TopicName, mapped: Mapping[int, int], has: Callable[[int], bool]) -> None:
        self._target = target
        self._mapped = dict(mapped)
        self._taken = set(mapped.values())
        self._has = has

    def of(self, version: bytes) -> bytes:
        """Raises FatalError where the target has no such version. A version is 8 bytes, or it is not Pulsar's."""
        if len(version) != 8:
            return version
        number = int.from_bytes(version, signed=True)
        if number not in self._mapped:
            self._check_there(number)
            self._mapped[number] = number
        return self._mapped[number].to_bytes(8, signed=True)

    def _check_there(self, number: int) -> None:
        """A version that is not archived: uploaded by hand, as the same number."""
        if number in self._taken:
            raise FatalError(
                f"{self._target}: archived entries name schema version {number}, which is not archived, and the "
                f"target's version {number} is another schema: {BY_HAND}"
            )
        if not self._has(number):
            raise FatalError(
                f"{self._target} has no schema version {number}, which archived entries name and the archive does not "
                f"have: {BY_HAND}"
            )


class SchemaRegistry:
    """The schemas of one topic of the target's cluster; those of a partitioned topic belong to all its partitions."""

    def __init__(self, rest: RestClient, topic: TopicName) -> None:
        self._rest = rest
        self._topic = topic
        self._path = schemas_path(topic)

    def missing(self, schemas: Sequence[TopicSchema]) -> list[TopicSchema]:
        """The schemas that the topic does not have, in order."""
        return [schema for schema in _uploadable(schemas) if self._version(schema) is None]

    def expected(self, schemas: Sequence[TopicSchema]) -> SchemaVersions:
        """The versions that entries may name once all of these are uploaded."""
        return SchemaVersions(
            self._topic, {schema.version: schema.version for schema in _uploadable(schemas)}, self.has
        )

    def upload(self, schemas: Sequence[TopicSchema]) -> SchemaVersions:
        """Upload the missing ones in order. Raises FatalError where the registry refuses one."""
        mapped: dict[int, int] = {}
        for schema in _uploadable(schemas):
            version = self._version(schema)
            mapped[schema.version] = self._put(schema, self._topic) if version is None else version
        return SchemaVersions(self._topic, mapped, self.has)

    def try_upload(self, schemas: Sequence[TopicSchema], name: TopicName) -> None:
        """Upload the topic's schemas, and these behind them, under a name that no topic has, and delete them. Raises
        FatalError where the registry refuses one of these: only it knows which schemas are compatible."""
        trial = SchemaRegistry(self._rest, name)
        try:
            for schema in _uploadable(self._schemas()):
                with suppress(SchemaRefusedError):  # its own: another strategy was in force then
                    trial._put(schema, self._topic)
            for schema in schemas:
                trial._put(schema, self._topic)
        finally:
            trial._delete()

    def has(self, number: int) -> bool:
        """Whether the topic has a schema version."""
        return self._found(f"{self._path}/schema/{number}") is not None

    def _schemas(self) -> tuple[TopicSchema, ...]:
        found = self._found(f"{self._path}/schemas")
        return () if found is None else schema_versions(found)

    def _version(self, schema: TopicSchema) -> int | None:
        """The version under which the topic has the schema. The registry compares definitions as it does when one is
        uploaded; of two in one it is not able to (KEY_VALUE)."""
        if schema.type == KEY_VALUE:
            same = (known for known in self._schemas() if (known.type, known.data) == (schema.type, schema.data))
            return next((known.version for known in same), None)
        path = f"{self._path}/version"
        response = self._rest.request("POST", path, body=_payload(schema))
        version = NO_VERSION if response.status_code == 404 else version_number(self._rest.json_of(path, response))
        return version if version > NO_VERSION else None

    def _put(self, schema: TopicSchema, topic: TopicName) -> int:
        path = f"{self._path}/schema"
        response = self._rest.request("POST", path, body=_payload(schema))
        if response.status_code in REFUSED:
            raise SchemaRefusedError(
                f"{topic}: the target refuses schema version {schema.version} ({schema.type}): "
                f"{self._rest.error(path, response)}; set a schemaCompatibilityStrategy of the target's namespace that "
                "allows it, or restore with --ignore-schemas"
            )
        return version_number(self._rest.json_of(path, response))

    def _delete(self) -> None:
        path = f"{self._path}/schema"
        response = self._rest.request("DELETE", path, force="true")
        if response.is_error and response.status_code not in NOTHING_THERE:
            raise self._rest.error(path, response)

    def _found(self, path: str) -> Any:
        """What a path gives; None: it is not there."""
        response = self._rest.request("GET", path)
        return None if response.status_code == 404 else self._rest.json_of(path, response)


def _uploadable(schemas: Sequence[TopicSchema]) -> list[TopicSchema]:
    return [schema for schema in schemas if schema.type not in WITHOUT_DEFINITION]


def _payload(schema: TopicSchema) -> Mapping[str, Any]:
    return {"type": schema.type, "schema": schema.data.decode(), "properties": dict(schema.properties)}
