/* test_file_sim.c - files that several clients read and change at once, while
 * some of them die.
 *
 * What is true is known beside it, in plain memory: time stands still while a
 * fiber runs. A *cell* is a word of the file that one member changes: its ops
 * have numbers, and a reader may find what any op from the last that had
 * returned when it began, to the last that had begun when it ended, left
 * there. */
#include "fixture/pool_world.h"

#include <reef/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u
#define CELLS 12u
#define OPS_MAX 4096u
#define ABSENT UINT64_MAX
#define BASE (3 * CHUNK + 1000) /* what truncates leave */

struct cell {
	uint64_t at;
	uint32_t begun, done;	/* ops */
	uint64_t left[OPS_MAX]; /* what each leaves */
};

static struct truth {
	struct cell cells[CELLS];
	struct cell hole; /* of the shaper: its chunk comes and goes */
	/* The tail: behind BASE, where one extends and another cuts off. */
	uint64_t tick;
	uint64_t cut_begun, cut_ended;	   /* ticks of the last truncate */
	uint64_t wrote_begun, wrote_ended; /* of the last write there */
	uint64_t wrote;			   /* and what: word `wrote % 2` */
	uint64_t other_ended;		   /* of the one before it */
	uint32_t ready, ended;
	uint32_t strike, posts; /* the shaper dies at that post; 0: never */
	uint32_t reads;
} truth;

static int open_file(struct member *member, struct reef_space **space,
		     struct reef_file **out)
{
	const struct reef_file_options options = {.flags = REEF_FILE_CREATE,
						  .chunk = CHUNK};

	TRY(member_space(member, space));
	return reef_file_open(*space, "f", &options, out);
}

/* An error that may come where links fall, nodes are out of reach and hosts are
 * killed. */
static bool is_passing(ssize_t rc)
{
	return rc == -REEF_EHOSTDEAD || rc == -REEF_EINDOUBT ||
	       rc == -ETIMEDOUT || rc == -REEF_ENOLINK || rc == -EBUSY;
}

static struct reef_random *random_of(struct member *member)
{
	return reef_sim_random(member->pool->sim);
}

/* --- cells --- */

/* Cells of members 1 and 2 alternate; some share a chunk, one lies just before
 * the place where truncates cut, in the same chunk. */
static void place_cells(void)
{
	for (uint32_t i = 0; i < CELLS; i++)
		truth.cells[i].at =
			i < CELLS - 2 ? i * 800 : BASE - 16 + 8 * (i & 1);
	truth.hole.at = 2 * CHUNK + 64;
}

static int change_cell(struct reef_file *file, struct cell *cell, bool punch)
{
	uint32_t op = ++cell->begun;
	uint64_t value = punch ? 0 : op;
	ssize_t rc;

	WANT(op < OPS_MAX);
	cell->left[op] = value;
	if (!punch)
		rc = reef_file_pwrite(file, &value, 8, cell->at);
	else if (cell == &truth.hole)
		rc = reef_file_punch(file, cell->at / CHUNK * CHUNK, CHUNK);
	else
		rc = reef_file_punch(file, cell->at, 8);
	if (is_passing(rc)) /* it may be there: the next op covers it */
		return 0;
	WANT(rc == (punch ? 0 : 8));
	cell->done = op;
	return 0;
}

static int changes_cells(struct member *member)
{
	struct reef_random *random = random_of(member);
	struct reef_space *space;
	struct reef_file *file;
	struct cell *cell;

	TRY(open_file(member, &space, &file));
	truth.ready++;
	for (uint32_t i = 0; i < 300; i++) {
		cell = &truth.cells[reef_random_below(random, CELLS / 2) * 2 +
				    member->number % 2];
		TRY(change_cell(file, cell, reef_random_chance(random, 1, 20)));
		TRY(reef_sleep(reef_random_below(random, 2 * MILLISECOND)));
	}
	reef_file_close(file);
	truth.ended++;
	return 0;
}

