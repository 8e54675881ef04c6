/* test_log_promises.c - what log.h and log_reader.h promise, where it is odd:
 * positions far behind the end, logs that keep only so much and are not filled
 * in the usual way, those who wait beside others of their own process. */
#include "fixture/log_world.h"
#include "log/shard.h"

#include <string.h>

static struct logs_seen seen;

static int open_with(struct member *member, uint32_t flags, uint64_t keep,
		     uint64_t bytes, struct reef_space **space,
		     struct reef_log **log)
{
	const struct reef_log_options options = {
		LOGS_SMALL,
		.flags = flags,
		.keep_entries = keep,
		.keep_bytes = bytes,
	};

	TRY(member_space(member, space));
	return reef_log_open(*space, "log", &options, log);
}

/* --- far away --- */

/* Nothing is at a position behind the end, however far. */
static int looks_far_ahead(struct member *member)
{
	static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
					 REEF_LOG_SHARDED | REEF_LOG_EARLY};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t from, next;

	for (uint32_t kind = 0; kind < 4; kind++) {
		TRY(open_with(member, kinds[kind], 0, 0, &space, &log));
		if (kinds[kind] == REEF_LOG_SINGLE)
			TRY(reef_log_lead(log));
		for (uint64_t i = 0; i < 20; i++)
			TRY(logs_append(log, i, 8, NULL));
		/* A lap of the directory has 128 positions. */
		for (uint32_t bit = 6; bit < 64; bit++) {
			from = UINT64_C(1) << bit | 3;
			memset(&seen, 0, sizeof(seen));
			next = 0;
			TRY(reef_log_read(log, from, 64, logs_see, &seen,
					  &next));
			WANT(!seen.count && next == from);
			WANT_RC(reef_log_wait(log, from, MICROSECOND),
				-ETIMEDOUT);
			WANT_RC(reef_log_trim(log, from), -ERANGE);
			WANT_RC(reef_log_fill(log, from), -ERANGE);
		}
		TRY(reef_log_read(log, UINT64_MAX, 64, logs_see, &seen, &next));
		WANT(!seen.count && next == UINT64_MAX);
		reef_log_close(log);
		TRY(reef_log_drop(space, "log"));
	}
	return 0;
}

static void log_far_behind_its_end_has_nothing(void **state)
{
	logs_run_as(looks_far_ahead, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_far_behind_its_end_has_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
