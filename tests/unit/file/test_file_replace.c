/* test_file_replace.c - renames that hold the file whose place they take, while
 * others look the name up, rename over it, or delete it, and who renames dies.
 *
 * (1) As long as nobody deletes it the name "t" is some file's.
 * (2) What is held can be read until it is let go, or its session ends.
 * (3) Afterwards nothing is left of it: no ticket has an entry, and no file
 *     that was replaced is there. */
#include "fixture/pool_world.h"

#include <reef/folder.h>
#include <reef/tree.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 4096u
#define ROUNDS 12u
#define FILES_MAX 128u

static const struct reef_file_id root;

static struct {
	uint32_t ready, ended, posts, strike, rounds;
	bool is_struck, is_over;
	bool deletes; /* somebody deletes the name */
	bool loses;   /* links fall */
	/* All files that were ever made, by the number in them. */
	uint32_t count;
	struct reef_file_id made[FILES_MAX];
} scene;

/* An error that may come where links fall. */
static bool is_passing(ssize_t rc)
{
	return scene.loses && (rc == -REEF_EINDOUBT || rc == -ETIMEDOUT ||
			       rc == -REEF_ENOLINK || rc == -EBUSY);
}

static int put(struct reef_files *files, const char *name, uint64_t *number)
{
	const struct reef_file_about about = {.chunk = CHUNK};
	struct reef_file_about made;
	struct reef_file *file;
	ssize_t size;
	int rc;

	WANT(scene.count < FILES_MAX);
	*number = scene.count++;
	rc = reef_files_make(files, root, name, &about, &made);
	if (is_passing(rc))
		return rc;
	TRY(rc);
	scene.made[*number] = made.id;
	do {
		rc = reef_files_open_file(files, made.id, &file);
		size = rc ? rc : reef_file_pwrite(file, number, 8, 0);
		if (!rc)
			reef_file_close(file);
	} while (is_passing(size));
	if (size < 0)
		return (int)size;
	WANT(size == 8);
	return 0;
}

/* The number in a file. -ENOENT: it is gone. */
static int read_number(struct reef_files *files, struct reef_file_id id,
		       uint64_t *number)
{
	struct reef_file *file;
	ssize_t size;
	int rc = reef_files_open_file(files, id, &file);

	if (rc)
		return rc;
	size = reef_file_pread(file, number, 8, 0);
	reef_file_close(file);
	if (size == -REEF_EDROPPED)
		return -ENOENT;
	if (size < 0)
		return (int)size;
	WANT(size == 8);
	return 0;
}

/* --- who renames --- */

/* Of a call that may be the last of who is killed. */
static int want_gone(int rc)
{
	WANT(rc == -ENOENT || rc == -REEF_EHOSTDEAD || is_passing(rc));
	return rc == -ENOENT ? 0 : rc;
}

/* What is held is read, then let go, and is no more. */
static int use_held(struct reef_files *files, uint64_t ticket,
		    struct reef_file_id former)
{
	struct reef_file_about about;
	uint64_t number;
	int rc;

	for (uint32_t i = 0; i < 3; i++) {
		rc = read_number(files, former, &number);
		if (rc)
			return rc;
		WANT(number < scene.count &&
		     scene.made[number].number == former.number);
	}
	rc = reef_files_let_go(files, ticket);
	if (!rc)
		rc = want_gone(reef_files_about(files, former, &about));
	return rc ? rc : want_gone(reef_files_let_go(files, ticket));
}

static int replace_once(struct reef_files *files, const char *from)
{
	struct reef_file_id former;
	uint64_t number, ticket;
	int rc = put(files, from, &number);

	scene.ready |= 1;
	if (!rc)
		rc = reef_files_replace(files, root, from, root, "t", &ticket,
					&former);
	/* Who deletes may have brought the rename to its end, and deleted the
	 * file then: this call finds no file any more. */
	if (rc == -ENOENT && scene.deletes)
		return 0;
	if (rc)
		return rc;
	WANT(ticket ? former.number : scene.deletes && !former.number);
	return ticket ? use_held(files, ticket, former) : 0;
}

static int do_rounds(struct member *member, struct reef_files *files)
{
	uint64_t number;
	char from[16];
	int rc = 0;

	if (member->number == 1)
		do
			rc = put(files, "t", &number);
		while (is_passing(rc));
	TRY(rc == -EEXIST && scene.loses ? 0 : rc);
	scene.ready |= member->number == 1 && scene.rounds > 1;
	TRY(member_await(member, &scene.ready, member->number > 1));
	for (uint32_t i = 0; i < scene.rounds; i++) {
		snprintf(from, sizeof(from), "a%u.%u", member->number, i);
		rc = replace_once(files, from);
		if (!is_passing(rc))
			TRY(rc);
	}
	return 0;
}

static int replaces(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	do
		rc = reef_files_open(space, &files);
	while (is_passing(rc));
	TRY(rc);
	rc = do_rounds(member, files);
	if (member->number == 1)
		scene.is_over = true;
	scene.ended++;
	reef_files_close(files);
	return rc;
}

