/*
 * Two processes, a message to and fro: all that a runtime in C needs of tickwire.
 *
 *   cc pingpong.c $(pkg-config --cflags --libs tickwire) -o pingpong && ./pingpong
 *
 * The pipe stands for whatever starts a job: it carries each process's address blob to the other.
 */
#include <tickwire.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 10000, TAG_BALL = 1, TAG_END = 2 };

struct process {
    tw_engine *engine;
    tw_peer other;
    uint64_t arrived;
    int has_ended;
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "pingpong: %s: %s\n", what, why);
    exit(1);
}

/* Called from tw_tick. The bytes are lent for the call. */
static void on_event(void *user, const tw_event *event)
{
    struct process *me = user;

    switch (event->kind) {
    case TW_EVENT_RECEIVED:
        if (event->tag == TAG_END)
            me->has_ended = 1;
        else
            memcpy(&me->arrived, event->bytes, sizeof(me->arrived));
        break;
    case TW_EVENT_PEER_DEAD:
    case TW_EVENT_PEER_UNREACHABLE:
        stop("lost", event->text);
        break;
    default:
        break;
    }
}

static void send(struct process *me, uint32_t tag, uint64_t ball)
{
    tw_status status;

    /* TW_AGAIN: all slots are under way; a tick frees some. */
    while ((status = tw_send(me->engine, me->other, tag, &ball, sizeof(ball))) == TW_AGAIN)
        tw_tick(me->engine, NULL);
    if (status != TW_OK)
        stop("send", tw_status_text(status));
}

static void meet(struct process *me, uint32_t rank, int from, int to)
{
    unsigned char mine[TW_ADDRESS_BYTES_MAX], theirs[TW_ADDRESS_BYTES_MAX];
    size_t mine_bytes;
    ssize_t theirs_bytes;
    tw_options *options = tw_options_new(rank, 0x1234 /* the same in the whole job */);
    char error[256] = "";

    if (tw_options_set(options, "bind", "127.0.0.1", error, sizeof(error)) != TW_OK
        || tw_open(options, &me->engine, error, sizeof(error)) != TW_OK)
        stop("open", error);
    tw_options_free(options);
    tw_set_handler(me->engine, on_event, NULL, me);

    mine_bytes = tw_address(me->engine, mine, sizeof(mine));
    if (write(to, mine, mine_bytes) != (ssize_t) mine_bytes
        || (theirs_bytes = read(from, theirs, sizeof(theirs))) <= 0)
        stop("pipe", "the other process is gone");
    if (tw_add_peer(me->engine, theirs, (size_t) theirs_bytes, &me->other, error, sizeof(error))
        != TW_OK)
        stop("add", error);
}

/* Every ball comes back one larger. */
static void play(struct process *me, int serves)
{
    struct timespec begin, end;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (serves)
        send(me, TAG_BALL, 1);
    for (uint64_t last = 0; last < ROUNDS;) {
        tw_tick(me->engine, NULL);
        if (me->arrived != last) {
            last = me->arrived;
            send(me, TAG_BALL, last + 1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    send(me, TAG_END, 0);
    while (!me->has_ended) {
        tw_wait(me->engine, 1000000);
        tw_tick(me->engine, NULL);
    }
    if (serves)
        printf("%d balls, %.2f us each way\n", ROUNDS,
               ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / ROUNDS / 1e3);
    /* Waits for last acks, so that the other one has heard the end. */
    tw_close(me->engine, 1000000000);
    tw_free(me->engine);
}

int main(void)
{
    struct process me = {0};
    int there[2], back[2], status = 0;
    pid_t child;

    if (pipe(there) != 0 || pipe(back) != 0 || (child = fork()) < 0)
        stop("start", "no pipe or no process");
    if (child == 0) {
        meet(&me, 1, there[0], back[1]);
        play(&me, 0);
        return 0;
    }
    meet(&me, 0, back[0], there[1]);
    play(&me, 1);
    return waitpid(child, &status, 0) != child || status != 0;
}
