/* saver.c - `reef saver`, which `reef up` and `reef broker` start beside
 * themselves with --save-every: images of all spaces, one of each, in a folder
 * of the pool's; and at a start what has lost memory goes back to its image.
 *
 * (1) One image of each space, written beside the one before, which it takes
 *     the place of when it is whole. Of spaces that are gone the last few
 *     images stay for a day: somebody may have dropped one in order to restore
 *     it. So the folder has an end.
 * (2) A space that has lost memory goes back as a whole, on all nodes at once,
 *     or stays as it is: nothing is put together of two moments. Either is
 *     said, by name. The image is checked before the space is dropped.
 * (3) A file NAME.back says that a space is being brought back: it is there,
 *     durably, before the space is dropped, and until a later image has taken
 *     the place of the one that it names. Who is killed in between does it
 *     again at the next start.
 * (4) An image is of one space: of that number, or the one that (3) has
 *     brought back. One of the same name that was dropped before is another
 *     space.
 * (5) What lost memory while the pool ran is not brought back: others may have
 *     gone on with what was left. A file NAME.lost says so, and its users
 *     decide. So it is when the saver is started again beside a broker that
 *     runs, which a file .started tells by the broker's epoch. Nor is anything
 *     dropped while a session is there that would keep the image from being
 *     restored.
 *
 *   start: (space has lost memory, and an image) --verify--> nobody uses it
 *     --> .back --> dropped --> restored --> ... --save--> .back is removed
 *
 * It is a process of its own for the same reason as the janitor. */
#include "base/clock.h"
#include "base/store/store.h"
#include "base/system/private.h"
#include "base/units.h"
#include "cmd/operate.h"
#include "cmd/serve/child.h"
#include "pool/client/client.h"
#include "pool/image.h"
#include "pool/operator.h"
#include "wire/states.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <reef/error.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
/* How long a start waits until those who used a space have ended. */
#define BACK_PATIENCE_NS (60 * SECOND)
#define BACK_PAUSE_NS (SECOND / 4)
/* Of spaces that are gone so many images stay, for so long. */
#define GONE_MAX 4u
#define GONE_NS (86400 * SECOND)
#define STARTED ".started"
#define STEM_SIZE 64 /* of a file's name, without its ending */
#define NAME_SIZE (STEM_SIZE + 16)

static const char usage[] =
	"usage: reef saver --folder DIR --every TIME [OPTIONS]\n\n"
	"Save all spaces of a pool every so often, as its owner. `reef up` and "
	"`reef broker`\nstart one by themselves, with --save-every.\n";

struct saved_space {
	uint32_t number;
	uint64_t lost;
	char *name;
	char stem[STEM_SIZE];
};

struct saver {
	const char *command;
	const struct reef_settings *settings;
	const char *folder;
	uint64_t every_ns;
	sigset_t signals;
	bool stopping;
	struct reef_store *store;
	struct saved_space *spaces;
	uint32_t count;
	uint64_t broker_epoch;
};

/* --- spaces --- */

/* What a space's files are called: its name as far as files can have it, and
 * a sum that tells it from others. */
static void fill_stem(char stem[STEM_SIZE], const char *name)
{
	uint64_t sum = UINT64_C(14695981039346656037);
	size_t used = 0, i;

	for (i = 0; name[i]; i++) {
		sum = (sum ^ (uint8_t)name[i]) * UINT64_C(1099511628211);
		if (used < 32)
			stem[used++] =
				strchr("abcdefghijklmnopqrstuvwxyz0123456789"
				       "ABCDEFGHIJKLMNOPQRSTUVWXYZ_",
				       name[i])
					? name[i]
					: '_';
	}
	snprintf(stem + used, STEM_SIZE - used, "-%016" PRIx64, sum);
}

static void forget_spaces(struct saver *saver)
{
	while (saver->count)
		free(saver->spaces[--saver->count].name);
	free(saver->spaces);
	saver->spaces = NULL;
}