static int deletes(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	TRY(member_await(member, &scene.ready, 1));
	for (uint32_t i = 0; !rc && i < 2 * scene.rounds; i++) {
		TRY(reef_sleep(reef_random_below(
			reef_sim_random(member->pool->sim), MILLISECOND)));
		rc = reef_files_delete(files, root, "t");
		rc = rc == -ENOENT ? 0 : rc;
	}
	scene.ended++;
	reef_files_close(files);
	return rc;
}

/* --- who looks --- */

static int look_once(struct reef_files *files)
{
	struct reef_file_about about;
	uint64_t number;
	int rc = reef_files_look(files, root, "t", &about);

	if ((rc == -ENOENT && scene.deletes) || is_passing(rc))
		return 0;
	TRY(rc); /* (1) */
	rc = read_number(files, about.id, &number);
	if (rc == -ENOENT || is_passing(rc)) /* it was let go since */
		return 0;
	TRY(rc);
	WANT(number < scene.count &&
	     scene.made[number].number == about.id.number);
	return 0;
}

static int count_ticket(void *context, const struct reef_map_entry *entry)
{
	++*(uint32_t *)context;
	return 0;
}

/* Count the entries of folder 1, also those that count for nothing. */
static int count_tickets(struct reef_space *space, uint32_t *count)
{
	const uint8_t from[8] = {[7] = 1}, to[8] = {[7] = 2};
	const struct reef_range range = {
		.from = from, .from_size = 8, .to = to, .to_size = 8};
	struct reef_tree *tree;
	int rc;

	*count = 0;
	rc = reef_tree_open(space, "~files", NULL, &tree);
	if (rc)
		return rc;
	rc = reef_tree_scan(tree, &range, count_ticket, count);
	reef_tree_close(tree);
	return rc;
}

static int count_name(void *context, const char *name,
		      const struct reef_file_about *about)
{
	++*(uint32_t *)context;
	return 0;
}

/* (3) Of all files that were made only those that have a name are there. */
static int check_left(struct reef_space *space, struct reef_files *files)
{
	uint32_t tickets, there = 0, names = 0;
	struct reef_file_about about;
	int rc = reef_files_sweep(files);

	if (!rc)
		rc = count_tickets(space, &tickets);
	WANT(rc || tickets == 0);
	for (uint32_t i = 0; !rc && i < scene.count; i++) {
		if (!scene.made[i].number)
			continue;
		rc = reef_files_about(files, scene.made[i], &about);
		there += !rc;
		rc = rc == -ENOENT ? 0 : rc;
	}
	if (!rc)
		rc = reef_files_list(files, root, NULL, count_name, &names);
	if (rc)
		return rc;
	/* One whose make was in doubt may have a name. */
	WANT(scene.loses ? there <= names : there == names);
	return 0;
}

/* Look until the others are done, then see what is left: long after, when
 * whoever died is fenced and recovered. */
static int look_and_check(struct member *member, struct reef_space *space,
			  struct reef_files *files)
{
	uint32_t others = member->number - 1;
	int rc;

	for (uint32_t i = 0; i < 4000 && scene.ended < others; i++) {
		TRY(look_once(files));
		if (scene.is_struck && i > 200)
			break;
	}
	TRY(reef_sleep(5 * SECOND));
	TRY(look_once(files));
	do
		rc = check_left(space, files);
	while (is_passing(rc));
	TRY(rc);
	if (scene.loses)
		return 0;
	/* All that is left can be used as if nothing had been. */
	scene.deletes = true;
	TRY(replace_once(files, "again"));
	TRY(look_once(files));
	TRY(reef_files_delete(files, root, "t"));
	return check_left(space, files);
}

static int looks(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.ready, 1));
	do
		rc = reef_files_open(space, &files);
	while (is_passing(rc));
	TRY(rc);
	rc = look_and_check(member, space, files);
	reef_files_close(files);
	return rc;
}

/* --- runs --- */

static void strike(struct member *member, bool is_posted)
{
	if (member->number != 1 || !scene.ready || !scene.strike ||
	    scene.is_over)
		return;
	if (++scene.posts == scene.strike) {
		scene.is_struck = true;
		reef_sim_host_kill(member->host);
	}
}

/* other: what others do; NULL: there are none. at: the post at which the first
 * is killed; 0: it is not, and there are more rounds, and others. */
static int run(uint64_t seed, uint32_t at, int (*other)(struct member *member))
{
	struct pool pool = {
		.ttl_ns = 300 * MILLISECOND,
		.extent_size = 16 * MIB,
		.posts = strike,
	};

	memset(&scene, 0, sizeof(scene));
	scene.strike = at;
	scene.rounds = at ? 1 : ROUNDS;
	scene.deletes = other == deletes;
	pool_start(&pool, seed);
	pool_add(&pool, replaces);
	for (uint32_t i = 0; other && i < (at ? 1 : 2); i++)
		pool_add(&pool, other);
	pool_add(&pool, looks);
	return pool_end(&pool);
}

