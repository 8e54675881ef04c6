/* test_file_apart.c - files of which one kind of memory is lost, and the others
 * are not: names, inode, index block, chunk; with one copy of each.
 *
 * A node dies. Blocks lie on both nodes as chance has it: which of a file's are
 * lost is asked for, and what its calls must return follows from that.
 *
 * (1) Each call returns 0, its count or -REEF_ELOST; what is left is as before.
 * (2) A file of which something is lost can be deleted, and its name is free.
 * (3) When all are deleted, all memory that is left is free.
 * (4) Nor does it hold anything up if a client dies in a rename meanwhile, and
 *     the intent is lost, too. */
#include "fixture/pool_world.h"

#include "file/layout.h"

#include <reef/folder.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 16384u
#define FILES 24u
#define CAPACITY (64 * MIB) /* of a node */
#define HELD_EVERY 4u	    /* one of so many has no name */
#define BULK (24 * CHUNK)   /* that is missed if it does not come back */
#define FAR (100 * (uint64_t)CHUNK)
#define SIZE (FAR + 8)

static const struct reef_file_id root;

enum part { INODE, INDEX, NEAR_CHUNK, FAR_CHUNK, PARTS };

struct one {
	char name[16];
	struct reef_file_id id;
	struct reef_file *file;
	uint64_t ticket;
	uint64_t at[PARTS];
	bool is_lost[PARTS];
};

/* How often a part was lost of a file that had all others; PARTS: names. */
static uint32_t alone[PARTS + 1];

#define TAKEN_MAX 20000u
static struct {
	struct one files[FILES];
	uint64_t blocks[TAKEN_MAX]; /* that nobody uses */
	uint32_t taken;
	uint32_t room, counted, made, deleted, ended, session;
} scene;

static int refused(ssize_t rc, bool is_lost, ssize_t wanted)
{
	if (is_lost)
		wanted = -REEF_ELOST;
	if (rc == wanted)
		return 0;
	if (!try_quiet)
		print_message("%zd, not %zd\n", rc, wanted);
	return -EXDEV;
}

/* --- before --- */

/* Now and then take blocks of a part's size until they lie in another extent,
 * where the part comes to lie then. */
static int go_on(struct member *member, struct reef_space *space,
		 enum part part)
{
	static const uint64_t sizes[] = {sizeof(struct file_inode),
					 FILE_PART + 8 * FILE_INDEX_WORDS,
					 FILE_PART + CHUNK, FILE_PART + CHUNK};
	uint64_t first = 0, block;

	if (!reef_random_chance(reef_sim_random(member->pool->sim), 1, 3))
		return 0;
	do {
		WANT(scene.taken < TAKEN_MAX);
		TRY(reef_alloc(space, sizes[part], &block));
		scene.blocks[scene.taken++] = block;
		first = first ? first : block;
	} while (block >> 32 == first >> 32);
	return 0;
}

static int give_back(struct reef_space *space)
{
	int rc = 0;

	while (!rc && scene.taken)
		rc = reef_free(space, scene.blocks[--scene.taken], 0);
	return rc;
}

/* Where a file's blocks are. */
static int find_parts(struct member *member, struct reef_space *space,
		      struct one *one)
{
	const uint64_t words[] = {offsetof(struct file_inode, indexes),
				  offsetof(struct file_inode, direct)};
	uint64_t word;

	one->at[INODE] = one->id.at;
	for (uint32_t i = 0; i < 2; i++) {
		TRY(reef_read(member->reef, one->id.at + words[i], &word, 8));
		TRY(reef_long_address(space, file_word_block(word),
				      &one->at[INDEX + i]));
	}
	TRY(reef_read(member->reef,
		      one->at[INDEX] + FILE_PART +
			      8 * (FAR / CHUNK - FILE_DIRECT),
		      &word, 8));
	return reef_long_address(space, file_word_block(word),
				 &one->at[FAR_CHUNK]);
}

static int fill_one(struct member *member, struct reef_space *space,
		    struct reef_file *file, uint64_t number)
{
	static const char bulk[BULK];

	TRY(go_on(member, space, NEAR_CHUNK));
	WANT(reef_file_pwrite(file, &number, 8, 0) == 8);
	WANT(reef_file_pwrite(file, bulk, BULK, 4 * CHUNK) == BULK);
	TRY(go_on(member, space, FAR_CHUNK));
	TRY(go_on(member, space, INDEX));
	WANT(reef_file_pwrite(file, &number, 8, FAR) == 8);
	return 0;
}

