"""Lists of mount options."""

from __future__ import annotations

import pytest

from blockfs.cli.mountoptions import KERNEL, Options, parse
from blockfs.errors import UsageError


def test_every_kind_of_option_is_read() -> None:
    text = (
        "ro,allow_other,noauto,user,_netdev,nofail,x-systemd.automount,noatime,nodev,nosuid,debug,comment=a b,,defaults"
    )
    expected = Options(read_only=True, allow_other=True, debug=True, kernel=frozenset({"noatime", "nodev", "nosuid"}))
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "defaults", "rw", "ro,rw", "auto,nouser,default_permissions"])
def test_these_ask_for_nothing_special(text: str) -> None:
    assert parse(text) == Options()


def test_of_two_opposites_the_last_one_counts() -> None:
    assert parse("nosuid,suid,exec,noexec").kernel == {"suid", "noexec"}
    assert parse("rw,ro").read_only
    assert parse("nosuid,nodev,allow_suid,allow_dev").kernel == {"suid", "dev"}
    assert parse("allow_suid,nosuid").kernel == {"nosuid"}


def test_opposites_are_opposites_of_each_other() -> None:
    assert all(KERNEL[other] == option for option, other in KERNEL.items() if other)


@pytest.mark.parametrize("text", ["r0", "ro,umask=022", "remount,ro", "strictatime", "allow_root", "Ro", "fsname=x"])
def test_unknown_options_are_refused_by_name(text: str) -> None:
    """A misspelt `ro` that is ignored would mount for writing."""
    with pytest.raises(UsageError, match="mount option"):
        parse(text)


def test_sloppy_ignores_unknown_ones_only() -> None:
    assert parse("umask=022,ro", sloppy=True) == Options(read_only=True)


def test_the_last_front_end_counts() -> None:
    assert parse("ro").frontend == "auto"
    assert parse("frontend=pyfuse3,ro,frontend=kernel").frontend == "kernel"
    with pytest.raises(UsageError, match="frontend=fuse2"):
        parse("frontend=fuse2")


def test_the_last_word_on_native_counts() -> None:
    assert parse("rw").native is None
    assert parse("no-native,native").native
    assert not parse("native,ro,no-native").native
