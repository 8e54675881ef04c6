/* test_pages.c - a cache of pages, in simulation. The disk is in the test: what
 * it has is the truth.
 *
 * Each page has one writer, who writes numbers that grow. A read may find what
 * the last write had written that had returned when the read began, or
 * something newer; nobody finds something older than anybody had found before,
 * unless a writer stood still for so long that its session ended, or its marker
 * was lost with its memory: then the write that has not returned may come and
 * go. In the end everybody finds what the disk has. */
#include "fixture/pool_world.h"
#include "kv/internal.h"

#include "pool/rpc.h"

#include <reef/map.h>
#include <reef/pages.h>
#include <string.h>

#define SIZE 512u
#define PAGES 12u /* of each file */
#define FILES 3u
enum { WRITTEN, CUT, REBORN };
#define WRITERS 2u

enum mode { CALM, DEATH, STOP, LOSSY, REVOKED, MODES };

struct disk_page {
	uint64_t number;      /* on the disk */
	uint64_t begun, done; /* writes */
	uint64_t seen;	      /* by a read that has returned */
};

static struct truth {
	enum mode mode;
	bool is_small; /* the cover evicts */
	struct disk_page pages[FILES][PAGES];
	uint64_t born;
	uint32_t posts, strike, opened, ended, readers;
	uint32_t hits, fills, rejoined;
	bool wants_stop; /* the first writer stands before the file */
} truth;

/* What each member has open, to be closed however its script ends. */
static struct reef_pages *held[MEMBERS_MAX + 1];

static int hold(struct member *member, int rc, struct reef_pages **out)
{
	if (!rc)
		held[member->number] = *out;
	return rc;
}

static int let_go(struct member *member, int rc)
{
	reef_pages_close(held[member->number]);
	held[member->number] = NULL;
	return rc;
}

static struct reef_page_file file_of(uint32_t file)
{
	struct reef_page_file out = {.filesystem = {1}, .inode = 7 + file};

	out.born_ns = file == REBORN ? 1000 + truth.born : 1000;
	return out;
}

static struct reef_random *random_of(struct member *member)
{
	return reef_sim_random(member->pool->sim);
}

static int pause_some(struct member *member, uint64_t most_ns)
{
	if (reef_random_chance(random_of(member), 1, 2))
		return 0;
	return reef_sleep(reef_random_below(random_of(member), most_ns));
}

static void make_page(uint64_t *page, uint64_t number)
{
	for (uint32_t i = 0; i < SIZE / 8; i++)
		page[i] = number;
}

static int open_pages(struct member *member, struct reef_pages **out)
{
	const struct reef_space_options of_space = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_REVOCABLE,
	};
	const struct reef_pages_options options = {
		.flags = REEF_PAGES_WRITER,
		.page_size = SIZE,
		.size_max = truth.is_small ? 9000 : 1 << 20,
		.remember = 256,
		.machine = "machine",
	};
	struct reef_space *space;

	TRY(reef_space_open(member->reef, "pages", &of_space, &space));
	return hold(member, reef_pages_open(space, "cover", &options, out),
		    out);
}

/* An error that may come where links fall, memory is taken back, nodes are out
 * of reach. */
static bool is_passing(int rc)
{
	return rc == -REEF_EINDOUBT || rc == -ETIMEDOUT ||
	       rc == -REEF_ENOLINK || rc == -EBUSY || rc == -REEF_ELOST ||
	       rc == -ENOSPC || rc == -REEF_EDROPPED;
}

/* Open everything anew, in another session, until that works. */
static int rejoin(struct member *member, struct reef_pages **pages)
{
	int rc;

	let_go(member, 0);
	*pages = NULL;
	truth.rejoined++;
	for (uint32_t i = 0; i < 1000; i++) {
		member_leave(member);
		rc = member_join(member);
		if (!rc)
			rc = open_pages(member, pages);
		if (!rc || rc == -REEF_EHOSTDEAD)
			return rc;
		TRY(reef_sleep(10 * MILLISECOND));
	}
	return -EXDEV;
}

