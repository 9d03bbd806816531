"""New files for the syncer: made, made durable, told to the kernel; in this order, and only then answered."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from blockfs.control import protocol
from blockfs.control.protocol import Reply
from blockfs.engine.copies.conditions import Applied, Place, Reason
from blockfs.engine.copies.new_files import Made, NewFile
from blockfs.engine.names.attributes import Caller
from blockfs.errors import EXPECTED
from blockfs.runtime.failures import code_of, said
from blockfs.service.conversation import Conversation

_Answer: TypeAlias = protocol.Applied | protocol.Refused | protocol.MissingBlocks | protocol.ErrorReply


def make_files(session: Conversation, request: protocol.MakeFiles) -> Reply:
    """Make them, as many in one go as there is room for; what the host has no room for fails, and nothing else."""
    filesystem = session.filesystem
    files = [_new_file(file) for file in request.files]
    made: list[Made] = []
    failed: Exception | None = None
    while len(made) < len(files) and failed is None:
        try:
            made += filesystem.with_room(partial(filesystem.new_files.make, files[len(made) :]))
        except EXPECTED as error:
            if not made:
                raise
            failed = error
    done = [file.place for file, each in zip(files, made, strict=False) if isinstance(each, Applied)]
    try:
        if request.commit and done:
            filesystem.commit()
    finally:
        _tell_kernel(session, done)  # also when the commit failed: it is tried again
    answers = [_answer(each) for each in made]
    if failed is not None:
        answers += [_failed(failed)] * (len(files) - len(made))
    return protocol.MadeFiles(files=answers)


def _tell_kernel(session: Conversation, places: Sequence[Place]) -> None:
    """The kernel may hold it against a name that it was free. Of the files themselves it knows nothing yet."""
    kernel = session.mount.kernel
    for place in places:
        kernel.forget_entry(place.parent, place.name)


def _new_file(file: protocol.NewFile) -> NewFile:
    return NewFile(
        place=Place(parent=file.parent, name=file.name),
        size_bytes=file.size_bytes,
        mode=file.mode,
        caller=Caller(uid=file.uid, gid=file.gid),
        mtime_ns=file.mtime_ns,
        ids=file.ids,
    )


def _answer(made: Made) -> _Answer:
    match made:
        case Applied():
            return protocol.Applied(ino=made.ino, version=made.version, content_version=made.content_version)
        case Reason():
            return protocol.Refused(reason=made.value)
        case list():
            return protocol.MissingBlocks(ids=[bytes(each) for each in made])
        case _:
            return _failed(made)


def _failed(error: Exception) -> protocol.ErrorReply:
    number = getattr(error, "errno", None) or errno.EIO
    return protocol.ErrorReply(exit_code=code_of(error), errno=number, message=said(error))
