/* access.h - how commands use the map: what all of them have in common.
 *
 * (1) Whatever goes wrong with the pool is answered here, once.
 * (2) Within a unit (atomic.h) all of it happens at once. What goes wrong with
 *     the unit is not answered here: then a function returns it, and the
 *     command returns at once.
 * (3) What a command found or made lies in thread->value. If it is large, the
 *     answer takes its room over, so that it is sent from there.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_ACCESS_H
#define REEF_GATEWAY_REDIS_COMMANDS_ACCESS_H

#include "gateway/redis/commands/table.h"

/* Read a key into thread->value; read counts as a use of the key (unless the
 * client said NO-TOUCH), peek does not. 0: there it is.  -ENOENT: it is not
 * there; nothing was answered.  Others: answered. */
int redis_read(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_bytes *key);
int redis_peek(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_bytes *key);
/* As peek, without the bytes of the value, so that a large one is not read. */
int redis_peek_head(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_bytes *key);
/* As read, but counts as a use even if the client said NO-TOUCH. */
int redis_touch(struct redis_thread *thread, struct redis_client *client,
		const struct redis_bytes *key);

typedef int redis_decide(void *context, const struct reef_map_entry *now,
			 struct reef_map_entry *put);

/* Change a key as `decide` decides (map.h). ahead: what it puts if it puts;
 * NULL: that depends. Returns the verdict that was done, or negative: that was
 * answered. */
int redis_change(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_bytes *key, redis_decide *decide,
		 void *context, const struct reef_map_entry *ahead);
/* The same in any database, by a decide that does not look at the value that is
 * there. */
int redis_change_blind(struct redis_thread *thread, struct redis_client *client,
		       uint32_t db, const struct redis_bytes *key,
		       redis_decide *decide, void *context,
		       const struct reef_map_entry *ahead);
/* For decide to return: nothing is done, and `error` is answered. */
int redis_refuse(struct redis_thread *thread, const char *error);

/* Set a key, whatever it was. 0, or negative: that was answered. */
int redis_put(struct redis_thread *thread, struct redis_client *client,
	      const struct redis_bytes *key, const struct redis_bytes *value,
	      uint64_t expires_ms);
/* Delete a key. 1: it was there.  0: it was not.  Negative: answered. */
int redis_delete(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_bytes *key);

/* True if all keys of a request, from argument 1 on each `step`th, are short
 * enough, and so are the values behind them if step is 2. False: answered. Of a
 * command on several keys nothing is done then. */
bool redis_check_sizes(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, uint32_t step);
/* Read some keys, at most REDIS_MANY_MAX, into thread->items, each with its
 * status; long values are not read. 0, or what hit all of them, not answered.
 */
int redis_read_many(struct redis_thread *thread, struct redis_client *client,
		    struct reef_map *map, const struct redis_bytes *keys,
		    uint32_t count);
/* True if the value of one of thread->items is long, and was not read. */
static inline bool redis_item_is_long(const struct redis_thread *thread,
				      uint32_t index)
{
	return !thread->items[index].status &&
	       !thread->items[index].value.bytes;
}
/* Answer one of thread->items, its value or null. 0, or the error, which is not
 * answered. */
int redis_reply_item(struct redis_thread *thread, struct redis_client *client,
		     uint32_t index);

/* Give back the room of one of thread->items, if it is large. */
void redis_item_trim(struct redis_thread *thread, uint32_t index);

/* Make room for `size` bytes in thread->value, which has that size then; what
 * was there is lost.  NULL: no memory. */
char *redis_value_room(struct redis_thread *thread, size_t size);
/* Give back the room of thread->value, if it is large. */
void redis_value_trim(struct redis_thread *thread);
/* Copy the value that decide was shown into thread->value. 0.  -ENOMEM. */
int redis_value_keep(struct redis_thread *thread,
		     const struct reef_map_entry *now);
/* Answer a value: a small one is copied, a large one is sent from where it is,
 * and its room is the answer's. */
void redis_reply_found(struct redis_client *client,
		       struct reef_map_value *value);
/* Count a use of a key that a unit reads, where that decides what is evicted.
 */
void redis_count_use(struct redis_thread *thread, struct reef_map *map,
		     const struct redis_bytes *key);
/* Answer thread->value as a bulk. */
void redis_reply_value(struct redis_thread *thread,
		       struct redis_client *client);

/* How many databases there are. */
uint32_t redis_databases(const struct redis_thread *thread);
/* Read the pool's clock. False: an error was answered. */
bool redis_now(struct redis_thread *thread, struct redis_client *client,
	       uint64_t *ms);

/* Answer why a call on a key failed. */
void redis_reply_key_failure(struct redis_thread *thread,
			     struct redis_client *client,
			     const struct redis_bytes *key, int rc);

#endif