static int read_cell(struct reef_file *file, struct cell *cell)
{
	uint32_t first = cell->done, op;
	uint64_t found;
	ssize_t rc = reef_file_pread(file, &found, 8, cell->at);

	if (is_passing(rc))
		return 0;
	WANT(rc == 8 || rc == 0);
	if (rc == 0)
		found = 0; /* nobody made the file that long yet */
	for (op = first; op <= cell->begun; op++)
		if (cell->left[op] == found)
			return 0;
	if (!try_quiet)
		print_message("at %llu: found %llu, ops %u to %u\n",
			      (unsigned long long)cell->at,
			      (unsigned long long)found, first, cell->begun);
	return -EXDEV;
}

/* --- the tail --- */

#define TAIL (BASE + 100)

static int read_tail(struct reef_file *file)
{
	const struct truth before = truth;
	uint64_t found[2] = {0};
	ssize_t rc = reef_file_pread(file, found, sizeof(found), TAIL);

	if (is_passing(rc))
		return 0;
	WANT(rc == 0 || rc == 8 || rc == 16);
	if (truth.tick != before.tick || !before.wrote_ended ||
	    !before.cut_ended)
		return 0; /* something is, or was, under way */
	/* A write that began after the last truncate had returned is there. */
	if (before.cut_ended < before.wrote_begun)
		WANT(found[before.wrote % 2] == before.wrote);
	/* Of a write that had returned before it began nothing is there, even
	 * if another made the file longer meanwhile. */
	if (before.other_ended && before.other_ended < before.cut_begun)
		WANT(found[(before.wrote + 1) % 2] == 0);
	/* After a truncate that began after the last write nothing is. */
	if (before.cut_begun > before.wrote_ended)
		WANT(rc == 0);
	return 0;
}

static int extends(struct member *member)
{
	struct reef_random *random = random_of(member);
	struct reef_space *space;
	struct reef_file *file;
	uint64_t value;
	ssize_t rc;

	TRY(open_file(member, &space, &file));
	truth.ready++;
	for (uint32_t i = 1; i <= 150; i++) {
		value = i;
		truth.wrote = value;
		truth.other_ended = truth.wrote_ended;
		truth.wrote_ended = 0;
		truth.wrote_begun = ++truth.tick;
		rc = reef_file_pwrite(file, &value, 8, TAIL + 8 * (i % 2));
		if (!is_passing(rc)) {
			WANT(rc == 8);
			truth.wrote_ended = ++truth.tick;
		}
		TRY(read_tail(file));
		TRY(reef_sleep(reef_random_below(random, 4 * MILLISECOND)));
	}
	reef_file_close(file);
	truth.ended++;
	return 0;
}

/* Take blocks of a chunk's size, as many as a file might have given back, and
 * write into them: whoever believes that they are still chunks finds that. */
static int use_freed(struct reef_space *space, uint64_t blocks[4])
{
	static uint8_t bytes[CHUNK];

	memset(bytes, 0xaa, sizeof(bytes));
	for (uint32_t i = 0; i < 4; i++) {
		if (blocks[i])
			TRY(reef_free(space, blocks[i], REEF_FREE_LATER));
		TRY(reef_alloc(space, CHUNK + 56, &blocks[i]));
		TRY(reef_write(reef_space_handle(space), blocks[i] + 56, bytes,
			       sizeof(bytes)));
	}
	return 0;
}

static int shape_file(struct member *member, struct reef_space *space,
		      struct reef_file *file)
{
	struct reef_random *random = random_of(member);
	uint64_t blocks[4] = {0};
	int rc;

	TRY(reef_file_truncate(file, BASE));
	truth.cut_begun = ++truth.tick;
	truth.cut_ended = ++truth.tick;
	truth.ready++;
	member->pool->note[0] = member->number;
	for (uint32_t i = 0; i < 30; i++) {
		truth.cut_ended = 0;
		truth.cut_begun = ++truth.tick;
		rc = reef_file_truncate(file, BASE);
		if (!is_passing(rc)) {
			TRY(rc);
			truth.cut_ended = ++truth.tick;
		}
		TRY(read_tail(file));
		for (uint32_t j = 0; j < 3; j++)
			TRY(change_cell(file, &truth.hole,
					reef_random_chance(random, 1, 2)));
		rc = use_freed(space, blocks);
		if (rc && !is_passing(rc))
			return rc;
		TRY(reef_sleep(reef_random_below(random, 3 * MILLISECOND)));
	}
	truth.ended++;
	return 0;
}

