"""qemu-img and qemu-io do on a mount what they do on the host, also when it is flushed or mounted anew in between."""

from __future__ import annotations

import hashlib
import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Mounted, mounted_below
from tests.real.guest import run

MIB = 1 << 20

# A raw image becomes a chain of qcow2 overlays with internal snapshots, is written to through direct and cached I/O,
# resized, committed, rebased, and goes back to raw.
STEPS = (
    "qemu-img convert -f raw -O qcow2 golden.img base.qcow2",
    "qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 middle.qcow2",
    "qemu-io -t none -i io_uring -f qcow2 -c 'write -P 1 1M 300k' -c 'write -z -u 5M 1M' -c flush middle.qcow2",
    "qemu-img create -q -f qcow2 -o cluster_size=4k -b middle.qcow2 -F qcow2 top.qcow2",
    "qemu-img snapshot -c before top.qcow2",
    "qemu-io -t writeback -d unmap -f qcow2 -c 'write -P 2 1100k 3M' -c 'discard 2M 1M' -c flush top.qcow2",
    "qemu-img snapshot -c after top.qcow2",
    "qemu-io -t none -i native -f qcow2 -c 'aio_write -P 3 9M 64k' -c 'aio_write -P 4 10M 4k' -c aio_flush top.qcow2",
    "qemu-img snapshot -a before top.qcow2",
    "qemu-img snapshot -d before top.qcow2",
    "qemu-img snapshot -a after top.qcow2",
    "qemu-img commit -q -d top.qcow2",
    "qemu-img rebase -f qcow2 -b base.qcow2 -F qcow2 middle.qcow2",
    "qemu-img rebase -f qcow2 -b '' middle.qcow2",
    "qemu-img resize -q middle.qcow2 +4M",
    "qemu-io -f qcow2 -c 'write -P 5 13M 1M' middle.qcow2",
    "qemu-img convert -W -f qcow2 -O raw middle.qcow2 end.img",
    "qemu-io -t none -i threads -d unmap -f raw -c 'write -P 6 0 12k' -c 'write -z -u 64k 1M' end.img",
    "qemu-img resize -q -f raw --shrink end.img 10M",
    "qemu-img resize -q -f raw end.img 14M",
    "qemu-img create -q -f qcow2 -o preallocation=metadata prepared.qcow2 12M",
    "qemu-img convert -n --target-is-zero -f raw -O qcow2 golden.img prepared.qcow2",
)
FLUSHED_AFTER = {5, 7, 17}
REMOUNTED_AFTER = {2, 10, 18}


def make_golden(folder: Path) -> None:
    """Data, a long hole, data; not a multiple of anything but sectors."""
    noise = random.Random(1)
    with (folder / "golden.img").open("wb") as image:
        image.write(noise.randbytes(3 * MIB))
        image.seek(9 * MIB)
        image.write(noise.randbytes(2 * MIB + 512))
        image.truncate(12 * MIB)


def described(image: Path, scratch: Path) -> dict[str, Any]:
    """What qemu-img tells about an image, and the content that a guest would see."""
    image_format = "qcow2" if image.suffix == ".qcow2" else "raw"
    told = json.loads(run("qemu-img", "info", "-f", image_format, "--output=json", image))
    if image_format == "qcow2":
        checked = json.loads(run("qemu-img", "check", "--output=json", image))
        assert not {"corruptions", "leaks"} & checked.keys(), checked
        copy = scratch / "content.img"
        run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, copy)
        run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", image, copy)
        content = copy.read_bytes()
    else:
        content = image.read_bytes()
    return {
        "size": told["virtual-size"],
        "backing": told.get("backing-filename"),
        "snapshots": [snapshot["name"] for snapshot in told.get("snapshots", [])],
        "content": hashlib.sha256(content).hexdigest(),
    }


def take_step(step: str, folder: Path, scratch: Path) -> dict[str, Any]:
    """Run a step and describe the image it changed."""
    run(*shlex.split(step), folder=folder)
    return described(folder / image_of(step), scratch)


def image_of(step: str) -> str:
    """The image that a step changes: the last one it names."""
    return [word for word in shlex.split(step) if word.endswith((".img", ".qcow2"))][-1]


def test_images_are_the_same_as_on_the_host_after_every_step(mounted: Mounted, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    for folder in (host, mounted.path):
        make_golden(folder)
    for number, step in enumerate(STEPS):
        expected = take_step(step, host, tmp_path)
        assert take_step(step, mounted.path, tmp_path) == expected, step
        if number in FLUSHED_AFTER:
            mounted.run("flush", mounted.path)
        if number in REMOUNTED_AFTER:
            mounted.umount()
            mounted.remount()
        if number in FLUSHED_AFTER | REMOUNTED_AFTER:
            assert described(mounted.path / image_of(step), tmp_path) == expected, f"{step}, then flushed or remounted"
    mounted.umount("--seal")
    for verb in ("fsck", "scrub"):
        mounted.run(verb, mounted.volume)


@pytest.mark.parametrize(
    ("image_format", "preallocation"),
    [("raw", "falloc"), ("raw", "full"), ("qcow2", "falloc"), ("qcow2", "full")],
)
def test_preallocated_images_can_be_made_without_fallocate(place: Path, image_format: str, preallocation: str) -> None:
    image = place / "image"
    run("qemu-img", "create", "-q", "-f", image_format, "-o", f"preallocation={preallocation}", image, "4M")
    assert run("qemu-img", "map", "-f", image_format, "--output=json", image)
    run("qemu-io", "-f", image_format, "-c", "read -P 0 0 4M", image)


def test_holes_of_a_raw_image_are_seen_where_the_front_end_can_tell_them(fuse: None, tmp_path: Path) -> None:
    """Without SEEK_HOLE holes cannot be told; tools then read them, and find zeros."""
    for frontend, data in {"pyfuse3": True, "kernel": False}.items():
        for mount in mounted_below(tmp_path, "--frontend", frontend, name=frontend):
            image = mount.path / "image"
            run("qemu-img", "create", "-q", "-f", "raw", image, "4M")
            mount.run("flush", mount.path)
            extents = json.loads(run("qemu-img", "map", "-f", "raw", "--output=json", image))
            assert sum(extent["length"] for extent in extents) == 4 * MIB
            assert {extent["data"] for extent in extents[1:] or extents} == {data}


def test_discard_is_accepted_and_makes_holes_where_the_front_end_can(fuse: None, tmp_path: Path) -> None:
    """Where it can't, the data stay, and zeros written instead read as zeros."""
    for frontend, discarded in {"pyfuse3": b"x" * MIB, "kernel": bytes(MIB)}.items():
        for mount in mounted_below(tmp_path, "--frontend", frontend, name=frontend):
            image = mount.path / "image"
            image.write_bytes(b"x" * (4 * MIB))
            unmap = ("qemu-io", "-d", "unmap", "-f", "raw")
            run(*unmap, "-c", "discard 0 1M", "-c", "write -z -u 1M 1M", image)
            assert image.read_bytes() == discarded + bytes(MIB) + b"x" * (2 * MIB)
