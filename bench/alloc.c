/* alloc.c - `reef bench alloc`: blocks, beside mimalloc.
 *
 * Reef is used as a program would: the public interface, over a pool inside the
 * process. A second thread has a handle of its own, for which blocks of the
 * first are another's.
 *
 * `limit` is no allocator: it stands for the figure that is allowed, so that
 * the table says whether it was met.
 *
 * Thread: owner. */
#include "alloc_work.h"
#include "bench.h"
#include "bench/units.h"

#include <reef/reef.h>
#include <stdio.h>

#define OWN_SIZE (256 * MIB) /* of the pool, where little is live */
#define LIMIT 1.25
#define SPACE "bench"

struct ours {
	struct driver_pair *pair;
	struct reef *reef;
	struct reef_space *space;
	struct alloc_blocks blocks;
	uint64_t live;
	char target[40];
};

/* --- operations --- */

workload_inline int ours_alloc(void *context, uint64_t size, uint64_t *block)
{
	return reef_alloc(((struct ours *)context)->space, size, block);
}

workload_inline int ours_free(void *context, uint64_t block)
{
	return reef_free(((struct ours *)context)->space, block, 0);
}

workload_inline int ours_write(void *context, uint64_t block, uint64_t word)
{
	return reef_write(((struct ours *)context)->reef, block, &word,
			  sizeof(word));
}

/* A pool's memory is in place once it is lent: nothing is to be touched. */
static void ours_touch(void *context, uint64_t block, uint64_t size)
{
}

struct search {
	uint64_t bytes;
};

static int add_space(void *context, const struct reef_space_info *info)
{
	struct search *search = context;

	if (strcmp(info->name, SPACE) == 0)
		search->bytes = info->used;
	return 0;
}

/* The bytes of all extents of the space, also of empty ones. */
static int ours_used(void *context, uint64_t *bytes)
{
	struct search search = {0};
	int rc = reef_space_list(((struct ours *)context)->reef, add_space,
				 &search);

	*bytes = search.bytes;
	return rc;
}

static int ours_open_handle(struct ours *ours)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	int rc = reef_open(ours->target, NULL, &ours->reef);

	if (rc)
		return rc;
	rc = reef_space_open(ours->reef, SPACE, &options, &ours->space);
	if (rc)
		reef_close(ours->reef);
	return rc;
}

static int ours_second_open(void *context, void **second)
{
	const struct ours *first = context;
	struct ours *ours = calloc(1, sizeof(*ours));
	int rc;

	if (!ours)
		return -ENOMEM;
	memcpy(ours->target, first->target, sizeof(ours->target));
	rc = ours_open_handle(ours);
	if (rc) {
		free(ours);
		return rc;
	}
	*second = ours;
	return 0;
}

static void ours_second_close(void *second)
{
	struct ours *ours = second;

	reef_space_close(ours->space);
	reef_close(ours->reef);
	free(ours);
}

static const struct alloc_ops ours_ops = {
	.alloc = ours_alloc,
	.free = ours_free,
	.write = ours_write,
	.touch = ours_touch,
	.used = ours_used,
	.second_open = ours_second_open,
	.second_close = ours_second_close,
};

static void *ours_second(void *hands)
{
	alloc_second(hands);
	return NULL;
}

/* --- the driver --- */

static int alloc_reef_open(struct driver_pair *pair)
{
	struct ours *ours = calloc(1, sizeof(*ours));
	uint64_t size = OWN_SIZE;
	int rc;

	if (!ours)
		return -ENOMEM;
	ours->pair = pair;
	strcpy(pair->description, "the public interface, on a pool inside the "
				  "process");
	if (pair->options.size) {
		ours->live = alloc_live(pair);
		size = ours->live + ours->live / 2 + 64 * MIB;
	}
	snprintf(ours->target, sizeof(ours->target), "embedded:%lluM",
		 (unsigned long long)(size / MIB));
	rc = ours_open_handle(ours);
	if (rc) {
		free(ours);
		return driver_fail(pair, rc, "%s: %s", "the pool",
				   reef_error_text(rc));
	}
	pair->context = ours;
	return 0;
}

static int alloc_reef_run(struct driver_pair *pair, const char *name,
			  double seconds, double *rate)
{
	struct ours *ours = pair->context;
	int rc = alloc_run(&ours_ops, ours, ours_second, &ours->blocks,
			   ours->live, name, seconds, rate);

	return rc ? driver_fail(pair, rc, "%s", reef_error_text(rc)) : 0;
}

static void alloc_reef_close(struct driver_pair *pair)
{
	struct ours *ours = pair->context;

	free(ours->blocks.all);
	reef_space_close(ours->space);
	reef_close(ours->reef);
	free(ours);
}

static const struct driver alloc_reef_driver = {
	.name = "reef",
	.open = alloc_reef_open,
	.run = alloc_reef_run,
	.close = alloc_reef_close,
};

static int limit_open(struct driver_pair *pair)
{
	strcpy(pair->description, "what is allowed");
	return 0;
}

static int limit_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	*rate = LIMIT;
	return 0;
}

static const struct driver limit_driver = {
	.name = "limit",
	.open = limit_open,
	.run = limit_run,
};

/* --- the bench --- */

static const struct bench_competitor competitors[] = {
	{.name = "reef", .driver = &alloc_reef_driver},
	{.name = "limit", .driver = &limit_driver},
	{.name = "mimalloc",
	 .program = "peer_mimalloc",
	 .absent = BENCH_MIMALLOC_ABSENT},
	{0},
};

static const struct bench_case speed_cases[] = {
	{"own-64",
	 "allocate and free 64 B in one's own slab",
	 {{"mimalloc", 0.5}}},
	{"own-4k",
	 "allocate and free 4 KiB in one's own slab",
	 {{"mimalloc", 0.5}}},
	{"own-32k",
	 "allocate and free 32 KiB in one's own slab",
	 {{"mimalloc", 0.5}}},
	{"remote-free",
	 "free 64 B of another handle, or thread",
	 {{"mimalloc", 0.5}}},
	{0},
};

static const struct bench_case fragmentation_cases[] = {
	{"fragmentation",
	 "memory used over asked for, 16 B to 1 MiB at random",
	 {{"limit", 1.0}, {"mimalloc", 0}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "blocks", .competitors = competitors, .cases = speed_cases},
	{.fabric = "fragmentation",
	 .size = 2048 * MIB,
	 .size_quick = 128 * MIB,
	 .competitors = competitors,
	 .cases = fragmentation_cases,
	 .unit = "used/asked",
	 .less_is_better = true},
	{0},
};

const struct bench alloc_bench = {
	.name = "alloc",
	.about = "blocks of a pool, beside mimalloc",
	.unit = "ops/s",
	.note = "Time is the thread's own on the processor. What mimalloc uses "
		"is its resident\nmemory, what Reef uses is all that its space "
		"has taken from the pool, in extents of\n64 MiB: with little "
		"live, as in the short form, that is coarse.",
	.groups = groups,
};
