"""The tables of config.toml: what is accepted, what a refusal says, and that its page has every key."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.cli.registry.settings import PAGE, Settings, parse
from syncer.errors import UsageError
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier
from syncer.watch.notices.events import Notify
from syncer.watch.page.places import Metrics

FILE = "/home/ann/.config/blocksync/config.toml"
ROW = re.compile(r"^\| `(?P<key>\w+)` \|.*\| `(?P<default>[^|]+)` \|[^|]+\|$", re.MULTILINE)


def test_an_empty_file_sets_nothing() -> None:
    assert parse("", FILE) == parse("[peers]", FILE) == Settings()


def test_every_key_can_be_set() -> None:
    text = """
        [peers]
        enabled = false
        carriers = ["udp4"]
        ethertype = 0x9000
        port = 1
        group = "ff12::1"
        interfaces = ["eth*"]
        ignored_interfaces = ["wlan0"]
        metered_interfaces = ["usb0"]
        on_metered = "on"
        on_battery = "off"
        upload_limit = "500KiB"
        download_limit = "20MB"
        uploads = 64
        """
    peers = parse(text, FILE).peers
    assert peers == Peers(
        enabled=False,
        carriers=(Carrier.UDP4,),
        ethertype=0x9000,
        port=1,
        group="ff12::1",
        interfaces=("eth*",),
        ignored_interfaces=("wlan0",),
        metered_interfaces=("usb0",),
        on_metered=Use.ON,
        on_battery=Use.OFF,
        upload_limit="500KiB",
        download_limit="20MB",
        uploads=64,
    )
    assert (peers.upload_bytes_per_s, peers.download_bytes_per_s) == (500 << 10, 20_000_000)
    assert not [name for name in Peers.__struct_fields__ if getattr(peers, name) == getattr(Peers(), name)]


def test_zero_is_no_limit() -> None:
    assert (Peers().upload_bytes_per_s, Peers(download_limit="0MB").download_bytes_per_s) == (None, None)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("[peers]\nprot = 1", "peers.prot", "there is no such key"),
        ("[peer]", "peer", "there is no such key"),
        ("port = 1", "port", "there is no such key"),
        ("peers = 1", "peers", "expected a table, got an integer"),
        ('[peers]\nenabled = "yes"', "peers.enabled", "expected true or false, got a string"),
        ('[peers]\nport = "17511"', "peers.port", "expected an integer, got a string"),
        ("[peers]\nport = 0", "peers.port", "expected an integer >= 1"),
        ("[peers]\nethertype = 1500", "peers.ethertype", "expected an integer >= 1536"),
        ("[peers]\nuploads = 65", "peers.uploads", "expected an integer <= 64"),
        ('[peers]\ninterfaces = "eth0"', "peers.interfaces", "expected an array, got a string"),
        ('[peers]\ninterfaces = ["eth0", 1]', "peers.interfaces[1]", "expected a string, got an integer"),
        ('[peers]\ncarriers = ["udp5"]', "peers.carriers[0]", "expected one of ethernet, udp6, udp4"),
        ("[peers]\ncarriers = []", "peers.carriers", "expected one at least"),
        ('[peers]\non_battery = "maybe"', "peers.on_battery", "expected one of off, ask, on"),
        ('[peers]\ngroup = "ff02::1"', "peers.group", "expected an IPv6 address of ff12::/16, got 'ff02::1'"),
        ('[peers]\ngroup = "here"', "peers.group", "expected an IPv6 address of ff12::/16, got 'here'"),
        ('[metrics]\nlisten = "8802"', "metrics.listen", "expected HOST:PORT of this machine only"),
        ('[metrics]\nlisten = "0.0.0.0:8802"', "metrics.listen", "expected HOST:PORT of this machine only"),
        ('[metrics]\nlisten = "127.0.0.1:65536"', "metrics.listen", "expected HOST:PORT of this machine only"),
        ('[peers]\nupload_limit = "fast"', "peers.upload_limit", "expected a size per second"),
    ],
)
def test_a_refusal_names_file_and_key_and_says_what_was_expected(text: str, key: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text, FILE)
    assert str(refused.value).startswith(f"{FILE}: {key}: {said}")
    assert PAGE in str(refused.value)
    assert refused.value.exit_code == 2


def test_what_is_no_toml_is_told_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"config\.toml is not TOML: .*line 2.*correct that line"):
        parse("[peers]\nport 17511", FILE)


@given(st.text())
def test_no_text_is_more_than_refused(text: str) -> None:
    with suppress(UsageError):
        parse(text, FILE)


def test_the_page_has_every_key_with_its_default_and_no_other() -> None:
    """Breaks when a key is added, dropped or given another default, and the page is not."""
    page = (Path(__file__).parents[4] / PAGE).read_text()
    told = {match["key"]: tomllib.loads(f"x = {match['default']}")["x"] for match in ROW.finditer(page)}
    kept = [msgspec.json.decode(msgspec.json.encode(each)) for each in (Peers(), Notify(), Metrics())]
    assert told == {**kept[0], **kept[1], **kept[2]}


def test_the_example_of_the_page_is_accepted() -> None:
    page = (Path(__file__).parents[4] / PAGE).read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    assert parse(example, FILE) != Settings()