/* Renew a file, whatever it takes. */
static int renew(struct member *member, struct reef_pages **pages,
		 uint32_t file)
{
	const struct reef_page_file self = file_of(file);
	int rc = -EBUSY;

	for (uint32_t i = 0; rc && i < 1000; i++) {
		rc = reef_pages_renew(*pages, &self);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (rc == -REEF_EFENCED)
			TRY(rejoin(member, pages));
		else if (rc)
			TRY(reef_sleep(10 * MILLISECOND));
	}
	return rc;
}

/* --- writing --- */

static int write_page(struct member *member, struct reef_pages **pages,
		      uint32_t file, uint32_t page)
{
	struct disk_page *disk = &truth.pages[file][page];
	const struct reef_page_file self = file_of(file);
	uint64_t number, token = 0, bytes[SIZE / 8];
	int rc = reef_pages_begin(*pages, &self, page, 1, &token);

	if (rc == -REEF_EFENCED)
		return rejoin(member, pages);
	if (rc && rc != -ENOSPC)
		return is_passing(rc) ? 0 : rc;
	number = ++disk->begun;
	TRY(pause_some(member, 3 * MILLISECOND));
	if (truth.mode == STOP && member->number == 1 &&
	    reef_random_chance(random_of(member), 1, 10)) {
		truth.wants_stop = true;
		TRY(reef_sleep(50 * MILLISECOND));
	}
	disk->number = number;
	TRY(pause_some(member, 3 * MILLISECOND));
	make_page(bytes, number);
	rc = reef_pages_write(
		*pages, &self, page, token,
		reef_random_chance(random_of(member), 1, 4) ? NULL : bytes);
	if (rc == -REEF_EHOSTDEAD)
		return rc;
	if (rc == -REEF_EFENCED)
		TRY(rejoin(member, pages));
	/* What is begun after the file was written, and not kept, does as well
	 * as a renewal. */
	if (rc == -ESTALE && reef_random_chance(random_of(member), 1, 2)) {
		rc = reef_pages_begin(*pages, &self, page, 1, &token);
		if (!rc)
			(void)reef_pages_write(*pages, &self, page, token,
					       NULL);
	}
	if (rc == -REEF_EHOSTDEAD)
		return rc;
	if (rc == -REEF_EFENCED)
		TRY(rejoin(member, pages));
	if (rc)
		TRY(renew(member, pages, file));
	disk->done = number;
	return 0;
}

static int writes_on(struct member *member)
{
	struct reef_pages *pages;
	uint32_t page;

	TRY(open_pages(member, &pages));
	TRY(renew(member, &pages, WRITTEN));
	truth.opened++;
	for (uint32_t i = 0; i < 120; i++) {
		page = reef_random_below(random_of(member), PAGES / WRITERS) *
			       WRITERS +
		       member->number % WRITERS;
		TRY(write_page(member, &pages, WRITTEN, page));
		TRY(pause_some(member, 4 * MILLISECOND));
	}
	truth.ended++;
	return 0;
}

static int writes(struct member *member)
{
	return let_go(member, writes_on(member));
}

/* Cut the file's second half off, and make it long again. */
static int cut(void *context)
{
	for (uint32_t i = PAGES / 2; i < PAGES; i++)
		truth.pages[CUT][i].number = ++truth.pages[CUT][i].begun;
	return 0;
}

/* The file is deleted, and another is made, which gets its inode. */
static void be_born(void)
{
	truth.born++;
	for (uint32_t i = 0; i < PAGES; i++) {
		struct disk_page *disk = &truth.pages[REBORN][i];

		disk->number = disk->done = ++disk->begun;
	}
}