static int make_one(struct member *member, struct reef_space *space,
		    struct reef_files *files, uint32_t i)
{
	const struct reef_file_about about = {.chunk = CHUNK};
	struct one *one = &scene.files[i];
	struct reef_file_about made;
	struct reef_file *file;
	uint64_t number = i;
	int rc;

	snprintf(one->name, sizeof(one->name), "f%u", i);
	TRY(go_on(member, space, INODE));
	TRY(reef_files_make(files, root, one->name, &about, &made));
	one->id = made.id;
	TRY(reef_files_open_file(files, made.id, &file));
	rc = fill_one(member, space, file, number);
	reef_file_close(file);
	return rc ? rc : find_parts(member, space, one);
}

static int makes(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc = 0;

	TRY(member_await(member, &scene.counted, 1));
	TRY(reef_sleep(2 * SECOND));
	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	for (uint32_t i = 0; !rc && i < FILES; i++)
		rc = make_one(member, space, files, i);
	if (!rc)
		rc = give_back(space);
	reef_files_close(files);
	scene.session = reef_session(member->reef);
	scene.made = 1;
	return rc;
}

/* --- after --- */

static int see_parts(struct member *member, struct one *one)
{
	uint32_t lost = 0, last = 0;
	uint64_t word;
	int rc;

	for (uint32_t i = 0; i < PARTS; i++) {
		rc = reef_read(member->reef, one->at[i], &word, 8);
		WANT(rc == 0 || rc == -REEF_ELOST);
		one->is_lost[i] = rc;
		lost += !!rc;
		last = rc ? i : last;
	}
	if (lost == 1)
		alone[last]++;
	return 0;
}

/* What a handle that was open before remembers it may use. */
static int use_open(struct one *one, uint32_t i)
{
	const uint64_t at[] = {0, FAR};
	const uint64_t value = i;
	uint64_t number;
	ssize_t rc;

	for (uint32_t k = 0; k < 2; k++) {
		rc = reef_file_pread(one->file, &number, 8, at[k]);
		WANT(rc == -REEF_ELOST || (rc == 8 && number == i));
		WANT(rc < 0 || !one->is_lost[NEAR_CHUNK + k]);
		rc = reef_file_pwrite(one->file, &value, 8, at[k]);
		WANT(rc == 8 || rc == -REEF_ELOST);
		WANT(rc < 0 || !one->is_lost[NEAR_CHUNK + k]);
	}
	rc = reef_file_sync(one->file);
	return refused(rc, one->is_lost[INODE], 0);
}

/* Every call by a handle that remembers nothing, of a file with an inode. */
static int use_one(const struct one *one, struct reef_file *file, uint32_t i)
{
	bool index = one->is_lost[INDEX], near = one->is_lost[NEAR_CHUNK],
	     far = index || one->is_lost[FAR_CHUNK];
	uint64_t number = 0, from, to, size;
	struct reef_file_info info;

	TRY(refused(reef_file_pread(file, &number, 8, 0), near, 8));
	WANT(near || number == i);
	TRY(refused(reef_file_pread(file, &number, 8, FAR), far, 8));
	WANT(far || number == i);
	/* A hole between them, and behind the last. */
	TRY(refused(reef_file_pread(file, &number, 8, CHUNK), false, 8));
	WANT(number == 0);
	number = i;
	TRY(refused(reef_file_pwrite(file, &number, 8, 0), near, 8));
	TRY(refused(reef_file_pwrite(file, &number, 8, FAR), far, 8));
	TRY(refused(reef_file_pwrite(file, &number, 8, CHUNK), false, 8));
	TRY(refused(reef_file_append(file, &number, 8, NULL), far, 8));
	TRY(refused(reef_file_size(file, &size), false, 0));
	TRY(refused(reef_file_sync(file), false, 0));
	TRY(refused(reef_file_stat(file, &info), index, 0));
	TRY(refused(reef_file_find_data(file, FAR / 2, &from, &to), index, 0));
	/* A chunk that is lost can be punched out, or cut off. */
	TRY(refused(reef_file_punch(file, 0, CHUNK), false, 0));
	TRY(refused(reef_file_pread(file, &number, 8, 0), false, 8));
	WANT(number == 0);
	TRY(refused(reef_file_truncate(file, 10), index, 0));
	TRY(refused(reef_file_pwrite(file, &number, 8, 0), false, 8));
	TRY(refused(reef_file_extend(file, SIZE), index, 0));
	return 0;
}

