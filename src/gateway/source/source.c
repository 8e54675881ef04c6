/* source.c - begin, serve, end. */
#include "gateway/source/internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int serve(struct source *source)
{
	const struct source_options *options = source->options;
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	int rc;

	if (!loop)
		return -ENOMEM;
	options->mounted(options->context);
	rc = fuse_session_loop_mt(source->session, loop);
	fuse_loop_cfg_destroy(loop);
	/* A signal's number: it was asked to end. */
	return rc > 0 ? 0 : rc;
}

static int mount_and_serve(struct source *source)
{
	const struct source_options *options = source->options;
	char words[512];
	char *argv[] = {"reef", "-o", words, NULL};
	struct fuse_args arguments = FUSE_ARGS_INIT(3, argv);
	int rc = -ECANCELED;

	snprintf(words, sizeof(words),
		 "fsname=reef:%.200s,subtype=reef,default_permissions,"
		 "max_read=%u%s%s",
		 options->through.cover, REQUEST_MAX,
		 options->allow_other ? ",allow_other" : "",
		 options->read_only ? ",ro" : "");
	source->session = fuse_session_new(&arguments, &source_ops,
					   sizeof(source_ops), source);
	if (source->session && !fuse_set_signal_handlers(source->session)) {
		if (!fuse_session_mount(source->session, options->directory)) {
			rc = serve(source);
			fuse_session_unmount(source->session);
		}
		fuse_remove_signal_handlers(source->session);
	}
	if (source->session)
		fuse_session_destroy(source->session);
	fuse_opt_free_args(&arguments);
	return rc;
}

static bool is_inside(const char *path, const char *folder)
{
	size_t size = strlen(folder);

	return !strncmp(path, folder, size) &&
	       (!path[size] || path[size] == '/' || size == 1);
}

/* Files that are read through a mount below themselves would wait for it. */
static int check_paths(const char *directory, const char *source)
{
	struct stat about;

	if (stat(directory, &about))
		return -errno;
	if (!S_ISDIR(about.st_mode))
		return -ENOTDIR;
	return is_inside(directory, source) || is_inside(source, directory)
		       ? -EINVAL
		       : 0;
}

int source_serve(const struct source_options *options)
{
	static struct source source;
	struct through_options through = options->through;
	char *path = realpath(options->source, NULL), *directory = NULL;
	int rc = path ? 0 : -errno;

	source = (struct source){.options = options, .root = {.fd = -1}};
	pthread_mutex_init(&source.lock, NULL);
	if (!rc) {
		directory = realpath(options->directory, NULL);
		rc = directory ? check_paths(directory, path) : -errno;
	}
	if (!rc) {
		source.root.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rc = source.root.fd < 0 ? -errno : 0;
	}
	if (!rc) {
		/* Modes come from whoever asks. */
		umask(0);
		through.directories[0] = path;
		through.directories[1] = NULL;
		through.pread = pread;
		through_init(&through);
		rc = mount_and_serve(&source);
		place_end(&source);
		through_fini();
	}
	free(path);
	free(directory);
	return rc;
}
