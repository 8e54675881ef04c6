/* file.c - `reef file`: the files of a space, from the shell. */
#include "cmd/image.h"
#include "cmd/object/objects.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <fcntl.h>
#include <reef/file.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
	"usage: reef file list SPACE [PREFIX] [--json]\n"
	"       reef file put SPACE FILE [PATH] [--chunk SIZE]\n"
	"       reef file get SPACE FILE [PATH]\n"
	"       reef file cat SPACE FILE\n"
	"       reef file stat SPACE FILE [--json]\n"
	"       reef file rm SPACE FILE\n"
	"       reef file df SPACE [--json]\n\n"
	"Files in the memory of the pool. `put` copies PATH to FILE, in place "
	"of the one\n"
	"that is there, once all of it has arrived; `get` copies it back. "
	"PATH is FILE in\n"
	"this folder if it is left out, and standard input or output if it is "
	"-. `df`\n"
	"tells what all files of the space take.\n";

#define TRANSFER_SIZE (1024 * 1024u) /* bytes that are copied at a time */
#define ZEROES_SIZE (256 * 1024u)    /* and that are looked at for zeroes */

struct wish {
	struct objects_wish asked; /* words: VERB SPACE FILE PATH */
	const char *chunk;
};

/* --- signals: a transfer that is interrupted leaves nothing behind --- */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
	interrupted = number;
}

static void catch_signals(bool on)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on ? interrupt : SIG_DFL};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
}

/* Behind a transfer: end as the signal would have ended us. */
static void end_by_signal(void)
{
	catch_signals(false);
	if (interrupted)
		raise(interrupted);
}

/* --- copying --- */

struct transfer {
	struct reef_file *file;
	const char *path; /* for what is said */
	int fd;
	bool can_skip; /* the descriptor is a new file's: zeroes are holes */
	uint64_t size; /* 0: not known */
	uint64_t done;
	uint8_t *bytes;
	struct cmd_bar bar;
};

static int path_failed(const char *path)
{
	return operate_say("file", "%.200s: %s", path, strerror(errno));
}

/* Read from the descriptor until the buffer is full. 1: an error was printed.
 */
static int fill_bytes(struct transfer *transfer, size_t *size)
{
	ssize_t got;

	for (*size = 0; *size < TRANSFER_SIZE; *size += (size_t)got) {
		if (interrupted)
			return -EINTR;
		got = read(transfer->fd, transfer->bytes + *size,
			   TRANSFER_SIZE - *size);
		if (got < 0 && errno == EINTR)
			return -EINTR;
		if (got < 0)
			return path_failed(transfer->path);
		if (!got)
			break;
	}
	return 0;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	return !size || (!bytes[0] && !memcmp(bytes, bytes + 1, size - 1));
}

/* Write to the file of the pool. Parts that are zeroes are left out: what
 * nobody wrote is zeroes. */
static int write_file(struct transfer *transfer, size_t size)
{
	size_t at, part;
	ssize_t put;

	operate_tell_waiting("file");
	for (at = 0; at < size; at += (size_t)put) {
		part = size - at < ZEROES_SIZE ? size - at : ZEROES_SIZE;
		put = (ssize_t)part;
		if (!is_zero(transfer->bytes + at, part))
			put = reef_file_pwrite(transfer->file,
					       transfer->bytes + at, part,
					       transfer->done + at);
		if (put < 0)
			return (int)put;
	}
	operate_tell_waiting(NULL);
	transfer->done += size;
	return 0;
}

static int copy_in(struct transfer *transfer)
{
	size_t size;
	int rc;

	do {
		cmd_bar_draw(&transfer->bar, transfer->done, transfer->size);
		rc = fill_bytes(transfer, &size);
		if (!rc)
			rc = write_file(transfer, size);
	} while (!rc && size == TRANSFER_SIZE);
	cmd_bar_end(&transfer->bar);
	return rc ? rc : reef_file_truncate(transfer->file, transfer->done);
}

