"""The program as a LAN peer, on networks and beside neighbours that do their worst."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import effort
from tests.kit.netns import Lan
from tests.kit.village import Village
from tests.system.lan import cables, life, limits, neighbours, strangers, wire
from tests.system.lan.trial import Ground, Trial

NODES = 9

EVERYDAY: list[Trial] = [
    life.the_first_pull_of_a_daemon,
    cables.a_fifth_of_our_frames_is_lost,
    wire.who_listens_learns_nothing,
]
"""The first of TRIALS: cheap ones, of each kind."""

TRIALS: list[Trial] = [
    *EVERYDAY,
    cables.shaped_links,
    cables.a_fifth_of_all_frames_is_lost,
    cables.a_cable_is_pulled_and_put_in_again_in_mid_transfer,
    cables.a_firewall_that_is_opened,
    cables.an_interface_that_goes_in_mid_transfer,
    cables.a_link_local_address_that_changes_in_mid_transfer,
    cables.a_small_mtu,
    cables.no_ipv4_at_all,
    cables.one_with_udp_only_beside_two_with_ethernet,
    neighbours.the_peer_that_serves_is_killed_in_mid_transfer,
    neighbours.the_only_peer_is_killed_in_mid_transfer,
    neighbours.who_downloads_is_killed_and_started_again,
    neighbours.a_peer_that_corrupts_is_banned,
    neighbours.a_peer_that_lies_is_ignored,
    neighbours.a_peer_that_stalls_is_let_go,
    neighbours.a_corrupting_peer_alone,
    neighbours.a_lying_peer_alone,
    neighbours.a_stalling_peer_alone,
    neighbours.bytes_that_changed_on_the_disk_of_a_peer_are_never_served,
    neighbours.a_damaged_volume_of_a_peer,
    life.many_small_files,
    life.two_that_start_together,
    life.reconciles_that_start_together,
    life.a_reconcile_that_gives_is_killed,
    life.two_users_of_one_machine,
    life.seven_that_pull_at_once_from_one,
    life.who_gives_switches_off_in_mid_transfer,
    life.who_asks_switches_off_in_mid_transfer,
    life.a_root_is_paused_in_mid_transfer,
    life.the_key_is_rotated_in_mid_transfer,
    life.settings_that_change_in_mid_transfer,
    life.a_reconcile_beside_a_daemon,
    life.the_daemon_is_killed_while_a_reconcile_uses_it,
    life.a_reconcile_beside_an_older_daemon,
    life.the_server_dies_when_the_block_lists_are_known,
    life.the_server_is_out_of_reach_when_the_block_lists_are_known,
    life.volumes_of_other_block_sizes,
    limits.what_is_fetched_keeps_to_its_limit,
    limits.what_is_given_keeps_to_its_limit_for_all_together,
    wire.nobody_says_anything_when_nothing_is_wanted,
    strangers.a_peer_of_another_share,
    strangers.many_connections,
    strangers.a_member_of_two_shares,
    strangers.what_is_not_of_the_share_yet,
    strangers.a_volume_that_holds_more_than_the_share,
    strangers.a_volume_of_smaller_blocks_that_holds_more_than_the_share,
    strangers.frames_that_are_sent_again,
    strangers.a_flood,
    strangers.clocks_nine_minutes_apart,
    strangers.clocks_eleven_minutes_apart,
]


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Village]:
    with Lan(NODES, home=tmp_path_factory.mktemp("village")) as lan:
        yield Village(lan)


@pytest.fixture
def ground(village: Village, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    yield Ground(village, tmp_path, request.node.callspec.id)
    village.tidy()


@pytest.mark.parametrize("trial", effort.first("trials on a LAN", TRIALS), ids=lambda trial: trial.__name__)
def test_on_a_lan(ground: Ground, trial: Trial) -> None:
    trial(ground)
