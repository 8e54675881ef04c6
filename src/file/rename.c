/* rename.c - another name for a file, in its folder or in another.
 *
 *   intent   a block with both names (layout.h, 10)
 *   entry    {inode, new link, old link, former} under the new name
 *   gate     of the new name's folder (layout.h, 9)
 *   link     CAS the inode's from old to new: now
 *   after    the former file and the old entry go; then the intent */
#include "file/internal.h"

#include "base/checksum.h"
#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- intents --- */

static uint32_t crc_of(const struct file_intent *intent)
{
	struct file_intent copy = *intent;

	copy.crc = 0;
	return reef_crc32c(0, &copy, sizeof(copy));
}

static int make_intent(struct reef_files *files, const struct file_place *from,
		       const struct file_place *to, uint64_t *at)
{
	struct file_intent intent = {
		.magic = FILE_INTENT_MAGIC,
		.from_folder = from->folder,
		.to_folder = to->folder,
	};
	struct reef_access write = {
		.kind = REEF_WRITE, .local = &intent, .length = sizeof(intent)};
	int rc = reef_alloc_kind(files->space, REEF_BLOCK_FILE_INTENT,
				 sizeof(intent), at);

	if (rc)
		return rc;
	snprintf(intent.from, sizeof(intent.from), "%s", from->name);
	snprintf(intent.to, sizeof(intent.to), "%s", to->name);
	intent.crc = crc_of(&intent);
	write.address = *at;
	rc = file_write_unshared(reef_space_handle(files->space), &write, 1);
	if (rc)
		reef_free(files->space, *at, 0);
	return rc;
}

/* Look at a name so that what is under way with it comes to its end. */
static int finish_name(struct reef_files *files, const struct file_place *place)
{
	struct file_binding binding;
	int rc = file_look_up(files, place, true, &binding);

	if (!rc && !binding.inode)
		file_drop_entry(files, place, &binding);
	return rc == -ENOENT || rc == -REEF_ELOST ? 0 : rc;
}

int file_finish_intent(struct reef_space *space,
		       const struct file_intent *intent)
{
	struct reef *reef = reef_space_handle(space);
	const struct file_place from = {intent->from_folder, intent->from},
				to = {intent->to_folder, intent->to};
	struct reef_files files;
	int rc;

	if (intent->magic != FILE_INTENT_MAGIC || intent->crc != crc_of(intent))
		return 0;
	rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_enter(reef);
	rc = finish_name(&files, &to);
	if (!rc)
		rc = finish_name(&files, &from);
	reef_leave(reef);
	file_close_directory(&files);
	return rc;
}

/* --- rename --- */

/* Give the file of `source` the name `to`, whose binding is known. */
static int move_link(struct reef_files *files, const struct file_place *to,
		     const struct file_binding *source,
		     const struct file_binding *target)
{
	struct reef *reef = reef_space_handle(files->space);
	bool twice = REEF_MUTATED(FILE_RENAME_TWICE);
	const struct file_entry entry = {
		.inode = source->inode,
		.link = twice ? source->link : file_new_link(reef),
		.from = twice ? 0 : source->link,
		.former = target->inode,
		.former_link = target->inode ? target->link : 0,
	};
	struct file_binding now = {.has_entry = true};
	uint64_t before;
	int rc = file_bind(files, to, target, &entry, &now.version);

	/* With the entry there, whoever meets it brings the rename to its end;
	 * so this call does, too. */
	if (rc == -REEF_EINDOUBT && !file_look_up(files, to, false, &now) &&
	    !memcmp(&now.entry, &entry, sizeof(entry)))
		rc = 0;
	if (rc || twice)
		return rc;
	rc = file_check_gate(files, &to->folder);
	if (rc == -ENOENT)
		file_drop_entry(files, to, &now);
	if (rc)
		return rc;
	rc = index_cas(reef, entry.inode + offsetof(struct file_head, link),
		       entry.from, entry.link, &before);
	/* Another may have helped. */
	if (rc == 0 && before == entry.link)
		rc = 1;
	/* The source is no more what it was: the entry counts for nothing, and
	 * `to` is still whose it was. */
	return rc == 1 ? 0 : rc ? rc : -EAGAIN;
}

/* What may take the place of what. 1: an empty folder is to go first. */
static int check_types(const struct file_place *from,
		       const struct file_place *to,
		       const struct file_binding *source,
		       const struct file_binding *target, uint32_t flags)
{
	bool is_folder = source->head.flags & FILE_IS_FOLDER;

	if (is_folder && from->folder.number != to->folder.number)
		return -EXDEV;
	if (!target->inode)
		return 0;
	if (flags & REEF_FILE_NOREPLACE)
		return -EEXIST;
	if (!(target->head.flags & FILE_IS_FOLDER))
		return is_folder ? -ENOTDIR : 0;
	return is_folder ? 1 : -EISDIR;
}

static int move(struct reef_files *files, const struct file_place *from,
		const struct file_place *to, const struct file_binding *source,
		const struct file_binding *target)
{
	const struct file_entry former = {.former = target->inode,
					  .former_link = target->link};
	uint64_t intent;
	int rc = make_intent(files, from, to, &intent);

	if (rc)
		return rc;
	rc = move_link(files, to, source, target);
	if (!rc) {
		file_drop_entry(files, from, source);
		(void)file_destroy_former(files->space, &former);
	}
	/* What is in doubt is brought to its end by is_live. */
	if (rc != -REEF_EINDOUBT && rc != -ETIMEDOUT)
		(void)reef_free(files->space, intent, 0);
	return rc;
}

static int rename_once(struct reef_files *files, const struct file_place *from,
		       const struct file_place *to, uint32_t flags)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_binding source, target;
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, from, true, &source);
	if (!rc && !source.inode)
		rc = -ENOENT;
	if (!rc)
		rc = file_look_up(files, to, true, &target);
	if (!rc)
		rc = check_types(from, to, &source, &target, flags);
	if (rc == 1) {
		rc = file_remove_folder(files, to, &target);
		rc = rc ? rc : -EAGAIN;
	} else if (!rc) {
		rc = move(files, from, to, &source, &target);
	}
	reef_leave(reef);
	return rc;
}

/* A name of its own: is there such a file? */
static int look_once(struct reef_files *files, const struct file_place *place)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_binding binding;
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, place, false, &binding);
	reef_leave(reef);
	return rc ? rc : binding.inode ? 0 : -ENOENT;
}

int file_rename(struct reef_files *files, const struct file_place *from,
		const struct file_place *to, uint32_t flags)
{
	struct reef_patience patience = {0};
	uint32_t attempt = 0;
	int rc;

	if (from->folder.number == to->folder.number &&
	    !strcmp(from->name, to->name))
		return look_once(files, from);
	do
		rc = rename_once(files, from, to, flags);
	while ((rc == -EAGAIN && ++attempt < FILE_ATTEMPTS) ||
	       file_await_room(files->space, &patience, &rc));
	return rc == -EAGAIN ? -EBUSY : rc;
}

int reef_file_rename(struct reef_space *space, const char *from, const char *to,
		     uint32_t flags)
{
	struct reef_files files;
	int rc = file_check_name(from);

	if (!rc)
		rc = file_check_name(to);
	if (!rc && flags & ~REEF_FILE_NOREPLACE)
		rc = -EINVAL;
	if (!rc)
		rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc;
	rc = file_rename(&files, &(const struct file_place){.name = from},
			 &(const struct file_place){.name = to}, flags);
	file_close_directory(&files);
	return rc;
}
