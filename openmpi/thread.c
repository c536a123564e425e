/* The thread that keeps the wire going while the caller computes, or waits for something that makes
 * no progress: it acks, resends and sends what waits. It calls nobody: what it hears is held until
 * the caller's next progress. */
#include "btl_tickwire.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A caller that has made no progress for so long is away. */
#define AWAY_NS 5000000
/* How often the wire is looked after while it is away. */
#define PERIOD_NS 1000000
/* Ticks at one time, as long as there is work. */
#define TICKS_MAX 32
/* With so much held the wire has to wait for the caller: peers stop when their windows are full. */
#define HELD_BYTES_MAX (32u << 20)

/* An event, with its bytes and its text behind it; or a fragment that is complete. */
typedef struct tickwire_held_t {
    struct tickwire_held_t *next;
    tw_event event;
    mca_btl_tickwire_frag_t *frag;
    int status;
    size_t bytes;
} held_t;

static __thread bool is_the_thread;

bool tickwire_is_thread(void)
{
    return is_the_thread;
}

static held_t *hold(size_t extra_bytes)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    size_t bytes = sizeof(held_t) + extra_bytes;
    held_t *held = (held_t *) calloc(1, bytes);

    if (NULL == held) {
        /* The peer takes it for delivered. */
        TICKWIRE_SAY("out of memory: %zu bytes for what arrived meanwhile", bytes);
        abort();
    }
    held->bytes = bytes;
    c->held_bytes += bytes;
    *c->held_end = held;
    c->held_end = &held->next;
    return held;
}

void tickwire_hold_event(const tw_event *event)
{
    size_t text_bytes = NULL == event->text ? 0 : strlen(event->text) + 1;
    held_t *held = hold(event->len_bytes + text_bytes);
    char *behind = (char *) (held + 1);

    held->event = *event;
    if (0 != event->len_bytes) {
        held->event.bytes = memcpy(behind, event->bytes, event->len_bytes);
    }
    if (0 != text_bytes) {
        held->event.text = memcpy(behind + event->len_bytes, event->text, text_bytes);
    }
}

void tickwire_hold_complete(mca_btl_tickwire_frag_t *frag, int status)
{
    held_t *held = hold(0);

    /* It may be removed meanwhile. */
    OBJ_RETAIN(frag->endpoint);
    held->frag = frag;
    held->status = status;
}

int tickwire_deliver_held(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    held_t *held;
    int count = 0;

    /* Unlinked first: what is called may make progress itself. */
    for (; NULL != (held = c->held); ++count) {
        c->held = held->next;
        if (NULL == c->held) {
            c->held_end = &c->held;
        }
        c->held_bytes -= held->bytes;
        if (NULL == held->frag) {
            tickwire_on_event(NULL, &held->event);
        } else {
            mca_btl_tickwire_endpoint_t *endpoint = held->frag->endpoint;
            tickwire_complete(held->frag, held->status);
            OBJ_RELEASE(endpoint);
        }
        free(held);
    }
    return count;
}

static void look_after_the_wire(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    uint32_t work = 1;

    for (int i = 0; i < TICKS_MAX && 0 != work; ++i) {
        tickwire_lock();
        work = 0;
        if (c->held_bytes < HELD_BYTES_MAX && TW_OK == tw_tick(c->engine, &work)) {
            work += (uint32_t) tickwire_send_waiting();
        }
        tickwire_unlock();
    }
}

static void *keep_going(void *unused)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    uint64_t seen = 0;
    long wait_ns = AWAY_NS;

    is_the_thread = true;
    pthread_mutex_lock(&c->thread_mutex);
    while (!c->thread_ends) {
        struct timespec until;
        uint64_t calls;
        bool is_away;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += wait_ns;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            ++until.tv_sec;
        }
        (void) pthread_cond_timedwait(&c->thread_wakes, &c->thread_mutex, &until);
        calls = __atomic_load_n(&c->progress_calls, __ATOMIC_RELAXED);
        is_away = calls == seen;
        seen = calls;
        wait_ns = is_away ? PERIOD_NS : AWAY_NS;
        if (is_away && !c->thread_ends) {
            pthread_mutex_unlock(&c->thread_mutex);
            look_after_the_wire();
            pthread_mutex_lock(&c->thread_mutex);
        }
    }
    pthread_mutex_unlock(&c->thread_mutex);
    return unused;
}

/* Signals stay with the program's own threads. */
bool tickwire_start_thread(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    pthread_condattr_t attributes;
    sigset_t all, before;
    int code;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->thread_wakes, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&c->thread_mutex, NULL);
    c->thread_ends = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&c->thread, NULL, keep_going, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->has_thread = 0 == code;
    if (!c->has_thread) {
        TICKWIRE_SAY("has no progress thread, as there can be none: %s", strerror(code));
    }
    return c->has_thread;
}

/* Without the component's lock, which the thread may be waiting for. */
void tickwire_stop_thread(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    if (!c->has_thread) {
        return;
    }
    pthread_mutex_lock(&c->thread_mutex);
    c->thread_ends = true;
    pthread_cond_signal(&c->thread_wakes);
    pthread_mutex_unlock(&c->thread_mutex);
    pthread_join(c->thread, NULL);
    c->has_thread = false;
    pthread_cond_destroy(&c->thread_wakes);
    pthread_mutex_destroy(&c->thread_mutex);
}
