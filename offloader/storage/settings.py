"""Where a store is and how to reach it, and its own options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from offloader.errors import ConfigError

_WITHOUT_OPTIONS = ("file", "memory")
_HAVE_ENDPOINTS = frozenset({"s3", "gs", "abfs"})
_OTHER_NAMES = {"gcs": "gs", "abfss": "abfs", "az": "abfs", "swebhdfs": "webhdfs"}  # of the same service


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a store is and how to reach it. Can be pickled; each process opens its own store.

    `root`: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `memory://name` (this
    process only), or a URL of fsspec. `endpoint` is for S3, Google and Azure, `region` and keys for S3; without keys
    the usual AWS chain decides (environment, profile, instance role), as Google's and Azure's do for theirs.
    `setting` is what errors call the root: a path of the configuration, an option of the command line.

    `store_settings` (`offloader/runtime/connections.py`) makes them of a configuration's section `storage`.
    """

    root: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    setting: str = field(default="root", compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ConfigError for a URL with a password: a URL is shown wherever something is said of its store."""
        with suppress(ValueError):  # what is no URL is refused where it is opened
            if urlsplit(self.root).password or urlsplit(self.endpoint or "").password:
                raise ConfigError(f"{self.setting}: the URL has a password in it; pass it as an option of the store")

    @property
    def scheme(self) -> str:
        """What stands before `://`, in lower case; "" where there is none."""
        scheme, separator, _ = self.root.partition("://")
        return scheme.lower() if separator else ""

    @property
    def takes_options(self) -> bool:
        """Whether there are options for stores of this scheme."""
        return self.scheme not in _WITHOUT_OPTIONS

    def beside(self, root: str, setting: str) -> Self:
        """Another store that is reached alike; without options and endpoint where it is another service's."""
        other = replace(self, root=root, setting=setting)
        services = {_OTHER_NAMES.get(scheme, scheme) for scheme in (self.scheme, other.scheme)}
        if len(services) == 1 or not self.takes_options:
            return other
        return replace(other, options=(), endpoint=None if services <= _HAVE_ENDPOINTS else self.endpoint)


def known_options(settings: StoreSettings, known: Sequence[str]) -> dict[str, str]:
    """The options of a store. Raises ConfigError where one is none of those that it knows."""
    options = dict(settings.options)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"options.{unknown[0]}: not an option of {settings.scheme}://; there are {', '.join(known)}")
    return options


def one_of(allowed: Collection[str], options: Mapping[str, str], name: str, default: str) -> str:
    """A word. Raises ConfigError where it is none of those that are allowed."""
    value = options.get(name, default)
    if value not in allowed:
        raise ConfigError(f"options.{name}: must be one of {', '.join(allowed)}")
    return value


def number(options: Mapping[str, str], name: str, default: float) -> float:
    """A number above 0. Raises ConfigError."""
    text = options.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"options.{name}: {text!r} is not a number above 0")
    return value