/* Calls by its id. */
static int number_one(struct reef_files *files, struct one *one)
{
	const struct reef_file_about mode = {.mode = 0600};
	struct reef_file_about about;
	bool lost = one->is_lost[INODE];
	struct reef_file *file;
	int rc;

	TRY(refused(reef_files_about(files, one->id, &about), lost, 0));
	TRY(refused(reef_files_set(files, one->id, REEF_FILES_MODE, &mode),
		    lost, 0));
	rc = reef_files_open_file(files, one->id, &file);
	TRY(refused(rc, lost, 0));
	if (!rc) {
		rc = use_one(one, file, (uint32_t)(one - scene.files));
		reef_file_close(file);
	}
	TRY(lost ? 0 : rc);
	return 0;
}

/* Calls by its name. */
static int name_one(struct reef_space *space, struct reef_files *files,
		    struct one *one)
{
	const struct reef_file_about mode = {.mode = 0600};
	struct reef_file_about about;
	bool lost = one->is_lost[INODE];
	struct reef_file *file;
	int rc;

	if (one->ticket)
		return 0;
	TRY(refused(reef_files_look(files, root, one->name, &about), lost, 0));
	rc = reef_file_open(space, one->name, NULL, &file);
	TRY(refused(rc, lost, 0));
	if (!rc)
		reef_file_close(file);
	TRY(refused(reef_files_make(files, root, one->name, &mode, &about),
		    lost, -EEXIST));
	TRY(refused(reef_file_rename(space, one->name, "moved", 0), lost, 0));
	if (!lost)
		TRY(reef_file_rename(space, "moved", one->name, 0));
	return 0;
}

/* (2) */
static int delete_one(struct reef_space *space, struct reef_files *files,
		      struct one *one)
{
	struct reef_file_id former;
	struct reef_file_about about;
	uint64_t ticket;

	if (one->ticket) {
		TRY(reef_files_let_go(files, one->ticket));
		WANT_RC(reef_files_let_go(files, one->ticket), -ENOENT);
	} else if (one->is_lost[INODE] && one->id.number % 2) {
		/* Another may take its place. */
		about = (struct reef_file_about){.chunk = CHUNK};
		TRY(reef_files_make(files, root, "new", &about, &about));
		WANT_RC(reef_files_rename(files, root, "new", root, one->name,
					  REEF_FILE_NOREPLACE),
			-REEF_ELOST);
		TRY(reef_files_replace(files, root, "new", root, one->name,
				       &ticket, &former));
		WANT(!ticket);
		TRY(reef_files_look(files, root, one->name, &about));
		TRY(reef_files_delete(files, root, one->name));
	} else {
		TRY(reef_files_delete(files, root, one->name));
		WANT_RC(reef_files_look(files, root, one->name, &about),
			-ENOENT);
	}
	/* The name is as any other. */
	about = (struct reef_file_about){.chunk = CHUNK};
	TRY(reef_files_make(files, root, one->name, &about, &about));
	TRY(reef_files_make(files, root, "new", &about, &about));
	TRY(reef_files_replace(files, root, "new", root, one->name, &ticket,
			       &former));
	TRY(reef_files_let_go(files, ticket));
	return reef_file_delete(space, one->name);
}

static int count_name(void *context, const char *name,
		      const struct reef_file_about *about)
{
	++*(uint32_t *)context;
	return 0;
}

/* Names that are lost, of which it is said so. */
static int without_names(struct reef_space *space, struct reef_files *files)
{
	const struct reef_file_about wish = {.chunk = CHUNK};
	struct reef_file_about about;
	struct reef_file *file;
	uint64_t ticket;

	alone[PARTS]++;
	for (uint32_t i = 1; i < FILES; i++) {
		const char *name = scene.files[i].name;
		int rc = reef_files_look(files, root, name, &about);

		if (rc != -REEF_ELOST ||
		    reef_files_about(files, scene.files[i].id, &about) ==
			    -REEF_ELOST)
			continue;
		WANT_RC(reef_files_make(files, root, name, &wish, &about), rc);
		WANT_RC(reef_files_delete(files, root, name), rc);
		WANT_RC(reef_files_hold(files, root, name, &ticket), rc);
		WANT_RC(reef_files_rename(files, root, name, root, "x", 0), rc);
		WANT_RC(reef_files_remove_folder(files, root, name), rc);
		WANT_RC(reef_file_open(space, name, NULL, &file), rc);
		WANT_RC(reef_file_delete(space, name), rc);
		break;
	}
	return 0;
}

static int close_all(struct member *member, struct reef_space *space,
		     struct reef_files *files, bool has_names)
{
	struct one *one;