static int shapes(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	int rc;

	TRY(open_file(member, &space, &file));
	rc = shape_file(member, space, file);
	reef_file_close(file);
	return rc;
}

static int reads(struct member *member)
{
	struct reef_random *random = random_of(member);
	struct reef_space *space;
	struct reef_file *file;

	TRY(open_file(member, &space, &file));
	truth.ready++;
	/* Until the others are done, or one of them has died long ago. */
	for (uint32_t i = 0; i < 2500 && truth.ended < 4; i++) {
		if (reef_random_chance(random, 1, 3))
			TRY(read_tail(file));
		else if (reef_random_chance(random, 1, 3))
			TRY(read_cell(file, &truth.hole));
		else
			TRY(read_cell(file, &truth.cells[reef_random_below(
						    random, CELLS)]));
		truth.reads++;
		if (reef_random_chance(random, 1, 8))
			TRY(reef_sleep(
				reef_random_below(random, 3 * MILLISECOND)));
	}
	reef_file_close(file);
	return 0;
}

/* Kill the shaper at the post that was chosen. */
static void strike(struct member *member, bool is_posted)
{
	if (member->number != 4 || !truth.strike || !truth.ready)
		return;
	if (++truth.posts == truth.strike)
		reef_sim_host_kill(member->host);
}

static int run_crowd(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = seed % 4 == 3 ? 0 : 60 * SECOND,
		.lose_link_ppm = seed % 3 == 2 ? 1000 : 0,
		.extent_size = 16 * MIB,
		.posts = strike,
	};

	truth = (struct truth){.strike =
				       seed % 4 == 3 ? 20 + seed * 7 % 400 : 0};
	place_cells();
	pool_start(&pool, seed);
	pool_add(&pool, changes_cells);
	pool_add(&pool, changes_cells);
	pool_add(&pool, reads);
	pool_add(&pool, shapes);
	pool_add(&pool, extends);
	return pool_end(&pool);
}

static void file_crowd_reads_what_was_written(void **state)
{
	uint64_t seed, count = seeds_of(24, 2000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++) {
		assert_int_equal(run_crowd(seed), 0);
		assert_true(truth.reads > 100);
	}
}

/* --- appends --- */

static struct appended {
	uint32_t acknowledged[4];
	uint32_t ended;
} appended;

static int appends(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	uint64_t record[2];
	ssize_t rc;

	TRY(open_file(member, &space, &file));
	for (uint32_t i = 1; i <= 50; i++) {
		record[0] = member->number;
		record[1] = i;
		rc = reef_file_append(file, record, sizeof(record), NULL);
		if (is_passing(rc))
			break;
		WANT(rc == sizeof(record));
		appended.acknowledged[member->number] = i;
	}
	reef_file_close(file);
	appended.ended++;
	return 0;
}

/* Each record once, those of a member in their order; zeroes where one was
 * lost. */
static int counts_records(struct member *member)
{
	uint64_t record[2], at = 0;
	uint32_t last[4] = {0};
	struct reef_space *space;
	struct reef_file *file;

	TRY(member_await(member, &appended.ended, 3));
	TRY(open_file(member, &space, &file));
	while (reef_file_pread(file, record, sizeof(record), at) ==
	       sizeof(record)) {
		at += sizeof(record);
		if (!record[0])
			continue;
		WANT(record[0] < 4 && record[1] == last[record[0]] + 1);
		last[record[0]]++;
	}
	for (uint32_t i = 1; i < 4; i++)
		WANT(last[i] >= appended.acknowledged[i]);
	reef_file_close(file);
	return 0;
}

static int run_appends(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.lose_link_ppm = seed % 2 ? 0 : 500,
		.extent_size = 16 * MIB,
	};

	appended = (struct appended){0};
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < 3; i++)
		pool_add(&pool, appends);
	pool_add(&pool, counts_records);
	return pool_end(&pool);
}

