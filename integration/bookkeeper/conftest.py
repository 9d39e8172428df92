"""One cluster of five bookies for everything here, and what its logs say when a test fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from integration.bookkeeper.cluster import BookKeeperCluster
from integration.starting import started

_LOG_LINES = 15
_CLUSTER = pytest.StashKey[BookKeeperCluster]()


@pytest.fixture(scope="session")
def shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[BookKeeperCluster]:
    with started(tmp_path_factory.mktemp("bookkeeper"), lambda folder: BookKeeperCluster(folder, bookies=5)) as cluster:
        request.session.stash[_CLUSTER] = cluster
        yield cluster


@pytest.fixture
def cluster(shared_cluster: BookKeeperCluster) -> BookKeeperCluster:
    """ZooKeeper and five running bookies, whatever the test before did to them."""
    shared_cluster.all_back()
    return shared_cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster = item.session.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None:
        for log in sorted(cluster.directory.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            report.sections.append((str(log), "\n".join(lines)))
    return report
