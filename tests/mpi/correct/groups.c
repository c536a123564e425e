/* Parts of the world, two groups that talk, and children. */
#include "correct.h"

#include <stdio.h>
#include <stdlib.h>
#include <dirent.h>

static long ring_in(MPI_Comm comm, int len, int message)
{
    int me, size, to, from;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    long wrong;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    to = (me + 1) % size;
    from = (me + size - 1) % size;
    fill(out, (size_t) len, me, message);
    MPI_Sendrecv(out, len, MPI_BYTE, to, 90, in, len, MPI_BYTE, from, 90, comm, MPI_STATUS_IGNORE);
    wrong = differ(in, (size_t) len, from, message, "ring in a group");
    free(out);
    free(in);
    return wrong;
}

static long between_groups(MPI_Comm half, int len)
{
    int color = rank % 2, me, remote_size;
    /* The halves count backwards: the last world rank of a parity leads it. */
    int remote_leader = ranks - 1 - (ranks - 1 + 1 - color) % 2;
    unsigned char *out = memory((size_t) len), *in = memory((size_t) len);
    MPI_Comm inter, merged;
    long wrong = 0;

    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, remote_leader, 91, &inter);
    MPI_Comm_rank(half, &me);
    MPI_Comm_remote_size(inter, &remote_size);
    for (int peer = 0; peer < remote_size; ++peer) {
        fill(out, (size_t) len, color * 1000 + me, peer);
        MPI_Request request;
        MPI_Isend(out, len, MPI_BYTE, peer, 92, inter, &request);
        MPI_Recv(in, len, MPI_BYTE, peer, 92, inter, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += differ(in, (size_t) len, (1 - color) * 1000 + peer, me, "between groups");
    }
    MPI_Intercomm_merge(inter, color, &merged);
    wrong += ring_in(merged, len, 7);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    free(out);
    free(in);
    return wrong;
}

long part_groups(void)
{
    static const int lens[] = {3, 1500, 40000, 300000};
    MPI_Comm half, copy;
    long wrong = 0;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int i = 0; i < 4; ++i) {
        wrong += ring_in(half, lens[i], i) + ring_in(copy, lens[i], 10 + i);
        wrong += between_groups(half, lens[i]);
    }
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    return wrong;
}

enum { CHILDREN = 2, CHILD_MESSAGES = 10, CHILD_BYTES = 90000 };

static long talk(MPI_Comm other, int self, int peers, int base)
{
    unsigned char *out = memory(CHILD_BYTES), *in = memory(CHILD_BYTES);
    long wrong = 0;

    for (int i = 0; i < CHILD_MESSAGES; ++i) {
        int len = i % 2 == 0 ? 16 + i : CHILD_BYTES - i;
        for (int peer = 0; peer < peers; ++peer) {
            MPI_Request request;
            fill(out, (size_t) len, base + self, i);
            MPI_Isend(out, len, MPI_BYTE, peer, i, other, &request);
            MPI_Recv(in, len, MPI_BYTE, peer, i, other, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            wrong += differ(in, (size_t) len, 500 - base + peer, i, "parent and child");
        }
    }
    free(out);
    free(in);
    return wrong;
}

/* What either side found wrong, both count: the children's own word would be heard by nobody. */
static long exchange(MPI_Comm other, int self, int peers, int base)
{
    long ours = talk(other, self, peers, base), theirs = 0;

    MPI_Allreduce(&ours, &theirs, 1, MPI_LONG, MPI_SUM, other);
    return ours + theirs;
}

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        ++count;
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* PC-58: children come, talk and go; what they took is given back each time. */
long part_spawn(void)
{
    int cycles = 3 * scale, descriptors = 0, threads = 0;
    long wrong = 0;

    for (int cycle = 0; cycle < cycles; ++cycle) {
        MPI_Comm children;
        int codes[CHILDREN];
        MPI_Comm_spawn((char *) (uintptr_t) program, MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0,
                       MPI_COMM_WORLD, &children, codes);
        wrong += exchange(children, rank, CHILDREN, 0);
        MPI_Comm_disconnect(&children);
        if (cycle == 0) {
            descriptors = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
        }
    }
    return wrong + expect(entries("/proc/self/fd"), descriptors, "descriptors after the children")
        + expect(entries("/proc/self/task"), threads, "threads after the children");
}

int child_main(MPI_Comm parent)
{
    int parents;
    long wrong;

    MPI_Comm_remote_size(parent, &parents);
    wrong = exchange(parent, rank, parents, 500);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return wrong != 0;
}
