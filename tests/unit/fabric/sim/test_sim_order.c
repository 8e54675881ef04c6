/* test_sim_order.c - what the simulator does to operations: each bad thing that
 * F1 to F10 allow is seen in some seeds, and nothing they forbid in any. */
#include "fixture/seeds.h"
#include "fixture/sim_world.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 150

/* --- the seed is everything --- */

static int busy_script(struct client *client)
{
	uint64_t words[16], i;
	struct reef_op ops[3];
	int rc = 0;

	for (i = 0; i < 30 && !rc; i++) {
		memset(words, (int)i, sizeof(words));
		ops[0] = cluster_write(client, 8 * i, words, sizeof(words));
		ops[1] = cluster_faa(client, 1024, i);
		ops[2] = cluster_read(client, 8 * i, words, sizeof(words));
		rc = cluster_run_ops(client, ops, 3);
	}
	return rc;
}

static uint64_t busy_hash(uint64_t seed)
{
	struct cluster cluster = {0};

	cluster_start(&cluster, &(struct reef_sim_options){.seed = seed});
	cluster_add(&cluster, busy_script);
	cluster_add(&cluster, busy_script);
	assert_int_equal(cluster_finish(&cluster), 0);
	assert_int_equal(cluster.clients[0].result, 0);
	assert_int_equal(cluster.clients[1].result, 0);
	assert_true(cluster.events > 180);
	return cluster.hash;
}

static void sim_same_seed_gives_same_trace(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 9); seed++) {
		assert_true(busy_hash(seed) == busy_hash(seed));
		assert_true(busy_hash(seed) != busy_hash(seed + 1));
	}
}

/* Other addresses, and other bytes in memory that nobody has set. */
static void sim_trace_does_not_depend_on_the_heap(void **state)
{
	uint64_t first = busy_hash(4711), second, i;
	void *blocks[32];

	for (i = 0; i < 32; i++)
		blocks[i] = malloc(i * 100 + 8);
	for (i = 0; i < 32; i += 2)
		free(blocks[i]);
#ifdef __GLIBC__
	mallopt(M_PERTURB, 0xa5);
#endif
	second = busy_hash(4711);
#ifdef __GLIBC__
	mallopt(M_PERTURB, 0);
#endif
	for (i = 1; i < 32; i += 2)
		free(blocks[i]);
	assert_true(first == second);
}

/* --- F2 --- */

static int tearing_writer(struct client *client)
{
	uint64_t words[8], i, j;
	int rc = 0;

	for (i = 1; i <= 40 && !rc; i++) {
		for (j = 0; j < 8; j++)
			words[j] = i * 0x0101010101010101ull;
		rc = cluster_run_op(client,
				    cluster_write(client, 0, words, 64));
	}
	client->cluster->note[2] = 1;
	return rc;
}

/* note[0]: blocks seen torn between words; note[1]: torn words. */
static int tearing_reader(struct client *client)
{
	uint64_t *note = client->cluster->note;
	uint64_t words[8], j;
	int rc = 0;

	while (!rc && !note[2]) {
		rc = cluster_run_op(client, cluster_read(client, 0, words, 64));
		for (j = 0; j < 8; j++) {
			if (words[j] != words[0])
				note[0]++;
			if (words[j] % 0x0101010101010101ull)
				note[1]++;
		}
	}
	return rc;
}

static void sim_long_operations_are_torn_but_words_are_not(void **state)
{
	uint64_t seed, torn = 0;

	for (seed = seeds_first(); seeds_has(seed, 20); seed++) {
		struct cluster cluster = {0};

		cluster_start(&cluster,
			      &(struct reef_sim_options){.seed = seed});
		cluster_add(&cluster, tearing_writer);
		cluster_add(&cluster, tearing_reader);
		assert_int_equal(cluster_finish(&cluster), 0);
		assert_int_equal(cluster.clients[0].result, 0);
		assert_int_equal(cluster.clients[1].result, 0);
		assert_int_equal(cluster.note[1], 0);
		torn += cluster.note[0];
	}
	assert_true(torn > 0);
}

/* --- F3 --- */

/* note[0..3]: how often each op of (c) overtook a READ; note[4]: how often
 * although ORDERED. note[5]: an FAA overtook an FAA. */