/* Links fall, and calls end in doubt. */
static int run_lossy(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.extent_size = 16 * MIB,
		.lose_link_ppm = 3000,
	};

	memset(&scene, 0, sizeof(scene));
	scene.rounds = ROUNDS;
	scene.loses = true;
	pool_start(&pool, seed);
	pool_add(&pool, replaces);
	pool_add(&pool, replaces);
	pool_add(&pool, looks);
	return pool_end(&pool);
}

static int run_calm(uint64_t seed)
{
	return run(seed, 0, seed % 4 ? replaces : NULL);
}

/* Strike at every post in turn, until there are no more. */
static void strike_everywhere(int (*other)(struct member *member))
{
	uint32_t at = 1, most = 300;

	do
		assert_int_equal(run(at, at, other), 0);
	while ((at += STRIKE_STEP) < most && scene.is_struck);
	assert_in_range(at, 20, most - 1);
}

static void file_replaced_has_a_name_throughout(void **state)
{
	uint64_t seed, count = seeds_of(10, 500);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_calm(seed), 0);
}

static void file_replaced_while_it_is_deleted_is_held_or_gone(void **state)
{
	uint64_t seed, count = seeds_of(10, 500);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run(seed, 0, deletes), 0);
}

static void file_replaced_in_doubt_is_found(void **state)
{
	uint64_t seed, count = seeds_of(10, 500);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_lossy(seed), 0);
}

static void file_replacer_dies_anywhere(void **state)
{
	strike_everywhere(NULL);
}

static void file_replacer_dies_beside_another(void **state)
{
	strike_everywhere(replaces);
}

static void file_replacer_dies_beside_a_delete(void **state)
{
	strike_everywhere(deletes);
}

/* --- memory --- */

#define BIG_CHUNKS 600u

static struct {
	uint32_t before, counted, replaced;
	bool dies;
} room;

/* Put a small file in place of a large one, and let that go, or die. */
static int replace_big(struct reef_files *files, struct reef_sim_host *dies)
{
	static char bytes[BIG_CHUNKS * CHUNK];
	struct reef_file_id former;
	uint64_t number, ticket;
	struct reef_file *file;
	ssize_t size;

	TRY(put(files, "t", &number));
	TRY(reef_files_open_file(files, scene.made[number], &file));
	size = reef_file_pwrite(file, bytes, sizeof(bytes), 0);
	reef_file_close(file);
	WANT(size == sizeof(bytes));
	TRY(put(files, "a", &number));
	TRY(reef_files_replace(files, root, "a", root, "t", &ticket, &former));
	TRY(reef_files_sweep(files)); /* of others that have ended: none */
	TRY(read_number(files, former, &number));
	room.replaced = 1;
	if (!dies)
		return reef_files_let_go(files, ticket);
	reef_sim_host_kill(dies);
	return reef_sleep(SECOND);
}

static int replaces_big(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc;

	TRY(member_await(member, &room.counted, 1));
	TRY(reef_sleep(2 * SECOND));
	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	rc = replace_big(files, room.dies ? member->host : NULL);
	reef_files_close(files);
	return rc;
}

/* Each that counts has a session of its own, which keeps no memory. */
static int counts_before(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_count_room(space, CHUNK, &room.before));
	room.counted = 1;
	return 0;
}

static int counts_after(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	uint32_t after;

	TRY(member_await(member, &room.replaced, 1));
	TRY(reef_sleep(10 * SECOND));
	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	TRY(reef_files_sweep(files));
	reef_files_close(files);
	TRY(reef_sleep(5 * SECOND));
	TRY(member_count_room(space, CHUNK, &after));
	/* Chunks of the heap that have a few blocks in them stay. */
	WANT(room.before > 1000 && after + BIG_CHUNKS / 3 >= room.before);
	return 0;
}

static int run_room(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 300 * MILLISECOND,
		.extent_size = 4 * MIB,
		.capacity = 8 * MIB,
	};

	memset(&scene, 0, sizeof(scene));
	memset(&room, 0, sizeof(room));
	room.dies = seed % 2;
	pool_start(&pool, seed);
	pool_add(&pool, counts_before);
	pool_add(&pool, replaces_big);
	pool_add(&pool, counts_after);
	return pool_end(&pool);
}

static void file_replaced_gives_its_memory_back(void **state)
{
	assert_int_equal(run_room(2), 0);
	assert_int_equal(run_room(3), 0);
}

#if !SANITIZED
static bool is_found(enum reef_mutant mutant)
{
	return try_finds(mutant, run_calm, 60);
}

static void file_replace_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_HELD(REEF_MUTANT_NUMBER)};

	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++)
		if (!is_found(mutants[i]))
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_replaced_has_a_name_throughout),
		cmocka_unit_test(
			file_replaced_while_it_is_deleted_is_held_or_gone),
		cmocka_unit_test(file_replaced_in_doubt_is_found),
		cmocka_unit_test(file_replacer_dies_anywhere),
		cmocka_unit_test(file_replacer_dies_beside_another),
		cmocka_unit_test(file_replacer_dies_beside_a_delete),
		cmocka_unit_test(file_replaced_gives_its_memory_back),
#if !SANITIZED
		cmocka_unit_test(file_replace_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
