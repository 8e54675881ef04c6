/* driver.c - what all competitors share: two processes, memory, serving. */
#include "driver.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Polls between two looks whether the client is still alive: often enough to
 * end within milliseconds, too seldom to be measured. */
#define POLLS_PER_LOOK 65536

struct driver_control {
	_Atomic uint32_t working;
	char error[160]; /* why the target ended; written before it does */
};

int driver_fail(struct driver_pair *pair, int code, const char *format, ...)
{
	va_list args;

	if (!pair->error[0]) {
		va_start(args, format);
		vsnprintf(pair->error, sizeof(pair->error), format, args);
		va_end(args);
	}
	return code;
}

/* --- the pair --- */

/* The processors that the whole competitor may use, from before its client was
 * pinned. */
static cpu_set_t allowed;

void driver_pin(uint32_t index)
{
	cpu_set_t one;

	if (CPU_COUNT(&allowed) < 2)
		return;
	index %= (uint32_t)CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || index--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

void driver_unpin(void)
{
	if (CPU_COUNT(&allowed))
		sched_setaffinity(0, sizeof(allowed), &allowed);
}

static void pin_client(void)
{
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		CPU_ZERO(&allowed);
	driver_pin(0);
}

int driver_fork(struct driver_pair *pair,
		int (*target)(struct driver_pair *pair))
{
	int sockets[2], rc;

	pair->control = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pair->control == MAP_FAILED)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	pair->target = fork();
	if (pair->target < 0) {
		rc = -errno;
		close(sockets[0]);
		close(sockets[1]);
		return rc;
	}
	if (pair->target == 0) {
		close(sockets[0]);
		pair->channel = sockets[1];
		driver_pin(1);
		rc = target(pair);
		if (rc && rc != -EPIPE)
			snprintf(pair->control->error,
				 sizeof(pair->control->error), "%s",
				 pair->error[0] ? pair->error : strerror(-rc));
		_exit(rc ? 1 : 0);
	}
	close(sockets[1]);
	pair->channel = sockets[0];
	return 0;
}

/* Note that the other side is gone.  -EPIPE. */
static int other_ended(struct driver_pair *pair)
{
	const char *why = pair->control->error;

	return driver_fail(pair, -EPIPE, "%s",
			   why[0] ? why : "its target process ended");
}

