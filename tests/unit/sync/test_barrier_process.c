/* test_barrier_process.c - a barrier of real processes over shm; one of them is
 * killed. */
#include "fixture/local_pool.h"
#include "fixture/seeds.h"
#include "fixture/units.h"

#include <reef/sync.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 4u

struct shared { /* by all processes */
	_Atomic uint64_t came[MEMBERS];
	_Atomic uint32_t sessions[MEMBERS], told[MEMBERS];
	_Atomic uint32_t wrong;
	_Atomic bool dead; /* the last one was killed */
	uint32_t rounds;
	bool kills;
};

/* Exit status: 0, or the line that went wrong. */
#define MUST(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			atomic_store(&shared->wrong, __LINE__);                \
			return 1;                                              \
		}                                                              \
	} while (0)

static int meet(struct shared *shared, struct reef_barrier *barrier,
		uint32_t index, uint64_t round)
{
	uint32_t dead = 0;
	int rc;

	atomic_store(&shared->came[index], round);
	rc = reef_barrier_wait(barrier, 60 * SECOND, &dead);
	if (rc == -REEF_EMEMBER) {
		MUST(shared->kills);
		MUST(dead == atomic_load(&shared->sessions[MEMBERS - 1]));
		MUST(!atomic_fetch_add(&shared->told[index], 1));
		rc = reef_barrier_wait(barrier, 60 * SECOND, &dead);
	}
	MUST(!rc);
	for (uint32_t i = 0; i < MEMBERS; i++)
		MUST(atomic_load(&shared->came[i]) >= round ||
		     (i == MEMBERS - 1 && atomic_load(&shared->dead)));
	return 0;
}

/* One process; `go` is closed when there is a pool. */
static int take_part(struct shared *shared, uint32_t index, int go)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_barrier *barrier;
	struct reef_space *space;
	struct reef *reef;
	uint64_t round;
	char byte;

	MUST(read(go, &byte, 1) == 0);
	MUST(!reef_open("local", NULL, &reef));
	atomic_store(&shared->sessions[index], reef_session(reef));
	MUST(!reef_space_open(reef, "space", &create, &space));
	MUST(!reef_barrier_open(space, "barrier", NULL, MEMBERS, &barrier));
	for (round = 1; round <= shared->rounds; round++) {
		/* In the middle of it, and not in a round. */
		if (shared->kills && index == MEMBERS - 1 &&
		    round == shared->rounds / 2)
			raise(SIGSTOP);
		if (meet(shared, barrier, index, round))
			return 1;
	}
	MUST(reef_barrier_round(barrier) == shared->rounds);
	/* Who is quicker may have left by now. */
	MUST(reef_barrier_members(barrier) <= MEMBERS - shared->kills);
	MUST(!reef_barrier_leave(barrier, 60 * SECOND));
	reef_barrier_close(barrier);
	reef_close(reef);
	return 0;
}

/* It has stopped: kill it. */
static void kill_last(struct shared *shared, pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	atomic_store(&shared->dead, true);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
}

static void run(uint32_t rounds, bool kills)
{
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct server server;
	pid_t children[MEMBERS];
	int go[2], status;
	uint32_t i;

	assert_true(shared != MAP_FAILED);
	shared->rounds = rounds;
	shared->kills = kills;
	assert_int_equal(pipe(go), 0);
	/* Before there is a thread. */
	setenv("REEF_RUN", scratch_path("run"), 1);
	for (i = 0; i < MEMBERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (!children[i]) {
			close(go[1]);
			_exit(take_part(shared, i, go[0]));
		}
	}
	close(go[0]);
	server_start(&server);
	close(go[1]);
	if (kills)
		kill_last(shared, children[MEMBERS - 1]);
	for (i = 0; i < MEMBERS - kills; i++) {
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_true(WIFEXITED(status));
	}
	server_stop(&server);
	assert_int_equal(atomic_load(&shared->wrong), 0);
	for (i = 0; i < MEMBERS - kills; i++)
		assert_int_equal(shared->told[i], kills);
	munmap(shared, sizeof(*shared));
}

static void barrier_of_processes_lets_nobody_pass_early(void **state)
{
	run(seeds_of(2000, 100000), false);
}

static void barrier_of_processes_one_killed_others_go_on(void **state)
{
	uint32_t i;

	for (i = 0; i < seeds_of(2, 50); i++)
		run(100 + i, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			barrier_of_processes_lets_nobody_pass_early,
			scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			barrier_of_processes_one_killed_others_go_on,
			scratch_make, scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
