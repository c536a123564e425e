"""Python's objects and buffers of all sizes among all ranks, by mpi4py. Any wrong byte is an error."""

from array import array

import mpi4py

# Open MPI 4.1 has no windows for several threads over transports that only send.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI  # noqa: E402

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size

for size in (1, 100, 10_000, 300_000, 2_000_000):
    mine = {"rank": rank, "list": list(range(size // 100)), "bytes": bytes([rank % 256]) * size}
    for source, theirs in enumerate(world.allgather(mine)):
        assert theirs["rank"] == source and theirs["list"] == list(range(size // 100))
        assert theirs["bytes"] == bytes([source % 256]) * size

    total = array("q", bytes(8 * size))
    world.Allreduce([array("q", range(rank, rank + size)), MPI.INT64_T], [total, MPI.INT64_T])
    first = ranks * (ranks - 1) // 2
    assert total == array("q", range(first, first + ranks * size, ranks))

    there, back = bytearray([rank % 256]) * (size * ranks), bytearray(size * ranks)
    world.Alltoall([there, MPI.BYTE], [back, MPI.BYTE])
    assert all(back[i * size : (i + 1) * size] == bytes([i % 256]) * size for i in range(ranks))

# Received in the reverse order of sending: every one waits unexpected.
requests = [world.isend((rank, i), (rank + 1) % ranks, i) for i in range(500)]
for i in reversed(range(500)):
    assert world.recv(source=(rank - 1) % ranks, tag=i) == ((rank - 1) % ranks, i)
MPI.Request.Waitall(requests)

memory = array("i", bytes(4 * ranks))
window = MPI.Win.Create(memory, 4, comm=world)
window.Fence()
for target in range(ranks):
    window.Put([array("i", [rank + 1]), MPI.INT], target, (rank, 1, MPI.INT))
window.Fence()
assert list(memory) == [source + 1 for source in range(ranks)]
window.Free()

if rank == 0:
    print(f"objects: {ranks} ranks, ok")
