"""A server that speaks Pulsar's protocol and reads the archive: stock clients need no broker and no BookKeeper.

protocol/   frames and commands: bytes to values and back. Pure.
core/       what one subscription delivers to whom: events in, decisions out. Pure.
entries/    a topic's entries as they are delivered, read from the archive by threads
server/     connections, topics, security, HTTP: one asyncio loop
"""
