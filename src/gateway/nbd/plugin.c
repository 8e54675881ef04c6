/* plugin.c - a door for clients of NBD: `nbdkit reef space=SPACE file=FILE`
 * serves a file of a pool as a block device.
 *
 * It is a plugin of nbdkit, which has the protocol, TLS, limits and filters.
 * Here is only what a request does to the file, by the public interface.
 *
 * (1) nbdkit calls from many threads, a handle of a pool is for one at a time:
 *     a request takes an open file that nobody uses, or opens another.
 * (2) Every write is in the pool when it returns, and all who read see it: so
 *     flush has nothing to do, and several connections see one device.
 * (3) A write in doubt is settled when its call returns, and is done again.
 *     Whoever writes the same bytes at the same time may find either there, as
 *     on any disk.
 * (4) A session that has ended is left behind: its file is closed, and reads go
 *     on in another session. A write fails, because nobody settles what an
 *     ended session left in doubt, and it must not come after a later write.
 *
 * Thread: any, but for the configuration. */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <pthread.h>
#include <reef/file.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define ATTEMPTS 16
#define NAME_OF_PROGRAM "nbdkit"

/* What the command line says. */
static struct {
	const char *pool, *space, *file;
	char *credential, *token;
	int64_t size; /* of a file that is made; -1: it is there */
} config = {.size = -1};

/* A file that is open, in a session's handle of its own. */
struct opened {
	struct reef *reef;
	struct reef_space *space;
	struct reef_file *file;
	struct opened *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *idle; /* those that nobody uses, under the lock */

/* --- files --- */

static void close_file(struct opened *opened)
{
	reef_file_close(opened->file);
	reef_space_close(opened->space);
	reef_close(opened->reef);
	free(opened);
}

/* Say what went wrong, to nbdkit and to the client; returns -1. */
static int fail(const char *what, int rc)
{
	nbdkit_error("%s: %s", what, reef_error_text(rc));
	switch (rc) {
	case -ENOSPC:
	case -EDQUOT:
		nbdkit_set_error(ENOSPC);
		break;
	case -EACCES:
		nbdkit_set_error(EPERM);
		break;
	case -ENOMEM:
		nbdkit_set_error(ENOMEM);
		break;
	default:
		nbdkit_set_error(EIO);
		break;
	}
	return -1;
}

/* Open the file, in a handle of its own. flags: REEF_FILE_CREATE or 0. */
static int open_file(uint32_t flags, struct opened **out)
{
	const struct reef_options options = {
		.credential = config.credential,
		.name = NAME_OF_PROGRAM,
	};
	const struct reef_space_options of_space = {.token = config.token};
	const struct reef_file_options of_file = {.flags = flags};
	struct opened *opened = calloc(1, sizeof(*opened));
	int rc;

	if (!opened)
		return fail("memory", -ENOMEM);
	rc = reef_open(config.pool, &options, &opened->reef);
	if (rc) {
		fail("the pool", rc);
	} else {
		rc = reef_space_open(opened->reef, config.space, &of_space,
				     &opened->space);
		if (rc)
			fail(config.space, rc);
	}
	if (!rc) {
		rc = reef_file_open(opened->space, config.file, &of_file,
				    &opened->file);
		if (rc)
			fail(config.file, rc);
	}
	if (rc) {
		close_file(opened);
		return -1;
	}
	*out = opened;
	return 0;
}

/* Take an open file for a request. NULL: there is none to be had, which was
 * said. */
static struct opened *take_file(void)
{
	struct opened *opened;

