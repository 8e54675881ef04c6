/* log_history.c - one of several processes on one log, any of which may be
 * killed.
 *
 *   log_history append|read|member SPACE LOG FILE NUMBER    until SIGTERM
 *   log_history drain SPACE LOG FILE NUMBER    what is left, of a sealed log
 *
 * What is done is written to the FILE, as records, before it is done and when
 * it has been, with the time, which all processes of a machine have in common.
 * NUMBER: of the process, each another. A reader also fills positions that
 * others have just drawn. Ends with 0; 1: an error that was not expected, or a
 * reader that is stuck; 3: the session was fenced. */
#include <errno.h>
#include <fcntl.h>
#include <reef/fiber.h>
#include <reef/log_reader.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FENCED 3
#define MOST 8u
#define PAUSE_NS UINT64_C(10000000)

/* log_histories.py reads these. */
enum kind { TRIED, APPENDED, SEEN, GIVEN, TRIED_DONE, DONE };

struct record {
	uint64_t kind, value, position, called_ns, now_ns;
};

struct worker {
	struct reef *reef;
	struct reef_log *log;
	struct reef_reader *reader;
	uint64_t number, values, random, called_ns;
	uint64_t held[MOST];
	uint32_t held_count;
	int fd;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t below(struct worker *worker, uint64_t bound)
{
	worker->random = worker->random * UINT64_C(6364136223846793005) +
			 UINT64_C(1442695040888963407);
	return (worker->random >> 33) % bound;
}

static int note(struct worker *worker, enum kind kind, uint64_t value,
		uint64_t position)
{
	const struct record record = {
		.kind = kind,
		.value = value,
		.position = position,
		.called_ns = worker->called_ns,
		.now_ns = now_ns(),
	};

	return write(worker->fd, &record, sizeof(record)) == sizeof(record)
		       ? 0
		       : -EIO;
}

/* --- appending --- */

static int append_one(struct worker *worker)
{
	uint64_t value = worker->number << 32 | ++worker->values, position;
	char bytes[600] = {0};
	/* One in eight is longer than a cell. */
	size_t size = 8 + below(worker, below(worker, 8) ? 100 : 590);
	int rc = note(worker, TRIED, value, 0);

	memcpy(bytes, &value, 8);
	if (!rc)
		rc = reef_log_append(worker->log, bytes, size, &position);
	return rc ? rc : note(worker, APPENDED, value, position);
}

/* --- reading --- */

static uint64_t value_of(const void *bytes, size_t size)
{
	uint64_t value = 0;

	if (size >= 8)
		memcpy(&value, bytes, 8);
	return value;
}

static int see(void *context, uint64_t position, const void *bytes, size_t size)
{
	return note(context, SEEN, value_of(bytes, size), position);
}

/* Read on from a position. One below the tail is passed: who died there does
 * not keep anybody. */
static int read_some(struct worker *worker, uint64_t *at)
{
	uint64_t tail, from = *at;
	int rc = reef_log_tail(worker->log, &tail);

	if (!rc && from < tail && !below(worker, 4))
		rc = reef_log_fill(worker->log, tail - 1);
	if (rc == -EEXIST || rc == -ERANGE)
		rc = 0;
	if (!rc)
		rc = reef_log_read(worker->log, from, 64, see, worker, at);
	if (!rc && from < tail && *at == from) {
		fprintf(stderr, "stuck at %llu, below %llu\n",
			(unsigned long long)from, (unsigned long long)tail);
		return -EDEADLK;
	}
	if (!rc && *at == from)
		rc = reef_log_wait(worker->log, from, PAUSE_NS);
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* --- a member of the group --- */

static int take(void *context, uint64_t position, const void *bytes,
		size_t size)
{
	struct worker *worker = context;

	worker->held[worker->held_count++] = position;
	return note(worker, GIVEN, value_of(bytes, size), position);
}

static int work_once(struct worker *worker, uint64_t timeout_ns)
{
	uint32_t most = 1 + (uint32_t)below(worker, MOST), i;
	int rc;

	worker->held_count = 0;
	worker->called_ns = now_ns();
	rc = reef_reader_next(worker->reader, most, timeout_ns, take, worker);
	for (i = 0; !rc && i < worker->held_count; i++) {
		rc = note(worker, TRIED_DONE, 0, worker->held[i]);
		if (!rc)
			rc = reef_reader_done(worker->reader, worker->held[i]);
		if (!rc)
			rc = note(worker, DONE, 0, worker->held[i]);
	}
	return rc;
}

/* --- the process --- */

static int open_all(struct worker *worker, char **arguments)
{
	struct reef_log_options options = {.segment = 256, .segments = 65536};
	const struct reef_reader_options group = {.flags = REEF_READER_GROUP,
						  .window = 64};
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	int rc = reef_open("local", NULL, &worker->reef);

	/* The log's name says how it is ordered. */
	if (!strncmp(arguments[3], "cuts", 4)) {
		options.flags = REEF_LOG_SHARDED;
		options.segments = 2048;
	}
	if (!rc)
		rc = reef_space_open(worker->reef, arguments[2], &create,
				     &space);
	if (!rc)
		rc = reef_log_open(space, arguments[3], &options, &worker->log);
	if (!rc)
		rc = reef_reader_open(worker->log, "group", &group,
				      &worker->reader);
	return rc;
}

static int run(struct worker *worker, const char *mode)
{
	uint64_t at = 0;
	int rc = 0;

	while (!rc && !stopping) {
		if (!strcmp(mode, "append"))
			rc = append_one(worker);
		else if (!strcmp(mode, "read"))
			rc = read_some(worker, &at);
		else if (!strcmp(mode, "member"))
			rc = work_once(worker, PAUSE_NS);
		else
			rc = work_once(worker, REEF_FOREVER);
		if (rc == -ETIMEDOUT && strcmp(mode, "append"))
			rc = 0;
		/* Whether it happened is not known: as if it had been killed
		 * here. */
		if (rc == -REEF_EINDOUBT)
			rc = 0;
	}
	return rc == -ESHUTDOWN && !strcmp(mode, "drain") ? 0 : rc;
}

int main(int argc, char **argv)
{
	struct sigaction stop = {.sa_handler = on_stop};
	struct worker worker = {0};
	int rc;

	if (argc != 6)
		return 2;
	sigaction(SIGTERM, &stop, NULL);
	worker.number = strtoull(argv[5], NULL, 10);
	worker.random = worker.number;
	worker.fd = open(argv[4], O_CREAT | O_WRONLY | O_APPEND, 0600);
	rc = worker.fd < 0 ? -errno : open_all(&worker, argv);
	if (!rc)
		rc = run(&worker, argv[1]);
	if (!rc) {
		reef_reader_close(worker.reader);
		reef_log_close(worker.log);
		reef_close(worker.reef);
		return 0;
	}
	fprintf(stderr, "%s: %s\n", argv[1], reef_error_text(rc));
	return rc == -REEF_EFENCED || reef_health(worker.reef) == -REEF_EFENCED
		       ? FENCED
		       : 1;
}
