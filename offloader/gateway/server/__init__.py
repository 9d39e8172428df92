"""Connections of clients: frames in, frames out, on one asyncio loop."""
