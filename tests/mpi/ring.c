// A token goes round all ranks a hundred times, then a large message reaches all of them. Every
// byte is compared; the exit status is 1 when one is wrong.
#include <mpi.h>
#include <stdio.h>

enum { ROUNDS = 100, LARGE_BYTES = 3 << 20 };

static unsigned char large[LARGE_BYTES];

static unsigned char expected(int at) { return (unsigned char)(at * 7 + at / 251); }

int main(int argc, char **argv)
{
    int rank, ranks, token = 0, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

    for (int round = 0; round < ROUNDS; round++) {
        if (rank > 0)
            MPI_Recv(&token, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token++;
        MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&token, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    wrong += rank == 0 && token != ROUNDS * ranks;

    for (int at = 0; rank == 0 && at < LARGE_BYTES; at++)
        large[at] = expected(at);
    MPI_Bcast(large, LARGE_BYTES, MPI_UNSIGNED_CHAR, 0, MPI_COMM_WORLD);
    for (int at = 0; at < LARGE_BYTES; at++)
        wrong += large[at] != expected(at);

    int wrong_anywhere = 0;
    MPI_Allreduce(&wrong, &wrong_anywhere, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ring: %d ranks, token %d, %d wrong\n", ranks, token, wrong_anywhere);
    MPI_Finalize();
    return wrong_anywhere != 0;
}
