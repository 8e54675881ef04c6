/* rename.c - another name for a file, in its folder or in another.
 *
 *   intent   a block with both names (layout.h, 10)
 *   ticket   if the former file is to be held: its entry (layout.h, 13)
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

static size_t intent_size(uint64_t magic)
{
	return magic == FILE_INTENT_MAGIC_1
		       ? offsetof(struct file_intent, ticket)
		       : sizeof(struct file_intent);
}

static uint32_t crc_of(const struct file_intent *intent)
{
	struct file_intent copy = *intent;

	copy.crc = 0;
	return reef_crc32c(0, &copy, intent_size(copy.magic));
}

static int make_intent(struct reef_files *files, const struct file_place *from,
		       const struct file_place *to, uint64_t ticket,
		       uint64_t *at)
{
	struct file_intent intent = {
		.magic = FILE_INTENT_MAGIC,
		.from_folder = from->folder,
		.to_folder = to->folder,
		.ticket = ticket,
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

/* The ticket is the last: until the rename is at its end, its entry is wanted
 * though it counts for nothing. */
static int finish_names(struct reef_files *files,
			const struct file_intent *intent)
{
	const struct file_place from = {intent->from_folder, intent->from},
				to = {intent->to_folder, intent->to};
	char name[FILE_TICKET_SIZE];
	struct file_place held;
	int rc = finish_name(files, &to);

	if (!rc)
		rc = finish_name(files, &from);
	if (rc || intent->magic == FILE_INTENT_MAGIC_1 || !intent->ticket)
		return rc;
	held = file_ticket_place(name, intent->ticket);
	return finish_name(files, &held);
}

int file_finish_intent(struct reef_space *space,
		       const struct file_intent *intent)
{
	struct reef *reef = reef_space_handle(space);
	struct reef_files files;
	int rc;

	if ((intent->magic != FILE_INTENT_MAGIC &&
	     intent->magic != FILE_INTENT_MAGIC_1) ||
	    intent->crc != crc_of(intent))
		return 0;
	rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_enter(reef);
	rc = finish_names(&files, intent);
	reef_leave(reef);
	file_close_directory(&files);
	return rc;
}

/* --- rename --- */

struct move {
	struct reef_files *files;
	const struct file_place *from, *to;
	struct file_binding source, target;
	struct file_entry entry; /* of the new name */
	struct file_binding now; /* that, when it is there */
	/* Of the former file's ticket; 0: it is not held. */
	uint64_t ticket;
	struct file_binding held;
	/* Something is in the directory, or may be, by which another may bring
	 * the rename to its end: the intent stays. */
	bool is_open;
};

static bool is_doubt(int rc)
{
	return rc == -REEF_EINDOUBT || rc == -ETIMEDOUT;
}

static void prepare(struct move *move, bool holds)
{
	struct reef *reef = reef_space_handle(move->files->space);
	bool twice = REEF_MUTATED(FILE_RENAME_TWICE);

	move->entry = (struct file_entry){
		.inode = move->source.inode,
		.link = twice ? move->source.link
			      : file_new_links(reef, holds ? 2 : 1),
		.from = twice ? 0 : move->source.link,
		.former = move->target.inode,
		.former_link = move->target.inode ? move->target.link : 0,
	};
	if (!holds || !move->target.inode)
		return;
	move->ticket = file_ticket_of(move->entry.link);
	move->entry.former |= FILE_FORMER_HELD;
}

/* Give the former file's ticket an entry, which counts for nothing yet. */
static int put_ticket(struct move *move)
{
	const struct file_entry entry = {.inode = move->target.inode,
					 .link = move->ticket};
	const struct file_binding none = {0};
	char name[FILE_TICKET_SIZE];
	struct file_place place;
	int rc;

	if (!move->ticket)
		return 0;
	place = file_ticket_place(name, move->ticket);
	rc = file_bind(move->files, &place, &none, &entry, &move->held.version);
	move->held.has_entry = !rc;
	move->is_open = is_doubt(rc);
	if (!rc && REEF_MUTATED(FILE_HELD_FIRST))
		(void)file_end_former(move->files->space, &move->entry);
	return rc;
}

static void drop_ticket(const struct move *move)
{
	char name[FILE_TICKET_SIZE];
	struct file_place place;

	if (!move->ticket || REEF_MUTATED(FILE_TICKET_LEFT))
		return;
	place = file_ticket_place(name, move->ticket);
	file_drop_entry(move->files, &place, &move->held);
}

/* The renamed file has yet another link. If the former one has the ticket, the
 * rename has happened by another's help; else as rc says. */
static int has_held(const struct move *move, int rc)
{
	struct reef *reef = reef_space_handle(move->files->space);
	struct file_head head;
	int read;

	if (!move->ticket || REEF_MUTATED(FILE_HELP_UNSEEN))
		return rc;
	read = file_read_inode(reef, move->target.inode, &head);
	if (read == 1 && head.link == move->ticket)
		return 1;
	return read < 0 && read != -REEF_ELOST ? -REEF_EINDOUBT : rc;
}