static int overtaking_script(struct client *client)
{
	uint64_t *note = client->cluster->note, one = 1, zero = 0;
	uint64_t seen = 0;
	struct reef_op ops[3];
	int rc = 0, round;

	for (round = 0; round < 6 && !rc; round++) {
		bool ordered = round & 1;

		rc = cluster_run_op(client, cluster_write(client, 0, &zero, 8));
		ops[0] = cluster_read(client, 0, &seen, 8);
		switch (round / 2) {
		case 0:
			ops[1] = cluster_write(client, 0, &one, 8);
			break;
		case 1:
			ops[1] = cluster_faa(client, 0, 1);
			break;
		case 2:
			ops[1] = cluster_faa(client, 0, 1);
			ops[1].kind = REEF_CAS;
			break;
		}
		ops[1].flags = ordered ? REEF_ORDERED : 0;
		if (!rc)
			rc = cluster_run_ops(client, ops, 2);
		note[ordered ? 4 : round / 2] += seen;
	}
	ops[0] = cluster_faa(client, 64, 1);
	ops[1] = cluster_faa(client, 64, 1);
	if (!rc)
		rc = cluster_run_ops(client, ops, 2);
	note[5] += ops[0].result;
	return rc;
}

static void sim_what_may_overtake_does(void **state)
{
	uint64_t seed, overtaken[6] = {0}, i;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct cluster cluster = {0};

		cluster_run(&cluster, seed, overtaking_script);
		for (i = 0; i < 6; i++)
			overtaken[i] += cluster.note[i];
	}
	assert_true(overtaken[0] > 0);
	assert_true(overtaken[1] > 0);
	assert_true(overtaken[2] > 0);
	assert_int_equal(overtaken[4], 0);
	assert_true(overtaken[5] > 0);
}

/* note[0]: violations of F3a and F3b. */
static int orderly_script(struct client *client)
{
	uint64_t *note = client->cluster->note, words[8], seen[8], one = 5, i;
	struct reef_op ops[5];
	int rc;

	for (i = 0; i < 8; i++)
		words[i] = 5;
	/* (a): a CAS, a READ and another WRITE after a long WRITE. */
	ops[0] = cluster_write(client, 0, words, 64);
	ops[1] = cluster_faa(client, 56, 7);
	ops[1].kind = REEF_CAS;
	ops[1].compare = 5;
	ops[2] = cluster_write(client, 0, &one, 8);
	/* (b): a READ after everything. */
	ops[3] = cluster_faa(client, 8, 1);
	ops[4] = cluster_read(client, 0, seen, 64);
	rc = cluster_run_ops(client, ops, 5);
	note[0] += ops[1].result != 5 || ops[3].result != 5 || seen[0] != 5 ||
		   seen[1] != 6 || seen[7] != 7;
	return rc;
}

static void sim_what_may_not_overtake_never_does(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct cluster cluster = {0};

		cluster_run(&cluster, seed, orderly_script);
		assert_int_equal(cluster.note[0], 0);
	}
}

/* A client that lies about bounds is stopped by the target. */
static int lying_script(struct client *client)
{
	uint64_t word = 9, *note = client->cluster->note;
	struct reef_op ops[4];
	struct reef_batch batch = {
		.link = client->link, .ops = ops, .count = 4};

	client->remote->size += 64;
	ops[0] = cluster_faa(client, 0, 1);
	ops[1] = cluster_write(client, 4096, &word, 8);
	ops[2] = cluster_write(client, 8, &word, 8);
	ops[3] = cluster_faa(client, 16, 1);
	note[0] = (uint64_t)-reef_run(client->queue, &batch);
	note[1] = (uint64_t)-ops[0].status;
	note[2] = (uint64_t)-ops[1].status;
	note[3] = (uint64_t)-ops[2].status;
	note[4] = (uint64_t)-ops[3].status;
	note[5] = cluster_word(client->cluster, 0);
	note[6] = cluster_word(client->cluster, 8);
	note[7] = cluster_word(client->cluster, 16);
	return 0;
}

