"""Examples for the man pages: verb → what one wants, and the command line for it. A test parses each of them."""

from __future__ import annotations

from typing import Final

_URL: Final = "pithos+https://files.example.org/v1/me/images"
_REPOSITORY: Final = "swift://home/photos"

EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "init": (
        ("A volume for disk images:", "blocksync init /srv/volume"),
        ("One whose new blocks are compressed:", "blocksync init /srv/volume --compression zstd"),
    ),
    "mount": (
        ("Mount it; returns when it is ready:", "blocksync mount /srv/volume /srv/images"),
        ("For other users too, as a guest's hypervisor:", "blocksync mount /srv/volume /srv/images --allow-other"),
    ),
    "umount": (
        ("Unmount; everything is on the disk when it returns:", "blocksync umount /srv/images"),
        ("Turn what was written last into blocks first:", "blocksync umount --seal /srv/images"),
    ),
    "clone": (
        (
            "A new disk from a golden image, in an instant:",
            "blocksync clone /srv/images/golden.img /srv/images/web.img",
        ),
    ),
    "snapshot": (
        ("Keep all images as they are now:", "blocksync snapshot create /srv/images before-upgrade"),
        ("Which snapshots there are:", "blocksync snapshot list /srv/images"),
        (
            "Get one image back, under a new name:",
            "blocksync snapshot restore /srv/images before-upgrade /srv/images/old.img --path web.img",
        ),
        ("Give its space back:", "blocksync snapshot delete /srv/images before-upgrade"),
    ),
    "flush": (("Turn all that was written into blocks, now:", "blocksync flush /srv/images"),),
    "stats": (
        ("What the images are, and what they take:", "blocksync stats /srv/images"),
        ("For Prometheus:", "blocksync stats /srv/images --metrics"),
    ),
    "gc": (("Give the space of deleted files back now:", "blocksync gc /srv/images"),),
    "fsck": (
        ("Check a volume:", "blocksync fsck /srv/volume"),
        ("Repair what can be repaired, unmounted:", "blocksync fsck /srv/volume --repair"),
    ),
    "scrub": (
        ("Read and check every block:", "blocksync scrub /srv/images"),
        ("Fetch damaged ones from a backup:", "blocksync scrub /srv/volume --from /mnt/backup/volume"),
    ),
    "serve": (
        ("A server for this machine; it prints where its token is:", "blocksync serve /srv/blocksync"),
        ("With tokens of your own:", "blocksync serve /srv/blocksync --token-file /etc/blocksync/tokens"),
    ),
    "usage": (
        ("Accounts, containers, and what old versions come to:", "blocksync usage /srv/blocksync"),
        ("Each version counted, however many there are:", "blocksync usage /srv/blocksync --all"),
    ),
    "token": (
        ("A token for somebody, for thirty days:", "blocksync token new /srv/blocksync ann --expires 30d >ann.token"),
        ("One for Prometheus, which opens nothing else:", "blocksync token new /srv/blocksync /metrics"),
        ("Who has one:", "blocksync token list /srv/blocksync"),
        ("Take one back, while the server runs:", "blocksync token revoke /srv/blocksync 5f0c1d2e9a77"),
    ),
    "repo": (
        ("A repository in a container of a cloud of clouds.yaml:", f"blocksync repo init {_REPOSITORY}"),
        ("Is all there?", f"blocksync repo check {_REPOSITORY} --password-file ~/passphrase"),
        ("Delete what nobody needs any more, once a week:", f"blocksync repo gc {_REPOSITORY}"),
        ("A file that opens it, for a job of cron:", f"blocksync repo key add {_REPOSITORY} --key-file ~/key"),
        ("A laptop that is lost:", f"blocksync repo devices forget 45400a39 {_REPOSITORY}"),
        ("Is a tenth of the packs as it was written?", f"blocksync repo check {_REPOSITORY} --read-data 10%"),
    ),
    "link": (
        ("Link a folder or a mount to a container:", f"blocksync link ~/images {_URL} --token-file ~/token"),
        (
            "To a folder of a container, by kamaki's configuration:",
            "blocksync link ~/photos kamaki://home/pithos/photos",
        ),
        (
            "Merge anew after the server was restored; deletes nothing:",
            f"blocksync link ~/images {_URL} --relink --token-file ~/token",
        ),
    ),
    "unlink": (("Forget the link; no file is touched:", "blocksync unlink ~/images"),),
    "reconcile": (
        ("Both ways, once, all linked roots:", "blocksync reconcile"),
        ("See what would be done first:", "blocksync reconcile ~/images --dry-run"),
        ("Disks of running guests too, as of one instant:", "blocksync reconcile ~/images --snapshot"),
    ),
    "watch": (("Both ways, all the time:", "blocksync watch"),),
    "pause": (("Make the daemon leave a root alone:", "blocksync pause ~/images"),),
    "resume": (("Let it go on:", "blocksync resume ~/images"),),
    "peers": (
        ("Who is there, and what comes from whom:", "blocksync peers"),
        ("For Prometheus:", "blocksync peers --metrics"),
        ("A new key, when somebody left the share:", "blocksync peers rotate ~/images"),
        ("Neither ask nor answer on the network, whatever the root:", "blocksync peers off"),
        ("The same for one root:", "blocksync peers off ~/images"),
    ),
    "status": (
        ("How all roots stand:", "blocksync status"),
        ("What the daemon does, as it does it:", "blocksync status --follow"),
        ("For Prometheus:", "blocksync status --metrics"),
    ),
    "ignore": (
        ("Keep scratch files out of the sync:", "blocksync ignore ~/images add '*.tmp' /cache/"),
        ("Is this file synced, and why not?", "blocksync ignore ~/images check notes.tmp"),
        ("What is left out, and by which pattern?", "blocksync ignore ~/images names"),
    ),
    "ui": (
        ("Look at the roots with a browser:", "blocksync ui"),
        ("Have the browser show it, if there is one here:", "blocksync ui --open"),
        ("Have done with it:", "blocksync ui --close"),
    ),
    "trash": (
        ("What was deleted or replaced here:", "blocksync trash ls ~/images"),
        ("Get a file back to its place:", "blocksync trash restore ~/images/report.txt"),
        ("Delete what is older than a week:", "blocksync trash empty ~/images --older-than 7d"),
    ),
    "conflicts": (("Conflict copies that nobody has settled:", "blocksync conflicts"),),
    "resolve": (
        ("Keep what was changed here:", "blocksync resolve ~/images/report.txt --take local"),
        ("Keep both, under two ordinary names:", "blocksync resolve ~/images/report.txt --take both"),
    ),
    "plan": (
        ("What the next reconcile would do:", "blocksync plan ~/images"),
        (
            "Keep it, and do exactly that later:",
            "blocksync plan ~/images --json > p; blocksync reconcile --plan p",
        ),
    ),
    "explain": (("Why is this file as it is?", "blocksync explain ~/images/report.txt"),),
    "verify": (
        ("Do both sides have what was agreed?", "blocksync verify ~/images"),
        ("Down to the bytes:", "blocksync verify ~/images --deep"),
    ),
    "doctor": (
        ("Is this host fit for it?", "blocksync doctor"),
        ("And this root, its state and its server?", "blocksync doctor ~/images"),
    ),
}