/* Write a part of the buffer to the descriptor. 1: an error was printed. */
static int drain_part(struct transfer *transfer, const uint8_t *bytes,
		      size_t size)
{
	ssize_t put;

	if (transfer->can_skip && is_zero(bytes, size))
		return lseek(transfer->fd, (off_t)size, SEEK_CUR) < 0
			       ? path_failed(transfer->path)
			       : 0;
	for (size_t at = 0; at < size; at += (size_t)put) {
		if (interrupted)
			return -EINTR;
		put = write(transfer->fd, bytes + at, size - at);
		if (put < 0 && errno != EINTR)
			return path_failed(transfer->path);
		if (put < 0)
			put = 0;
	}
	return 0;
}

/* Write all of the buffer. 1: an error was printed. */
static int drain_bytes(struct transfer *transfer, size_t size)
{
	size_t at, part;
	int rc = interrupted ? -EINTR : 0;

	for (at = 0; !rc && at < size; at += part) {
		part = size - at < ZEROES_SIZE ? size - at : ZEROES_SIZE;
		rc = drain_part(transfer, transfer->bytes + at, part);
	}
	if (!rc)
		transfer->done += size;
	return rc;
}

static int copy_out(struct transfer *transfer)
{
	ssize_t got;
	int rc;

	do {
		cmd_bar_draw(&transfer->bar, transfer->done, transfer->size);
		operate_tell_waiting("file");
		got = reef_file_pread(transfer->file, transfer->bytes,
				      TRANSFER_SIZE, transfer->done);
		operate_tell_waiting(NULL);
		rc = got < 0 ? (int)got : drain_bytes(transfer, (size_t)got);
	} while (!rc && got);
	cmd_bar_end(&transfer->bar);
	/* A hole at the end is no part of the file yet. */
	if (!rc && transfer->can_skip &&
	    ftruncate(transfer->fd, (off_t)transfer->done))
		rc = path_failed(transfer->path);
	return rc;
}

/* Copy with a buffer, so that a signal ends it early. */
static int run_transfer(struct transfer *transfer,
			int (*copy)(struct transfer *transfer))
{
	int rc;

	transfer->bytes = malloc(TRANSFER_SIZE);
	if (!transfer->bytes)
		return -ENOMEM;
	rc = copy(transfer);
	free(transfer->bytes);
	return rc;
}

/* --- put --- */

static const char *path_of(const struct objects_wish *asked)
{
	return asked->words[3] ? asked->words[3] : asked->words[2];
}

static bool is_standard(const char *path)
{
	return !strcmp(path, "-");
}

static int open_source(const struct objects_wish *asked,
		       struct transfer *transfer)
{
	struct stat stat;

	if (is_standard(transfer->path)) {
		transfer->path = "standard input";
		transfer->fd = STDIN_FILENO;
		return 0;
	}
	transfer->fd = open(transfer->path, O_RDONLY | O_CLOEXEC);
	if (transfer->fd < 0 && errno == ENOENT && !asked->words[3])
		return operate_say("file",
				   "there is no %.80s in this folder; PATH is "
				   "- for standard input",
				   transfer->path);
	if (transfer->fd < 0)
		return path_failed(transfer->path);
	if (fstat(transfer->fd, &stat))
		return path_failed(transfer->path);
	if (S_ISDIR(stat.st_mode))
		return operate_say("file", "%.200s: is a folder",
				   transfer->path);
	transfer->size = S_ISREG(stat.st_mode) ? (uint64_t)stat.st_size : 0;
	return 0;
}

/* The bytes go to a file of another name first: so the one that is there stays
 * as it was until all have arrived. */
static int put_beside(struct reef_space *space,
		      const struct objects_wish *asked,
		      const struct reef_file_options *options,
		      struct transfer *transfer)
{
	char beside[32];
	int rc;

