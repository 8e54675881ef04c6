/* folder.c - folders, attributes, and files without a name.
 *
 * A folder's gate:
 *
 *   open --file_remove_folder--> CLOSING --nothing is in it--> GONE
 *     ^                             |
 *     +--something is in it; or file_check_gate: an entry was put there--+ */
#include "file/internal.h"

#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int reef_files_open(struct reef_space *space, struct reef_files **out)
{
	struct reef_files *files = malloc(sizeof(*files));
	int rc = files ? file_open_directory(space, 0, files) : -ENOMEM;

	if (rc) {
		free(files);
		return rc;
	}
	*out = files;
	return 0;
}

void reef_files_close(struct reef_files *files)
{
	if (files)
		file_close_directory(files);
	free(files);
}

/* At first they are opened anew, which makes a tree whose root is lost; if some
 * other part of it is, that does not help, and it is dropped. Whoever else has
 * it open comes here, too. */
int reef_files_renew(struct reef_space *space, struct reef_files **files)
{
	bool is_second = *files && (*files)->is_second;
	struct reef_files *anew;
	int rc = 0;

	if (*files && !(*files)->is_lost)
		return 0;
	anew = malloc(sizeof(*anew));
	if (!anew)
		return -ENOMEM;
	if (is_second)
		rc = reef_tree_drop(space, FILE_DIRECTORY);
	if (!rc || rc == -ENOENT)
		rc = file_open_directory(space, REEF_TREE_RENEW, anew);
	if (rc) {
		free(anew);
		return rc;
	}
	anew->is_second = !is_second;
	reef_files_close(*files);
	*files = anew;
	return 1;
}

static struct file_place place_of(struct reef_file_id folder, const char *name)
{
	return (struct file_place){{folder.at, folder.number}, name};
}

/* --- about --- */

struct seen {
	struct file_head head;
	struct file_attributes attributes;
};

/* Read a file's head and attributes. 0: it is none (any more). */
static int read_seen(struct reef *reef, uint64_t at, struct seen *seen)
{
	int rc = reef_read(reef, at, seen, sizeof(*seen));

	if (rc)
		return index_is_nonsense(rc) ? 0 : rc;
	return file_is_head(&seen->head) && seen->head.link;
}

static void fill_about(uint64_t at, const struct seen *seen,
		       struct reef_file_about *out)
{
	bool is_folder = seen->head.flags & FILE_IS_FOLDER;

	*out = (struct reef_file_about){
		.id = {at, seen->head.id},
		.type = is_folder			  ? REEF_FILE_FOLDER
			: seen->head.flags & FILE_IS_LINK ? REEF_FILE_LINK
							  : REEF_FILE_REGULAR,
		.mode = (uint32_t)seen->attributes.mode & 07777,
		.user = (uint32_t)(seen->attributes.owner >> 32),
		.group = (uint32_t)seen->attributes.owner,
		.changed_ns = seen->attributes.changed_ns,
		.size = is_folder ? 0 : file_size_of(seen->head.size),
		.chunk = seen->head.chunk,
	};
}

int reef_files_about(struct reef_files *files, struct reef_file_id id,
		     struct reef_file_about *out)
{
	struct reef *reef = reef_space_handle(files->space);
	struct seen seen;
	int rc;

	if (!id.at) {
		*out = (struct reef_file_about){
			.id = id, .type = REEF_FILE_FOLDER, .mode = 0755};
		return 0;
	}
	reef_enter(reef);
	rc = read_seen(reef, id.at, &seen);
	reef_leave(reef);
	if (rc < 0)
		return rc;
	if (!rc || seen.head.id != id.number ||
	    (seen.head.flags & FILE_IS_FOLDER && seen.head.size & FOLDER_GONE))
		return -ENOENT;
	fill_about(id.at, &seen, out);
	return 0;
}

/* Tell about the file of a name. -EAGAIN: it is gone since it was found, and
 * the name may be another's. Inside reef_enter. */
