"""A forked command is to its caller what a started one is."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import starting
from tests.system.machines import BLOCKSYNC


@pytest.mark.parametrize(
    "arguments", [["--version"], ["stats", "nowhere"], ["stats"], ["init", b"\xff/\xff", "--json"]]
)
def test_it_says_and_returns_what_the_script_does(arguments: list[str | bytes], tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    forked = starting.run(arguments, environment=environment, folder=tmp_path)
    started = subprocess.run(
        [BLOCKSYNC, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_it_runs_in_the_folder_and_environment_of_its_caller(tmp_path: Path) -> None:
    assert starting.run(["init", "volume"], folder=tmp_path).returncode == 0
    assert (tmp_path / "volume").is_dir()
    status = ["status", "--json"]
    told = [
        starting.run(status, environment={**os.environ, "XDG_STATE_HOME": home}) for home in ("relative", str(tmp_path))
    ]
    assert [each.returncode for each in told] == [0, 0]


def test_many_at_once_get_their_own_ends(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        volumes = [tmp_path / str(number) for number in range(16)]
        codes = [each.returncode for each in pool.map(lambda volume: starting.run(["init", volume]), volumes)]
    assert codes == [0] * len(volumes)
    assert all(volume.is_dir() for volume in volumes)


def test_other_python_variables_start_the_script(tmp_path: Path) -> None:
    broken = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(77)")
    assert starting.run(["--version"], environment=broken).returncode == 77
