/*
 * The Open MPI component: its state, and who does what.
 *
 *   component.c   parameters, opening, progress, the end
 *   procs.c       who the peers are: modex, endpoints, first contact
 *   fragments.c   descriptors: alloc, free, prepare_src
 *   sends.c       send, sendi, and what has to wait
 *   events.c      what arrives, and who dies
 *   thread.c      the wire while the caller makes no progress
 *
 * Everything that moves data is behind tickwire.h; nothing of Open MPI's leaves this folder.
 */
#ifndef MCA_BTL_TICKWIRE_H
#define MCA_BTL_TICKWIRE_H

#include "opal_config.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "opal/class/opal_free_list.h"
#include "opal/class/opal_list.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"

#include "tickwire.h"

typedef struct mca_btl_base_endpoint_t mca_btl_base_endpoint_t;

/* A peer. ob1 holds it from add_procs to del_procs. */
struct mca_btl_base_endpoint_t {
    opal_list_item_t super;
    opal_proc_t *proc;
    uint32_t rank;
    tw_peer peer;
    /* What goes to it in one datagram. */
    size_t small_bytes_max;
    /* Fragments that cannot leave yet, in order. */
    opal_list_t waiting;
    /* Links it into component.blocked while `waiting` is not empty. */
    opal_list_item_t blocked_link;
    bool is_blocked;
};
typedef struct mca_btl_base_endpoint_t mca_btl_tickwire_endpoint_t;
OBJ_CLASS_DECLARATION(mca_btl_tickwire_endpoint_t);

/* A descriptor with its two segments; the memory of its list's size follows, 16-byte
 * aligned. */
typedef struct mca_btl_tickwire_frag_t {
    mca_btl_base_descriptor_t base;
    mca_btl_base_segment_t segments[2];
    mca_btl_tickwire_endpoint_t *endpoint;
    opal_free_list_t *home;
    mca_btl_base_tag_t tag;
} mca_btl_tickwire_frag_t;
OBJ_CLASS_DECLARATION(mca_btl_tickwire_frag_t);

#define TICKWIRE_FRAG_BYTES ((sizeof(mca_btl_tickwire_frag_t) + 15) & ~(size_t) 15)

static inline unsigned char *tickwire_frag_memory(mca_btl_tickwire_frag_t *frag)
{
    return (unsigned char *) frag + TICKWIRE_FRAG_BYTES;
}

typedef struct mca_btl_tickwire_component_t {
    mca_btl_base_component_3_0_0_t super;

    /* Parameters. */
    char *port;
    char *provider;
    char *bind;
    char *net;
    char *faults;
    char *options;
    unsigned long seed;
    int linger_ms;
    bool report;
    bool progress_thread;

    tw_engine *engine;
    /* Processes of this MPI_COMM_WORLD. */
    uint32_t job_size;
    opal_list_t endpoints;
    opal_list_t blocked;
    opal_free_list_t eager_frags;
    opal_free_list_t large_frags;
    mca_btl_base_module_error_cb_fn_t on_error;
    bool is_closing;
    uint64_t sends_delayed;
    /* What the progress thread heard, for the caller's next progress. */
    struct tickwire_held_t *held, **held_end;
    size_t held_bytes;
    /* Guards all of the above while there are several threads; recursive, as callbacks call in. */
    pthread_mutex_t mutex;
    bool is_locked;
    /* Threads that wait for it. */
    int waiting;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t thread_mutex;
    pthread_cond_t thread_wakes;
    /* Guarded by thread_mutex. */
    bool thread_ends;
    /* Written with the lock, read without. */
    uint64_t progress_calls;
} mca_btl_tickwire_component_t;

extern mca_btl_tickwire_component_t mca_btl_tickwire_component;
extern mca_btl_base_module_t mca_btl_tickwire_module;

/* Threads that spin in progress would take the lock again and again before one that was woken for
 * it; they stand back while somebody waits. */
static inline void tickwire_lock(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    if (c->is_locked && 0 != pthread_mutex_trylock(&c->mutex)) {
        __atomic_add_fetch(&c->waiting, 1, __ATOMIC_RELAXED);
        pthread_mutex_lock(&c->mutex);
        __atomic_sub_fetch(&c->waiting, 1, __ATOMIC_RELAXED);
    }
}

/* The lock for progress, if nobody has it or waits for it. */
static inline bool tickwire_try_lock(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    return !c->is_locked
        || (0 == __atomic_load_n(&c->waiting, __ATOMIC_RELAXED)
            && 0 == pthread_mutex_trylock(&c->mutex));
}

static inline void tickwire_unlock(void)
{
    if (mca_btl_tickwire_component.is_locked) {
        pthread_mutex_unlock(&mca_btl_tickwire_component.mutex);
    }
}

/* Says something that the user should know, with who says it. */
#define TICKWIRE_SAY(...) opal_output(0, "btl tickwire: " __VA_ARGS__)

/* procs.c */
uint32_t tickwire_rank(opal_process_name_t name);
mca_btl_tickwire_endpoint_t *tickwire_endpoint_of(tw_peer peer);
opal_proc_t *tickwire_proc_of(uint32_t rank);
uint64_t tickwire_job_key(void);
uint32_t tickwire_job_size(void);
int tickwire_publish(void);
size_t tickwire_stranger(void *user, uint32_t rank, void *out, size_t out_bytes);
int tickwire_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                       mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
int tickwire_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                       mca_btl_base_endpoint_t **endpoints);

/* fragments.c */
int tickwire_init_frags(void);
mca_btl_base_descriptor_t *tickwire_alloc(mca_btl_base_module_t *btl,
                                          mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                          size_t size, uint32_t flags);
int tickwire_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *tickwire_prepare_src(mca_btl_base_module_t *btl,
                                                mca_btl_base_endpoint_t *endpoint,
                                                opal_convertor_t *convertor, uint8_t order,
                                                size_t reserve, size_t *size, uint32_t flags);

/* sends.c */
int tickwire_send(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int tickwire_sendi(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                   opal_convertor_t *convertor, void *header, size_t header_size,
                   size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t **descriptor);
void tickwire_sent(uint64_t token, int status);
void tickwire_complete(mca_btl_tickwire_frag_t *frag, int status);
int tickwire_send_waiting(void);
void tickwire_fail_waiting(mca_btl_tickwire_endpoint_t *endpoint);

/* events.c */
void tickwire_on_event(void *user, const tw_event *event);

/* thread.c */
bool tickwire_start_thread(void);
void tickwire_stop_thread(void);
bool tickwire_is_thread(void);
void tickwire_hold_event(const tw_event *event);
void tickwire_hold_complete(mca_btl_tickwire_frag_t *frag, int status);
int tickwire_deliver_held(void);

#endif
