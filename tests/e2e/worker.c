/* worker.c - a program that uses a pool, for the tests to kill.
 *
 * usage: worker MODE SPACE [NUMBER [SIZE]]
 *
 * churn: allocate, write, read and free until SIGTERM. NUMBER: live blocks at
 *   most, SIZE: the largest. Every byte read must be the one written. At
 *   SIGUSR1 it says how many rounds it has done. With $WORKER_PAUSE it rests so
 *   many microseconds after each 16 of them, and leaves the processors to
 *   others.
 * lossy: the same, but memory may be lost (REEF_ELOST).
 * hold: NUMBER blocks of SIZE, then wait for SIGTERM.
 * fill: blocks of SIZE until there is no room, or NUMBER of them, each checked
 *   at the end and freed; and again.
 * count: a word of a kept block, called "counter", is raised for ever, until
 *   the session is fenced; then a new one goes on.
 * later: NUMBER blocks of SIZE, of which the oldest is freed REEF_FREE_LATER
 * and another taken, until SIGTERM. There must always be room. inside: enter,
 * and do not leave before SIGTERM. fork: as hold, with a child that tries the
 * handle, and lives on. peek: print the word of "counter". open: open the
 * space, and no more. limits: what must be refused, and change nothing.
 *
 * The pool is $REEF_POOL, the token $WORKER_TOKEN. Prints lines of words; ends
 * with 0, or 1 after an error that was not expected, which it prints. */
#include <errno.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS_MAX (1u << 20)

struct block {
	uint64_t address, seed;
	uint32_t size;
};

struct worker {
	struct reef *reef;
	struct reef_space *space;
	struct block *blocks;
	uint32_t count;
	uint32_t number, size;
	uint64_t random;
	uint64_t rounds, lost, full;
	uint8_t *written, *got;
};

static volatile sig_atomic_t stopping, asked;

static void stop(int number)
{
	stopping = 1;
}

static void ask(int number)
{
	asked = 1;
}

