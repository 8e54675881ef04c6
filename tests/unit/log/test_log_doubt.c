/* test_log_doubt.c - a link is lost at every post in turn, before or after what
 * was posted happened: no call says what is not so, and nobody is left with
 * what another was given back. */
#include "fabric/hook/fault.h"
#include "fixture/log_world.h"
#include "fixture/seeds.h"
#include "log/reader.h"

#include <string.h>

#define ENTRIES 20u
#define POSTS_MAX 400u

static struct logs_seen seen;
static struct {
	uint64_t nth; /* post of the first member that is in doubt */
	enum reef_fault_kind kind;
	uint32_t flags;
	struct reef_fault *fault; /* of the first member */
	bool is_met;		  /* there were so many posts */
	uint32_t appended;
	bool is_done[8 * ENTRIES]; /* by position */
} scene;

static int push_fault(struct member *member, struct reef_fabric *fabric)
{
	const struct reef_fault_options options = {.lose_link =
							   reef_sim_lose_link};
	struct reef_fault *fault;
	int rc = reef_fault_push(fabric, &options, &fault);

	if (!rc && member->number == 1)
		scene.fault = fault;
	return rc;
}

static const struct reef_reader_options group = {.flags = REEF_READER_GROUP,
						 .window = 16};

static int open_log(struct member *member, struct reef_log **log)
{
	struct reef_log_options options = logs_small;
	struct reef_space *space;

	options.segment = 8;
	options.segments = 64;
	options.flags = scene.flags;
	TRY(member_space(member, &space));
	return reef_log_open(space, "log", &options, log);
}

/* --- the one whose link is lost --- */

static int refuse(void *context, uint64_t position, const void *bytes,
		  size_t size)
{
	(void)context;
	(void)position;
	(void)bytes;
	(void)size;
	return 7;
}

/* In doubt at all of very many attempts is what nobody is here. */
static int append_all(struct reef_log *log)
{
	uint64_t position;

	if (scene.flags & REEF_LOG_SINGLE)
		TRY(reef_log_lead(log));
	for (uint64_t i = 0; i < ENTRIES; i++) {
		TRY(logs_append(log, i, i % 5 ? 8 : 300, NULL));
		scene.appended++;
	}
	if (scene.flags)
		return 0;
	reef_enter(log->reef);
	int rc = log_draw(log, 1, NULL, 0, &position);
	reef_leave(log->reef);
	return rc == -EAGAIN ? 0 : rc ? rc : reef_log_fill(log, position);
}

static int take_some(struct reef_reader *reader)
{
	/* One is given, and the others go back. */
	WANT_RC(reef_reader_next(reader, 4, SECOND, refuse, NULL), 7);
	memset(&seen, 0, sizeof(seen));
	TRY(reef_reader_next(reader, 2, SECOND, logs_see, &seen));
	TRY(reef_reader_done(reader, seen.positions[0]));
	scene.is_done[seen.positions[0]] = true;
	return 0;
}

/* Has a reader that one has at a time, for a while. */
static int take_alone(struct reef_log *log)
{
	struct reef_reader *reader;

	TRY(reef_reader_open(log, "one", NULL, &reader));
	memset(&seen, 0, sizeof(seen));
	TRY(reef_reader_next(reader, 3, SECOND, logs_see, &seen));
	TRY(reef_reader_done(reader, seen.positions[0]));
	reef_reader_close(reader);
	return 0;
}

static int is_in_doubt(struct member *member)
{
	struct reef_reader *reader;
	struct reef_log *log;

	TRY(open_log(member, &log));
	reef_fault_fail_nth(scene.fault, scene.nth, scene.kind, false);
	TRY(append_all(log));
	TRY(reef_reader_open(log, "some", &group, &reader));
	TRY(take_some(reader));
	reef_reader_close(reader);
	TRY(take_alone(log));
	TRY(reef_log_trim(log, 0));
	scene.is_met = reef_fault_count(scene.fault);
	reef_fault_fail_nth(scene.fault, 0, REEF_FAULT_NONE, false);
	member->pool->note[0] = 1;
	while (member->pool->note[0] < 2)
		TRY(reef_sleep(MILLISECOND));
	reef_log_close(log);
	return 0;
}

/* --- the other --- */

/* Is given all that is not acknowledged, though the first one lives. */
static int takes_the_rest(struct member *member)
{
	struct reef_reader *reader;
	struct reef_log *log;
	uint32_t count = 0;
	int rc;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(open_log(member, &log));
	TRY(reef_reader_open(log, "some", &group, &reader));
	for (;;) {
		memset(&seen, 0, sizeof(seen));
		rc = reef_reader_next(reader, 8, SECOND, logs_see, &seen);
		if (rc)
			break;
		for (uint32_t i = 0; i < seen.count; i++)
			WANT(!scene.is_done[seen.positions[i]]);
		count += seen.count;
		TRY(reef_reader_done_all(reader));
	}
	WANT_RC(rc, -ETIMEDOUT);
	WANT(count == scene.appended - 1);
	reef_reader_close(reader);
	/* The other has let go of it. */
	TRY(reef_reader_open(log, "one", NULL, &reader));
	memset(&seen, 0, sizeof(seen));
	while (!rc || rc == -ETIMEDOUT)
		rc = reef_reader_next(reader, 64, 0, logs_see, &seen) ? 1 : 0;
	WANT(seen.count == scene.appended - 1);
	reef_reader_close(reader);
	member->pool->note[0] = 2;
	reef_log_close(log);
	return 0;
}

static void log_link_lost_at_every_post(void **state)
{
	static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
					 REEF_LOG_SHARDED | REEF_LOG_EARLY};
	static const enum reef_fault_kind faults[] = {REEF_FAULT_UNDONE,
						      REEF_FAULT_DONE};

	for (uint32_t i = 0; i < 8; i++) {
		uint64_t nth;

		for (nth = 1; nth < POSTS_MAX; nth += STRIKE_STEP) {
			struct pool pool = {
				.ttl_ns = 60 * SECOND,
				.calm = true,
				.opened = push_fault,
			};

			memset(&scene, 0, sizeof(scene));
			scene.nth = nth;
			scene.kind = faults[i % 2];
			scene.flags = kinds[i / 2];
			pool_start(&pool, 1);
			pool_add(&pool, is_in_doubt);
			pool_add(&pool, takes_the_rest);
			if (pool_end(&pool))
				fail_msg("kind %u, post %llu of %u", scene.kind,
					 (unsigned long long)nth, scene.flags);
			if (!scene.is_met)
				break;
		}
		assert_in_range(nth, 40, POSTS_MAX - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_link_lost_at_every_post),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
