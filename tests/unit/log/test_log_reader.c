/* test_log_reader.c - readers with a name: where they go on, who is given what,
 * and what becomes of what was given to the dead. */
#include "fabric/hook/fault.h"
#include "fixture/log_world.h"
#include "log/reader.h"

#include <string.h>

static struct logs_seen seen;

static int take(struct reef_reader *reader, uint32_t most)
{
	memset(&seen, 0, sizeof(seen));
	return reef_reader_next(reader, most, 0, logs_see, &seen);
}

static int append_some(struct reef_log *log, uint64_t from, uint64_t until)
{
	for (; from < until; from++)
		TRY(logs_append(log, from, from % 3 ? 8 : 100, NULL));
	return 0;
}

/* --- one at a time --- */

static int goes_on(struct member *member)
{
	struct reef_reader_options options = {.flags = REEF_READER_EXISTING};
	struct reef_reader *reader, *other;
	struct reef_reader_stats stats;
	struct reef_space *space;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_reader_open(log, "r", &options, &reader), -ENOENT);
	TRY(append_some(log, 0, 10));
	TRY(reef_reader_open(log, "r", NULL, &reader));
	WANT_RC(reef_reader_open(log, "r", NULL, &other), -EBUSY);
	WANT_RC(take(reader, 0), -EINVAL);
	TRY(take(reader, 4));
	WANT(seen.count == 4 && seen.positions[3] == 3);
	WANT_RC(reef_reader_done(reader, 4), -EINVAL);
	TRY(reef_reader_done(reader, 1));
	WANT_RC(reef_reader_done(reader, 0), -EINVAL);
	TRY(reef_reader_stats(log, "r", &stats));
	WANT(stats.next == 2 && stats.behind == 8 && stats.holders == 1);
	WANT(stats.session == reef_session(member->reef));
	reef_reader_close(reader);
	TRY(reef_reader_open(log, "r", &options, &reader));
	TRY(take(reader, 100));
	WANT(seen.count == 8 && seen.positions[0] == 2 && !seen.is_damaged);
	TRY(reef_reader_done_all(reader));
	WANT_RC(take(reader, 1), -ETIMEDOUT);
	reef_reader_close(reader);
	options.flags = REEF_READER_NEW;
	TRY(reef_reader_open(log, "new", &options, &reader));
	WANT_RC(take(reader, 1), -ETIMEDOUT);
	TRY(append_some(log, 10, 60));
	TRY(take(reader, 1));
	WANT(seen.count == 1 && seen.positions[0] == 10);
	/* What is trimmed counts as read. */
	TRY(reef_log_trim(log, 40));
	log_forget(log);
	TRY(take(reader, 1));
	WANT(seen.positions[0] == 40);
	TRY(reef_log_seal(log));
	TRY(take(reader, 100));
	WANT(seen.count == 19);
	WANT_RC(take(reader, 1), -EDEADLK);
	TRY(reef_reader_done_all(reader));
	WANT_RC(take(reader, 1), -ESHUTDOWN);
	reef_reader_close(reader);
	TRY(reef_reader_drop(log, "new"));
	WANT_RC(reef_reader_drop(log, "new"), -ENOENT);
	WANT_RC(reef_reader_stats(log, "new", &stats), -ENOENT);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_goes_on_where_it_was_acknowledged(void **state)
{
	logs_run(goes_on);
}

static int refuses(struct member *member)
{
	struct reef_reader_options options = {.flags = 8};
	struct reef_reader_stats stats;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	char name[256];

	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_reader_open(log, "r", &options, &reader), -EINVAL);
	WANT_RC(reef_reader_open(log, "", NULL, &reader), -EINVAL);
	WANT_RC(reef_reader_drop(log, ""), -EINVAL);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	WANT_RC(reef_reader_open(log, name, NULL, &reader), -ENAMETOOLONG);
	options = (struct reef_reader_options){.window = 7};
	WANT_RC(reef_reader_open(log, "r", &options, &reader), -EINVAL);
	options.window = 0;
	TRY(reef_reader_open(log, "r", &options, &reader));
	reef_reader_close(reader);
	options.flags = REEF_READER_GROUP;
	WANT_RC(reef_reader_open(log, "r", &options, &reader), -EEXIST);
	TRY(reef_reader_open(log, "g", &options, &reader));
	WANT_RC(reef_reader_done(reader, 0), -EINVAL);
	reef_reader_close(reader);
	/* All but the kind is as it was made. */
	options.window = 16;
	options.redeliver_ns = SECOND;
	TRY(reef_reader_open(log, "g", &options, &reader));
	reef_reader_close(reader);
	TRY(reef_reader_stats(log, "g", &stats));
	WANT(stats.options.window == 256 && !stats.options.redeliver_ns);
	WANT_RC(reef_reader_open(log, "g", NULL, &reader), -EEXIST);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_refuses_bad_input(void **state)
{
	logs_run(refuses);
}

