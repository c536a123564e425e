/* tickwire: reliable messages at microsecond latency over unreliable datagrams.
 * Made from src/ffi by cbindgen; docs/c-interface.md explains it. */

#ifndef TICKWIRE_H
#define TICKWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 Version of this interface: functions may be added while it stays the same.
 */
#define TW_API_VERSION 1

/*
 No address is longer.
 */
#define TW_ADDRESS_BYTES_MAX 512

/*
 Parts that one message may be made of.
 */
#define TW_PARTS_MAX 16

/*
 How a call ended.
 */
typedef enum tw_status {
  /*
   Done.
   */
  TW_OK = 0,
  /*
   No room now: tick, then try again. Something is outstanding and will come back.
   */
  TW_AGAIN = 1,
  /*
   The handle names no peer (any more).
   */
  TW_NO_PEER = 2,
  /*
   The peer is dead or unreachable, or one of the sides has closed.
   */
  TW_CLOSED = 3,
  /*
   The peer does not take messages of this size.
   */
  TW_TOO_LARGE = 4,
  /*
   An argument is null, out of range or unknown.
   */
  TW_BAD_ARGUMENT = 5,
  /*
   The address blob is none, or not one of this job with these settings.
   */
  TW_BAD_ADDRESS = 6,
  /*
   A table is full.
   */
  TW_FULL = 7,
  /*
   The port cannot be opened: the error text says why.
   */
  TW_UNUSABLE = 8,
  /*
   Not from inside an event handler.
   */
  TW_BUSY = 9,
  /*
   A bug in tickwire; the engine must not be used any more.
   */
  TW_BUG = 10,
} tw_status;

/*
 What happened.
 */
typedef enum tw_event_kind {
  /*
   A message arrived: `peer`, `tag`, `bytes`, `len_bytes`. The bytes are lent for the call.
   */
  TW_EVENT_RECEIVED = 1,
  /*
   The peer has everything of a message sent under `token`.
   */
  TW_EVENT_SEND_DONE = 2,
  /*
   The message sent under `token` will never arrive; its memory is the caller's again.
   */
  TW_EVENT_SEND_FAILED = 3,
  /*
   The peer's addresses are usable.
   */
  TW_EVENT_PEER_READY = 4,
  /*
   The peer cannot be reached: `rank`, `text`.
   */
  TW_EVENT_PEER_UNREACHABLE = 5,
  /*
   The peer is dead: `rank`, `text`. Told once.
   */
  TW_EVENT_PEER_DEAD = 6,
  /*
   The peer has closed: everything it sent has arrived.
   */
  TW_EVENT_PEER_CLOSED = 7,
} tw_event_kind;

/*
 One process's end of the job. Used by one thread at a time; the caller's lock, if there are
 several, covers every call with this engine. Functions that send may be called from inside an
 event handler; those that say so may not.
 */
typedef struct tw_engine tw_engine;

/*
 What an engine is opened with.
 */
typedef struct tw_options tw_options;

/*
 A peer; 0 is none. Goes stale when the peer is removed.
 */
typedef uint32_t tw_peer;

/*
 One event. Fields that its kind does not name are 0.
 */
typedef struct tw_event {
  /*
   What happened.
   */
  enum tw_event_kind kind;
  /*
   Which peer it is about.
   */
  tw_peer peer;
  /*
   The peer's rank.
   */
  uint32_t rank;
  /*
   The sender's label on a message.
   */
  uint32_t tag;
  /*
   The sender's own name for a message.
   */
  uint64_t token;
  /*
   The message.
   */
  const void *bytes;
  /*
   Its length.
   */
  uint64_t len_bytes;
  /*
   For people: who, and why. Lent for the call.
   */
  const char *text;
} tw_event;

/*
 Hears of an event. May call what sends; see `tw_engine`.
 */
typedef void (*tw_handler)(void *user, const struct tw_event *event);

/*
 A process of this job that was never added sends something: copy its address blob to `out` (of
 `out_bytes`) and return the length, and it is added and heard; 0: it is not known (yet).
 */
typedef size_t (*tw_stranger)(void *user, uint32_t rank, void *out, size_t out_bytes);

/*
 One of the parts that a message is made of.
 */