static int look(struct reef_files *files, const struct file_place *place,
		struct reef_file_about *out)
{
	struct file_binding binding;
	struct seen seen;
	int rc = file_look_up(files, place, false, &binding);

	if (rc)
		return rc;
	if (!binding.inode)
		return -ENOENT;
	rc = read_seen(reef_space_handle(files->space), binding.inode, &seen);
	if (rc < 0)
		return rc;
	if (!rc || seen.head.id != binding.head.id)
		return -EAGAIN;
	fill_about(binding.inode, &seen, out);
	return 0;
}

int reef_files_look(struct reef_files *files, struct reef_file_id folder,
		    const char *name, struct reef_file_about *out)
{
	struct reef *reef = reef_space_handle(files->space);
	const struct file_place place = place_of(folder, name);
	uint32_t attempt = 0;
	int rc = file_check_name(name);

	if (rc)
		return rc;
	do {
		reef_enter(reef);
		rc = look(files, &place, out);
		reef_leave(reef);
	} while (rc == -EAGAIN && ++attempt < FILE_ATTEMPTS);
	return rc == -EAGAIN ? -EBUSY : rc;
}

int reef_files_set(struct reef_files *files, struct reef_file_id id,
		   uint32_t flags, const struct reef_file_about *about)
{
	struct reef *reef = reef_space_handle(files->space);
	uint64_t at = id.at + offsetof(struct file_inode, attributes);
	uint64_t mode = about->mode & 07777,
		 owner = (uint64_t)about->user << 32 | about->group,
		 changed_ns = about->changed_ns;
	struct {
		uint32_t flag;
		size_t offset;
		uint64_t *value;
	} const words[] = {
		{REEF_FILES_MODE, offsetof(struct file_attributes, mode),
		 &mode},
		{REEF_FILES_OWNER, offsetof(struct file_attributes, owner),
		 &owner},
		{REEF_FILES_CHANGED,
		 offsetof(struct file_attributes, changed_ns), &changed_ns},
	};
	struct reef_access accesses[3];
	struct file_head head;
	uint32_t count = 0;
	int rc;

	if (!id.at)
		return -EPERM;
	for (uint32_t i = 0; i < 3; i++)
		if (flags & words[i].flag)
			accesses[count++] = (struct reef_access){
				.kind = REEF_WRITE,
				.address = at + words[i].offset,
				.local = words[i].value,
				.length = 8,
			};
	/* As long as this call is inside, the inode is nothing else. */
	reef_enter(reef);
	rc = file_read_inode(reef, id.at, &head);
	if (rc >= 0)
		rc = rc && head.id == id.number && head.link ? 0 : -ENOENT;
	if (!rc && count)
		rc = file_write_unshared(reef, accesses, count);
	reef_leave(reef);
	return rc;
}

/* --- make, open, delete, rename --- */

int reef_files_make(struct reef_files *files, struct reef_file_id folder,
		    const char *name, const struct reef_file_about *about,
		    struct reef_file_about *out)
{
	static const uint32_t flags[] = {0, FILE_IS_FOLDER, FILE_IS_LINK};
	const struct file_place place = place_of(folder, name);
	struct file_wish wish = {
		.chunk = about->chunk,
		.attributes = {.mode = about->mode & 07777,
			       .owner = (uint64_t)about->user << 32 |
					about->group,
			       .changed_ns = about->changed_ns},
	};
	struct file_binding binding;
	int rc = file_check_name(name);

	if (!rc && (about->type > REEF_FILE_LINK ||
		    (about->chunk && !file_is_chunk_size(about->chunk))))
		rc = -EINVAL;
	if (rc)
		return rc;
	wish.flags = flags[about->type];
	rc = file_make(files, &place, &wish, &binding);
	if (rc)
		return rc;
	*out = *about;
	out->id = (struct reef_file_id){binding.inode, binding.head.id};
	out->size = 0;
	return 0;
}

