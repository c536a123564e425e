/* The component: parameters, opening and closing the engine, progress. */
#include "btl_tickwire.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_var.h"
#include "opal/util/if.h"

static int open_component(void);
static int close_component(void);
static int register_parameters(void);
static mca_btl_base_module_t **init(int *count, bool progress_threads, bool mpi_threads);
static int progress(void);
static int finalize(mca_btl_base_module_t *btl);

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t on_error)
{
    (void) btl;
    mca_btl_tickwire_component.on_error = on_error;
    return OPAL_SUCCESS;
}

#if BTL_VERSION < 330
static int ft_event(int state)
{
    (void) state;
    return OPAL_SUCCESS;
}
#endif

__attribute__((visibility("default"))) mca_btl_tickwire_component_t mca_btl_tickwire_component = {
    .super = {
        .btl_version = {
            MCA_BTL_DEFAULT_VERSION("tickwire"),
            .mca_open_component = open_component,
            .mca_close_component = close_component,
            .mca_register_component_params = register_parameters,
        },
        .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
        .btl_init = init,
        .btl_progress = progress,
    },
};

mca_btl_base_module_t mca_btl_tickwire_module = {
    .btl_component = &mca_btl_tickwire_component.super,
    .btl_add_procs = tickwire_add_procs,
    .btl_del_procs = tickwire_del_procs,
    .btl_finalize = finalize,
    .btl_alloc = tickwire_alloc,
    .btl_free = tickwire_free,
    .btl_prepare_src = tickwire_prepare_src,
    .btl_send = tickwire_send,
    .btl_sendi = tickwire_sendi,
    .btl_dump = mca_btl_base_dump,
    .btl_register_error = register_error,
#if BTL_VERSION < 330
    .btl_ft_event = ft_event,
#endif
};

static void string_parameter(const char *name, const char *help, char **storage)
{
    (void) mca_base_component_var_register(&mca_btl_tickwire_component.super.btl_version, name,
                                           help, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0,
                                           OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_READONLY, storage);
}

static void number_parameter(const char *name, const char *help, mca_base_var_type_t type,
                             void *storage)
{
    (void) mca_base_component_var_register(&mca_btl_tickwire_component.super.btl_version, name,
                                           help, type, NULL, 0, 0, OPAL_INFO_LVL_4,
                                           MCA_BASE_VAR_SCOPE_READONLY, storage);
}

static int register_parameters(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_base_module_t *m = &mca_btl_tickwire_module;

    c->port = "udp";
    c->provider = NULL;
    c->bind = NULL;
    c->net = NULL;
    c->faults = NULL;
    c->options = NULL;
    c->seed = 1;
    c->linger_ms = 1000;
    c->report = false;
    c->progress_thread = true;
    string_parameter("port", "How datagrams travel: udp (kernel sockets), libfabric", &c->port);
    string_parameter("provider",
                     "libfabric provider, such as udp or verbs (default: the first that has "
                     "datagram endpoints)",
                     &c->provider);
    string_parameter("bind",
                     "Local IP address (default: loopback when all processes are on one host, "
                     "else the first interface that is up, or of `net`)",
                     &c->bind);
    string_parameter("net", "Take the interface whose address begins so, as in 10.77.0.", &c->net);
    string_parameter("faults",
                     "Faults on what arrives, for tests: loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%",
                     &c->faults);
    string_parameter("options",
                     "More options of the engine, name=value;name=value (docs/c-interface.md)",
                     &c->options);
    number_parameter("seed", "Seed of the faults", MCA_BASE_VAR_TYPE_UNSIGNED_LONG, &c->seed);
    number_parameter("linger_ms", "Longest wait for last acks in MPI_Finalize",
                     MCA_BASE_VAR_TYPE_INT, &c->linger_ms);
    number_parameter("report", "Print counters in MPI_Finalize", MCA_BASE_VAR_TYPE_BOOL,
                     &c->report);
    number_parameter("progress_thread",
                     "Ack, resend and send while the caller computes or waits for something else",
                     MCA_BASE_VAR_TYPE_BOOL, &c->progress_thread);

    m->btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
    m->btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE;
    m->btl_eager_limit = 32 * 1024;
    m->btl_rndv_eager_limit = 32 * 1024;
    m->btl_max_send_size = 128 * 1024;
    m->btl_rdma_pipeline_send_length = 128 * 1024;
    m->btl_rdma_pipeline_frag_size = 4 * 1024 * 1024;
    m->btl_min_rdma_pipeline_size = 512 * 1024;
    m->btl_latency = 10;
    m->btl_bandwidth = 10000;
    mca_btl_base_param_register(&c->super.btl_version, m);
    return OPAL_SUCCESS;
}