static int failed(const char *what, int rc)
{
	printf("error %s %s\n", what, reef_error_name(rc));
	fflush(stdout);
	return 1;
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void pattern(uint64_t seed, uint8_t *bytes, uint32_t size)
{
	uint64_t word;
	uint32_t i;

	seed |= 1;
	for (i = 0; i < size; i += 8) {
		word = next(&seed);
		memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
	}
}

static int join(struct worker *worker, const char *space)
{
	const struct reef_space_options options = {
		.token = getenv("WORKER_TOKEN")};
	int rc;

	rc = reef_open(NULL, NULL, &worker->reef);
	if (rc)
		return failed("open", rc);
	rc = reef_space_open(worker->reef, space, &options, &worker->space);
	return rc ? failed("space", rc) : 0;
}

/* --- blocks --- */

/* True where nodes die, with WORKER_DOUBT: a link was lost, and what was under
 * way on it may have happened or not. */
static bool is_doubt(int rc)
{
	return rc == -REEF_EINDOUBT && getenv("WORKER_DOUBT");
}

/* Take one more, and fill it. 1: there is no room; 2: lost. */
static int take(struct worker *worker, uint32_t size)
{
	struct block *block = &worker->blocks[worker->count];
	int rc;

	rc = reef_alloc(worker->space, size, &block->address);
	if (rc == -ENOSPC || rc == -EDQUOT || is_doubt(rc)) {
		worker->full++;
		return 1;
	}
	if (rc)
		return failed("alloc", rc), rc;
	block->seed = next(&worker->random);
	block->size = size;
	pattern(block->seed, worker->written, size);
	/* What was in doubt is settled, and may be written again. */
	do
		rc = reef_write(worker->reef, block->address, worker->written,
				size);
	while (is_doubt(rc) && !stopping);
	if (rc == -REEF_ELOST)
		return 2;
	if (rc)
		return failed("write", rc), rc;
	worker->count++;
	return 0;
}

static int verify(struct worker *worker, const struct block *block)
{
	uint32_t i;
	int rc;

	rc = reef_read(worker->reef, block->address, worker->got, block->size);
	if (rc == -REEF_ELOST)
		return 2;
	if (rc)
		return failed("read", rc), rc;
	pattern(block->seed, worker->written, block->size);
	if (!memcmp(worker->written, worker->got, block->size))
		return 0;
	for (i = 0; worker->written[i] == worker->got[i];)
		i++;
	printf("error wrong-byte %u of %u at %016llx\n", i, block->size,
	       (unsigned long long)block->address);
	return -EIO;
}

/* Check one and free it. */
static int drop(struct worker *worker, uint32_t index)
{
	struct block *block = &worker->blocks[index];
	int rc = verify(worker, block);

	if (!rc) {
		rc = reef_free(worker->space, block->address, 0);
		if (rc == -REEF_ELOST)
			rc = 2;
		else if (is_doubt(rc))
			rc = 0; /* recovery frees it, if it is not */
		else if (rc)
			failed("free", rc);
	}
	*block = worker->blocks[--worker->count];
	return rc;
}

static int drop_all(struct worker *worker)
{
	int rc = 0;

	while (!rc && worker->count)
		rc = drop(worker, worker->count - 1);
	return rc;
}

/* --- modes --- */

static void say_round(const struct worker *worker)
{
	asked = 0;
	printf("round %llu\n", (unsigned long long)worker->rounds);
	fflush(stdout);
}

static int churn(struct worker *worker, bool lossy)
{
	const char *pause_text = getenv("WORKER_PAUSE");
	useconds_t pause_us = pause_text ? (useconds_t)atoi(pause_text) : 0;
	uint32_t choice;
	int rc = 0;

	while (!stopping && rc >= 0) {
		choice = (uint32_t)next(&worker->random);
		if (worker->count < worker->number &&
		    (!worker->count || choice & 1))
			rc = take(worker, 1 + (choice >> 8) % worker->size);
		else if (worker->count && choice & 2)
			rc = drop(worker, (choice >> 8) % worker->count);
		else if (worker->count)
			rc = verify(
				worker,
				&worker->blocks[(choice >> 8) % worker->count]);
		if (rc == 2) {
			worker->lost++;
			if (!lossy)
				return failed("lost", -REEF_ELOST);
			/* Whichever it was is found again, and dropped. */
			if (worker->count)
				drop(worker, worker->count - 1);
		}
		if (++worker->rounds == 100)
			say("busy");
		if (asked)
			say_round(worker);
		if (pause_us && worker->rounds % 16 == 0)
			usleep(pause_us);
	}
	if (rc >= 0 && !lossy)
		rc = drop_all(worker);
	printf("rounds %llu lost %llu full %llu\n",
	       (unsigned long long)worker->rounds,
	       (unsigned long long)worker->lost,
	       (unsigned long long)worker->full);
	return rc < 0;
}

static int hold(struct worker *worker)
{
	while (worker->count < worker->number)
		if (take(worker, worker->size))
			return 1;
	say("holds");
	while (!stopping)
		pause();
	return drop_all(worker) != 0;
}

static int later(struct worker *worker)
{
	struct block *oldest;
	uint64_t i;
	int rc = 0;

	while (!rc && worker->count < worker->number)
		rc = take(worker, worker->size);
	for (i = 0; !rc && !stopping; i++) {
		oldest = &worker->blocks[i % worker->number];
		rc = reef_free(worker->space, oldest->address, REEF_FREE_LATER);
		if (!rc)
			rc = take(worker, worker->size);
		if (!rc)
			*oldest = worker->blocks[--worker->count];
		if (i == 100)
			say("busy");
	}
	printf("rounds %llu\n", (unsigned long long)i);
	return rc ? failed("later", rc < 0 ? rc : -ENOSPC) : 0;
}

static int inside(struct worker *worker)
{
	uint64_t address;

	/* Who has nothing mapped is not killed by a fence. */
	if (reef_alloc(worker->space, 64, &address) ||
	    reef_write(worker->reef, address, &address, 8))
		return 1;
	reef_enter(worker->reef);
	say("inside");
	while (!stopping)
		pause();
	reef_leave(worker->reef);
	return 0;
}

static int fill(struct worker *worker)
{
	uint32_t count;
	int rc, i;

	for (i = 0; i < 2; i++) {
		do
			rc = take(worker, worker->size);
		while (!rc && worker->count < worker->number);
		if (rc < 0)
			return 1;
		count = worker->count;
		rc = drop_all(worker);
		if (rc)
			return 1;
		printf("filled %u\n", count);
	}
	return 0;
}

static int raise_for_ever(struct worker *worker, uint64_t address)
{
	uint64_t before;
	int rc;

	do
		rc = reef_faa(worker->reef, address, 1, &before);
	while (!rc && !stopping);
	return rc;
}

static int count(struct worker *worker, const char *space)
{
	uint64_t address, zero = 0;
	int rc;

	rc = reef_alloc(worker->space, sizeof(zero), &address);
	if (!rc)
		rc = reef_write(worker->reef, address, &zero, sizeof(zero));
	if (!rc)
		rc = reef_keep(worker->space, address);
	if (!rc)
		rc = reef_name_bind(worker->space, "counter", address, NULL);
	if (rc)
		return failed("prepare", rc);
	say("counts");
	rc = raise_for_ever(worker, address);
	if (rc == -REEF_EINDOUBT) /* it was on its way; what comes then? */
		rc = reef_write(worker->reef, address, &zero, sizeof(zero));
	if (rc != -REEF_EFENCED)
		return failed("count", rc);
	rc = reef_alloc(worker->space, 8, &address);
	printf("fenced %s\n", reef_error_name(rc));
	fflush(stdout);
	reef_close(worker->reef);
	worker->reef = NULL;
	if (join(worker, space))
		return 1;
	rc = reef_name_lookup(worker->space, "counter", &address, NULL);
	if (rc)
		return failed("lookup", rc);
	while (!stopping)
		pause();
	rc = reef_faa(worker->reef, address, 1, NULL);
	return rc ? failed("again", rc) : 0;
}

static int with_child(struct worker *worker)
{
	uint64_t zero = 0;
	pid_t pid;
	int rc;

	while (worker->count < worker->number)
		if (take(worker, worker->size))
			return 1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, 0);
		rc = reef_write(worker->reef, worker->blocks[0].address, &zero,
				sizeof(zero));
		printf("child %d %s\n", (int)getpid(), reef_error_name(rc));
		fflush(stdout);
		while (!stopping)
			pause();
		_exit(0);
	}
	say("holds");
	while (!stopping)
		pause();
	return 0;
}

