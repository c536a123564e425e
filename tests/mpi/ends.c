/*
 * ends kill|abort
 *
 * All ranks send to their neighbour for ever; after a while rank 1 is killed, or calls MPI_Abort.
 * The job must end; ends.sh sees to it that it does and leaves nothing behind.
 */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char out[100000], in[100000];
    int rank, ranks;

    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (long round = 0;; ++round) {
        int len = round % 2 == 0 ? 8 : (int) sizeof(out);
        if (rank == 1 && round == 1000) {
            if (strcmp(argv[1], "abort") == 0)
                MPI_Abort(MPI_COMM_WORLD, 7);
            kill(getpid(), SIGKILL);
        }
        MPI_Sendrecv(out, len, MPI_BYTE, (rank + 1) % ranks, 1, in, len, MPI_BYTE,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}
