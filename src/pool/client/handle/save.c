/* save.c - a space into a file: the client's part of broker/save.c.
 *
 *   BEGIN --> LOOK until CLOSED --> the view, names, sessions --> all pieces:
 *   READ, then into the file --> END --> the file is synced and gets its name
 *   --> TELL, what came of it
 *
 * (1) What END does not confirm is thrown away: it is not of one moment.
 * (2) Syncing waits for the disk, so it comes after END, when others go on.
 * (3) The session is asked for nothing else in that space meanwhile: another
 *     handle of the process would write by a key that only reads. */
#include "pool/client/handle/image.h"

#include "base/random.h"
#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOOK_PAUSE_MIN_NS (CLIENT_MILLISECOND / 4)
#define LOOK_PAUSE_MAX_NS (10 * CLIENT_MILLISECOND)
#define LOOK_NS (250 * CLIENT_MILLISECOND) /* between two while it copies */

struct saving {
	struct reef *reef;
	struct reef_space *space;
	const struct reef_image_options *options;
	struct reef_reply_space_save reply; /* the last one */
	struct reef_image_about about;
	struct reef_image_extent *extents;
	struct reef_image_name *names;
	uint32_t names_room;
	uint32_t *sessions;
	uint32_t sessions_room;
	uint64_t looked_ns, begun_ns;
};

/* --- the file --- */

/* Follow links to a file that is there, so that an image takes the place of the
 * file, not of the link; and of nothing but a file: the image of before is
 * replaced by a rename, which would do that to a device. */
static int find_file(const char *path, char **out)
{
	struct stat status;
	int rc = 0;

	*out = realpath(path, NULL);
	if (!*out && errno == ENOENT)
		*out = strdup(path);
	else if (*out && stat(*out, &status))
		rc = -errno;
	else if (*out && !S_ISREG(status.st_mode))
		rc = S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;
	if (!*out)
		return errno ? -errno : -ENOMEM;
	if (rc)
		free(*out);
	return rc;
}

int client_image_file_init(struct client_image_file *file, const char *path)
{
	struct reef_store *store = NULL;
	const char *folder, *name;
	struct stat status;
	char *own, *slash;
	int rc = find_file(path, &own);

	if (rc)
		return rc;
	slash = strrchr(own, '/');
	if (slash)
		*slash = 0;
	folder = !slash ? "." : own[0] ? own : "/";
	name = slash ? slash + 1 : own;
	rc = stat(folder, &status) ? -errno : 0;
	if (!rc && !S_ISDIR(status.st_mode))
		rc = -ENOTDIR;
	if (!name[0])
		rc = -EINVAL;
	if (!rc)
		rc = reef_store_open_directory(folder, &store);
	if (rc) {
		free(own);
		return rc;
	}
	*file = (struct client_image_file){
		.store = store,
		.path = own,
		.name = name,
	};
	return 0;
}

void client_image_file_fini(struct client_image_file *file)
{
	reef_store_destroy(file->store);
	free(file->path);
}

int client_image_tell(const struct reef_image_options *options, uint64_t done,
		      uint64_t all)
{
	return options && options->progress
		       ? options->progress(options->context, done, all)
		       : 0;
}

/* --- the broker --- */

static int ask(struct saving *saving, enum reef_save_step step, uint32_t after,
	       struct reef_answer *answer)
{
	struct reef_body body = {
		.ask.space_save = {.space = saving->space->space->id,
				   .step = (uint8_t)step,
				   .number = saving->reply.number,
				   .after = after},
	};
	struct reef_answer own = {0};
	int rc;

	rc = reef_client_ask(saving->reef, REEF_POOL_SPACE_SAVE, false, &body,
			     answer ? answer : &own);
	if (rc)
		return rc;
	saving->looked_ns = reef_now_ns();
	if (step < REEF_SAVE_END)
		saving->reply = (answer ? answer : &own)->body.reply.space_save;
	reef_answer_free(&own);
	return 0;
}

/* Ask again until all extents are in that state, or over. */
static int await_state(struct saving *saving, enum reef_save_state state)
{
	uint64_t pause_ns = LOOK_PAUSE_MIN_NS;
	int rc = 0;

	while (!rc && saving->reply.state != state) {
		rc = reef_sleep(pause_ns);
		if (!rc)
			rc = ask(saving, REEF_SAVE_LOOK, 0, NULL);
		if (pause_ns < LOOK_PAUSE_MAX_NS)
			pause_ns *= 2;
	}
	return rc;
}