static void sim_a_failed_operation_ends_its_batch(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct cluster cluster = {0};

		cluster_run(&cluster, seed, lying_script);
		assert_int_equal(cluster.note[0], ERANGE);
		assert_int_equal(cluster.note[1], 0);
		assert_int_equal(cluster.note[2], ERANGE);
		assert_int_equal(cluster.note[3], REEF_ENOTDONE);
		assert_int_equal(cluster.note[4], REEF_ENOTDONE);
		assert_int_equal(cluster.note[5], 1);
		assert_int_equal(cluster.note[6], 0);
		assert_int_equal(cluster.note[7], 0);
	}
}

/* Bytes of a WRITE belong to the fabric until it is done: what the caller
 * changes meanwhile may or may not be written. note[0]: the value. */
static int hasty_script(struct client *client)
{
	uint64_t word = 1;
	struct reef_op op = cluster_write(client, 0, &word, 8);
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};
	int rc = reef_post(client->queue, &batch);

	word = 2;
	if (!rc)
		rc = reef_wait(client->queue, &batch);
	client->cluster->note[0] = cluster_word(client->cluster, 0);
	return rc;
}

static void sim_bytes_are_taken_at_any_time(void **state)
{
	uint64_t seed, early = 0, late = 0;

	for (seed = seeds_first(); seeds_has(seed, 40); seed++) {
		struct cluster cluster = {0};

		cluster_run(&cluster, seed, hasty_script);
		early += cluster.note[0] == 1;
		late += cluster.note[0] == 2;
	}
	assert_true(early > 0 && late > 0);
	assert_int_equal(early + late, 40);
}

/* --- F5 --- */

#define LOST 8

static void post_lost(struct client *client, struct reef_batch *batches,
		      struct reef_op (*ops)[2], const uint64_t *word)
{
	uint64_t i;

	for (i = 0; i < LOST; i++) {
		ops[i][0] = cluster_write(client, 16 * i, word, 8);
		ops[i][1] = cluster_faa(client, 16 * i + 8, 1);
		batches[i] = (struct reef_batch){
			.link = client->link, .ops = ops[i], .count = 2};
		reef_post(client->queue, &batches[i]);
	}
}

static uint64_t landed(const struct cluster *cluster)
{
	uint64_t i, count = 0;

	for (i = 0; i < 2 * LOST; i++)
		count += cluster_word(cluster, 8 * i) != 0;
	return count;
}

/* note[0]: parts that landed after their batch was told in doubt; note[1]: in
 * doubt, and never happened; note[2]: after the next link; note[3]: batches
 * done; note[4]: an FAA without the WRITE before it. */
static int losing_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_random *random = reef_sim_host_random(client->host);
	struct reef_batch batches[LOST];
	struct reef_op ops[LOST][2];
	struct reef_link *old = client->link;
	uint64_t word = 1, told, settled, i;
	int rc;

	post_lost(client, batches, ops, &word);
	reef_sleep(reef_random_below(random, 60000));
	reef_sim_lose_link(client->link);
	for (i = 0; i < LOST; i++) {
		rc = reef_wait(client->queue, &batches[i]);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		cluster->note[3] += !rc;
	}
	told = landed(cluster);
	reef_sleep(reef_random_below(random, 20 * SECOND));
	cluster->note[0] += landed(cluster) - told;
	rc = cluster_join(client);
	settled = landed(cluster);
	cluster->note[1] += 2 * LOST - settled;
	reef_sleep(20 * SECOND);
	cluster->note[2] += landed(cluster) - settled;
	for (i = 0; i < LOST; i++)
		cluster->note[4] += cluster_word(cluster, 16 * i + 8) &&
				    !cluster_word(cluster, 16 * i);
	reef_link_close(old);
	return rc;
}

static void sim_lost_operations_come_late_until_the_next_link(void **state)
{
	uint64_t seed, note[5] = {0}, i;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct cluster cluster = {0};

		cluster_run(&cluster, seed, losing_script);
		for (i = 0; i < 5; i++)
			note[i] += cluster.note[i];
	}
	assert_true(note[0] > 0);
	assert_true(note[1] > 0);
	assert_int_equal(note[2], 0);
	assert_true(note[3] > 0);
	assert_int_equal(note[4], 0);
}

