"""What a client does at a server, and the transcript of it."""

from __future__ import annotations

import json
from typing import Any

from integration.gateway.clients import StockClient
from integration.gateway.topics import Made

PATIENCE_MS = 120_000  # for a message that must come
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
        self._open: list[str] = []

    def __call__(self, do: str, **asked: Any) -> Any:
        """The answer; an error is one."""
        answer = self._client.ask(do=do, **asked)
        shown = ", ".join(f"{key} {value}" for key, value in asked.items() if key != "ms")
        self._say(f"{do} {shown} -> {json.dumps(answer)}")
        if "as" in asked and "error" not in answer:
            self._open.append(asked["as"])
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
        return self._take(of, count, PATIENCE_MS, ordered=ordered)

    def take_what_comes(self, of: str, most: int) -> list[Message]:
        """Until nothing does."""
        return self._take(of, most, QUIET_MS)

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

    def _take(self, of: str, count: int, ms: int, *, ordered: bool = True) -> list[Message]:
        answer = self._client.ask(do="take", of=of, count=count, ms=ms)
        if "error" in answer:
            self._say(f"take {count} of {of} -> {answer}")
            return []
        messages: list[Message] = answer["answer"]["messages"]
        lines = [f"{of} got {json.dumps(each)}" for each in messages]
        for line in lines if ordered else sorted(lines):
            self._say(line)
        self._say(f"take {count} of {of} -> {answer['answer']['end']}")
        return messages

    def _say(self, line: str) -> None:
        self.transcript.append(line)


def ids(messages: list[Message]) -> list[Id]:
    return [each["id"] for each in messages]


def _keys(*made: Made) -> dict[str, str]:
    files = [each.keys for each in made if each.keys is not None]
    return {"keys": files[0]} if files else {}
