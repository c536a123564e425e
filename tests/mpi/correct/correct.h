/*
 * An MPI program that compares every byte it gets. One file a theme:
 *
 *   main.c       arguments, order, the verdict
 *   bytes.c      what each byte has to be
 *   pairs.c      every pair of ranks, every class of sizes; collectives
 *   types.c      derived datatypes: vectors, gaps, indexed, structures, Sendrecv_replace
 *   floods.c     messages nobody waits for, any source, truncation, many requests
 *   modes.c      persistent, buffered, synchronous, ready, probed, cancelled
 *   windows.c    one-sided: put, get, accumulate, locks, fetch and op
 *   groups.c     parts of the world, two groups, spawned children
 *   threads.c    many threads a rank, each with a communicator of its own
 *
 * A part returns how many things were wrong on this rank, and has said what they were.
 */
#ifndef CORRECT_H
#define CORRECT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern int rank, ranks;
/* Loop counts are multiplied by it, so that one program is both a quick look and a long run. */
extern int scale;
/* Path of this program, for children. */
extern const char *program;

/* bytes.c */
void fill(void *bytes, size_t len, int source, int message);
long differ(const void *bytes, size_t len, int source, int message, const char *what);
long differ_from(const void *bytes, size_t len, unsigned char value, const char *what);
long expect(long got, long wanted, const char *what);
void *memory(size_t len);
/* xorshift; one stream a rank. */
uint64_t draw(uint64_t *state);

long part_pairs(void);
long part_collectives(void);
long part_types(void);
long part_replace(void);
long part_floods(void);
long part_any_source(void);
long part_truncated(void);
long part_persistent(void);
long part_modes(void);
long part_buffered(void);
long part_windows(void);
long part_atomics(void);
long part_groups(void);
long part_spawn(void);
long part_threads(void);

/* What a spawned copy of the program does instead. */
int child_main(MPI_Comm parent);

#endif