static int cuts_on(struct member *member)
{
	const struct reef_page_file file = file_of(CUT);
	struct reef_pages *pages;
	bool changed;
	int rc;

	TRY(open_pages(member, &pages));
	TRY(renew(member, &pages, CUT));
	TRY(renew(member, &pages, REBORN));
	truth.opened++;
	for (uint32_t i = 0; i < 40; i++) {
		TRY(write_page(member, &pages, CUT,
			       reef_random_below(random_of(member), PAGES)));
		rc = reef_pages_change(pages, &file, cut, NULL, &changed);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (rc == -REEF_EFENCED)
			TRY(rejoin(member, &pages));
		if (rc && changed)
			TRY(renew(member, &pages, CUT));
		for (uint32_t j = PAGES / 2; changed && j < PAGES; j++)
			truth.pages[CUT][j].done = truth.pages[CUT][j].begun;
		if (i % 8 == 0)
			be_born();
		if (i % 8 == 2)
			TRY(renew(member, &pages, REBORN));
		TRY(pause_some(member, 8 * MILLISECOND));
	}
	truth.ended++;
	return 0;
}

static int cuts(struct member *member)
{
	return let_go(member, cuts_on(member));
}

/* --- reading --- */

static int tell_stale(uint32_t file, uint32_t page, uint64_t found,
		      const struct disk_page *before)
{
	if (!try_quiet)
		print_message("file %u page %u: found %llu, done %llu, "
			      "seen %llu, mode %d\n",
			      file, page, (unsigned long long)found,
			      (unsigned long long)before->done,
			      (unsigned long long)before->seen, truth.mode);
	return -EXDEV;
}

/* Read a page as a door does: from the cache, or from the disk. */
static int read_page(struct member *member, struct reef_pages *pages,
		     uint32_t file, uint32_t page, uint64_t *found)
{
	struct disk_page *disk = &truth.pages[file][page];
	const struct disk_page before = *disk;
	const struct reef_page_file self = file_of(file);
	uint64_t bytes[SIZE / 8], token = 0;
	int rc = reef_pages_get(pages, &self, page, bytes, &token);

	if (rc == -REEF_EHOSTDEAD)
		return rc;
	if (rc) {
		WANT(rc == -ENOENT || rc == -ENODATA || is_passing(rc));
		TRY(pause_some(member, 2 * MILLISECOND));
		make_page(bytes, disk->number);
		*found = disk->number;
		TRY(pause_some(member, 4 * MILLISECOND));
		if (rc == -ENOENT && token)
			truth.fills += !reef_pages_fill(pages, &self, page,
							token, bytes);
	} else {
		*found = bytes[0];
		for (uint32_t i = 0; i < SIZE / 8; i++)
			WANT(bytes[i] == bytes[0]);
		truth.hits++;
	}
	if (*found < before.done || *found > disk->begun ||
	    (*found < before.seen && truth.mode != STOP &&
	     truth.mode != REVOKED))
		return tell_stale(file, page, *found, &before);
	if (*found > disk->seen)
		disk->seen = *found;
	return 0;
}

/* Long after: whoever died has ended. */
static int reads_disk(struct member *member, struct reef_pages *pages)
{
	uint32_t hits = 0, before;
	uint64_t found;

	TRY(reef_sleep(30 * SECOND));
	for (uint32_t turn = 0; turn < 3; turn++) {
		hits = 0;
		for (uint32_t i = 0; i < FILES * PAGES; i++) {
			before = truth.hits;
			TRY(read_page(member, pages, i / PAGES, i % PAGES,
				      &found));
			if (i / PAGES != REBORN)
				hits += truth.hits - before;
			if (found != truth.pages[i / PAGES][i % PAGES].number)
				return tell_stale(
					i / PAGES, i % PAGES, found,
					&truth.pages[i / PAGES][i % PAGES]);
		}
	}
	/* What was read once is there. */
	if (truth.mode <= DEATH && !truth.is_small)
		WANT(hits == 2 * PAGES);
	return 0;
}

