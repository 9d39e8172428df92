"""Whether a target knows the schemas that entries name. An archive has their versions, not the schemas."""

from __future__ import annotations

from offloader.errors import FatalError
from offloader.model import TopicName
from offloader.pulsar.rest import RestClient


class Schemas:
    """Asks once a version. `ignore`: entries may name versions that the target does not have."""

    def __init__(self, rest: RestClient, target: TopicName, *, ignore: bool = False) -> None:
        self._rest = rest
        self._target = target
        self._known: set[bytes] = {b""}
        self._ignore = ignore

    def check(self, version: bytes) -> None:
        """Raises FatalError where the target has no such version. A version is 8 bytes, or it is not Pulsar's."""
        if version in self._known or self._ignore or len(version) != 8:
            return
        number = int.from_bytes(version, signed=True)
        if not self._has(number):
            raise FatalError(
                f"{self._target} has no schema version {number}, which archived entries name: upload the source's "
                "schemas in their order (pulsar-admin schemas upload), or restore with --ignore-schemas"
            )
        self._known.add(version)

    def _has(self, number: int) -> bool:
        base = TopicName.parse(self._target.partitioned_name)
        path = f"schemas/{base.tenant}/{base.namespace_part}/{base.encoded}/schema/{number}"
        response = self._rest.request("GET", path)
        if response.status_code == 404:
            return False
        if response.is_error:
            raise self._rest.error(path, response)
        return True
