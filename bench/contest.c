/* contest.c - starts competitors, tells them to run, hears what they say. */
#include "contest.h"

#include "driver.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a competitor may take to fill gigabytes on a busy machine, and to
 * answer after a round's time. */
#define OPEN_TIMEOUT_S 400.0
#define ROUND_TIMEOUT_S 30.0

static uint64_t memory_size(const struct contest *contest)
{
	if (contest->options->size && contest->group->size)
		return contest->options->size;
	return contest->options->quick ? contest->group->size_quick
				       : contest->group->size;
}

static void take_ballast(struct contest *contest)
{
	uint64_t size = memory_size(contest);
	uint64_t free_size = (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
			     (uint64_t)sysconf(_SC_PAGESIZE);
	void *base;

	/* Ballast is taken only where memory is plenty. */
	if (!size || free_size / 6 < size)
		return;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return;
	madvise(base, size, MADV_DONTFORK);
	madvise(base, size, MADV_POPULATE_WRITE);
	contest->ballast = base;
	contest->ballast_size = size;
}

void contest_settle(struct contest *contest)
{
	if (contest->ballast)
		munmap(contest->ballast, contest->ballast_size);
	contest->ballast = NULL;
}

int contest_open(struct contest *contest, const struct bench_group *group,
		 const struct bench_options *options)
{
	*contest = (struct contest){.group = group, .options = options};
	while (group->competitors[contest->count].name)
		contest->count++;
	contest->contestants =
		calloc(contest->count, sizeof(*contest->contestants));
	if (!contest->contestants)
		return -ENOMEM;
	for (uint32_t i = 0; i < contest->count; i++)
		contest->contestants[i].who = &group->competitors[i];
	take_ballast(contest);
	return 0;
}

static void end_contestant(struct contestant *contestant)
{
	if (!contestant->pid)
		return;
	close(contestant->fd);
	waitpid(contestant->pid, NULL, 0);
	contestant->pid = 0;
}

void contest_close(struct contest *contest)
{
	for (uint32_t i = 0; i < contest->count; i++)
		end_contestant(&contest->contestants[i]);
	free(contest->contestants);
	contest_settle(contest);
}

struct contestant *contest_find(struct contest *contest, const char *name)
{
	for (uint32_t i = 0; i < contest->count; i++)
		if (strcmp(contest->contestants[i].who->name, name) == 0)
			return &contest->contestants[i];
	return NULL;
}

__attribute__((format(printf, 2, 3))) static void
give_up(struct contestant *contestant, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(contestant->error, sizeof(contestant->error), format, args);
	va_end(args);
}

/* --- starting --- */

bool contest_find_program(const char *name, char path[PATH_MAX])
{
	const char *directory = getenv("REEF_PEERS");
	char self[PATH_MAX - 64];
	ssize_t size;

	if (directory) {
		snprintf(path, PATH_MAX, "%s/%s", directory, name);
		return access(path, X_OK) == 0;
	}
	size = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (size > 0) {
		self[size] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(path, PATH_MAX, "%s/bench/peers/%s", self, name);
		if (access(path, X_OK) == 0)
			return true;
	}
	snprintf(path, PATH_MAX, "%s/%s", BENCH_LIBEXEC, name);
	return access(path, X_OK) == 0;
}

/* Become the competitor, in the child. */
static int contestant_main(struct contest *contest,
			   const struct bench_competitor *who, int fd,
			   const char *path)
{
	struct driver_options options = {
		.fabric = contest->group->fabric,
		.size = memory_size(contest),
		.huge = contest->options->huge,
		.shared = contest->shared[0] ? contest->shared : NULL,
	};
	char size[24];

	for (uint32_t i = 0; i < contest->count; i++)
		if (contest->contestants[i].pid)
			close(contest->contestants[i].fd);
	if (who->driver)
		return driver_serve(who->driver, &options, fd, dup(fd));
	snprintf(size, sizeof(size), "%llu", (unsigned long long)options.size);
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	execl(path, path, "--serve", options.fabric, size,
	      options.huge ? "huge" : "small", options.shared, (char *)NULL);
	dprintf(STDOUT_FILENO, "error %s: %s\n", path, strerror(errno));
	return 127;
}

/* Read a line that a competitor answers, without the newline. False: its error
 * is set, and it is gone. */
static bool read_answer(struct contestant *contestant, char *line, size_t size,
			double timeout_s)
{
	double until = workload_seconds(CLOCK_MONOTONIC) + timeout_s, left;
	struct pollfd wait = {.fd = contestant->fd, .events = POLLIN};
	size_t used = 0;

	while (used + 1 < size &&
	       (left = until - workload_seconds(CLOCK_MONOTONIC)) > 0) {
		if (poll(&wait, 1, (int)(left * 1000) + 1) <= 0)
			continue;
		if (read(contestant->fd, line + used, 1) != 1) {
			give_up(contestant, "its process ended");
			end_contestant(contestant);
			return false;
		}
		if (line[used] == '\n') {
			line[used] = '\0';
			return true;
		}
		used++;
	}
	give_up(contestant, "no answer in %.0f s", timeout_s);
	kill(contestant->pid, SIGKILL);
	end_contestant(contestant);
	return false;
}

static bool spawn_contestant(struct contest *contest,
			     struct contestant *contestant, const char *path)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) {
		give_up(contestant, "socketpair: %s", strerror(errno));
		return false;
	}
	fflush(NULL);
	contestant->pid = fork();
	if (contestant->pid == 0) {
		close(sockets[0]);
		contestant->pid = 0;
		_exit(contestant_main(contest, contestant->who, sockets[1],
				      path));
	}
	close(sockets[1]);
	contestant->fd = sockets[0];
	if (contestant->pid > 0)
		return true;
	give_up(contestant, "fork: %s", strerror(errno));
	close(sockets[0]);
	contestant->pid = 0;
	return false;
}