static void file_appends_get_places_of_their_own(void **state)
{
	uint64_t seed, count = seeds_of(20, 1000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_appends(seed), 0);
}

/* --- names, and a rename that is struck at every operation --- */

static struct {
	uint32_t ready, posts, strike;
	bool is_over, is_struck;
} names;

static int put_file(struct reef_space *space, const char *name, uint64_t id)
{
	const struct reef_file_options options = {.flags = REEF_FILE_CREATE,
						  .chunk = CHUNK};
	struct reef_file *file;

	TRY(reef_file_open(space, name, &options, &file));
	WANT(reef_file_pwrite(file, &id, 8, 0) == 8);
	reef_file_close(file);
	return 0;
}

/* What a name has: 0 if there is no file. */
static int read_id(struct reef_space *space, const char *name, uint64_t *id)
{
	struct reef_file *file;
	ssize_t size;
	int rc = reef_file_open(space, name, NULL, &file);

	*id = 0;
	if (rc == -ENOENT)
		return 0;
	TRY(rc);
	size = reef_file_pread(file, id, 8, 0);
	reef_file_close(file);
	/* It was deleted since it was opened. */
	if (size == -REEF_EDROPPED)
		return read_id(space, name, id);
	WANT(size == 8);
	return 0;
}

static int renames_and_dies(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(put_file(space, "a", 1));
	TRY(put_file(space, "b", 2));
	names.ready = 1;
	TRY(reef_file_rename(space, "a", "b", 0));
	names.is_over = true;
	return 0;
}

static int watches_names(struct member *member)
{
	uint64_t a, b, last = 2;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_await(member, &names.ready, 1));
	for (uint32_t i = 0; i < 40; i++) {
		TRY(read_id(space, "b", &b));
		WANT(b == 1 || b == 2);
		WANT(last == 2 || b == 1); /* it never goes back */
		last = b;
		TRY(read_id(space, "a", &a));
		WANT(a == 1 ? last == 2 || !names.is_over : a == 0);
	}
	/* Long after: whoever died is fenced and recovered. */
	TRY(reef_sleep(5 * SECOND));
	TRY(read_id(space, "a", &a));
	TRY(read_id(space, "b", &b));
	WANT((a == 1 && b == 2) || (a == 0 && b == 1));
	if (names.is_over)
		WANT(b == 1);
	/* All that is left of it can be used as if nothing had been. */
	TRY(put_file(space, "c", 3));
	TRY(reef_file_rename(space, "c", "b", 0));
	TRY(read_id(space, "b", &b));
	WANT(b == 3);
	/* What had not happened by then never does. */
	TRY(read_id(space, "a", &b));
	WANT(b == a);
	TRY(put_file(space, "a", 4));
	TRY(read_id(space, "b", &b));
	WANT(b == 3);
	TRY(reef_file_delete(space, "b"));
	TRY(read_id(space, "b", &b));
	WANT(b == 0);
	TRY(reef_file_rename(space, "a", "b", REEF_FILE_NOREPLACE));
	TRY(reef_file_delete(space, "b"));
	return 0;
}

static void strike_first(struct member *member, bool is_posted)
{
	if (member->number != 1 || !names.ready || !names.strike ||
	    names.is_over)
		return;
	if (++names.posts == names.strike) {
		names.is_struck = true;
		reef_sim_host_kill(member->host);
	}
}

/* Run two members, of which the first is killed at that post; 0: it is not. */
static int run_struck(uint64_t seed, uint32_t at,
		      int (*first)(struct member *member),
		      int (*second)(struct member *member))
{
	struct pool pool = {
		.ttl_ns = 300 * MILLISECOND,
		.extent_size = 16 * MIB,
		.posts = strike_first,
	};

	memset(&names, 0, sizeof(names));
	names.strike = at;
	pool_start(&pool, seed);
	pool_add(&pool, first);
	pool_add(&pool, second);
	return pool_end(&pool);
}

/* Strike at every post in turn, until there are no more. */
static void strike_everywhere(int (*run)(uint64_t seed, uint32_t at),
			      uint32_t most)
{
	uint32_t at = 0;

	do
		assert_int_equal(run(1 + at, at), 0);
	while (++at < most && (at == 1 || names.is_struck));
	assert_in_range(at, 10, most - 1);
}

