/* Every pair of ranks, with sizes around every limit: of a datagram, of what ob1 inlines, of eager
 * messages and of fragments; then collectives, which are many pairs at once. */
#include "correct.h"

#include <stdlib.h>

/* Around 256 (what ob1 sends inline), 1472 and 8972 (datagrams), 32 KiB (eager), 65507 (the largest
 * datagram), 256 KiB (fragments), and 1, 2, 3 of the latter. */
static const int limits[] = {256, 1024, 1416, 1472, 4096, 8972, 32768, 65507, 262144, 524288, 786432};
/* ob1's headers go off the limit: 14 of a match, 32 of a fragment or a rendezvous, 56 of a put. */
static const int offsets[] = {-57, -56, -33, -32, -31, -15, -14, -1, 0, 1};
enum { LIMITS = sizeof(limits) / sizeof(limits[0]), OFFSETS = sizeof(offsets) / sizeof(offsets[0]) };

static long exchange(int to, int from, int len, int message)
{
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    MPI_Request requests[2];
    MPI_Status status[2];
    int got;
    long wrong;

    fill(out, (size_t) len, rank, message);
    MPI_Irecv(in, len, MPI_BYTE, from, message, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, len, MPI_BYTE, to, message, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, status);
    MPI_Get_count(&status[0], MPI_BYTE, &got);
    wrong = expect(got, len, "pairs: length") + differ(in, (size_t) len, from, message, "pairs")
        + differ_from(in + len, 1, 0xee, "pairs: the byte behind the message");
    free(out);
    free(in);
    return wrong;
}

long part_pairs(void)
{
    static const int others[] = {0, 1, 2, 7, 8, 63, 64, 65, 127, 128};
    long wrong = 0;
    int message = 0;

    for (int shift = 0; shift < ranks; ++shift) {
        int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
            wrong += exchange(to, from, others[i], message++);
        for (int i = 0; i < LIMITS; ++i)
            for (int k = 0; k < OFFSETS; ++k)
                wrong += exchange(to, from, limits[i] + offsets[k], message++);
        for (int i = 0; i < scale && shift == 1; ++i)
            wrong += exchange(to, from, (4 << 20) + 3 + i, message++);
    }
    return wrong;
}

static long all_to_all(int len)
{
    size_t one = (size_t) len, all = one * (size_t) ranks;
    unsigned char *out = memory(all), *in = memory(all);
    long wrong = 0;

    for (int to = 0; to < ranks; ++to)
        fill(out + one * (size_t) to, one, rank, to);
    MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; ++from)
        wrong += differ(in + one * (size_t) from, one, from, rank, "all to all");
    free(out);
    free(in);
    return wrong;
}

static long broadcast_and_gather(int len, int root)
{
    size_t one = (size_t) len, all = one * (size_t) ranks;
    unsigned char *out = memory(one), *in = memory(all);
    long wrong = 0;

    if (rank == root)
        fill(out, one, root, len);
    MPI_Bcast(out, len, MPI_BYTE, root, MPI_COMM_WORLD);
    wrong += differ(out, one, root, len, "broadcast");
    fill(out, one, rank, len + 1);
    MPI_Allgather(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; ++from)
        wrong += differ(in + one * (size_t) from, one, from, len + 1, "all gather");
    free(out);
    free(in);
    return wrong;
}

static long reduce(int count)
{
    int64_t *mine = memory((size_t) count * sizeof(int64_t));
    int64_t *sum = memory((size_t) count * sizeof(int64_t));
    long wrong = 0;

    for (int i = 0; i < count; ++i)
        mine[i] = (int64_t) (rank + 1) * i + rank;
    MPI_Allreduce(mine, sum, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
        int64_t n = ranks;
        wrong += sum[i] != n * (n + 1) / 2 * i + n * (n - 1) / 2;
    }
    free(mine);
    free(sum);
    return expect(wrong, 0, "all reduce: sums that are wrong");
}

long part_collectives(void)
{
    static const int sizes[] = {1, 100, 1417, 8192, 32713, 100000};
    long wrong = 0;

    for (int round = 0; round < scale; ++round) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
            wrong += all_to_all(sizes[i]);
            wrong += broadcast_and_gather(sizes[i], (int) i % ranks);
            wrong += reduce(sizes[i]);
        }
        for (int i = 0; i < 20; ++i)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    return wrong;
}
