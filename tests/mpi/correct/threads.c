/* PC-72: several threads a rank, each with a communicator of its own; then all with one. */
#include "correct.h"

#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4 };

struct job {
    pthread_t thread;
    MPI_Comm comm;
    int number;
    bool has_tag;
    long wrong;
};

static long rounds(struct job *job, int count, int len)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int tag = job->has_tag ? job->number : 0;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    long wrong = 0;

    for (int i = 0; i < count; ++i) {
        MPI_Request request;
        int message = job->number * 100000 + i;
        fill(out, (size_t) len, rank, message);
        MPI_Isend(out, len, MPI_BYTE, to, tag, job->comm, &request);
        MPI_Recv(in, len, MPI_BYTE, from, tag, job->comm, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += differ(in, (size_t) len, from, message, "threads");
    }
    free(out);
    free(in);
    return wrong;
}

static void *run(void *argument)
{
    struct job *job = argument;

    job->wrong = rounds(job, 1000 * scale, 1) + rounds(job, 150 * scale, 8192)
        + rounds(job, 30 * scale, 131072);
    return NULL;
}

static long run_all(bool has_tag)
{
    struct job jobs[THREADS];
    long wrong = 0;

    for (int i = 0; i < THREADS; ++i) {
        jobs[i] = (struct job) {.comm = MPI_COMM_WORLD, .number = i, .has_tag = has_tag};
        if (!has_tag)
            MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
    }
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(jobs[i].thread, NULL);
        wrong += jobs[i].wrong;
        if (!has_tag)
            MPI_Comm_free(&jobs[i].comm);
    }
    return wrong;
}

long part_threads(void)
{
    return run_all(false) + run_all(true);
}
