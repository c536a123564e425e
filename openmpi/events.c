/* What the engine tells: messages go to whom their tag names, deaths to who asked to be told. */
#include "btl_tickwire.h"

#include <string.h>

static void received(const tw_event *event)
{
    mca_btl_base_tag_t tag = (mca_btl_base_tag_t) event->tag;
    mca_btl_active_message_callback_t *upper = mca_btl_base_active_message_trigger + tag;
    mca_btl_base_segment_t segment;

    /* The upper layer is not up to it, or not any more. */
    if (mca_btl_tickwire_component.is_closing || NULL == upper->cbfunc) {
        return;
    }
    /* Lent for the call; 4.1 hands the reader a pointer to non-const. */
    segment.seg_addr.pval = (void *) (uintptr_t) event->bytes;
    segment.seg_len = event->len_bytes;
#if BTL_VERSION >= 330
    mca_btl_base_receive_descriptor_t descriptor = {
        .endpoint = tickwire_endpoint_of(event->peer),
        .des_segments = &segment,
        .des_segment_count = 1,
        .tag = tag,
        .cbdata = upper->cbdata,
    };
    upper->cbfunc(&mca_btl_tickwire_module, &descriptor);
#else
    mca_btl_base_descriptor_t descriptor;
    memset(&descriptor, 0, sizeof(descriptor));
    descriptor.des_segments = &segment;
    descriptor.des_segment_count = 1;
    upper->cbfunc(&mca_btl_tickwire_module, tag, &descriptor, upper->cbdata);
#endif
}

/* In the middle of a job this ends it, as MPI's default is; at the end peers go as they please. */
static void lost(const tw_event *event)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    mca_btl_tickwire_endpoint_t *endpoint = tickwire_endpoint_of(event->peer);
    opal_proc_t *proc;

    if (c->is_closing) {
        return;
    }
    proc = NULL != endpoint ? endpoint->proc : tickwire_proc_of(event->rank);
    if (NULL != endpoint) {
        tickwire_fail_waiting(endpoint);
    }
    if (NULL != c->on_error) {
        char text[256];
        snprintf(text, sizeof(text), "btl tickwire: %s",
                 NULL == event->text ? "a peer is lost" : event->text);
        c->on_error(&mca_btl_tickwire_module, MCA_BTL_ERROR_FLAGS_FATAL, proc, text);
    }
}

void tickwire_on_event(void *user, const tw_event *event)
{
    (void) user;
    if (tickwire_is_thread()) {
        tickwire_hold_event(event);
        return;
    }
    switch (event->kind) {
    case TW_EVENT_RECEIVED:
        received(event);
        break;
    case TW_EVENT_PEER_DEAD:
    case TW_EVENT_PEER_UNREACHABLE:
        lost(event);
        break;
    case TW_EVENT_SEND_DONE:
        tickwire_sent(event->token, OPAL_SUCCESS);
        break;
    case TW_EVENT_SEND_FAILED:
        tickwire_sent(event->token, OPAL_ERR_UNREACH);
        break;
    case TW_EVENT_PEER_READY:
    case TW_EVENT_PEER_CLOSED:
        break;
    }
}