static int count_name(void *context, const char *name)
{
	uint32_t *count = context;

	*count += !strcmp(name, "a") || !strcmp(name, "b");
	return 0;
}

/* Readers go with their log; one of a log that is gone begins anew. */
static int begins_anew(struct member *member)
{
	struct reef_reader *reader;
	struct reef_space *space;
	uint32_t count = 0;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	TRY(append_some(log, 0, 5));
	TRY(reef_reader_open(log, "a", NULL, &reader));
	TRY(take(reader, 5));
	TRY(reef_reader_done_all(reader));
	reef_reader_close(reader);
	TRY(reef_reader_open(log, "b", NULL, &reader));
	reef_reader_close(reader);
	TRY(reef_reader_list(log, count_name, &count));
	WANT(count == 2);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	TRY(reef_log_open(space, "log", &logs_small, &log));
	count = 0;
	TRY(reef_reader_list(log, count_name, &count));
	WANT(count == 0);
	TRY(append_some(log, 0, 3));
	TRY(reef_reader_open(log, "a", NULL, &reader));
	TRY(take(reader, 5));
	WANT(seen.count == 3);
	/* One that its dropper left. */
	reader->fixed.log = 1;
	TRY(reef_write(member->reef,
		       reader->object.body + offsetof(struct reader_body, log),
		       &reader->fixed.log, 8));
	TRY(reef_reader_done_all(reader));
	reef_reader_close(reader);
	TRY(reef_reader_open(log, "a", NULL, &reader));
	TRY(take(reader, 5));
	WANT(seen.count == 3);
	reef_reader_close(reader);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_ends_with_its_log(void **state)
{
	logs_run(begins_anew);
}

/* --- names --- */

static int count_all(void *context, const char *name)
{
	(void)name;
	++*(uint32_t *)context;
	return 0;
}

/* Make a log whose name could be a reader's, as they were made once. */
static int make_old(struct reef_space *space, const char *name,
		    struct reef_log **log)
{
	uint64_t block, generation;

	TRY(reef_log_open(space, "old", &logs_small, log));
	reef_log_close(*log);
	TRY(reef_name_lookup(space, "old", &block, &generation));
	TRY(reef_name_unbind(space, "old", generation));
	TRY(reef_name_bind(space, name, block, &generation));
	return reef_log_open(space, name, NULL, log);
}

static int refuses_names(struct reef_space *space)
{
	static const char *const bad[] = {"a~reader~b", "a~reader~", "~reader~",
					  "a~reader", "~reader"};
	static const char *const good[] = {"reader~b", "a~readers", "a~reader-",
					   "reader"};
	struct reef_log_options options = {.flags = REEF_LOG_EXISTING};
	struct reef_log *log;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		WANT_RC(reef_log_open(space, bad[i], NULL, &log), -EINVAL);
		WANT_RC(reef_log_open(space, bad[i], &options, &log), -ENOENT);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		TRY(reef_log_open(space, good[i], NULL, &log));
		reef_log_close(log);
		TRY(reef_log_drop(space, good[i]));
	}
	return 0;
}