static int reads_on(struct member *member)
{
	struct reef_pages *pages;
	uint64_t found;

	TRY(member_await(member, &truth.opened, WRITERS + 1));
	TRY(open_pages(member, &pages));
	truth.readers++;
	for (uint32_t i = 0; i < 900; i++) {
		TRY(read_page(
			member, pages,
			(uint32_t)reef_random_below(random_of(member), FILES),
			(uint32_t)reef_random_below(random_of(member), PAGES),
			&found));
		TRY(pause_some(member,
			       (truth.mode == STOP ? 12 : 1) * MILLISECOND));
	}
	if (member->number == WRITERS + 2)
		TRY(reads_disk(member, pages));
	return 0;
}

static int reads(struct member *member)
{
	return let_go(member, reads_on(member));
}

/* --- what goes wrong --- */

/* Stop the first writer for longer than its session lasts, between its begin
 * and the disk; or have memory taken back. */
static int disturbs(struct member *member)
{
	struct reef_body body = {.ask.node_reclaim.bytes = 1 << 20};
	struct reef_node_status status;

	TRY(member_await(member, &truth.opened, WRITERS + 1));
	for (uint32_t i = 0; i < 1000 && truth.mode == STOP; i++) {
		TRY(reef_sleep(5 * MILLISECOND));
		if (!truth.wants_stop)
			continue;
		reef_sim_host_pause(member->pool->members[0].host);
		TRY(reef_sleep(6 * TTL));
		reef_sim_host_resume(member->pool->members[0].host);
		truth.wants_stop = false;
	}
	for (uint32_t i = 0; i < 4 && truth.mode == REVOKED; i++) {
		TRY(reef_sleep((20 + reef_random_below(random_of(member), 60)) *
			       MILLISECOND));
		reef_node_status(member->pool->lenders[i % NODES].node,
				 &status);
		body.ask.node_reclaim.node = status.id;
		reef_client_ask(member->reef, REEF_POOL_NODE_RECLAIM, false,
				&body, NULL);
	}
	return 0;
}

/* Kill the first writer at the post that was chosen. */
static void strike(struct member *member, bool is_posted)
{
	if (truth.mode != DEATH || member->number != 1 ||
	    truth.opened < WRITERS + 1)
		return;
	if (++truth.posts == truth.strike)
		reef_sim_host_kill(member->host);
}

static int run_crowd(uint64_t seed)
{
	struct pool pool = {.posts = strike, .witnesses = 1};

	truth = (struct truth){
		.mode = (enum mode)(seed % MODES),
		.is_small = seed / MODES % 2,
		.strike = 3 + (uint32_t)(seed * 13 % 500),
	};
	map_tables.seed = seed; /* so that a seed is a run */
	if (truth.mode == LOSSY)
		pool.lose_link_ppm = 1000;
	if (truth.mode == CALM || truth.mode == LOSSY)
		pool.ttl_ns = 60 * SECOND;
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < WRITERS; i++)
		pool_add(&pool, writes);
	pool_add(&pool, cuts);
	pool_add(&pool, reads);
	pool_add(&pool, reads);
	pool_add(&pool, disturbs);
	return pool_end(&pool);
}

static void pages_crowd_reads_nothing_stale(void **state)
{
	uint64_t seed, count = seeds_of(2 * MODES, 4000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++) {
		assert_int_equal(run_crowd(seed), 0);
		assert_true(truth.hits > 20);
		assert_true(truth.fills > 0);
	}
}

/* --- one thing at a time --- */

static int open_cover(struct member *member, const char *machine,
		      struct reef_pages **out)
{
	struct reef_pages_options options = {
		.flags = machine ? REEF_PAGES_WRITER : 0,
		.page_size = SIZE,
		.size_max = 1 << 20,
	};
	struct reef_space *space;

	if (machine)
		strncpy((char *)options.machine, machine,
			sizeof(options.machine));
	TRY(member_space(member, &space));
	return reef_pages_open(space, "cover", &options, out);
}

