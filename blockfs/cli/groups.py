"""A command that has verbs below it: who mistypes one is told which there are that look like it."""

from __future__ import annotations

import click


class Verbs(click.Group):
    """A group that answers an unknown verb with the likeliest ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that the arguments begin with.

        Raises:
            click.UsageError: There is none of that name.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise click.UsageError(self._unknown(ctx, name), ctx)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> str:
        import difflib  # noqa: PLC0415 - for who has mistyped something

        likely = difflib.get_close_matches(name, self.list_commands(ctx))
        meant = f" Did you mean {' or '.join(likely)}?" if likely else ""
        return f"there is no verb {name!r}.{meant}"