static int run_rename(uint64_t seed, uint32_t at)
{
	return run_struck(seed, at, renames_and_dies, watches_names);
}

static void file_rename_happens_or_does_not(void **state)
{
	strike_everywhere(run_rename, 120);
}

/* --- a truncate that is struck at every operation --- */

#define CUT_AT 1000u
#define CUT_FROM (2 * CHUNK + 904u)

static int fill_and_cut(struct reef_file *file)
{
	static uint8_t bytes[CUT_FROM];

	memset(bytes, 'x', sizeof(bytes));
	WANT(reef_file_pwrite(file, bytes, CUT_FROM, 0) == CUT_FROM);
	names.ready = 1;
	TRY(reef_file_truncate(file, CUT_AT));
	names.is_over = true;
	return 0;
}

static int truncates_and_dies(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	int rc;

	TRY(open_file(member, &space, &file));
	rc = fill_and_cut(file);
	reef_file_close(file);
	return rc;
}

static int makes_it_longer(struct member *member)
{
	static uint8_t found[CUT_FROM], wanted[CUT_FROM];
	struct reef_file_info info;
	struct reef_space *space;
	struct reef_file *file;

	TRY(member_await(member, &names.ready, 1));
	while (!names.is_over && !names.is_struck)
		TRY(reef_sleep(MILLISECOND));
	TRY(open_file(member, &space, &file));
	TRY(reef_file_stat(file, &info));
	WANT(info.size == CUT_AT || (info.size == CUT_FROM && !names.is_over));
	WANT(reef_file_pwrite(file, "y", 1, CUT_FROM - 1) == 1);
	memset(wanted, 0, sizeof(wanted));
	memset(wanted, 'x', info.size);
	wanted[CUT_FROM - 1] = 'y';
	WANT(reef_file_pread(file, found, CUT_FROM, 0) == CUT_FROM);
	WANT(!memcmp(found, wanted, CUT_FROM));
	reef_file_close(file);
	return 0;
}

static int run_truncate(uint64_t seed, uint32_t at)
{
	return run_struck(seed, at, truncates_and_dies, makes_it_longer);
}

static void file_truncate_happens_or_does_not(void **state)
{
	strike_everywhere(run_truncate, 200);
}

/* --- memory --- */

#define LOST_CHUNKS 600u

static struct {
	uint32_t counted, before, fill, died, deleted;
} lost;

static int dies_with_files(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	const struct reef_file_options scratch = {
		.flags = REEF_FILE_CREATE | REEF_FILE_SCRATCH,
		.chunk = CHUNK,
	};
	char bytes[CHUNK] = {1};

	TRY(member_await(member, &lost.counted, 1));
	TRY(reef_sleep(2 * SECOND));
	TRY(member_space(member, &space));
	TRY(put_file(space, "kept", 7));
	TRY(reef_file_open(space, "scratch", &scratch, &file));
	for (uint32_t i = 0; i < LOST_CHUNKS; i++) {
		WANT(reef_file_pwrite(file, bytes, CHUNK, i * CHUNK) == CHUNK);
		lost.fill++;
	}
	lost.died = 1;
	reef_file_close(file);
	reef_sim_host_kill(member->host);
	return reef_sleep(SECOND);
}

static int counts_room_before(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(put_file(space, "other", 5));
	TRY(member_count_room(space, CHUNK, &lost.before));
	lost.counted = 1;
	return 0;
}

static int fill_file(struct reef_space *space, const char *name)
{
	static char bytes[LOST_CHUNKS * CHUNK];
	const struct reef_file_options options = {.flags = REEF_FILE_CREATE,
						  .chunk = CHUNK};
	struct reef_file *file;

	TRY(reef_file_open(space, name, &options, &file));
	WANT(reef_file_pwrite(file, bytes, sizeof(bytes), 0) == sizeof(bytes));
	reef_file_close(file);
	return 0;
}