static int plain_calls(struct member *member)
{
	const struct reef_page_file file = {.inode = 1}, other = {.inode = 2};
	uint64_t bytes[SIZE / 8], got[SIZE / 8], token = 7, tokens[3];
	struct reef_pages *pages, *reader;
	struct reef_pages_stats stats;
	struct reef_space *space;

	TRY(open_cover(member, "m", &pages));
	TRY(open_cover(member, NULL, &reader));
	WANT_RC(reef_pages_get(pages, &file, 0, got, &token), -ENODATA);
	WANT(token == 7);
	TRY(reef_pages_renew(pages, &file));
	WANT_RC(reef_pages_get(pages, &file, 0, got, &token), -ENOENT);
	WANT(token && token != 7);
	make_page(bytes, 5);
	/* Another does not fill meanwhile. */
	WANT_RC(reef_pages_get(reader, &file, 0, got, &tokens[0]), -ENOENT);
	WANT(!tokens[0]);
	WANT_RC(reef_pages_fill(reader, &file, 0, 0, bytes), -ESTALE);
	TRY(reef_pages_fill(pages, &file, 0, token, bytes));
	WANT_RC(reef_pages_fill(pages, &file, 0, token, bytes), -ESTALE);
	TRY(reef_pages_get(reader, &file, 0, got, &token));
	WANT(!memcmp(got, bytes, SIZE));
	/* A write: everybody misses from begin on. */
	WANT_RC(reef_pages_begin(reader, &file, 0, 1, tokens), -EINVAL);
	WANT_RC(reef_pages_begin(pages, &file, 0, 0, tokens), -EINVAL);
	TRY(reef_pages_begin(pages, &file, 0, 3, tokens));
	WANT_RC(reef_pages_get(reader, &file, 0, got, &token), -ENOENT);
	WANT(!token);
	make_page(bytes, 6);
	for (uint32_t i = 0; i < 3; i++)
		TRY(reef_pages_write(pages, &file, i, tokens[i], bytes));
	WANT_RC(reef_pages_write(pages, &file, 0, tokens[0], bytes), -ESTALE);
	TRY(reef_pages_get(reader, &file, 2, got, &token));
	WANT(got[0] == 6);
	/* One that is not kept is missed, and can be filled. */
	TRY(reef_pages_begin(pages, &file, 1, 1, tokens));
	TRY(reef_pages_write(pages, &file, 1, tokens[0], NULL));
	WANT_RC(reef_pages_write(pages, &file, 1, tokens[0], NULL), -ESTALE);
	WANT_RC(reef_pages_get(reader, &file, 1, got, &token), -ENOENT);
	TRY(reef_pages_fill(reader, &file, 1, token, bytes));
	WANT_RC(reef_pages_get(reader, &other, 2, got, &token), -ENODATA);
	TRY(reef_pages_suspend(pages, &file));
	WANT_RC(reef_pages_get(reader, &file, 2, got, &token), -ENODATA);
	reef_pages_stats(pages, &stats);
	WANT(stats.page_size == SIZE && stats.fills == 1 && stats.late == 1);
	WANT(stats.writes == 4 && stats.lost == 2 && stats.renewals == 1);
	reef_pages_close(pages);
	reef_pages_close(reader);
	/* What is not so. */
	TRY(member_space(member, &space));
	WANT_RC(reef_pages_open(space, "cover", NULL, &pages), -EINVAL);
	WANT_RC(reef_pages_open(space, "", NULL, &pages), -EINVAL);
	WANT_RC(reef_pages_open(space, "none",
				&(struct reef_pages_options){
					.flags = REEF_PAGES_EXISTING},
				&pages),
		-ENOENT);
	WANT_RC(reef_pages_open(space, "x",
				&(struct reef_pages_options){.page_size = 1000},
				&pages),
		-EINVAL);
	TRY(reef_pages_drop(space, "cover"));
	WANT_RC(reef_pages_drop(space, "cover"), -ENOENT);
	return 0;
}

static void run_one(int (*script)(struct member *member))
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, script);
	pool_finish(&pool);
}

static void pages_calls_answer_as_told(void **state)
{
	run_one(plain_calls);
}

/* A cover is dropped and made anew by another, who writes: whoever had it open,
 * and remembers where its pages were, finds none of the old ones. */