/* Shared spaces whose memory is kept; what is revocable may go at any time. */
static int add_space(void *context, const struct reef_row *any)
{
	const struct reef_row_space *row = &any->space;
	struct saver *saver = context;
	struct saved_space *grown, *space;

	if (row->session || !row->name.size ||
	    row->keeping == REEF_KEEPING_REVOCABLE)
		return 0;
	grown = realloc(saver->spaces, (saver->count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	saver->spaces = grown;
	space = &grown[saver->count];
	*space = (struct saved_space){
		.number = row->number,
		.lost = row->lost,
		.name = strndup(row->name.bytes, row->name.size),
	};
	if (!space->name)
		return -ENOMEM;
	fill_stem(space->stem, space->name);
	saver->count++;
	return 0;
}

static int list_spaces(struct saver *saver)
{
	struct reef_answer answer;
	struct reef_operator *op;
	int rc = operate_connect_quietly(saver->settings, 0, &op);

	forget_spaces(saver);
	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (!rc) {
		saver->broker_epoch = answer.body.reply.status.broker_epoch;
		reef_answer_free(&answer);
		rc = reef_operator_list(op, REEF_ROW_SPACE, add_space, saver);
	}
	reef_operator_close(op);
	return rc;
}

static int drop_space(struct saver *saver, uint32_t number)
{
	struct reef_body body = {.ask.space_drop.space = number};
	struct reef_operator *op;
	int rc = operate_connect_quietly(saver->settings, 0, &op);

	if (rc)
		return rc;
	rc = reef_operator_call(op, REEF_POOL_SPACE_DROP, &body, NULL);
	reef_operator_close(op);
	return rc == -ENOENT ? 0 : rc;
}

/* Wait for so long, or until a signal comes. */
static void pause_for(struct saver *saver, uint64_t ns)
{
	const struct timespec pause = {.tv_sec = (time_t)(ns / SECOND),
				       .tv_nsec = (long)(ns % SECOND)};

	if (!saver->stopping)
		saver->stopping =
			sigtimedwait(&saver->signals, NULL, &pause) > 0;
}

/* --- going back --- */

static const char *file_name(char text[NAME_SIZE], const char *stem,
			     const char *ending)
{
	snprintf(text, NAME_SIZE, "%s.%s", stem, ending);
	return text;
}

/* "2026-11-16 17:20:05" of this machine's time. */
static const char *time_text(uint64_t unix_ns, char text[32])
{
	time_t seconds = (time_t)(unix_ns / SECOND);
	struct tm parts;

	if (!localtime_r(&seconds, &parts) ||
	    !strftime(text, 32, "%F %T", &parts))
		snprintf(text, 32, "before");
	return text;
}

/* Open the image of a space, if there is one (4), and check all of it. Caller
 * closes *out.  -ENOENT: there is none. */
static int open_image(struct saver *saver, const char *stem,
		      const struct saved_space *space, char name[256],
		      struct reef_image **out)
{
	const struct reef_image_about *about;
	struct reef_image *image;
	char file[NAME_SIZE];
	uint64_t back = 0;
	int rc = reef_image_marked(saver->store, file_name(file, stem, "back"),
				   &back);

	if (!rc)
		rc = reef_image_open(saver->store,
				     file_name(file, stem, "image"), &image);
	if (rc)
		return rc;
	about = reef_image_about(image);
	snprintf(name, 256, "%.*s", (int)about->name.size, about->name.bytes);
	if (about->number != back && (!space || space->number != about->space ||
				      strcmp(space->name, name) != 0))
		rc = -ENOENT;
	if (!rc)
		rc = reef_image_verify(image, NULL, NULL);
	if (rc)
		reef_image_close(image);
	else
		*out = image;
	return rc;
}

/* A session, or a later one in its slot, keeps an image from being restored; a
 * janitor does not. */
static int compare_session(void *image, const struct reef_row *row)
{
	const struct reef_image_about *about = reef_image_about(image);
	static const char janitor[] = "reef janitor";

	if (row->session.program.size == sizeof(janitor) - 1 &&
	    !memcmp(row->session.program.bytes, janitor, sizeof(janitor) - 1))
		return 0;
	for (uint32_t i = 0; i < about->sessions_count; i++)
		if (about->sessions[i] >> 16 == row->session.id >> 16)
			return -EBUSY;
	return 0;
}

/* Wait until nobody uses the space who did when it was saved.  -EBUSY: somebody
 * does for longer than we have patience. */
static int await_users(struct saver *saver, struct reef_image *image)
{
	uint64_t until_ns = reef_now_ns() + BACK_PATIENCE_NS;
	struct reef_operator *op;
	int rc;

	for (;;) {
		rc = operate_connect_quietly(saver->settings, 0, &op);
		if (!rc) {
			rc = reef_operator_list(op, REEF_ROW_SESSION,
						compare_session, image);
			reef_operator_close(op);
		}
		if (!rc || reef_now_ns() >= until_ns || saver->stopping)
			return rc;
		pause_for(saver, BACK_PAUSE_NS);
	}
}

static int restore_once(struct saver *saver, const char *path)
{
	struct reef *reef;
	int rc = operate_open_quietly(saver->settings, "reef saver", &reef);

	if (rc)
		return rc;
	rc = reef_space_restore(reef, path, NULL, NULL, NULL);
	reef_close(reef);
	return rc;
}

/* Restore the image, when nobody who used the space then is left, and nothing
 * of what was there before. */
static int restore_patiently(struct saver *saver, const char *stem)
{
	uint64_t until_ns = reef_now_ns() + BACK_PATIENCE_NS;
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), "%s/%s.image", saver->folder, stem);
	while ((rc = restore_once(saver, path)) && rc != -REEF_ECORRUPT &&
	       rc != -REEF_EVERSION && rc != -ENOENT && !saver->stopping &&
	       reef_now_ns() < until_ns)
		pause_for(saver, BACK_PAUSE_NS);
	return rc;
}