int reef_files_open_file(struct reef_files *files, struct reef_file_id id,
			 struct reef_file **out)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_head head;
	struct reef_file *file;
	int rc;

	if (!id.at)
		return -EISDIR;
	reef_enter(reef);
	rc = file_read_inode(reef, id.at, &head);
	reef_leave(reef);
	if (rc < 0)
		return rc;
	if (!rc || head.id != id.number || !head.link)
		return -ENOENT;
	if (head.flags & FILE_IS_FOLDER)
		return -EISDIR;
	file = malloc(sizeof(*file));
	rc = file ? file_init(file, files->space, id.at, &head) : -ENOMEM;
	if (rc) {
		free(file);
		return rc;
	}
	*out = file;
	return 0;
}

int reef_files_delete(struct reef_files *files, struct reef_file_id folder,
		      const char *name)
{
	const struct file_place place = place_of(folder, name);
	int rc = file_check_name(name);

	return rc ? rc : file_delete(files, &place);
}

int reef_files_rename(struct reef_files *files, struct reef_file_id from_folder,
		      const char *from, struct reef_file_id to_folder,
		      const char *to, uint32_t flags)
{
	const struct file_place source = place_of(from_folder, from),
				target = place_of(to_folder, to);
	int rc = file_check_name(from);

	if (!rc)
		rc = file_check_name(to);
	if (!rc && flags & ~REEF_FILE_NOREPLACE)
		rc = -EINVAL;
	return rc ? rc : file_rename(files, &source, &target, flags, NULL);
}

int reef_files_replace(struct reef_files *files,
		       struct reef_file_id from_folder, const char *from,
		       struct reef_file_id to_folder, const char *to,
		       uint64_t *ticket, struct reef_file_id *former)
{
	const struct file_place source = place_of(from_folder, from),
				target = place_of(to_folder, to);
	struct file_held held;
	int rc = file_check_name(from);

	if (!rc)
		rc = file_check_name(to);
	if (!rc)
		rc = file_rename(files, &source, &target, 0, &held);
	if (rc)
		return rc;
	*ticket = held.ticket;
	*former = (struct reef_file_id){held.id.at, held.id.number};
	return 0;
}

/* --- the end of a folder --- */

/* Look for names in a folder whose gate is CLOSING. -ENOTEMPTY. */
static int check_empty(struct reef_files *files,
		       const struct file_folder *folder)
{
	struct file_listing listing = {.prefix = ""};
	struct file_place place = {.folder = *folder};
	struct file_binding binding;
	int rc;

	/* What counts for nothing is dropped, so the next look finds less. */
	do {
		rc = file_list_names(files, folder, "", &listing);
		for (uint32_t i = 0; !rc && i < listing.count; i++) {
			place.name = listing.names[i];
			rc = file_look_up(files, &place, true, &binding);
			if (!rc && binding.inode)
				rc = -ENOTEMPTY;
			if (!rc)
				file_drop_entry(files, &place, &binding);
		}
	} while (!rc && listing.count);
	free(listing.names);
	return rc;
}

/* As if look_up had found it: helping a rename into the folder opens its gate
 * again, and then its CAS to GONE fails. */
static int close_gate(struct reef_files *files,
		      const struct file_folder *folder)
{
	struct reef *reef = reef_space_handle(files->space);
	uint64_t gate, closing, before;
	uint64_t at = folder->at + offsetof(struct file_head, size);
	int rc = reef_read(reef, at, &gate, 8), empty;

	if (rc)
		return rc;
	if (gate & FOLDER_GONE)
		return -ENOENT;
	closing = folder_gate_after(gate, FOLDER_CLOSING);
	rc = index_cas(reef, at, gate, closing, &before);
	if (rc != 1)
		return rc ? rc : -EAGAIN;
	empty = check_empty(files, folder);
	rc = index_cas(reef, at, closing,
		       folder_gate_after(closing, empty ? 0 : FOLDER_GONE),
		       &before);
	if (empty)
		return empty;
	return rc == 1 ? 0 : rc ? rc : -EAGAIN;
}

