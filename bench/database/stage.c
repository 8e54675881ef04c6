/* stage.c - sets the stage, and clears it. */
#include "bench/database/stage.h"

#include "bench/database/cgroup.h"
#include "bench/units.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_S 120.0
#define LOOK_MS 100

const char *stage_path(const struct stage *stage, const char *name,
		       char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s", stage->directory, name);
	return path;
}

void stage_tell(const struct stage *stage, const char *format, ...)
{
	va_list args;

	if (!stage->shows)
		return;
	fprintf(stderr, "\r\033[K");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fflush(stderr);
}

/* --- the guard --- */

/* The stage that a signal clears. */
static struct stage *played;

static int remove_one(const char *path, const struct stat *status, int type,
		      struct FTW *where)
{
	return remove(path);
}

static _Noreturn void guard_main(struct stage *stage)
{
	char path[PATH_MAX], byte;

	setsid();
	/* It ends last, so no signal ends it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (read(stage->alarm, &byte, 1) < 0 && errno == EINTR)
		;
	/* Who waits for a file of a mount whose server is gone waits for ever:
	 * so the mount goes first. */
	stage_path(stage, "spill", path);
	while (!umount2(path, MNT_DETACH))
		;
	cgroup_end(stage->group);
	while (!umount2(path, MNT_DETACH))
		;
	nftw(stage->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

static void call_guard(struct stage *stage)
{
	if (stage->alarm >= 0)
		(void)!write(stage->alarm, "x", 1);
	while (stage->guard && waitpid(stage->guard, NULL, 0) < 0 &&
	       errno == EINTR)
		;
	stage->guard = 0;
}

/* A signal ends the harness when the stage is clear. */
static void clear_and_end(int number)
{
	if (played)
		call_guard(played);
	signal(number, SIG_DFL);
	raise(number);
}

static void catch_signals(void (*handler)(int))
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = handler};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
}

static int start_guard(struct stage *stage)
{
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	stage->guard = fork();
	if (stage->guard == 0) {
		close(pipes[1]);
		stage->alarm = pipes[0];
		guard_main(stage);
	}
	close(pipes[0]);
	stage->alarm = pipes[1];
	if (stage->guard < 0) {
		stage->guard = 0;
		return -errno;
	}
	played = stage;
	catch_signals(clear_and_end);
	return 0;
}

/* --- opening and closing --- */

static int make_groups(struct stage *stage)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "reef-bench-%d", (int)getpid());
	rc = cgroup_make(name, stage->options.limit, stage->group,
			 sizeof(stage->group));
	if (rc == -ENOTSUP)
		return driver_fail(&stage->errors, rc,
				   "this machine has no cgroups that limit "
				   "memory: without a limit the kernel's page "
				   "cache hides the disk");
	if (rc)
		return driver_fail(&stage->errors, rc,
				   "a cgroup with little memory cannot be made "
				   "here: %s",
				   strerror(-rc));
	snprintf(stage->machine, sizeof(stage->machine),
		 "%s/machine/cgroup.procs", stage->group);
	snprintf(stage->pool, sizeof(stage->pool), "%s/pool/cgroup.procs",
		 stage->group);
	return 0;
}

/* Wait until what the pool printed says that it is there. */
static int wait_for(struct stage *stage, const char *name, const char *word,
		    pid_t pid)
{
	double until = workload_seconds(CLOCK_MONOTONIC) + START_S;
	char path[PATH_MAX], text[2048] = "";
	ssize_t size = 0;
	int fd;

	stage_path(stage, name, path);
	while (workload_seconds(CLOCK_MONOTONIC) < until) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		size = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[size > 0 ? size : 0] = '\0';
		if (fd >= 0)
			close(fd);
		if (strstr(text, word))
			return 0;
		if (waitpid(pid, NULL, WNOHANG) == pid)
			break;
		poll(NULL, 0, 10);
	}
	text[strcspn(text, "\n")] = '\0';
	return driver_fail(&stage->errors, -EPROTO, "%s did not start: %.120s",
			   name, text);
}

/* Start a pool whose files are in that directory, as that user. log: the name
 * of what it prints. */