/* Give the file the new name. */
static int move_link(struct move *move)
{
	struct reef *reef = reef_space_handle(move->files->space);
	const struct file_entry *entry = &move->entry;
	struct file_binding *now = &move->now;
	uint64_t before;
	int rc = file_bind(move->files, move->to, &move->target, entry,
			   &now->version);

	now->has_entry = !rc;
	/* With the entry there, whoever meets it brings the rename to its end;
	 * so this call does, too. */
	if (rc == -REEF_EINDOUBT &&
	    !file_look_up(move->files, move->to, false, now) &&
	    !memcmp(&now->entry, entry, sizeof(*entry)))
		rc = 0;
	move->is_open = !rc || is_doubt(rc);
	if (rc || !entry->from)
		return rc;
	rc = file_check_gate(move->files, &move->to->folder);
	if (rc == -ENOENT || rc == -ENOTDIR) {
		file_drop_entry(move->files, move->to, now);
		move->is_open = false;
	}
	if (rc)
		return rc;
	rc = index_cas(reef, entry->inode + offsetof(struct file_head, link),
		       entry->from, entry->link, &before);
	/* Another may have helped. */
	if (rc == 0 && before == entry->link)
		rc = 1;
	if (rc == 0 || rc == -REEF_EINDOUBT)
		rc = has_held(move, rc);
	/* The source is no more what it was: the entry counts for nothing, and
	 * `to` is still whose it was. */
	if (rc == 0)
		move->is_open = false;
	return rc == 1 ? 0 : rc ? rc : -EAGAIN;
}

/* What may take the place of what. 1: an empty folder is to go first. */
static int check_types(const struct move *move, uint32_t flags)
{
	const struct file_binding *source = &move->source,
				  *target = &move->target;
	bool is_folder = source->head.flags & FILE_IS_FOLDER;

	if (is_folder && move->from->folder.number != move->to->folder.number)
		return -EXDEV;
	if (!target->inode)
		return 0;
	if (flags & REEF_FILE_NOREPLACE)
		return -EEXIST;
	if (!(target->head.flags & FILE_IS_FOLDER))
		return is_folder ? -ENOTDIR : 0;
	return is_folder ? 1 : -EISDIR;
}

/* The rename has happened: the old entry and the former file go. A file that
 * may be held, or not, has no ticket that anybody could use. */
static int end_move(struct move *move, struct file_held *held)
{
	int rc;

	file_drop_entry(move->files, move->from, &move->source);
	rc = file_end_former(move->files->space, &move->entry);
	move->is_open = rc < 0;
	if (rc == 1 && held)
		*held = (struct file_held){
			move->ticket,
			{move->target.inode, move->target.head.id}};
	else if (!rc)
		drop_ticket(move);
	return rc < 0 && move->ticket ? rc : 0;
}

static int do_move(struct move *move, struct file_held *held)
{
	struct reef_space *space = move->files->space;
	uint64_t intent;
	int rc;

	prepare(move, held != NULL);
	rc = make_intent(move->files, move->from, move->to, move->ticket,
			 &intent);
	if (rc)
		return rc;
	rc = put_ticket(move);
	if (!rc)
		rc = move_link(move);
	if (!rc)
		rc = end_move(move, held);
	else if (!move->is_open)
		drop_ticket(move);
	/* What another may bring to its end is_live does. */
	if (!move->is_open)
		(void)reef_free(space, intent, 0);
	return rc;
}

static int rename_once(struct reef_files *files, const struct file_place *from,
		       const struct file_place *to, uint32_t flags,
		       struct file_held *held)
{
	struct reef *reef = reef_space_handle(files->space);
	struct move move = {.files = files, .from = from, .to = to};
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, from, true, &move.source);
	if (!rc && !move.source.inode)
		rc = -ENOENT;
	if (!rc)
		rc = file_look_up(files, to, true, &move.target);
	if (rc == -REEF_ELOST && move.source.inode &&
	    !(flags & REEF_FILE_NOREPLACE))
		rc = file_give_up_lost(files, &move.target);
	if (!rc)
		rc = check_types(&move, flags);
	if (rc == 1) {
		rc = file_remove_folder(files, to, &move.target);
		rc = rc ? rc : -EAGAIN;
	} else if (!rc) {
		rc = do_move(&move, held);
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
		const struct file_place *to, uint32_t flags,
		struct file_held *held)
{
	struct reef_patience patience = {0};
	uint32_t attempt = 0;
	int rc;

	if (held)
		*held = (struct file_held){0};
	if (from->folder.number == to->folder.number &&
	    !strcmp(from->name, to->name))
		return look_once(files, from);
	do
		rc = rename_once(files, from, to, flags, held);
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
			 &(const struct file_place){.name = to}, flags, NULL);
	file_close_directory(&files);
	return rc;
}
