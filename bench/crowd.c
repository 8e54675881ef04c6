/* crowd.c - forks the members, and takes them through a round. */
#include "crowd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGER 4 /* times, if nobody counted */
#define LONGER_MAX 5u
#define NAME_MAX_SIZE 64

/* What a member says, twice a round. */
struct report {
	int rc;
	uint64_t counted, finished;
	char error[120];
};

struct crowd {
	struct driver_pair *pair;
	const struct crowd_ops *ops;
	struct crowd_shared *shared;
	uint32_t count;
	struct {
		pid_t pid;
		int fd;
	} members[CROWD_MAX];
};

/* --- a member --- */

static bool send_message(int fd, const void *bytes, size_t size)
{
	return send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Receive one message: they keep their boundaries. */
static bool receive_message(int fd, void *bytes, size_t size)
{
	ssize_t got;

	do {
		got = recv(fd, bytes, size, 0);
	} while (got < 0 && errno == EINTR);
	return got == (ssize_t)size;
}

static bool member_report(const struct crowd_member *member, int fd, int rc)
{
	struct report report = {
		.rc = rc,
		.counted = member->counted,
		.finished = member->finished,
	};

	memcpy(report.error, member->error, sizeof(report.error));
	return send_message(fd, &report, sizeof(report));
}

static void member_main(struct crowd *crowd, uint32_t index, int fd)
{
	struct crowd_member member = {.shared = crowd->shared, .index = index};
	char name[NAME_MAX_SIZE], go;
	int rc;

	while (receive_message(fd, name, sizeof(name))) {
		member.error[0] = '\0';
		rc = crowd->ops->ready(&member, name);
		if (!member_report(&member, fd, rc) ||
		    !receive_message(fd, &go, 1))
			break;
		/* If one member could not begin, the others do not either. */
		if (!go)
			continue;
		member.counted = member.finished = 0;
		rc = crowd->ops->loop(&member, name);
		if (!member_report(&member, fd, rc))
			break;
	}
	if (crowd->ops->leave)
		crowd->ops->leave(&member);
}

/* --- the client --- */

static int member_start(struct crowd *crowd, uint32_t index)
{
	pid_t client = getpid(), pid;
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != client)
			_exit(1);
		close(sockets[0]);
		for (uint32_t i = 0; i < index; i++)
			close(crowd->members[i].fd);
		if (crowd->pair->channel >= 0)
			close(crowd->pair->channel);
		driver_pin(index);
		member_main(crowd, index, sockets[1]);
		_exit(0);
	}
	close(sockets[1]);
	if (pid < 0) {
		close(sockets[0]);
		return -EAGAIN;
	}
	crowd->members[index].pid = pid;
	crowd->members[index].fd = sockets[0];
	return 0;
}

int crowd_open(struct driver_pair *pair, uint32_t count,
	       const struct crowd_ops *ops, struct crowd **out)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	int rc = 0;

	if (!crowd)
		return -ENOMEM;
	crowd->pair = pair;
	crowd->ops = ops;
	crowd->shared =
		mmap(NULL, sizeof(*crowd->shared), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crowd->shared == MAP_FAILED) {
		free(crowd);
		return -ENOMEM;
	}
	*out = crowd;
	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = member_start(crowd, i);
		crowd->count += !rc;
	}
	if (rc) {
		crowd_close(crowd);
		*out = NULL;
	}
	return rc;
}

void crowd_close(struct crowd *crowd)
{
	if (!crowd)
		return;
	for (uint32_t i = 0; i < crowd->count; i++)
		close(crowd->members[i].fd);
	for (uint32_t i = 0; i < crowd->count; i++)
		waitpid(crowd->members[i].pid, NULL, 0);
	munmap(crowd->shared, sizeof(*crowd->shared));
	free(crowd);
}

struct crowd_shared *crowd_shared(struct crowd *crowd)
{
	return crowd->shared;
}

/* Collect a report of every member; the first error is the round's. */
static int collect_reports(struct crowd *crowd, uint32_t count,
			   struct crowd_result *out)
{
	struct report report;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!receive_message(crowd->members[i].fd, &report,
				     sizeof(report)))
			return driver_fail(crowd->pair, -EPIPE,
					   "member %u ended", i);
		if (report.rc && report.error[0])
			driver_fail(crowd->pair, 0, "%.119s", report.error);
		rc = rc ? rc : report.rc;
		if (!out)
			continue;
		if (i == 0)
			out->first = report.counted;
		out->counted += report.counted;
		out->finished += report.finished;
	}
	return rc;
}

static int tell_all(struct crowd *crowd, uint32_t count, const void *bytes,
		    size_t size)
{
	for (uint32_t i = 0; i < count; i++)
		if (!send_message(crowd->members[i].fd, bytes, size))
			return driver_fail(crowd->pair, -EPIPE,
					   "member %u ended", i);
	return 0;
}

static void pause_for(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds};

	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

static void set_phase(struct crowd *crowd, enum crowd_phase phase)
{
	/* The phase publishes nothing, so its order is relaxed. */
	atomic_store_explicit(&crowd->shared->phase, phase,
			      memory_order_relaxed);
}

static int run_round(struct crowd *crowd, const char *name, uint32_t count,
		     double seconds, struct crowd_result *out)
{
	char text[NAME_MAX_SIZE] = "", go;
	double begin;
	int rc, ready;

	if (count > crowd->count)
		return -ENOSYS;
	*out = (struct crowd_result){0};
	snprintf(text, sizeof(text), "%s", name);
	atomic_store(&crowd->shared->last, UINT64_MAX);
	crowd->shared->guarded = 0;
	set_phase(crowd, CROWD_WARM);
	rc = tell_all(crowd, count, text, sizeof(text));
	if (rc)
		return rc;
	ready = collect_reports(crowd, count, NULL);
	if (ready == -EPIPE)
		return ready;
	go = ready == 0;
	rc = tell_all(crowd, count, &go, 1);
	if (rc || ready)
		return rc ? rc : ready;
	pause_for(seconds / 10);
	begin = workload_seconds(CLOCK_MONOTONIC);
	set_phase(crowd, CROWD_COUNT);
	pause_for(seconds);
	out->seconds = workload_seconds(CLOCK_MONOTONIC) - begin;
	set_phase(crowd, CROWD_STOP);
	return collect_reports(crowd, count, out);
}

int crowd_run(struct crowd *crowd, const char *name, uint32_t count,
	      double seconds, struct crowd_result *out)
{
	int rc = run_round(crowd, name, count, seconds, out);

	for (uint32_t i = 0; !rc && !out->counted && i < LONGER_MAX; i++) {
		seconds *= LONGER;
		rc = run_round(crowd, name, count, seconds, out);
	}
	return rc;
}
