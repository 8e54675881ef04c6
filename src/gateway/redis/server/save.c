/* save.c - see save.h. */
#include "gateway/redis/server/save.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

struct redis_save {
	const char *const *words;
	pthread_mutex_t lock; /* of what follows */
	pid_t pid;	      /* 0: none is under way */
	uint64_t begun_s, begun;
	struct redis_save_info info;
};

int redis_save_create(const char *const *words, struct redis_save **out)
{
	struct redis_save *save = calloc(1, sizeof(*save));

	if (!save)
		return -ENOMEM;
	save->words = words;
	pthread_mutex_init(&save->lock, NULL);
	*out = save;
	return 0;
}

void redis_save_destroy(struct redis_save *save)
{
	if (!save)
		return;
	pthread_mutex_destroy(&save->lock);
	free(save);
}

/* Look whether the one under way has ended. Locked. */
static void look(struct redis_save *save)
{
	int status;

	if (!save->pid || waitpid(save->pid, &status, WNOHANG) == 0)
		return;
	save->pid = 0;
	save->info.is_running = false;
	save->info.ended = save->begun;
	save->info.has_failed = !WIFEXITED(status) || WEXITSTATUS(status);
	if (!save->info.has_failed)
		save->info.last_s = save->begun_s;
}

/* Start the program: with no signal blocked, nothing to read, and what it says
 * of errors where ours are. */
static int start(struct redis_save *save)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null",
					      O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO,
						      "/dev/null", O_WRONLY, 0);
	if (!rc)
		rc = posix_spawn(&save->pid, save->words[0], &files,
				 &attributes, (char *const *)save->words,
				 environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&files);
	if (rc)
		save->pid = 0;
	return -rc;
}

int redis_save_begin(struct redis_save *save, uint64_t *number)
{
	int rc = 0;

	if (!save->words)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&save->lock);
	look(save);
	if (save->pid)
		rc = -EBUSY;
	if (!rc)
		rc = start(save);
	if (!rc) {
		save->begun_s = reef_wall_ns() / SECOND;
		save->info.is_running = true;
		*number = ++save->begun;
	}
	pthread_mutex_unlock(&save->lock);
	return rc;
}

void redis_save_info(struct redis_save *save, struct redis_save_info *out)
{
	pthread_mutex_lock(&save->lock);
	look(save);
	*out = save->info;
	pthread_mutex_unlock(&save->lock);
}
