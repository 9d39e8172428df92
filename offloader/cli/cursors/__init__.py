"""`offloader topics cursors …`: subscriptions, what they hold back, and the removal of those that nobody uses."""

from __future__ import annotations

from collections.abc import Sequence

from offloader.cli.groups import GroupWithArguments
from offloader.cli.topics import topics

OF_A_MOMENT = "show"
ITS_OPTION = "--at"


class ListByDefault(GroupWithArguments):
    """A group whose command `list` may be left out, and `show` where there is `--at`."""

    def meant_by(self, args: Sequence[str]) -> str:
        """`show` or `list`."""
        return OF_A_MOMENT if any(one.partition("=")[0] == ITS_OPTION for one in args) else self.default


MODULES = ("offloader.cli.cursors.copied", "offloader.cli.cursors.listing", "offloader.cli.cursors.removing")


@topics.group(cls=ListByDefault, modules=MODULES)
def cursors() -> None:
    """Subscriptions: what each holds back, and as they are copied. Without a command's name it is `list`, with `--at`
    it is `show`."""
