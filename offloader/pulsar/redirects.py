"""Which redirects we follow with our credentials: an ingress, or an impostor, must not get them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit


def refusal(source: str, target: str, named: Collection[str]) -> str:
    """Why a redirect is not followed; empty: it is. `named`: the hosts that the configuration or the cluster itself
    names.

    Raises ValueError for what is no URL.
    """
    here, there = urlsplit(source), urlsplit(target)
    if there.scheme != here.scheme and there.scheme != "https":
        return f"it leaves {here.scheme}"
    if there.hostname is None or there.hostname not in named:
        return (
            "neither pulsar.adminUrl nor the cluster itself names that host; if it is a broker, add it to "
            "pulsar.adminUrl"
        )
    return ""


def hosts_named(answer: object) -> set[str]:
    """The hosts in what a broker says of brokers: a list of `host:port`, or a look-up's answer with URLs as values."""
    found: set[str] = set()
    addresses = answer if isinstance(answer, list) else answer.values() if isinstance(answer, dict) else []
    for address in addresses:
        if isinstance(address, str) and address:
            try:
                host = urlsplit(address if "://" in address else f"//{address}").hostname
            except ValueError:
                continue
            found |= {host} if host else set()
    return found
