"""From settings: a `GcsStore` with its client."""

from __future__ import annotations

import os

import google.auth
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud.storage import Client

from offloader.errors import AccessDeniedError, ConfigError
from offloader.storage.gcs import GcsStore
from offloader.storage.gcs_calls import HELP
from offloader.storage.gcs_requests import GcsBucket
from offloader.storage.options import known_options, number
from offloader.storage.settings import StoreSettings

ENDPOINT = "https://storage.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
# Enough for the threads of a worker; a connection is opened only when it is needed.
MAX_CONNECTIONS = 64
# Else a thread of the library asks what the bucket is, for traces that nobody has switched on.
_NO_TRACES = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"
OPTIONS = ("retry_deadline", "connect_timeout", "read_timeout", "max_connections", "user_project")


def open_gcs(settings: StoreSettings) -> GcsStore:
    """A store with a client of its own. Raises ConfigError, AccessDeniedError where there are no credentials; nothing
    is asked of the store yet."""
    name, _, prefix = settings.root.partition("://")[2].partition("/")
    if not name:
        raise ConfigError(f"{settings.setting}: {settings.root!r} names no bucket; write gs://bucket/prefix")
    options = known_options(settings, OPTIONS)
    os.environ.setdefault(_NO_TRACES, "true")
    timeout = number(options, "connect_timeout", 5.0), number(options, "read_timeout", 30.0)
    deadline = number(options, "retry_deadline", 60.0)
    session = _session(settings.endpoint, int(number(options, "max_connections", MAX_CONNECTIONS)))
    try:
        client = Client(
            project=None,
            credentials=session.credentials,
            client_options={"api_endpoint": (settings.endpoint or ENDPOINT).rstrip("/")},
            _http=session,
        )
        bucket = client.bucket(name, user_project=options.get("user_project"))
    except ValueError as e:
        raise ConfigError(f"store: {e}") from e
    waits = 1 if isinstance(session.credentials, AnonymousCredentials) else 2  # the first one for a token
    return GcsStore(
        GcsBucket(bucket, session, timeout), name, prefix, retry_deadline=deadline, attempt_timeout=waits * sum(timeout)
    )


def _session(endpoint: str | None, connections: int) -> AuthorizedSession:
    """Its connections, and Google's usual credentials. Nobody who listens shall get a token: over http:// there is
    none, as emulators want it."""
    try:
        plain = endpoint is not None and not endpoint.startswith("https://")
        credentials = AnonymousCredentials() if plain else google.auth.default(scopes=[SCOPE])[0]
    except GoogleAuthError as e:
        raise AccessDeniedError(f"no credentials for the store: {' '.join(str(e).split())}; {HELP}") from e
    session = AuthorizedSession(credentials, auth_request=Request(requests.Session()))
    session.max_redirects = 0
    for scheme in ("https://", "http://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=connections))
    return session
