/*
 * correct [-n SCALE] [-t SECONDS] [-a] [PART...]
 *
 * Without parts, all that the ranks and the level of threads allow. -a asks for
 * MPI_THREAD_MULTIPLE. A part that hangs ends the program after SECONDS (300), and is named.
 */
#include "correct.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rank, ranks, scale = 1;
const char *program;
static const char *current = "MPI_Init";

static const struct part {
    const char *name;
    long (*run)(void);
    int ranks_min;
    bool wants_threads, refuses_threads;
} parts[] = {
    {"pairs", part_pairs, 2, false, false},
    {"collectives", part_collectives, 2, false, false},
    {"types", part_types, 2, false, false},
    {"replace", part_replace, 2, false, false},
    {"floods", part_floods, 2, false, false},
    {"any-source", part_any_source, 2, false, false},
    {"truncated", part_truncated, 2, false, false},
    {"persistent", part_persistent, 2, false, false},
    {"modes", part_modes, 2, false, false},
    {"buffered", part_buffered, 2, false, false},
    /* Open MPI 4.1 has no one-sided component for send-only transports and several threads. */
    {"windows", part_windows, 2, false, true},
    {"atomics", part_atomics, 2, false, true},
    {"groups", part_groups, 2, false, false},
    {"spawn", part_spawn, 2, false, false},
    {"threads", part_threads, 2, true, false},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void give_up(int signal)
{
    static const char says[] = "correct: hangs in part ";

    (void) signal;
    /* Only what signal-safety(7) allows. */
    if (write(2, says, sizeof(says) - 1) < 0 || write(2, current, strlen(current)) < 0
        || write(2, "\n", 1) < 0)
        _exit(5);
    _exit(4);
}

static long run(const struct part *part, unsigned limit_s)
{
    double begin_s = MPI_Wtime();
    long wrong, wrong_anywhere = 0;

    current = part->name;
    alarm(limit_s);
    wrong = part->run();
    MPI_Allreduce(&wrong, &wrong_anywhere, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    alarm(0);
    if (rank == 0)
        printf("%-12s %s %.2f s\n", part->name, wrong_anywhere == 0 ? "ok   " : "WRONG",
               MPI_Wtime() - begin_s);
    fflush(stdout);
    return wrong_anywhere;
}

static bool is_asked(const struct part *part, char **names, int count)
{
    for (int i = 0; i < count; ++i)
        if (strcmp(names[i], part->name) == 0)
            return true;
    return count == 0;
}

static bool is_known(const char *name)
{
    for (int i = 0; i < PARTS; ++i)
        if (strcmp(parts[i].name, name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    int wanted = MPI_THREAD_SINGLE, level, option, ran = 0;
    unsigned limit_s = 300;
    long wrong = 0;
    MPI_Comm parent;

    program = argv[0];
    while ((option = getopt(argc, argv, "n:t:a")) != -1) {
        switch (option) {
        case 'n': scale = atoi(optarg); break;
        case 't': limit_s = (unsigned) atoi(optarg); break;
        case 'a': wanted = MPI_THREAD_MULTIPLE; break;
        default: return 2;
        }
    }
    for (int i = optind; i < argc; ++i) {
        if (!is_known(argv[i])) {
            fprintf(stderr, "correct: there is no part `%s`\n", argv[i]);
            return 2;
        }
    }
    signal(SIGALRM, give_up);
    alarm(limit_s);
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        return child_main(parent);

    for (int i = 0; i < PARTS; ++i) {
        const struct part *part = &parts[i];
        if (!is_asked(part, argv + optind, argc - optind) || ranks < part->ranks_min
            || (part->wants_threads && level < MPI_THREAD_MULTIPLE)
            || (part->refuses_threads && level == MPI_THREAD_MULTIPLE))
            continue;
        wrong += run(part, limit_s);
        ++ran;
    }
    if (rank == 0)
        printf("correct: %d ranks, %d parts, %ld wrong\n", ranks, ran, wrong);
    current = "MPI_Finalize";
    alarm(limit_s);
    MPI_Finalize();
    return wrong != 0 || ran == 0;
}
