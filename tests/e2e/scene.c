/* scene.c - a process that changes the keys of a map as fast as it can, for the
 * tests to kill at any moment; and others that use the same map.
 *
 *   scene change SPACE MAP FILE KEYS SIZE  until SIGTERM
 *   scene rewrite SPACE MAP FILE KEYS      puts each key's value once more
 *   scene put SPACE MAP FILE COUNT         COUNT sessions, one after the other,
 *                                          each of which puts a key
 *
 * What its calls came to is counted in the FILE, which is mapped, so that it is
 * known of those who are killed, too; who comes next counts on. KEYS: how many
 * keys there are; values have 8 to SIZE bytes, as many of one size as of the
 * double. Ends with 0; 1: an error that was not expected, which it prints; 3:
 * the session was fenced. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <reef/map.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FENCED 3
#define VALUE_MIN 8u

/* In the FILE; read by scene.py. */
struct counts {
	uint64_t calls;	   /* that ended as they should */
	uint64_t full;	   /* -ENOSPC */
	uint64_t in_doubt; /* -REEF_EINDOUBT, -ETIMEDOUT */
	uint64_t sessions; /* that were opened */
	uint64_t refused;  /* not opened, -ENOSPC */
};

struct worker {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct counts *counts;
	uint64_t keys, random;
	uint32_t size;
	uint8_t *value;
	struct reef_map_value found;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static uint64_t below(struct worker *worker, uint64_t bound)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return bound ? (worker->random >> 11) % bound : 0;
}

/* A size between the least and the most: each doubling is as likely. */
static uint32_t some_size(struct worker *worker)
{
	uint32_t doublings = 0, low;

	while (VALUE_MIN << (doublings + 1) < worker->size)
		doublings++;
	low = VALUE_MIN << below(worker, doublings + 1);
	low += (uint32_t)below(worker, low);
	return low < worker->size ? low : worker->size;
}

static int failed(const char *what, int rc)
{
	if (rc == -REEF_EFENCED)
		return FENCED;
	printf("%s: %s\n", what, reef_error_text(rc));
	return 1;
}

/* --- calls --- */

/* Replace what is there, if nobody was quicker. */
static int replace(struct worker *worker, uint64_t key, uint32_t size)
{
	int rc = reef_map_get(worker->map, &key, sizeof(key), &worker->found);

	return rc ? rc
		  : reef_map_replace(worker->map, &key, sizeof(key),
				     worker->found.version, worker->value, size,
				     0, NULL);
}

static int change_one(struct worker *worker)
{
	uint64_t key = below(worker, worker->keys);
	uint32_t size = some_size(worker);

	memset(worker->value, (int)worker->random & 0xff, size);
	switch (below(worker, 4)) {
	case 0:
		return reef_map_insert(worker->map, &key, sizeof(key),
				       worker->value, size, 0, NULL);
	case 1:
		return reef_map_delete(worker->map, &key, sizeof(key), 0);
	case 2:
		return replace(worker, key, size);
	default:
		return reef_map_put(worker->map, &key, sizeof(key),
				    worker->value, size, 0, NULL);
	}
}

/* Count what a call came to. 0: go on. */
static int count_call(struct worker *worker, int rc)
{
	switch (rc) {
	case 0:
	case -ENOENT:
	case -EEXIST:
	case -ESTALE:
	case -EBUSY:
		worker->counts->calls++;
		return 0;
	case -ENOSPC:
		worker->counts->full++;
		return 0;
	case -REEF_EINDOUBT:
	case -ETIMEDOUT:
		worker->counts->in_doubt++;
		return 0;
	default:
		return failed("a call", rc);
	}
}

static int change_all(struct worker *worker)
{
	int rc = 0;

	while (!rc && !stopping)
		rc = count_call(worker, change_one(worker));
	return rc;
}

/* Put what is there once more: so that it lies where nobody else's is. */
static int rewrite_all(struct worker *worker)
{
	int rc = 0;

	for (uint64_t key = 0; !rc && key < worker->keys; key++) {
		rc = reef_map_get(worker->map, &key, sizeof(key),
				  &worker->found);
		if (!rc)
			rc = reef_map_put(worker->map, &key, sizeof(key),
					  worker->found.bytes,
					  worker->found.size, 0, NULL);
		rc = count_call(worker, rc);
	}
	return rc;
}

/* --- sessions --- */

static int join(struct worker *worker, char **argv)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	int rc = reef_open(NULL, NULL, &worker->reef);

	if (!rc)
		rc = reef_space_open(worker->reef, argv[0], &options,
				     &worker->space);
	if (!rc)
		rc = reef_map_open(worker->space, argv[1], NULL, &worker->map);
	if (!rc)
		worker->counts->sessions++;
	return rc;
}

static void leave(struct worker *worker)
{
	reef_map_close(worker->map);
	reef_close(worker->reef);
	worker->map = NULL;
	worker->reef = NULL;
}

/* One session: it puts a key, and is gone. */
static int put_once(struct worker *worker, char **argv)
{
	uint64_t key = below(worker, 64);
	int rc = join(worker, argv);

	if (rc == -ENOSPC) {
		worker->counts->refused++;
		rc = 0;
	} else if (!rc) {
		rc = count_call(worker,
				reef_map_put(worker->map, &key, sizeof(key),
					     &key, sizeof(key), 0, NULL));
	} else {
		rc = failed("opening", rc);
	}
	leave(worker);
	return rc;
}

static struct counts *map_counts(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at;

	if (fd < 0 || ftruncate(fd, sizeof(struct counts)))
		return NULL;
	at = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE,
		  MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static int run(struct worker *worker, const char *mode, char **argv)
{
	uint64_t left = argv[3] ? strtoull(argv[3], NULL, 10) : 0;
	int rc = 0;

	if (!strcmp(mode, "put")) {
		while (!rc && !stopping && left--)
			rc = put_once(worker, argv);
		return rc;
	}
	rc = join(worker, argv);
	if (rc)
		return failed("opening", rc);
	worker->keys = left;
	rc = strcmp(mode, "change") ? rewrite_all(worker) : change_all(worker);
	leave(worker);
	return rc;
}

int main(int argc, char **argv)
{
	struct worker worker = {0};
	struct sigaction action = {.sa_handler = on_stop};
	struct timespec now;
	int rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	worker.random = ((uint64_t)getpid() << 32 ^ (uint64_t)now.tv_nsec) | 1;
	worker.size = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 64;
	worker.value = malloc(worker.size);
	worker.counts = map_counts(argv[4]);
	if (!worker.value || !worker.counts)
		return 2;
	rc = run(&worker, argv[1], argv + 2);
	reef_map_value_free(&worker.found);
	free(worker.value);
	return rc;
}
