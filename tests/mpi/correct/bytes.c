/* Each byte follows from who sent it, in which message, and where in it: a mix-up shows. */
#include "correct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char byte_at(size_t at, unsigned start)
{
    return (unsigned char) (start + at * 7 + at / 251 + at / 65521 * 13);
}

static unsigned start_of(int source, int message)
{
    return (unsigned) source * 167u + (unsigned) message * 31u + 5u;
}

void fill(void *bytes, size_t len, int source, int message)
{
    unsigned char *to = bytes;
    unsigned start = start_of(source, message);

    for (size_t at = 0; at < len; ++at)
        to[at] = byte_at(at, start);
}

long differ(const void *bytes, size_t len, int source, int message, const char *what)
{
    const unsigned char *from = bytes;
    unsigned start = start_of(source, message);
    long wrong = 0;

    for (size_t at = 0; at < len; ++at) {
        if (from[at] != byte_at(at, start) && wrong++ == 0)
            fprintf(stderr, "rank %d: %s, message %d of rank %d, %zu bytes: byte %zu is %u, not %u\n",
                    rank, what, message, source, len, at, from[at], byte_at(at, start));
    }
    return wrong;
}

long differ_from(const void *bytes, size_t len, unsigned char value, const char *what)
{
    const unsigned char *from = bytes;
    long wrong = 0;

    for (size_t at = 0; at < len; ++at) {
        if (from[at] != value && wrong++ == 0)
            fprintf(stderr, "rank %d: %s: byte %zu of %zu is %u, not %u\n", rank, what, at, len,
                    from[at], value);
    }
    return wrong;
}

long expect(long got, long wanted, const char *what)
{
    if (got != wanted)
        fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, got, wanted);
    return got != wanted;
}

void *memory(size_t len)
{
    void *bytes = malloc(len + 1);

    if (bytes == NULL) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, len);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return memset(bytes, 0xee, len + 1);
}

uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