static bool start_contestant(struct contest *contest,
			     struct contestant *contestant)
{
	const struct bench_competitor *who = contestant->who;
	char path[PATH_MAX] = "", line[256], shared[64];
	int used = 0;

	if (who->absent) {
		give_up(contestant, "%s", who->absent);
		return false;
	}
	if (who->program && !contest_find_program(who->program, path)) {
		give_up(contestant, "%s is not there", path);
		return false;
	}
	if (!spawn_contestant(contest, contestant, path) ||
	    !read_answer(contestant, line, sizeof(line), OPEN_TIMEOUT_S))
		return false;
	if (sscanf(line, "ready %63s %n", shared, &used) == 1 && used) {
		snprintf(contestant->description,
			 sizeof(contestant->description), "%.159s",
			 line + used);
		if (strcmp(shared, "-") != 0)
			memcpy(contest->shared, shared, sizeof(shared));
		return true;
	}
	give_up(contestant, "%s",
		strncmp(line, "error ", 6) == 0 ? line + 6 : line);
	end_contestant(contestant);
	return false;
}

void contestant_prepare(struct contest *contest, struct contestant *contestant)
{
	contestant->rates_count = 0;
	if (contestant->hopeless)
		return;
	contestant->error[0] = '\0';
	if (!contestant->pid)
		contestant->hopeless = !start_contestant(contest, contestant);
}

/* --- rounds --- */

void contestant_round(struct contestant *contestant, const char *name,
		      double seconds, double patience_s)
{
	struct driver_cost cost = {0};
	char line[256];
	double rate;

	if (contestant->error[0])
		return;
	snprintf(line, sizeof(line), "%s %.6f\n", name, seconds);
	if (send(contestant->fd, line, strlen(line), MSG_NOSIGNAL) < 0) {
		give_up(contestant, "its process ended");
		end_contestant(contestant);
		return;
	}
	if (!read_answer(
		    contestant, line, sizeof(line),
		    seconds + (patience_s > 0 ? patience_s : ROUND_TIMEOUT_S)))
		return;
	if (sscanf(line, "rate %lf %lf %lf %lf", &rate, &cost.disk_bytes,
		   &cost.faults, &cost.waited) == 4 &&
	    rate > 0) {
		contestant->costs[contestant->rates_count] = cost;
		contestant->rates[contestant->rates_count++] = rate;
	} else
		give_up(contestant, "%s",
			strncmp(line, "error ", 6) == 0 ? line + 6 : line);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A quartile of figures, which are sorted here. */
static double quartile_of(double *values, uint32_t count, uint32_t quartile)
{
	double at = (double)quartile * (count - 1) / 4;
	uint32_t low = (uint32_t)at;

	qsort(values, count, sizeof(values[0]), by_value);
	if (low + 1 == count)
		return values[low];
	return values[low] + (at - low) * (values[low + 1] - values[low]);
}

double contestant_median(const struct contestant *contestant)
{
	double values[BENCH_ROUNDS_MAX];
	uint32_t count = contestant->rates_count;

	if (!count)
		return 0;
	memcpy(values, contestant->rates, count * sizeof(values[0]));
	return quartile_of(values, count, 2);
}

double contest_ratio(const struct contestant *reef,
		     const struct contestant *peer, bool less,
		     uint32_t quartile)
{
	uint32_t count = reef->rates_count < peer->rates_count
				 ? reef->rates_count
				 : peer->rates_count;
	double ratios[BENCH_ROUNDS_MAX];

	if (!count)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		ratios[i] = less ? peer->rates[i] / reef->rates[i]
				 : reef->rates[i] / peer->rates[i];
	return quartile_of(ratios, count, quartile);
}

struct driver_cost contestant_cost(const struct contestant *contestant)
{
	double disk[BENCH_ROUNDS_MAX], faults[BENCH_ROUNDS_MAX],
		waited[BENCH_ROUNDS_MAX];
	uint32_t count = contestant->rates_count;

	for (uint32_t i = 0; i < count; i++) {
		disk[i] = contestant->costs[i].disk_bytes;
		faults[i] = contestant->costs[i].faults;
		waited[i] = contestant->costs[i].waited;
	}
	if (!count)
		return (struct driver_cost){0};
	return (struct driver_cost){
		.disk_bytes = quartile_of(disk, count, 2),
		.faults = quartile_of(faults, count, 2),
		.waited = quartile_of(waited, count, 2),
	};
}
