"""Who may switch off the exchange with devices on the network, and what is said of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import demo
from syncer.cli.lan.peering import VARIABLE, is_silent, switched_off
from syncer.cli.main import run
from syncer.cli.registry.roots import FORMAT, LinkedRoot, Registry, RootRecord, encoded_path
from syncer.errors import UsageError
from syncer.local.folder.identity import Folder


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Of a home where nothing is switched off."""
    monkeypatch.delenv(VARIABLE)
    for name in ("state", "data", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    return Registry(os.environ)


def link(registry: Registry, path: Path, uuid: str) -> LinkedRoot:
    path.mkdir()
    record = RootRecord(
        format=FORMAT, uuid=uuid, path=encoded_path(os.fsencode(path)), url="pithos+http://h/a/c", block_size=65536,
        folder=Folder(uuid=uuid, ino=3, device=4, filesystem=5), volume_uuid=None,
    )  # fmt: skip
    return registry.write(record, "secret")


@pytest.fixture
def two(registry: Registry, tmp_path: Path) -> tuple[LinkedRoot, LinkedRoot]:
    return link(registry, tmp_path / "one", "u1"), link(registry, tmp_path / "two", "u2")


def off(registry: Registry, root: LinkedRoot) -> str:
    return switched_off(root, registry, os.environ)


def test_the_tests_themselves_are_silent() -> None:
    """Else the suite would send on the network of whoever runs it."""
    assert is_silent(os.environ)


def test_benchmarks_are_silent() -> None:
    program = f"import os; os.environ.pop({VARIABLE!r}, None); import benchmarks; print(os.environ[{VARIABLE!r}])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "off\n"


def test_the_demo_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its last part, which has a network of its own."""
    monkeypatch.delenv(VARIABLE)
    assert is_silent(demo.Machines(tmp_path).environment)


@pytest.mark.parametrize("environment", [{}, {VARIABLE: ""}, {VARIABLE: "on"}])
def test_nobody_is_silent_unasked(environment: dict[str, str]) -> None:
    assert not is_silent(environment)


def test_a_variable_with_a_typing_error_is_told() -> None:
    """Who meant off must not be on the network."""
    with pytest.raises(UsageError, match="expected on or off"):
        is_silent({VARIABLE: "of"})


def test_nothing_is_switched_off_by_default(registry: Registry, two: tuple[LinkedRoot, LinkedRoot]) -> None:
    assert [off(registry, root) for root in two] == ["", ""]


def test_the_settings_of_the_machine_switch_it_off(
    registry: Registry, two: tuple[LinkedRoot, LinkedRoot], tmp_path: Path
) -> None:
    settings = tmp_path / "config/blocksync/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[peers]\nenabled = false\n")
    assert off(registry, two[0]) == f"by `enabled = false` in {settings}"


def test_off_for_one_root_leaves_the_others(registry: Registry, two: tuple[LinkedRoot, LinkedRoot]) -> None:
    one, other = two
    assert run(["peers", "off", os.fsdecode(one.path)]) == 0
    assert (off(registry, one), off(registry, other)) == ("by `blocksync peers off` for this root", "")
    assert run(["peers", "on", os.fsdecode(one.path)]) == 0
    assert off(registry, one) == ""


def test_off_for_all_is_off_for_roots_that_come_later(registry: Registry, tmp_path: Path) -> None:
    assert run(["peers", "off"]) == 0
    assert off(registry, link(registry, tmp_path / "late", "u3")) == "by `blocksync peers off`"


def test_on_for_all_is_on_for_those_that_were_off_alone(registry: Registry, two: tuple[LinkedRoot, LinkedRoot]) -> None:
    run(["peers", "off", os.fsdecode(two[0].path)])
    run(["peers", "off"])
    assert run(["peers", "on"]) == 0
    assert [off(registry, root) for root in two] == ["", ""]


def test_one_root_can_not_be_on_where_all_are_off(
    registry: Registry, two: tuple[LinkedRoot, LinkedRoot], capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that ends with 0 and changes nothing would be believed."""
    run(["peers", "off"])
    assert run(["peers", "on", os.fsdecode(two[0].path)]) == 2
    assert "peers are off for every root; `blocksync peers on`" in capsys.readouterr().err
    assert off(registry, two[0]) == "by `blocksync peers off`"


def test_what_was_switched_is_told_for_each_root(
    two: tuple[LinkedRoot, LinkedRoot], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["peers", "off", os.fsdecode(two[1].path)])
    assert run(["peers", "off", "--json"]) == 0
    assert run(["peers", "on", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line.get("uuid"), line.get("lan_off")) for line in lines] == [
        ("lan", "u1", "by `blocksync peers off`"),
        ("lan", "u2", "by `blocksync peers off`"),
        ("summary", None, None),
        ("lan", "u1", None),
        ("lan", "u2", None),
        ("summary", None, None),
    ]
    assert lines[-1] == {"type": "summary", "version": 1, "roots": 2, "daemon": False}


def test_a_root_that_is_not_linked_can_not_be_switched(registry: Registry, tmp_path: Path) -> None:
    assert run(["peers", "off", str(tmp_path)]) == 10


def test_asking_whether_it_is_off_loads_no_peer_code(
    registry: Registry, two: tuple[LinkedRoot, LinkedRoot], tmp_path: Path
) -> None:
    """A `reconcile` that lacks nothing, and `status`, do without."""
    program = """
import os, sys
from syncer.cli.lan.peering import is_silent, switched_off
from syncer.cli.registry.roots import Registry
registry = Registry(os.environ)
assert not is_silent(os.environ) and not switched_off(registry.look().roots[0], registry, os.environ)
sys.exit(str([name for name in sys.modules if name.startswith(("syncer.peer", "cryptography"))] or ""))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == ""