/* The link ends at any moment, by itself. */
static int unlucky_script(struct client *client)
{
	uint64_t *note = client->cluster->note, i;
	int rc;

	for (i = 0; i < 100; i++) {
		rc = cluster_run_op(client, cluster_faa(client, 0, 1));
		if (rc == -REEF_EINDOUBT)
			note[0]++;
		else if (rc)
			return rc;
		else
			note[1]++;
		if (!rc)
			continue;
		while (!reef_link_status(client->link))
			reef_queue_wait(client->queue, MILLISECOND);
		reef_link_close(client->link);
		rc = cluster_join(client);
		if (rc)
			return rc;
	}
	note[2] = cluster_word(client->cluster, 0);
	return 0;
}

static void sim_links_are_lost_by_chance(void **state)
{
	struct reef_sim_options options = {.lose_link_ppm = 100000};
	uint64_t lost = 0;

	for (options.seed = seeds_first(); seeds_has(options.seed, 20);
	     options.seed++) {
		struct cluster cluster = {0};

		cluster_start(&cluster, &options);
		cluster_add(&cluster, unlucky_script);
		assert_int_equal(cluster_finish(&cluster), 0);
		assert_int_equal(cluster.clients[0].result, 0);
		assert_true(cluster.note[2] >= cluster.note[1]);
		assert_true(cluster.note[2] <=
			    cluster.note[0] + cluster.note[1]);
		lost += cluster.note[0];
	}
	assert_true(lost > 20 && lost < 1000);
}

/* --- F6 --- */

/* The processor's own increments of a word that clients add 0 to. */
static void increment(struct cluster *cluster)
{
	uint64_t *word = cluster->memory->base;

	if (!cluster->over) {
		(*word)++;
		cluster->note[0]++;
	}
}

static int adding_script(struct client *client)
{
	int rc = 0, i;

	for (i = 0; i < 50 && !rc; i++)
		rc = cluster_run_op(client, cluster_faa(client, 0, 0));
	return rc;
}

static void sim_processors_and_cards_lose_each_others_increments(void **state)
{
	uint64_t seed, lost = 0;

	for (seed = seeds_first(); seeds_has(seed, 20); seed++) {
		struct cluster cluster = {.tick = increment, .tick_ns = 3000};

		cluster_start(&cluster,
			      &(struct reef_sim_options){.seed = seed});
		cluster_add(&cluster, adding_script);
		assert_int_equal(reef_sim_run(cluster.sim, SECOND), 0);
		lost += cluster.note[0] - cluster_word(&cluster, 0);
		reef_sim_destroy(cluster.sim);
		reef_memory_destroy(cluster.memory);
	}
	assert_true(lost > 0);
}

static int counting_script(struct client *client)
{
	struct reef_op ops[4];
	int rc = 0, i, j;

	for (i = 0; i < 10 && !rc; i++) {
		for (j = 0; j < 4; j++)
			ops[j] = cluster_faa(client, 8 * (j / 2), 1);
		rc = cluster_run_ops(client, ops, 4);
	}
	return rc;
}

static void sim_atomics_of_many_are_exact(void **state)
{
	uint64_t seed;
	int i;

	for (seed = seeds_first(); seeds_has(seed, 40); seed++) {
		struct cluster cluster = {0};

		cluster_start(&cluster,
			      &(struct reef_sim_options){.seed = seed});
		for (i = 0; i < CLIENTS_MAX; i++)
			cluster_add(&cluster, counting_script);
		assert_int_equal(reef_sim_run(cluster.sim, SECOND), 0);
		assert_int_equal(cluster_word(&cluster, 0), 20 * CLIENTS_MAX);
		assert_int_equal(cluster_word(&cluster, 8), 20 * CLIENTS_MAX);
		reef_sim_destroy(cluster.sim);
		reef_memory_destroy(cluster.memory);
	}
}

