/* log_reef.c - the cases over Reef, as a program would: the public interface,
 * on a pool in another process (what `reef up` runs), options as they come, but
 * for how much is kept.
 *
 * Thread: owner. */
#include "bench/units.h"
#include "crowd.h"
#include "log_bench.h"
#include "log_work.h"
#include "pool.h"

#include <reef/fiber.h>
#include <reef/log.h>

#define EXTENT (64 * MIB)
#define CAPACITY (1024 * MIB)
#define KEEP 32768u /* positions of the log that is appended to */
#define MEMBERS 2u
#define SHARDED "append-sharded-2" /* a case, and its log */

struct hand {
	struct reef *reef;
	struct reef_space *space;
	struct reef_log *log, *filled, *awaited;
	uint64_t number; /* of the entry that is to be read */
};

static struct hand ours;
static struct crowd *crowd;

/* --- opening --- */

static int hand_open(struct hand *hand)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_options reef_options = {.fabrics = "shm"};
	int rc = reef_open("local", &reef_options, &hand->reef);

	return rc ? rc
		  : reef_space_open(hand->reef, "bench", &options,
				    &hand->space);
}

static int log_open(struct hand *hand, const char *name, uint64_t keep,
		    struct reef_log **out)
{
	const struct reef_log_options options = {
		.keep_entries = keep,
		.flags = !strcmp(name, SHARDED)
				 ? REEF_LOG_SHARDED | REEF_LOG_EARLY
				 : 0,
	};

	return reef_log_open(hand->space, name, &options, out);
}

/* --- operations --- */

static int ours_begin(void *context)
{
	(void)context;
	return 0;
}

workload_inline int ours_append(void *context, const char *bytes, size_t size)
{
	struct hand *hand = context;

	return reef_log_append(hand->log, bytes, size, NULL);
}

static int ours_append_batch(void *context, const char *bytes, size_t size)
{
	struct hand *hand = context;
	struct iovec entries[LOG_BATCH];

	for (uint32_t i = 0; i < LOG_BATCH; i++)
		entries[i] = (struct iovec){
			.iov_base = (void *)(uintptr_t)(bytes + i * size),
			.iov_len = size,
		};
	return reef_log_append_many(hand->log, entries, LOG_BATCH, NULL);
}

static int see(void *context, uint64_t position, const void *bytes, size_t size)
{
	struct hand *hand = context;

	(void)position;
	return log_check(bytes, size, hand->number++);
}

static int ours_read_all(void *context, uint64_t *count)
{
	struct hand *hand = context;
	uint64_t at = 0, next = 0;
	int rc;

	hand->number = 0;
	do {
		at = next;
		rc = reef_log_read(hand->filled, at, 256, see, hand, &next);
	} while (!rc && next != at);
	*count = hand->number;
	return rc;
}

static int ours_append_awaited(void *context, const char *bytes, size_t size)
{
	struct hand *hand = context;

	return reef_log_append(hand->awaited, bytes, size, NULL);
}

/* --- the sleeper --- */

static uint64_t sleeper_at;

static int ours_sleeper_open(void)
{
	int rc = hand_open(&ours);

	rc = rc ? rc : log_open(&ours, "awaited", KEEP, &ours.awaited);
	return rc ? rc : reef_log_tail(ours.awaited, &sleeper_at);
}

static int take_stamp(void *context, uint64_t position, const void *bytes,
		      size_t size)
{
	(void)position;
	if (size < sizeof(uint64_t))
		return -EILSEQ;
	memcpy(context, bytes, sizeof(uint64_t));
	return 0;
}

static int ours_sleeper_next(uint64_t *stamp)
{
	int rc = reef_log_wait(ours.awaited, sleeper_at, REEF_FOREVER);

	return rc ? rc
		  : reef_log_read(ours.awaited, sleeper_at, 1, take_stamp,
				  stamp, &sleeper_at);
}

