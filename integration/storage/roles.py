"""An S3 server with users and their policies, as docs/permissions.md has them: versitygw and its IAM service."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from integration import versitygw
from offloader.storage.s3_client import new_client
from offloader.storage.settings import StoreSettings
from tests.storage.servers import ACCESS_KEY, REGION, SECRET_KEY, S3Server, free_port, serving

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
BUCKET = "pulsar-archive"
ROOT = f"s3://{BUCKET}/production"
"""The bucket and the prefix of the page's policies."""
BROKERS = "pulsar-offload"
"""The bucket that brokers read."""

Statement = Mapping[str, Any]


def documented() -> dict[str, Statement]:
    """Every statement of the page's policies, by its Sid."""
    blocks = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.S | re.M)]
    found = [one for block in blocks for one in (block["Statement"] if isinstance(block, dict) else block)]
    statements = {one["Sid"]: one for one in found}
    assert len(statements) == len(found), "a Sid twice"
    return statements


@dataclass
class RoleServer:
    """`s3`: enforces what `iam` knows of its users."""

    s3: S3Server
    iam: Any
    _names: Iterator[int] = field(default_factory=itertools.count)

    def role(self, *sids: str) -> StoreSettings:
        """The root as a fresh user reaches it who has these statements of the page, word by word, and nothing else."""
        known = documented()
        policy = {"Version": "2012-10-17", "Statement": [known[sid] for sid in sids]}
        name = f"role-{next(self._names)}"
        self.iam.create_user(UserName=name)
        self.iam.put_user_policy(UserName=name, PolicyName="documented", PolicyDocument=json.dumps(policy))
        key = self.iam.create_access_key(UserName=name)["AccessKey"]
        return StoreSettings(ROOT, self.s3.url, REGION, key["AccessKeyId"], key["SecretAccessKey"])

    def administrator(self) -> StoreSettings:
        """The same root for who may do everything."""
        return self.s3.settings(ROOT)


@contextmanager
def running(folder: Path) -> Iterator[RoleServer]:
    """Both services, and the page's bucket. Nothing is cached between them."""
    port, iam_port, private = free_port(), free_port(), folder / "private"
    for name in ("data", "users"):
        (folder / name).mkdir(parents=True)
    owner = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"]
    users = [*_at(iam_port), *owner, "iam", "--dir", str(folder / "users"), "--private-ports", str(private)]
    asks = ["--iam-standalone-endpoint", str(private), "--iam-cache-disable"]
    with (
        _served(users, iam_port, folder / "iam-log") as iam,
        serving([*_at(port), *owner, *asks, "posix", str(folder / "data")], port, folder / "log") as server,
    ):
        client = new_client(server.settings(""), Config())
        client.create_bucket(Bucket=BUCKET)
        client.create_bucket(Bucket=BROKERS)
        client.close()
        yield RoleServer(server, iam)


def _at(port: int) -> list[str]:
    return [str(versitygw.binary()), "--port", f"127.0.0.1:{port}"]


@contextmanager
def _served(command: Sequence[str], port: int, log: Path) -> Iterator[Any]:
    """A client of the IAM service."""
    with serving(command, port, log, bucket=False) as server:
        client = boto3.client(
            "iam",
            endpoint_url=server.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        yield client
        client.close()