static int watches_scratch(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	uint64_t id;

	TRY(member_await(member, &lost.fill, 50));
	TRY(member_space(member, &space));
	/* Who has a scratch file open when its session ends learns it. */
	TRY(reef_file_open(space, "scratch", NULL, &file));
	TRY(member_await(member, &lost.died, 1));
	TRY(reef_sleep(10 * SECOND));
	WANT(reef_file_pread(file, &id, 8, 0) == -REEF_EDROPPED);
	reef_file_close(file);
	TRY(read_id(space, "scratch", &id));
	WANT(id == 0);
	TRY(read_id(space, "kept", &id));
	WANT(id == 7);
	TRY(reef_file_delete(space, "kept"));
	/* A large file goes as another gets its name. */
	TRY(fill_file(space, "big"));
	TRY(reef_file_rename(space, "other", "big", 0));
	lost.deleted = 1;
	return 0;
}

static int counts_room_after(struct member *member)
{
	struct reef_space *space;
	uint32_t room;

	TRY(member_await(member, &lost.deleted, 1));
	TRY(reef_sleep(5 * SECOND));
	TRY(member_space(member, &space));
	TRY(member_count_room(space, CHUNK, &room));
	/* Chunks of the heap that have a few blocks in them stay; a third of
	 * the file would be more. */
	WANT(lost.before > 1000 && room + LOST_CHUNKS / 3 >= lost.before);
	return 0;
}

static int run_lost(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 300 * MILLISECOND,
		.extent_size = 4 * MIB,
		.capacity = 8 * MIB,
	};

	memset(&lost, 0, sizeof(lost));
	pool_start(&pool, seed);
	pool_add(&pool, counts_room_before);
	pool_add(&pool, dies_with_files);
	pool_add(&pool, watches_scratch);
	pool_add(&pool, counts_room_after);
	return pool_end(&pool);
}

static void file_memory_comes_back(void **state)
{
	assert_int_equal(run_lost(3), 0);
}

/* --- two at once, round by round, in one chunk --- */

#define ROUNDS 30u
#define SHORT 1000u
#define LONG 3000u

static struct {
	uint32_t ready, done, checked; /* rounds */
} beside;

/* Open the file, and do the rounds; the first member goes before. */
static int do_rounds(struct member *member,
		     int (*round)(struct member *member, struct reef_file *file,
				  uint32_t number))
{
	struct reef_space *space;
	struct reef_file *file;
	int rc = 0;

	TRY(open_file(member, &space, &file));
	for (uint32_t i = 1; !rc && i <= ROUNDS; i++)
		rc = round(member, file, i);
	reef_file_close(file);
	return rc;
}

/* A moment that the other needs for some of its operations. */
static int pause_a_moment(struct member *member)
{
	return reef_sleep(
		reef_random_below(random_of(member), MILLISECOND / 4));
}

static int punch_round(struct member *member, struct reef_file *file,
		       uint32_t number)
{
	TRY(reef_file_truncate(file, SHORT));
	WANT(reef_file_pwrite(file, &number, 4, 0) == 4);
	beside.ready = number;
	TRY(pause_a_moment(member));
	TRY(reef_file_punch(file, 0, SHORT));
	beside.done = number;
	return member_await(member, &beside.checked, number);
}

/* What is behind the punched range stays, also where it was put there
 * meanwhile. */
static int append_round(struct member *member, struct reef_file *file,
			uint32_t number)
{
	uint64_t value = number, found, at;
	uint32_t first;

	TRY(member_await(member, &beside.ready, number));
	TRY(pause_a_moment(member));
	WANT(reef_file_append(file, &value, 8, &at) == 8 && at >= SHORT);
	TRY(member_await(member, &beside.done, number));
	WANT(reef_file_pread(file, &found, 8, at) == 8);
	WANT(found == value);
	WANT(reef_file_pread(file, &first, 4, 0) == 4);
	WANT(first == 0);
	beside.checked = number;
	return 0;
}

static int punches(struct member *member)
{
	return do_rounds(member, punch_round);
}