static int open_component(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    pthread_mutexattr_t attributes;

    c->engine = NULL;
    c->on_error = NULL;
    c->is_closing = false;
    c->sends_delayed = 0;
    c->held = NULL;
    c->held_end = &c->held;
    c->held_bytes = 0;
    c->has_thread = false;
    c->waiting = 0;
    c->progress_calls = 0;
    OBJ_CONSTRUCT(&c->endpoints, opal_list_t);
    OBJ_CONSTRUCT(&c->blocked, opal_list_t);
    OBJ_CONSTRUCT(&c->eager_frags, opal_free_list_t);
    OBJ_CONSTRUCT(&c->large_frags, opal_free_list_t);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return OPAL_SUCCESS;
}

static int close_component(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    tickwire_stop_thread();
    tw_free(c->engine);
    c->engine = NULL;
    OBJ_DESTRUCT(&c->eager_frags);
    OBJ_DESTRUCT(&c->large_frags);
    OBJ_DESTRUCT(&c->blocked);
    OBJ_DESTRUCT(&c->endpoints);
    pthread_mutex_destroy(&c->mutex);
    return OPAL_SUCCESS;
}

/* Sets an option; what is wrong with it is said. */
static bool set_option(tw_options *options, const char *name, const char *value)
{
    char error[256] = "";

    if (NULL == value || TW_OK == tw_options_set(options, name, value, error, sizeof(error))) {
        return true;
    }
    TICKWIRE_SAY("%s", error);
    return false;
}

/* name=value;name=value */
static bool set_more_options(tw_options *options, const char *text)
{
    char *copy = strdup(text), *rest = NULL;
    bool is_good = NULL != copy;

    for (char *part = strtok_r(copy, ";", &rest); is_good && NULL != part;
         part = strtok_r(NULL, ";", &rest)) {
        char *value = strchr(part, '=');
        if (NULL == value) {
            TICKWIRE_SAY("btl_tickwire_options: `%s` is not name=value", part);
            is_good = false;
        } else {
            *value++ = '\0';
            is_good = set_option(options, part, value);
        }
    }
    free(copy);
    return is_good;
}

/* The local address that peers reach: of one's own choice, or the first interface that fits. */
static bool choose_address(char *out, size_t out_bytes)
{
    const mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    if (NULL != c->bind) {
        return snprintf(out, out_bytes, "%s", c->bind) > 0;
    }
    if (NULL == c->net
        && (uint32_t) opal_process_info.num_local_peers + 1 >= c->job_size) {
        return snprintf(out, out_bytes, "127.0.0.1") > 0;
    }
    for (int i = opal_ifbegin(); i >= 0; i = opal_ifnext(i)) {
        struct sockaddr_storage address;
        const struct sockaddr_in *in = (const struct sockaddr_in *) &address;
        if (OPAL_SUCCESS != opal_ifindextoaddr(i, (struct sockaddr *) &address, sizeof(address))
            || AF_INET != address.ss_family
            || NULL == inet_ntop(AF_INET, &in->sin_addr, out, (socklen_t) out_bytes)) {
            continue;
        }
        if (NULL == c->net ? !opal_ifisloopback(i) : 0 == strncmp(out, c->net, strlen(c->net))) {
            return true;
        }
    }
    TICKWIRE_SAY("no interface has an IPv4 address%s%s: set btl_tickwire_bind",
                 NULL == c->net ? "" : " that begins with ", NULL == c->net ? "" : c->net);
    return false;
}

static bool open_engine(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    tw_options *options = tw_options_new(tickwire_rank(OPAL_PROC_MY_NAME), tickwire_job_key());
    char error[512] = "", address[INET6_ADDRSTRLEN] = "", seed[24];
    bool is_good;

    snprintf(seed, sizeof(seed), "%lu", c->seed);
    /* ob1 has numbers of its own: nothing has to wait for what comes before it. */
    is_good = choose_address(address, sizeof(address)) && set_option(options, "bind", address)
        && set_option(options, "port", c->port) && set_option(options, "provider", c->provider)
        && set_option(options, "ordered", "0") && set_option(options, "ranks_max", "4294967294")
        && set_option(options, "peers_max", "8192") && set_option(options, "seed", seed)
        && set_option(options, "faults", c->faults)
        && (NULL == c->options || set_more_options(options, c->options));
    if (is_good && TW_OK != tw_open(options, &c->engine, error, sizeof(error))) {
        TICKWIRE_SAY("cannot be used: %s", error);
        is_good = false;
    }
    tw_options_free(options);
    if (is_good) {
        tw_set_handler(c->engine, tickwire_on_event, tickwire_stranger, NULL);
    }
    return is_good;
}

