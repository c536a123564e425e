/* The other ways to send and to receive: persistent, synchronous, ready, buffered, probed. */
#include "correct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long total = 0, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld %ld", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * 4;
}

static long start_many(int count, int len, int growth_kib_max)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    MPI_Request requests[2];
    long wrong = 0, before_kib = 0;

    MPI_Send_init(out, len, MPI_BYTE, to, 70, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, len, MPI_BYTE, from, 70, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < count; ++i) {
        bool is_checked = i % 64 == 0;
        /* Caches and pools have reached their size by then. */
        if (i == count / 4)
            before_kib = resident_kib();
        if (is_checked)
            fill(out, (size_t) len, rank, i);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (is_checked)
            wrong += differ(in, (size_t) len, from, i, "persistent");
    }
    long growth_kib = resident_kib() - before_kib;
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(out);
    free(in);
    return wrong + expect(growth_kib <= growth_kib_max ? 0 : growth_kib, 0, "persistent: KiB grown");
}

/* PC-85. One rank may be ahead of another by as much as ob1 and the engine hold, hence some room. */
long part_persistent(void)
{
    return start_many(20000 * scale, 1, 4096) + start_many(300 * scale, 100000, 8192);
}

static long synchronous_and_ready(int len)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, is_done = 0;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    MPI_Request receive, send;
    long wrong = 0;

    fill(out, (size_t) len, rank, len);
    MPI_Issend(out, len, MPI_BYTE, to, 71, MPI_COMM_WORLD, &send);
    for (int i = 0; i < 100; ++i)
        MPI_Test(&send, &is_done, MPI_STATUS_IGNORE);
    /* Nobody has asked for it before the barrier: it cannot have been received. */
    wrong += expect(is_done, 0, "synchronous: done before its receive");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(in, len, MPI_BYTE, from, 71, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    wrong += differ(in, (size_t) len, from, len, "synchronous");

    memset(in, 0, (size_t) len);
    MPI_Irecv(in, len, MPI_BYTE, from, 72, MPI_COMM_WORLD, &receive);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Rsend(out, len, MPI_BYTE, to, 72, MPI_COMM_WORLD);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    wrong += differ(in, (size_t) len, from, len, "ready");
    free(out);
    free(in);
    return wrong;
}

static long probed(int len)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, got, is_there = 0;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    MPI_Request send, never;
    MPI_Message message;
    MPI_Status status;
    long wrong = 0;

    fill(out, (size_t) len, rank, len + 1);
    MPI_Isend(out, len, MPI_BYTE, to, 73, MPI_COMM_WORLD, &send);
    while (!is_there)
        MPI_Iprobe(from, 73, MPI_COMM_WORLD, &is_there, &status);
    MPI_Mprobe(from, 73, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    wrong += expect(got, len, "probed: length");
    MPI_Mrecv(in, len, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    wrong += differ(in, (size_t) len, from, len + 1, "probed");

    MPI_Irecv(in, len, MPI_BYTE, from, 74, MPI_COMM_WORLD, &never);
    MPI_Cancel(&never);
    MPI_Wait(&never, &status);
    MPI_Test_cancelled(&status, &got);
    wrong += expect(got, 1, "cancelled");
    free(out);
    free(in);
    return wrong;
}

long part_modes(void)
{
    static const int lens[] = {0, 1, 1417, 32712, 100000, 262113, 600000};
    long wrong = 0;

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i)
        wrong += synchronous_and_ready(lens[i]) + probed(lens[i]);
    return wrong;
}

/* PC-81: a hundred of mixed sizes in the attached buffer, while other messages take what there is. */
long part_buffered(void)
{
    enum { MESSAGES = 100, LEN_MAX = 65536 };
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, size;
    unsigned char *bytes = memory(LEN_MAX), *bulk = memory(4 << 20), *bulk_in = memory(4 << 20);
    int room = MESSAGES * (LEN_MAX / 2 + MPI_BSEND_OVERHEAD) + LEN_MAX;
    MPI_Request requests[2];
    void *buffer = memory((size_t) room), *detached;
    long wrong = 0;

    MPI_Buffer_attach(buffer, room);
    fill(bulk, 4 << 20, rank, 1000);
    MPI_Irecv(bulk_in, 4 << 20, MPI_BYTE, from, 81, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(bulk, 4 << 20, MPI_BYTE, to, 81, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < MESSAGES; ++i) {
        int len = 1 + (i * 7919) % (LEN_MAX / 2);
        fill(bytes, (size_t) len, rank, i);
        MPI_Bsend(bytes, len, MPI_BYTE, to, 80, MPI_COMM_WORLD);
        memset(bytes, 0x55, (size_t) len);
    }
    for (int i = 0; i < MESSAGES; ++i) {
        int len = 1 + (i * 7919) % (LEN_MAX / 2);
        MPI_Recv(bytes, LEN_MAX, MPI_BYTE, from, 80, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += differ(bytes, (size_t) len, from, i, "buffered");
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Buffer_detach(&detached, &size);
    wrong += expect(detached == buffer && size == room, 1, "buffered: the buffer comes back")
        + differ(bulk_in, 4 << 20, from, 1000, "beside buffered");
    free(bytes);
    free(bulk);
    free(bulk_in);
    free(buffer);
    return wrong;
}