	for (uint32_t i = 0; i < FILES; i++) {
		one = &scene.files[i];
		TRY(see_parts(member, one));
		TRY(use_open(one, i));
		TRY(number_one(files, one));
		if (has_names)
			TRY(name_one(space, files, one));
		if (has_names)
			TRY(delete_one(space, files, one));
		reef_file_close(one->file);
		one->file = NULL;
	}
	return 0;
}

static int open_one(struct reef_files *files, struct one *one, uint32_t i)
{
	uint64_t number;

	TRY(reef_files_open_file(files, one->id, &one->file));
	WANT(reef_file_pread(one->file, &number, 8, i % 2 ? 0 : FAR) == 8);
	if (i % HELD_EVERY == 0)
		TRY(reef_files_hold(files, root, one->name, &one->ticket));
	return 0;
}

static int lose_and_use(struct member *member, struct reef_space *space,
			struct reef_files *files)
{
	struct pool *pool = member->pool;
	uint32_t count = 0;
	int rc;

	for (uint32_t i = 0; i < FILES; i++)
		TRY(open_one(files, &scene.files[i], i));
	reef_sim_host_kill(pool->lenders[pool->seed % 2].host);
	TRY(reef_sleep(10 * SECOND));
	rc = reef_files_list(files, root, NULL, count_name, &count);
	WANT(rc == -REEF_ELOST || (!rc && count == FILES * 3 / 4));
	if (rc)
		TRY(without_names(space, files));
	TRY(close_all(member, space, files, !rc));
	scene.deleted = rc ? 0 : 1;
	return 0;
}

static int loses(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	bool has = true;
	int rc;

	/* Who made them is long gone. */
	TRY(member_await(member, &scene.made, 1));
	TRY(member_space(member, &space));
	for (uint32_t i = 0; has && i < 1000; i++) {
		TRY(reef_sleep(10 * MILLISECOND));
		TRY(member_has_session(member, scene.session, &has));
	}
	WANT(!has);
	TRY(reef_files_open(space, &files));
	rc = lose_and_use(member, space, files);
	for (uint32_t i = 0; i < FILES; i++)
		reef_file_close(scene.files[i].file);
	reef_files_close(files);
	scene.ended = 1;
	return rc;
}

/* (3) Half of what there was before, as one of two nodes is gone; where names
 * are lost, files can not be deleted. */
static int counts_after(struct member *member)
{
	struct reef_space *space;
	uint32_t room;

	TRY(member_await(member, &scene.ended, 1));
	TRY(reef_sleep(20 * SECOND));
	TRY(member_space(member, &space));
	TRY(member_count_room(space, CHUNK, &room));
	/* Up to three MiB have some other block in them, and so stay. */
	WANT(!scene.deleted || room + 3 * MIB / CHUNK >= scene.room / 2);
	return 0;
}

static int counts_before(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_count_room(space, CHUNK, &scene.room));
	scene.counted = 1;
	return 0;
}

static int run(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.extent_size = 2 * MIB,
		.capacity = CAPACITY,
		.witnesses = 1,
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, counts_before);
	pool_add(&pool, makes);
	pool_add(&pool, loses);
	pool_add(&pool, counts_after);
	return pool_end(&pool);
}

static void file_parts_that_are_lost_are_told_of(void **state)
{
	uint64_t seed, count = seeds_of(12, 400);

	memset(alone, 0, sizeof(alone));
	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run(seed), 0);
	print_message("lost alone: inode %u, index %u, chunks %u and %u, "
		      "names %u\n",
		      alone[0], alone[1], alone[2], alone[3], alone[4]);
	/* A sanitizer has too few seeds for all of them. */
	for (uint32_t i = 0; i <= PARTS && !SANITIZED; i++)
		assert_true(alone[i] || seeds_first() > 1);
}

/* --- (4) --- */

static struct {
	uint32_t seen, ready, posts, strike, session;
	bool is_struck, is_over;
	uint32_t count;
	struct reef_file_id made[3];
	uint32_t lost, undone, done; /* how "t" was found */
} dying;

static int put_apart(struct member *member, struct reef_space *space,
		     struct reef_files *files, const char *name)
{
	const struct reef_file_about about = {.chunk = CHUNK};
	struct reef_file_about made;

	TRY(go_on(member, space, INODE));
	TRY(reef_files_make(files, root, name, &about, &made));
	dying.made[dying.count++] = made.id;
	return 0;
}

static int replace_and_die(struct member *member, struct reef_space *space,
			   struct reef_files *files)
{
	struct reef_file_id former;
	uint64_t ticket;

