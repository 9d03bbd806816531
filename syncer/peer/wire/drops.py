"""Why something that came from the network was not taken: one closed set, so that a counter of drops has one label."""

from __future__ import annotations

from enum import StrEnum


class Drop(StrEnum):
    """A reason. Whatever reads hostile bytes returns one; it never raises for them.

    The first group is in the order in which a receiver of frames looks, cheapest first.
    """

    SIZE = "size"  # shorter or longer than any frame
    MAGIC = "magic"  # another user of the EtherType
    VERSION = "version"
    FLAGS = "flags"  # or a reserved field that is not 0
    LENGTH = "length"  # what the header says of the body is not what came
    TYPE = "type"
    EPOCH = "epoch"  # more than one epoch away: clocks differ
    OWN = "own"  # we sent it
    HINT = "hint"  # of no share that we know
    REPLAY = "replay"  # the counter was seen, or is older than the window
    BUDGET = "budget"  # more from this sender, or in all, than we look at
    TAG = "tag"  # forged, damaged, or sealed under another key
    BODY = "body"  # sealed by who has the key, and yet not a body of this type
    BANNED = "banned"  # its sender sent wrong blocks
    QUESTION = "question"  # an answer to nothing that we asked, or a second one
    BUSY = "busy"  # a question beyond those that we work on

    CIPHER = "cipher"  # a preamble names a cipher that we don't speak
    HANDSHAKE = "handshake"  # it does not prove the share's key
    RECORD = "record"  # empty, or longer than any record
    MESSAGE = "message"  # a record's content is not a message
    TRANSFER = "transfer"  # parts of a block that don't make one
    UNKNOWN = "unknown"  # a message of a type that we don't know
