"""What a device reads of a repository with many indexes that nobody has collected."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.syncer.remote.repository.share import Share, fetched, listed, path, put, random_bytes, run


def test_of_many_commits_a_new_device_reads_few_indexes() -> None:
    async def scenario(share: Share) -> None:
        writer = share.client(1)
        for number in range(40):
            await put(writer, f"file{number}", random_bytes(number, 3000))
            await writer.commit()
        indexes = [name for name in share.objects if name.startswith("indexes/")]
        assert len(indexes) == 40
        reader, read = share.client(2), set[str]()
        store = reader._objects.store
        get = store.get

        async def noted(name: str, *args: Sequence[object], **more: int) -> bytes:
            read.add(name)
            return await get(name, *args, **more)  # type: ignore[arg-type]

        store.get = noted  # type: ignore[assignment, method-assign]
        found = await listed(reader)
        for number in range(40):
            assert await fetched(reader, found[path(f"file{number}")]) == random_bytes(number, 3000)
        assert len(read.intersection(indexes)) <= 10

    run(scenario)
