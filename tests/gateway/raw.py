"""A client that sends whatever a test wants."""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from offloader._proto.pulsar_wire_pb2 import (
    BaseCommand,
    GetSchema,
    GetTopicsOfNamespace,
    Lookup,
    PartitionedMetadata,
    WatchTopicList,
)
from offloader.model import TopicName
from offloader.pulsar.commands import command
from offloader.pulsar.frames import FrameBuffer, encode

PATIENCE = 60  # seconds, for hanging
UNASKED = ("connected", "ping")


def questions(topic: TopicName) -> list[BaseCommand]:
    """All that a client without a consumer can ask of a topic."""
    name, namespace = str(topic), topic.namespace
    return [
        command(partitioned_metadata=PartitionedMetadata(topic=name, request_id=1)),
        command(lookup=Lookup(topic=name, request_id=1)),
        command(get_topics_of_namespace=GetTopicsOfNamespace(namespace=namespace, request_id=1)),
        command(watch_topic_list=WatchTopicList(namespace=namespace, watcher_id=1, request_id=1, topics_pattern=".*")),
        command(get_schema=GetSchema(topic=name, request_id=1)),
    ]


class RawClient:
    """Blocking. Commands out, commands in."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.socket = socket.create_connection((where.hostname, where.port), timeout=PATIENCE)
        self._frames = FrameBuffer()
        self._heard: deque[BaseCommand] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.socket.close()

    def send(self, *commands: BaseCommand) -> None:
        self.socket.sendall(b"".join(map(encode, commands)))

    def command(self) -> BaseCommand:
        """The next one. Raises EOFError where the connection is closed."""
        while not self._heard:
            count = self.socket.recv_into(self._frames.space())
            if not count:
                raise EOFError
            self._frames.received(count)
            self._heard.extend(frame.command for frame in self._frames.frames())
        return self._heard.popleft()

    def until(self, field: str) -> BaseCommand:
        """The next one of that kind."""
        while not (found := self.command()).HasField(field):
            pass
        return found

    def answer(self) -> BaseCommand:
        """The next one that was asked for."""
        found = self.command()
        while any(map(found.HasField, UNASKED)):
            found = self.command()
        return found

    def is_closed(self) -> bool:
        """Whether the connection ends before any other answer comes."""
        try:
            self.answer()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def ends(self) -> bool:
        """Whether the connection ends, whatever comes before."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True
