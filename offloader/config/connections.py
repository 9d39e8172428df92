"""The sections `pulsar` and `storage`: what we connect to."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from offloader.bookkeeper.uri import parse_uri
from offloader.config.levels import ChosenSource
from offloader.config.section import Section
from offloader.config.units import Wait
from offloader.config.urls import AZURE_SCHEMES, store_url
from offloader.errors import ConfigError
from offloader.model import Source
from offloader.pulsar.auth import UNFIT, is_token

_LABEL = r"[A-Za-z0-9_-]{1,63}"  # the name service refuses empty and longer ones
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?"
_ACCOUNT = r"(?:/[a-z0-9]{3,24})?"  # behind the host, where one has several
_WITH_ENDPOINT = ("s3", "gs", "gcs", *AZURE_SCHEMES)
_AUTH_PARAMS = ("token:", "file:")
_TOKEN_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"  # noqa: S105 (a class's name)


def _url(scheme: str, example: str, path: str = "") -> AfterValidator:
    """Refuses what is no such URL of one or more hosts; takes a slash at its end off. `path`: what may follow."""
    pattern = re.compile(rf"{scheme}://{_HOST}(?:,{_HOST})*{path}/?")

    def check(value: str | None) -> str | None:
        if value is not None and pattern.fullmatch(value) is None:
            raise ValueError(f"not such a URL; write {example}")
        return value and value.rstrip("/")

    return AfterValidator(check)


class BookiesSection(Section):
    """How to reach bookies, where `pulsar.metadataServiceUri` is set."""

    tls: bool = Field(
        False,
        description=(
            "Upgrade connections to TLS. Small entries are then read more slowly: a bookie sends them one by one."
        ),
    )
    tls_trust_certs_file_path: str | None = Field(
        None, description="PEM file of trusted certificates; the system's by default."
    )
    tls_certificate_file_path: str | None = Field(
        None, description="PEM file of our own certificate, where bookies ask for one."
    )
    tls_key_file_path: str | None = Field(
        None, description="PEM file of its private key, where that is not in the same file."
    )
    tls_allow_insecure_connection: bool = Field(False, description="Accept any certificate. For tests only.")
    tls_hostname_verification: bool = Field(True, description="Refuse a certificate made out to another host.")
    connection_timeout_ms: Wait = Field(10_000, gt=0, description="How long a connection may take to be made.")
    operation_timeout_ms: Wait = Field(
        10_000, gt=0, description="How long a bookie, or the metadata service, may take to answer."
    )

    @model_validator(mode="after")
    def _only_with_tls(self) -> Self:
        named = [self.tls_trust_certs_file_path, self.tls_certificate_file_path, self.tls_key_file_path]
        if any(named) and not self.tls:
            raise ValueError("TLS files are named but tls is not true; set tls: true")
        return self


class Pulsar(Section):
    """How to reach the Pulsar cluster, and who we are there."""

    service_url: Annotated[str, _url(r"pulsar(?:\+ssl)?", "pulsar://host:6650 or pulsar+ssl://host:6651")] = Field(
        description="The brokers' (or proxy's) binary URL, `pulsar://host:6650` or `pulsar+ssl://host:6651`."
    )
    admin_url: Annotated[str, _url("https?", "http://host:8080 or https://host:8443")] = Field(
        description="The admin REST URL, `http://host:8080` or `https://host:8443`."
    )
    source: ChosenSource = Field(
        Source.BROKER,
        description="Where entries are read from; policies may override it for a namespace or a topic.",
    )
    metadata_service_uri: str | None = Field(
        None,
        description="The ZooKeeper that BookKeeper keeps its metadata in, as brokers have it: "
        "`zk://host1:2181,host2:2181/ledgers`. Needed by source `bookkeeper`; source `broker` fills its gaps from "
        "bookies where it is set.",
    )
    bookies: BookiesSection = BookiesSection()
    entries_are_exact: bool = Field(
        False,
        description="Vouch for the brokers where our role may not read their runtime configuration (only super users "
        "may): broker.conf has `exposingBrokerEntryMetadataToClientEnabled=true`, or no "
        "`brokerEntryMetadataInterceptors`.",
    )
    subscription: str = Field(
        "__offloader",
        min_length=1,
        description="Name of the durable subscription that keeps what is not yet offloaded.",
    )
    auth_plugin: Literal["none", "token"] = Field(
        "none", description="How we prove who we are; Pulsar's class name for `token` is accepted too."
    )
    auth_params: SecretStr | None = Field(
        None,
        description="For `token`: `token:TEXT` or `file:///path`, read again at each connection.",
    )
    tls_trust_certs_file_path: str | None = Field(
        None, description="PEM file of trusted certificates; the system's by default."
    )
    tls_allow_insecure_connection: bool = Field(False, description="Accept any certificate. For tests only.")
    tls_hostname_verification: bool = Field(True, description="Refuse a certificate made out to another host.")
    connection_timeout_ms: Wait = Field(10_000, gt=0, description="How long a connection may take to be made.")
    operation_timeout_ms: Wait = Field(30_000, gt=0, description="How long a broker may take to answer one call.")
    keep_alive_ms: Wait = Field(30_000, gt=0, description="How often a silent connection is probed.")

    @field_validator("metadata_service_uri")
    @classmethod
    def _metadata_service_uri(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse_uri(value, "")
            except ConfigError as error:
                raise ValueError(str(error).removeprefix(": ")) from error
        return value

    @field_validator("auth_plugin", mode="before")
    @classmethod
    def _auth_plugin(cls, value: object) -> object:
        return "token" if value == _TOKEN_PLUGIN else value

    @field_validator("auth_params")
    @classmethod
    def _auth_params(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value() if value is not None else "token:"
        if not text.startswith(_AUTH_PARAMS):
            raise ValueError("write token:TEXT or file:///path")
        if text.startswith("token:") and not is_token(text.strip()):
            raise ValueError(f"the token {UNFIT}")
        return value

    @model_validator(mode="after")
    def _authentication_is_complete(self) -> Self:
        if self.auth_plugin == "token" and self.auth_params is None:
            raise ValueError("authPlugin token needs authParams, for example file:///etc/offloader/token")
        if self.auth_plugin == "none" and self.auth_params is not None:
            raise ValueError("authParams is set but authPlugin is none; set authPlugin: token")
        return self


class Storage(Section):
    """Where segments, catalog and journal are kept."""

    root: str = Field(
        description="`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, "
        "`webhdfs://namenode:9870/folder`, `file:///folder`, or the URL of an fsspec file system. For Azure also "
        "`abfss://container@account.dfs.core.windows.net/prefix`."
    )
    endpoint: Annotated[str | None, _url("https?", "http://host:9000 or https://host", _ACCOUNT)] = Field(
        None,
        description="The service's URL where it is not AWS or Google, `http://host:9000`; the URL of Azure's account "
        "where its name does not tell it, `https://host/account`. S3, Google and Azure only; Google's credentials, and "
        "our own identity in Azure, are not sent to `http://`.",
    )
    region: str | None = Field(None, description="The S3 region; by default what the AWS configuration says. S3 only.")
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="For an fsspec file system: passed on by name, numbers and true or false as such. For S3: "
        "`retry_deadline`, `connect_timeout`, `read_timeout` (seconds), `max_connections`, `addressing_style` "
        "(`auto`, `path`, `virtual`), `payload_signing` (`auto`: over `http://`, but no parts, whose CRC32C is sent; "
        "`always`; `never`: saves SHA-256 of all that is sent, where nobody can change it on its way), "
        "`server_side_encryption` (`AES256`, `aws:kms`, `aws:kms:dsse`), `kms_key_id`, `storage_class` (of data "
        "objects), `request_payer` (`requester`). For Google: the first four of these, and `user_project` (who pays). "
        "For Azure: the first four of these, `account_name`, and one of `account_key`, "
        "`sas_token` and `connection_string` (else what the environment has, else our own identity). "
        "For HDFS: the first four of these, `user`, `delegation`, `standby` (more namenodes). Not for `file://`.",
    )

    @property
    def scheme(self) -> str:
        """`s3`, `gs`, `az`, `file`, or fsspec's name of a file system."""
        return urlsplit(self.root).scheme

    @field_validator("root")
    @classmethod
    def _root(cls, value: str) -> str:
        return store_url(value)

    @model_validator(mode="after")
    def _only_what_the_store_reads(self) -> Self:
        if self.endpoint and self.scheme not in _WITH_ENDPOINT:
            raise ValueError(f"endpoint is for s3://, gs:// and az:// only; root is {self.root}")
        if self.endpoint and urlsplit(self.endpoint).path and self.scheme not in AZURE_SCHEMES:
            raise ValueError("endpoint: this service's URL has no path; write http://host:9000 or https://host")
        if self.region and self.scheme != "s3":
            raise ValueError(f"region is for s3:// only; root is {self.root}")
        if self.scheme == "file" and self.options:
            raise ValueError("options are not for file://; remove them")
        return self
