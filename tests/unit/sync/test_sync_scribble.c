/* test_sync_scribble.c - R10: locks, barriers, leases, elections, sequencers
 * and clocks whose memory anybody may have written to, and inboxes.
 *
 * One word of an object at a time gets a bad value, while a participant has it
 * open; then it is used, by that one and by a new one. Errors are fine. Nothing
 * may crash, and every call returns. */
#include "fixture/local_pool.h"
#include "fixture/seeds.h"

#include "base/checksum.h"
#include "base/random.h"
#include "object/object.h"
#include "pool/client/inbox/block.h"
#include "pool/client/inbox/inbox.h"

#include <reef/sync.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BRIEFLY_NS UINT64_C(2000000)
#define WORDS_MAX 256u
#define STUCK 100 /* seconds, for one word */

struct scene {
	struct server server;
	struct reef *reef;
	struct reef_space *space;
	struct reef_random random;
};

/* A kind of object: open it, use a participant (NULL: a new one). */
struct thing {
	void *(*open)(struct reef_space *space, uint32_t flavour);
	void (*use)(void *participant);
	void (*close)(void *participant);
	int (*drop)(struct reef_space *space, const char *name);
	uint32_t flavours;
};

static void *lock_open(struct reef_space *space, uint32_t flavour)
{
	const struct reef_lock_options options = {
		.kind = (enum reef_lock_kind)flavour,
	};
	struct reef_lock *lock;

	return reef_lock_open(space, "x", &options, &lock) ? NULL : lock;
}

static void lock_use(void *participant)
{
	struct reef_lock_info info;

	reef_lock_look(participant, &info);
	if (reef_lock_take(participant, REEF_LOCK_EXCLUSIVE, BRIEFLY_NS) >= 0)
		reef_lock_give(participant);
	if (reef_lock_take(participant, REEF_LOCK_SHARED, BRIEFLY_NS) >= 0)
		reef_lock_give(participant);
}

static void lock_close(void *participant)
{
	reef_lock_close(participant);
}

static void *barrier_open(struct reef_space *space, uint32_t flavour)
{
	struct reef_barrier *barrier;

	(void)flavour;
	return reef_barrier_open(space, "x", NULL, 1, &barrier) ? NULL
								: barrier;
}

static void barrier_use(void *participant)
{
	uint32_t dead;

	for (int i = 0; i < 3; i++)
		reef_barrier_wait(participant, BRIEFLY_NS, &dead);
}

static void barrier_close(void *participant)
{
	reef_barrier_close(participant);
}

static void *lease_open(struct reef_space *space, uint32_t flavour)
{
	const struct reef_lease_options options = {
		.duration_ns = flavour ? UINT64_C(1000000000) : 0,
	};
	struct reef_lease *lease;

	return reef_lease_open(space, "x", &options, &lease) ? NULL : lease;
}

static void lease_use(void *participant)
{
	struct reef_lease_info info;
	uint64_t token;

	reef_lease_look(participant, &info);
	if (!reef_lease_take(participant, BRIEFLY_NS, &token)) {
		reef_lease_renew(participant);
		reef_lease_give(participant);
	}
}

static void lease_close(void *participant)
{
	reef_lease_close(participant);
}

static void *election_open(struct reef_space *space, uint32_t flavour)
{
	struct reef_election *election;

	(void)flavour;
	return reef_election_open(space, "x", 0, "me", &election) ? NULL
								  : election;
}

static void election_use(void *participant)
{
	struct reef_lease_info info = {0};
	uint64_t term;

	reef_election_look(participant, &info);
	if (!reef_election_win(participant, BRIEFLY_NS, &term)) {
		reef_election_check(participant);
		reef_election_watch(participant, &info, BRIEFLY_NS, &info);
		reef_election_resign(participant);
	}
	reef_election_watch(participant, &info, BRIEFLY_NS, &info);
}

static void election_close(void *participant)
{
	reef_election_close(participant);
}

static void *sequencer_open(struct reef_space *space, uint32_t flavour)
{
	struct reef_sequencer *sequencer;

	(void)flavour;
	return reef_sequencer_open(space, "x", 0, &sequencer) ? NULL
							      : sequencer;
}

static void sequencer_use(void *participant)
{
	uint64_t first;

	reef_sequencer_next(participant, 3, &first);
}

static void sequencer_close(void *participant)
{
	reef_sequencer_close(participant);
}

static void *clock_open(struct reef_space *space, uint32_t flavour)
{
	struct reef_clock *clock;

	(void)flavour;
	return reef_clock_open(space, "x", 0, &clock) ? NULL : clock;
}

static void clock_use(void *participant)
{
	uint64_t now;

	reef_clock_next(participant, 3, &now);
	reef_clock_read(participant, &now);
}

static void clock_close(void *participant)
{
	reef_clock_close(participant);
}

static const struct thing things[] = {
	{lock_open, lock_use, lock_close, reef_lock_drop, REEF_LOCK_KINDS},
	{barrier_open, barrier_use, barrier_close, reef_barrier_drop, 1},
	{lease_open, lease_use, lease_close, reef_lease_drop, 2},
	{election_open, election_use, election_close, reef_election_drop, 1},
	{sequencer_open, sequencer_use, sequencer_close, reef_sequencer_drop,
	 1},
	{clock_open, clock_use, clock_close, reef_clock_drop, 1},
};