	TRY(put_apart(member, space, files, "t"));
	TRY(put_apart(member, space, files, "other"));
	TRY(put_apart(member, space, files, "a"));
	TRY(give_back(space));
	TRY(member_await(member, &dying.seen, 1));
	dying.session = reef_session(member->reef);
	dying.ready = 1;
	TRY(reef_files_replace(files, root, "a", root, "t", &ticket, &former));
	return reef_files_let_go(files, ticket);
}

static int replaces(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	rc = replace_and_die(member, space, files);
	reef_files_close(files);
	dying.is_over = true;
	return rc;
}

static void strike(struct member *member, bool is_posted)
{
	struct pool *pool = member->pool;

	if (member->number != 1 || !dying.ready || dying.is_over ||
	    ++dying.posts != dying.strike)
		return;
	dying.is_struck = true;
	reef_sim_host_kill(pool->lenders[pool->seed % 2].host);
	reef_sim_host_kill(member->host);
}

/* Whatever a name is, it can be deleted, and used again. */
static int use_again(struct reef_files *files, const char *name)
{
	const struct reef_file_about wish = {.chunk = CHUNK};
	struct reef_file_about about;
	int rc = reef_files_look(files, root, name, &about);

	WANT(rc == 0 || rc == -ENOENT || rc == -REEF_ELOST);
	dying.lost += rc == -REEF_ELOST;
	TRY(rc == -ENOENT ? 0 : reef_files_delete(files, root, name));
	WANT_RC(reef_files_look(files, root, name, &about), -ENOENT);
	TRY(reef_files_make(files, root, name, &wish, &about));
	return reef_files_delete(files, root, name);
}

static int see_names(struct reef_files *files)
{
	struct reef_file_about about;
	uint32_t count = 0;
	int t, a, rc = reef_files_list(files, root, NULL, count_name, &count);

	if (rc) {
		WANT(rc == -REEF_ELOST);
		WANT_RC(reef_files_sweep(files), -REEF_ELOST);
		return 0;
	}
	t = reef_files_look(files, root, "t", &about);
	a = reef_files_look(files, root, "a", &about);
	WANT(t == 0 || t == -REEF_ELOST);
	dying.undone += !t && !a;
	dying.done += !t && a == -ENOENT;
	TRY(reef_files_sweep(files));
	TRY(use_again(files, "t"));
	TRY(use_again(files, "a"));
	TRY(use_again(files, "other"));
	/* Nothing is there without a name. */
	for (uint32_t i = 0; i < 3; i++) {
		rc = reef_files_about(files, dying.made[i], &about);
		WANT(rc == -ENOENT || rc == -REEF_ELOST);
	}
	return 0;
}

static int sees_names(struct member *member)
{
	struct reef_files *files;
	struct reef_space *space;
	bool has = true;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	dying.seen = 1;
	while (!dying.is_struck && !dying.is_over)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(15 * SECOND));
	/* Its session is recovered, whatever is lost. */
	rc = member_has_session(member, dying.session, &has);
	if (!rc)
		rc = see_names(files);
	reef_files_close(files);
	TRY(rc);
	WANT(!has);
	return 0;
}

static int run_dying(uint64_t seed, uint32_t at)
{
	struct pool pool = {
		.ttl_ns = 300 * MILLISECOND,
		.extent_size = 2 * MIB,
		.capacity = CAPACITY,
		.witnesses = 1,
		.posts = strike,
	};

	memset(&scene, 0, sizeof(scene));
	dying.seen = dying.ready = dying.posts = dying.count = 0;
	dying.is_struck = dying.is_over = false;
	dying.strike = at;
	pool_start(&pool, seed);
	pool_add(&pool, replaces);
	pool_add(&pool, sees_names);
	return pool_end(&pool);
}

/* At every post of the rename, with either node. */
static void file_rename_whose_memory_is_lost_holds_nothing_up(void **state)
{
	uint32_t at = 1;

	memset(&dying, 0, sizeof(dying));
	do {
		assert_int_equal(run_dying(2 * at, at), 0);
		assert_int_equal(run_dying(2 * at + 1, at), 0);
	} while ((at += STRIKE_STEP) < 200 && dying.is_struck);
	print_message("lost %u, done %u, not done %u\n", dying.lost, dying.done,
		      dying.undone);
	assert_true(SANITIZED || (dying.lost && dying.done && dying.undone));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_parts_that_are_lost_are_told_of),
		cmocka_unit_test(
			file_rename_whose_memory_is_lost_holds_nothing_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