int driver_send(struct driver_pair *pair, const void *bytes, size_t size)
{
	const char *from = bytes;

	while (size > 0) {
		ssize_t n = send(pair->channel, from, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return other_ended(pair);
		from += n;
		size -= (size_t)n;
	}
	return 0;
}

int driver_receive(struct driver_pair *pair, void *bytes, size_t size)
{
	char *to = bytes;

	while (size > 0) {
		ssize_t n = recv(pair->channel, to, size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return other_ended(pair);
		to += n;
		size -= (size_t)n;
	}
	return 0;
}

int driver_target_go(struct driver_pair *pair, enum workload_mode mode)
{
	uint8_t byte = (uint8_t)mode;

	if (!pair->control)
		return 0;
	atomic_store_explicit(&pair->control->working, 1, memory_order_relaxed);
	return driver_send(pair, &byte, 1);
}

int driver_target_rest(struct driver_pair *pair)
{
	uint8_t byte;

	if (!pair->control)
		return 0;
	atomic_store_explicit(&pair->control->working, 0, memory_order_relaxed);
	return driver_receive(pair, &byte, 1);
}

void driver_target_loop(struct driver_pair *pair,
			void (*progress)(struct driver_pair *pair,
					 enum workload_mode mode))
{
	pid_t client = getppid();
	uint8_t mode;

	while (driver_receive(pair, &mode, 1) == 0) {
		uint32_t polls = 0;

		while (atomic_load_explicit(&pair->control->working,
					    memory_order_relaxed)) {
			progress(pair, mode);
			if (++polls % POLLS_PER_LOOK == 0 &&
			    getppid() != client)
				return;
		}
		if (driver_send(pair, &mode, 1))
			return;
	}
}

/* --- memory --- */

void driver_fill(void *base, uint64_t size)
{
	uint64_t *words = base;

	for (uint64_t i = 0; i < size / 8; i++)
		words[i] = workload_fill(i);
}

/* FILE:OFFSET.  -1: errno says why. */
static int open_shared(const char *shared, off_t *offset)
{
	const char *end = strrchr(shared, ':');
	char path[64];

	*offset = end ? (off_t)strtoull(end + 1, NULL, 10) : 0;
	snprintf(path, sizeof(path), "%.*s",
		 end ? (int)(end - shared) : (int)strlen(shared), shared);
	return open(path, O_RDWR | O_CLOEXEC);
}

void *driver_memory(struct driver_pair *pair)
{
	const struct driver_options *options = &pair->options;
	off_t offset = 0;
	void *base;
	int fd;

	if (options->shared)
		fd = open_shared(options->shared, &offset);
	else
		fd = memfd_create("reef-bench", MFD_CLOEXEC);
	if (fd < 0 ||
	    (!options->shared && ftruncate(fd, (off_t)options->size))) {
		driver_fail(pair, 0, "memory: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	base = mmap(NULL, options->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    offset);
	close(fd);
	if (base == MAP_FAILED) {
		driver_fail(pair, 0, "mapping the memory: %s", strerror(errno));
		return NULL;
	}
	/* Ask for huge pages, as Reef's memory does; then fill the page
	 * tables. */
	madvise(base, options->size, MADV_HUGEPAGE);
	madvise(base, options->size, MADV_POPULATE_WRITE);
	if (!options->shared)
		driver_fill(base, options->size);
	return base;
}

uint32_t driver_huge_percent(void)
{
	/* Huge pages of the reserved kind are not in Rss. */
	static const struct {
		const char *name;
		bool is_huge, is_apart;
	} rows[] = {
		{"Rss:", false, true},
		{"AnonHugePages:", true, false},
		{"ShmemPmdMapped:", true, false},
		{"FilePmdMapped:", true, false},
		{"Shared_Hugetlb:", true, true},
		{"Private_Hugetlb:", true, true},
	};
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	unsigned long long kib, huge = 0, all = 0;
	char line[128], name[64];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %llu kB", name, &kib) != 2)
			continue;
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			if (strcmp(rows[i].name, name) != 0)
				continue;
			huge += rows[i].is_huge ? kib : 0;
			all += rows[i].is_apart ? kib : 0;
		}
	}
	if (file)
		fclose(file);
	return all ? (uint32_t)(100 * huge / all) : 0;
}

int driver_state(struct workload_state *state, uint64_t size)
{
	*state = (struct workload_state){
		.lines = size / WORKLOAD_LINE - 2,
		.random = 1,
		.local =
			mmap(NULL, WORKLOAD_LENGTH_MAX, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
	};
	return state->local == MAP_FAILED ? -ENOMEM : 0;
}

void driver_state_free(struct workload_state *state)
{
	munmap(state->local, WORKLOAD_LENGTH_MAX);
}

/* --- serving --- */

static int round_run_both(const struct driver *driver, struct driver_pair *pair,
			  const char *name, double seconds, double *rate)
{
	const struct workload *workload = workload_find(name);
	int rc, rest;

	rc = driver_target_go(pair, workload ? workload->mode : WORKLOAD_SPIN);
	if (rc)
		return rc;
	rc = driver->run(pair, name, seconds, rate);
	rest = driver_target_rest(pair);
	return rest ? rest : rc;
}

static int round_run(const struct driver *driver, struct driver_pair *pair,
		     const char *name, double seconds, double *rate)
{
	int rc;

	pair->error[0] = '\0';
	pair->cost = (struct driver_cost){0};
	if (pair->target_rests)
		rc = driver->run(pair, name, seconds, rate);
	else
		rc = round_run_both(driver, pair, name, seconds, rate);
	if (rc == -EILSEQ)
		driver_fail(pair, rc, "wrong data");
	if (rc == -ENOSYS)
		driver_fail(pair, rc, "has no such operation");
	return rc;
}

static void pair_close(const struct driver *driver, struct driver_pair *pair)
{
	if (driver->close)
		driver->close(pair);
	if (pair->control) {
		close(pair->channel);
		waitpid(pair->target, NULL, 0);
	}
}

int driver_serve(const struct driver *driver,
		 const struct driver_options *options, int in, int out)
{
	struct driver_pair pair = {.options = *options, .channel = -1};
	char line[128], name[64];
	double seconds, rate;
	FILE *commands = fdopen(in, "r");
	int rc;

	signal(SIGPIPE, SIG_IGN);
	/* Ctrl-C is for the harness: its end closes the pipe, and then there is
	 * time to tidy up (libfabric has files in /dev/shm). */
	signal(SIGINT, SIG_IGN);
	pin_client();
	rc = commands ? driver->open(&pair) : -errno;
	if (rc) {
		dprintf(out, "error %s\n",
			pair.error[0] ? pair.error : strerror(-rc));
		return 1;
	}
	dprintf(out, "ready %s %s\n", pair.shared[0] ? pair.shared : "-",
		pair.description);
	while (fgets(line, sizeof(line), commands)) {
		if (sscanf(line, "%63s %lf", name, &seconds) != 2)
			break;
		rc = round_run(driver, &pair, name, seconds, &rate);
		if (rc)
			dprintf(out, "error %s\n",
				pair.error[0] ? pair.error : strerror(-rc));
		else
			dprintf(out, "rate %.6e %.6e %.6e %.6e\n", rate,
				pair.cost.disk_bytes, pair.cost.faults,
				pair.cost.waited);
	}
	pair_close(driver, &pair);
	return 0;
}

static int run_for_people(const struct driver *driver, int argc, char **argv)
{
	struct driver_pair pair = {
		.options = {.size = UINT64_C(1) << 30, .fabric = "shm"},
		.channel = -1,
	};
	const char *name = argv[1];
	double rate;
	int rc;

	if (strncmp(name, "tcp-", 4) == 0)
		pair.options = (struct driver_options){.size = 64 << 20,
						       .fabric = "tcp"};
	pin_client();
	rc = driver->open(&pair);
	for (int i = 2; !rc && i < argc; i++) {
		rc = round_run(driver, &pair, name, strtod(argv[i], NULL),
			       &rate);
		if (!rc)
			printf("%s %s %.0f ops/s (%.0f ns) %s\n", driver->name,
			       name, rate, 1e9 / rate, pair.description);
	}
	if (rc) {
		fprintf(stderr, "%s: %s\n", driver->name,
			pair.error[0] ? pair.error : strerror(-rc));
		return 1;
	}
	pair_close(driver, &pair);
	return 0;
}

int driver_main(const struct driver *driver, int argc, char **argv)
{
	struct driver_options options = {.size = UINT64_C(1) << 30};

	if (argc < 3) {
		fprintf(stderr,
			"usage: %s CASE SECONDS...\n"
			"       %s --serve FABRIC SIZE small|huge [SHARED]\n",
			argv[0], argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "--serve") != 0)
		return run_for_people(driver, argc, argv);
	options.fabric = argv[2];
	if (argc > 3)
		options.size = strtoull(argv[3], NULL, 10);
	options.huge = argc > 4 && strcmp(argv[4], "huge") == 0;
	options.shared = argc > 5 ? argv[5] : NULL;
	return driver_serve(driver, &options, STDIN_FILENO, STDOUT_FILENO);
}

/* --- one process --- */

static int one_open(struct driver_pair *pair)
{
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "one process of Reef's: 1, where the figure is times its "
		 "rate");
	return 0;
}

static int one_run(struct driver_pair *pair, const char *name, double seconds,
		   double *figure)
{
	(void)pair;
	(void)name;
	(void)seconds;
	*figure = 1;
	return 0;
}

const struct driver driver_one = {
	.name = "one",
	.open = one_open,
	.run = one_run,
};