int file_remove_folder(struct reef_files *files, const struct file_place *place,
		       const struct file_binding *binding)
{
	const struct file_folder folder = {binding->inode, binding->head.id};
	int rc = close_gate(files, &folder);

	if (rc)
		return rc;
	/* It is gone; the rest is anybody's, too. */
	if (file_destroy(files->space, binding->inode, binding->link) == 1) {
		file_drop_entry(files, place, binding);
		(void)reef_free(files->space, binding->inode, REEF_FREE_LATER);
	}
	return 0;
}

static int remove_once(struct reef_files *files, const struct file_place *place)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_binding binding;
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, place, true, &binding);
	if (!rc && !binding.inode)
		rc = -ENOENT;
	else if (!rc && !(binding.head.flags & FILE_IS_FOLDER))
		rc = -ENOTDIR;
	if (!rc)
		rc = file_remove_folder(files, place, &binding);
	reef_leave(reef);
	return rc;
}

int reef_files_remove_folder(struct reef_files *files,
			     struct reef_file_id folder, const char *name)
{
	const struct file_place place = place_of(folder, name);
	uint32_t attempt = 0;
	int rc = file_check_name(name);

	if (rc)
		return rc;
	do
		rc = remove_once(files, &place);
	while (rc == -EAGAIN && ++attempt < FILE_ATTEMPTS);
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* --- list --- */

int reef_files_list(struct reef_files *files, struct reef_file_id folder,
		    const char *after,
		    int (*each)(void *context, const char *name,
				const struct reef_file_about *about),
		    void *context)
{
	const struct file_folder inside = {folder.at, folder.number};
	struct file_listing listing = {.prefix = ""};
	char last[REEF_FILE_NAME_MAX + 1] = "";
	struct reef_file_about about;
	int rc;

	if (after)
		snprintf(last, sizeof(last), "%s", after);
	do {
		rc = file_list_names(files, &inside, last, &listing);
		for (uint32_t i = 0; !rc && i < listing.count; i++) {
			memcpy(last, listing.names[i], sizeof(last));
			about = (struct reef_file_about){0};
			rc = reef_files_look(files, folder, last, &about);
			if (!rc || rc == -REEF_ELOST)
				rc = each(context, last, &about);
			else if (rc == -ENOENT)
				rc = 0;
		}
	} while (!rc && listing.count == listing.room);
	free(listing.names);
	return rc;
}

/* --- files without a name --- */

static const struct reef_file_id held = {0, FOLDER_HELD};

struct file_place file_ticket_place(char name[FILE_TICKET_SIZE],
				    uint64_t ticket)
{
	snprintf(name, FILE_TICKET_SIZE, "%016llx", (unsigned long long)ticket);
	return place_of(held, name);
}

int reef_files_hold(struct reef_files *files, struct reef_file_id folder,
		    const char *name, uint64_t *ticket)
{
	/* Its upper half is the session. */
	uint64_t number = file_new_link(reef_space_handle(files->space));
	const struct file_place from = place_of(folder, name);
	char as[FILE_TICKET_SIZE];
	const struct file_place to = file_ticket_place(as, number);
	int rc = file_check_name(name);

	if (rc)
		return rc;
	rc = file_rename(files, &from, &to, 0, NULL);
	if (!rc)
		*ticket = number;
	return rc == -EXDEV ? -EISDIR : rc;
}

int reef_files_let_go(struct reef_files *files, uint64_t ticket)
{
	char name[FILE_TICKET_SIZE];
	const struct file_place place = file_ticket_place(name, ticket);

	return file_delete(files, &place);
}

static int sweep_one(void *context, const char *name,
		     const struct reef_file_about *about)
{
	struct reef_files *files = context;
	enum reef_session_view view;
	uint64_t ticket = strtoull(name, NULL, 16);
	int rc = reef_session_check(reef_space_handle(files->space),
				    (uint32_t)(ticket >> 32), &view);

	if (rc || view != REEF_VIEW_ENDED)
		return rc;
	rc = reef_files_delete(files, held, name);
	return rc == -ENOENT ? 0 : rc;
}

int reef_files_sweep(struct reef_files *files)
{
	return reef_files_list(files, held, NULL, sweep_one, files);
}
