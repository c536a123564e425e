/* Who the peers are: addresses travel by the modex; endpoints come with add_procs. */
#include "btl_tickwire.h"

#include <stdlib.h>
#include <string.h>

#include "opal/class/opal_bitmap.h"
#if BTL_VERSION >= 330
#include "opal/mca/pmix/pmix-internal.h"
#define TICKWIRE_EVERYWHERE PMIX_GLOBAL
#define TICKWIRE_JOB_SIZE PMIX_JOB_SIZE
#define TICKWIRE_UINT32 PMIX_UINT32
#else
#include "opal/mca/pmix/pmix.h"
#define TICKWIRE_EVERYWHERE OPAL_PMIX_GLOBAL
#define TICKWIRE_JOB_SIZE OPAL_PMIX_JOB_SIZE
#define TICKWIRE_UINT32 OPAL_UINT32
#endif

static void construct(mca_btl_tickwire_endpoint_t *endpoint)
{
    endpoint->proc = NULL;
    endpoint->rank = 0;
    endpoint->peer = 0;
    endpoint->small_bytes_max = 0;
    endpoint->is_blocked = false;
    OBJ_CONSTRUCT(&endpoint->waiting, opal_list_t);
    OBJ_CONSTRUCT(&endpoint->blocked_link, opal_list_item_t);
}

static void destruct(mca_btl_tickwire_endpoint_t *endpoint)
{
    OBJ_DESTRUCT(&endpoint->blocked_link);
    OBJ_DESTRUCT(&endpoint->waiting);
}

OBJ_CLASS_INSTANCE(mca_btl_tickwire_endpoint_t, opal_list_item_t, construct, destruct);

/* Job (of this mpirun; spawned ones count up) and process, in one number. */
uint32_t tickwire_rank(opal_process_name_t name)
{
    return (name.jobid & 0xffffu) << 16 | (name.vpid & 0xffffu);
}

static opal_process_name_t name_of(uint32_t rank)
{
    opal_process_name_t name = OPAL_PROC_MY_NAME;

    name.jobid = (name.jobid & 0xffff0000u) | rank >> 16;
    name.vpid = rank & 0xffffu;
    return name;
}

/* Deaths only, with 4.1: not worth an index. */
mca_btl_tickwire_endpoint_t *tickwire_endpoint_of(tw_peer peer)
{
    mca_btl_tickwire_endpoint_t *endpoint;

    OPAL_LIST_FOREACH(endpoint, &mca_btl_tickwire_component.endpoints,
                      mca_btl_tickwire_endpoint_t) {
        if (endpoint->peer == peer) {
            return endpoint;
        }
    }
    return NULL;
}

opal_proc_t *tickwire_proc_of(uint32_t rank)
{
    return opal_proc_for_name(name_of(rank));
}

/* What all processes under one mpirun share, and strangers do not know. */
uint64_t tickwire_job_key(void)
{
    const char *text = getenv("OMPI_MCA_orte_precondition_transports");
    unsigned long long high = 0, low = 0;

    if (NULL != text && 2 == sscanf(text, "%16llx-%16llx", &high, &low)) {
        return (uint64_t) (high ^ low);
    }
    return (uint64_t) (OPAL_PROC_MY_NAME.jobid >> 16) * UINT64_C(0x9e3779b97f4a7c15);
}

uint32_t tickwire_job_size(void)
{
    opal_process_name_t all = {.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = OPAL_VPID_WILDCARD};
    uint32_t size = 1, *where = &size;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, TICKWIRE_JOB_SIZE, &all, &where, TICKWIRE_UINT32);
    return OPAL_SUCCESS == rc ? size : 1;
}

int tickwire_publish(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    unsigned char blob[TW_ADDRESS_BYTES_MAX];
    size_t bytes = tw_address(c->engine, blob, sizeof(blob));
    int rc = OPAL_ERROR;

    if (bytes <= sizeof(blob)) {
        OPAL_MODEX_SEND(rc, TICKWIRE_EVERYWHERE, &c->super.btl_version, blob, bytes);
    }
    if (OPAL_SUCCESS != rc) {
        TICKWIRE_SAY("cannot publish its address: %s", opal_strerror(rc));
    }
    return rc;
}

/* The address of a process, in memory to be freed; NULL: it has none, or none yet. */
static void *look_up(opal_process_name_t name, size_t *bytes)
{
    uint8_t *blob = NULL;
    int rc;

    *bytes = 0;
    OPAL_MODEX_RECV(rc, &mca_btl_tickwire_component.super.btl_version, &name, (void **) &blob,
                    bytes);
    return OPAL_SUCCESS == rc ? blob : NULL;
}

