/* thread.h - a thread of the door: its handle of the pool, its clients.
 *
 * (1) A thread serves its clients one after the other, each with all that it
 *     sent meanwhile; those that have sent nothing but plain requests are
 *     served together (gather.h). Calls of the map block the thread.
 * (2) The lock is held by the thread except while it waits for events, so
 *     commands need not take it. Whoever wants to look at the clients or
 *     counters of all threads goes through redis_door_each (door.h), which lets
 *     go of the own lock meanwhile.
 * (3) Session and maps come and go: a command asks redis_map anew each time,
 *     and passes on what went wrong with redis_reply_failure.
 *
 * Thread: owner, or with `lock`. */
#ifndef REEF_GATEWAY_REDIS_SERVER_THREAD_H
#define REEF_GATEWAY_REDIS_SERVER_THREAD_H

#include "base/random.h"
#include "base/spin.h"
#include "gateway/redis/server/client.h"

#include <pthread.h>
#include <reef/map.h>
#include <stdatomic.h>

#define REDIS_DATABASES_MAX 256
#define REDIS_COMMANDS_MAX 256
#define REDIS_MANY_MAX 64 /* keys or commands that are done together */
#define REDIS_MANY_ARGC_MAX 3
/* The most bytes of a key and of a value, as the maps have it. */
#define REDIS_KEY_MAX 65536u
#define REDIS_VALUE_MAX (64u << 20)

struct redis_door;
struct redis_gather;
struct redis_tasks;

struct redis_thread_stats {
	uint64_t connections;
	uint64_t commands, errors; /* errors: error answers */
	uint64_t bytes_in, bytes_out;
	uint64_t keyspace_hits, keyspace_misses; /* counted by commands */
	uint64_t query_limit_closed, output_limit_closed;
	uint64_t auth_failed, auth_refused; /* refused: not even checked */
	uint64_t evicted_clients;
	uint64_t pauses; /* in which a long command let others be served */
	uint64_t batches, batched; /* calls of run_many (table.h), and the
				      requests in them */
	/* By the index of a redis_command: */
	uint64_t calls[REDIS_COMMANDS_MAX];
	uint64_t calls_rejected[REDIS_COMMANDS_MAX]; /* refused before it ran */
	uint64_t calls_failed[REDIS_COMMANDS_MAX]; /* ran, and answered an error
						    */
};

/* How often an error was answered, by its first word. */
#define REDIS_ERROR_NAMES_MAX 64
struct redis_error_count {
	char name[REDIS_ERROR_NAME_MAX];
	uint64_t count;
};

/* How many keys a database had, where counting takes long. */
struct redis_key_count {
	uint64_t keys;
	uint64_t until_ns; /* when it is to be counted anew */
};

struct redis_thread {
	struct redis_door *door;
	uint32_t index;
	pthread_t id;
	pthread_mutex_t lock;
	/* How many others wait for the lock. They get it before the thread
	 * takes it again, and signal `turn` when they are done. */
	_Atomic uint32_t wanted;
	pthread_cond_t turn;
	int epoll_fd, wake_fd;
	/* How often it has waited for events, and how often it had when
	 * redis_door_is_alive last asked, which is that one's. */
	_Atomic uint64_t rounds;
	uint64_t rounds_known;
	struct reef_spin spin; /* how long polling for events pays */

	/* Handle, space and databases; NULL: not open at the moment. */
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *maps[REDIS_DATABASES_MAX];
	struct redis_key_count key_counts[REDIS_DATABASES_MAX]; /* of INFO */
	uint32_t units; /* open transactions, which need all that (atomic.h) */
	bool is_fenced; /* the session is over: close all that, and open anew */
	bool has_dropped_map; /* a map was dropped or lost: all are opened anew
			       */
	uint64_t lost_ns; /* when maps were last opened anew for a lost one */
	uint64_t retry_ns, retry_pause_ns; /* when to open it again */
	uint64_t away_until_ns; /* until when the pool counts as out of reach */

	/* Connections that were dealt to the thread and that it has not taken
	 * yet; under inbox_lock. */
	pthread_mutex_t inbox_lock;
	struct redis_client *inbox;
	_Atomic uint32_t dealt; /* clients, with those in the inbox */

	struct redis_client *clients;
	uint32_t client_count;
	/* Those that have something to do (ready.h). */
	struct redis_client *ready_first, *ready_last;
	struct redis_tasks *tasks;
	_Atomic uint64_t charged; /* bytes of its clients (budget.h) */
	bool has_killed;	  /* a client was killed out of its turn */
	uint64_t now_ns;	  /* when this round began; monotonic */
	uint64_t trimmed_ns;	  /* when malloc last gave memory back */
	struct redis_spare spare;
	uint64_t staged_bytes; /* of values on stage (stage.h) */
	struct reef_random random;
	struct redis_thread_stats stats;
	struct redis_error_count error_counts[REDIS_ERROR_NAMES_MAX];
	uint32_t error_names;

	/* Scratch of the command that runs: what it found, in room that stays
	 * from call to call (access.h). */
	struct reef_map_value value;
	size_t large; /* room of the last value that was large; 0: it was not */
	struct reef_map_item items[REDIS_MANY_MAX];
	/* For serve.c: requests that wait to be done together. */
	struct redis_gather *gather;
	const char *refusal; /* why a change was not made */
};

/* The client's database as a map of this thread. False: an error was answered
 * already, since the pool is out of reach just now. */
bool redis_map(struct redis_thread *thread, struct redis_client *client,
	       struct reef_map **out);
/* The same for another database than the client's own. */
bool redis_map_of(struct redis_thread *thread, struct redis_client *client,
		  uint32_t db, struct reef_map **out);
/* The same, but nothing is answered.  -EAGAIN: the pool is out of reach, and
 * not tried just now.  Others: it failed. redis_reply_failure knows them. */
int redis_map_try(struct redis_thread *thread, uint32_t db,
		  struct reef_map **out);
/* A database, only if it exists already; answers nothing. -ENOENT: it does not.
 * Others: the pool is out of reach, or failed. */
int redis_map_existing(struct redis_thread *thread, uint32_t db,
		       struct reef_map **out);
/* Drop a database; the next who uses it makes it anew. */
int redis_map_drop(struct redis_thread *thread, uint32_t db);

/* --- for commands that may take long (task.h) --- */

/* Called between two parts of a command: others are served, if this one has
 * had its time, and the client reads what is answered, if that is much. False:
 * the client is gone, and the command is to return at once. Afterwards the
 * bytes of arguments may lie elsewhere (argv stays, and points there), maps may
 * be closed, and what is the thread's is another's. */
bool redis_pause(struct redis_thread *thread, struct redis_client *client);
/* Wait until then; else as redis_pause. */
bool redis_sleep(struct redis_thread *thread, struct redis_client *client,
		 uint64_t until_ns);

/* Answer what went wrong with the pool (rc < 0), in the words that clients of
 * Redis know: -OOM where there is no room, -LOADING where the pool will be
 * back, -ERR otherwise. */
void redis_reply_failure(struct redis_thread *thread,
			 struct redis_client *client, int rc);

#endif
