"""`offloader topics cursors …`: subscriptions, what they hold back, and the removal of those that nobody uses."""

from __future__ import annotations

import click

from offloader.cli.command import GroupWithDefault
from offloader.cli.topics import topics

OF_A_MOMENT = "show"
ITS_OPTION = "--at"


class ListByDefault(GroupWithDefault):
    """A group whose command `list` may be left out, and `show` where there is `--at`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is no command's name is an argument of the default one."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        name = OF_A_MOMENT if any(one.partition("=")[0] == ITS_OPTION for one in args) else self.default
        return name, self.commands[name], args


@topics.group(cls=ListByDefault)
def cursors() -> None:
    """Subscriptions: what each holds back, and as they are copied. Without a command's name it is `list`, with `--at`
    it is `show`."""
