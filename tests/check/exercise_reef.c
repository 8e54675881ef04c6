/* exercise_reef.c - files of the library, for an exercise. */
#include "check/exercise_reef.h"

#include <errno.h>
#include <stdio.h>

static const struct reef_file_id root;

/* A name, in its folder. */
struct named {
	struct reef_file_id folder;
	char text[64];
};

static int open_files(struct exercise_reef *reef)
{
	return reef->files ? 0 : reef_files_open(reef->space, &reef->files);
}

static void name_folder(const struct exercise_reef *reef, uint32_t folder,
			char text[64])
{
	char path[32];

	exercise_folder_path(folder, path);
	snprintf(text, 64, "%s%s", reef->prefix ? reef->prefix : "", path);
}

/* Find the folder of a name. */
static int find_name(struct exercise_reef *reef, uint32_t name,
		     struct named *out)
{
	struct reef_file_about about;
	char path[32], text[64];
	int rc;

	exercise_path(name % EXERCISE_LEAVES, path);
	snprintf(out->text, sizeof(out->text), "%s%s",
		 reef->prefix ? reef->prefix : "", path);
	out->folder = root;
	if (name < EXERCISE_LEAVES)
		return 0;
	name_folder(reef, name / EXERCISE_LEAVES, text);
	rc = open_files(reef);
	if (!rc)
		rc = reef_files_look(reef->files, root, text, &about);
	if (!rc)
		out->folder = about.id;
	return rc;
}

static void forget(struct exercise_reef *reef, uint32_t name)
{
	reef_file_close(reef->open[name].file);
	reef->open[name].file = NULL;
	reef->open[name].id = 0;
}

void exercise_reef_close(struct exercise_reef *reef)
{
	for (uint32_t i = 0; i < EXERCISE_NAMES; i++)
		forget(reef, i);
	reef_files_close(reef->files);
	reef->files = NULL;
}

/* Open the file of a name, unless it is open. */
static int find(struct exercise_reef *reef, uint32_t name, uint64_t id,
		struct reef_file **out)
{
	struct reef_file_about about;
	struct named named;
	int rc;

	if (reef->open[name].id != id || !id)
		forget(reef, name);
	if (!reef->open[name].file) {
		rc = find_name(reef, name, &named);
		if (!rc && named.folder.at) {
			rc = reef_files_look(reef->files, named.folder,
					     named.text, &about);
			if (!rc)
				rc = reef_files_open_file(
					reef->files, about.id,
					&reef->open[name].file);
		} else if (!rc) {
			rc = reef_file_open(reef->space, named.text, NULL,
					    &reef->open[name].file);
		}
		if (rc)
			return rc;
		reef->open[name].id = id;
	}
	*out = reef->open[name].file;
	return 0;
}

static ssize_t reef_face_read(void *context, uint32_t name, uint64_t id,
			      void *to, size_t size, uint64_t at)
{
	struct reef_file *file;
	int rc = find(context, name, id, &file);

	return rc ? rc : reef_file_pread(file, to, size, at);
}

/* A write that ended in the middle is in doubt. */
static ssize_t reef_face_write(void *context, uint32_t name, uint64_t id,
			       const void *from, size_t size, uint64_t at)
{
	struct reef_file *file;
	ssize_t rc = find(context, name, id, &file);

	if (!rc)
		rc = reef_file_pwrite(file, from, size, at);
	return rc >= 0 && (size_t)rc != size ? -REEF_EINDOUBT : rc;
}

static ssize_t reef_face_append(void *context, uint32_t name, uint64_t id,
				const void *from, size_t size, uint64_t *at)
{
	struct reef_file *file;
	ssize_t rc = find(context, name, id, &file);

	if (!rc)
		rc = reef_file_append(file, from, size, at);
	return rc >= 0 && (size_t)rc != size ? -REEF_EINDOUBT : rc;
}

static int reef_face_truncate(void *context, uint32_t name, uint64_t id,
			      uint64_t size)
{
	struct reef_file *file;
	int rc = find(context, name, id, &file);

	return rc ? rc : reef_file_truncate(file, size);
}

static int reef_face_punch(void *context, uint32_t name, uint64_t id,
			   uint64_t at, uint64_t size)
{
	struct reef_file *file;
	int rc = find(context, name, id, &file);

	return rc ? rc : reef_file_punch(file, at, size);
}

