"""An embedded Pulsar for tests: what it is asked is asked again while it is too busy to answer."""

from __future__ import annotations

import time
from typing import Any

import httpx

from dev.embedded.standalone import PulsarStandalone
from integration.processes import HANGS
from offloader.errors import BrokerUnavailableError, FatalError

# What a broker says while a topic moves or a ledger cannot be opened: elsewhere, not here, not now.
BUSY = {httpx.codes.TEMPORARY_REDIRECT, httpx.codes.PRECONDITION_FAILED, *(code for code in httpx.codes if code >= 500)}
# What it says to a call whose former attempt was carried out after all.
DONE = {("PUT", httpx.codes.CONFLICT), ("DELETE", httpx.codes.NOT_FOUND)}
PAUSE = 0.5


class PatientPulsar(PulsarStandalone):
    """Its first answer may take long: a topic is loaded for it, and Pulsar's own topics before. Calls must bear to be
    repeated."""

    def admin(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """One REST call below /admin/v2/. Raises FatalError with Pulsar's reason for a status other than 2xx."""
        response = self.answer(method, path, json)
        if not response.is_success:
            raise FatalError(f"{method} {path}: {response.status_code} {response.text.strip()}")
        return response

    def answer(self, method: str, path: str, json: Any = None) -> httpx.Response:
        """What Pulsar says to this call, whatever that is, once it is not busy; a repeated call that was done already
        has succeeded."""
        deadline = time.monotonic() + HANGS
        repeated = False
        while True:
            response = self._asked(method, path, json, deadline)
            if response is not None and (response.status_code not in BUSY or time.monotonic() > deadline):
                done = repeated and (method, response.status_code) in DONE
                return httpx.Response(httpx.codes.NO_CONTENT, request=response.request) if done else response
            repeated = True
            time.sleep(PAUSE)

    def _asked(self, method: str, path: str, json: Any, deadline: float) -> httpx.Response | None:
        """None: no answer has come, and there is time to ask again."""
        try:
            return self.web.request(method, path, json=json, timeout=HANGS)
        except httpx.TransportError as error:
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
            return None