/* Bring one space back: (2), (3). space NULL: it was dropped for that already,
 * by a process before. */
static void bring_back(struct saver *saver, const char *stem,
		       const struct saved_space *space)
{
	char name[256] = "", file[NAME_SIZE], when[32];
	struct reef_image *image = NULL;
	uint64_t number = 0, unix_ns = 0;
	int rc = open_image(saver, stem, space, name, &image);

	if (rc == -ENOENT)
		return; /* that it has lost memory was said already */
	if (!rc) {
		number = reef_image_about(image)->number;
		unix_ns = reef_image_about(image)->unix_ns;
		rc = await_users(saver, image);
		reef_image_close(image);
	}
	if (!rc)
		rc = reef_image_mark(saver->store,
				     file_name(file, stem, "back"), number);
	if (!rc && space)
		rc = drop_space(saver, space->number);
	if (!rc)
		rc = restore_patiently(saver, stem);
	if (!rc)
		operate_say(saver->command,
			    "space %s went back, as a whole, to its image of "
			    "%s; what was changed since then is lost",
			    name, time_text(unix_ns, when));
	else
		operate_say(saver->command,
			    "space %s does not go back to its image %s/%s.image"
			    ": %s; `reef space restore` does it later",
			    space ? space->name : name, saver->folder, stem,
			    rc == -EBUSY
				    ? "a session that used it then, or one in "
				      "its place, is alive (`reef session "
				      "list`)"
				    : reef_error_text(rc));
}

static struct saved_space *find_stem(const struct saver *saver,
				     const char *stem, size_t size)
{
	for (uint32_t i = 0; i < saver->count; i++)
		if (strlen(saver->spaces[i].stem) == size &&
		    !memcmp(saver->spaces[i].stem, stem, size))
			return &saver->spaces[i];
	return NULL;
}