static uint64_t bad_value(struct scene *scene, uint64_t was)
{
	switch (reef_random_below(&scene->random, 5)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return reef_random_next(&scene->random);
	case 3:
		return was + 1;
	default:
		return was ^ UINT64_C(1)
				     << reef_random_below(&scene->random, 64);
	}
}

/* Scribble over one word of the object that "x" is. Its body is met more often
 * than its header, the first words of it most often. */
static void scribble(struct scene *scene)
{
	struct object_header header;
	uint64_t block, words, at, word;

	assert_int_equal(reef_name_lookup(scene->space, "x", &block, NULL), 0);
	assert_int_equal(reef_read(scene->reef, block, &header, sizeof(header)),
			 0);
	words = header.body_size / 8;
	words = words < WORDS_MAX ? words : WORDS_MAX;
	if (words > 24 && reef_random_below(&scene->random, 2))
		words = 24;
	at = block + OBJECT_BODY + 8 * reef_random_below(&scene->random, words);
	if (!reef_random_below(&scene->random, 8))
		at = block +
		     8 * reef_random_below(&scene->random, sizeof(header) / 8);
	assert_int_equal(reef_read(scene->reef, at, &word, 8), 0);
	word = bad_value(scene, word);
	assert_int_equal(reef_write(scene->reef, at, &word, 8), 0);
}

static void try_thing(struct scene *scene, const struct thing *thing,
		      uint32_t flavour)
{
	void *first = thing->open(scene->space, flavour), *second;

	assert_non_null(first);
	thing->use(first);
	scribble(scene);
	alarm(STUCK);
	thing->use(first);
	second = thing->open(scene->space, flavour);
	if (second) {
		thing->use(second);
		thing->close(second);
	}
	thing->close(first);
	if (thing->drop(scene->space, "x"))
		reef_name_unbind(scene->space, "x", 0);
	alarm(0);
}

static void sync_scribbled_words_are_errors(void **state)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	static struct scene scene;
	uint64_t seed;

	(void)state;
	server_start(&scene.server);
	assert_int_equal(reef_open("local", NULL, &scene.reef), 0);
	assert_int_equal(
		reef_space_open(scene.reef, "s", &create, &scene.space), 0);
	for (seed = seeds_first(); seeds_has(seed, seeds_of(6, 500)); seed++) {
		reef_random_init(&scene.random, seed);
		for (uint32_t i = 0; i < sizeof(things) / sizeof(things[0]);
		     i++)
			try_thing(&scene, &things[i],
				  (uint32_t)reef_random_below(
					  &scene.random, things[i].flavours));
	}
	reef_close(scene.reef);
	server_stop(&scene.server);
}

/* --- inboxes --- */

/* Write one word of a whole block anew. mend: its checksum is right again, as a
 * liar would have it, who knows how. */
static void scribble_block(struct scene *scene, uint64_t address, bool mend)
{
	uint8_t bytes[INBOX_BLOCK_SIZE];
	uint64_t word;
	uint32_t at, crc;

	assert_int_equal(reef_read(scene->reef, address, bytes, sizeof(bytes)),
			 0);
	at = 8 * (uint32_t)reef_random_below(
			 &scene->random, reef_random_below(&scene->random, 2)
						 ? 16
						 : sizeof(bytes) / 8);
	memcpy(&word, bytes + at, 8);
	word = bad_value(scene, word);
	memcpy(bytes + at, &word, 8);
	if (mend) {
		/* block.h: of all but itself, at 60. */
		crc = reef_crc32c(0, bytes, 60);
		crc = reef_crc32c(crc, bytes + 64, sizeof(bytes) - 64);
		memcpy(bytes + 60, &crc, 4);
	}
	assert_int_equal(reef_write(scene->reef, address, bytes, sizeof(bytes)),
			 0);
}

/* Another handle sends to an inbox whose block is scribbled over: it is told
 * that there is none, or the message is lost. Other inboxes work on. */
static void inbox_scribbled_words_are_errors(void **state)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	const struct reef_wake wake = {.object = 42, .word = 1};
	/* So that no bad address leads out of this machine. */
	const struct reef_options near = {.fabrics = "shm"};
	static struct scene scene;
	struct reef_space *space;
	struct reef *sender, *listener;
	uint64_t seed, address;

	(void)state;
	server_start(&scene.server);
	assert_int_equal(reef_open("local", &near, &scene.reef), 0);
	assert_int_equal(
		reef_space_open(scene.reef, "s", &create, &scene.space), 0);
	for (seed = seeds_first(); seeds_has(seed, seeds_of(100, 5000));
	     seed++) {
		reef_random_init(&scene.random, seed);
		assert_int_equal(reef_open("local", &near, &listener), 0);
		assert_int_equal(reef_space_open(listener, "s", NULL, &space),
				 0);
		assert_int_equal(reef_inbox_open(space, &address), 0);
		scribble_block(&scene, address,
			       reef_random_below(&scene.random, 4));
		alarm(STUCK);
		assert_int_equal(reef_open("local", &near, &sender), 0);
		assert_int_equal(reef_space_open(sender, "s", NULL, &space), 0);
		reef_inbox_send(space, address, &wake);
		reef_inbox_send(space, address + 8, &wake);
		reef_inbox_send(space, address, &wake);
		reef_close(sender);
		reef_close(listener);
		alarm(0);
	}
	reef_close(scene.reef);
	server_stop(&scene.server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sync_scribbled_words_are_errors,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			inbox_scribbled_words_are_errors, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
