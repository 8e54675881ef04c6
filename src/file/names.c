/* names.c - the directory: which name is which file's.
 *
 *   create   insert {inode, link}; the inode has that link already
 *   delete   CAS the inode's link to 0; then the entry goes
 *   rename   put {inode, new link, old link, former} under the new name; CAS
 *            the inode's link from old to new: now; then the former file and
 *            the old entry go
 *
 * An entry that counts for nothing any more (layout.h, 2) is as good as none:
 * whoever wants its name replaces it.
 *
 * (1) Whoever changes the link of the file that an entry names, or the entry,
 *     has helped a rename under way to its end first, and has seen to it that
 *     the former file is gone: else it would come back. */
#include "file/internal.h"

#include "base/mutant.h"

#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a name is at a moment. */
struct binding {
	bool has_entry;
	uint64_t version;	 /* of the entry */
	struct file_entry entry; /* as it is in the directory */
	/* Whose name it is: one of the two in the entry; 0: nobody's. */
	uint64_t inode, link;
	struct file_head head; /* of that one */
};

/* The kinds are registered in this file, which every program with files has: a
 * linker leaves out a file of a library that nothing refers to. */
__attribute__((constructor)) static void register_kinds(void)
{
	file_kinds_register();
}

static int check_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	if (!size || strchr(name, '/'))
		return -EINVAL;
	return size > REEF_FILE_NAME_MAX ? -ENAMETOOLONG : 0;
}

static int open_directory(struct reef_space *space, bool make,
			  struct reef_map **out)
{
	const struct reef_map_options options = {
		.flags = make ? 0 : REEF_MAP_EXISTING,
		.key_max = REEF_FILE_NAME_MAX,
		.value_max = sizeof(struct file_entry),
	};

	return reef_map_open(space, FILE_MAP, &options, out);
}

/* --- looking --- */

/* Read the head of an inode that an entry names. 0: it is none (any more);
 * 1: it is one. */
static int read_head(struct reef *reef, uint64_t inode, struct file_head *head)
{
	int rc = reef_read(reef, inode, head, sizeof(*head));

	if (rc)
		return index_is_nonsense(rc) ? 0 : rc;
	return file_is_head(head);
}

/* Bring a rename under way to its end: the entry's file has its new link, or
 * never will. */
static int help_rename(struct reef *reef, struct binding *binding)
{
	const struct file_entry *entry = &binding->entry;
	uint64_t before;
	int rc =
		index_cas(reef, entry->inode + offsetof(struct file_head, link),
			  entry->from, entry->link, &before);

	if (rc < 0)
		return rc;
	binding->head.link = rc ? entry->link : before;
	return 0;
}

/* Take the file away that a rename has put another in place of, unless that is
 * done. */
static int destroy_former(struct reef_space *space,
			  const struct file_entry *entry)
{
	int rc;

	if (!entry->former || REEF_MUTATED(FILE_FORMER_STAYS))
		return 0;
	rc = file_destroy(space, entry->former, entry->former_link);
	if (rc == 1)
		(void)reef_free(space, entry->former, REEF_FREE_LATER);
	/* What is lost, or was used for something else since, is gone. */
	return rc >= 0 || rc == -REEF_ELOST || index_is_nonsense(rc) ? 0 : rc;
}

/* Find out whose name it is (layout.h, 2). change: so that it can be changed
 * (1). Inside reef_enter. */
static int resolve(struct reef_space *space, struct binding *binding,
		   bool change)
{
	struct reef *reef = reef_space_handle(space);
	const struct file_entry *entry = &binding->entry;
	int rc = read_head(reef, entry->inode, &binding->head);

	binding->inode = 0;
	if (rc == 1 && entry->from && binding->head.link == entry->from &&
	    change)
		rc = help_rename(reef, binding) ?: 1;
	if (rc < 0)
		return rc;
	if (rc == 1 && binding->head.link == entry->link) {
		binding->inode = entry->inode;
		binding->link = entry->link;
		return change ? destroy_former(space, entry) : 0;
	}
	if (!entry->former)
		return 0;
	rc = read_head(reef, entry->former, &binding->head);
	if (rc == 1 && binding->head.link == entry->former_link) {
		binding->inode = entry->former;
		binding->link = entry->former_link;
	}
	return rc < 0 ? rc : 0;
}