/* What an append put behind that meanwhile stays. */
static int extend_round(struct member *member, struct reef_file *file,
			uint32_t number)
{
	TRY(reef_file_truncate(file, SHORT));
	WANT(reef_file_pwrite(file, "", 1, 0) == 1);
	beside.ready = number;
	TRY(pause_a_moment(member));
	TRY(reef_file_extend(file, SHORT + 4));
	beside.done = number;
	return member_await(member, &beside.checked, number);
}

static int makes_longer(struct member *member)
{
	return do_rounds(member, extend_round);
}

static int appends_behind(struct member *member)
{
	return do_rounds(member, append_round);
}

static int cut_round(struct member *member, struct reef_file *file,
		     uint32_t number)
{
	uint8_t bytes[LONG + 8];

	memset(bytes, 'x', sizeof(bytes));
	WANT(reef_file_pwrite(file, bytes, sizeof(bytes), 0) == sizeof(bytes));
	TRY(reef_file_truncate(file, LONG));
	beside.ready = number;
	TRY(pause_a_moment(member));
	TRY(reef_file_truncate(file, SHORT));
	beside.done = number;
	return member_await(member, &beside.checked, number);
}

/* What was cut off is gone, also where a write in front of it puts a copy of
 * the chunk there meanwhile. */
static int write_round(struct member *member, struct reef_file *file,
		       uint32_t number)
{
	static const uint8_t zeroes[LONG - SHORT];
	uint8_t found[LONG - SHORT];

	TRY(member_await(member, &beside.ready, number));
	TRY(pause_a_moment(member));
	WANT(reef_file_pwrite(file, &number, 4, 0) == 4);
	TRY(member_await(member, &beside.done, number));
	TRY(reef_file_truncate(file, LONG));
	WANT(reef_file_pread(file, found, sizeof(found), SHORT) ==
	     sizeof(found));
	WANT(!memcmp(found, zeroes, sizeof(found)));
	beside.checked = number;
	return 0;
}

static int cuts_off(struct member *member)
{
	return do_rounds(member, cut_round);
}

static int writes_before(struct member *member)
{
	return do_rounds(member, write_round);
}

static int run_beside(uint64_t seed, int (*first)(struct member *member),
		      int (*second)(struct member *member))
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .extent_size = 16 * MIB};

	memset(&beside, 0, sizeof(beside));
	pool_start(&pool, seed);
	pool_add(&pool, first);
	pool_add(&pool, second);
	return pool_end(&pool);
}

static void file_punch_leaves_what_is_behind_it(void **state)
{
	uint64_t seed, count = seeds_of(10, 400);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_beside(seed, punches, appends_behind), 0);
}

static void file_extended_keeps_what_is_behind_it(void **state)
{
	uint64_t seed, count = seeds_of(10, 400);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_beside(seed, makes_longer, appends_behind),
				 0);
}

static void file_cut_off_stays_gone_beside_a_write(void **state)
{
	uint64_t seed, count = seeds_of(10, 400);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_beside(seed, cuts_off, writes_before), 0);
}

/* --- mutants --- */

#if !SANITIZED
static bool is_found(enum reef_mutant which)
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(which);
	for (seed = seeds_first(); seeds_has(seed, 100) && !found; seed++) {
		found = run_crowd(seed) != 0 || run_appends(seed) != 0 ||
			run_rename(seed, (uint32_t)seed) != 0 ||
			run_truncate(seed, (uint32_t)seed) != 0;
		if (!found && seed < 3)
			found = run_lost(seed) != 0;
	}
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	return found;
}

static void file_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_FILE(REEF_MUTANT_NUMBER)};

	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++)
		if (!is_found(mutants[i]))
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_crowd_reads_what_was_written),
		cmocka_unit_test(file_appends_get_places_of_their_own),
		cmocka_unit_test(file_rename_happens_or_does_not),
		cmocka_unit_test(file_truncate_happens_or_does_not),
		cmocka_unit_test(file_memory_comes_back),
		cmocka_unit_test(file_punch_leaves_what_is_behind_it),
		cmocka_unit_test(file_extended_keeps_what_is_behind_it),
		cmocka_unit_test(file_cut_off_stays_gone_beside_a_write),
#if !SANITIZED
		cmocka_unit_test(file_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
