/* test_heap_budget.c - what blocks cost, counted in round trips and CAS: the
 * last paragraph of heap.h. */
#include "fixture/heap_recover.h"
#include "fixture/heap_sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- one or two sessions over a calm fabric, with the count hook --- */

struct budget {
	struct land land;
	struct reef_count count;
	/* What the client saw. */
	struct reef_counts own, first, second, recover;
	uint64_t most_for_slab;
	uint64_t foreign[64];
	int result;
};

static struct reef_counts since(struct budget *budget,
				const struct reef_counts *before)
{
	struct reef_counts now = reef_count_read(&budget->count);

	return reef_counts_between(before, &now);
}

/* Allocate and free in one slab; then fill slabs in a chunk that is there. */
static int own_script(struct heap_client *client)
{
	struct budget *budget = (struct budget *)client->land;
	struct reef_counts before, one;
	uint64_t address[200], first;
	int rc = reef_heap_alloc(client->heap, 1, 56, &first);

	before = reef_count_read(&budget->count);
	for (uint32_t i = 0; i < 200 && !rc; i++)
		rc = reef_heap_alloc(client->heap, 1, 56, &address[i]);
	for (uint32_t i = 0; i < 200 && !rc; i++)
		rc = reef_heap_free(client->heap, address[i], 0);
	budget->own = since(budget, &before);
	for (uint32_t i = 1; i < 8 && !rc; i++) {
		before = reef_count_read(&budget->count);
		rc = reef_heap_alloc(client->heap, 1, 64 * i, &address[i]);
		one = since(budget, &before);
		if (one.round_trips > budget->most_for_slab)
			budget->most_for_slab = one.round_trips;
	}
	return rc;
}

/* Free what the other allocated: the first is looked at, the next foreseen. */
static int other_script(struct heap_client *client)
{
	struct budget *budget = (struct budget *)client->land;
	struct reef_counts before;
	int rc;

	before = reef_count_read(&budget->count);
	rc = reef_heap_free(client->heap, budget->foreign[0], 0);
	budget->first = since(budget, &before);
	before = reef_count_read(&budget->count);
	for (uint32_t i = 1; i < 64 && !rc; i++)
		rc = reef_heap_free(client->heap, budget->foreign[i], 0);
	budget->second = since(budget, &before);
	return rc;
}

static int first_run(struct reef_sim_host *host, void *arg)
{
	struct heap_client *client = arg;
	struct budget *budget = (struct budget *)client->land;
	int rc = heap_client_open(client, host);

	for (uint32_t i = 0; i < 64 && !rc; i++)
		rc = reef_heap_alloc(client->heap, 1, 100, &budget->foreign[i]);
	if (!rc)
		rc = reef_heap_flush(client->heap);
	/* Half of 10,000 blocks are small, half are not. */
	for (uint32_t i = 0; i < 10000 && !rc; i++) {
		uint64_t address;

		rc = reef_heap_alloc(client->heap, 1, i % 2 ? 100 : 1000,
				     &address);
	}
	if (!rc)
		rc = reef_heap_flush(client->heap);
	budget->result = rc;
	heap_client_close(client);
	return rc;
}

static int second_run(struct reef_sim_host *host, void *arg)
{
	struct heap_client *client = arg;
	struct budget *budget = (struct budget *)client->land;
	struct heap_client *first = &client->land->clients[0];
	struct reef_counts before;
	int rc = heap_client_open(client, host);

	while (!first->ended && !rc)
		rc = reef_sleep(MILLISECOND);
	if (!rc)
		rc = own_script(client);
	if (!rc)
		rc = other_script(client);
	first->killed = true;
	while (!first->fenced && !rc)
		rc = reef_sleep(MILLISECOND);
	before = reef_count_read(&budget->count);
	if (!rc)
		rc = heap_recover_one(client->heap, SESSION(1), NULL, NULL);
	budget->recover = since(budget, &before);
	budget->result = budget->result ? budget->result : rc;
	heap_client_close(client);
	client->land->over = true;
	return rc;
}

static void add(struct budget *budget,
		int (*run)(struct reef_sim_host *host, void *arg),
		struct reef_count *count)
{
	struct land *land = &budget->land;
	struct heap_client *client = &land->clients[land->clients_count++];
	char name[16];

	client->land = land;
	client->number = land->clients_count;
	client->count = count;
	for (uint32_t i = 0; i < ACTORS_MAX; i++)
		client->actors[i].client = client;
	snprintf(name, sizeof(name), "client%u", client->number);
	assert_int_equal(
		reef_sim_host_add(land->sim, name, run, client, &client->host),
		0);
}

