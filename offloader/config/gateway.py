"""The section `gateway`: archived topics for Pulsar's own clients."""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from offloader.config.section import Section
from offloader.config.units import Size, Wait
from offloader.model import MIB

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s/]+):(?P<port>[0-9]{1,5})")
_TOLD = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\[\]:,@\s]+)(?::[0-9]{1,5})?")
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (addresses that are listened on, and are none to connect to)
_NAMESPACES = re.compile(r"\*|[^/\s*]+/(?:\*|[^/\s*]+)")
_DURABLE = ("durable_roles", "durable_acks", "subscriptions_per_topic", "subscriptions_per_role")
"""What is for durable subscriptions alone; intervals may stay where these are switched off for a while."""


class OnLoss(StrEnum):
    """What a loss, a deletion or damage does to those who read on to it."""

    FAIL = "fail"
    SKIP = "skip"


class AtEnd(StrEnum):
    """What becomes of those who have read everything that is archived."""

    WAIT = "wait"
    END = "end"


class GatewayTls(Section):
    """TLS for clients, beside what is open without it or instead of that."""

    listen: str = Field("127.0.0.1:6651", description="Address and port for clients, `pulsar+ssl://`.")
    http_listen: str = Field("", description="Address and port for `https://` service URLs. By default nothing.")
    advertised: str = Field(
        "", description="What clients are told to connect to, `pulsar+ssl://host:port`. By default `listen`."
    )
    certificate: str = Field(
        description="PEM file of the certificate and those that it needs. Read again when it changes."
    )
    key: str = Field(description="PEM file of its private key, without a password.")
    client_ca: str | None = Field(
        None, description="PEM file: clients must show a certificate that one of these has signed."
    )

    @field_validator("listen", "http_listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        return checked_address(value)

    @field_validator("advertised")
    @classmethod
    def _advertised(cls, value: str) -> str:
        return checked_advertised(value, "pulsar+ssl")


class Gateway(Section):
    """A server that speaks Pulsar's protocol and reads the archive (`offloader gateway`)."""

    listen: str = Field(
        "127.0.0.1:6650",
        description="Address and port for clients, `pulsar://`. Port 0: any free one. Empty: they come by TLS alone.",
    )
    http_listen: str = Field(
        "", description="Address and port for clients with an `http://` service URL. By default nothing."
    )
    tls: GatewayTls | None = None
    advertised: str = Field(
        "",
        description="What clients are told to connect to, `pulsar://host:port`: how they reach this very gateway. By "
        "default the address that it listens on.",
    )
    token_public_key: str | None = Field(
        None,
        description="The public key that clients' tokens (JWT) must be signed for: `file:///path`, or "
        "`data:;base64,KEY`, as brokers have it; DER or PEM. A file is read again when it changes.",
    )
    token_secret_key: SecretStr | None = Field(
        None, description="Instead of it the secret key that they must be signed with, in the same forms."
    )
    token_auth_claim: str = Field("sub", min_length=1, description="The claim of a token that names the role.")
    token_audience: str | None = Field(
        None, description="Only tokens for this audience are good. By default nobody looks."
    )
    token_audience_claim: str = Field("aud", min_length=1, description="The claim that names it.")
    roles: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="The namespaces that each role may read: `tenant/namespace`, `tenant/*` or `*`. The role `*` is "
        "everybody with a token.",
    )
    durable_subscriptions: bool = Field(
        False,
        description="Let clients have durable subscriptions, which the gateway keeps in the bucket and retention waits "
        "for. By default clients read with readers and non-durable subscriptions, and nothing is written.",
    )
    durable_roles: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="The namespaces in which each role may have durable subscriptions, in the form of `roles`. "
        "Retention waits for each of them. By default none: `roles` alone lets clients read with readers. With "
        "`anyoneMayRead` only the role `*` is possible. A gateway without tokens that only listens on loopback "
        "addresses lets every client subscribe unless this is set.",
    )
    subscriptions_per_topic: int = Field(
        1_000,
        ge=1,
        description="Maximum number of durable subscriptions of a topic. The number of names, deleted subscriptions "
        "included, is limited to ten times as many: the bucket keeps one small object of each.",
    )
    subscriptions_per_role: int = Field(
        100,
        ge=1,
        description="Maximum number of durable subscriptions of a topic that one role has created. Clients without a "
        "token have no role.",
    )
    anyone_may_read: bool = Field(
        False,
        description="Without a token's key everybody who reaches the port reads everything. So only the loopback "
        "address can be listened on, unless this is `true`.",
    )
    durable_acks: bool = Field(
        False,
        description="Answer an acknowledgement that asks for an answer only once it is in the bucket. Brokers answer "
        "before anything is stored.",
    )
    on_loss: OnLoss = Field(
        OnLoss.FAIL,
        description="What a recorded loss, a deletion or damage does: `fail` refuses those who subscribe before it, "
        "with the reason; `skip` passes over it, and counts it as acknowledged.",
    )
    at_end: AtEnd = Field(
        AtEnd.WAIT,
        description="What becomes of those who have read everything that is archived: `wait` gives them what is sealed "
        "later; `end` gives them nothing more until somebody subscribes anew.",
    )
    flush_interval_ms: Wait = Field(
        5_000,
        gt=0,
        description="How often new acknowledgements are written: a request for each subscription that has some.",
    )
    refresh_interval_ms: Wait = Field(
        5_000, gt=0, description="How often topics that are read are looked at for segments that were sealed since."
    )
    claim_interval_ms: Wait = Field(
        5_000,
        gt=0,
        description="How often the gateway looks whether another one has taken over topics of its own: one request for "
        "a thousand topics.",
    )
    metrics_listen: str = Field(
        "127.0.0.1:9466",
        description="Address and port for `/metrics`, `/healthz`, `/readyz` and `/status`, which `offloader gateway "
        "status` asks. Empty: none. At an address of loopback only this machine is answered, as `localhost` or "
        "`127.0.0.1`; any other address has no access control.",
    )
    connections: int = Field(1_000, ge=1, description="Most connections at a time.")
    connections_per_role: int | None = Field(
        None,
        ge=1,
        description="Most connections of one role, so that none takes those of all others. By default no bound of its "
        "own. Without tokens everybody is one role.",
    )
    consumers: int = Field(50_000, ge=1, description="Most consumers and readers at a time, of all connections.")
    consumers_per_role: int | None = Field(
        None, ge=1, description="Most consumers and readers of one role. By default no bound of its own."
    )
    memory: Size = Field(
        512 * MIB,
        ge=16 * MIB,
        description="What may wait for clients, of all connections and subscriptions together: entries that sockets "
        "have not taken, and those that were read ahead. Each has 64K and one entry all the same.",
    )
    max_individual_ack_cache_bytes_per_cursor: Size = Field(
        3 * MIB,
        gt=0,
        alias="maxIndividualAckCacheBytesPerCursor",
        description="Memory for what a subscription has acknowledged one by one (PIP-81). Beyond it whole ledgers are "
        "in the bucket alone.",
    )
    enable_lru_cache_max_unacked_ranges: bool = Field(
        True,
        alias="enableLruCacheMaxUnackedRanges",
        description="Keep that bound (PIP-81). `false`: all of it stays in memory.",
    )

    @field_validator("listen", "http_listen", "metrics_listen")
    @classmethod
    def _listen(cls, value: str) -> str:
        return checked_address(value)

    @field_validator("advertised")
    @classmethod
    def _advertised(cls, value: str) -> str:
        return checked_advertised(value, "pulsar")

    @field_validator("at_end", mode="before")
    @classmethod
    def _at_end(cls, value: object) -> object:
        if value == "handOver":
            raise ValueError(
                "handOver was removed (1db0db3f is the last commit that has it): write wait or end, and configure "
                "clients to go on at the brokers by themselves"
            )
        return value

    @field_validator("roles", "durable_roles", mode="before")
    @classmethod
    def _one_namespace(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {role: [said] if isinstance(said, str) else said for role, said in value.items()}

    @field_validator("roles", "durable_roles")
    @classmethod
    def _roles(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for namespace in (namespace for namespaces in value.values() for namespace in namespaces):
            if _NAMESPACES.fullmatch(namespace) is None:
                raise ValueError(f"{namespace!r} is no namespace; write tenant/namespace, tenant/* or *")
        return value

    @property
    def asks_for_tokens(self) -> bool:
        """Whether clients must say who they are."""
        return self.token_public_key is not None or self.token_secret_key is not None

    @model_validator(mode="after")
    def _somebody_says_who_may_read(self) -> Self:
        if self.token_public_key is not None and self.token_secret_key is not None:
            raise ValueError("tokens are signed with one key: set tokenPublicKey or tokenSecretKey")
        if self.asks_for_tokens and not self.roles:
            raise ValueError("nobody may read anything: say who may, for example roles: {reader: [public/default]}")
        if self.asks_for_tokens and self.anyone_may_read:
            raise ValueError("a token's key is set and anyoneMayRead is true; remove one of them")
        if (self.roles or self.durable_roles.keys() - {"*"}) and not self.asks_for_tokens:
            raise ValueError("roles are those of tokens: set tokenPublicKey or tokenSecretKey")
        return self

    @model_validator(mode="after")
    def _durable_settings_are_used(self) -> Self:
        for name in _DURABLE if not self.durable_subscriptions else ():
            field = type(self).model_fields[name]
            if getattr(self, name) != field.get_default(call_default_factory=True):
                raise ValueError(
                    f"{field.alias} is set and durableSubscriptions is false; set that to true, or remove {field.alias}"
                )
        return self

    @model_validator(mode="after")
    def _nobody_else_reaches_it(self) -> Self:
        tls = (self.tls.listen, self.tls.http_listen) if self.tls is not None else ()
        if not self.listen and not any(tls[:1]):
            raise ValueError("nothing is listened on; set listen, or tls")
        if self.asks_for_tokens or self.anyone_may_read:
            return self
        for address in (self.listen, self.http_listen, *tls):
            if address and not is_loopback(address_of(address)[0]):
                raise ValueError(
                    f"whoever reaches {address} would read everything: set tokenPublicKey and roles, "
                    "or anyoneMayRead: true if that is what you want"
                )
        return self

    @model_validator(mode="after")
    def _clients_are_told_where_it_is(self) -> Self:
        told = [("listen", self.listen, self.advertised, "pulsar")]
        if self.tls is not None:
            told.append(("tls.listen", self.tls.listen, self.tls.advertised, "pulsar+ssl"))
        for name, listen, advertised, scheme in told:
            if listen and not advertised and address_of(listen)[0] in _EVERYWHERE:
                raise ValueError(
                    f"{name} is {listen}, which no client can connect to; set {name.replace('listen', 'advertised')}, "
                    f"for example {scheme}://gateway.example:{address_of(listen)[1]}"
                )
        return self


def checked_address(listen: str) -> str:
    """An address to listen on, or nothing. Raises ValueError."""
    if listen:
        address_of(listen)
    return listen


def checked_advertised(url: str, scheme: str) -> str:
    """What clients are told, or nothing. Raises ValueError."""
    if url and (urlsplit(url).scheme != scheme or _TOLD.fullmatch(urlsplit(url).netloc) is None):
        raise ValueError(
            f"{url!r} is no address of a gateway; write for example {scheme}://gateway.example:6650, or "
            f"{scheme}://[fd00::1]:6650"
        )
    return url


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(listen: str) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    found = _ADDRESS.fullmatch(listen)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError(f"{listen!r} is no address to listen on; write for example 127.0.0.1:6650")
    return found["host"].strip("[]"), int(found["port"])
