"""What it means that no bookie gave an entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.status import Answer, NoLedgerError, answer
from offloader.errors import (
    BookieUnavailableError,
    EntryNotFoundError,
    FatalError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
    RetryableError,
)


def verdict(metadata: LedgerMetadata, ledger: int, entry: int, said: Mapping[str, OffloadError]) -> OffloadError:
    """The error to raise for an acknowledged entry; `said` has each bookie's answer.

    It is not found only if all of its bookies say so: any of them may have the last copy. Else nobody knows: a bookie
    that is gone may bring it back. If no bookie is gone, a human must look.
    """
    what = f"entry {ledger}:{entry}"
    details = "; ".join(str(said[bookie]) for bookie in sorted(said))
    negative = [bookie for bookie, error in said.items() if answer(error) is Answer.NEGATIVE]
    if set(negative).issuperset(metadata.write_set(entry)):
        if all(isinstance(said[bookie], NoLedgerError) for bookie in negative):
            return LedgerNotFoundError(f"{what}: its bookies know nothing of its ledger; was it deleted? ({details})")
        return EntryNotFoundError(f"{what}: its bookies do not have it ({details})")
    final = [error for error in said.values() if isinstance(error, IntegrityError | FatalError)]
    if final and not any(isinstance(error, RetryableError) for error in said.values()):
        return type(final[0])(f"{what}: no bookie gave it ({details})")
    return BookieUnavailableError(f"{what}: no bookie gave it ({details})")
