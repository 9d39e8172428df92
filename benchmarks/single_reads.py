"""Single entries from random places: how many requests, how many bytes, how long."""

from __future__ import annotations