/* Those that a process before had dropped, and not restored yet. */
static void bring_back_dropped(struct saver *saver)
{
	DIR *folder = opendir(saver->folder);
	struct dirent *entry;
	char stem[STEM_SIZE];
	size_t size;

	while (folder && !saver->stopping && (entry = readdir(folder))) {
		size = strcspn(entry->d_name, ".");
		if (size >= STEM_SIZE ||
		    strcmp(entry->d_name + size, ".back") != 0 ||
		    find_stem(saver, entry->d_name, size))
			continue;
		memcpy(stem, entry->d_name, size);
		stem[size] = '\0';
		bring_back(saver, stem, NULL);
	}
	if (folder)
		closedir(folder);
}

/* True if (5). */
static bool is_left(struct saver *saver, const struct saved_space *space)
{
	char file[NAME_SIZE];
	uint64_t number = 0;

	return reef_image_marked(saver->store,
				 file_name(file, space->stem, "lost"),
				 &number) ||
	       number == space->number;
}

static void bring_all_back(struct saver *saver)
{
	uint64_t started = 0;
	int rc = list_spaces(saver);

	if (rc) {
		operate_failed(saver->command, "the spaces", rc);
		return;
	}
	if (reef_image_marked(saver->store, STARTED, &started))
		started = 0;
	for (uint32_t i = 0; started != saver->broker_epoch &&
			     i < saver->count && !saver->stopping;
	     i++)
		if (saver->spaces[i].lost && !is_left(saver, &saver->spaces[i]))
			bring_back(saver, saver->spaces[i].stem,
				   &saver->spaces[i]);
	bring_back_dropped(saver);
	if (!saver->stopping)
		rc = reef_image_mark(saver->store, STARTED,
				     saver->broker_epoch);
	if (rc)
		operate_failed(saver->command, saver->folder, rc);
}

/* --- saving --- */

static int end_when_told(void *context, uint64_t done, uint64_t all)
{
	struct saver *saver = context;

	pause_for(saver, 0);
	return saver->stopping ? -ECANCELED : 0;
}

static void save_space(struct saver *saver, const struct saved_space *space)
{
	const struct reef_image_options options = {.progress = end_when_told,
						   .context = saver};
	char path[PATH_MAX], file[NAME_SIZE];
	uint64_t number;
	struct reef *reef;
	int rc = operate_open_quietly(saver->settings, "reef saver", &reef);

	if (!rc) {
		snprintf(path, sizeof(path), "%s/%s.image", saver->folder,
			 space->stem);
		rc = reef_space_save(reef, space->name, path, &options, NULL);
		reef_close(reef);
	}
	if (!rc) /* (3) */
		rc = reef_image_unmark(saver->store,
				       file_name(file, space->stem, "back"),
				       &number);
	if (!rc)
		rc = reef_image_unmark(saver->store,
				       file_name(file, space->stem, "lost"),
				       &number);
	/* A space that was dropped meanwhile is none to be saved. */
	if (rc && rc != -ENOENT && !saver->stopping)
		operate_say(saver->command, "space %s was not saved: %s",
			    space->name, reef_error_text(rc));
}

/* A space has lost memory while it was used: (5). */
static void leave_space(struct saver *saver, const struct saved_space *space)
{
	char file[NAME_SIZE];

	if (is_left(saver, space))
		return;
	operate_say(saver->command,
		    "space %s has lost memory and is not saved any more; its "
		    "image %s/%s.image is of before",
		    space->name, saver->folder, space->stem);
	(void)reef_image_mark(saver->store,
			      file_name(file, space->stem, "lost"),
			      space->number);
}

/* What of spaces that are gone was found in the folder. */
struct gone {
	uint32_t images;
	uint64_t oldest_ns;   /* when it was written */
	char name[NAME_SIZE]; /* of the oldest image */
};