/* Users may set sizes that do not fit each other; ob1 would lose data over them. */
static void settle_limits(void)
{
    mca_btl_base_module_t *m = &mca_btl_tickwire_module;

    if (m->btl_max_send_size < m->btl_eager_limit) {
        m->btl_max_send_size = m->btl_eager_limit;
    }
    if (m->btl_rndv_eager_limit > m->btl_eager_limit) {
        m->btl_rndv_eager_limit = m->btl_eager_limit;
    }
}

static mca_btl_base_module_t **init(int *count, bool progress_threads, bool mpi_threads)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_base_module_t **modules;
    char words[512];

    (void) progress_threads;
    *count = 0;
    if (TW_API_VERSION != tw_api_version()) {
        TICKWIRE_SAY("built for version %d of libtickwire's interface, found %u", TW_API_VERSION,
                     tw_api_version());
        return NULL;
    }
    settle_limits();
    c->job_size = tickwire_job_size();
    if (OPAL_SUCCESS != tickwire_init_frags() || !open_engine()) {
        return NULL;
    }
    tw_describe(c->engine, words, sizeof(words));
    opal_output_verbose(20, opal_btl_base_framework.framework_output, "btl tickwire %s: %s",
                        tw_version(), words);
    opal_output_verbose(10, opal_btl_base_framework.framework_output, "btl tickwire: %s",
                        tw_warnings(c->engine));
    modules = malloc(sizeof(*modules));
    if (NULL == modules || OPAL_SUCCESS != tickwire_publish()) {
        free(modules);
        return NULL;
    }
    /* From here on there may be two threads. */
    c->is_locked = (c->progress_thread && tickwire_start_thread()) || mpi_threads;
    modules[0] = &mca_btl_tickwire_module;
    *count = 1;
    return modules;
}

static int progress(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    uint32_t work = 0;
    int sent = 0;

    if (NULL == c->engine) {
        return 0;
    }
    if (!tickwire_try_lock()) {
        /* To spin would only take the core from who has the lock. */
        sched_yield();
        return 0;
    }
    __atomic_store_n(&c->progress_calls, c->progress_calls + 1, __ATOMIC_RELAXED);
    if (NULL != c->held) {
        sent = tickwire_deliver_held();
    }
    /* From inside a callback this is TW_BUSY: the tick that runs goes on by itself. */
    if (TW_OK == tw_tick(c->engine, &work) && 0 != opal_list_get_size(&c->blocked)) {
        sent += tickwire_send_waiting();
    }
    tickwire_unlock();
    return (int) work + sent;
}

static void report(void)
{
    const mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    char text[2048];
    size_t used = 0;
    const char *name;
    uint64_t value;

    for (size_t i = 0; TW_OK == tw_counter_at(c->engine, i, &name, &value); ++i) {
        if (0 != value && used < sizeof(text)) {
            used += (size_t) snprintf(text + used, sizeof(text) - used, " %s %" PRIu64, name,
                                      value);
        }
    }
    TICKWIRE_SAY("rank %u:%s sends_delayed %" PRIu64, OPAL_PROC_MY_NAME.vpid,
                 0 == used ? " idle" : text, c->sends_delayed);
}

static int finalize(mca_btl_base_module_t *btl)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    opal_list_item_t *item;

    (void) btl;
    tickwire_stop_thread();
    c->is_closing = true;
    (void) tickwire_deliver_held();
    /* Every MPI message was received before; only last acks can be missing. Peers may be gone. */
    (void) tw_close(c->engine, (uint64_t) c->linger_ms * 1000000u);
    if (c->report) {
        report();
    }
    while (NULL != (item = opal_list_remove_first(&c->blocked))) {
        continue;
    }
    while (NULL != (item = opal_list_remove_first(&c->endpoints))) {
        OBJ_RELEASE(item);
    }
    tw_free(c->engine);
    c->engine = NULL;
    return OPAL_SUCCESS;
}