static int dropped_beside(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	uint64_t bytes[SIZE / 8], got[SIZE / 8], token;
	struct reef_pages *reader, *writer;
	struct reef_space *space;

	TRY(open_cover(member, "m", &reader));
	TRY(reef_pages_renew(reader, &file));
	WANT_RC(reef_pages_get(reader, &file, 0, got, &token), -ENOENT);
	make_page(bytes, 5);
	TRY(reef_pages_fill(reader, &file, 0, token, bytes));
	for (uint32_t i = 0; i < 3; i++)
		TRY(reef_pages_get(reader, &file, 0, got, &token));
	TRY(member_space(member, &space));
	TRY(reef_pages_drop(space, "cover"));
	TRY(open_cover(member, "m", &writer));
	TRY(reef_pages_renew(writer, &file));
	TRY(reef_pages_begin(writer, &file, 0, 1, &token));
	make_page(bytes, 6);
	TRY(reef_pages_write(writer, &file, 0, token, bytes));
	TRY(reef_pages_get(reader, &file, 0, got, &token));
	WANT(got[0] == 6);
	reef_pages_close(reader);
	reef_pages_close(writer);
	return 0;
}

static void pages_dropped_cover_is_read_no_more(void **state)
{
	run_one(dropped_beside);
}

/* The round trips of the cheapest of some hits: a renewal of the lease may fall
 * into the others. */
static int hits_cost(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	uint64_t bytes[SIZE / 8] = {0}, token, best = UINT64_MAX;
	struct reef_counts before, after;
	struct reef_pages *pages;

	TRY(open_cover(member, "m", &pages));
	TRY(reef_pages_renew(pages, &file));
	for (uint32_t i = 0; i < 10; i++) {
		WANT_RC(reef_pages_get(pages, &file, 0, bytes, &token),
			i ? 0 : -ENOENT);
		if (!i)
			TRY(reef_pages_fill(pages, &file, 0, token, bytes));
	}
	for (uint32_t i = 0; i < 10; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_pages_get(pages, &file, 0, bytes, &token));
		after = reef_count_read(&member->count);
		after = reef_counts_between(&before, &after);
		WANT(after.reads >= 2);
		if (after.round_trips < best)
			best = after.round_trips;
	}
	WANT(best == 1);
	reef_pages_close(pages);
	return 0;
}

static void pages_hit_costs_one_round_trip(void **state)
{
	run_one(hits_cost);
}

/* Notes count for the generation that they were made for. */
static int notes(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	struct reef_pages *pages, *other;

	TRY(open_cover(member, "m", &pages));
	TRY(open_cover(member, "m", &other));
	WANT_RC(reef_pages_note(pages, &file, "abc", 3), -ENOENT);
	WANT_RC(reef_pages_compare(pages, &file, "abc", 3), -ENOENT);
	TRY(reef_pages_renew(pages, &file));
	TRY(reef_pages_note(pages, &file, "abc", 3));
	TRY(reef_pages_compare(other, &file, "abc", 3));
	WANT_RC(reef_pages_compare(other, &file, "abd", 3), -ESTALE);
	TRY(reef_pages_renew(other, &file));
	WANT_RC(reef_pages_compare(pages, &file, "abc", 3), -ENOENT);
	reef_pages_close(pages);
	reef_pages_close(other);
	return 0;
}

/* One machine writes, until all its sessions that have the seat are ended. */
static uint32_t seats;

static int has_seat(struct member *member)
{
	struct reef_pages *pages;

	TRY(open_cover(member, "first", &pages));
	seats = 1;
	TRY(member_await(member, &seats, 2));
	reef_pages_close(pages);
	return 0;
}

