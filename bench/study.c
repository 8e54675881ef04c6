/* study.c - see study.h. */
#include "bench/study.h"
#include "bench/units.h"

#include <string.h>

/* Enough under way to keep every engine busy through a round trip. */
#define THREADS 16
#define DEPTH 32

static void load_connections(uint32_t line, uint64_t point,
			     struct shape_load *load)
{
	load->cost.transport = line ? REEF_COST_DATAGRAM : REEF_COST_CONNECTED;
	load->servers = 8;
	load->connections = (uint32_t)point;
	load->threads = THREADS;
	load->depth = DEPTH;
	/* Each connection is used a few times before it is measured. */
	load->warm = 20000 + 4 * (uint32_t)point;
}

static const struct study connections = {
	.name = "connections",
	.title = "Connections outgrow the NIC's cache; datagrams have none",
	.subtitle = "8-byte READs from one host to 8, at random over its "
		    "connections",
	.point_name = "connections",
	.lines = {"connected", "datagrams"},
	.points = {16, 64, 256, 1024, 2048, 4096, 5120, 6144, 8192, 16384,
		   32768},
	.quick_points = {64, 1024, 4096, 8192, 16384},
	.load = load_connections,
};

static void load_atomics(uint32_t line, uint64_t point, struct shape_load *load)
{
	load->threads = point < THREADS ? (uint32_t)point : THREADS;
	load->depth = (uint32_t)point / load->threads;
	load->kind = line == 0 ? REEF_READ : REEF_FAA;
	load->hot = line != 1;
}

static const struct study atomics = {
	.name = "atomics",
	.title = "Atomics on one hot word queue up; reads do not",
	.subtitle = "8-byte operations from one host to another",
	.point_name = "operations under way",
	.logarithmic = true,
	.lines = {"READ, one word", "FAA, any word", "FAA, one word"},
	.points = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
	.quick_points = {1, 4, 16, 64, 256},
	.load = load_atomics,
};

static void load_pages(uint32_t line, uint64_t point, struct shape_load *load)
{
	load->threads = THREADS;
	load->depth = DEPTH;
	load->size = point;
	load->cost.page_size = line ? 2 * MIB : 4096;
	/* The warm-up lasts until the cache has seen as many pages as it can
	 * hold. */
	load->warm = point >= 64 * MIB ? 150000 : 30000;
}

static const struct study pages = {
	.name = "pages",
	.title = "4 KiB pages outgrow the NIC's cache; huge pages do not",
	.subtitle = "8-byte READs from one host, at random over a region of "
		    "another",
	.point_name = "size of the region",
	.points_are_bytes = true,
	.lines = {"4 KiB pages", "2 MiB pages"},
	.points = {16 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB,
		   1024 * MIB, 4096 * MIB, 16384 * MIB},
	.quick_points = {64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB},
	.load = load_pages,
};

static void load_threads(uint32_t line, uint64_t point, struct shape_load *load)
{
	load->threads = (uint32_t)point;
	load->depth = 64; /* one thread is then held up by its doorbell alone */
	load->shared = line == 1;
}

static const struct study threads = {
	.name = "threads",
	.title = "A queue shared among threads costs more than a queue each",
	.subtitle = "8-byte READs from one host to another, 64 under way per "
		    "thread",
	.point_name = "threads",
	.lines = {"a queue each", "one queue, shared"},
	.points = {1, 2, 4, 8, 16, 32, 64, 96},
	.quick_points = {1, 4, 16, 64},
	.load = load_threads,
};

const struct study *const study_all[] = {&connections, &atomics, &pages,
					 &threads, NULL};

const struct study *study_find(const char *name)
{
	for (int i = 0; study_all[i]; i++)
		if (!strcmp(study_all[i]->name, name))
			return study_all[i];
	return NULL;
}

int study_run(const struct study *study, uint32_t line, uint64_t point,
	      uint64_t seed, struct shape_result *out)
{
	struct shape_load load = {.seed = seed};

	study->load(line, point, &load);
	return shape_run(&load, out);
}