	snprintf(beside, sizeof(beside), ".put.%08x",
		 reef_session(asked->reef));
	rc = reef_file_open(space, beside, options, &transfer->file);
	if (rc)
		return rc;
	rc = run_transfer(transfer, copy_in);
	reef_file_close(transfer->file);
	operate_tell_waiting("file");
	if (!rc)
		rc = reef_file_rename(space, beside, asked->words[2], 0);
	if (rc)
		(void)reef_file_delete(space, beside);
	operate_tell_waiting(NULL);
	return rc;
}

static int put_file(struct reef_space *space, const struct objects_wish *asked)
{
	const struct wish *wish = (const struct wish *)asked;
	struct reef_file_options options = {.flags = REEF_FILE_CREATE |
						     REEF_FILE_EXCLUSIVE};
	struct transfer transfer = {
		.path = path_of(asked), .fd = -1, .bar.what = "puts"};
	struct reef_file *file;
	uint64_t chunk = 0;
	int rc = 0;

	if (wish->chunk)
		rc = operate_size("file", wish->chunk, &chunk);
	if (rc)
		return rc;
	if (chunk & (chunk - 1) || (chunk && (chunk < 4096 || chunk >> 24 > 1)))
		return cmd_usage_error("file", "a chunk is a power of two from "
					       "4K to 16M");
	options.chunk = (uint32_t)chunk;
	/* A name that is none is refused before anything is read. */
	rc = reef_file_open(space, asked->words[2], NULL, &file);
	if (!rc)
		reef_file_close(file);
	if (rc == -EINVAL && strchr(asked->words[2], '/'))
		return operate_say("file",
				   "\"%.80s\" is not a name for a file, as it "
				   "has a /: put SPACE FILE PATH, where FILE "
				   "is the name that it gets",
				   asked->words[2]);
	if (rc == -EINVAL || rc == -ENAMETOOLONG)
		return rc;
	operate_tell_waiting(NULL);
	catch_signals(true);
	rc = open_source(asked, &transfer);
	if (!rc)
		rc = put_beside(space, asked, &options, &transfer);
	if (transfer.fd > STDIN_FILENO)
		close(transfer.fd);
	end_by_signal();
	return rc;
}

/* --- get and cat --- */

static int copy_to(struct reef_file *file, int fd, const char *path,
		   bool can_skip)
{
	struct transfer transfer = {.file = file,
				    .fd = fd,
				    .path = path,
				    .can_skip = can_skip,
				    .bar.what = "gets"};
	struct reef_file_info info;
	int rc = reef_file_stat(file, &info);

	if (!rc) {
		transfer.size = info.size;
		rc = run_transfer(&transfer, copy_out);
	}
	return rc;
}

/* Copy to a path that is no file or folder: to a pipe or a device. */
static int get_to_special(struct reef_file *file, const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return path_failed(path);
	rc = copy_to(file, fd, path, false);
	close(fd);
	return rc;
}

/* Copy to a file beside the path, which gets its name when all is there. */
static int get_to_path(struct reef_file *file, const char *path)
{
	char beside[4096];
	int size = snprintf(beside, sizeof(beside), "%s.part", path), fd, rc;

	if (size < 0 || (size_t)size >= sizeof(beside))
		return operate_say("file", "a path that is too long");
	fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return path_failed(beside);
	rc = copy_to(file, fd, beside, true);
	if (close(fd) && !rc)
		rc = path_failed(beside);
	if (!rc && rename(beside, path))
		rc = path_failed(path);
	if (rc)
		unlink(beside);
	return rc;
}

static int get_file(void *file, const struct objects_wish *asked)
{
	const char *path = path_of(asked);
	struct stat found;
	bool is_there;
	int rc;

	catch_signals(true);
	is_there = !stat(path, &found);
	if (is_standard(path))
		rc = copy_to(file, STDOUT_FILENO, "standard output", false);
	else if (is_there && S_ISDIR(found.st_mode))
		rc = operate_say("file", "%.200s: is a folder", path);
	else if (is_there && !S_ISREG(found.st_mode))
		rc = get_to_special(file, path);
	else
		rc = get_to_path(file, path);
	end_by_signal();
	return rc;
}

