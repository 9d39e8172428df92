"""The HTTP endpoint: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from offloader.metrics.health import Health, ProbeAnswer
from offloader.pages.access import Allowance, PageAccess, is_loopback
from offloader.pages.server import WebServer, WsgiApplication

if TYPE_CHECKING:
    from offloader.pages.site import Site  # Jinja takes 0.1 s to import

FOR_THIS_MACHINE = "only this machine may ask here, by the name localhost or 127.0.0.1; listen on another address"
NO_PAGES: Mapping[str, Callable[[], Any]] = MappingProxyType({})


class MetricsServer(WebServer):
    """Serves from a thread of its own until closed. Port 0: any free one. Raises ConfigError when it cannot listen.

    `pages`: JSON of further paths. `site`: pages for people. `setting`: who chose the port, and what may be chosen in
    its place."""

    def __init__(
        self,
        registry: CollectorRegistry,
        health: Health,
        host: str,
        port: int,
        *,
        pages: Mapping[str, Callable[[], Any]] = NO_PAGES,
        site: Site | None = None,
        setting: str = "metrics.port",
        instead: str = "choose another, or 0",
    ) -> None:
        access = PageAccess() if is_loopback(host) else None
        super().__init__(router(registry, health, pages, site, access), host, port, setting=setting, instead=instead)


def router(
    registry: CollectorRegistry,
    health: Health,
    pages: Mapping[str, Callable[[], Any]] = NO_PAGES,
    site: Site | None = None,
    access: PageAccess | None = None,
) -> WsgiApplication:
    """The WSGI application of the three pages, and of others. `access`: who may ask; None: everybody. A `site` has its
    own."""
    metrics: WsgiApplication = make_wsgi_app(registry)
    probes = {"/healthz": health.alive, "/readyz": health.ready}

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if site is not None and site.knows(path):
            return site(environ, start_response)
        if access is not None and access.verdict(environ) is not Allowance.ALLOWED:
            return _answer(start_response, "403 Forbidden", FOR_THIS_MACHINE)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _answer(start_response, "405 Method Not Allowed", "only GET")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path in probes:
            return _probe(start_response, probes[path]())
        if path in pages:
            return _answer(start_response, "200 OK", json.dumps(pages[path]()), "application/json")
        there = ", ".join(("/metrics", *pages, "/healthz"))
        return _answer(start_response, "404 Not Found", f"there are {there} and /readyz")

    return application


def _probe(start_response: Callable[..., Any], verdict: ProbeAnswer) -> list[bytes]:
    return _answer(start_response, "200 OK" if verdict.good else "503 Service Unavailable", verdict.text)


def _answer(
    start_response: Callable[..., Any], status: str, text: str, kind: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]
