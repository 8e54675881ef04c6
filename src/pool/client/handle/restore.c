/* restore.c - a space from a file: the client's part of broker/restore.c.
 *
 * (1) All of the image is checked before anything is asked of the broker.
 * (2) Until the last step the space is a scratch space of this session's: an
 *     error closes it, and it is gone. */
#include "pool/client/handle/image.h"

#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

struct restoring {
	struct reef *reef;
	struct reef_space *space;
	struct reef_image *image;
	const struct reef_image_about *about;
	const struct reef_image_options *options;
	uint64_t all; /* bytes, twice: they are checked, then written */
};

static int (*restorer)(struct reef_space *space, const char *name,
		       uint64_t value);

void reef_restorer_register(int (*restore)(struct reef_space *space,
					   const char *name, uint64_t value))
{
	reef_assert(!restorer);
	restorer = restore;
}

/* --- the broker --- */

static int ask(struct restoring *restoring,
	       const struct reef_ask_space_restore *what, const char *name)
{
	struct client_restore_job *job = client_job_create(&client_restore_ops);
	int rc;

	if (!job)
		return -ENOMEM;
	job->space = restoring->space->space;
	job->ask = *what;
	if (name) {
		job->name = strdup(name);
		if (!job->name) {
			client_job_destroy(&job->job);
			return -ENOMEM;
		}
	}
	rc = client_job_run(restoring->reef->client, &restoring->reef->member,
			    &job->job);
	client_job_unref(&job->job);
	return rc;
}

static int raise_numbers(struct restoring *restoring)
{
	struct reef_ask_space_restore what = {.step = REEF_RESTORE_NUMBERS};

	for (uint32_t i = 0; i < restoring->about->names_count; i++)
		if (restoring->about->names[i].generation > what.generation)
			what.generation = restoring->about->names[i].generation;
	return ask(restoring, &what, NULL);
}

static int restore_sessions(struct restoring *restoring)
{
	struct reef_ask_space_restore what = {.step = REEF_RESTORE_SESSION};
	int rc = 0;

	for (uint32_t i = 0; !rc && i < restoring->about->sessions_count; i++) {
		what.session = restoring->about->sessions[i];
		rc = ask(restoring, &what, NULL);
	}
	return rc;
}

/* --- memory --- */

static int restore_extent(struct restoring *restoring, uint32_t index)
{
	const struct reef_image_extent *extent =
		&restoring->about->extents[index];
	const struct reef_ask_space_restore what = {
		.step = REEF_RESTORE_EXTENT,
		.extent = extent->number,
		.ordinal = extent->ordinal,
		.epoch = extent->epoch,
		.size = extent->size,
	};

	return ask(restoring, &what, NULL);
}

static int restore_bytes(struct restoring *restoring, uint32_t index,
			 void *bytes, uint64_t *done)
{
	const struct reef_image_extent *extent =
		&restoring->about->extents[index];
	uint32_t piece, size;
	bool empty;
	int rc = 0;

	for (piece = 0; !rc && piece < reef_image_pieces(extent->size);
	     piece++) {
		size = reef_image_piece_size(extent->size, piece);
		rc = reef_image_read(restoring->image, index, piece, bytes,
				     &empty);
		/* An extent that was just made is empty. */
		if (!rc && !empty)
			rc = reef_write(restoring->reef,
					(uint64_t)extent->number << 32 |
						piece * REEF_IMAGE_PIECE,
					bytes, size);
		*done += size;
		if (!rc)
			rc = client_image_tell(restoring->options, *done,
					       restoring->all);
	}
	return rc;
}

static int restore_memory(struct restoring *restoring)
{
	void *bytes = aligned_alloc(4096, REEF_IMAGE_PIECE);
	uint64_t done = restoring->all / 2;
	uint32_t i;
	int rc = bytes ? 0 : -ENOMEM;

	/* First all numbers: one that is in use is found before any byte. */
	for (i = 0; !rc && i < restoring->about->extents_count; i++)
		rc = restore_extent(restoring, i);
	if (!rc)
		rc = restore_sessions(restoring);
	for (i = 0; !rc && i < restoring->about->extents_count; i++)
		rc = restore_bytes(restoring, i, bytes, &done);
	free(bytes);
	return rc;
}

/* --- names --- */

/* Bind a name as it was; special: only if its value is more than an address,
 * else: only the others. */