/* Look a name up. 0 also: it has no entry. */
static int look_up(struct reef_space *space, struct reef_map *map,
		   const char *name, bool change, struct binding *out)
{
	struct reef_map_value value = {0};
	int rc = reef_map_get(map, name, strlen(name), &value);

	*out = (struct binding){.has_entry = !rc, .version = value.version};
	if (!rc && value.size != sizeof(out->entry))
		rc = -REEF_ECORRUPT;
	if (!rc)
		memcpy(&out->entry, value.bytes, sizeof(out->entry));
	reef_map_value_free(&value);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return resolve(space, out, change);
}

/* --- open --- */

/* Bind a name, whose binding is nobody's or is to be another's. -EAGAIN:
 * another client was quicker. */
static int bind(struct reef_map *map, const char *name,
		const struct binding *binding, const struct file_entry *entry)
{
	int rc;

	if (binding->has_entry)
		rc = reef_map_replace(map, name, strlen(name), binding->version,
				      entry, sizeof(*entry), 0, NULL);
	else
		rc = reef_map_insert(map, name, strlen(name), entry,
				     sizeof(*entry), 0, NULL);
	return rc == -EEXIST || rc == -ENOENT || rc == -ESTALE ? -EAGAIN : rc;
}

static int make_inode(struct reef_space *space, const char *name,
		      const struct reef_file_options *options,
		      struct file_head *head, uint64_t *at)
{
	struct reef *reef = reef_space_handle(space);
	struct file_inode *inode = calloc(1, sizeof(*inode));
	struct reef_access write = {
		.kind = REEF_WRITE, .local = inode, .length = sizeof(*inode)};
	int rc = inode ? reef_alloc_kind(space, REEF_BLOCK_FILE_INODE,
					 sizeof(*inode), at)
		       : -ENOMEM;

	if (!rc) {
		inode->head.magic = FILE_INODE_MAGIC;
		inode->head.id = inode->head.link = file_new_link(reef);
		inode->head.chunk =
			options->chunk ? options->chunk : FILE_CHUNK;
		if (options->flags & REEF_FILE_SCRATCH) {
			inode->head.flags = FILE_IS_SCRATCH;
			inode->head.session = reef_session(reef);
		}
		snprintf(inode->name, sizeof(inode->name), "%s", name);
		inode->head.crc = file_crc(inode);
		*head = inode->head;
		write.address = *at;
		rc = file_write_unshared(reef, &write, 1);
		if (rc)
			reef_free(space, *at, 0);
	}
	free(inode);
	return rc;
}

/* Make a file under a name that is nobody's. */
static int create(struct reef_space *space, struct reef_map *map,
		  const char *name, const struct reef_file_options *options,
		  struct binding *binding)
{
	struct file_entry entry = {0};
	int rc = make_inode(space, name, options, &binding->head, &entry.inode);

	if (rc)
		return rc;
	entry.link = binding->head.link;
	rc = bind(map, name, binding, &entry);
	/* An inode that may be bound is not freed: is_live is asked. */
	if (rc && rc != -REEF_EINDOUBT && rc != -ETIMEDOUT)
		reef_free(space, entry.inode, 0);
	if (rc)
		return rc;
	binding->inode = entry.inode;
	binding->link = entry.link;
	return 0;
}

static int find_or_create(struct reef_space *space, struct reef_map *map,
			  const char *name,
			  const struct reef_file_options *options,
			  struct binding *binding)
{
	bool create_it = options->flags & REEF_FILE_CREATE;
	struct reef *reef = reef_space_handle(space);
	int rc;

	reef_enter(reef);
	rc = look_up(space, map, name, create_it, binding);
	if (rc)
		;
	else if (binding->inode)
		rc = options->flags & REEF_FILE_EXCLUSIVE ? -EEXIST : 0;
	else if (create_it)
		rc = create(space, map, name, options, binding);
	else
		rc = -ENOENT;
	reef_leave(reef);
	return rc;
}

/* True if an allocation inside reef_enter found no room, and it was waited for.
 */
static bool await_room(struct reef_space *space, struct reef_patience *patience,
		       int *rc)
{
	int waited;

	if (*rc != -ENOSPC && *rc != -EDQUOT)
		return false;
	waited = reef_await_memory(space, patience);
	if (waited && waited != -ENOSPC)
		*rc = waited;
	return !waited;
}

