/* save.h - SAVE and BGSAVE: a process that copies the door's space to a file.
 *
 * (1) Another process does it, because whoever saves reads what is closed to
 *     everybody else by a key that only reads: the door's own session has to
 *     wait like all others.
 * (2) At most one is under way. It ends by itself, also if the door dies.
 * (3) The last save counts from when it was begun: what was answered before
 *     that is in the image.
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_REDIS_SERVER_SAVE_H
#define REEF_GATEWAY_REDIS_SERVER_SAVE_H

#include <stdbool.h>
#include <stdint.h>

struct redis_save;

/* words: of the program, and then NULL; they are the caller's, as long as it is
 * there. NULL: there is nowhere to save to.  Caller owns *out.  -ENOMEM. */
int redis_save_create(const char *const *words, struct redis_save **out);
void redis_save_destroy(struct redis_save *save); /* NULL is fine */

/* Begin. *number: of this save.  -EBUSY: one is under way.  -EOPNOTSUPP: there
 * is nowhere to save to.  Else: the program could not be started. */
int redis_save_begin(struct redis_save *save, uint64_t *number);

struct redis_save_info {
	bool is_running;
	bool has_failed; /* the last one that has ended */
	uint64_t last_s; /* of the last that went well, since 1970; 0: none */
	uint64_t ended;	 /* number of the last that has ended */
};
void redis_save_info(struct redis_save *save, struct redis_save_info *out);

#endif
