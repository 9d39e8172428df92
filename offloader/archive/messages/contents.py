"""The payloads of many entries: in place where they lie in clear, else opened into a buffer of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from offloader.archive.messages.encryption import encryption_of
from offloader.archive.messages.entries import Entries, Envelopes, Needs
from offloader.archive.messages.envelope import parse_envelope
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message import Encryption, Message, MessageProblem
from offloader.archive.messages.payloads import Payloads, UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.errors import DamagedObjectError
from offloader.format.compression import decompress
from offloader.format.scan import Bytes, Mask, Ranges


@dataclass
class Contents:
    """Payloads of entries, in clear: where each lies in `data`. Where it was not needed, or `problem` says why, it is
    anything.

    `dropped`: entries that give no row here; `alone`: the messages of those that were unpacked one by one, the slow
    way, all chunks among them. The rest by number of the entry.
    """

    data: Bytes
    payload: Ranges
    dropped: Mask
    problem: dict[int, MessageProblem] = field(default_factory=dict)
    encryption: dict[int, Encryption] = field(default_factory=dict)
    alone: dict[int, list[Message]] = field(default_factory=dict)

    def lay_out(self, opened: dict[int, bytes | memoryview]) -> None:
        """Put what was opened and what lay in clear into one buffer, in the entries' order."""
        if not opened:
            return
        begin, end = self.payload.begin.tolist(), self.payload.end.tolist()
        view = self.data.data
        found = [opened[n] if n in opened else view[begin[n] : end[n]] for n in range(len(begin))]
        ends = np.cumsum([len(payload) for payload in found], dtype=np.int64)
        self.payload = Ranges(np.concatenate([ends[:1] * 0, ends[:-1]]), ends)
        self.data = np.frombuffer(b"".join(found) or b"\0", np.uint8)


class Opener:
    """Opens the payloads of many entries, in the topic's order. Raises DamagedObjectError, unless damage is kept."""

    def __init__(self, options: UnpackOptions, wanted: MessageFilter) -> None:
        self._limit = options.limits.message
        self._payloads = Payloads(options)
        self._unpacker = Unpacker(options, wanted, self._payloads)

    def open(self, entries: Entries, envelopes: Envelopes, unwanted: Mask, needs: Needs) -> Contents:
        """`unwanted` entries give no row, but may have chunks of messages that do.

        Batches are always opened: only what is in them says how many rows they give. What is one message is opened for
        its value.
        """
        self._payloads.starts(entries.position(0))
        alone = envelopes.irregular | envelopes.chunk
        contents = Contents(entries.data, envelopes.payload, unwanted | alone)
        compressed = (envelopes.compression != 0) & (envelopes.batch | needs.payloads)
        closed = (compressed | envelopes.encrypted) & ~contents.dropped
        opened: dict[int, bytes | memoryview] = {}
        for number in np.flatnonzero(closed | alone).tolist():
            try:
                if not alone[number]:
                    opened[number] = self._open(contents, entries, envelopes, number)
            except DamagedObjectError:
                alone[number] = True  # which tells what is wrong
            if alone[number]:
                self.unpack_alone(contents, entries, number)
        contents.lay_out(opened)
        return contents

    def unpack_alone(self, contents: Contents, entries: Entries, number: int) -> None:
        """Unpack an entry by itself; only once for a chunk."""
        offset = int(entries.offset[number])
        contents.dropped[number] = True
        contents.alone[number] = self._unpacker.entry_messages(entries.position(number), entries.bytes(number), offset)

    def _open(self, contents: Contents, entries: Entries, envelopes: Envelopes, number: int) -> bytes | memoryview:
        if envelopes.encrypted[number]:
            return self._open_encrypted(contents, entries, number)
        payload = entries.data.data[envelopes.payload.begin[number] : envelopes.payload.end[number]]
        return decompress(int(envelopes.compression[number]), payload, int(envelopes.size[number]), self._limit)

    def _open_encrypted(self, contents: Contents, entries: Entries, number: int) -> bytes | memoryview:
        position = entries.position(number)
        envelope = parse_envelope(entries.bytes(number))
        found = self._payloads.open(position, envelope)
        if found is None:
            contents.dropped[number] = True
            return b""
        if found.problem is not None:
            contents.problem[number] = found.problem
        encryption = encryption_of(envelope.metadata)
        if encryption is not None:
            contents.encryption[number] = encryption
        return b"" if found.payload is None else found.payload