/* A reader of one log is not taken for another log's. */
static int keeps_apart(struct member *member)
{
	struct reef_reader *reader, *other;
	struct reef_reader_stats stats;
	struct reef_log *log, *old;
	struct reef_space *space;
	uint32_t count = 0;

	TRY(logs_open(member, &space, &log));
	TRY(refuses_names(space));
	TRY(make_old(space, "log~reader~b", &old));
	TRY(append_some(old, 0, 5));
	TRY(reef_reader_open(old, "c", NULL, &reader));
	TRY(take(reader, 3));
	TRY(reef_reader_done_all(reader));
	reef_reader_close(reader);
	WANT_RC(reef_reader_open(log, "b~reader~c", NULL, &other), -EEXIST);
	WANT_RC(reef_reader_open(log, "b", NULL, &other), -EEXIST);
	WANT_RC(reef_reader_drop(log, "b~reader~c"), -ENOENT);
	WANT_RC(reef_reader_stats(log, "b~reader~c", &stats), -ENOENT);
	/* One of its own that has such a name is no other's. */
	TRY(reef_reader_open(log, "x~reader~y", NULL, &other));
	reef_reader_close(other);
	TRY(reef_reader_list(log, count_all, &count));
	WANT(count == 2); /* and that log, which has the name of one */
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	TRY(reef_reader_stats(old, "c", &stats));
	WANT(stats.next == 3);
	TRY(reef_log_open(space, "log", &logs_small, &log));
	WANT_RC(reef_reader_stats(log, "x~reader~y", &stats), -ENOENT);
	/* The other is gone: so is what it had. */
	reef_log_close(old);
	TRY(reef_log_drop(space, "log~reader~b"));
	TRY(reef_reader_open(log, "b~reader~c", NULL, &other));
	reef_reader_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_is_not_taken_for_another_logs(void **state)
{
	logs_run(keeps_apart);
}

/* --- groups --- */

static const struct reef_reader_options group = {.flags = REEF_READER_GROUP,
						 .window = 8};

static int divides(struct member *member)
{
	struct reef_log *logs[2];
	struct reef_reader *readers[2];
	struct reef_reader_stats stats;
	struct reef_space *space;
	uint64_t position;

	TRY(logs_open(member, &space, &logs[0]));
	TRY(reef_log_open(space, "log", NULL, &logs[1]));
	for (int i = 0; i < 2; i++)
		TRY(reef_reader_open(logs[i], "g", &group, &readers[i]));
	TRY(append_some(logs[0], 0, 3));
	/* A hole, that nobody has to acknowledge. */
	reef_enter(member->reef);
	TRY(log_draw(logs[0], 1, NULL, 0, &position));
	reef_leave(member->reef);
	TRY(reef_log_fill(logs[0], 3));
	TRY(append_some(logs[0], 4, 30));
	TRY(take(readers[0], 3));
	WANT(seen.count == 3 && seen.positions[2] == 2);
	TRY(take(readers[1], 2));
	WANT(seen.count == 2 && seen.positions[0] == 4);
	WANT(seen.positions[1] == 5);
	WANT_RC(reef_reader_done(readers[0], 4), -EINVAL);
	TRY(reef_reader_done(readers[0], 1));
	WANT_RC(reef_reader_done(readers[0], 1), -EINVAL);
	TRY(reef_reader_stats(logs[0], "g", &stats));
	WANT(stats.next == 0 && stats.taken == 4 && stats.behind == 30);
	/* No more than the window. */
	TRY(take(readers[0], 100));
	WANT(seen.count == 2 && seen.positions[1] == 7);
	WANT_RC(take(readers[1], 1), -ETIMEDOUT);
	TRY(reef_reader_done(readers[0], 0));
	TRY(take(readers[1], 100));
	WANT(seen.count == 2 && seen.positions[0] == 8);
	/* What a member leaves goes to the other. */
	reef_reader_close(readers[1]);
	TRY(take(readers[0], 100));
	WANT(seen.count == 4 && seen.positions[0] == 4);
	WANT(seen.positions[3] == 9);
	TRY(reef_reader_done_all(readers[0]));
	for (position = 10; position < 30; position += 8) {
		TRY(take(readers[0], 8));
		WANT(seen.positions[0] == position);
		TRY(reef_reader_done_all(readers[0]));
	}
	TRY(reef_log_seal(logs[0]));
	WANT_RC(take(readers[0], 8), -ESHUTDOWN);
	reef_reader_close(readers[0]);
	reef_log_close(logs[0]);
	reef_log_close(logs[1]);
	return reef_log_drop(space, "log");
}

static void reader_group_divides_the_work(void **state)
{
	logs_run(divides);
}

static int stop_at_two(void *context, uint64_t position, const void *bytes,
		       size_t size)
{
	uint32_t *count = context;

	return ++*count == 2 ? 77 : 0;
}

static int redelivers(struct member *member)
{
	struct reef_reader_options options = group;
	struct reef_log *logs[2];
	struct reef_reader *readers[2];
	struct reef_space *space;
	uint32_t count = 0;

	options.redeliver_ns = 10 * MILLISECOND;
	TRY(logs_open(member, &space, &logs[0]));
	TRY(reef_log_open(space, "log", NULL, &logs[1]));
	for (int i = 0; i < 2; i++)
		TRY(reef_reader_open(logs[i], "g", &options, &readers[i]));
	TRY(append_some(logs[0], 0, 4));
	WANT_RC(reef_reader_next(readers[0], 4, 0, stop_at_two, &count), 77);
	TRY(take(readers[1], 4));
	WANT(seen.count == 2 && seen.positions[0] == 2);
	TRY(reef_reader_done_all(readers[1]));
	/* The first has two, and is slow. */
	memset(&seen, 0, sizeof(seen));
	TRY(reef_reader_next(readers[1], 4, 15 * MILLISECOND, logs_see, &seen));
	WANT(seen.count == 2 && seen.positions[0] == 0);
	WANT_RC(reef_reader_done(readers[0], 0), -ESTALE);
	WANT_RC(reef_reader_done_all(readers[0]), -ESTALE);
	TRY(reef_reader_done_all(readers[1]));
	WANT_RC(take(readers[0], 4), -ETIMEDOUT);
	for (int i = 0; i < 2; i++) {
		reef_reader_close(readers[i]);
		reef_log_close(logs[i]);
	}
	return reef_log_drop(space, "log");
}

static void reader_group_gives_again_what_takes_too_long(void **state)
{
	logs_run(redelivers);
}

static int falls_behind(struct member *member)
{
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i;

	TRY(logs_open(member, &space, &log));
	TRY(reef_reader_open(log, "g", &group, &reader));
	TRY(append_some(log, 0, 10));
	TRY(take(reader, 3));
	for (i = 10; i < 500; i++) {
		TRY(logs_append(log, i, 8, NULL));
		if (i % 40 == 0)
			TRY(reef_log_trim(log, i - 9));
	}
	TRY(take(reader, 100));
	WANT(seen.count == 8 && seen.positions[0] == 471);
	/* What was trimmed under a member is acknowledged all the same. */
	WANT_RC(reef_reader_done(reader, 0), -ESTALE);
	TRY(reef_reader_done(reader, 473));
	WANT_RC(reef_reader_done(reader, 1), -ESTALE);
	WANT_RC(reef_reader_done(reader, 481), -EINVAL);
	WANT_RC(reef_reader_done_all(reader), -ESTALE);
	TRY(reef_reader_done_all(reader));
	reef_reader_close(reader);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_group_passes_what_was_trimmed(void **state)
{
	logs_run(falls_behind);
}

/* --- doubt --- */

static struct reef_fault *fault; /* of the first member */

static int push_fault(struct member *member, struct reef_fabric *fabric)
{
	struct reef_fault *pushed;
	int rc = reef_fault_push(fabric, NULL, &pushed);

	if (!rc && member->number == 1)
		fault = pushed;
	return rc;
}

/* The next post happens, in doubt; and those after it are late. */
static int doubt_next(void)
{
	struct reef_fault_rule rule = {
		.call = REEF_CALL_POST,
		.kind = REEF_FAULT_DONE,
		.nth = 1,
	};

	TRY(reef_fault_add(fault, &rule));
	rule.kind = REEF_FAULT_DELAY;
	rule.delay_ns = 100 * MILLISECOND;
	for (rule.nth = 2; rule.nth < 12; rule.nth++)
		TRY(reef_fault_add(fault, &rule));
	return 0;
}

/* Acknowledges all that it has, and is not told so before another was given
 * what comes a lap later. */
static int acknowledges_in_doubt(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	TRY(append_some(log, 0, 24));
	TRY(reef_reader_open(log, "g", &group, &reader));
	for (uint64_t round = 1; round < 3; round++) {
		TRY(take(reader, 8));
		WANT(seen.count == 8 && seen.positions[0] == (round - 1) * 8);
		note[0] = round;
		while (note[1] < round)
			TRY(reef_sleep(MICROSECOND));
		TRY(doubt_next());
		/* Each by itself, or all at once. */
		if (round == 1)
			TRY(reef_reader_done_all(reader));
		for (uint64_t i = 8; round == 2 && i < 16; i++)
			TRY(reef_reader_done(reader, i));
		WANT(note[2] == round);
	}
	note[0] = 3;
	reef_reader_close(reader);
	reef_log_close(log);
	return 0;
}

static int takes_the_next_lap(struct member *member)
{
	static struct logs_seen lap;
	uint64_t *note = member->pool->note;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;

	for (uint64_t round = 1; round < 3; round++) {
		while (note[0] < round)
			TRY(reef_sleep(MICROSECOND));
		TRY(logs_open(member, &space, &log));
		TRY(reef_reader_open(log, "g", &group, &reader));
		memset(&lap, 0, sizeof(lap));
		note[1] = round;
		TRY(reef_reader_next(reader, 8, REEF_FOREVER, logs_see, &lap));
		WANT(lap.positions[0] == round * 8);
		note[2] = round;
		reef_reader_close(reader);
		reef_log_close(log);
	}
	return 0;
}

static void reader_group_knows_what_it_acknowledged_in_doubt(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.calm = true,
			.opened = push_fault,
		};

		pool_start(&pool, seed);
		pool_add(&pool, acknowledges_in_doubt);
		pool_add(&pool, takes_the_next_lap);
		pool_finish(&pool);
	}
}

