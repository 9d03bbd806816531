"""Man pages made from the commands' own help, so that the two can't differ.

`manpages.py PAGE` prints one page, in man(7): `blocksync`, `blocksync-VERB` or `mount.fuse.blocksync`.
`manpages.py --all FOLDER` writes all of them below FOLDER, as man(1) looks for them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click
from manexamples import EXAMPLES

from blockfs.build import release
from blockfs.cli import mounthelper, mountoptions
from blockfs.exitcodes import ExitCode
from syncer.cli import commands as verbs


def escaped(text: str) -> str:
    """Text as man(7) wants it: backslashes, hyphens that are typed, control characters at the line's beginning."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text, unwrapped."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield escaped(" ".join(line.strip() for line in paragraph.replace("\b", "").splitlines()).strip())


def header(name: str, section: int, summary: str) -> Iterator[str]:
    """Title and name, from which apropos(1) makes its index."""
    version = release()
    yield f'.TH "{escaped(name)}" "{section}" "" "blocksync {version}" "blocksync"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {escaped(summary)}"


def options_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """The options of a command as tagged paragraphs."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield ".TP"
            yield f"\\fB{escaped(record[0])}\\fR"
            yield escaped(record[1].strip())


def synopsis(command: click.Command, context: click.Context) -> str:
    """Name and arguments."""
    return f"\\fB{escaped(context.command_path)}\\fR {escaped(' '.join(command.collect_usage_pieces(context)))}"


def verb(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    """One command of `blocksync`, and those below it."""
    context = click.Context(command, info_name=name, parent=parent)
    yield f".SS {escaped(context.command_path)}"
    yield synopsis(command, context)
    for paragraph in paragraphs(command.help or ""):
        yield ".PP"
        yield paragraph
    yield from options_of(command, context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from verb(inner, found, context)


def of_verb(name: str) -> Iterator[str]:
    """The page of section 1 of one verb: the same help, with examples."""
    command = importlib.import_module(verbs.MODULES[name]).command
    context = click.Context(command, info_name=name, parent=click.Context(verbs.blocksync, info_name="blocksync"))
    yield from header(f"blocksync-{name}", 1, verbs.SUMMARIES[name].rstrip("."))
    yield ".SH SYNOPSIS"
    yield synopsis(command, context)
    yield ".SH DESCRIPTION"
    for paragraph in paragraphs(command.help or ""):
        yield ".PP"
        yield paragraph
    if command.params:
        yield ".SH OPTIONS"
        yield from options_of(command, context)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from verb(inner, found, context)
    yield ".SH EXAMPLES"
    for wanted, line in EXAMPLES[name]:
        yield f".PP\n{escaped(wanted)}\n.PP\n.RS 4\n.nf\n{escaped(line)}\n.fi\n.RE"
    yield ".SH EXIT STATUS"
    yield "0 when it is done. All codes, with their meanings: \\fBblocksync\\fR(1)."
    yield ".SH SEE ALSO"
    beside = next(section for section in verbs.SECTIONS.values() if name in section)
    yield ",\n".join([".BR blocksync (1)", *(f".BR blocksync\\-{other} (1)" for other in beside if other != name)])


def blocksync() -> Iterator[str]:
    """The page of section 1."""
    group = verbs.blocksync
    context = click.Context(group, info_name="blocksync")
    yield from header("blocksync", 1, "folders of large, similar files: small on disk, cheap to move")
    yield ".SH SYNOPSIS"
    yield synopsis(group, context)
    yield ".SH DESCRIPTION"
    yield from paragraphs(group.help or "")
    yield from options_of(group, context)
    yield ".SH COMMANDS"
    for name, module in verbs.MODULES.items():
        yield from verb(name, importlib.import_module(module).command, context)
    yield ".SH EXIT STATUS"
    for code in ExitCode:
        yield f".TP\n{code.value}\n{escaped(code.meaning)}"
    yield ".SH FILES"
    yield ".TP\n\\fIVOLUME\\fR/mount.log\nwhat the mount process logs, as JSON lines"
    yield ".TP\n/etc/fuse.conf\nuser_allow_other lets ordinary users use \\-\\-allow\\-other"
    yield ".TP\n/etc/blocksync/\\fINAME\\fR.mount"
    yield "VOLUME, MOUNTPOINT and OPTIONS of the service blocksync\\-mount@\\fINAME\\fR"
    yield ".SH ENVIRONMENT"
    yield ".TP\nNOTIFY_SOCKET"
    yield "set by a service manager, which mount and serve tell when they are ready and when they stop"
    yield ".SH SEE ALSO"
    yield "".join(f".BR blocksync\\-{name} (1),\n" for name in verbs.MODULES).rstrip()
    yield ".BR mount.fuse.blocksync (8),\n.BR fusermount3 (1),\n.BR systemd.service (5)"


def helper() -> Iterator[str]:
    """The page of section 8."""
    command = mounthelper.command
    context = click.Context(command, info_name=command.name)
    yield from header("mount.fuse.blocksync", 8, "mount a blocksync volume")
    yield ".SH SYNOPSIS"
    yield "\\fBmount \\-t fuse.blocksync\\fR [\\fB\\-o\\fR OPTIONS] VOLUME MOUNTPOINT"
    yield ".PP"
    yield synopsis(command, context)
    yield ".SH DESCRIPTION"
    for paragraph in paragraphs(command.help or ""):
        yield ".PP"
        yield paragraph
    yield from options_of(command, context)
    yield ".SH MOUNT OPTIONS"
    for option, meaning in mountoptions.OURS.items():
        yield f".TP\n\\fB{escaped(option)}\\fR\n{escaped(meaning)}"
    yield f".TP\n\\fB{escaped(', '.join(mountoptions.KERNEL))}\\fR\ngiven to the kernel; see \\fBmount\\fR(8)."
    yield "A mount is nosuid and nodev, unless root asks for allow_suid and allow_dev."
    yield "mount(8) drops the words suid and dev, in fstab too, before this program sees them."
    accepted = [*sorted(mountoptions.OF_MOUNT), *(f"{prefix}..." for prefix in mountoptions.OF_MOUNT_PREFIXES)]
    yield f".TP\n\\fB{escaped(', '.join(accepted))}\\fR\nof mount(8) and systemd; accepted"
    yield ".PP\nAll others are refused."
    yield ".SH EXIT STATUS"
    for status in mounthelper.MountStatus:
        yield f".TP\n{status.value}\n{status.name.lower()}"
    yield ".SH EXAMPLES"
    yield "A line of fstab:"
    yield ".PP\n.nf\n/srv/volume  /srv/images  fuse.blocksync  defaults,nofail  0  0\n.fi"
    yield ".SH SEE ALSO"
    yield ".BR blocksync (1),\n.BR mount (8),\n.BR fstab (5)"


PAGES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "blocksync": blocksync,
    **{f"blocksync-{name}": partial(of_verb, name) for name in verbs.MODULES},
    "mount.fuse.blocksync": helper,
}

if __name__ == "__main__":
    if sys.argv[1] == "--all":
        for title, page in PAGES.items():
            section = 8 if page is helper else 1
            file = Path(sys.argv[2], f"man{section}", f"{title}.{section}")
            file.write_text("\n".join(page()) + "\n")
    else:
        print("\n".join(PAGES[sys.argv[1]]()))
