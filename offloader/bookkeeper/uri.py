"""Metadata service URIs, as BookKeeper and Pulsar write them. Pure.

zk://h1:2181,h2:2181/ledgers        BookKeeper's; also zk+hierarchical, zk+longhierarchical, zk+flat, zk+null; ; or ,
zk:h1:2181,h2:2181/chroot           Pulsar's; also metadata-store:zk:…; BookKeeper's nodes are below <chroot>/ledgers
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from offloader.bookkeeper.layout import Layout
from offloader.errors import ConfigError

SETTING = "pulsar.metadataServiceUri"
DEFAULT_PORT = 2181
_LEDGERS = "/ledgers"

_STORE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LAYOUTS = {layout.value: layout for layout in (Layout.FLAT, Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL)}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?)(?::([0-9]{1,5}))?")
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\x00-\x20]+)*")


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """A ZooKeeper and a cluster in it. `root`: BookKeeper's nodes. `layout`: how ledgers must be kept; None: any."""

    hosts: tuple[str, ...]
    root: str = _LEDGERS
    layout: Layout | None = None

    @property
    def managed_ledgers(self) -> str:
        """The path of Pulsar's managed ledgers: Pulsar's nodes are beside BookKeeper's root."""
        return self.root.rpartition("/")[0] + "/managed-ledgers"

    def __str__(self) -> str:
        scheme = f"zk+{self.layout.value}" if self.layout else "zk"
        return f"{scheme}://{','.join(self.hosts)}{self.root}"


def parse_uri(text: str, setting: str = SETTING) -> MetadataUri:
    """Read a URI. Raises ConfigError, which names `setting`, also for stores other than ZooKeeper."""
    match = _STORE.fullmatch(text.strip().removeprefix("metadata-store:"))
    scheme, rest = (match[1].lower(), match[2]) if match else ("", "")
    store, _, layout = scheme.partition("+")
    if store != "zk":
        if match is None or _HOST.fullmatch(store + ":" + re.split("[,;/]", rest)[0]):
            raise ConfigError(f"{setting}: {text!r} does not name a store; write zk://host:2181/ledgers")
        raise ConfigError(f"{setting}: {text!r}: metadata can be read from ZooKeeper only (zk:), not from {store}")
    hosts, slash, path = rest.removeprefix("//").partition("/")
    path = (slash + path).rstrip("/")
    if not _PATH.fullmatch(path):
        raise ConfigError(f"{setting}: {text!r}: {path!r} is no path of a ZooKeeper node")
    if not rest.startswith("//"):
        path += _LEDGERS
    return MetadataUri(_hosts(hosts, text, setting), path or _LEDGERS, _layout(layout, text, setting))


def _layout(name: str, text: str, setting: str) -> Layout | None:
    if name in ("", "null"):
        return None
    if name not in _LAYOUTS:
        raise ConfigError(f"{setting}: {text!r}: {name!r} is no layout; use one of {', '.join(_LAYOUTS)}, or zk://")
    return _LAYOUTS[name]


def _hosts(names: str, text: str, setting: str) -> tuple[str, ...]:
    found = []
    for name in re.split("[,;]", names):
        match = _HOST.fullmatch(name.strip())
        port = int(match[2] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 2**16:
            raise ConfigError(f"{setting}: {text!r}: {name!r} is not host:port")
        found.append(f"{match[1]}:{port}")
    return tuple(found)