static int wants_seat(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	struct reef_pages *pages, *stale;
	uint64_t token;
	int rc;

	TRY(member_await(member, &seats, 1));
	TRY(open_cover(member, "first", &stale));
	TRY(reef_pages_begin(stale, &file, 0, 1, &token));
	rc = open_cover(member, "second", &pages);
	WANT(rc == -EBUSY);
	TRY(open_cover(member, NULL, &pages)); /* it may read */
	reef_pages_close(pages);
	seats = 2;
	for (uint32_t i = 0; i < 1000 && rc == -EBUSY; i++) {
		rc = open_cover(member, "second", &pages);
		if (rc == -EBUSY)
			TRY(reef_sleep(10 * MILLISECOND));
	}
	TRY(rc);
	WANT_RC(reef_pages_begin(stale, &file, 0, 1, &token), -EPERM);
	TRY(reef_pages_begin(pages, &file, 0, 1, &token));
	reef_pages_close(pages);
	reef_pages_close(stale);
	return 0;
}

static int run_notes(void)
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, notes);
	return pool_end(&pool);
}

static int run_seats(void)
{
	struct pool pool = {0};

	seats = 0;
	pool_start(&pool, 1);
	pool_add(&pool, has_seat);
	pool_add(&pool, wants_seat);
	return pool_end(&pool);
}

static void pages_notes_count_for_their_generation(void **state)
{
	assert_int_equal(run_notes(), 0);
}

static void pages_one_machine_writes(void **state)
{
	assert_int_equal(run_seats(), 0);
}

/* --- a writer whose marker is pushed out, and that dies --- */

static struct {
	uint32_t stage;
	struct member *writer;
} pushed;

static int open_tiny(struct member *member, struct reef_pages **out)
{
	const struct reef_pages_options options = {
		.flags = REEF_PAGES_WRITER,
		.page_size = SIZE,
		.size_max = 6000,
		.machine = "m",
	};
	struct reef_space *space;

	TRY(member_space(member, &space));
	return hold(member, reef_pages_open(space, "cover", &options, out),
		    out);
}

static int begins_and_dies_on(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	struct reef_pages *pages;
	uint64_t token;

	TRY(open_tiny(member, &pages));
	TRY(reef_pages_renew(pages, &file));
	TRY(reef_pages_begin(pages, &file, 0, 1, &token));
	pushed.stage = 1;
	TRY(member_await(member, &pushed.stage, 2));
	/* Here it writes the file: what the other has filled is old now. */
	pushed.stage = 3;
	return reef_sleep(REEF_FOREVER);
}

static int begins_and_dies(struct member *member)
{
	return let_go(member, begins_and_dies_on(member));
}

static int pushes_out_on(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	uint64_t bytes[SIZE / 8] = {1}, got[SIZE / 8], token = 0;
	struct reef_pages *pages;
	int rc;

	TRY(member_await(member, &pushed.stage, 1));
	TRY(open_tiny(member, &pages));
	for (uint32_t i = 1; i < 200; i++) {
		if (reef_pages_get(pages, &file, i, got, &token) == -ENOENT &&
		    token)
			reef_pages_fill(pages, &file, i, token, bytes);
		TRY(reef_sleep(20 * MILLISECOND));
	}
	rc = reef_pages_get(pages, &file, 0, got, &token);
	WANT(rc == -ENOENT);
	if (token)
		TRY(reef_pages_fill(pages, &file, 0, token, bytes));
	pushed.stage = 2;
	TRY(member_await(member, &pushed.stage, 3));
	reef_sim_host_kill(pushed.writer->host);
	TRY(reef_sleep(10 * SECOND));
	WANT_RC(reef_pages_get(pages, &file, 0, got, &token), -ENOENT);
	return 0;
}

static int pushes_out(struct member *member)
{
	return let_go(member, pushes_out_on(member));
}

static int run_pushed(uint64_t seed)
{
	struct pool pool = {0};

	memset(&pushed, 0, sizeof(pushed));
	map_tables.seed = seed;
	pool_start(&pool, seed);
	pushed.writer = pool_add(&pool, begins_and_dies);
	pool_add(&pool, pushes_out);
	return pool_end(&pool);
}

static void pages_marker_outlasts_eviction(void **state)
{
	for (uint64_t seed = 1; seed < 4; seed++)
		assert_int_equal(run_pushed(seed), 0);
}

/* --- markers of the dead do not pile up --- */

