"""openstacksdk: OpenStack's own library, which asks what a server can before it uploads, and lists segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.interop.clients import Program
from tests.interop.session import BLOCK, TOKENS, Session, data, same

_CONNECT: Final = """
import sys, openstack
url, token, container, *rest = sys.argv[1:]
auth = {"auth_url": url, "username": "alice", "password": token}
cloud = openstack.connect(auth_type="v1password", auth=auth, region_name="here")
store = cloud.object_store
"""


class Sdk:
    """A program that uses the library, in one container."""

    def __init__(self, session: Session, program: Program, container: str) -> None:
        self.session = session
        self.container = container
        self._program = program

    def __call__(self, text: str, *arguments: object) -> str:
        url = f"{self.session.url}/auth/v1.0"
        return self.session.run(
            self._program, _CONNECT + text, url, TOKENS["alice"], self.container, *map(str, arguments)
        )


def containers_and_metadata(sdk: Sdk) -> None:
    sdk("store.create_container(container)")
    sdk("store.set_container_metadata(container, note='a b')")
    same(sdk("print(store.get_container_metadata(container).metadata['note'])"), "a b\n", "metadata")
    same(sdk("print(store.get_account_metadata().account_container_count > 0)"), "True\n", "containers")


def upload_and_download(sdk: Sdk) -> None:
    sdk("store.create_container(container); store.upload_object(container, 'f.txt', data=b'text')")
    same(sdk("print(store.download_object('f.txt', container=container).decode())"), "text\n", "content")
    same(sdk("print([one.name for one in store.objects(container)])"), "['f.txt']\n", "names")
    sdk("store.set_object_metadata('f.txt', container=container, note='a b')")
    told = "one = store.get_object_metadata('f.txt', container=container); print(one.content_type, one.metadata)"
    same(sdk(told), "text/plain {'note': 'a b'}\n", "type and metadata")
    sdk("store.delete_object('f.txt', container=container)")


def a_large_object(sdk: Sdk, static: bool) -> None:
    content = data(10 * BLOCK + 5, 60)
    file, target = sdk.session.file("sdk", content), sdk.session.place("sdk-back")
    sdk("store.create_container(container)")
    sized = f"segment_size={3 * BLOCK}, use_slo={static}"
    sdk(f"cloud.create_object(container, 'f', filename=rest[0], {sized})", file)
    sdk("open(rest[0], 'wb').write(store.download_object('f', container=container))", target)
    same(target.read_bytes(), content, "downloaded")
    told = "print(store.get_object_metadata('f', container=container).is_static_large_object)"
    same(sdk(told), f"{True if static else None}\n", "static")


def a_large_object_of_listed_segments(sdk: Sdk) -> None:
    a_large_object(sdk, static=True)


def a_large_object_of_segments_by_prefix(sdk: Sdk) -> None:
    a_large_object(sdk, static=False)


CHECKS: Final[tuple[Callable[[Sdk], None], ...]] = (
    containers_and_metadata,
    upload_and_download,
    a_large_object_of_listed_segments,
    a_large_object_of_segments_by_prefix,
)