static int restore_name(struct restoring *restoring,
			const struct reef_image_name *name, bool special)
{
	char text[256];
	int rc = 0;

	if (name->name.size >= sizeof(text))
		return -ENAMETOOLONG;
	memcpy(text, name->name.bytes, name->name.size);
	text[name->name.size] = 0;
	if (special) {
		rc = restorer ? restorer(restoring->space, text, name->value)
			      : 0;
		return rc > 0 ? 0 : rc;
	}
	return reef_name_bind(restoring->space, text, name->value, NULL);
}

static int restore_names(struct restoring *restoring)
{
	const struct reef_image_name *names = restoring->about->names;
	uint32_t i, count = restoring->about->names_count;
	int rc = 0;

	for (i = 0; !rc && i < count; i++)
		rc = restore_name(restoring, &names[i], false);
	for (i = 0; !rc && i < count; i++)
		rc = restore_name(restoring, &names[i], true);
	return rc;
}

/* --- all of it --- */

struct search {
	const char *name;
};

static int find_name(void *context, const struct reef_space_info *info)
{
	const struct search *search = context;

	return strcmp(info->name, search->name) ? 0 : -EEXIST;
}

static int tell_checked(void *context, uint64_t done, uint64_t all)
{
	const struct restoring *restoring = context;

	return client_image_tell(restoring->options, done, 2 * all);
}

/* The image is one of a space, whole, and there is none of that name. */
static int check_image(struct restoring *restoring, const char *name)
{
	struct search search = {.name = name};
	int rc;

	if (restoring->about->kind != REEF_IMAGE_SPACE)
		return -EINVAL;
	rc = reef_space_list(restoring->reef, find_name, &search);
	return rc ? rc
		  : reef_image_verify(restoring->image, tell_checked,
				      restoring);
}

static int restore_as(struct restoring *restoring, const char *name)
{
	const struct reef_ask_space_restore what = {.step = REEF_RESTORE_NAME};
	uint8_t copies = restoring->options ? restoring->options->copies : 0;
	const struct reef_space_options options = {
		.quota = restoring->about->quota,
		.copies = copies ? copies : restoring->about->copies,
		.flags = restoring->about->keeping == REEF_KEEPING_REVOCABLE
				 ? REEF_SPACE_REVOCABLE
				 : 0,
	};
	int rc;

	rc = check_image(restoring, name);
	if (!rc)
		rc = reef_space_open(restoring->reef, NULL, &options,
				     &restoring->space);
	if (rc)
		return rc;
	rc = raise_numbers(restoring);
	if (!rc)
		rc = restore_memory(restoring);
	if (!rc)
		rc = restore_names(restoring);
	if (!rc)
		rc = ask(restoring, &what, name);
	reef_space_close(restoring->space); /* (2) */
	return rc;
}

static int choose_name(const struct reef_image_about *about, const char *name,
		       char out[256])
{
	struct reef_text text =
		name ? (struct reef_text){name, 0} : about->name;

	if (name && strlen(name) > UINT16_MAX)
		return -ENAMETOOLONG;
	if (name)
		text.size = (uint16_t)strlen(name);
	if (text.size > 255)
		return -ENAMETOOLONG;
	if (!text.size)
		return -EINVAL;
	memcpy(out, text.bytes, text.size);
	out[text.size] = 0;
	return 0;
}

int reef_space_restore(struct reef *reef, const char *path, const char *name,
		       const struct reef_image_options *options,
		       struct reef_image_report *report)
{
	struct restoring restoring = {.reef = reef, .options = options};
	struct client_image_file file;
	char chosen[256];
	int rc;

	if (!path)
		return -EINVAL;
	rc = client_handle_check(reef);
	if (!rc)
		rc = client_image_file_init(&file, path);
	if (rc)
		return rc;
	rc = reef_image_open(file.store, file.name, &restoring.image);
	if (!rc) {
		restoring.about = reef_image_about(restoring.image);
		restoring.all = 2 * reef_image_size(restoring.image);
		rc = choose_name(restoring.about, name, chosen);
		if (!rc)
			rc = restore_as(&restoring, chosen);
		if (!rc && report) {
			*report = (struct reef_image_report){
				.bytes = restoring.all / 2,
				.extents = restoring.about->extents_count,
				.names = restoring.about->names_count,
				.sessions = restoring.about->sessions_count,
			};
			memcpy(report->name, chosen, sizeof(chosen));
		}
		reef_image_close(restoring.image);
	}
	client_image_file_fini(&file);
	return rc;
}