static void heap_budget_round_trips_kept(void **state)
{
	struct budget *budget = calloc(1, sizeof(*budget));
	struct reef_sim_options options = {.seed = 1, .calm = true};

	budget->land.reclaim = 1;
	assert_int_equal(reef_sim_create(&options, &budget->land.sim), 0);
	assert_int_equal(reef_sim_host_add(budget->land.sim, "node", land_main,
					   &budget->land, &budget->land.node),
			 0);
	add(budget, first_run, NULL);
	add(budget, second_run, &budget->count);
	assert_int_equal(reef_sim_run(budget->land.sim, 1000 * SECOND), 0);
	reef_sim_destroy(budget->land.sim);
	reef_memory_destroy(budget->land.memory);

	assert_int_equal(budget->result, 0);
	assert_int_equal(budget->own.round_trips, 0);
	assert_int_equal(budget->own.memory_operations, 0);
	assert_true(budget->most_for_slab <= 1);
	assert_int_equal(budget->first.round_trips, 2);
	assert_int_equal(budget->second.round_trips, 63);
	assert_int_equal(budget->second.cas, 63);
	assert_true(budget->second.faa <= 2);
	print_message("10,000 blocks are recovered in %llu round trips\n",
		      (unsigned long long)budget->recover.round_trips);
	assert_true(budget->recover.round_trips <= 100);
	free(budget);
}

/* --- many sessions at once, in plain memory --- */

#define CROWD 512u
#define CROWD_EXTENTS 16u
#define CROWD_EXTENT (64 * MIB)

struct crowd {
	uint8_t *extents[CROWD_EXTENTS];
	uint64_t cas, claims;
	struct reef_heap *heaps[CROWD];
	uint32_t next;
	int rc;
};

/* Everybody's turn comes before an operation happens, so that all have looked
 * at the same words before the first of them claims. */
static int crowd_execute(void *context, struct reef_access *accesses,
			 uint32_t count)
{
	struct crowd *crowd = context;

	reef_fiber_yield();
	for (uint32_t i = 0; i < count; i++) {
		struct reef_access *access = &accesses[i];
		uint32_t extent = (uint32_t)(access->address >> 32);
		uint8_t *at =
			crowd->extents[extent] + (uint32_t)access->address;

		access->status = 0;
		if (access->kind == REEF_READ)
			memcpy(access->local, at, access->length);
		else if (access->kind == REEF_WRITE)
			memcpy(at, access->local, access->length);
		if (access->kind != REEF_CAS)
			continue;
		crowd->cas++;
		memcpy(&access->result, at, 8);
		if (access->result == access->compare)
			memcpy(at, &access->operand, 8);
		crowd->claims += access->result == access->compare;
	}
	return 0;
}

static uint32_t crowd_extents(void *context, uint32_t *numbers, uint64_t *sizes,
			      uint32_t max)
{
	for (uint32_t i = 0; i < CROWD_EXTENTS && i < max; i++) {
		numbers[i] = i;
		sizes[i] = CROWD_EXTENT;
	}
	return CROWD_EXTENTS;
}

static int crowd_grow(void *context, uint64_t size, uint32_t *number,
		      uint64_t *real_size)
{
	return -ENOSPC;
}

static int crowd_is_fenced(void *context, uint32_t session)
{
	return 0;
}

static uint64_t crowd_epoch(void *context)
{
	return 1;
}

static const struct reef_heap_ops crowd_ops = {
	.execute = crowd_execute,
	.extents = crowd_extents,
	.grow = crowd_grow,
	.is_fenced = crowd_is_fenced,
	.reclaim_epoch = crowd_epoch,
	.safe_epoch = crowd_epoch,
};

static int crowd_main(void *arg)
{
	struct crowd *crowd = arg;
	struct reef_heap *heap = crowd->heaps[crowd->next++];
	uint64_t address;
	int rc = reef_heap_alloc(heap, 1, 1000, &address);

	crowd->rc = crowd->rc ? crowd->rc : rc;
	return rc;
}

static void heap_budget_crowd_claims_with_few_cas(void **state)
{
	struct crowd crowd = {0};
	struct reef_sched *sched;
	double average;

	for (uint32_t i = 0; i < CROWD_EXTENTS; i++) {
		crowd.extents[i] = mmap(
			NULL, CROWD_EXTENT, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		assert_ptr_not_equal(crowd.extents[i], MAP_FAILED);
	}
	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	for (uint32_t i = 0; i < CROWD; i++) {
		struct reef_heap_options options = {.ops = &crowd_ops,
						    .context = &crowd,
						    .session = i + 1,
						    .seed = i + 1};

		assert_int_equal(reef_heap_create(&options, &crowd.heaps[i]),
				 0);
		assert_int_equal(
			reef_fiber_spawn(sched, crowd_main, &crowd, NULL), 0);
	}
	assert_int_equal(reef_sched_run(sched), 0);
	reef_sched_destroy(sched);
	assert_int_equal(crowd.rc, 0);
	assert_int_equal(crowd.claims, CROWD);
	average = (double)crowd.cas / (double)crowd.claims;
	print_message("%.2f CAS to claim a chunk\n", average);
	assert_true(average <= 2.0);
	for (uint32_t i = 0; i < CROWD; i++)
		reef_heap_destroy(crowd.heaps[i]);
	for (uint32_t i = 0; i < CROWD_EXTENTS; i++)
		munmap(crowd.extents[i], CROWD_EXTENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap_budget_round_trips_kept),
		cmocka_unit_test(heap_budget_crowd_claims_with_few_cas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
