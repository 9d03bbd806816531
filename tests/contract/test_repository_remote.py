"""What holds for every remote, on a repository: those tests of the other suites that say nothing of HTTP or of Pithos.

Left out is what a repository does otherwise: two devices may write at the same time, and both versions are kept;
versions are not named by their contents alone; a change of metadata sends nodes of trees.
"""

from __future__ import annotations

import pytest

from tests.contract.remotes import RepositoryRemote, Subject, anew, with_folders
from tests.contract.test_bulk import (
    test_a_folder_full_of_objects_moves,
    test_each_change_has_its_own_condition,
    test_many_small_changes_at_once,
    test_many_small_objects_are_made_in_one_request,
    test_of_many_small_objects_each_has_its_own_fate,
    test_what_can_not_be_moved_stays,
)
from tests.contract.test_bulk_read import (
    test_older_versions_are_read_and_what_is_gone_is_told,
    test_texts_of_many_links_come_together,
)
from tests.contract.test_cloud_client import (
    test_a_create_does_not_replace,
    test_a_file_comes_back_as_it_was_sent,
    test_a_file_that_changes_while_it_is_sent_does_not_become_visible,
    test_a_lost_message_neither_loses_nor_repeats_a_write,
    test_a_moment_is_another_after_a_change_and_the_same_without,
    test_a_move_does_not_replace_its_target,
    test_a_small_file_that_was_sent_ahead_is_made_of_what_is_there,
    test_a_stale_expectation_changes_nothing,
    test_an_attribute_that_is_too_large_to_travel_is_not_on_the_server,
    test_blocks_are_stored_under_their_ids_in_any_form,
    test_deleting_twice_is_fine_and_a_new_life_has_a_new_uuid,
    test_directories_and_symlinks_keep_their_kinds,
    test_looking_changes_nothing,
    test_metadata_survive_a_new_content,
    test_of_several_writers_with_one_expectation_exactly_one_wins,
    test_old_versions_stay_readable_while_they_are_replaced,
    test_on_our_server_each_small_write_is_one_request,
    test_parked_objects_are_listed_and_other_reserved_names_are_not_taken,
    test_single_blocks_are_read_by_index,
    test_the_serial_of_the_container_never_sinks,
    test_uuid_stays_through_updates_and_moves,
    test_what_is_gone_can_not_be_changed,
    test_zero_blocks_travel_as_nothing,
)
from tests.contract.test_source import (
    test_a_version_that_is_gone_fails_only_what_is_nowhere_else,
    test_a_want_without_a_place_is_lacked,
    test_of_small_contents_only_the_one_that_is_gone_fails,
    test_small_and_long_files_and_their_common_blocks_come_once,
    test_small_contents_that_are_wanted_together_share_requests,
)
from tests.contract.test_write import (
    test_an_empty_list_costs_nothing,
    test_orders_of_all_kinds_in_one_list_have_an_outcome_each,
    test_who_fails_to_send_a_shared_block_leaves_it_to_others,
)

__all__ = [
    "test_a_create_does_not_replace",
    "test_a_file_comes_back_as_it_was_sent",
    "test_a_file_that_changes_while_it_is_sent_does_not_become_visible",
    "test_a_folder_full_of_objects_moves",
    "test_a_lost_message_neither_loses_nor_repeats_a_write",
    "test_a_moment_is_another_after_a_change_and_the_same_without",
    "test_a_move_does_not_replace_its_target",
    "test_a_small_file_that_was_sent_ahead_is_made_of_what_is_there",
    "test_a_stale_expectation_changes_nothing",
    "test_a_version_that_is_gone_fails_only_what_is_nowhere_else",
    "test_a_want_without_a_place_is_lacked",
    "test_an_attribute_that_is_too_large_to_travel_is_not_on_the_server",
    "test_an_empty_list_costs_nothing",
    "test_blocks_are_stored_under_their_ids_in_any_form",
    "test_deleting_twice_is_fine_and_a_new_life_has_a_new_uuid",
    "test_directories_and_symlinks_keep_their_kinds",
    "test_each_change_has_its_own_condition",
    "test_looking_changes_nothing",
    "test_many_small_changes_at_once",
    "test_many_small_objects_are_made_in_one_request",
    "test_metadata_survive_a_new_content",
    "test_of_many_small_objects_each_has_its_own_fate",
    "test_of_several_writers_with_one_expectation_exactly_one_wins",
    "test_of_small_contents_only_the_one_that_is_gone_fails",
    "test_old_versions_stay_readable_while_they_are_replaced",
    "test_older_versions_are_read_and_what_is_gone_is_told",
    "test_on_our_server_each_small_write_is_one_request",
    "test_orders_of_all_kinds_in_one_list_have_an_outcome_each",
    "test_parked_objects_are_listed_and_other_reserved_names_are_not_taken",
    "test_single_blocks_are_read_by_index",
    "test_small_and_long_files_and_their_common_blocks_come_once",
    "test_small_contents_that_are_wanted_together_share_requests",
    "test_texts_of_many_links_come_together",
    "test_the_serial_of_the_container_never_sinks",
    "test_uuid_stays_through_updates_and_moves",
    "test_what_can_not_be_moved_stays",
    "test_what_is_gone_can_not_be_changed",
    "test_who_fails_to_send_a_shared_block_leaves_it_to_others",
    "test_zero_blocks_travel_as_nothing",
]


@pytest.fixture(params=["repository", "repository-folder"])
def remote(request: pytest.FixtureRequest) -> Subject:
    """A repository in memory, and a folder of one."""
    return anew(with_folders(repository=RepositoryRemote())[request.param])