/* --- death --- */

static int takes_and_dies(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_reader *reader, *single;
	struct reef_space *space;
	struct reef_log *log;
	int rc;

	TRY(logs_open(member, &space, &log));
	TRY(append_some(log, 0, 6));
	TRY(reef_reader_open(log, "g", &group, &reader));
	TRY(reef_reader_open(log, "s", NULL, &single));
	TRY(take(reader, 4));
	TRY(reef_reader_done(reader, 1));
	TRY(take(single, 3));
	TRY(reef_reader_done(single, 0));
	note[0] = 1;
	reef_sim_host_kill(member->host);
	/* What it does from here on reaches nobody. */
	rc = reef_sleep(SECOND);
	reef_reader_close(single);
	reef_reader_close(reader);
	reef_log_close(log);
	return rc;
}

static int inherits(struct member *member)
{
	uint64_t *note = member->pool->note, from_ns;
	struct reef_reader *reader, *single;
	struct reef_space *space;
	struct reef_log *log;
	int rc;

	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_reader_open(log, "s", NULL, &single), -EBUSY);
	TRY(reef_reader_open(log, "g", &group, &reader));
	TRY(take(reader, 8));
	WANT(seen.count == 2 && seen.positions[0] == 4);
	memset(&seen, 0, sizeof(seen));
	from_ns = reef_now_ns();
	TRY(reef_reader_next(reader, 8, REEF_FOREVER, logs_see, &seen));
	WANT(seen.count == 3 && seen.positions[0] == 0);
	WANT(seen.positions[1] == 2 && seen.positions[2] == 3);
	WANT(reef_now_ns() - from_ns < 20 * member->pool->ttl_ns);
	TRY(reef_reader_done_all(reader));
	reef_reader_close(reader);
	do {
		TRY(reef_sleep(MILLISECOND));
		rc = reef_reader_open(log, "s", NULL, &single);
	} while (rc == -EBUSY);
	TRY(rc);
	TRY(take(single, 8));
	WANT(seen.count == 5 && seen.positions[0] == 1);
	reef_reader_close(single);
	reef_log_close(log);
	return 0;
}

