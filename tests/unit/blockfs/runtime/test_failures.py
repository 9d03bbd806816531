"""Errors of the host are told as sentences, whatever they carry."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from blockfs.errors import FsError
from blockfs.runtime.failures import code_of, said
from syncer.errors import ConflictOnRemoteError, LocalChangedError, UnholdableError, UnsafeNameError

NAMES = st.binary(max_size=40) | st.text(max_size=20) | st.just(Path("/a/b")) | st.none()


@given(number=st.sampled_from(sorted(errno.errorcode)), first=NAMES, second=NAMES)
def test_no_number_and_no_bytes_literal_is_ever_shown(number: int, first: object, second: object) -> None:
    told = said(OSError(number, os.strerror(number), first, None, second))
    assert told.endswith(os.strerror(number))
    assert "[Errno" not in told
    assert not told.startswith(("b'", 'b"')) or first in (b"b'", 'b"')
    told.encode()  # what JSON carries is valid text


def test_names_stand_before_what_happened_to_them() -> None:
    assert said(OSError(errno.EXDEV, "Invalid cross-device link", b"/a\xff", None, "/b")) == (
        r"/a\xff -> /b: Invalid cross-device link"
    )
    assert said(OSError(errno.EIO, "Input/output error")) == "Input/output error"
    assert said(ValueError("odd \udcff")) == r"odd \xff"


def test_the_host_s_errors_have_the_codes_of_the_reference() -> None:
    codes = {errno.ENOSPC: 17, errno.EDQUOT: 17, errno.EROFS: 2, errno.EACCES: 12, errno.EPERM: 12, errno.EIO: 1}
    assert {number: code_of(OSError(number, "")) for number in codes} == codes
    assert code_of(OSError("no number")) == 1


def test_paths_in_messages_look_as_one_types_them() -> None:
    for error in (
        UnsafeNameError(b"d/\xffx", "why"),
        UnholdableError(b"d/\xffx", "why"),
        ConflictOnRemoteError(b"d/\xffx", "one", "other"),
        LocalChangedError(b"d/\xffx", "why"),
    ):
        assert r"d/\xffx" in str(error)
        assert "b'" not in str(error)
    assert str(FsError(errno.EEXIST, "name in directory 1")) == "name in directory 1: File exists"
    assert str(FsError(errno.EIO)) == "Input/output error"