typedef struct tw_part {
  /*
   First byte.
   */
  const void *bytes;
  /*
   Length.
   */
  size_t len_bytes;
} tw_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What a status means, in words. Any number may be asked for; the text is never freed.
 */
const char *tw_status_text(int32_t status);

/*
 Version of the library, such as `0.1.0`; never freed.
 */
const char *tw_version(void);

/*
 Version of the interface that the library was built with, to be compared with
 `TW_API_VERSION` of the header.
 */
uint32_t tw_api_version(void);

/*
 Opens an engine. `options` stay the caller's. What was wrong goes to `error`, which may be null.

 # Safety
 `options` came from `tw_options_new`; `engine` is writable; `error` has `error_bytes`.
 */
enum tw_status tw_open(const struct tw_options *options,
                       struct tw_engine **engine,
                       char *error,
                       size_t error_bytes);

/*
 Frees an engine at once, with all that it has not sent: `tw_close` before it waits. Null is
 fine. Not from inside a handler.

 # Safety
 `engine` came from `tw_open` and is not used again.
 */
void tw_free(struct tw_engine *engine);

/*
 Who hears of events: `handler` for all of them; `stranger`, which may be null, when a process
 of this job that was never added sends something. `user` is handed to both.
 */
void tw_set_handler(const struct tw_engine *engine,
                    tw_handler handler,
                    tw_stranger stranger,
                    void *user);

/*
 One turn: takes in what arrived, tells the handler, sends what is due. Never blocks. `work`,
 which may be null, becomes the number of things done: 0 when there was nothing to do. Not from
 inside a handler.

 # Safety
 `work` is writable or null.
 */
enum tw_status tw_tick(const struct tw_engine *engine, uint32_t *work);

/*
 Sleeps until something may have arrived or is due, at most `timeout_ns`. Not from inside a
 handler.
 */
enum tw_status tw_wait(const struct tw_engine *engine, uint64_t timeout_ns);

/*
 Closes towards all peers and ticks until everything sent has arrived and all have said goodbye:
 `TW_OK`; or until `linger_ns` is over: `TW_AGAIN`. Not from inside a handler.
 */
enum tw_status tw_close(const struct tw_engine *engine, uint64_t linger_ns);

/*
 Copies this process's address, for the others' `tw_add_peer`, to `out` if it has room, and
 returns its length (at most `TW_ADDRESS_BYTES_MAX`) in any case. Not from inside a handler,
 where it is 0.

 # Safety
 `out` has `out_bytes` writable bytes, or is null.
 */
size_t tw_address(const struct tw_engine *engine, void *out, size_t out_bytes);

/*
 The port and its limits in words, to `out` (at most `out_bytes`, terminated).

 # Safety
 `out` has `out_bytes` writable bytes, or is null.
 */
void tw_describe(const struct tw_engine *engine, char *out, size_t out_bytes);

/*
 What is set and cannot be used in full, in words, a line each; empty if nothing. Lives as long
 as the engine.
 */
const char *tw_warnings(const struct tw_engine *engine);

/*
 The counter at `index`, from 0 on: its name, which lives as long as the engine, and its value.
 `TW_BAD_ARGUMENT` behind the last one.

 # Safety
 `name` and `value` are writable or null.
 */
enum tw_status tw_counter_at(const struct tw_engine *engine,
                             size_t index,
                             const char **name,
                             uint64_t *value);

/*
 The counter of that name.

 # Safety
 `name` ends in a zero byte; `value` is writable.
 */
enum tw_status tw_counter(const struct tw_engine *engine, const char *name, uint64_t *value);

/*
 Options of process `rank` of the job that `job_key` names, all others at their defaults. Freed
 with `tw_options_free`.
 */
struct tw_options *tw_options_new(uint32_t rank, uint64_t job_key);

/*
 Frees options; null is fine.

 # Safety
 `options` came from `tw_options_new` and is not used again.
 */
void tw_options_free(struct tw_options *options);

/*
 Sets one option from text. Names: `port` (`udp`, `libfabric`), `provider`, `bind` (an IP
 address), `faults` (`loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%`), `seed`, `name`, `incarnation`,
 `auth_key` (32 hexadecimal digits), `checksum`, `ordered` (0 or 1), `congestion` (`delay`,
 `fixed`) and the numbers of `Config` in `docs/c-interface.md`, such as `window_segments`.
 What was wrong goes to `error` (at most `error_bytes`, terminated), which may be null.

 # Safety
 `options` came from `tw_options_new`; the texts end in zero bytes; `error` has `error_bytes`.
 */
