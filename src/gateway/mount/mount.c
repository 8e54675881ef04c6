/* mount.c - begin, serve, end; and whether the pool is still there. */
#include "gateway/mount/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WATCH_SECONDS 1
#define SWEEP_WATCHES 60u
/* The pool is gone once it does not answer so often in a row. */
#define LOST_WATCHES 10u

/* --- watching --- */

static int run_sweep(struct desk *desk, void *context)
{
	(void)context;
	return reef_files_sweep(desk->files);
}

static int run_health(struct desk *desk, void *context)
{
	(void)context;
	return reef_health(desk->reef);
}

/* Wait for a moment; false: the mount ends. */
static bool wait_a_moment(struct mount *mount)
{
	struct timespec until;
	bool is_ending;

	timespec_get(&until, TIME_UTC);
	until.tv_sec += WATCH_SECONDS;
	pthread_mutex_lock(&mount->lock);
	if (!mount->is_ending)
		pthread_cond_timedwait(&mount->ends, &mount->lock, &until);
	is_ending = mount->is_ending;
	pthread_mutex_unlock(&mount->lock);
	return !is_ending;
}

static void *watch(void *argument)
{
	struct mount *mount = argument;
	uint32_t silent = 0, count = 0;
	int rc;

	while (wait_a_moment(mount)) {
		rc = desk_run(mount, false, run_health, NULL);
		silent = rc ? silent + 1 : 0;
		if (!rc)
			desk_tend_idle(mount);
		if (!rc && ++count % SWEEP_WATCHES == 0)
			(void)desk_run(mount, false, run_sweep, NULL);
		if (silent < LOST_WATCHES)
			continue;
		mount->options->lost(mount->options->context, rc);
		fuse_session_exit(mount->session);
		/* The main thread waits for it, or for a signal. */
		kill(getpid(), SIGTERM);
		break;
	}
	return NULL;
}

/* --- serving --- */

/* A signal is for the main thread, which waits for one in libfuse: another that
 * took it would not wake it. */
static int start_watcher(struct mount *mount, pthread_t *watcher)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(watcher, NULL, watch, mount);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int serve(struct mount *mount)
{
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	pthread_t watcher;
	int rc = loop ? 0 : -ENOMEM;

	if (!rc)
		rc = start_watcher(mount, &watcher);
	if (!rc) {
		mount->options->mounted(mount->options->context);
		rc = fuse_session_loop_mt(mount->session, loop);
		/* A signal's number: it was asked to end. */
		rc = rc > 0 ? 0 : rc;
		pthread_mutex_lock(&mount->lock);
		mount->is_ending = true;
		pthread_cond_broadcast(&mount->ends);
		pthread_mutex_unlock(&mount->lock);
		pthread_join(watcher, NULL);
	}
	if (loop)
		fuse_loop_cfg_destroy(loop);
	return rc;
}

static int mount_and_serve(struct mount *mount)
{
	const struct mount_options *options = mount->options;
	char words[512];
	char *argv[] = {"reef", "-o", words, NULL};
	struct fuse_args arguments = FUSE_ARGS_INIT(3, argv);
	int rc = -ECANCELED;

	snprintf(words, sizeof(words),
		 "fsname=reef:%.200s,subtype=reef,default_permissions,"
		 "max_read=%u%s%s",
		 options->space, REQUEST_MAX,
		 options->allow_other ? ",allow_other" : "",
		 options->read_only ? ",ro" : "");
	mount->session = fuse_session_new(&arguments, &mount_ops,
					  sizeof(mount_ops), mount);
	if (mount->session && !fuse_set_signal_handlers(mount->session)) {
		if (!fuse_session_mount(mount->session, options->directory)) {
			rc = serve(mount);
			fuse_session_unmount(mount->session);
		}
		fuse_remove_signal_handlers(mount->session);
	}
	if (mount->session)
		fuse_session_destroy(mount->session);
	fuse_opt_free_args(&arguments);
	return rc;
}

int mount_serve(const struct mount_options *options)
{
	struct mount *mount;
	struct stat stat_of;
	int rc;

	if (stat(options->directory, &stat_of))
		return -errno;
	if (!S_ISDIR(stat_of.st_mode))
		return -ENOTDIR;
	mount = calloc(1, sizeof(*mount));
	if (!mount)
		return -ENOMEM;
	mount->options = options;
	mount->top = (struct reef_file_about){.type = REEF_FILE_FOLDER,
					      .mode = 0755,
					      .user = getuid(),
					      .group = getgid(),
					      .changed_ns = mount_now()};
	pthread_mutex_init(&mount->lock, NULL);
	pthread_cond_init(&mount->ends, NULL);
	for (uint32_t i = 0; i < NODE_SHARDS; i++)
		pthread_mutex_init(&mount->shards[i], NULL);
	/* The first question tells whether there is such a space. */
	rc = desk_run(mount, false, run_sweep, NULL);
	if (!rc)
		rc = mount_and_serve(mount);
	node_end(mount);
	desk_close_idle(mount);
	free(mount);
	return rc;
}