static void reader_of_the_dead_passes_on(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 200 * MILLISECOND};

		pool_start(&pool, seed);
		pool_add(&pool, takes_and_dies);
		pool_add(&pool, inherits);
		pool_finish(&pool);
	}
}

/* --- many --- */

#define CROWD 66 /* more than are looked at in one sweep */

static const struct reef_reader_options wide = {
	.flags = REEF_READER_GROUP,
	.window = 2 * CROWD,
};

struct one {
	struct member member; /* a session of its own */
	struct reef_reader *reader;
	struct reef_log *log;
};

static int joins_and_takes(struct one *one)
{
	struct reef_space *space;

	TRY(member_join(&one->member));
	TRY(logs_open(&one->member, &space, &one->log));
	TRY(reef_reader_open(one->log, "g", &wide, &one->reader));
	return take(one->reader, 1);
}

static int is_a_crowd(struct member *member)
{
	static struct one ones[CROWD];
	uint64_t *note = member->pool->note;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	uint32_t i;
	int rc;

	TRY(logs_open(member, &space, &log));
	TRY(append_some(log, 0, CROWD + 1));
	TRY(reef_reader_open(log, "g", &wide, &reader));
	for (i = 0; i < CROWD; i++) {
		ones[i] = (struct one){.member = *member};
		ones[i].member.client = NULL;
		ones[i].member.reef = NULL;
		TRY(joins_and_takes(&ones[i]));
	}
	note[0] = 1;
	while (note[0] < 2)
		TRY(reef_sleep(MILLISECOND));
	memset(&seen, 0, sizeof(seen));
	rc = reef_reader_next(reader, 1, 40 * member->pool->ttl_ns, logs_see,
			      &seen);
	for (i = 0; i < CROWD; i++) {
		reef_reader_close(ones[i].reader);
		reef_log_close(ones[i].log);
		member_leave(&ones[i].member);
	}
	TRY(rc);
	WANT(seen.count == 1 && seen.positions[0] == CROWD);
	reef_reader_close(reader);
	reef_log_close(log);
	return 0;
}

