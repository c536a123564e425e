/* Data that does not lie in one piece. What lies between the pieces must stay as it was. */
#include "correct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends `count` of a type from filled memory, receives it into memory of 0xee, and compares with
 * what a pack and unpack on this rank gives. */
static long exchange(MPI_Datatype type, int count, size_t span, ptrdiff_t origin, int message,
                     const char *what)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, size, packed = 0, at = 0;
    unsigned char *out = memory(span), *in = memory(span), *wanted = memory(span), *other;
    char *pack;
    long wrong;

    fill(out, span, rank, message);
    MPI_Sendrecv(out + origin, count, type, to, message, in + origin, count, type, from, message,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    other = memory(span);
    fill(other, span, from, message);
    MPI_Pack_size(count, type, MPI_COMM_SELF, &size);
    pack = memory((size_t) size);
    MPI_Pack(other + origin, count, type, pack, size, &packed, MPI_COMM_SELF);
    MPI_Unpack(pack, packed, &at, wanted + origin, count, type, MPI_COMM_SELF);
    wrong = memcmp(in, wanted, span) != 0;
    if (wrong)
        fprintf(stderr, "rank %d: %s, count %d: not what packing gives\n", rank, what, count);
    free(out);
    free(in);
    free(wanted);
    free(other);
    free(pack);
    return wrong;
}

/* An int with a lower bound of -4 and an extent of 12 bytes. */
static long with_gaps(int message)
{
    /* Total sizes of one and a few, then around a datagram, the eager and the fragment limit. */
    static const int counts[] = {1, 2, 1000, 354, 355, 8178, 8188, 8189, 8192, 65527, 65528, 65537};
    MPI_Datatype type;
    long wrong = 0;

    MPI_Type_create_resized(MPI_INT, -4, 12, &type);
    MPI_Type_commit(&type);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i)
        wrong += exchange(type, counts[i], (size_t) counts[i] * 12 + 8, 4, message + (int) i,
                          "type with gaps");
    MPI_Type_free(&type);
    return wrong;
}

static long vectors(int message)
{
    static const int counts[] = {1, 17, 300, 9000, 40000};
    MPI_Datatype vector, nested;
    long wrong = 0;

    MPI_Type_vector(3, 5, 7, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i)
        wrong += exchange(vector, counts[i], (size_t) counts[i] * 19 * 8, 0, message + (int) i,
                          "vector");
    MPI_Type_create_hvector(4, 2, 700, vector, &nested);
    MPI_Type_commit(&nested);
    wrong += exchange(nested, 100, 100 * (3 * 700 + 2 * 19 * 8) + 700, 0, message + 20,
                      "vector of vectors");
    MPI_Type_free(&vector);
    MPI_Type_free(&nested);
    return wrong;
}

static long indexed_and_structures(int message)
{
    int lengths[] = {3, 1, 0, 11, 200};
    int places[] = {0, 5, 7, 10, 30};
    int kinds_lengths[] = {1, 3, 2};
    MPI_Aint kinds_places[] = {0, 8, 40};
    MPI_Datatype kinds[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, indexed, structure, columns;
    long wrong = 0;

    MPI_Type_indexed(5, lengths, places, MPI_INT, &indexed);
    MPI_Type_commit(&indexed);
    MPI_Type_create_struct(3, kinds_lengths, kinds_places, kinds, &structure);
    MPI_Type_commit(&structure);
    for (int count = 1; count <= 5000; count *= 17) {
        wrong += exchange(indexed, count, (size_t) count * 230 * 4, 0, message++, "indexed");
        wrong += exchange(structure, count, (size_t) count * 48, 0, message++, "structure");
    }
    /* A column of a matrix: pieces of one byte, the dearest to pack. */
    MPI_Type_vector(70000, 1, 9, MPI_BYTE, &columns);
    MPI_Type_commit(&columns);
    wrong += exchange(columns, 1, 70000 * 9, 0, message++, "column of bytes");
    MPI_Type_free(&indexed);
    MPI_Type_free(&structure);
    MPI_Type_free(&columns);
    return wrong;
}

long part_types(void)
{
    long wrong = 0;

    for (int round = 0; round < scale; ++round)
        wrong += with_gaps(100) + vectors(200) + indexed_and_structures(300);
    return wrong;
}

/* The same memory out and in, which makes ob1 use a convertor in a state of its own. */
long part_replace(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Datatype vector;
    long wrong = 0;

    MPI_Type_vector(3, 5, 7, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    for (int count = 1; count <= 10000; count *= 10) {
        size_t span = (size_t) count * 19 * 8;
        double *bytes = memory(span), *wanted = memory(span);
        fill(bytes, span, rank, count);
        fill(wanted, span, from, count);
        MPI_Sendrecv_replace(bytes, count, vector, to, 9, from, 9, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
        for (size_t i = 0; i < (size_t) count * 19; ++i)
            if (i % 19 % 7 < 5 && memcmp(&bytes[i], &wanted[i], sizeof(double)) != 0)
                ++wrong;
        free(bytes);
        free(wanted);
    }
    MPI_Type_free(&vector);
    return expect(wrong, 0, "replace: doubles that are wrong");
}
