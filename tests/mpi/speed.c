/*
 * speed [ROUNDS_SCALE]
 *
 * Two ranks. Per size: half a round trip (mean of many), and the rate of 32 sends under way at a
 * time, answered by one empty message. Lines of `size half_us mbytes_per_s`.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 4 << 20, UNDER_WAY = 32 };

static char *out, *in;

static double half_round_trip_us(int me, int len, int rounds)
{
    double begin_s = 0;

    for (int i = -rounds / 10; i < rounds; ++i) {
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin_s = MPI_Wtime();
        }
        if (me == 0)
            MPI_Send(out, len, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, len, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (me == 1)
            MPI_Send(out, len, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin_s) / rounds / 2 * 1e6;
}

static double mbytes_per_s(int me, int len, int rounds)
{
    MPI_Request requests[UNDER_WAY];
    double begin_s = 0;

    for (int i = -1; i < rounds; ++i) {
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin_s = MPI_Wtime();
        }
        for (int k = 0; k < UNDER_WAY; ++k) {
            if (me == 0)
                MPI_Isend(out, len, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(in, len, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[k]);
        }
        MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
        if (me == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return (double) len * UNDER_WAY * rounds / (MPI_Wtime() - begin_s) / 1e6;
}

int main(int argc, char **argv)
{
    static const int lens[] = {8, 64, 512, 1024, 4096, 16384, 65536, 262144, 1 << 20, BYTES_MAX};
    double scale = argc > 1 ? atof(argv[1]) : 1;
    int me, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    out = calloc(1, BYTES_MAX);
    in = calloc(1, BYTES_MAX);
    if (ranks != 2 || out == NULL || in == NULL) {
        fprintf(stderr, "speed: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(out, 1, BYTES_MAX);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); ++i) {
        int len = lens[i];
        int rounds = (int) (scale * (len <= 4096 ? 20000 : 100e6 / len)) + 10;
        double us = half_round_trip_us(me, len, rounds);
        double rate = mbytes_per_s(me, len, (int) (scale * (len <= 4096 ? 1000 : 5e6 / len)) + 4);
        if (me == 0)
            printf("%d %.2f %.1f\n", len, us, rate);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
