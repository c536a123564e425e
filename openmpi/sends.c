/* Sends: handed to the engine when they can leave at once, else in order when they can. */
#include "btl_tickwire.h"

/* A message that is complete with TW_OK. */
static tw_status send_copy(mca_btl_tickwire_endpoint_t *endpoint, mca_btl_base_tag_t tag,
                           const tw_part *parts, size_t count)
{
    const mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;

    return c->has_thread ? tw_send_parts(c->engine, endpoint->peer, tag, parts, count)
                         : tw_send_parts_at_once(c->engine, endpoint->peer, tag, parts, count);
}

/* Hands a fragment to the engine, which copies it. `is_complete`: else an event tells.
 *
 * The caller may never come back to progress once its send is complete: it computes, or waits in
 * PMIx_Connect for the one that this message would wake. With the progress thread, which sees to
 * it then, an eager send is complete when the engine has it. Without, what goes in one datagram is
 * complete when that has left. What is longer is complete when it has arrived, which also keeps
 * the copies that are under way few enough for the caches. */
static tw_status post(mca_btl_tickwire_frag_t *frag, bool *is_complete)
{
    const mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_tickwire_endpoint_t *endpoint = frag->endpoint;
    tw_part parts[2];
    size_t count = frag->base.des_segment_count, len_bytes = 0;
    tw_status status;

    for (size_t i = 0; i < count; ++i) {
        parts[i].bytes = frag->base.des_segments[i].seg_addr.pval;
        parts[i].len_bytes = frag->base.des_segments[i].seg_len;
        len_bytes += parts[i].len_bytes;
    }
    *is_complete = len_bytes <= endpoint->small_bytes_max
        || (c->has_thread && len_bytes <= mca_btl_tickwire_module.btl_eager_limit);
    if (*is_complete) {
        return send_copy(endpoint, frag->tag, parts, count);
    }
    status = tw_send_parts_with_token(c->engine, endpoint->peer, frag->tag, parts, count,
                                      (uint64_t) (uintptr_t) frag);
    if (TW_OK == status) {
        /* Until the event, which may come after del_procs. */
        OBJ_RETAIN(endpoint);
        frag->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    }
    return status;
}

/* The upper layer is told, if it asked, and the descriptor goes back, if it is ours. */
void tickwire_complete(mca_btl_tickwire_frag_t *frag, int status)
{
    if (tickwire_is_thread()) {
        tickwire_hold_complete(frag, status);
        return;
    }
    /* The callback may free the descriptor: what is asked of it, is asked before. */
    uint32_t flags = frag->base.des_flags;

    if (0 != (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK)) {
        frag->base.des_cbfunc(&mca_btl_tickwire_module, frag->endpoint, &frag->base, status);
    }
    if (0 != (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) {
        (void) tickwire_free(&mca_btl_tickwire_module, &frag->base);
    }
}

/* The event of a long send. At the end nobody is there any more to be told. */
void tickwire_sent(uint64_t token, int status)
{
    mca_btl_tickwire_frag_t *frag = (mca_btl_tickwire_frag_t *) (uintptr_t) token;
    mca_btl_tickwire_endpoint_t *endpoint = frag->endpoint;

    if (!mca_btl_tickwire_component.is_closing) {
        tickwire_complete(frag, status);
    }
    OBJ_RELEASE(endpoint);
}

static void wait_in_line(mca_btl_tickwire_frag_t *frag)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_tickwire_endpoint_t *endpoint = frag->endpoint;

    frag->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    opal_list_append(&endpoint->waiting, (opal_list_item_t *) frag);
    ++c->sends_delayed;
    if (!endpoint->is_blocked) {
        endpoint->is_blocked = true;
        opal_list_append(&c->blocked, &endpoint->blocked_link);
    }
}

static void leave_line(mca_btl_tickwire_endpoint_t *endpoint)
{
    if (endpoint->is_blocked) {
        endpoint->is_blocked = false;
        opal_list_remove_item(&mca_btl_tickwire_component.blocked, &endpoint->blocked_link);
    }
}