static const struct log_ops ours_ops = {
	.begin = ours_begin,
	.append = ours_append,
	.append_batch = ours_append_batch,
	.read_all = ours_read_all,
	.append_awaited = ours_append_awaited,
	.sleeper_open = ours_sleeper_open,
	.sleeper_next = ours_sleeper_next,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- two processes --- */

static int member_ready(struct crowd_member *member, const char *name)
{
	int rc = 0;

	if (!member->context) {
		rc = hand_open(&ours);
		member->context = &ours;
	}
	/* The log is named after the case. */
	reef_log_close(ours.log);
	ours.log = NULL;
	rc = rc ? rc : log_open(&ours, name, KEEP, &ours.log);
	if (rc)
		snprintf(member->error, sizeof(member->error), "%s",
			 reef_error_text(rc));
	return rc;
}

static int member_loop(struct crowd_member *member, const char *name)
{
	static const char bytes[LOG_SHORT];
	uint32_t phase;
	int rc = 0;

	(void)name;
	member->counted = member->finished = 0;
	while (!rc) {
		phase = atomic_load_explicit(&member->shared->phase,
					     memory_order_relaxed);
		if (phase == CROWD_STOP)
			break;
		for (uint32_t i = 0; !rc && i < LOG_CHUNK; i++)
			rc = reef_log_append(ours.log, bytes, LOG_SHORT, NULL);
		member->finished += LOG_CHUNK;
		if (phase == CROWD_COUNT)
			member->counted += LOG_CHUNK;
	}
	return rc;
}

static const struct crowd_ops member_ops = {
	.ready = member_ready,
	.loop = member_loop,
};

/* How many times the rate of one both reach together. */
static int run_together(const char *name, double seconds, double *times)
{
	struct crowd_result one, both;
	int rc = crowd_run(crowd, name, 1, seconds / 2, &one);

	rc = rc ? rc : crowd_run(crowd, name, 2, seconds / 2, &both);
	if (!rc)
		*times = ((double)both.counted / both.seconds) /
			 ((double)one.counted / one.seconds);
	return rc;
}

/* --- the driver --- */

static int fill_log(struct hand *hand)
{
	char bytes[LOG_SHORT];
	int rc = log_open(hand, "filled", 0, &hand->filled);

	for (uint64_t i = 0; !rc && i < LOG_ENTRIES; i++) {
		log_entry(bytes, i);
		rc = reef_log_append(hand->filled, bytes, LOG_SHORT, NULL);
	}
	return rc;
}

static int log_reef_open(struct driver_pair *pair)
{
	int rc = bench_pool_start(pair, pair->options.fabric, CAPACITY, EXTENT,
				  false);

	/* Processes are forked before this one has anything open. */
	rc = rc ? rc : log_sleeper_start(&ours_ops);
	rc = rc ? rc : crowd_open(pair, MEMBERS, &member_ops, &crowd);
	rc = rc ? rc : hand_open(&ours);
	rc = rc ? rc : log_open(&ours, "log", KEEP, &ours.log);
	rc = rc ? rc : log_open(&ours, "awaited", KEEP, &ours.awaited);
	rc = rc ? rc : fill_log(&ours);
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "log.h over shm, on a pool in another process; %u positions "
		 "are kept",
		 KEEP);
	return 0;
}

static int log_reef_run(struct driver_pair *pair, const char *name,
			double seconds, double *rate)
{
	int rc = !strcmp(name, "append-2") || !strcmp(name, SHARDED)
			 ? run_together(name, seconds, rate)
			 : log_run(&ours_ops, &ours, name, seconds, rate);

	return rc && rc != -ENOSYS && rc != -EILSEQ
		       ? driver_fail(pair, rc, "%s", reef_error_text(rc))
		       : rc;
}

static void log_reef_close(struct driver_pair *pair)
{
	(void)pair;
	log_sleeper_stop();
	crowd_close(crowd);
	reef_log_close(ours.log);
	reef_log_close(ours.filled);
	reef_log_close(ours.awaited);
	reef_space_close(ours.space);
	reef_close(ours.reef);
}

const struct driver log_reef_driver = {
	.name = "reef",
	.open = log_reef_open,
	.run = log_reef_run,
	.close = log_reef_close,
};
