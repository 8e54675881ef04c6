/* mount.c - `reef mount`: the files of a space as a directory. */
#include "config.h"

#include "base/system/paths.h"
#include "cmd/cmd.h"
#include "cmd/operate.h"

#if REEF_HAVE_FUSE
#include "gateway/mount/mount.h"
#include "gateway/source/source.h"
#endif

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <reef/reef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
	"usage: reef mount DIRECTORY [OPTIONS]\n"
	"       reef mount DIRECTORY --cache SOURCE [OPTIONS]\n\n"
	"Shows the files of a space as a directory, by FUSE, until Ctrl-C or\n"
	"`fusermount3 -u DIRECTORY`. Files at its top are those of `reef "
	"file`.\n"
	"What one mount changes all others see at once, unless it is --alone:\n"
	"then the kernel keeps bytes, and writes them when it likes, which is\n"
	"quicker for temporary files of a database. If this process is "
	"killed,\n"
	"`fusermount3 -u DIRECTORY` takes away what it leaves.\n\n"
	"With --cache it shows a directory on disk, whose files are read from\n"
	"the pool, where their pages are kept, and written to the disk.\n";

struct wish {
	const char *space, *chunk;
	bool allow_other, read_only, alone;
	/* with --cache */
	const char *source, *cover, *size, *page;
	bool verify;
};

#if REEF_HAVE_FUSE

struct serving {
	const struct reef_settings *settings;
	const char *space, *directory;
	bool is_lost;
};

static int open_handle(void *context, struct reef **out)
{
	const struct reef_settings *settings =
		((const struct serving *)context)->settings;
	const struct reef_options options = {
		.credential = settings->credential,
		.fabrics = settings->fabrics,
		.tls = settings->tls,
		.name = "reef mount",
	};

	/* Where to look for it the first handle has said (operate_open). */
	return reef_open(settings->pool, &options, out);
}

static void tell_mounted(void *context)
{
	const struct serving *serving = context;

	printf("%s is mounted at %s. Ctrl-C unmounts it.\n", serving->space,
	       serving->directory);
	fflush(stdout);
}

static void tell_lost(void *context, int rc)
{
	struct serving *serving = context;

	serving->is_lost = true;
	operate_say("mount", "the pool is gone (%s): unmounts",
		    reef_error_text(rc));
}

/* Make the space if there is none. 0, or the exit status. */
static int make_space(struct serving *serving)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	struct reef *reef;
	int rc = operate_open("mount", serving->settings, "reef mount", &reef);

	if (rc >= 0)
		return rc;
	rc = reef_space_open(reef, serving->space, &options, &space);
	if (!rc)
		reef_space_close(space);
	reef_close(reef);
	return rc ? operate_failed("mount", serving->space, rc) : 0;
}

/* Files in the directory are not lost, and mount(8) does not ask either: but
 * who did not know of them is told. */
static void tell_covered(const char *directory)
{
	DIR *rows = opendir(directory);
	struct dirent *row;
	bool found = false;

	while (rows && !found && (row = readdir(rows)))
		found = strcmp(row->d_name, ".") && strcmp(row->d_name, "..");
	if (found)
		operate_say("mount",
			    "%s is not empty: what is in it is out of sight "
			    "until it is unmounted",
			    directory);
	if (rows)
		closedir(rows);
}

static int serve(const struct wish *wish, const struct reef_settings *settings)
{
	struct serving serving = {
		.settings = settings,
		.space = wish->space ? wish->space : "files",
		.directory = reef_config_rest(settings->config, 0),
	};
	struct mount_options options = {
		.directory = serving.directory,
		.space = serving.space,
		.allow_other = wish->allow_other,
		.read_only = wish->read_only,
		.alone = wish->alone,
		.open = open_handle,
		.mounted = tell_mounted,
		.lost = tell_lost,
		.context = &serving,
	};
	uint64_t chunk = 64 * 1024;
	int rc = 0;

	if (wish->chunk)
		rc = operate_size("mount", wish->chunk, &chunk);
	if (rc)
		return rc;
	if (chunk & (chunk - 1) || chunk < 4096 || chunk >> 24 > 1)
		return cmd_usage_error("mount", "a chunk is a power of two "
						"from 4K to 16M");
	options.chunk = (uint32_t)chunk;
	rc = make_space(&serving);
	if (rc)
		return rc;
	tell_covered(serving.directory);
	rc = mount_serve(&options);
	if (rc == -ECANCELED) /* libfuse has said why */
		return 1;
	return rc ? operate_failed("mount", serving.directory, rc)
		  : serving.is_lost;
}

/* --- a directory on disk --- */

static void tell_shown(void *context)
{
	const struct source_options *options = context;

	printf("%s is mounted at %s. Ctrl-C unmounts it.\n", options->source,
	       options->directory);
	fflush(stdout);
}

