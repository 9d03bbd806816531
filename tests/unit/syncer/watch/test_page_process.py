"""The page's process, as the daemon begins, asks and ends it; played by small programs."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import msgspec
import trio

from syncer.watch.control import Ready
from syncer.watch.page.process import PageProcess

READY = msgspec.json.encode(Ready(address="http://page/", listen="127.0.0.1:1")).decode()
PAGE = f"""
import sys
print('{READY}', flush=True)
for number, line in enumerate(sys.stdin):
    print(f'http://page/open?key={{number}}', flush=True)
"""
REFUSES = f"print('{msgspec.json.encode(Ready(refused='in use', exit_code=11)).decode()}')"
ONE_LINK = f"print('{READY}', flush=True); input(); print('http://page/open?key=0', flush=True)"


def play(program: str, scenario: Callable[[PageProcess], Awaitable[None]]) -> None:
    async def run() -> None:
        page = PageProcess((sys.executable, "-c", program))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(page.run)
            await scenario(page)
            nursery.cancel_scope.cancel()

    trio.run(run)


def test_one_process_gives_a_new_link_to_each_who_asks() -> None:
    async def scenario(page: PageProcess) -> None:
        links = [(await page.open("")).link for _ in range(3)]
        assert links == [f"http://page/open?key={number}" for number in range(3)]

    play(PAGE, scenario)


def test_it_stays_where_it_is_until_it_is_closed() -> None:
    async def scenario(page: PageProcess) -> None:
        assert (await page.open("127.0.0.1:1")).link
        other = await page.open("127.0.0.1:2")
        assert (other.exit_code, other.link) == (11, "")
        assert "--close" in other.refused
        assert (await page.close()).address == "http://page/"
        assert (await page.open("127.0.0.1:2")).link
        await page.close()
        assert (await page.close()).address == ""

    play(PAGE, scenario)


def test_what_it_can_not_do_is_told_to_who_asked() -> None:
    async def scenario(page: PageProcess) -> None:
        found = await page.open("")
        assert (found.refused, found.exit_code) == ("in use", 11)

    play(REFUSES, scenario)


def test_a_process_that_ended_is_begun_again() -> None:
    async def scenario(page: PageProcess) -> None:
        for _ in range(2):
            assert (await page.open("")).link == "http://page/open?key=0"
            assert page._process is not None
            await page._process.wait()

    play(ONE_LINK, scenario)


def test_one_that_never_was_a_page_is_told() -> None:
    async def scenario(page: PageProcess) -> None:
        found = await page.open("")
        assert found.refused
        assert found.exit_code == 1

    play("", scenario)


def test_a_daemon_without_a_page_says_so() -> None:
    async def run() -> None:
        found = await PageProcess(()).open("")
        assert (found.exit_code, found.refused) == (10, "this daemon has no page")

    trio.run(run)
