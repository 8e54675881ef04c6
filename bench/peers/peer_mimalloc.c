/* peer_mimalloc.c - the cases of `reef bench alloc` over mimalloc.
 *
 * What it uses is how much more memory is resident than at the beginning; so
 * every page of a block is written once.
 *
 * Thread: owner. */
#include "alloc_work.h"

#include <mimalloc.h>

struct mine {
	struct alloc_blocks blocks;
	uint64_t live, resident; /* at the beginning */
};

workload_inline int mi_alloc(void *context, uint64_t size, uint64_t *block)
{
	void *at = mi_malloc(size);

	*block = (uint64_t)(uintptr_t)at;
	return at ? 0 : -ENOMEM;
}

workload_inline int mi_give(void *context, uint64_t block)
{
	mi_free((void *)(uintptr_t)block);
	return 0;
}

workload_inline int mi_write(void *context, uint64_t block, uint64_t word)
{
	*(volatile uint64_t *)(uintptr_t)block = word;
	return 0;
}

static void mi_touch(void *context, uint64_t block, uint64_t size)
{
	volatile char *bytes = (volatile char *)(uintptr_t)block;

	for (uint64_t i = 0; i < size; i += 4096)
		bytes[i] = 1;
	bytes[size - 1] = 1;
}

static uint64_t resident(void)
{
	unsigned long long total = 0, pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file) {
		if (fscanf(file, "%llu %llu", &total, &pages) != 2)
			pages = 0;
		fclose(file);
	}
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int mi_used(void *context, uint64_t *bytes)
{
	*bytes = resident() - ((struct mine *)context)->resident;
	return 0;
}

static int mi_second_open(void *context, void **second)
{
	*second = context;
	return 0;
}

static void mi_second_close(void *second)
{
}

static const struct alloc_ops mi_ops = {
	.alloc = mi_alloc,
	.free = mi_give,
	.write = mi_write,
	.touch = mi_touch,
	.used = mi_used,
	.second_open = mi_second_open,
	.second_close = mi_second_close,
};

static void *mi_second(void *hands)
{
	alloc_second(hands);
	return NULL;
}

static int mimalloc_open(struct driver_pair *pair)
{
	struct mine *mine = calloc(1, sizeof(*mine));

	if (!mine)
		return -ENOMEM;
	snprintf(pair->description, sizeof(pair->description), "mimalloc %d.%d",
		 mi_version() / 100, mi_version() % 100);
	if (pair->options.size)
		mine->live = alloc_live(pair);
	mine->resident = resident();
	pair->context = mine;
	return 0;
}

static int mimalloc_run(struct driver_pair *pair, const char *name,
			double seconds, double *rate)
{
	struct mine *mine = pair->context;

	return alloc_run(&mi_ops, mine, mi_second, &mine->blocks, mine->live,
			 name, seconds, rate);
}

static const struct driver mimalloc_driver = {
	.name = "mimalloc",
	.open = mimalloc_open,
	.run = mimalloc_run,
};

int main(int argc, char **argv)
{
	return driver_main(&mimalloc_driver, argc, argv);
}