int tickwire_send(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                  mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag)
{
    mca_btl_tickwire_frag_t *frag = (mca_btl_tickwire_frag_t *) descriptor;
    tw_status status = TW_AGAIN;
    bool is_complete = true;
    int rc;

    (void) btl;
    frag->endpoint = endpoint;
    frag->tag = tag;
    tickwire_lock();
    if (!endpoint->is_blocked) {
        status = post(frag, &is_complete);
    }
    switch (status) {
    case TW_OK:
        rc = 0 != (descriptor->des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) ? OPAL_SUCCESS : 1;
        if (is_complete) {
            tickwire_complete(frag, OPAL_SUCCESS);
        }
        break;
    case TW_AGAIN:
        wait_in_line(frag);
        rc = OPAL_SUCCESS;
        break;
    default:
        rc = OPAL_ERR_UNREACH;
    }
    tickwire_unlock();
    return rc;
}

/* The header and what it heads, straight from where they lie; what cannot go so at once, is the
 * upper layer's to send in the ordinary way, for which it gets a descriptor. */
int tickwire_sendi(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                   opal_convertor_t *convertor, void *header, size_t header_size,
                   size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t **descriptor)
{
    tw_part parts[2] = {{.bytes = header, .len_bytes = header_size}};
    tw_status status = TW_AGAIN;
    size_t count = 1;

    if (0 != payload_size && 0 == opal_convertor_need_buffers(convertor)) {
        void *bytes;
        opal_convertor_get_current_pointer(convertor, &bytes);
        parts[1] = (tw_part) {.bytes = bytes, .len_bytes = payload_size};
        count = 2;
    }
    if (2 == count || 0 == payload_size) {
        tickwire_lock();
        if (!endpoint->is_blocked) {
            status = send_copy(endpoint, tag, parts, count);
        }
        tickwire_unlock();
    }
    if (TW_OK == status) {
        return OPAL_SUCCESS;
    }
    if (NULL != descriptor) {
        *descriptor = tickwire_alloc(btl, endpoint, order, header_size + payload_size, flags);
    }
    return OPAL_ERR_RESOURCE_BUSY;
}

/* Until no more can leave, or nothing waits for this endpoint. */
static int send_waiting_to(mca_btl_tickwire_endpoint_t *endpoint)
{
    int sent = 0;

    while (0 != opal_list_get_size(&endpoint->waiting)) {
        mca_btl_tickwire_frag_t *frag =
            (mca_btl_tickwire_frag_t *) opal_list_get_first(&endpoint->waiting);
        bool is_complete;
        tw_status status = post(frag, &is_complete);
        if (TW_AGAIN == status) {
            return sent;
        }
        (void) opal_list_remove_first(&endpoint->waiting);
        if (0 == opal_list_get_size(&endpoint->waiting)) {
            leave_line(endpoint);
        }
        ++sent;
        /* The callback may send to this endpoint again, and even remove it once nothing waits. */
        bool is_last = !endpoint->is_blocked;
        if (TW_OK != status || is_complete) {
            tickwire_complete(frag, TW_OK == status ? OPAL_SUCCESS : OPAL_ERR_UNREACH);
        }
        if (is_last) {
            return sent;
        }
    }
    return sent;
}

int tickwire_send_waiting(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    size_t count = opal_list_get_size(&c->blocked);
    int sent = 0;

    /* Each goes to the end before its turn, so that callbacks may change the list. */
    for (; count > 0 && 0 != opal_list_get_size(&c->blocked); --count) {
        opal_list_item_t *link = opal_list_remove_first(&c->blocked);
        opal_list_append(&c->blocked, link);
        sent += send_waiting_to((mca_btl_tickwire_endpoint_t *) (
            (char *) link - offsetof(mca_btl_tickwire_endpoint_t, blocked_link)));
    }
    return sent;
}

void tickwire_fail_waiting(mca_btl_tickwire_endpoint_t *endpoint)
{
    opal_list_item_t *item;

    leave_line(endpoint);
    while (NULL != (item = opal_list_remove_first(&endpoint->waiting))) {
        tickwire_complete((mca_btl_tickwire_frag_t *) item, OPAL_ERR_UNREACH);
    }
}
