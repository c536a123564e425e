/* More than anybody waits for: messages before their receives, from whom is not said, too long for
 * their receives, and thousands of requests at once. */
#include "correct.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All ranks flood rank 0, which looks elsewhere for a while and then asks in the reverse order. */
static long flood_root(int count, int len, int tag)
{
    long wrong = 0;

    if (rank != 0) {
        MPI_Request *requests = memory((size_t) count * sizeof(MPI_Request));
        unsigned char *out = memory((size_t) count * (size_t) len);
        for (int i = 0; i < count; ++i) {
            fill(out + (size_t) i * (size_t) len, (size_t) len, rank, i);
            MPI_Isend(out + (size_t) i * (size_t) len, len, MPI_BYTE, 0, tag + i % 7,
                      MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(out);
        return 0;
    }
    unsigned char *in = memory((size_t) len);
    usleep(200000);
    for (int from = ranks - 1; from > 0; --from) {
        /* Messages of one tag stay in order; the tags are asked for from the last. */
        for (int residue = 6; residue >= 0; --residue) {
            for (int i = residue; i < count; i += 7) {
                memset(in, 0, (size_t) len);
                MPI_Recv(in, len, MPI_BYTE, from, tag + residue, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                wrong += differ(in, (size_t) len, from, i, "flood");
            }
        }
    }
    free(in);
    return wrong;
}

/* Everybody to everybody, all at once, in one wait. */
static long flood_all(int count, int len)
{
    size_t one = (size_t) len, pieces = (size_t) count * (size_t) ranks;
    unsigned char *out = memory(one * pieces), *in = memory(one * pieces);
    MPI_Request *requests = memory(2 * pieces * sizeof(MPI_Request));
    long wrong = 0;
    size_t n = 0;

    for (int peer = 0; peer < ranks; ++peer) {
        for (int i = 0; i < count; ++i) {
            size_t at = ((size_t) peer * (size_t) count + (size_t) i) * one;
            fill(out + at, one, rank, peer * 1000 + i);
            MPI_Isend(out + at, len, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[n++]);
        }
    }
    for (int peer = ranks - 1; peer >= 0; --peer)
        for (int i = count - 1; i >= 0; --i)
            MPI_Irecv(in + ((size_t) peer * (size_t) count + (size_t) i) * one, len, MPI_BYTE, peer,
                      i, MPI_COMM_WORLD, &requests[n++]);
    MPI_Waitall((int) n, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; ++peer)
        for (int i = 0; i < count; ++i)
            wrong += differ(in + ((size_t) peer * (size_t) count + (size_t) i) * one, one, peer,
                            rank * 1000 + i, "flood of all");
    free(out);
    free(in);
    free(requests);
    return wrong;
}

long part_floods(void)
{
    long wrong = 0;

    for (int round = 0; round < scale; ++round) {
        wrong += flood_root(3000, 64, 10);
        wrong += flood_root(60, 40000, 20);
        wrong += flood_root(6, 700000, 30);
        wrong += flood_all(500, 48);
        wrong += flood_all(4, 300000);
    }
    /* PC-69: a hundred thousand requests before the first wait. */
    MPI_Request *requests = memory(100000 * sizeof(MPI_Request));
    int *numbers = memory(100000 * sizeof(int));
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 50000; ++i)
        MPI_Irecv(&numbers[50000 + i], 1, MPI_INT, from, 40, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < 50000; ++i) {
        numbers[i] = rank * 100000 + i;
        MPI_Isend(&numbers[i], 1, MPI_INT, to, 40, MPI_COMM_WORLD, &requests[50000 + i]);
    }
    MPI_Waitall(100000, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 50000; ++i)
        wrong += expect(numbers[50000 + i], from * 100000 + i, "one of many");
    free(requests);
    free(numbers);
    return wrong;
}

long part_any_source(void)
{
    enum { MESSAGES = 400, LEN_MAX = 50000 };
    static const int lens[] = {0, 8, 300, 1500, 33000, LEN_MAX};
    unsigned char *bytes = memory(LEN_MAX);
    long wrong = 0;

    if (rank != 0) {
        for (int i = 0; i < MESSAGES; ++i) {
            int len = lens[i % 6];
            fill(bytes, (size_t) len, rank, i);
            MPI_Send(bytes, len, MPI_BYTE, 0, 50 + i % 3, MPI_COMM_WORLD);
        }
        free(bytes);
        return 0;
    }
    int *next = memory((size_t) ranks * sizeof(int));
    memset(next, 0, (size_t) ranks * sizeof(int));
    for (int n = 0; n < MESSAGES * (ranks - 1); ++n) {
        MPI_Status status;
        int len;
        memset(bytes, 0, LEN_MAX);
        MPI_Recv(bytes, LEN_MAX, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &len);
        int from = status.MPI_SOURCE, i = next[from]++;
        /* Of one sender, messages match in the order in which they were sent. */
        wrong += expect(status.MPI_TAG, 50 + i % 3, "any source: tag")
            + expect(len, lens[i % 6], "any source: length")
            + differ(bytes, (size_t) len, from, i, "any source");
    }
    free(next);
    free(bytes);
    return wrong;
}

/* PC-90: sixteen messages that do not fit, then a hundred that do. */
long part_truncated(void)
{
    enum { LONG_BYTES = 65536 };
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, errors = 0;
    unsigned char *out = memory(LONG_BYTES), *in = memory(LONG_BYTES);
    MPI_Request requests[16];
    long wrong = 0;

    fill(out, LONG_BYTES, rank, 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 16; ++i)
        MPI_Isend(out, LONG_BYTES, MPI_BYTE, to, 60, MPI_COMM_WORLD, &requests[i]);
    usleep(50000);
    for (int i = 0; i < 16; ++i) {
        int class = MPI_SUCCESS;
        int code = MPI_Recv(in, 1024, MPI_BYTE, from, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        errors += class == MPI_ERR_TRUNCATE;
    }
    MPI_Waitall(16, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    wrong += expect(errors, 16, "truncated: errors")
        + differ_from(in + 1024, LONG_BYTES - 1024, 0xee, "truncated: what lies behind");
    for (int i = 0; i < 100; ++i) {
        int len = i * 657;
        fill(out, (size_t) len, rank, i);
        MPI_Sendrecv(out, len, MPI_BYTE, to, 61, in, LONG_BYTES, MPI_BYTE, from, 61,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += differ(in, (size_t) len, from, i, "after truncated");
    }
    free(out);
    free(in);
    return wrong;
}
