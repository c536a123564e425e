/* Descriptors: memory for upper headers and packed data, or a header and a view of user memory. */
#include "btl_tickwire.h"

/* `take` sets every field that anything reads. */
OBJ_CLASS_INSTANCE(mca_btl_tickwire_frag_t, mca_btl_base_descriptor_t, NULL, NULL);

static int init_list(opal_free_list_t *list, size_t room, int step)
{
    return opal_free_list_init(list, TICKWIRE_FRAG_BYTES + room, opal_cache_line_size,
                               OBJ_CLASS(mca_btl_tickwire_frag_t), 0, opal_cache_line_size, 0, -1,
                               step, NULL, 0, NULL, NULL, NULL);
}

int tickwire_init_frags(void)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    int rc = init_list(&c->eager_frags, mca_btl_tickwire_module.btl_eager_limit, 32);

    return OPAL_SUCCESS == rc
        ? init_list(&c->large_frags, mca_btl_tickwire_module.btl_max_send_size, 4)
        : rc;
}

static mca_btl_tickwire_frag_t *take(mca_btl_tickwire_endpoint_t *endpoint, size_t room,
                                     uint32_t flags)
{
    mca_btl_tickwire_component_t *c = &mca_btl_tickwire_component;
    const mca_btl_base_module_t *m = &mca_btl_tickwire_module;
    opal_free_list_t *home = room <= m->btl_eager_limit ? &c->eager_frags : &c->large_frags;
    mca_btl_tickwire_frag_t *frag;

    if (room > m->btl_max_send_size) {
        return NULL;
    }
    frag = (mca_btl_tickwire_frag_t *) opal_free_list_get(home);
    if (NULL == frag) {
        return NULL;
    }
    frag->home = home;
    frag->endpoint = endpoint;
    frag->base.des_segments = frag->segments;
    frag->base.des_segment_count = 1;
    frag->base.des_flags = flags;
    frag->base.order = MCA_BTL_NO_ORDER;
    frag->segments[0].seg_addr.pval = tickwire_frag_memory(frag);
    return frag;
}

mca_btl_base_descriptor_t *tickwire_alloc(mca_btl_base_module_t *btl,
                                          mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                          size_t size, uint32_t flags)
{
    mca_btl_tickwire_frag_t *frag = take(endpoint, size, flags);

    (void) btl;
    (void) order;
    if (NULL == frag) {
        return NULL;
    }
    frag->segments[0].seg_len = size;
    return &frag->base;
}

int tickwire_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    mca_btl_tickwire_frag_t *frag = (mca_btl_tickwire_frag_t *) descriptor;

    (void) btl;
    opal_free_list_return(frag->home, (opal_free_list_item_t *) frag);
    return OPAL_SUCCESS;
}

/* Packs up to `size` bytes behind the header; what was packed goes to `size`. */
static bool pack(mca_btl_tickwire_frag_t *frag, opal_convertor_t *convertor, size_t reserve,
                 size_t *size)
{
    struct iovec iov = {
        .iov_base = (IOVBASE_TYPE *) (tickwire_frag_memory(frag) + reserve),
        .iov_len = *size,
    };
    uint32_t count = 1;
    size_t packed = *size;

    if (opal_convertor_pack(convertor, &iov, &count, &packed) < 0) {
        return false;
    }
    frag->segments[0].seg_len = reserve + packed;
    *size = packed;
    return true;
}

/* Data that lies in one piece stays where it is until it is sent. */
static bool point(mca_btl_tickwire_frag_t *frag, opal_convertor_t *convertor, size_t reserve,
                  size_t *size)
{
    struct iovec iov = {.iov_base = NULL, .iov_len = *size};
    uint32_t count = 1;
    size_t given = *size;

    if (opal_convertor_pack(convertor, &iov, &count, &given) < 0) {
        return false;
    }
    frag->segments[0].seg_len = reserve;
    frag->segments[1].seg_addr.pval = iov.iov_base;
    frag->segments[1].seg_len = given;
    frag->base.des_segment_count = 2;
    *size = given;
    return true;
}

mca_btl_base_descriptor_t *tickwire_prepare_src(mca_btl_base_module_t *btl,
                                                mca_btl_base_endpoint_t *endpoint,
                                                opal_convertor_t *convertor, uint8_t order,
                                                size_t reserve, size_t *size, uint32_t flags)
{
    size_t size_max = btl->btl_max_send_size - reserve;
    bool must_pack = 0 != opal_convertor_need_buffers(convertor);
    mca_btl_tickwire_frag_t *frag;
    bool is_good;

    (void) order;
    /* Only fragments are longer, and ob1 takes them shortened. */
    if (*size > size_max) {
        *size = size_max;
    }
    frag = take(endpoint, must_pack ? reserve + *size : reserve, flags);
    if (NULL == frag) {
        return NULL;
    }
    is_good = must_pack ? pack(frag, convertor, reserve, size)
                        : point(frag, convertor, reserve, size);
    if (!is_good) {
        (void) tickwire_free(btl, &frag->base);
        return NULL;
    }
    return &frag->base;
}