static int check_options(const struct reef_file_options *options)
{
	uint32_t chunk = options->chunk;

	if (options->flags &
	    ~(REEF_FILE_CREATE | REEF_FILE_EXCLUSIVE | REEF_FILE_SCRATCH))
		return -EINVAL;
	if (chunk && (chunk < FILE_CHUNK_MIN || chunk > FILE_CHUNK_MAX ||
		      chunk & (chunk - 1)))
		return -EINVAL;
	return 0;
}

int reef_file_open(struct reef_space *space, const char *name,
		   const struct reef_file_options *options,
		   struct reef_file **out)
{
	static const struct reef_file_options defaults;
	struct reef_patience patience = {0};
	struct reef_map *map = NULL;
	struct binding binding;
	struct reef_file *file;
	uint32_t attempt = 0;
	int rc = check_name(name);

	if (!options)
		options = &defaults;
	if (!rc)
		rc = check_options(options);
	if (!rc)
		rc = open_directory(space, options->flags & REEF_FILE_CREATE,
				    &map);
	if (rc)
		return rc;
	do
		rc = find_or_create(space, map, name, options, &binding);
	while ((rc == -EAGAIN && ++attempt < FILE_ATTEMPTS) ||
	       await_room(space, &patience, &rc));
	reef_map_close(map);
	file = rc ? NULL : malloc(sizeof(*file));
	if (!rc && !file)
		rc = -ENOMEM;
	if (!rc)
		rc = file_init(file, space, binding.inode, &binding.head);
	if (rc) {
		free(file);
		return rc == -EAGAIN ? -EBUSY : rc;
	}
	*out = file;
	return 0;
}

void reef_file_close(struct reef_file *file)
{
	if (!file)
		return;
	free(file->known);
	free(file);
}

/* --- delete --- */

/* Take an entry away that is nobody's name any more. What goes wrong leaves an
 * entry that counts for nothing. */
static void drop_entry(struct reef_map *map, const char *name,
		       const struct binding *binding)
{
	if (binding->has_entry)
		(void)reef_map_delete(map, name, strlen(name),
				      binding->version);
}

static int delete_once(struct reef_space *space, struct reef_map *map,
		       const char *name)
{
	struct reef *reef = reef_space_handle(space);
	struct binding binding;
	int rc;

	reef_enter(reef);
	rc = look_up(space, map, name, true, &binding);
	if (rc == -REEF_ELOST) {
		/* Whatever is left of it, nobody finds any more. */
		rc = reef_map_delete(map, name, strlen(name), binding.version);
		reef_leave(reef);
		return rc == -ESTALE ? -EAGAIN : rc;
	}
	if (!rc && !binding.inode) {
		drop_entry(map, name, &binding);
		rc = -ENOENT;
	} else if (!rc) {
		rc = file_destroy(space, binding.inode, binding.link);
		rc = rc == 1 ? 0 : rc ? rc : -EAGAIN;
		if (!rc) {
			drop_entry(map, name, &binding);
			(void)reef_free(space, binding.inode, REEF_FREE_LATER);
		}
	}
	reef_leave(reef);
	return rc;
}

