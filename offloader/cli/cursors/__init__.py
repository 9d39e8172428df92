"""`offloader topics cursors …`: subscriptions, what they hold back, and the removal of those that nobody uses."""

from __future__ import annotations

import click

from offloader.cli.topics import topics

DEFAULT = "list"
OF_A_MOMENT = "show"
ITS_OPTION = "--at"


class ListByDefault(click.Group):
    """A group whose command `list` may be left out, and `show` where there is `--at`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is no command's name is an argument of the default one."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        name = OF_A_MOMENT if any(one.partition("=")[0] == ITS_OPTION for one in args) else DEFAULT
        return name, self.commands[name], args

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument, and with options only, it is the default command, too."""
        asks_for_help = args[:1] and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0].startswith("-")):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@topics.group(cls=ListByDefault)
def cursors() -> None:
    """Subscriptions: what each holds back, and as they are copied. Without a command's name it is `list`, with `--at`
    it is `show`."""
