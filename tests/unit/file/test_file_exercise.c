/* test_file_exercise.c - the exerciser of files (check/exercise.h) in simulated
 * pools: two clients take turns on the same files, so that what each remembers
 * is out of date, while clients die or stand still at any operation, links
 * fall, and, with copies, nodes die. */
#include "check/exercise_reef.h"
#include "fixture/pool_world.h"

#include <stdlib.h>
#include <string.h>

#define CALLS 200u
#define TURN_MAX 12u
/* Until whoever died is fenced, and what it left is recovered. */
#define AFTERLIFE (8 * SECOND)

enum blow { NO_BLOW, KILLED, STOPPED };

static struct scene {
	struct exercise exercise, model;
	uint32_t turn; /* which member's */
	enum blow blow;
	uint32_t strike, posts; /* the first member is struck at that post */
	bool is_struck, is_over;
	uint64_t node_dies_at; /* at that call; 0: never */
	uint32_t node;
	uint32_t ended;
} * scene;

/* What whoever was struck thinks is wrong does not matter. */
static int tell(const struct member *member, int rc)
{
	if (rc == -EXDEV && !try_quiet &&
	    !(scene->is_struck && member->number == 1))
		print_message("%s\n", scene->exercise.error);
	return rc;
}

/* Some calls in a row. */
static int take_turn(struct member *member, struct exercise_reef *reef)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	uint64_t count = 1 + reef_random_below(random, TURN_MAX);
	struct exercise *exercise = &scene->exercise;

	while (count-- && exercise->number < CALLS) {
		if (scene->node_dies_at && !scene->is_over &&
		    exercise->number >= scene->node_dies_at) {
			scene->is_over = true;
			reef_sim_host_kill(
				member->pool->lenders[scene->node].host);
		}
		TRY(tell(member,
			 exercise_step(exercise, &exercise_reef_face, reef)));
	}
	return 0;
}

/* The member that has the next turn: the one that was struck has none. */
static uint32_t after(uint32_t number)
{
	if (scene->is_struck)
		return number == 2 ? 3 : 2;
	return number == 1 ? 2 : 1;
}

static int play(struct member *member)
{
	struct reef_space *space;
	struct exercise_reef reef = {.chunk = 4096};
	int rc;

	TRY(member_space(member, &space));
	reef.space = space;
	while (scene->exercise.number < CALLS) {
		if (scene->turn != member->number) {
			TRY(reef_sleep(MILLISECOND));
			continue;
		}
		rc = take_turn(member, &reef);
		/* Who was struck has no turns any more, whatever it thinks. */
		if (scene->is_struck && member->number == 1)
			break;
		TRY(rc);
		scene->turn = after(member->number);
	}
	exercise_reef_close(&reef);
	if (scene->turn == member->number) {
		reef.space = space;
		TRY(tell(member, exercise_check(&scene->exercise,
						&exercise_reef_face, &reef)));
		exercise_reef_close(&reef);
	}
	reef_space_close(space);
	return 0;
}

static int plays(struct member *member)
{
	int rc = play(member);

	scene->ended += member->number == 2;
	/* It is no failure of the test that it was fenced. */
	return scene->is_struck && member->number == 1 ? 0 : rc;
}

/* Take the place of the member that was struck, once it is fenced. */
static int succeeds(struct member *member)
{
	struct reef_space *space;
	struct exercise_reef reef = {.chunk = 4096};
	int rc;

	while (!scene->is_struck) {
		if (scene->exercise.number >= CALLS)
			return 0;
		TRY(reef_sleep(MILLISECOND));
	}
	TRY(reef_sleep(AFTERLIFE));
	TRY(member_space(member, &space));
	reef.space = space;
	do
		rc = exercise_settle(&scene->exercise, &exercise_reef_face,
				     &reef);
	while (rc && exercise_reef_face.judge(&reef, rc) == EXERCISE_DOUBT);
	TRY(tell(member, rc));
	scene->turn = member->number;
	TRY(play(member));
	/* One at a time looks at everything. */
	TRY(member_await(member, &scene->ended, 1));
	if (scene->blow == STOPPED) {
		/* Nothing of what was stopped happens any more, though it may
		 * think so. */
		scene->model = scene->exercise;
		reef_sim_host_resume(member->pool->members[0].host);
		TRY(reef_sleep(SECOND));
		scene->exercise = scene->model;
	}
	rc = exercise_check(&scene->exercise, &exercise_reef_face, &reef);
	exercise_reef_close(&reef);
	reef_space_close(space);
	return tell(member, rc);
}

static void strike(struct member *member, bool is_posted)
{
	if (member->number != 1 || !scene->blow || scene->is_struck ||
	    scene->turn != 1)
		return;
	if (++scene->posts < scene->strike)
		return;
	scene->is_struck = true;
	if (scene->blow == KILLED)
		reef_sim_host_kill(member->host);
	else
		reef_sim_host_pause(member->host);
}

static int run(uint64_t seed, struct pool pool, enum blow blow, bool node)
{
	struct pool world = pool;

	scene = calloc(1, sizeof(*scene));
	assert_non_null(scene);
	exercise_init(&scene->exercise, seed, &exercise_reef_face);
	scene->exercise.has_gaps = pool.lose_link_ppm || pool.copies > 1;
	scene->turn = 1;
	scene->blow = blow;
	scene->strike = 1 + (uint32_t)(seed * 37 % 700);
	if (node)
		scene->node_dies_at = 20 + seed * 13 % 100;
	scene->node = seed % NODES;
	world.posts = strike;
	pool_start(&world, seed);
	pool_add(&world, plays);
	pool_add(&world, plays);
	pool_add(&world, succeeds);
	return pool_end(&world);
}