/* note[0]: exposing another domain's memory; note[1]: attaching it. */
static int domain_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_memory_options options = {
		.size = 8,
		.backing = REEF_BACKING_SIMULATED,
		.domain = reef_fabric_domain(cluster->fabric) + 1000,
	};
	struct reef_memory *memory;
	struct reef_region *region;
	struct reef_remote *remote;
	int rc = reef_memory_create(&options, &memory);

	if (rc)
		return rc;
	cluster->note[0] =
		(uint64_t)-reef_expose(cluster->fabric, memory, &region);
	reef_memory_destroy(memory);
	/* As if it had been exposed by mistake. */
	cluster->memory->domain++;
	cluster->note[1] = (uint64_t)-reef_attach(client->queue, client->link,
						  cluster->key, &remote);
	return 0;
}

static void sim_another_domain_is_refused(void **state)
{
	struct cluster cluster = {0};

	cluster_run(&cluster, 1, domain_script);
	assert_int_equal(cluster.note[0], REEF_EDOMAIN);
	assert_int_equal(cluster.note[1], REEF_EDOMAIN);
}

/* --- F7 --- */

/* The node's side, once enough has landed. */
static int fence_main(void *arg)
{
	struct cluster *cluster = arg;
	uint64_t *note = cluster->note, confirmed;

	note[0] = (uint64_t)-reef_fence(cluster->queue, SESSION(1), SECOND);
	confirmed = landed(cluster);
	note[1] = cluster->closed;
	note[2] = (uint64_t)-cluster->closed_reason;
	cluster->tick_ns = MILLISECOND;
	reef_sleep(30 * SECOND);
	note[3] = landed(cluster) - confirmed;
	note[4] = 1;
	return 0;
}

static void fence_when_asked(struct cluster *cluster)
{
	if (cluster->note[7] == 1)
		reef_fiber_spawn(reef_fiber_sched(), fence_main, cluster, NULL);
	cluster->note[7] = cluster->note[7] ? 2 : 0;
}

/* note[5]: how it ended; note[6]: connecting again; note[7]: go. */
static int fenced_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_batch batches[LOST];
	struct reef_op ops[LOST][2];
	uint64_t word = 1, i;
	int rc;

	post_lost(client, batches, ops, &word);
	reef_sleep(
		reef_random_below(reef_sim_host_random(client->host), 20000));
	cluster->note[7] = 1;
	for (i = 0; i < LOST; i++) {
		rc = reef_wait(client->queue, &batches[i]);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
	}
	while (!reef_link_status(client->link))
		reef_queue_wait(client->queue, MILLISECOND);
	cluster->note[5] = (uint64_t)-reef_link_status(client->link);
	reef_link_close(client->link);
	client->link = NULL;
	cluster->note[6] = (uint64_t)-cluster_connect(client, &client->link);
	while (!cluster->note[4])
		reef_sleep(MILLISECOND);
	return 0;
}

static void sim_nothing_lands_after_a_fence(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct cluster cluster = {
			.tick = fence_when_asked,
			.tick_ns = seed % 2 ? 5000 : 50000,
		};

		cluster_run(&cluster, seed, fenced_script);
		assert_int_equal(cluster.note[0], 0);
		assert_int_equal(cluster.note[1], 1);
		assert_int_equal(cluster.note[2], REEF_EFENCED);
		assert_int_equal(cluster.note[3], 0);
		assert_int_equal(cluster.note[5], REEF_EFENCED);
		assert_int_equal(cluster.note[6], REEF_EFENCED);
	}
}

/* --- F8 --- */

static int bounds_script(struct client *client)
{
	uint64_t *note = client->cluster->note, word;
	uint8_t byte;

	note[0] = (uint64_t)-cluster_run_op(
		client, cluster_read(client, 4096, &byte, 1));
	note[1] = (uint64_t)-cluster_run_op(
		client, cluster_read(client, 4089, &word, 8));
	note[2] = (uint64_t)-cluster_run_op(
		client, cluster_read(client, 4088, &word, 8));
	note[3] = (uint64_t)-cluster_run_op(
		client, cluster_read(client, 4096, NULL, 0));
	return 0;
}

static void sim_one_byte_too_far_is_refused(void **state)
{
	struct cluster cluster = {0};

	cluster_run(&cluster, 1, bounds_script);
	assert_int_equal(cluster.note[0], ERANGE);
	assert_int_equal(cluster.note[1], ERANGE);
	assert_int_equal(cluster.note[2], 0);
	assert_int_equal(cluster.note[3], 0);
}