static int start_up(struct stage *stage, struct process_options *options,
		    const char *log, uint64_t bytes, pid_t *out)
{
	char lend[24], path[PATH_MAX];
	const char *arguments[] = {stage->self,	    "up",
				   "--lend",	    lend,
				   "--listen",	    "tcp:127.0.0.1:0",
				   "--node-listen", "tcp:127.0.0.1:0",
				   "--no-redis",    "--keep",
				   "none",	    "--name",
				   "neighbour",	    NULL};
	int rc;

	options->joins = stage->pool;
	options->has_output = true;
	snprintf(lend, sizeof(lend), "%llu", (unsigned long long)bytes);
	options->output = open(stage_path(stage, log, path),
			       O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (options->output < 0)
		return -errno;
	rc = process_start(&stage->errors, options, arguments, out);
	close(options->output);
	return rc ? rc : wait_for(stage, log, "is up.", *out);
}

int stage_lend(struct stage *stage, const char *name, uid_t user, gid_t group,
	       uint64_t bytes)
{
	char directory[PATH_MAX], log[64], mark[PATH_MAX];
	struct process_options options = {
		.directory = directory,
		.is_other_user = true,
		.user = user,
		.group = group,
	};
	pid_t pid;

	snprintf(log, sizeof(log), "%s.log", name);
	if (access(stage_path(stage, log, mark), F_OK) == 0)
		return 0;
	if (mkdir(stage_path(stage, name, directory), 0700) ||
	    chown(directory, user, group))
		return driver_fail(&stage->errors, -errno, "%s: %s", directory,
				   strerror(errno));
	return start_up(stage, &options, log, bytes, &pid);
}

int stage_open(struct stage *stage, const struct stage_options *options)
{
	struct process_options up = {.directory = stage->directory};
	int rc;

	*stage = (struct stage){
		.options = *options,
		.alarm = -1,
		.shows = isatty(STDERR_FILENO),
	};
	if (geteuid() != 0)
		return driver_fail(
			&stage->errors, -EPERM,
			"it needs root: the database's machine is a "
			"cgroup with little memory, and the kernel's "
			"caches are dropped before each turn");
	rc = process_self(&stage->errors, stage->self);
	rc = rc ? rc : process_directory(&stage->errors, stage->directory);
	if (rc)
		return rc;
	/* A database server that runs as another user must get in. */
	chmod(stage->directory, 0711);
	rc = make_groups(stage);
	if (rc) {
		process_directory_remove(stage->directory);
		return rc;
	}
	/* The pool is found there, by what runs here and what is started. */
	setenv("XDG_RUNTIME_DIR", stage->directory, 1);
	setenv("XDG_STATE_HOME", stage->directory, 1);
	setenv("XDG_CONFIG_HOME", stage->directory, 1);
	unsetenv("REEF_POOL");
	unsetenv("REEF_RUN");
	rc = start_guard(stage);
	stage_tell(stage, "starting a pool of %llu MiB",
		   (unsigned long long)(options->lend / MIB));
	rc = rc ? rc : start_up(stage, &up, "pool", options->lend, &stage->up);
	stage_tell(stage, "%s", "");
	if (rc)
		stage_close(stage);
	return rc;
}

void stage_close(struct stage *stage)
{
	stage_tell(stage, "%s", "");
	call_guard(stage);
	/* The guard ended it; this buries it. */
	process_end(&stage->up, SIGKILL);
	catch_signals(SIG_DFL);
	played = NULL;
	if (stage->alarm >= 0)
		close(stage->alarm);
	stage->alarm = -1;
}

void stage_visit(struct stage *stage)
{
	catch_signals(SIG_DFL);
	played = NULL;
	if (stage->alarm >= 0)
		close(stage->alarm);
	stage->alarm = -1;
	stage->guard = 0;
}

int stage_join(struct stage *stage)
{
	int fd = open(stage->machine, O_WRONLY | O_CLOEXEC), rc = 0;

	if (fd < 0 || write(fd, "0", 1) != 1)
		rc = driver_fail(&stage->errors, -errno, "%s: %s",
				 stage->machine, strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

int stage_forget(struct stage *stage)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC), rc = 0;

	/* What is not written yet is not forgotten. */
	sync();
	if (fd < 0 || write(fd, "3", 1) != 1)
		rc = driver_fail(&stage->errors, -errno,
				 "the kernel's caches cannot be dropped: %s",
				 strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

static int read_one(const char *path, const struct stat *status, int type,
		    struct FTW *where)
{
	static char bytes[MIB];
	int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	while (fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0)
		;
	if (fd >= 0)
		close(fd);
	return 0;
}

void stage_remember(struct stage *stage, const char *name)
{
	char path[PATH_MAX];

	nftw(stage_path(stage, name, path), read_one, 8, FTW_PHYS);
}

/* --- the disk --- */

#define PROBE (64 * MIB)
#define PROBE_READS 500
#define PROBE_READ 8192u

/* Reads anywhere in a file of that size. 0: it cannot be read so. */
static double time_reads(int fd, char *bytes)
{
	uint64_t state = 1;
	double began = workload_seconds(CLOCK_MONOTONIC);

	for (int i = 0; i < PROBE_READS; i++) {
		state = state * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
		if (pread(fd, bytes, PROBE_READ,
			  (off_t)((state >> 33) % (PROBE / PROBE_READ) *
				  PROBE_READ)) != (ssize_t)PROBE_READ)
			return 0;
	}
	return (workload_seconds(CLOCK_MONOTONIC) - began) * 1e6 / PROBE_READS;
}

static double probe_disk(struct stage *stage)
{
	char path[PATH_MAX], *slab = aligned_alloc(4096, MIB);
	int fd = open(stage_path(stage, "probe", path),
		      O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	bool is_whole = slab && fd >= 0;
	double took = 0;

	for (uint64_t at = 0; is_whole && at < PROBE; at += MIB) {
		memset(slab, (int)(at / MIB), MIB);
		is_whole = write(fd, slab, MIB) == (ssize_t)MIB;
	}
	if (is_whole && !fsync(fd) && !fcntl(fd, F_SETFL, O_DIRECT))
		took = time_reads(fd, slab);
	if (fd >= 0)
		close(fd);
	unlink(path);
	free(slab);
	return took;
}

void stage_look(struct stage *stage, struct stage_disk *out)
{
	char link[64], to[PATH_MAX];
	struct stat about;
	ssize_t size = -1;

	*out = (struct stage_disk){.name = "?"};
	if (!stat(stage->directory, &about)) {
		snprintf(link, sizeof(link), "/sys/dev/block/%u:%u",
			 major(about.st_dev), minor(about.st_dev));
		size = readlink(link, to, sizeof(to) - 1);
	}
	if (size > 0) {
		to[size] = '\0';
		snprintf(out->name, sizeof(out->name), "%.60s",
			 strrchr(to, '/') ? strrchr(to, '/') + 1 : to);
	}
	out->read_us = probe_disk(stage);
}

/* --- programs --- */

int stage_start(struct stage *stage, const struct stage_program *program,
		pid_t *out)
{
	struct process_options options = {
		.directory = stage->directory,
		.has_output = true,
		.joins = stage->is_unlimited ? stage->pool : stage->machine,
		.is_other_user = program->is_other_user,
		.user = program->user,
		.group = program->group,
		.environment = program->environment,
	};
	char path[PATH_MAX];
	int rc;

	options.output = open(stage_path(stage, "printed", path),
			      O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (options.output < 0)
		return driver_fail(&stage->errors, -errno, "%s: %s", path,
				   strerror(errno));
	rc = process_start(&stage->errors, &options, program->arguments, out);
	close(options.output);
	return rc;
}

static void read_printed(struct stage *stage, struct stage_result *out)
{
	char path[PATH_MAX];
	int fd = open(stage_path(stage, "printed", path), O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? 0 : read(fd, out->text, sizeof(out->text) - 1);

	out->text[size > 0 ? size : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

static double seconds_of(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* Wait for a program, and show how far it is if it can be seen. */
static void await(struct stage *stage, const struct stage_program *program,
		  pid_t pid, int *status, struct rusage *usage)
{
	struct stat found;

	while (wait4(pid, status, program && program->watched ? WNOHANG : 0,
		     usage) != pid) {
		if (!program || !program->watched)
			continue;
		if (!stat(program->watched, &found) && program->size)
			stage_tell(stage, "%s: %.0f %%", program->says,
				   100.0 * (double)found.st_size /
					   (double)program->size);
		poll(NULL, 0, LOOK_MS);
	}
	if (program && program->watched)
		stage_tell(stage, "%s", "");
}

static void fill_result(struct stage *stage, double began, int status,
			const struct rusage *usage, struct stage_result *out)
{
	double worked =
		seconds_of(&usage->ru_utime) + seconds_of(&usage->ru_stime);

	*out = (struct stage_result){
		.status = status,
		.seconds = workload_seconds(CLOCK_MONOTONIC) - began,
		.worked = worked,
		.cost = {.disk_bytes = 512.0 * (double)usage->ru_inblock,
			 .faults = (double)usage->ru_majflt},
	};
	if (worked < out->seconds)
		out->cost.waited = 1 - worked / out->seconds;
	read_printed(stage, out);
}

int stage_run(struct stage *stage, const struct stage_program *program,
	      struct stage_result *out)
{
	double began = workload_seconds(CLOCK_MONOTONIC);
	struct rusage usage;
	int status, rc;
	pid_t pid;

	stage->errors.error[0] = '\0';
	rc = stage_start(stage, program, &pid);
	if (rc)
		return rc;
	await(stage, program, pid, &status, &usage);
	fill_result(stage, began, status, &usage, out);
	if (!status)
		return 0;
	out->text[strcspn(out->text, "\n")] = '\0';
	return driver_fail(&stage->errors, -EPROTO, "%s: %.110s",
			   basename(program->arguments[0]),
			   WIFSIGNALED(status)		? "killed"
			   : WEXITSTATUS(status) == 127 ? "is not installed"
							: out->text);
}

void stage_end(struct stage *stage, pid_t *pid, int signal_number,
	       struct stage_result *out)
{
	double began = workload_seconds(CLOCK_MONOTONIC);
	struct stage_result unused;
	struct rusage usage;
	int status;

	if (!*pid)
		return;
	kill(*pid, signal_number);
	await(stage, NULL, *pid, &status, &usage);
	fill_result(stage, began, status, &usage, out ? out : &unused);
	*pid = 0;
}

/* --- the mount --- */

int stage_mount(struct stage *stage, pid_t *out)
{
	char place[PATH_MAX];
	const char *arguments[] = {stage->self, "mount", place,
				   "--space",	"spill", "--allow-other",
				   "--alone",	NULL};
	struct stage_program program = {.arguments = arguments};
	int rc;

	stage_path(stage, "spill", place);
	if (mkdir(place, 0777) && errno != EEXIST)
		return driver_fail(&stage->errors, -errno, "%s: %s", place,
				   strerror(errno));
	rc = stage_start(stage, &program, out);
	rc = rc ? rc : wait_for(stage, "printed", "is mounted at", *out);
	if (rc)
		*out = 0;
	return rc;
}

void stage_unmount(struct stage *stage, pid_t *pid)
{
	stage_end(stage, pid, SIGTERM, NULL);
}

static int write_warm(struct stage *stage, int fd, uint64_t bytes)
{
	char *slab = malloc(MIB);
	int rc = slab ? 0 : -ENOMEM;

	if (slab)
		memset(slab, 'w', MIB);
	for (uint64_t at = 0; !rc && at < bytes; at += MIB) {
		if (write(fd, slab, MIB) != (ssize_t)MIB)
			rc = driver_fail(&stage->errors, -errno,
					 "writing into the pool: %s",
					 strerror(errno));
		if (at % (64 * MIB) == 0)
			stage_tell(stage, "warming the pool: %.0f %%",
				   100.0 * (double)at / (double)bytes);
	}
	free(slab);
	return rc;
}

int stage_warm(struct stage *stage, uint64_t bytes)
{
	char path[PATH_MAX], mark[PATH_MAX];
	pid_t mount = 0;
	int fd, rc;

	stage_path(stage, "warm", mark);
	if (access(mark, F_OK) == 0)
		return 0;
	rc = stage_mount(stage, &mount);
	if (rc)
		return rc;
	stage_path(stage, "spill/warm", path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : write_warm(stage, fd, bytes);
	if (fd >= 0)
		close(fd);
	unlink(path);
	stage_unmount(stage, &mount);
	stage_tell(stage, "%s", "");
	fd = rc ? -1 : open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return rc;
}
