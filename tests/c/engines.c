// Two engines in one process, over kernel UDP that loses, doubles and swaps what arrives. The one
// that receives was never told of the other: it meets it as a stranger. Every byte is compared,
// every lent buffer must come back once, and wrong calls must be refused with the right status.
#include <tickwire.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

enum { MESSAGES = 300, LARGEST_BYTES = 200000 };

static unsigned char source[LARGEST_BYTES + MESSAGES];

typedef struct side {
    tw_engine *engine;
    const tw_engine *other;
    unsigned received, done, strangers, busy, ends;
    unsigned char seen[MESSAGES];
} side;

static size_t length_of(unsigned tag)
{
    static const size_t lengths[] = {0, 1, 8, 1000, 1440, 1441, 5000, 65536, LARGEST_BYTES};
    return lengths[tag % (sizeof(lengths) / sizeof(*lengths))];
}

static void on_event(void *user, const tw_event *event)
{
    side *me = user;
    switch (event->kind) {
    case TW_EVENT_RECEIVED:
        CHECK(event->tag < MESSAGES && !me->seen[event->tag]++);
        CHECK(event->len_bytes == length_of(event->tag));
        CHECK(event->len_bytes == 0
              || 0 == memcmp(event->bytes, source + event->tag, event->len_bytes));
        me->received++;
        me->busy += tw_tick(me->engine, NULL) == TW_BUSY;
        break;
    case TW_EVENT_SEND_DONE:
        CHECK(event->token < MESSAGES && event->token % 2 == 1 && !me->seen[event->token]++);
        me->done++;
        break;
    case TW_EVENT_PEER_READY:
    case TW_EVENT_PEER_CLOSED:
        break;
    case TW_EVENT_SEND_FAILED:
    case TW_EVENT_PEER_UNREACHABLE:
    case TW_EVENT_PEER_DEAD:
        fprintf(stderr, "%s\n", event->text ? event->text : "a send failed");
        me->ends++;
        break;
    }
}

static size_t on_stranger(void *user, uint32_t rank, void *out, size_t out_bytes)
{
    side *me = user;
    // A corrupted datagram may name any rank.
    if (rank != 70000)
        return 0;
    me->strangers++;
    return tw_address(me->other, out, out_bytes);
}

static void set(tw_options *options, const char *name, const char *value)
{
    char error[256] = "";
    if (tw_options_set(options, name, value, error, sizeof(error)) != TW_OK) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static tw_engine *open_engine(uint32_t rank)
{
    tw_options *options = tw_options_new(rank, 42);
    tw_engine *engine = NULL;
    char error[256] = "";

    set(options, "bind", "127.0.0.1");
    set(options, "ranks_max", "100000");
    set(options, "faults", "loss=2%,dup=1%,reorder=5%,corrupt=0.5%");
    set(options, "seed", "7");
    CHECK(tw_options_set(options, "windows", "9", error, sizeof(error)) == TW_BAD_ARGUMENT);
    CHECK(strstr(error, "windows"));
    CHECK(tw_options_set(options, "seed", "x", error, 4) == TW_BAD_ARGUMENT);
    CHECK(strlen(error) == 3);
    if (tw_open(options, &engine, error, sizeof(error)) != TW_OK) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    tw_options_free(options);
    return engine;
}

// Messages are copied from two parts, the odd ones with a token, every other of which is lent.
static tw_status send_one(tw_engine *engine, tw_peer peer, unsigned tag)
{
    size_t len = length_of(tag), head = len < 32 ? len / 2 : 32;
    const tw_part parts[2] = {{source + tag, head}, {source + tag + head, len - head}};
    if (tag % 2 == 0)
        return tw_send_parts(engine, peer, tag, parts, 2);
    return tag % 4 == 1 ? tw_send_lent(engine, peer, tag, source + tag, len, tag)
                        : tw_send_parts_with_token(engine, peer, tag, parts, 2, tag);
}

static void refusals(tw_engine *engine, tw_peer peer)
{
    char error[64] = "";
    CHECK(tw_send(engine, 0, 1, "x", 1) == TW_NO_PEER);
    CHECK(tw_send(engine, peer, 1, NULL, 1) == TW_BAD_ARGUMENT);
    CHECK(tw_send_lent(engine, peer, 1, NULL, 1, 1) == TW_BAD_ARGUMENT);
    CHECK(tw_send_parts(engine, peer, 1, NULL, TW_PARTS_MAX + 1) == TW_BAD_ARGUMENT);
    CHECK(tw_add_peer(engine, "rubbish", 7, NULL, error, sizeof(error)) == TW_BAD_ADDRESS);
    CHECK(error[0] != '\0');
    CHECK(tw_counter(engine, "no_such", &(uint64_t) {0}) == TW_BAD_ARGUMENT);
    CHECK(tw_peer_of_rank(engine, 5) == 0 && tw_peer_of_rank(engine, UINT32_MAX) == 0);
    CHECK(tw_watch_peer(engine, 0, true) == TW_NO_PEER);
    CHECK(0 == strcmp(tw_status_text(-1), tw_status_text(99)));
}

static void close_both(side *a, side *b)
{
    tw_status one = TW_AGAIN, two = TW_AGAIN;
    for (int i = 0; i < 100 && (one != TW_OK || two != TW_OK); i++) {
        one = tw_close(a->engine, 20000000);
        two = tw_close(b->engine, 20000000);
    }
    CHECK(one == TW_OK && two == TW_OK);
}

int main(void)
{
    static side a, b;
    unsigned char blob[TW_ADDRESS_BYTES_MAX];
    unsigned next = 0;
    uint64_t messages = 0;
    tw_peer peer = 0;

    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (unsigned char) (i * 31 + i / 255);
    CHECK(tw_api_version() == TW_API_VERSION);
    a.engine = open_engine(70000);
    b.engine = open_engine(1);
    a.other = b.engine;
    b.other = a.engine;
    tw_set_handler(a.engine, on_event, on_stranger, &a);
    tw_set_handler(b.engine, on_event, on_stranger, &b);
    CHECK(tw_add_peer(a.engine, blob, tw_address(b.engine, blob, sizeof(blob)), &peer, NULL, 0)
          == TW_OK);
    CHECK(peer != 0 && tw_peer_of_rank(a.engine, 1) == peer);
    refusals(a.engine, peer);

    while (next < MESSAGES || b.received < MESSAGES || a.done < MESSAGES / 2) {
        tw_status status = next < MESSAGES ? send_one(a.engine, peer, next) : TW_AGAIN;
        CHECK(status == TW_OK || status == TW_AGAIN);
        next += status == TW_OK;
        CHECK(tw_tick(a.engine, NULL) == TW_OK && tw_tick(b.engine, NULL) == TW_OK);
        CHECK(a.ends + b.ends == 0);
    }
    CHECK(b.strangers == 1 && b.busy == MESSAGES && tw_is_drained(a.engine, peer));
    CHECK(tw_counter(b.engine, "messages_received", &messages) == TW_OK && messages == MESSAGES);
    close_both(&a, &b);
    CHECK(tw_send(a.engine, peer, 1, "x", 1) == TW_CLOSED);
    tw_free(a.engine);
    tw_free(b.engine);
    printf("two engines: %u messages, %u lent buffers came back\n", b.received, a.done);
    return 0;
}
