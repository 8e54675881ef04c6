/* desk.c - handles of the pool, and the files that each has open. */
#include "gateway/mount/internal.h"

#include "pool/client/client.h"

#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 16
#define TENDED_MAX 64u

static void close_desk(struct desk *desk)
{
	for (uint32_t i = 0; i < DESK_FILES; i++)
		reef_file_close(desk->open[i].file);
	reef_files_close(desk->files);
	reef_space_close(desk->space);
	reef_close(desk->reef);
	free(desk);
}

/* --- the space --- */

struct wanted {
	const char *name;
	struct reef_space_info *out;
};

static int find_space(void *context, const struct reef_space_info *info)
{
	const struct wanted *wanted = context;

	if (strcmp(info->name, wanted->name) != 0)
		return 0;
	*wanted->out = *info;
	return 1;
}

int desk_space(struct mount *mount, struct desk *desk,
	       struct reef_space_info *out)
{
	struct wanted wanted = {mount->options->space, out};
	int rc;

	*out = (struct reef_space_info){0};
	rc = reef_space_list(desk->reef, find_space, &wanted);
	return rc < 0 ? rc : 0;
}

/* Where a lender may take memory back, names that were in it are made anew: so
 * whoever failed can begin again. True if they were. */
static bool heal_names(struct mount *mount, struct desk *desk, int rc)
{
	struct reef_space_info info;

	if ((rc != -REEF_ELOST && rc != -REEF_EDROPPED) ||
	    desk_space(mount, desk, &info) || !info.revocable)
		return false;
	return reef_files_renew(desk->space, &desk->files) == 1;
}

/* --- handles --- */

static int open_desk(struct mount *mount, struct desk **out)
{
	const struct mount_options *options = mount->options;
	struct desk *desk = calloc(1, sizeof(*desk));
	int rc = desk ? options->open(options->context, &desk->reef) : -ENOMEM;

	if (!rc)
		rc = reef_space_open(desk->reef, options->space, NULL,
				     &desk->space);
	if (!rc)
		rc = reef_files_open(desk->space, &desk->files);
	if (rc && desk && desk->space && heal_names(mount, desk, rc))
		rc = 0;
	if (rc && desk)
		close_desk(desk);
	if (!rc)
		*out = desk;
	return rc;
}

/* The first of the idle ones; NULL: there is none. */
static struct desk *take_idle(struct mount *mount)
{
	struct desk *desk;

	pthread_mutex_lock(&mount->lock);
	desk = mount->idle;
	if (desk)
		mount->idle = desk->idle;
	pthread_mutex_unlock(&mount->lock);
	return desk;
}

static int take_desk(struct mount *mount, struct desk **out)
{
	struct desk *desk = take_idle(mount);

	if (!desk)
		return open_desk(mount, out);
	*out = desk;
	return 0;
}

static void give_desk(struct mount *mount, struct desk *desk)
{
	pthread_mutex_lock(&mount->lock);
	desk->idle = mount->idle;
	mount->idle = desk;
	pthread_mutex_unlock(&mount->lock);
}

/* Take the first of the idle ones, and put it behind all others. */
static struct desk *tend_one(struct mount *mount)
{
	struct desk *desk = take_idle(mount), **end;

	if (!desk)
		return NULL;
	reef_tend(desk->space);
	pthread_mutex_lock(&mount->lock);
	for (end = &mount->idle; *end; end = &(*end)->idle)
		;
	desk->idle = NULL;
	*end = desk;
	pthread_mutex_unlock(&mount->lock);
	return desk;
}

void desk_tend_idle(struct mount *mount)
{
	struct desk *first = tend_one(mount), *desk = first;

	for (uint32_t i = 0; desk && i < TENDED_MAX; i++) {
		pthread_mutex_lock(&mount->lock);
		desk = mount->idle;
		pthread_mutex_unlock(&mount->lock);
		if (desk == first)
			break;
		desk = tend_one(mount);
	}
}

void desk_close_idle(struct mount *mount)
{
	struct desk *desk, *next;

	pthread_mutex_lock(&mount->lock);
	desk = mount->idle;
	mount->idle = NULL;
	pthread_mutex_unlock(&mount->lock);
	for (; desk; desk = next) {
		next = desk->idle;
		close_desk(desk);
	}
}

/* A session that has ended is left behind, with all of its handles. What an
 * ended session left in doubt nobody settles: so changes are not done again. */
int desk_run(struct mount *mount, bool changes,
	     int (*run)(struct desk *desk, void *context), void *context)
{
	bool again = true;
	struct desk *desk;
	int rc = -EBUSY;

	for (int i = 0; rc && again && i < ATTEMPTS; i++) {
		rc = take_desk(mount, &desk);
		if (rc)
			return rc;
		rc = run(desk, context);
		if (rc == -REEF_EFENCED ||
		    (rc && reef_health(desk->reef) == -REEF_EFENCED)) {
			close_desk(desk);
			desk_close_idle(mount);
			again = !changes;
		} else {
			again = rc == -EBUSY ||
				(!changes && rc == -REEF_EINDOUBT) ||
				heal_names(mount, desk, rc);
			give_desk(mount, desk);
		}
	}
	return rc;
}

int desk_file(struct desk *desk, struct reef_file_id id, struct reef_file **out)
{
	struct reef_file *file;
	uint32_t i;
	int rc;

	if (id.at == LOST_AT)
		return -REEF_ELOST;
	for (i = 0; i < DESK_FILES; i++)
		if (desk->open[i].file && desk->open[i].id.at == id.at &&
		    desk->open[i].id.number == id.number) {
			*out = desk->open[i].file;
			return 0;
		}
	rc = reef_files_open_file(desk->files, id, &file);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	i = desk->next;
	desk->next = (desk->next + 1) % DESK_FILES;
	reef_file_close(desk->open[i].file);
	desk->open[i].file = file;
	desk->open[i].id = id;
	*out = file;
	return 0;
}

void desk_close_file(struct desk *desk, struct reef_file_id id)
{
	for (uint32_t i = 0; i < DESK_FILES; i++)
		if (desk->open[i].file && desk->open[i].id.at == id.at) {
			reef_file_close(desk->open[i].file);
			desk->open[i].file = NULL;
		}
}

int desk_errno(int rc)
{
	switch (rc) {
	case -REEF_EDROPPED:
		return ESTALE;
	case -EBUSY:
	case -ETIMEDOUT:
		return EIO;
	default:
		return -rc < 4096 ? -rc : EIO;
	}
}
