"""What a client does at a server, and the transcript of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from integration.gateway.clients import StockClient
from integration.gateway.topics import Made

PATIENCE_MS = 120_000  # for a message that must come
SETTLED_MS = 3_000  # without a message, until one of several has got all that it gets
QUIET_MS = 400  # within which one too many would come

Message = dict[str, Any]
Id = list[int]


class Script:
    """Asks one client, and writes down what it answers. `name`: of the subscriptions that it makes."""

    def __init__(self, client: StockClient, name: str) -> None:
        self.transcript: list[str] = []
        self.client = client.name
        self._client = client
        self._name = name
        self._open: set[str] = set()

    def __call__(self, do: str, **asked: Any) -> Any:
        """The answer; an error is one."""
        answer = self._client.ask(do=do, **asked)
        shown = ", ".join(f"{key} {value}" for key, value in asked.items() if key != "ms")
        self._say(f"{do} {shown} -> {json.dumps(answer)}")
        if "as" in asked and "error" not in answer:
            self._open.add(asked["as"])
        return answer.get("answer")

    def reader(self, of: str, made: Made, start: Id | str = "earliest", **more: Any) -> None:
        self("reader", **{"as": of, "topic": made.name, "start": start, **_keys(made), **more})

    def consumer(self, of: str, *made: Made, kind: str = "Shared", subscription: str = "", **more: Any) -> None:
        """Of a subscription of its own, which may have more consumers."""
        named = f"{self._name}-{self.client}{subscription}"
        topics = {"topics": [each.name for each in made]} if made else {}
        self("consumer", **{"as": of, "subscription": named, "type": kind, **topics, **_keys(*made), **more})

    def take(self, of: str, count: int, *, ordered: bool = True) -> list[Message]:
        """So many messages, which must come. Not `ordered`: they may come in any order."""
        return self._take(of, count, PATIENCE_MS, order=None if ordered else json.dumps)

    def take_what_comes(self, of: str, most: int) -> list[Message]:
        """Until nothing does."""
        return self._take(of, most, QUIET_MS)

    def take_among(self, of: Sequence[str], count: int, *, by_key: bool) -> None:
        """So many messages, which must come to these together. `by_key`: those of one key in their order."""
        order = _key if by_key else json.dumps
        for each in of[:-1]:
            count -= len(self._take(each, count, SETTLED_MS, order=order))
        self._take(of[-1], count, PATIENCE_MS, order=order)

    def nothing_comes(self, of: str) -> None:
        self._take(of, 1, QUIET_MS)

    def ack(self, of: str, messages: list[Message], *, cumulative: bool = False) -> None:
        self("ack", of=of, ids=ids(messages), cumulative=cumulative)

    def close(self, of: str) -> None:
        self._open.remove(of)
        self("close", of=of)

    def end(self) -> None:
        """Close what is open."""
        for of in self._open:
            self._client.ask(do="close", of=of)

    def _take(self, of: str, count: int, ms: int, *, order: Callable[[Message], Any] | None = None) -> list[Message]:
        answer = self._client.ask(do="take", of=of, count=count, ms=ms)
        if "error" in answer:
            self._say(f"take {count} of {of} -> {answer}")
            return []
        messages: list[Message] = answer["answer"]["messages"]
        for message in messages if order is None else sorted(messages, key=order):
            self._say(f"{of} got {json.dumps(message)}")
        self._say(f"take {count} of {of} -> {answer['answer']['end']}")
        return messages

    def _say(self, line: str) -> None:
        self.transcript.append(line)


def _key(message: Message) -> Any:
    """What decides who gets it; a message without any has its own."""
    said = message["ordering"] or message["key"]
    return ("key", said) if said else ("id", *message["id"])


def ids(messages: list[Message]) -> list[Id]:
    return [each["id"] for each in messages]


def _keys(*made: Made) -> dict[str, str]:
    files = [each.keys for each in made if each.keys is not None]
    return {"keys": files[0]} if files else {}