int reef_file_delete(struct reef_space *space, const char *name)
{
	struct reef_map *map;
	uint32_t attempt = 0;
	int rc = check_name(name);

	if (!rc)
		rc = open_directory(space, false, &map);
	if (rc)
		return rc;
	do
		rc = delete_once(space, map, name);
	while (rc == -EAGAIN && ++attempt < FILE_ATTEMPTS);
	reef_map_close(map);
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* --- rename --- */

/* Give the file of `from` the name `to`, whose binding is known. */
static int move_link(struct reef_space *space, struct reef_map *map,
		     const char *to, const struct binding *source,
		     const struct binding *target)
{
	struct reef *reef = reef_space_handle(space);
	bool twice = REEF_MUTATED(FILE_RENAME_TWICE);
	const struct file_entry entry = {
		.inode = source->inode,
		.link = twice ? source->link : file_new_link(reef),
		.from = twice ? 0 : source->link,
		.former = target->inode,
		.former_link = target->inode ? target->link : 0,
	};
	struct binding now;
	uint64_t before;
	int rc = bind(map, to, target, &entry);

	/* With the entry there, whoever meets it brings the rename to its end;
	 * so this call does, too. */
	if (rc == -REEF_EINDOUBT && !look_up(space, map, to, false, &now) &&
	    !memcmp(&now.entry, &entry, sizeof(entry)))
		rc = 0;
	if (rc || twice)
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

static int rename_once(struct reef_space *space, struct reef_map *map,
		       const char *from, const char *to, uint32_t flags)
{
	struct reef *reef = reef_space_handle(space);
	struct binding source, target;
	int rc;

	reef_enter(reef);
	rc = look_up(space, map, from, true, &source);
	if (!rc && !source.inode)
		rc = -ENOENT;
	if (!rc)
		rc = look_up(space, map, to, true, &target);
	if (!rc && target.inode && flags & REEF_FILE_NOREPLACE)
		rc = -EEXIST;
	if (!rc)
		rc = move_link(space, map, to, &source, &target);
	if (!rc) {
		const struct file_entry entry = {.former = target.inode,
						 .former_link = target.link};

		drop_entry(map, from, &source);
		(void)destroy_former(space, &entry);
	}
	reef_leave(reef);
	return rc;
}

int reef_file_rename(struct reef_space *space, const char *from, const char *to,
		     uint32_t flags)
{
	struct reef_patience patience = {0};
	struct reef_map *map;
	uint32_t attempt = 0;
	int rc = check_name(from);

	if (!rc)
		rc = check_name(to);
	if (!rc && flags & ~REEF_FILE_NOREPLACE)
		rc = -EINVAL;
	if (!rc)
		rc = open_directory(space, false, &map);
	if (rc)
		return rc;
	do {
		if (strcmp(from, to))
			rc = rename_once(space, map, from, to, flags);
		else
			rc = find_or_create(
				space, map, from,
				&(const struct reef_file_options){0},
				&(struct binding){0});
	} while ((rc == -EAGAIN && ++attempt < FILE_ATTEMPTS) ||
		 await_room(space, &patience, &rc));
	reef_map_close(map);
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* --- list --- */

#define LIST_GROUPS 16u
#define LIST_ROOM 1024u

/* Names that a part of a scan has met. */
struct listing {
	const char *prefix;
	char (*names)[REEF_FILE_NAME_MAX + 1];
	uint32_t count, room;
};

static int note_name(void *context, const struct reef_map_entry *entry)
{
	struct listing *listing = context;
	size_t prefix = strlen(listing->prefix);
	void *names;

	if (entry->key_size > REEF_FILE_NAME_MAX || entry->key_size < prefix ||
	    memcmp(entry->key, listing->prefix, prefix) != 0)
		return 0;
	if (listing->count == listing->room) {
		listing->room += LIST_ROOM;
		names = realloc(listing->names,
				listing->room * sizeof(*listing->names));
		if (!names)
			return -ENOMEM;
		listing->names = names;
	}
	memset(listing->names[listing->count], 0, sizeof(*listing->names));
	memcpy(listing->names[listing->count++], entry->key, entry->key_size);
	return 0;
}

static int tell_names(struct reef_space *space, struct reef_map *map,
		      const struct listing *listing,
		      int (*each)(void *context, const char *name),
		      void *context)
{
	struct reef *reef = reef_space_handle(space);
	struct binding binding;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < listing->count; i++) {
		reef_enter(reef);
		rc = look_up(space, map, listing->names[i], false, &binding);
		reef_leave(reef);
		/* A file that is lost has its name still. */
		if (rc == -REEF_ELOST || (!rc && binding.inode))
			rc = each(context, listing->names[i]);
	}
	return rc;
}

int reef_file_list(struct reef_space *space, const char *prefix,
		   int (*each)(void *context, const char *name), void *context)
{
	struct listing listing = {.prefix = prefix ? prefix : ""};
	struct reef_map *map;
	uint64_t cursor = 0;
	int rc;

	rc = open_directory(space, false, &map);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	do {
		listing.count = 0;
		rc = reef_map_scan_keys(map, &cursor, LIST_GROUPS, note_name,
					&listing);
		if (!rc)
			rc = tell_names(space, map, &listing, each, context);
	} while (!rc && cursor);
	free(listing.names);
	reef_map_close(map);
	return rc;
}