static uint32_t corpses;

static int leaves_markers_on(struct member *member)
{
	const struct reef_page_file file = {.inode = 1};
	struct reef_pages *pages;
	uint64_t tokens[100];

	TRY(open_tiny(member, &pages));
	TRY(reef_pages_begin(pages, &file, 0, 30, tokens));
	corpses = 1;
	return reef_sleep(REEF_FOREVER);
}

static int leaves_markers(struct member *member)
{
	return let_go(member, leaves_markers_on(member));
}

static int count_marker(void *context, const struct reef_map_entry *entry)
{
	uint32_t *count = context;

	*count += entry->value_size == 16;
	return 0;
}

static int tidies_up(struct member *member)
{
	const struct reef_page_file other = {.inode = 2};
	uint64_t token, cursor = 0, bytes[SIZE / 8] = {0};
	struct reef_pages *pages;
	struct reef_space *space;
	struct reef_map *map;
	uint32_t count = 0;

	TRY(member_await(member, &corpses, 1));
	reef_sim_host_kill(member->pool->members[0].host);
	TRY(reef_sleep(5 * SECOND));
	TRY(open_tiny(member, &pages));
	TRY(reef_pages_renew(pages, &other));
	for (uint32_t i = 0; i < 40000; i++)
		reef_pages_fill(pages, &other, i % 5, 1 + i, bytes);
	TRY(reef_pages_begin(pages, &other, 0, 1, &token));
	TRY(reef_pages_write(pages, &other, 0, token, bytes));
	let_go(member, 0);
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "cover", NULL, &map));
	do
		TRY(reef_map_scan_keys(map, &cursor, 100, count_marker,
				       &count));
	while (cursor);
	WANT(count == 0);
	reef_map_close(map);
	return 0;
}

static void pages_markers_of_the_dead_come_back(void **state)
{
	struct pool pool = {0};

	corpses = 0;
	pool_start(&pool, 1);
	pool_add(&pool, leaves_markers);
	pool_add(&pool, tidies_up);
	pool_finish(&pool);
}

/* --- mutants --- */

#if !SANITIZED
/* The seed of a crowd that is known to find a mutant; it saves the search for
 * as long as it does. */
static uint64_t known_seed(enum reef_mutant which)
{
	switch (which) {
	case REEF_MUTANT_PAGES_FILL_BLIND:
		return 28;
	case REEF_MUTANT_PAGES_MARK_FOREVER:
		return 21;
	default:
		return 1;
	}
}

static bool end_hunt(bool found)
{
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	return found;
}

static bool is_found(enum reef_mutant which, uint64_t *seed)
{
	bool found;

	try_quiet = true;
	reef_mutate(which);
	found = run_notes() != 0 || run_seats() != 0;
	*seed = known_seed(which);
	found = found || run_crowd((*seed)++) != 0;
	for (uint64_t i = 1; i < 20 && !found; i++)
		found = run_pushed(i) != 0;
	if (found)
		return end_hunt(true);
	for (*seed = seeds_first(); seeds_has(*seed, 100) && !found; (*seed)++)
		found = run_crowd(*seed) != 0;
	return end_hunt(found);
}

static void pages_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_PAGES(REEF_MUTANT_NUMBER)};
	uint64_t seed;

	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		if (!is_found(mutants[i], &seed))
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
		print_message("%s: %llu seeds\n", reef_mutant_name(mutants[i]),
			      (unsigned long long)seed - 1);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_calls_answer_as_told),
		cmocka_unit_test(pages_dropped_cover_is_read_no_more),
		cmocka_unit_test(pages_hit_costs_one_round_trip),
		cmocka_unit_test(pages_notes_count_for_their_generation),
		cmocka_unit_test(pages_one_machine_writes),
		cmocka_unit_test(pages_marker_outlasts_eviction),
		cmocka_unit_test(pages_markers_of_the_dead_come_back),
		cmocka_unit_test(pages_crowd_reads_nothing_stale),
#if !SANITIZED
		cmocka_unit_test(pages_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
