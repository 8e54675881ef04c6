/* lend.c - memory taken and given back, exposed and withdrawn.
 *
 * (1) node->lent never exceeds the capacity: memory is counted before it is
 *     taken, in whole pages, and until it has gone back to the kernel. So
 *     memory that a holder has not let go of counts. While an extent goes into
 *     fresh memory it is there twice, which is not counted: it is lent once.
 * (2) Huge pages are asked for only where they hold nothing but the extent.
 * (3) Taking 64 MiB takes the kernel tens of milliseconds, and giving them back
 *     some, too. A thread of its own does both, so that the node goes on
 *     serving; in simulation there are no threads, and no such memory. */
#include "pool/node/internal.h"

#include "base/mutant.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUGE_PAGE_SIZE (UINT64_C(2) << 20)
#define ERRANDS_MAX 2

/* --- by another thread --- */

struct errand {
	const struct reef_memory_options *options; /* NULL: give it back */
	struct reef_memory *memory;
	struct reef_memory *from; /* to be copied; or NULL */
	int result;
	struct reef_queue *queue; /* of who waits */
	/* Release, after the result; the partner is the acquire in
	 * is_errand_done. */
	_Atomic bool done;
};

static void run_errand(struct errand *errand)
{
	errand->result = 0;
	if (!errand->options)
		reef_memory_destroy(errand->memory);
	else if (!errand->from)
		errand->result =
			reef_memory_create(errand->options, &errand->memory);
	else
		errand->result = reef_memory_copy(errand->options, errand->from,
						  &errand->memory);
}

static void *errand_thread(void *arg)
{
	struct errand *errand = arg;

	run_errand(errand);
	atomic_store_explicit(&errand->done, true, memory_order_release);
	reef_queue_wake(errand->queue);
	return NULL;
}

static bool is_errand_done(const void *what)
{
	const struct errand *errand = what;

	return atomic_load_explicit(&errand->done, memory_order_acquire);
}

/* The thread blocks every signal: they are for the program's own threads. */
static int start_thread(struct errand *errand, pthread_t *thread)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, errand_thread, errand);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* Run the errand on a thread of its own while this fiber waits; in simulation,
 * and where there is no thread to be had, right here. */
static void run_off_thread(struct reef_node *node, struct errand *errand)
{
	pthread_t thread;

	if (node->options.simulated || !node->port) {
		run_errand(errand);
		return;
	}
	/* Clearing pages is bound by memory: more at once would only take the
	 * processors away from others. */
	while (node->errands == ERRANDS_MAX)
		node_gate_wait(&node->gate, REEF_FOREVER);
	errand->queue = reef_port_queue(node->port, 0);
	if (start_thread(errand, &thread)) {
		run_errand(errand);
		return;
	}
	node->errands++;
	reef_queue_wait_until(errand->queue, is_errand_done, errand,
			      REEF_FOREVER);
	pthread_join(thread, NULL);
	node->errands--;
	node_gate_open(&node->gate);
}

/* --- taking and giving --- */

static uint64_t whole_pages(uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (size + page - 1) / page * page;
}

struct reef_memory_options node_memory_options(const struct reef_node *node,
					       uint64_t size)
{
	return (struct reef_memory_options){
		.size = size,
		.backing = node->options.simulated ? REEF_BACKING_SIMULATED
						   : REEF_BACKING_MEMFD,
		.domain = node->domain,
		.huge_pages = node->options.huge_pages &&
			      whole_pages(size) % HUGE_PAGE_SIZE == 0,
	};
}

int node_memory_take(struct reef_node *node, struct node_extent *extent)
{
	struct reef_memory_options options =
		node_memory_options(node, extent->size);
	struct errand errand = {.options = &options};
	uint64_t whole;

	if (!extent->size)
		return -EINVAL;
	if (extent->size > node->options.capacity)
		return -ENOSPC;
	whole = whole_pages(extent->size);
	if (node->lent > node->options.capacity ||
	    whole > node->options.capacity - node->lent)
		return -ENOSPC;
	node->lent += whole; /* (1): before anything that lets others run */
	if (node->spare && node->spare->size == whole) {
		errand.memory = node->spare; /* mutant NODE_DIRTY */
		node->spare = NULL;
	} else {
		run_off_thread(node, &errand);
	}
	if (errand.result) {
		node->lent -= whole;
		return errand.result;
	}
	reef_assert(errand.memory->size == whole);
	extent->memory = errand.memory;
	if (extent->memory->huge)
		node->huge += whole;
	return 0;
}

int node_memory_renew(struct reef_node *node, struct node_extent *extent)
{
	struct reef_memory_options options =
		node_memory_options(node, extent->size);
	struct errand errand = {.options = &options, .from = extent->memory};
	struct errand give = {.memory = extent->memory};
	uint64_t whole = extent->memory->size;
	bool huge = extent->memory->huge;
	int rc;

	run_off_thread(node, &errand);
	if (errand.result) {
		reef_log(REEF_LOG_WARNING, "node",
			 "no fresh memory for extent %u: %s", extent->number,
			 reef_error_name(errand.result));
		return errand.result;
	}
	extent->memory = errand.memory;
	/* The old pages go only once the new ones are kept (keep.h, 2). */
	rc = node_kept_add(node, extent);
	if (rc) {
		extent->memory = give.memory;
		give.memory = errand.memory;
	} else {
		if (huge)
			node->huge -= whole;
		if (extent->memory->huge)
			node->huge += whole;
	}
	run_off_thread(node, &give);
	return rc;
}

void node_memory_give(struct reef_node *node, struct node_extent *extent)
{
	struct errand errand = {.memory = extent->memory};
	uint64_t whole;
	bool huge;

	if (!extent->memory)
		return;
	whole = extent->memory->size;
	huge = extent->memory->huge;
	extent->memory = NULL;
	if (REEF_MUTATED(NODE_DIRTY) && !node->spare)
		node->spare = errand.memory;
	else
		run_off_thread(node, &errand);
	node->lent -= whole;
	if (huge)
		node->huge -= whole;
}

/* --- keys --- */

int node_expose(struct reef_node *node, struct node_extent *extent)
{
	struct reef_region *region;
	uint32_t i;
	int rc;

	for (i = 0; i < reef_mesh_count(node->options.mesh); i++) {
		if (!node->fabric_lends[i] || extent->regions[i])
			continue;
		rc = reef_expose(reef_mesh_fabric(node->options.mesh, i),
				 extent->memory, &extent->regions[i]);
		if (rc)
			return rc;
	}
	extent->keys = (struct reef_extent_keys){0};
	for (i = 0; i < node->doors; i++) {
		region = extent->regions[node->door_fabric[i]];
		if (!region)
			continue;
		extent->keys.keys[i] = reef_region_key(region);
		extent->keys.read_keys[i] = reef_region_read_key(region);
	}
	extent->exposed = true;
	return 0;
}

int node_withdraw(struct reef_node *node, struct node_extent *extent)
{
	int rc, worst = 0;

	extent->exposed = false;
	for (uint32_t i = 0; i < REEF_MESH_MAX; i++) {
		if (!extent->regions[i])
			continue;
		rc = reef_withdraw(reef_port_queue(node->port, i),
				   extent->regions[i], 0);
		if (!rc)
			extent->regions[i] = NULL;
		else
			worst = rc;
	}
	return worst;
}
