/* One-sided: to oneself and to all others, by fences, by locks, and by post and start. */
#include "correct.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = 100000, COUNTERS = 10000 };

/* Each rank puts into its own slot at every rank. Memory of our own, so that no shortcut through
 * the host's memory is taken. */
static long put_by_fence(void)
{
    size_t len = (size_t) ranks * SLOT_BYTES;
    unsigned char *memory_of_window = memory(len), *out = memory(len), *back = memory(SLOT_BYTES);
    long wrong = 0;
    MPI_Win window;

    MPI_Win_create(memory_of_window, (MPI_Aint) len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; ++to) {
        unsigned char *from = out + (size_t) to * SLOT_BYTES;
        fill(from, SLOT_BYTES, rank, to);
        MPI_Put(from, SLOT_BYTES, MPI_BYTE, to, (MPI_Aint) rank * SLOT_BYTES, SLOT_BYTES, MPI_BYTE,
                window);
    }
    MPI_Win_fence(0, window);
    for (int from = 0; from < ranks; ++from)
        wrong += differ(memory_of_window + (size_t) from * SLOT_BYTES, SLOT_BYTES, from, rank, "put");
    for (int shift = 0; shift < ranks; ++shift) {
        int target = (rank + shift) % ranks;
        MPI_Win_fence(0, window);
        MPI_Get(back, SLOT_BYTES, MPI_BYTE, target, (MPI_Aint) rank * SLOT_BYTES, SLOT_BYTES,
                MPI_BYTE, window);
        MPI_Win_fence(0, window);
        wrong += differ(back, SLOT_BYTES, rank, target, "get");
    }
    MPI_Win_free(&window);
    free(memory_of_window);
    free(out);
    free(back);
    return wrong;
}

static long put_by_lock_and_by_post(void)
{
    int64_t *cells = memory((size_t) ranks * 8), mine = rank + 1000;
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Group world, sources, targets;
    long wrong = 0;
    MPI_Win window;

    memset(cells, 0, (size_t) ranks * 8);
    MPI_Win_create(cells, (MPI_Aint) ranks * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int target = 0; target < ranks; ++target) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
        MPI_Put(&mine, 1, MPI_INT64_T, target, rank, 1, MPI_INT64_T, window);
        MPI_Win_unlock(target, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int i = 0; i < ranks; ++i)
        wrong += expect((long) cells[i], i + 1000, "put under a lock");
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &from, &sources);
    MPI_Group_incl(world, 1, &to, &targets);
    mine = rank + 5000;
    MPI_Win_post(sources, 0, window);
    MPI_Win_start(targets, 0, window);
    MPI_Put(&mine, 1, MPI_INT64_T, to, 0, 1, MPI_INT64_T, window);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    wrong += expect((long) cells[0], from + 5000, "put after post");
    MPI_Group_free(&world);
    MPI_Group_free(&sources);
    MPI_Group_free(&targets);
    MPI_Win_free(&window);
    free(cells);
    return wrong;
}

/* Strided here, in one piece there. */
static long put_of_a_type(void)
{
    enum { PIECES = 9000 };
    int32_t *cells = memory(PIECES * 4), *out = memory(PIECES * 12);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Datatype strided;
    long wrong = 0;
    MPI_Win window;

    for (int i = 0; i < PIECES * 3; ++i)
        out[i] = rank * 1000000 + i;
    MPI_Type_vector(PIECES, 1, 3, MPI_INT32_T, &strided);
    MPI_Type_commit(&strided);
    MPI_Win_create(cells, PIECES * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(out, 1, strided, to, 0, PIECES, MPI_INT32_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < PIECES; ++i)
        wrong += cells[i] != from * 1000000 + i * 3;
    MPI_Win_free(&window);
    MPI_Type_free(&strided);
    free(cells);
    free(out);
    return expect(wrong, 0, "put of a type: cells that are wrong");
}

long part_windows(void)
{
    long wrong = 0;

    for (int round = 0; round < scale; ++round)
        wrong += put_by_fence() + put_by_lock_and_by_post() + put_of_a_type();
    return wrong;
}

/* PC-89: all ranks work on one target; each addition counts once, whatever the network repeats. */
long part_atomics(void)
{
    int rounds = 300 * scale;
    int64_t *cells = memory((COUNTERS + 2) * 8), *ones = memory(COUNTERS * 8), one = 1, old;
    long wrong = 0, swaps = 0, swaps_of_all = 0;
    MPI_Win window;

    memset(cells, 0, (COUNTERS + 2) * 8);
    for (int i = 0; i < COUNTERS; ++i)
        ones[i] = i % 5;
    MPI_Win_create(cells, (COUNTERS + 2) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < rounds; ++i) {
        int64_t expected = i, next = i + 1;
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        wrong += old < 0 || old >= (int64_t) rounds * ranks;
        MPI_Compare_and_swap(&next, &expected, &old, MPI_INT64_T, 0, 1, window);
        MPI_Win_flush(0, window);
        swaps += old == i;
    }
    for (int count = 1; count <= COUNTERS; count *= 10)
        MPI_Accumulate(ones, count, MPI_INT64_T, 0, 2, count, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&swaps, &swaps_of_all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (rank == 0) {
        wrong += expect((long) cells[0], (long) rounds * ranks, "fetch and op");
        wrong += expect((long) cells[1], swaps_of_all, "compare and swap");
        for (int i = 0; i < COUNTERS; ++i) {
            int times = 1 + (i < 1000) + (i < 100) + (i < 10) + (i < 1);
            wrong += cells[2 + i] != (int64_t) (i % 5) * times * ranks;
        }
    }
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
    free(cells);
    free(ones);
    return expect(wrong, 0, "atomics: things that are wrong");
}