static int end(int rc, uint64_t *doubts)
{
	*doubts += scene->exercise.doubts;
	free(scene);
	scene = NULL;
	return rc;
}

static int run_calm(uint64_t seed, uint64_t *doubts)
{
	return end(run(seed,
		       (struct pool){.ttl_ns = 60 * SECOND,
				     .extent_size = 16 * MIB},
		       NO_BLOW, false),
		   doubts);
}

static int run_lossy(uint64_t seed, uint64_t *doubts)
{
	return end(run(seed,
		       (struct pool){.ttl_ns = 60 * SECOND,
				     .extent_size = 16 * MIB,
				     .lose_link_ppm = 3000},
		       NO_BLOW, false),
		   doubts);
}

static int run_struck(uint64_t seed, uint64_t *doubts)
{
	return end(run(seed, (struct pool){.extent_size = 16 * MIB},
		       seed % 3 ? KILLED : STOPPED, false),
		   doubts);
}

static int run_copies(uint64_t seed, uint64_t *doubts)
{
	return end(run(seed,
		       (struct pool){.ttl_ns = 4 * SECOND,
				     .extent_size = 16 * MIB,
				     .copies = 2,
				     .witnesses = 2},
		       seed % 2 ? NO_BLOW : KILLED, true),
		   doubts);
}

static void run_all(int (*run_one)(uint64_t seed, uint64_t *doubts),
		    uint64_t few, bool wants_doubts)
{
	uint64_t seed, doubts = 0;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(few, 100 * few));
	     seed++)
		if (run_one(seed, &doubts))
			fail_msg("seed %llu", (unsigned long long)seed);
	/* The few seeds of a sanitizer's run may have none. */
	if (wants_doubts && !getenv("REEF_SEED") && !SANITIZED)
		assert_true(doubts);
}

static void file_exercise_agrees_with_its_model(void **state)
{
	run_all(run_calm, 12, false);
}

static void file_exercise_survives_lost_links(void **state)
{
	run_all(run_lossy, 12, false);
}

static void file_exercise_survives_dead_and_stopped_clients(void **state)
{
	run_all(run_struck, 24, true);
}

static void file_exercise_with_copies_survives_a_node(void **state)
{
	run_all(run_copies, 12, false);
}

/* --- a folder that is removed while a file is put into it --- */

static struct {
	struct reef_file_id folder;
	uint32_t round, removed, put; /* of that round */
	int removed_rc, put_rc;
} race;

#define ROUNDS 40u

static int removes(struct member *member)
{
	const struct reef_file_about wish = {.type = REEF_FILE_FOLDER};
	struct reef_file_about made;
	struct reef_space *space;
	struct reef_files *files;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		TRY(reef_files_make(files, (struct reef_file_id){0}, "d", &wish,
				    &made));
		race.folder = made.id;
		race.round = i;
		race.removed_rc = reef_files_remove_folder(
			files, (struct reef_file_id){0}, "d");
		race.removed = i;
		TRY(member_await(member, &race.put, i));
		WANT(race.removed_rc == 0 || race.removed_rc == -ENOTEMPTY);
		WANT(race.put_rc == (race.removed_rc ? 0 : -ENOENT));
		if (race.removed_rc) {
			TRY(reef_files_delete(files, race.folder, "f"));
			TRY(reef_files_remove_folder(
				files, (struct reef_file_id){0}, "d"));
		}
	}
	reef_files_close(files);
	return 0;
}

static int puts_inside(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	const struct reef_file_about wish = {0};
	struct reef_file_about made;
	struct reef_space *space;
	struct reef_files *files;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		while (race.round < i)
			TRY(reef_sleep(reef_random_below(random, 20000)));
		race.put_rc =
			reef_files_make(files, race.folder, "f", &wish, &made);
		race.put = i;
	}
	reef_files_close(files);
	return 0;
}

static int run_race(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .extent_size = 16 * MIB};

	memset(&race, 0, sizeof(race));
	pool_start(&pool, seed);
	pool_add(&pool, removes);
	pool_add(&pool, puts_inside);
	return pool_end(&pool);
}

static void folder_ends_or_has_a_file(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(10, 1000)); seed++)
		assert_int_equal(run_race(seed), 0);
}

/* --- mutants --- */

#if !SANITIZED
/* The mutants that show where one client uses what another has changed; those
 * that need two calls at once are found by test_file_sim.c. */
static void file_exercise_finds_mutants(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANT_FILE_OLD_TABLE, REEF_MUTANT_FILE_CUT_EARLY,
		REEF_MUTANTS_OF_FOLDER(REEF_MUTANT_NUMBER)};
	uint64_t seed, doubts;
	bool found;

	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		found = false;
		try_quiet = true;
		reef_mutate(mutants[i]);
		for (seed = 1; seed < 120 && !found; seed++)
			found = run_race(seed) || run_calm(seed, &doubts) ||
				run_struck(seed, &doubts);
		reef_mutate(REEF_MUTANT_NONE);
		try_quiet = false;
		if (!found)
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_exercise_agrees_with_its_model),
		cmocka_unit_test(file_exercise_survives_lost_links),
		cmocka_unit_test(
			file_exercise_survives_dead_and_stopped_clients),
		cmocka_unit_test(file_exercise_with_copies_survives_a_node),
		cmocka_unit_test(folder_ends_or_has_a_file),
#if !SANITIZED
		cmocka_unit_test(file_exercise_finds_mutants),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