	pthread_mutex_lock(&lock);
	opened = idle;
	if (opened)
		idle = opened->next;
	pthread_mutex_unlock(&lock);
	if (!opened && open_file(0, &opened))
		return NULL;
	return opened;
}

static void give_file(struct opened *opened)
{
	pthread_mutex_lock(&lock);
	opened->next = idle;
	idle = opened;
	pthread_mutex_unlock(&lock);
}

static void close_idle(void)
{
	struct opened *next, *opened;

	pthread_mutex_lock(&lock);
	opened = idle;
	idle = NULL;
	pthread_mutex_unlock(&lock);
	for (; opened; opened = next) {
		next = opened->next;
		close_file(opened);
	}
}

/* --- requests --- */

struct request {
	const char *name;
	/* Do it with a file that was taken; 0, or an error of file.h. */
	int (*run)(struct reef_file *file, void *context);
	void *context;
	bool changes; /* the file */
};

/* Do a request once. *again: after an error another attempt is safe. */
static int try_request(const struct request *request, struct opened *opened,
		       bool *again)
{
	int rc = request->run(opened->file, request->context);
	bool has_ended = rc == -REEF_EFENCED ||
			 reef_health(opened->reef) == -REEF_EFENCED;

	if (has_ended) {
		/* The others of that session are no better. */
		close_file(opened);
		close_idle();
	} else {
		give_file(opened);
	}
	*again = has_ended ? !request->changes
			   : rc == -REEF_EINDOUBT || rc == -EBUSY;
	return rc;
}

static int run_request(struct request request)
{
	struct opened *opened;
	bool again = true;
	int rc = -EBUSY;

	for (int attempt = 0; rc && again && attempt < ATTEMPTS; attempt++) {
		opened = take_file();
		if (!opened)
			return -1;
		rc = try_request(&request, opened, &again);
	}
	return rc ? fail(request.name, rc) : 0;
}

/* A range of bytes, and where they are or go to. */
struct range {
	union {
		void *to;
		const void *from;
	};
	uint64_t at;
	uint32_t size;
};

static int read_range(struct reef_file *file, void *context)
{
	const struct range *range = context;
	uint32_t done = 0;
	ssize_t got;

	while (done < range->size) {
		got = reef_file_pread(file, (char *)range->to + done,
				      range->size - done, range->at + done);
		if (got < 0)
			return (int)got;
		/* Somebody made the file shorter. */
		if (!got)
			memset((char *)range->to + done, 0, range->size - done);
		done += got ? (uint32_t)got : range->size - done;
	}
	return 0;
}

static int write_range(struct reef_file *file, void *context)
{
	const struct range *range = context;
	uint32_t done = 0;
	ssize_t got;

	while (done < range->size) {
		got = reef_file_pwrite(file, (const char *)range->from + done,
				       range->size - done, range->at + done);
		if (got < 0)
			return (int)got;
		done += (uint32_t)got;
	}
	return 0;
}

static int punch_range(struct reef_file *file, void *context)
{
	const struct range *range = context;

	return reef_file_punch(file, range->at, range->size);
}

static int plugin_pread(void *handle, void *to, uint32_t size, uint64_t at,
			uint32_t flags)
{
	struct range range = {.to = to, .at = at, .size = size};

	return run_request((struct request){
		.name = "read", .run = read_range, .context = &range});
}

static int plugin_pwrite(void *handle, const void *from, uint32_t size,
			 uint64_t at, uint32_t flags)
{
	struct range range = {.from = from, .at = at, .size = size};

	return run_request((struct request){.name = "write",
					    .run = write_range,
					    .context = &range,
					    .changes = true});
}

static int plugin_trim(void *handle, uint32_t size, uint64_t at, uint32_t flags)
{
	struct range range = {.at = at, .size = size};

	return run_request((struct request){.name = "trim",
					    .run = punch_range,
					    .context = &range,
					    .changes = true});
}

/* Zeroes whose memory is to stay are written by nbdkit itself. */
static int plugin_zero(void *handle, uint32_t size, uint64_t at, uint32_t flags)
{
	if (flags & NBDKIT_FLAG_MAY_TRIM)
		return plugin_trim(handle, size, at, flags);
	nbdkit_set_error(EOPNOTSUPP);
	return -1;
}

static int sync_file(struct reef_file *file, void *context)
{
	return reef_file_sync(file);
}

static int plugin_flush(void *handle, uint32_t flags)
{
	return run_request((struct request){.name = "flush", .run = sync_file});
}

static int stat_file(struct reef_file *file, void *context)
{
	return reef_file_stat(file, context);
}

static int64_t plugin_get_size(void *handle)
{
	struct reef_file_info info = {0};
	int rc = run_request((struct request){
		.name = "size", .run = stat_file, .context = &info});

	return rc ? -1 : (int64_t)info.size;
}

/* --- extents --- */

struct data {
	uint64_t at, from, to;
	bool is_none; /* from `at` on */
};

static int find_data(struct reef_file *file, void *context)
{
	struct data *data = context;
	int rc = reef_file_find_data(file, data->at, &data->from, &data->to);

	data->is_none = rc == -ENXIO;
	return data->is_none ? 0 : rc;
}

static int plugin_extents(void *handle, uint32_t size, uint64_t at,
			  uint32_t flags, struct nbdkit_extents *extents)
{
	uint64_t end = at + size;
	struct data data;

	while (at < end) {
		data = (struct data){.at = at};
		if (run_request((struct request){.name = "extents",
						 .run = find_data,
						 .context = &data}))
			return -1;
		if (data.is_none)
			data.from = data.to = end;
		if (data.from > at &&
		    nbdkit_add_extent(extents, at, data.from - at,
				      NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO))
			return -1;
		if (data.to > data.from &&
		    nbdkit_add_extent(extents, data.from, data.to - data.from,
				      0))
			return -1;
		at = data.to;
		if (flags & NBDKIT_FLAG_REQ_ONE)
			break;
	}
	return 0;
}

/* --- connections --- */

static void *plugin_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int say_yes(void *handle)
{
	return 1;
}

static int plugin_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

static int plugin_block_size(void *handle, uint32_t *least, uint32_t *best,
			     uint32_t *most)
{
	*least = 1;
	*best = 4096;
	*most = 32u << 20;
	return 0;
}

/* --- the command line --- */

static int take_token(const char *value)
{
	if (*value != '+' && *value != '-') {
		nbdkit_error("token is a secret: say token=+FILE, or token=- "
			     "to be asked for it");
		return -1;
	}
	free(config.token);
	return nbdkit_read_password(value, &config.token);
}

static int take_credential(const char *value)
{
	/* nbdkit goes to another folder when it leaves the terminal. */
	free(config.credential);
	config.credential = nbdkit_absolute_path(value);
	return config.credential ? 0 : -1;
}

static int plugin_config(const char *key, const char *value)
{
	if (!strcmp(key, "pool"))
		config.pool = value;
	else if (!strcmp(key, "space"))
		config.space = value;
	else if (!strcmp(key, "file"))
		config.file = value;
	else if (!strcmp(key, "credential"))
		return take_credential(value);
	else if (!strcmp(key, "token"))
		return take_token(value);
	else if (!strcmp(key, "size"))
		return (config.size = nbdkit_parse_size(value)) < 0 ? -1 : 0;
	else {
		nbdkit_error("there is no parameter '%s'", key);
		return -1;
	}
	return 0;
}

static int plugin_config_complete(void)
{
	if (config.space && config.file)
		return 0;
	nbdkit_error("say space=SPACE and file=FILE");
	return -1;
}

/* Find out that all is well, or make the file, while there is a terminal to say
 * otherwise. The session ends before nbdkit forks. */
static int plugin_get_ready(void)
{
	struct opened *opened;
	int rc;

	if (open_file(config.size < 0 ? 0 : REEF_FILE_CREATE, &opened))
		return -1;
	/* It may be longer, also by another's doing at the same time. */
	rc = config.size < 0
		     ? 0
		     : reef_file_extend(opened->file, (uint64_t)config.size);
	close_file(opened);
	return rc ? fail(config.file, rc) : 0;
}

static void plugin_unload(void)
{
	close_idle();
	free(config.credential);
	free(config.token);
}

static struct nbdkit_plugin plugin = {
	.name = "reef",
	.longname = "files in the memory of a Reef pool",
	.description = "Serve a file of a pool of remote memory.",
	.magic_config_key = "file",
	.config = plugin_config,
	.config_complete = plugin_config_complete,
	.config_help =
		"space=SPACE      (required) The space that has the file.\n"
		"[file=]FILE      (required) The file that is served.\n"
		"size=SIZE        Make the file, of that size, if there is "
		"none;\n                 make it longer if it is shorter.\n"
		"pool=TARGET      The pool: local, or reef://HOST:PORT.\n"
		"credential=FILE  The user's key, of `reef user add`.\n"
		"token=+FILE      The space's token, of `reef space token`.",
	.get_ready = plugin_get_ready,
	.unload = plugin_unload,
	.open = plugin_open,
	.get_size = plugin_get_size,
	.block_size = plugin_block_size,
	.can_multi_conn = say_yes,
	.can_flush = say_yes,
	.can_trim = say_yes,
	.can_zero = say_yes,
	.can_extents = say_yes,
	.can_fua = plugin_can_fua,
	.pread = plugin_pread,
	.pwrite = plugin_pwrite,
	.flush = plugin_flush,
	.trim = plugin_trim,
	.zero = plugin_zero,
	.extents = plugin_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