static int serve_source(const struct wish *wish,
			const struct reef_settings *settings)
{
	struct source_options options = {
		.directory = reef_config_rest(settings->config, 0),
		.source = wish->source,
		.through = {.pool = settings->pool,
			    .credential = settings->credential,
			    .program = "reef mount",
			    .space = wish->space ? wish->space : "cache",
			    .cover = wish->cover ? wish->cover : "mount",
			    .verify = wish->verify,
			    .is_calm = true},
		.allow_other = wish->allow_other,
		.read_only = wish->read_only,
		.mounted = tell_shown,
		.context = &options,
	};
	uint64_t page = 4096;
	int rc = 0;

	if (wish->size)
		rc = operate_size("mount", wish->size,
				  &options.through.size_max);
	if (!rc && wish->page)
		rc = operate_size("mount", wish->page, &page);
	if (rc)
		return rc;
	if (page & (page - 1) || page < 512 || page > 65536)
		return cmd_usage_error("mount", "a page is a power of two from "
						"512 to 64K");
	options.through.page_size = (uint32_t)page;
	tell_covered(options.directory);
	rc = source_serve(&options);
	if (rc == -EINVAL)
		return operate_say("mount", "one directory is inside the "
					    "other");
	if (rc == -ECANCELED) /* libfuse has said why */
		return 1;
	return rc ? operate_failed("mount", wish->source, rc) : 0;
}

#else

static int serve_source(const struct wish *wish,
			const struct reef_settings *settings)
{
	(void)wish;
	(void)settings;
	return operate_say("mount", "this reef was built without libfuse3");
}

static int serve(const struct wish *wish, const struct reef_settings *settings)
{
	(void)wish;
	(void)settings;
	return operate_say("mount", "this reef was built without libfuse3");
}

#endif

/* True if a directory is `path`, or has it in it at any depth. */
static bool has_inside(const struct stat *directory, const char *path)
{
	char *real = path ? realpath(path, NULL) : NULL, *slash = real;
	struct stat above;
	bool found = false;

	while (slash && !found) {
		found = !stat(real[0] ? real : "/", &above) &&
			above.st_dev == directory->st_dev &&
			above.st_ino == directory->st_ino;
		slash = strrchr(real, '/');
		if (slash)
			*slash = '\0';
	}
	free(real);
	return found;
}

/* What a mount puts out of sight that this machine, this user or the pool goes
 * on needing. -1: nothing; otherwise the exit status. */
static int check_hidden(const char *directory, const struct stat *self,
			const struct reef_settings *settings)
{
	char *home = NULL;
	int rc = reef_path_expand(NULL, "~", &home);
	const struct {
		const char *path, *what;
	} needed[] = {
		{rc ? NULL : home, "your home directory"},
		{settings->run, "the sockets of reef"},
		{settings->data, "the data of reef"},
		{"/proc/self/exe", "this program"},
	};

	rc = -1;
	if (has_inside(self, "/"))
		rc = operate_say("mount",
				 "%s is the root directory: all files of this "
				 "machine would be out of sight",
				 directory);
	for (size_t i = 0; rc < 0 && i < sizeof(needed) / sizeof(*needed); i++)
		if (has_inside(self, needed[i].path))
			rc = operate_say("mount",
					 "%s has %s in it, which would be out "
					 "of sight; mount at a directory of "
					 "its own",
					 directory, needed[i].what);
	free(home);
	return rc;
}

/* Nothing is mounted over what is mounted there already: its files would be out
 * of sight. -1: go on; otherwise the exit status. */
static int check_place(const char *directory,
		       const struct reef_settings *settings)
{
	struct stat self, above;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/..", directory);
	if (stat(directory, &self)) {
		if (errno != ENOTCONN)
			return operate_failed("mount", directory, -errno);
		return operate_say("mount",
				   "%s: a mount died there; `fusermount3 -u` "
				   "takes away what it left",
				   directory);
	}
	if (!S_ISDIR(self.st_mode))
		return operate_failed("mount", directory, -ENOTDIR);
	if (stat(path, &above) || above.st_dev != self.st_dev)
		return operate_say("mount",
				   "%s is in use: something is "
				   "mounted there",
				   directory);
	return check_hidden(directory, &self, settings);
}

int cmd_mount(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"space", "NAME", "whose files; made if there is none; files",
		 NULL, &wish.space},
		{"chunk", "SIZE", "bytes of new files that lie together; 64K",
		 NULL, &wish.chunk},
		{"allow-other", NULL,
		 "other users too, by the files' permissions",
		 &wish.allow_other, NULL},
		{"read-only", NULL, "nothing is changed through it",
		 &wish.read_only, NULL},
		{"alone", NULL, "nobody else uses these files: write later",
		 &wish.alone, NULL},
		{"cache", "DIR", "a directory on disk, read through the pool",
		 NULL, &wish.source},
		{"cover", "NAME", "with --cache: what keeps its pages; mount",
		 NULL, &wish.cover},
		{"size", "SIZE",
		 "with --cache: how much a new cover may take; 1G", NULL,
		 &wish.size},
		{"page", "SIZE", "with --cache: bytes of a page; 4K", NULL,
		 &wish.page},
		{"verify", NULL, "with --cache: compare the pool with the disk",
		 &wish.verify, NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config) != 1)
		rc = cmd_usage_error("mount", "one directory is wanted");
	else if (!wish.source &&
		 (wish.cover || wish.size || wish.page || wish.verify))
		rc = cmd_usage_error("mount", "that goes with --cache");
	else if (wish.source && (wish.chunk || wish.alone))
		rc = cmd_usage_error("mount", "--chunk and --alone do not go "
					      "with --cache");
	else
		rc = check_place(reef_config_rest(settings.config, 0),
				 &settings);
	if (rc < 0)
		rc = wish.source ? serve_source(&wish, &settings)
				 : serve(&wish, &settings);
	reef_settings_fini(&settings);
	return rc;
}