/* Close all extents to everybody else, and learn how to read them. */
static int begin(struct saving *saving)
{
	struct client_space_job *job;
	int rc;

	saving->begun_ns = reef_now_ns();
	rc = ask(saving, REEF_SAVE_BEGIN, 0, NULL);
	if (!rc)
		rc = await_state(saving, REEF_SAVE_CLOSED);
	if (rc)
		return rc;
	job = client_job_create(&client_refresh_ops);
	if (!job)
		return -ENOMEM;
	job->space = saving->space->space;
	rc = client_job_run(saving->reef->client, &saving->reef->member,
			    &job->job);
	client_job_unref(&job->job);
	return rc;
}

/* Open them again. What it says is whether the copy is one; what is left is
 * waited for, so that the caller knows how long others were held up. */
static int end(struct saving *saving, uint64_t *pause_ns)
{
	int rc;

	if (!saving->reply.number)
		return -ESTALE;
	rc = ask(saving, REEF_SAVE_END, 0, NULL);
	if (!rc)
		(void)await_state(saving, 0); /* until -ESTALE */
	*pause_ns = reef_now_ns() - saving->begun_ns;
	return rc;
}

/* --- what it is about --- */

static int compare_extents(const void *a, const void *b)
{
	const struct reef_image_extent *first = a, *second = b;

	return (first->number > second->number) -
	       (first->number < second->number);
}

static int list_extents(struct saving *saving)
{
	struct reef_client *client = saving->reef->client;
	const struct client_extent *extent;
	uint32_t count = 0, i;

	pthread_mutex_lock(&client->lock);
	saving->extents =
		calloc(client->extents_count + 1, sizeof(*saving->extents));
	for (i = 0; saving->extents && i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent || extent->space != saving->space->space ||
		    extent->state == REEF_EXTENT_LOST || extent->is_twin)
			continue;
		saving->extents[count++] = (struct reef_image_extent){
			.number = extent->extent,
			.space = saving->space->space->id,
			.ordinal = extent->ordinal,
			.epoch = extent->epoch,
			.size = extent->size,
		};
	}
	pthread_mutex_unlock(&client->lock);
	if (!saving->extents)
		return -ENOMEM;
	qsort(saving->extents, count, sizeof(*saving->extents),
	      compare_extents);
	saving->about.extents = saving->extents;
	saving->about.extents_count = count;
	return 0;
}

/* Room for one more of something. */
static int grow(void **items, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return 0;
	grown = realloc(*items, more * size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*room = more;
	return 0;
}

static int add_name(void *context, const char *name, uint64_t value,
		    uint64_t generation)
{
	struct saving *saving = context;
	uint32_t *count = &saving->about.names_count;
	char *copy;
	int rc = grow((void **)&saving->names, *count, &saving->names_room,
		      sizeof(*saving->names));

	if (rc)
		return rc;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	saving->names[(*count)++] = (struct reef_image_name){
		.name = reef_text_of(copy),
		.value = value,
		.generation = generation,
	};
	return 0;
}

static int add_sessions(struct saving *saving, const struct reef_body *body,
			uint32_t *last)
{
	struct reef_cursor_in in = {body->rows, body->rows_size, false};
	uint32_t *count = &saving->about.sessions_count;
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) == 1) {
		if (row.row != REEF_ROW_SESSION || row.session.id <= *last)
			return -REEF_EPROTO;
		rc = grow((void **)&saving->sessions, *count,
			  &saving->sessions_room, sizeof(*saving->sessions));
		if (rc)
			return rc;
		saving->sessions[(*count)++] = *last = row.session.id;
	}
	return rc;
}

static int list_sessions(struct saving *saving)
{
	struct reef_answer answer;
	uint32_t last = 0, before;
	int rc;

	do {
		answer = (struct reef_answer){0};
		before = last;
		rc = ask(saving, REEF_SAVE_SESSIONS, last, &answer);
		if (!rc)
			rc = add_sessions(saving, &answer.body, &last);
		reef_answer_free(&answer);
	} while (!rc && saving->reply.flags & REEF_POOL_MORE && last > before);
	return rc;
}

static int collect_about(struct saving *saving)
{
	struct reef_image_about *about = &saving->about;
	int rc;

	rc = list_extents(saving);
	if (!rc)
		rc = reef_name_list(saving->space, NULL, add_name, saving);
	if (!rc)
		rc = list_sessions(saving);
	if (!rc)
		rc = reef_pool_time(saving->reef, &about->unix_ns);
	if (!rc)
		rc = reef_random_secret(&about->number, sizeof(about->number));
	about->kind = REEF_IMAGE_SPACE;
	about->pool = saving->reply.pool;
	about->broker_epoch = saving->reply.broker_epoch;
	about->number |= 1;
	about->space = saving->space->space->id;
	about->space_kind = saving->reply.kind;
	about->keeping = saving->reply.keeping;
	about->copies = (uint8_t)reef_space_copies(saving->space);
	about->quota = saving->reply.quota;
	about->names = saving->names;
	about->sessions = saving->sessions;
	return rc;
}