enum tw_status tw_options_set(struct tw_options *options,
                              const char *name,
                              const char *value,
                              char *error,
                              size_t error_bytes);

/*
 Adds the peer whose `tw_address` the blob is. Messages may be sent to it at once. Another
 incarnation of a rank takes the place of the former one, which is reported as dead. What was
 wrong goes to `error`, which may be null.

 # Safety
 `address` has `address_bytes`; `peer` is writable or null; `error` has `error_bytes`.
 */
enum tw_status tw_add_peer(const struct tw_engine *engine,
                           const void *address,
                           size_t address_bytes,
                           tw_peer *peer,
                           char *error,
                           size_t error_bytes);

/*
 Forgets a peer: its sends with a token are reported as failed. Not from inside a handler.
 */
enum tw_status tw_remove_peer(const struct tw_engine *engine, tw_peer peer);

/*
 The peer of a rank, or 0.
 */
tw_peer tw_peer_of_rank(const struct tw_engine *engine, uint32_t rank);

/*
 Asks to hear of the peer's death also while nothing is outstanding to it, or no longer.
 */
enum tw_status tw_watch_peer(const struct tw_engine *engine, tw_peer peer, bool on);

/*
 Whether everything sent to the peer has arrived. A peer that is gone is drained.
 */
bool tw_is_drained(const struct tw_engine *engine, tw_peer peer);

/*
 Largest message to the peer that goes in one datagram, in bytes; 0 for no peer.
 */
size_t tw_small_bytes_max(const struct tw_engine *engine, tw_peer peer);

/*
 Sends a copy of `bytes`. `TW_OK`: it will be delivered, exactly once, unless the peer dies.

 # Safety
 `bytes` has `len_bytes`.
 */
enum tw_status tw_send(const struct tw_engine *engine,
                       tw_peer peer,
                       uint32_t tag,
                       const void *bytes,
                       size_t len_bytes);

/*
 Sends a copy of `parts` (at most `TW_PARTS_MAX`), one behind the other, as one message.

 # Safety
 `parts` has `count` parts, each with its bytes.
 */
enum tw_status tw_send_parts(const struct tw_engine *engine,
                             tw_peer peer,
                             uint32_t tag,
                             const struct tw_part *parts,
                             size_t count);

/*
 `tw_send_parts` that asks for `TW_EVENT_SEND_DONE`, once the peer has it all, or
 `TW_EVENT_SEND_FAILED`, under `token`. With any other result than `TW_OK` neither comes.

 # Safety
 `parts` has `count` parts, each with its bytes.
 */
enum tw_status tw_send_parts_with_token(const struct tw_engine *engine,
                                        tw_peer peer,
                                        uint32_t tag,
                                        const struct tw_part *parts,
                                        size_t count,
                                        uint64_t token);

/*
 `tw_send_parts` for a caller that may stop ticking once its message is sent: the message, of one
 datagram, goes to the port in this call (from a handler: in this tick), or the result is
 `TW_AGAIN` and the engine has nothing of it. Longer than `tw_small_bytes_max` is `TW_TOO_LARGE`.

 # Safety
 `parts` has `count` parts, each with its bytes.
 */
enum tw_status tw_send_parts_at_once(const struct tw_engine *engine,
                                     tw_peer peer,
                                     uint32_t tag,
                                     const struct tw_part *parts,
                                     size_t count);

/*
 Sends bytes without copying them where the port gathers. They stay the engine's to read, and
 unchanged, until `TW_EVENT_SEND_DONE` or `TW_EVENT_SEND_FAILED` under `token`; with any other
 result than `TW_OK` they were not taken.

 # Safety
 `bytes` has `len_bytes`, for as long as said above.
 */
enum tw_status tw_send_lent(const struct tw_engine *engine,
                            tw_peer peer,
                            uint32_t tag,
                            const void *bytes,
                            size_t len_bytes,
                            uint64_t token);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TICKWIRE_H */
