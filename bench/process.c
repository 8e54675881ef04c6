/* process.c - starts programs for a competitor. */
#include "process.h"

#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool join_group(const struct process_options *options)
{
	bool joined;
	int fd;

	if (!options->joins)
		return true;
	fd = open(options->joins, O_WRONLY | O_CLOEXEC);
	joined = fd >= 0 && write(fd, "0", 1) == 1;
	if (fd >= 0)
		close(fd);
	return joined;
}

static bool become_user(const struct process_options *options)
{
	return !options->is_other_user ||
	       (!setgroups(0, NULL) && !setgid(options->group) &&
		!setuid(options->user));
}

/* Prepare a child, before exec. */
static void child_prepare(pid_t parent, const struct process_options *options)
{
	static const char *const homes[] = {"HOME", "XDG_RUNTIME_DIR",
					    "XDG_STATE_HOME", "XDG_CONFIG_HOME",
					    NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out = options->has_output ? options->output : null;

	if (!join_group(options) || !become_user(options))
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	driver_unpin();
	if (options->is_pinned)
		driver_pin(options->processor);
	signal(SIGINT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	for (uint32_t i = 0; options->directory && homes[i]; i++)
		setenv(homes[i], options->directory, 1);
	for (uint32_t i = 0; options->environment && options->environment[i];
	     i += 2)
		setenv(options->environment[i], options->environment[i + 1], 1);
}

int process_start(struct driver_pair *pair,
		  const struct process_options *options,
		  const char *const *arguments, pid_t *out)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return driver_fail(pair, -errno, "fork: %s", strerror(errno));
	if (pid == 0) {
		child_prepare(parent, options);
		execvp(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	*out = pid;
	return 0;
}

void process_end(pid_t *pid, int signal_number)
{
	if (*pid) {
		kill(*pid, signal_number);
		waitpid(*pid, NULL, 0);
	}
	*pid = 0;
}

int process_run(struct driver_pair *pair, const struct process_options *options,
		const char *const *arguments)
{
	int status;
	pid_t pid = 0;
	int rc = process_start(pair, options, arguments, &pid);

	if (rc)
		return rc;
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return status ? -EPROTO : 0;
}

int process_self(struct driver_pair *pair, char path[PATH_MAX])
{
	ssize_t size = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (size < 0)
		return driver_fail(pair, -errno, "/proc/self/exe: %s",
				   strerror(errno));
	path[size] = '\0';
	return 0;
}

int process_directory(struct driver_pair *pair, char directory[64])
{
	const char *base = getenv("TMPDIR");

	snprintf(directory, 64, "%.40s/%s", base && base[0] ? base : "/tmp",
		 "reef-bench-XXXXXX");
	if (mkdtemp(directory))
		return 0;
	directory[0] = '\0';
	return driver_fail(pair, -errno, "a directory: %s", strerror(errno));
}

static int remove_one(const char *path, const struct stat *status, int type,
		      struct FTW *where)
{
	return remove(path);
}

void process_directory_remove(char directory[64])
{
	if (directory[0])
		nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	directory[0] = '\0';
}