static int reef_face_size(void *context, uint32_t name, uint64_t id,
			  uint64_t *size)
{
	struct reef_file_info info;
	struct reef_file *file;
	int rc = find(context, name, id, &file);

	if (!rc)
		rc = reef_file_stat(file, &info);
	if (!rc)
		*size = info.size;
	/* It was open, and is deleted now. */
	if (rc == -REEF_EDROPPED) {
		forget(context, name);
		rc = -ENOENT;
	}
	return rc;
}

/* Make a file in a folder, and open it. */
static int make_inside(struct exercise_reef *reef, const struct named *named,
		       struct reef_file **out)
{
	const struct reef_file_about wish = {.mode = 0600,
					     .chunk = reef->chunk};
	struct reef_file_about made;
	int rc = reef_files_make(reef->files, named->folder, named->text, &wish,
				 &made);

	return rc ? rc : reef_files_open_file(reef->files, made.id, out);
}

static int reef_face_create(void *context, uint32_t name, uint64_t id)
{
	struct exercise_reef *reef = context;
	const struct reef_file_options options = {
		.flags = REEF_FILE_CREATE | REEF_FILE_EXCLUSIVE,
		.chunk = reef->chunk,
	};
	struct reef_file *file;
	struct named named;
	int rc = find_name(reef, name, &named);

	if (!rc && named.folder.at)
		rc = make_inside(reef, &named, &file);
	else if (!rc)
		rc = reef_file_open(reef->space, named.text, &options, &file);
	if (rc)
		return rc;
	forget(reef, name);
	reef->open[name].file = file;
	reef->open[name].id = id;
	return 0;
}

static int reef_face_rename(void *context, uint32_t from, uint32_t to)
{
	struct exercise_reef *reef = context;
	struct named old, new;
	int rc = find_name(reef, from, &old);

	if (!rc)
		rc = find_name(reef, to, &new);
	if (!rc && (old.folder.at || new.folder.at))
		rc = reef_files_rename(reef->files, old.folder, old.text,
				       new.folder, new.text, 0);
	else if (!rc)
		rc = reef_file_rename(reef->space, old.text, new.text, 0);
	if (rc || from == to)
		return rc;
	/* What is open stays so, under its new name. */
	forget(reef, to);
	reef->open[to] = reef->open[from];
	reef->open[from].file = NULL;
	return 0;
}

static int reef_face_remove(void *context, uint32_t name)
{
	struct exercise_reef *reef = context;
	struct named named;
	int rc = find_name(reef, name, &named);

	forget(reef, name);
	if (!rc && named.folder.at)
		rc = reef_files_delete(reef->files, named.folder, named.text);
	else if (!rc)
		rc = reef_file_delete(reef->space, named.text);
	return rc;
}

static int reef_face_make_folder(void *context, uint32_t folder)
{
	const struct reef_file_about wish = {.type = REEF_FILE_FOLDER,
					     .mode = 0700};
	struct exercise_reef *reef = context;
	struct reef_file_about made;
	char text[64];
	int rc = open_files(reef);

	name_folder(reef, folder, text);
	return rc ? rc : reef_files_make(reef->files, root, text, &wish, &made);
}

static int reef_face_remove_folder(void *context, uint32_t folder)
{
	struct exercise_reef *reef = context;
	char text[64];
	int rc = open_files(reef);

	name_folder(reef, folder, text);
	return rc ? rc : reef_files_remove_folder(reef->files, root, text);
}

static enum exercise_verdict reef_face_judge(void *context, int rc)
{
	switch (rc) {
	case -REEF_EINDOUBT:
	case -ETIMEDOUT:
	case -REEF_ENOLINK:
	case -EBUSY:
		/* What is open may be another file's by now. */
		exercise_reef_close(context);
		return EXERCISE_DOUBT;
	case -REEF_EFENCED:
	case -REEF_EHOSTDEAD:
		return EXERCISE_GONE;
	default:
		return EXERCISE_WRONG;
	}
}

const struct exercise_face exercise_reef_face = {
	.read = reef_face_read,
	.write = reef_face_write,
	.append = reef_face_append,
	.truncate = reef_face_truncate,
	.punch = reef_face_punch,
	.size = reef_face_size,
	.create = reef_face_create,
	.rename = reef_face_rename,
	.remove = reef_face_remove,
	.make_folder = reef_face_make_folder,
	.remove_folder = reef_face_remove_folder,
	.judge = reef_face_judge,
};