/* ob1 adds peers when it first sends to them; what they send may come before. */
size_t tickwire_stranger(void *user, uint32_t rank, void *out, size_t out_bytes)
{
    size_t bytes = 0;
    void *blob;

    (void) user;
    /* Only jobs that this process knows of: a lookup of any other would wait for it. What the
     * thread does not look up is sent again. */
    if (mca_btl_tickwire_component.is_closing || tickwire_is_thread()
        || rank >> 16 != (OPAL_PROC_MY_NAME.jobid & 0xffffu)
        || (rank & 0xffffu) >= mca_btl_tickwire_component.job_size) {
        return 0;
    }
    blob = look_up(name_of(rank), &bytes);
    if (NULL == blob || bytes > out_bytes) {
        bytes = 0;
    } else {
        memcpy(out, blob, bytes);
    }
    free(blob);
    return bytes;
}

/* The engine's peer for a process: there already if it was heard first. 0: not reachable. */
static tw_peer peer_of(const opal_proc_t *proc, uint32_t rank)
{
    tw_engine *engine = mca_btl_tickwire_component.engine;
    tw_peer peer = tw_peer_of_rank(engine, rank);
    char error[256] = "";
    size_t bytes = 0;
    void *blob;

    if (0 != peer) {
        return peer;
    }
    blob = look_up(proc->proc_name, &bytes);
    if (NULL != blob
        && TW_OK != tw_add_peer(engine, blob, bytes, &peer, error, sizeof(error))) {
        TICKWIRE_SAY("%s on %s cannot be added: %s", OPAL_NAME_PRINT(proc->proc_name),
                     proc->proc_hostname == NULL ? "its host" : proc->proc_hostname, error);
        peer = 0;
    }
    free(blob);
    return peer;
}

static mca_btl_tickwire_endpoint_t *add_proc(opal_proc_t *proc)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_tickwire_endpoint_t *endpoint;
    uint32_t rank = tickwire_rank(proc->proc_name);
    tw_peer peer;

    /* One mpirun's jobs have the upper half of the number in common; ranks have 16 bits. */
    if ((proc->proc_name.jobid ^ OPAL_PROC_MY_NAME.jobid) >> 16 != 0
        || proc->proc_name.vpid > 0xffffu) {
        TICKWIRE_SAY("%s is of another mpirun, or beyond 65536 processes: not reached",
                     OPAL_NAME_PRINT(proc->proc_name));
        return NULL;
    }
    peer = peer_of(proc, rank);
    if (0 == peer) {
        return NULL;
    }
    endpoint = OBJ_NEW(mca_btl_tickwire_endpoint_t);
    if (NULL != endpoint) {
        endpoint->proc = proc;
        endpoint->rank = rank;
        endpoint->peer = peer;
        endpoint->small_bytes_max = tw_small_bytes_max(c->engine, peer);
        opal_list_append(&c->endpoints, &endpoint->super);
    }
    return endpoint;
}

int tickwire_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                       mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    int rc = OPAL_SUCCESS;

    (void) btl;
    tickwire_lock();
    for (size_t i = 0; i < count && OPAL_SUCCESS == rc; ++i) {
        endpoints[i] = NULL;
        if (0 == opal_compare_proc(procs[i]->proc_name, OPAL_PROC_MY_NAME)) {
            continue;
        }
        endpoints[i] = add_proc(procs[i]);
        if (NULL != endpoints[i] && NULL != reachable) {
            rc = opal_bitmap_set_bit(reachable, (int) i);
        }
    }
    tickwire_unlock();
    return rc;
}

/* The peer itself stays with the engine: others of its messages may still be on their way, and the
 * same process may be added again. It goes when it has closed, or with the engine. */
int tickwire_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                       mca_btl_base_endpoint_t **endpoints)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    (void) btl;
    (void) procs;
    tickwire_lock();
    for (size_t i = 0; i < count; ++i) {
        if (NULL == endpoints[i]) {
            continue;
        }
        tickwire_fail_waiting(endpoints[i]);
        opal_list_remove_item(&c->endpoints, &endpoints[i]->super);
        OBJ_RELEASE(endpoints[i]);
    }
    tickwire_unlock();
    return OPAL_SUCCESS;
}