static int peek(struct worker *worker)
{
	uint64_t address, value;
	int rc;

	rc = reef_name_lookup(worker->space, "counter", &address, NULL);
	if (!rc)
		rc = reef_read(worker->reef, address, &value, sizeof(value));
	if (rc)
		return failed("peek", rc);
	printf("value %llu\n", (unsigned long long)value);
	return 0;
}

/* One that must end so. */
static int want(const char *what, int rc, int wanted)
{
	if (rc == wanted)
		return 0;
	printf("error %s is %s and not %s\n", what, reef_error_name(rc),
	       reef_error_name(wanted));
	return 1;
}

static int limit_names(struct worker *worker)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	char *name = malloc((1 << 20) + 1);
	int bad = 0;

	if (!name)
		return 1;
	memset(name, 'n', 1 << 20);
	name[1 << 20] = '\0';
	bad |= want("bind 1 MiB", reef_name_bind(worker->space, name, 1, NULL),
		    -ENAMETOOLONG);
	bad |= want("space 1 MiB",
		    reef_space_open(worker->reef, name, &make, &space),
		    -ENAMETOOLONG);
	free(name);
	bad |= want("bind nothing", reef_name_bind(worker->space, "", 1, NULL),
		    -EINVAL);
	bad |= want("unbind none", reef_name_unbind(worker->space, "none", 0),
		    -ENOENT);
	return bad;
}

static int limits(struct worker *worker)
{
	uint64_t address, other = 0, word;
	int bad = limit_names(worker);

	bad |= want("alloc 0", reef_alloc(worker->space, 0, &other), -EINVAL);
	bad |= want("alloc 5 GiB",
		    reef_alloc(worker->space, UINT64_C(5) << 30, &other),
		    -EINVAL);
	/* Larger than the pool. */
	bad |= want("alloc 1 GiB",
		    reef_alloc(worker->space, UINT64_C(1) << 30, &other),
		    -ENOSPC);
	bad |= want("alloc", reef_alloc(worker->space, 64, &address), 0);
	bad |= want("cas beside a word",
		    reef_cas(worker->reef, address + 4, 0, 0, NULL), -EINVAL);
	bad |= want("free inside", reef_free(worker->space, address + 8, 0),
		    -EINVAL);
	bad |= want("read nowhere",
		    reef_read(worker->reef, UINT64_C(77) << 32, &word, 8),
		    -EFAULT);
	bad |= want("read past the end",
		    reef_read(worker->reef, address | 0xfffffff8u, &word, 8),
		    -EFAULT);
	bad |= want("free", reef_free(worker->space, address, 0), 0);
	bad |= want("free twice", reef_free(worker->space, address, 0),
		    -EALREADY);
	return bad | want("no address was given", (int)other, 0);
}

static int run(struct worker *worker, const char *mode, const char *space)
{
	if (!strcmp(mode, "churn") || !strcmp(mode, "lossy"))
		return churn(worker, mode[0] == 'l');
	if (!strcmp(mode, "hold"))
		return hold(worker);
	if (!strcmp(mode, "fill"))
		return fill(worker);
	if (!strcmp(mode, "count"))
		return count(worker, space);
	if (!strcmp(mode, "later"))
		return later(worker);
	if (!strcmp(mode, "inside"))
		return inside(worker);
	if (!strcmp(mode, "fork"))
		return with_child(worker);
	if (!strcmp(mode, "peek"))
		return peek(worker);
	if (!strcmp(mode, "limits"))
		return limits(worker);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop};
	struct sigaction report = {.sa_handler = ask, .sa_flags = SA_RESTART};
	struct worker worker = {0};
	int rc;

	if (argc < 3)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGUSR1, &report, NULL);
	worker.number = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 64;
	worker.size = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 4096;
	worker.random = ((uint64_t)getpid() << 32) | 1;
	worker.blocks = calloc(BLOCKS_MAX, sizeof(*worker.blocks));
	worker.written = malloc(worker.size + 8);
	worker.got = malloc(worker.size + 8);
	if (!worker.blocks || !worker.written || !worker.got)
		return 2;
	rc = join(&worker, argv[2]);
	if (!rc)
		rc = run(&worker, argv[1], argv[2]);
	reef_close(worker.reef);
	say(rc ? "failed" : "closed");
	free(worker.blocks);
	free(worker.written);
	free(worker.got);
	return rc;
}
