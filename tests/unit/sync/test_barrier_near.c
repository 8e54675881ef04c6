/* test_barrier_near.c - a barrier of real threads: messages through memory,
 * through sockets, and both (barrier_near.c). */
#include "fixture/local_pool.h"
#include "fixture/units.h"

#include <sched.h>
#include <stdatomic.h>

#include <reef/sync.h>

#define MEMBERS 4u

struct meeting {
	uint32_t rounds;
	const char *fabrics[MEMBERS]; /* NULL: whatever there is */
	bool fibers[MEMBERS];
	_Atomic uint64_t came[MEMBERS];
	_Atomic uint32_t early; /* passed before all had come */
};

struct guest {
	struct meeting *meeting;
	uint32_t index;
	pthread_t thread;
	int rc;
};

/* Now and then somebody is late, so that the others sleep. */
static void dawdle(const struct guest *guest, uint64_t round)
{
	if ((round * 7 + guest->index * 13) % 64)
		return;
	for (uint32_t i = 0; i < 500; i++)
		sched_yield();
}

static int take_part(struct guest *guest, struct reef_barrier *barrier)
{
	struct meeting *meeting = guest->meeting;
	int rc = 0;

	for (uint64_t round = 1; !rc && round <= meeting->rounds; round++) {
		dawdle(guest, round);
		atomic_store(&meeting->came[guest->index], round);
		rc = reef_barrier_wait(barrier, 60 * SECOND, NULL);
		for (uint32_t i = 0; !rc && i < MEMBERS; i++)
			if (atomic_load(&meeting->came[i]) < round)
				atomic_fetch_add(&meeting->early, 1);
	}
	return rc;
}

static int guest_script(void *arg)
{
	struct guest *guest = arg;
	struct meeting *meeting = guest->meeting;
	struct reef_options options = {
		.fabrics = meeting->fabrics[guest->index],
	};
	struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_barrier *barrier = NULL;
	struct reef_space *space;
	struct reef *reef;

	guest->rc = reef_open("local", &options, &reef);
	if (guest->rc)
		return guest->rc;
	guest->rc = reef_space_open(reef, "s", &create, &space);
	if (!guest->rc)
		guest->rc =
			reef_barrier_open(space, "b", NULL, MEMBERS, &barrier);
	if (!guest->rc)
		guest->rc = take_part(guest, barrier);
	reef_barrier_close(barrier);
	reef_close(reef);
	return guest->rc;
}

static void *guest_main(void *arg)
{
	struct guest *guest = arg;
	struct reef_sched *sched;

	if (!guest->meeting->fibers[guest->index]) {
		guest_script(guest);
		return NULL;
	}
	guest->rc = reef_sched_create(NULL, &sched);
	if (guest->rc)
		return NULL;
	guest->rc = reef_fiber_spawn(sched, guest_script, guest, NULL);
	if (!guest->rc)
		reef_sched_run(sched);
	reef_sched_destroy(sched);
	return NULL;
}

static void meet(struct meeting *meeting)
{
	struct guest guests[MEMBERS];
	struct server server;

	server_start(&server);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		guests[i] = (struct guest){.meeting = meeting, .index = i};
		assert_int_equal(pthread_create(&guests[i].thread, NULL,
						guest_main, &guests[i]),
				 0);
	}
	for (uint32_t i = 0; i < MEMBERS; i++)
		pthread_join(guests[i].thread, NULL);
	server_stop(&server);
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_int_equal(guests[i].rc, 0);
	assert_int_equal(meeting->early, 0);
}

static void barrier_of_those_who_are_near_lets_nobody_pass_early(void **state)
{
	struct meeting meeting = {.rounds = 3000};

	meet(&meeting);
}

static void barrier_of_near_and_far_lets_nobody_pass_early(void **state)
{
	struct meeting meeting = {
		.rounds = 500,
		.fabrics = {NULL, "tcp", NULL, NULL},
		.fibers = {false, false, true, false},
	};

	meet(&meeting);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			barrier_of_those_who_are_near_lets_nobody_pass_early,
			scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			barrier_of_near_and_far_lets_nobody_pass_early,
			scratch_make, scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