/* Look at a file: remove it if it is of no use, or count it. */
static void judge_file(struct saver *saver, int folder, const char *name,
		       struct gone *gone)
{
	size_t size = strcspn(name, ".");
	char stem[STEM_SIZE], file[NAME_SIZE];
	struct stat status;
	uint64_t back, at_ns;

	if (!size || size >= STEM_SIZE || strlen(name) >= NAME_SIZE ||
	    find_stem(saver, name, size))
		return;
	memcpy(stem, name, size);
	stem[size] = '\0';
	if (reef_image_marked(saver->store, file_name(file, stem, "back"),
			      &back) ||
	    back) /* (3) */
		return;
	if (strcmp(name + size, ".image") != 0) {
		unlinkat(folder, name, 0);
		return;
	}
	if (fstatat(folder, name, &status, 0))
		return;
	at_ns = (uint64_t)status.st_mtim.tv_sec * SECOND +
		(uint64_t)status.st_mtim.tv_nsec;
	if (!gone->images++ || at_ns < gone->oldest_ns) {
		gone->oldest_ns = at_ns;
		snprintf(gone->name, sizeof(gone->name), "%s", name);
	}
}

/* Remove what belongs to no space any more: the oldest image at once if there
 * are too many (1), or if its time is over. */
static void clear_folder(struct saver *saver)
{
	uint64_t now_ns = reef_wall_ns();
	struct dirent *entry;
	struct gone gone;
	DIR *folder;

	do {
		gone = (struct gone){0};
		folder = opendir(saver->folder);
		while (folder && (entry = readdir(folder)))
			judge_file(saver, dirfd(folder), entry->d_name, &gone);
		if (folder)
			closedir(folder);
		if (gone.images <= GONE_MAX &&
		    (!gone.images || now_ns < gone.oldest_ns + GONE_NS))
			return;
	} while (!reef_store_remove(saver->store, gone.name));
}

static void save_all(struct saver *saver)
{
	int rc = list_spaces(saver);

	if (rc) {
		operate_say(saver->command, "the spaces were not saved: %s",
			    reef_error_text(rc));
		return;
	}
	clear_folder(saver);
	for (uint32_t i = 0; i < saver->count && !saver->stopping; i++)
		if (!saver->spaces[i].lost)
			save_space(saver, &saver->spaces[i]);
		else
			leave_space(saver, &saver->spaces[i]);
}

static void run_saver(struct saver *saver, const char *ready_fd)
{
	uint64_t began_ns, took_ns;

	bring_all_back(saver);
	if (ready_fd)
		child_tell_ready(ready_fd, "ready");
	pause_for(saver, saver->every_ns);
	while (!saver->stopping) {
		began_ns = reef_now_ns();
		save_all(saver);
		took_ns = reef_now_ns() - began_ns;
		pause_for(saver, took_ns < saver->every_ns
					 ? saver->every_ns - took_ns
					 : 1);
	}
	forget_spaces(saver);
}

int cmd_saver(int argc, char **argv)
{
	const char *ready_fd = NULL, *folder = NULL, *every = NULL;
	const struct reef_config_flag flags[] = {
		{"ready-fd", "N", "write a line there once it is open", NULL,
		 &ready_fd},
		{"folder", "DIR", "where the images are", NULL, &folder},
		{"every", "TIME", "how often they are made", NULL, &every},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct saver saver = {.command = argv[0]};
	struct reef_settings settings;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (!folder || !every || reef_duration_parse(every, &saver.every_ns) ||
	    !saver.every_ns)
		return cmd_usage_error(argv[0], "--folder and --every, please");
	child_block_signals(&saver.signals);
	reef_client_set_servant();
	saver.settings = &settings;
	saver.folder = folder;
	rc = reef_private_directory(folder);
	if (!rc)
		rc = reef_store_open_directory(folder, &saver.store);
	if (rc)
		rc = operate_failed(argv[0], folder, rc);
	else
		run_saver(&saver, ready_fd);
	reef_store_destroy(saver.store);
	reef_settings_fini(&settings);
	return rc;
}