static int dies_behind_a_crowd(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	int rc;

	while (note[0] < 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(logs_open(member, &space, &log));
	TRY(reef_reader_open(log, "g", &wide, &reader));
	TRY(take(reader, 1));
	note[0] = 2;
	reef_sim_host_kill(member->host);
	rc = reef_sleep(SECOND);
	reef_reader_close(reader);
	reef_log_close(log);
	return rc;
}

static void reader_of_the_dead_passes_on_among_many(void **state)
{
	struct pool pool = {.ttl_ns = 200 * MILLISECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, is_a_crowd);
	pool_add(&pool, dies_behind_a_crowd);
	pool_finish(&pool);
}

/* --- budgets --- */

static int spends(struct member *member)
{
	struct reef_reader_options options = {.flags = REEF_READER_GROUP};
	struct reef_counts before, cost;
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", NULL, &log));
	for (i = 0; i < 200; i++)
		TRY(logs_append(log, i, 100, NULL));
	TRY(reef_reader_open(log, "g", &options, &reader));
	TRY(take(reader, 64));
	TRY(reef_reader_done_all(reader));
	/* Look, base, entries, claims; then one for all that is done. */
	before = reef_count_read(&member->count);
	TRY(take(reader, 64));
	cost = logs_cost(member, &before);
	WANT(seen.count == 64 && cost.round_trips == 4 && cost.cas == 65);
	before = reef_count_read(&member->count);
	TRY(reef_reader_done_all(reader));
	cost = logs_cost(member, &before);
	WANT(cost.round_trips == 1 && cost.cas == 64);
	TRY(take(reader, 1));
	before = reef_count_read(&member->count);
	TRY(reef_reader_done(reader, 128));
	cost = logs_cost(member, &before);
	WANT(cost.round_trips == 1 && cost.memory_operations == 1);
	reef_reader_close(reader);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_budget_is_one_round_trip_to_acknowledge(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 6000 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, spends);
		pool_finish(&pool);
	}
}

/* --- mutants that no history shows --- */

#if !SANITIZED
static int run_divides(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, divides);
	return pool_end(&pool);
}

static int run_redelivers(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, redelivers);
	return pool_end(&pool);
}

static void reader_mutants_are_found(void **state)
{
	static const struct logs_mutant mutants[] = {
		{REEF_MUTANT_READER_KEPT, run_divides},
		{REEF_MUTANT_READER_HOLE_LEFT, run_divides},
		{REEF_MUTANT_READER_DONE_WRITE, run_redelivers},
	};

	logs_find_mutants(mutants, sizeof(mutants) / sizeof(mutants[0]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(reader_goes_on_where_it_was_acknowledged),
	  cmocka_unit_test(reader_refuses_bad_input),
	  cmocka_unit_test(reader_ends_with_its_log),
	  cmocka_unit_test(reader_is_not_taken_for_another_logs),
	  cmocka_unit_test(reader_group_divides_the_work),
	  cmocka_unit_test(reader_group_gives_again_what_takes_too_long),
	  cmocka_unit_test(reader_group_passes_what_was_trimmed),
	  cmocka_unit_test(reader_group_knows_what_it_acknowledged_in_doubt),
	  cmocka_unit_test(reader_of_the_dead_passes_on),
	  cmocka_unit_test(reader_of_the_dead_passes_on_among_many),
	  cmocka_unit_test(reader_budget_is_one_round_trip_to_acknowledge),
#if !SANITIZED
	  cmocka_unit_test(reader_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