static int cat_file(void *file, const struct objects_wish *asked)
{
	int rc;

	(void)asked;
	catch_signals(true);
	rc = copy_to(file, STDOUT_FILENO, "standard output", false);
	end_by_signal();
	return rc;
}

/* --- about files --- */

static void print_json(const char *name, const struct reef_file_info *info)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_bytes(&json, "file", name, strlen(name));
	reef_json_number(&json, "size", info->size);
	reef_json_number(&json, "size_max", info->size_max);
	reef_json_number(&json, "taken", info->taken);
	reef_json_number(&json, "chunk", info->chunk);
	reef_json_bool(&json, "scratch", info->scratch);
	reef_json_number(&json, "session", info->session);
	reef_json_end(&json);
}

static int print_stat(void *file, const struct objects_wish *asked)
{
	struct reef_file_info info;
	char text[16];
	int rc = reef_file_stat(file, &info);

	if (rc)
		return rc;
	if (asked->json) {
		print_json(asked->words[2], &info);
		return 0;
	}
	printf("size     %llu\n", (unsigned long long)info.size);
	printf("at most  %s\n", reef_table_bytes(info.size_max, text));
	printf("taken    %s\n", reef_table_bytes(info.taken, text));
	printf("chunk    %s\n", reef_table_bytes(info.chunk, text));
	if (info.scratch)
		printf("ends with session %u\n", info.session);
	return 0;
}

/* What is gone over in a list, and the sums of it. */
struct listing {
	struct reef_space *space;
	struct reef_table *table; /* NULL: none */
	bool json;
	uint64_t files, size, taken, lost;
};

static void list_one(struct listing *listing, const char *name,
		     const struct reef_file_info *info)
{
	char text[16];

	listing->files++;
	listing->size += info->size;
	listing->taken += info->taken;
	if (listing->json)
		print_json(name, info);
	if (!listing->table)
		return;
	reef_table_cell(listing->table, "%s", name);
	reef_table_cell(listing->table, "%llu", (unsigned long long)info->size);
	reef_table_cell(listing->table, "%s",
			reef_table_bytes(info->taken, text));
	reef_table_cell(listing->table, "%s",
			reef_table_bytes(info->chunk, text));
	reef_table_cell(listing->table, "%s",
			info->scratch ? "with its session" : "stays");
	reef_table_end_row(listing->table);
}

/* Files that are lost are listed without figures; those that were deleted
 * meanwhile are passed over. */
static int look_at(void *context, const char *name)
{
	struct listing *listing = context;
	struct reef_file_info info;
	struct reef_file *file;
	int rc = reef_file_open(listing->space, name, NULL, &file);

	if (!rc) {
		rc = reef_file_stat(file, &info);
		reef_file_close(file);
	}
	if (!rc)
		list_one(listing, name, &info);
	if (rc == -REEF_ELOST) {
		listing->lost++;
		if (listing->table) {
			reef_table_cell(listing->table, "%s", name);
			reef_table_cell(listing->table, "lost");
			reef_table_end_row(listing->table);
		}
	}
	return rc == -ENOENT || rc == -REEF_EDROPPED || rc == -REEF_ELOST ? 0
									  : rc;
}

static int list_files(struct reef_space *space,
		      const struct objects_wish *asked)
{
	struct listing listing = {.space = space, .json = asked->json};
	int rc;

	if (!asked->json)
		listing.table =
			operate_table("<file|>size|>taken|>chunk|<ends");
	rc = reef_file_list(space, asked->words[2], look_at, &listing);
	if (!rc && listing.table) {
		reef_table_sort(listing.table, 0, false);
		rc = reef_table_print(listing.table, stdout);
	}
	reef_table_destroy(listing.table);
	return rc;
}