/* --- the bytes --- */

static uint64_t bytes_of(const struct reef_image_about *about)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < about->extents_count; i++)
		all += about->extents[i].size;
	return all;
}

static int copy_piece(struct saving *saving, struct reef_image_writer *writer,
		      uint32_t index, uint32_t piece, void *bytes)
{
	const struct reef_image_extent *extent = &saving->extents[index];
	uint64_t address =
		(uint64_t)extent->number << 32 | piece * REEF_IMAGE_PIECE;
	int rc = 0;

	if (reef_now_ns() - saving->looked_ns > LOOK_NS)
		rc = ask(saving, REEF_SAVE_LOOK, 0, NULL);
	if (!rc)
		rc = reef_read(saving->reef, address, bytes,
			       reef_image_piece_size(extent->size, piece));
	return rc ? rc : reef_image_write(writer, index, piece, bytes);
}

static int copy_all(struct saving *saving, struct reef_image_writer *writer)
{
	uint64_t all = bytes_of(&saving->about), done = 0;
	void *bytes = aligned_alloc(4096, REEF_IMAGE_PIECE);
	uint32_t i, piece;
	int rc = bytes ? 0 : -ENOMEM;

	for (i = 0; !rc && i < saving->about.extents_count; i++)
		for (piece = 0;
		     !rc && piece < reef_image_pieces(saving->extents[i].size);
		     piece++) {
			rc = copy_piece(saving, writer, i, piece, bytes);
			done += reef_image_piece_size(saving->extents[i].size,
						      piece);
			if (!rc)
				rc = client_image_tell(saving->options, done,
						       all);
		}
	free(bytes);
	return rc;
}

/* --- all of it --- */

/* Have the broker say what came of it, for whoever looks at the pool's events;
 * but do not wait for one that is away. */
static void tell(struct saving *saving, int rc)
{
	if (saving->reply.number && rc != -REEF_ENOLINK &&
	    rc != -REEF_EFENCED && rc != -ETIMEDOUT)
		(void)ask(saving, REEF_SAVE_TELL, (uint32_t)-rc, NULL);
}

static void fill_report(const struct saving *saving, const char *name,
			uint64_t pause_ns, struct reef_image_report *report)
{
	if (!report)
		return;
	*report = (struct reef_image_report){
		.bytes = bytes_of(&saving->about),
		.pause_ns = pause_ns,
		.extents = saving->about.extents_count,
		.names = saving->about.names_count,
		.sessions = saving->about.sessions_count,
	};
	strncpy(report->name, name, sizeof(report->name) - 1);
}

static int save_into(struct saving *saving, struct client_image_file *file,
		     uint64_t *pause_ns)
{
	struct reef_image_writer *writer = NULL;
	int rc, ended;

	rc = begin(saving);
	if (!rc)
		rc = collect_about(saving);
	if (!rc)
		rc = reef_image_begin(file->store, file->name, &saving->about,
				      &writer);
	if (!rc)
		rc = copy_all(saving, writer);
	ended = end(saving, pause_ns);
	if (!rc)
		rc = ended; /* (1) */
	if (rc) {
		reef_image_discard(writer);
		return rc;
	}
	return reef_image_finish(writer); /* (2) */
}

static void free_saving(struct saving *saving)
{
	for (uint32_t i = 0; i < saving->about.names_count; i++)
		free((char *)saving->names[i].name.bytes);
	free(saving->names);
	free(saving->sessions);
	free(saving->extents);
}

/* (3) */
static int check_alone(const struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	bool alone;

	pthread_mutex_lock(&client->lock);
	alone = space->space->refs == 1 && !space->space->heaps;
	pthread_mutex_unlock(&client->lock);
	return alone ? 0 : -EBUSY;
}

int reef_space_save(struct reef *reef, const char *name, const char *path,
		    const struct reef_image_options *options,
		    struct reef_image_report *report)
{
	const struct reef_space_options open = {
		.token = options ? options->token : NULL,
	};
	struct saving saving = {.reef = reef, .options = options};
	struct client_image_file file;
	uint64_t pause_ns = 0;
	int rc;

	if (!name || !path)
		return -EINVAL;
	rc = reef_space_open(reef, name, &open, &saving.space);
	if (rc)
		return rc;
	saving.about.name = reef_text_of(name);
	rc = check_alone(saving.space);
	if (!rc)
		rc = client_image_file_init(&file, path);
	if (!rc) {
		rc = save_into(&saving, &file, &pause_ns);
		tell(&saving, rc);
		client_image_file_fini(&file);
	}
	if (!rc)
		fill_report(&saving, name, pause_ns, report);
	free_saving(&saving);
	reef_space_close(saving.space);
	return rc;
}
