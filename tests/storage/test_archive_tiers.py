"""Objects that a life cycle rule has moved to an archive tier of a real S3 server."""

from __future__ import annotations

import pytest
from botocore.config import Config

from offloader.archive.findings import FindingKind
from offloader.errors import ObjectArchivedError
from offloader.metadata.layout import data_key
from offloader.operations.verify.verify import verify
from offloader.storage.s3_client import new_client
from tests.archive.support import TOPIC, Archive, stream
from tests.storage.servers import S3Server, Stores


def test_verify_names_them_and_goes_on_and_a_reader_is_told_what_to_do(moto: S3Server, stores: Stores) -> None:
    settings = moto.settings(moto.fresh_root())
    store = stores.open(settings)
    archive = Archive(store)
    archive.claim()
    archive.add(stream(1, 0, 60), closed={1: 60})
    archive.add(stream(2, 0, 60), closed={2: 60})
    key = data_key(TOPIC, archive.catalog.segments[0].uuid)
    bucket, _, prefix = settings.root.removeprefix("s3://").partition("/")
    place = {"Bucket": bucket, "Key": f"{prefix}/{key}"}
    new_client(settings, Config()).copy_object(**place, CopySource=place, StorageClass="GLACIER")
    with pytest.raises(ObjectArchivedError, match="archive tier; restore it there"):
        store.read(key)
    (found,) = verify(store).findings
    assert (found.kind, found.key) == (FindingKind.ARCHIVED_OBJECT, key)