/* --- df --- */

struct found_space {
	const char *name;
	struct reef_space_info info;
	bool found;
};

static int find_space(void *context, const struct reef_space_info *info)
{
	struct found_space *found = context;

	if (strcmp(info->name, found->name) != 0)
		return 0;
	found->info = *info;
	found->found = true;
	return 1;
}

static void print_df_json(const char *name, const struct listing *sums,
			  const struct found_space *found)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "space", name);
	reef_json_number(&json, "files", sums->files);
	reef_json_number(&json, "lost", sums->lost);
	reef_json_number(&json, "size", sums->size);
	reef_json_number(&json, "taken", sums->taken);
	reef_json_number(&json, "used", found->info.used);
	reef_json_number(&json, "quota", found->info.quota);
	reef_json_end(&json);
}

static int print_df(struct reef_space *space, const struct objects_wish *asked)
{
	struct found_space found = {.name = asked->words[1]};
	struct listing sums = {.space = space};
	char text[16];
	int rc = reef_file_list(space, NULL, look_at, &sums);

	if (!rc)
		rc = reef_space_list(asked->reef, find_space, &found);
	if (rc < 0)
		return rc;
	if (asked->json) {
		print_df_json(asked->words[1], &sums, &found);
		return 0;
	}
	printf("files  %llu\n", (unsigned long long)sums.files);
	if (sums.lost)
		printf("lost   %llu\n", (unsigned long long)sums.lost);
	printf("size   %s\n", reef_table_bytes(sums.size, text));
	printf("taken  %s\n", reef_table_bytes(sums.taken, text));
	if (found.found) {
		printf("space  %s\n", reef_table_bytes(found.info.used, text));
		printf("quota  %s\n",
		       found.info.quota
			       ? reef_table_bytes(found.info.quota, text)
			       : "-");
	}
	return 0;
}

/* --- the kind --- */

static int open_file(struct reef_space *space, const struct objects_wish *asked,
		     const char *name, bool makes, void **out)
{
	struct reef_file *file;
	int rc = reef_file_open(space, name, NULL, &file);

	(void)asked;
	(void)makes;
	if (!rc)
		*out = file;
	return rc;
}

static void close_file(void *file)
{
	reef_file_close(file);
}

static const struct objects_verb verbs[] = {
	{"list", "SPACE [PREFIX]", 2, 3, "json", OBJECTS_READS, NULL},
	{"put", "SPACE FILE [PATH]", 3, 4, "chunk", OBJECTS_MAKES, NULL},
	{"get", "SPACE FILE [PATH]", 3, 4, NULL, OBJECTS_READS, get_file},
	{"cat", "SPACE FILE", 3, 3, NULL, OBJECTS_READS, cat_file},
	{"stat", "SPACE FILE", 3, 3, "json", OBJECTS_READS, print_stat},
	{"rm", "SPACE FILE", 3, 3, NULL, OBJECTS_CHANGES, NULL},
	{"df", "SPACE", 2, 2, "json", OBJECTS_READS, NULL},
	{0},
};

static const struct objects_whole wholes[] = {
	{"list", list_files},
	{"put", put_file},
	{"df", print_df},
	{0},
};

static const struct objects_kind files = {
	.name = "file",
	.usage = usage,
	.verbs = verbs,
	.wholes = wholes,
	.is_apart = true,
	.open = open_file,
	.close = close_file,
	.drop = reef_file_delete,
};

int cmd_file(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"chunk", "SIZE", "put: bytes that lie together; 256K", NULL,
		 &wish.chunk},
		{"json", NULL, "print a line of JSON for each",
		 &wish.asked.json, NULL},
		{0},
	};

	return objects_main(&files, argc, argv, flags, &wish.asked);
}
