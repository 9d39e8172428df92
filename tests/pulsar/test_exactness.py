"""Entries are exact only where the broker does not take its own metadata off."""

import pytest

from offloader.errors import InexactBytesError
from offloader.pulsar.exactness import EXPOSING, check_exactness

INTERCEPTORS = "brokerEntryMetadataInterceptors"


@pytest.mark.parametrize("interceptors", ["", "[]", "[org.example.A, org.example.B]"])
def test_exposed_metadata_is_exact(interceptors):
    check_exactness({EXPOSING: "true", INTERCEPTORS: interceptors})


@pytest.mark.parametrize("interceptors", ["", "[]", " "])
def test_no_metadata_is_exact(interceptors):
    check_exactness({EXPOSING: "false", INTERCEPTORS: interceptors})
    check_exactness({})


def test_hidden_metadata_is_refused_with_a_remedy():
    with pytest.raises(InexactBytesError, match=f"set {EXPOSING}=true in broker.conf, or use the source bookkeeper"):
        check_exactness({EXPOSING: "false", INTERCEPTORS: "[org.example.A]"})