/* --- F9 --- */

static int durable_script(struct client *client)
{
	uint64_t words[32], i;
	struct reef_op ops[2];
	int rc;

	for (i = 0; i < 32; i++)
		words[i] = i + 1;
	ops[0] = cluster_write(client, 0, words, sizeof(words));
	ops[1] = (struct reef_op){
		.kind = REEF_FLUSH,
		.remote = client->remote,
		.length = sizeof(words),
	};
	rc = cluster_run_ops(client, ops, 2);
	if (!rc)
		rc = cluster_run_op(client,
				    cluster_write(client, 256, words, 256));
	reef_sim_host_power_off(client->cluster->node);
	client->cluster->over = true;
	return rc;
}

static void sim_power_takes_what_was_not_flushed(void **state)
{
	uint64_t seed, i, kept = 0, lost = 0;

	for (seed = seeds_first(); seeds_has(seed, 20); seed++) {
		struct cluster cluster = {.durable = true};

		cluster_start(&cluster,
			      &(struct reef_sim_options){.seed = seed});
		cluster_add(&cluster, durable_script);
		assert_int_equal(reef_sim_run(cluster.sim, 100 * SECOND), 0);
		assert_int_equal(cluster.clients[0].result, 0);
		for (i = 0; i < 32; i++) {
			assert_int_equal(cluster_word(&cluster, 8 * i), i + 1);
			kept += cluster_word(&cluster, 256 + 8 * i) == i + 1;
			lost += cluster_word(&cluster, 256 + 8 * i) == 0;
		}
		reef_sim_destroy(cluster.sim);
		reef_memory_destroy(cluster.memory);
	}
	assert_true(kept > 0 && lost > 0);
	assert_int_equal(kept + lost, 20 * 32);
}

/* --- calm --- */

static int calm_script(struct client *client)
{
	uint64_t *note = client->cluster->note, i;
	uint64_t start_ns = reef_now_ns(), word;
	struct reef_op ops[2];
	struct reef_batch batch = {
		.link = client->link, .ops = ops, .count = 2};

	for (i = 0; i < 10000; i++) {
		ops[0] = cluster_faa(client, 8 * (i % 8), 1);
		ops[1] = cluster_read(client, 8 * (i % 8), &word, 8);
		note[0] += reef_post(client->queue, &batch) == 1;
		note[1] += word == ops[0].result + 1;
	}
	note[2] = reef_now_ns() - start_ns;
	return 0;
}

static void sim_calm_operations_take_no_time(void **state)
{
	struct cluster cluster = {0};

	cluster_start(&cluster, &(struct reef_sim_options){.calm = true});
	cluster_add(&cluster, calm_script);
	assert_int_equal(cluster_finish(&cluster), 0);
	assert_int_equal(cluster.clients[0].result, 0);
	assert_int_equal(cluster.note[0], 10000);
	assert_int_equal(cluster.note[1], 10000);
	assert_int_equal(cluster.note[2], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sim_same_seed_gives_same_trace),
		cmocka_unit_test(sim_trace_does_not_depend_on_the_heap),
		cmocka_unit_test(
			sim_long_operations_are_torn_but_words_are_not),
		cmocka_unit_test(sim_what_may_overtake_does),
		cmocka_unit_test(sim_what_may_not_overtake_never_does),
		cmocka_unit_test(sim_a_failed_operation_ends_its_batch),
		cmocka_unit_test(sim_bytes_are_taken_at_any_time),
		cmocka_unit_test(
			sim_lost_operations_come_late_until_the_next_link),
		cmocka_unit_test(sim_links_are_lost_by_chance),
		cmocka_unit_test(
			sim_processors_and_cards_lose_each_others_increments),
		cmocka_unit_test(sim_atomics_of_many_are_exact),
		cmocka_unit_test(sim_another_domain_is_refused),
		cmocka_unit_test(sim_nothing_lands_after_a_fence),
		cmocka_unit_test(sim_one_byte_too_far_is_refused),
		cmocka_unit_test(sim_power_takes_what_was_not_flushed),
		cmocka_unit_test(sim_calm_operations_take_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
