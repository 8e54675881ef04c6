/* names.c - the directory: which name is which file's.
 *
 *   make     insert {inode, link}; the inode has that link already
 *   delete   CAS the inode's link to 0; then the entry goes
 *   rename   rename.c
 *
 * An entry that counts for nothing any more (layout.h, 2) is as good as none:
 * whoever wants its name replaces it.
 *
 * (1) Whoever changes the link of the file that an entry names, or the entry,
 *     has helped a rename under way to its end first, and has seen to it that
 *     the former file is gone, or held: else it would come back.
 * (2) Entry and links are READ one after the other. That a name is nobody's is
 *     believed if a second look finds the same entry, and the same link in its
 *     inode: else it may have been one file's, then the other's. */
#include "file/internal.h"

#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kinds are registered in this file, which every program with files has: a
 * linker leaves out a file of a library that nothing refers to. */
__attribute__((constructor)) static void register_kinds(void)
{
	file_kinds_register();
}

int file_check_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	if (!size || strchr(name, '/') || !strcmp(name, ".") ||
	    !strcmp(name, ".."))
		return -EINVAL;
	return size > REEF_FILE_NAME_MAX ? -ENAMETOOLONG : 0;
}

int file_open_directory(struct reef_space *space, uint32_t flags,
			struct reef_files *out)
{
	const struct reef_tree_options options = {
		.flags = flags,
		.key_max = FILE_KEY_MAX,
		.value_max = sizeof(struct file_entry),
	};
	int rc;

	*out = (struct reef_files){.space = space};
	rc = reef_tree_open(space, FILE_DIRECTORY, &options, &out->tree);
	/* Once it was a map. */
	return rc == -EEXIST ? -REEF_EVERSION : rc;
}

void file_close_directory(struct reef_files *files)
{
	reef_tree_close(files->tree);
}

/* What a call on the tree returned: the same error of a file's own block says
 * nothing of the names. */
static int note_lost(struct reef_files *files, int rc)
{
	if (rc == -REEF_ELOST || rc == -REEF_EDROPPED)
		files->is_lost = true;
	return rc;
}

/* A key of the directory: the folder's number, so that a folder's names lie
 * together, then the name. Returns its size. */
static size_t make_key(uint8_t key[FILE_KEY_MAX], uint64_t folder,
		       const char *name)
{
	size_t size = strlen(name);

	for (uint32_t i = 0; i < 8; i++)
		key[i] = (uint8_t)(folder >> (56 - 8 * i));
	memcpy(key + 8, name, size);
	return 8 + size;
}

/* --- looking --- */

int file_read_inode(struct reef *reef, uint64_t inode, struct file_head *head)
{
	int rc = reef_read(reef, inode, head, sizeof(*head));

	if (rc)
		return index_is_nonsense(rc) ? 0 : rc;
	return file_is_head(head);
}

int file_check_gate(struct reef_files *files, const struct file_folder *folder)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_head head;
	uint64_t before;
	int rc;

	if (!folder->at || REEF_MUTATED(FOLDER_GATE_UNSEEN))
		return 0;
	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		rc = file_read_inode(reef, folder->at, &head);
		if (rc < 0)
			return rc;
		if (!rc || head.id != folder->number || !head.link)
			return -ENOENT;
		if (!(head.flags & FILE_IS_FOLDER))
			return -ENOTDIR;
		if (head.size & FOLDER_GONE)
			return -ENOENT;
		if (!(head.size & FOLDER_CLOSING))
			return 0;
		rc = index_cas(
			reef, folder->at + offsetof(struct file_head, size),
			head.size, folder_gate_after(head.size, 0), &before);
		if (rc < 0 && rc != -REEF_EINDOUBT)
			return rc;
	}
	return -EBUSY;
}

/* Bring a rename under way to its end: the entry's file has its new link, or
 * never will. */
static int help_rename(struct reef *reef, struct file_binding *binding)
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

/* What is lost, or was used for something else since, is gone. */
static int pass_over_lost(int rc)
{
	return rc == -REEF_ELOST || index_is_nonsense(rc) ? 0 : rc;
}

static int destroy_former(struct reef_space *space,
			  const struct file_entry *entry)
{
	uint64_t former = file_former_of(entry);
	int rc;

	if (!former || REEF_MUTATED(FILE_FORMER_STAYS))
		return 0;
	rc = file_destroy(space, former, entry->former_link);
	if (rc == 1)
		(void)reef_free(space, former, REEF_FREE_LATER);
	return rc == 1 ? 0 : pass_over_lost(rc);
}

int file_end_former(struct reef_space *space, const struct file_entry *entry)
{
	uint64_t before, ticket = file_ticket_of(entry->link);
	int rc;

	if (!(entry->former & FILE_FORMER_HELD) ||
	    REEF_MUTATED(FILE_HELD_DELETED))
		return destroy_former(space, entry);
	rc = index_cas(reef_space_handle(space),
		       file_former_of(entry) + offsetof(struct file_head, link),
		       entry->former_link, ticket, &before);
	/* Another may have helped. */
	if (rc == 0 && before == ticket)
		rc = 1;
	return pass_over_lost(rc);
}

int file_give_up_lost(struct reef_files *files, struct file_binding *binding)
{
	int rc = binding->has_entry
			 ? destroy_former(files->space, &binding->entry)
			 : -REEF_ELOST;

	binding->inode = 0;
	return rc;
}

/* A folder whose gate is GONE is nobody's, though it has a link still: whoever
 * is to change its name takes that away. */
static int pass_over_gone(struct reef_space *space,
			  struct file_binding *binding, bool change)
{
	int rc = 0;

	if (!binding->inode || !(binding->head.flags & FILE_IS_FOLDER) ||
	    !(binding->head.size & FOLDER_GONE))
		return 0;
	if (change)
		rc = file_destroy(space, binding->inode, binding->link);
	if (rc == 1)
		(void)reef_free(space, binding->inode, REEF_FREE_LATER);
	binding->inode = 0;
	return rc < 0 ? rc : 0;
}

/* Find out whose name it is (layout.h, 2). Inside reef_enter. */
static int resolve(struct reef_files *files, const struct file_folder *folder,
		   struct file_binding *binding, bool change)
{
	struct reef *reef = reef_space_handle(files->space);
	const struct file_entry *entry = &binding->entry;
	uint64_t former = file_former_of(entry);
	int rc = file_read_inode(reef, entry->inode, &binding->head);

	binding->inode = 0;
	if (rc == 1 && entry->from && binding->head.link == entry->from &&
	    change) {
		rc = file_check_gate(files, folder);
		rc = rc ? rc : help_rename(reef, binding) ?: 1;
	}
	if (rc < 0)
		return rc;
	binding->seen = rc ? binding->head.link : 0;
	if (rc == 1 && binding->head.link == entry->link) {
		binding->inode = entry->inode;
		binding->link = entry->link;
		rc = change ? file_end_former(files->space, entry) : 0;
		return rc < 0 ? rc
			      : pass_over_gone(files->space, binding, change);
	}
	if (!former)
		return 0;
	rc = file_read_inode(reef, former, &binding->head);
	if (rc == 1 && binding->head.link == entry->former_link) {
		binding->inode = former;
		binding->link = entry->former_link;
	}
	return rc < 0 ? rc : pass_over_gone(files->space, binding, change);
}

/* Read the entry of a name, if it has one. */
static int get_entry(struct reef_files *files, const struct file_place *place,
		     struct file_binding *out)
{
	struct reef_map_value value = {0};
	uint8_t key[FILE_KEY_MAX];
	size_t size = make_key(key, place->folder.number, place->name);
	int rc =
		note_lost(files, reef_tree_get(files->tree, key, size, &value));

	*out = (struct file_binding){.has_entry = !rc,
				     .version = value.version};
	if (!rc && value.size != sizeof(out->entry))
		rc = -REEF_ECORRUPT;
	if (!rc)
		memcpy(&out->entry, value.bytes, sizeof(out->entry));
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

int file_look_up(struct reef_files *files, const struct file_place *place,
		 bool change, struct file_binding *out)
{
	uint64_t version = 0, seen = 0;
	bool is_again;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		rc = get_entry(files, place, out);
		if (rc || !out->has_entry)
			return rc;
		rc = resolve(files, &place->folder, out, change);
		is_again = i && out->version == version && out->seen == seen;
		if (rc || out->inode || is_again ||
		    REEF_MUTATED(FILE_NOBODY_AT_ONCE))
			return rc;
		version = out->version;
		seen = out->seen;
	}
	return -EBUSY;
}

/* --- make --- */

int file_bind(struct reef_files *files, const struct file_place *place,
	      const struct file_binding *binding,
	      const struct file_entry *entry, uint64_t *version)
{
	uint8_t key[FILE_KEY_MAX];
	size_t size = make_key(key, place->folder.number, place->name);
	int rc;

	if (binding->has_entry)
		rc = reef_tree_replace(files->tree, key, size, binding->version,
				       entry, sizeof(*entry), 0, version);
	else
		rc = reef_tree_insert(files->tree, key, size, entry,
				      sizeof(*entry), 0, version);
	return rc == -EEXIST || rc == -ENOENT || rc == -ESTALE
		       ? -EAGAIN
		       : note_lost(files, rc);
}

void file_drop_entry(struct reef_files *files, const struct file_place *place,
		     const struct file_binding *binding)
{
	uint8_t key[FILE_KEY_MAX];
	size_t size = make_key(key, place->folder.number, place->name);

	if (binding->has_entry)
		(void)reef_tree_delete(files->tree, key, size,
				       binding->version);
}

static int make_inode(struct reef_files *files, const struct file_place *place,
		      const struct file_wish *wish, struct file_head *head,
		      uint64_t *at)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_inode *inode = calloc(1, sizeof(*inode));
	struct reef_access write = {
		.kind = REEF_WRITE, .local = inode, .length = sizeof(*inode)};
	int rc = inode ? reef_alloc_kind(files->space, REEF_BLOCK_FILE_INODE,
					 sizeof(*inode), at)
		       : -ENOMEM;

	if (!rc) {
		inode->head.magic = FILE_INODE_MAGIC;
		inode->head.id = inode->head.link = file_new_link(reef);
		inode->head.chunk = wish->chunk ? wish->chunk : FILE_CHUNK;
		inode->head.flags = wish->flags;
		if (wish->flags & FILE_IS_SCRATCH)
			inode->head.session = reef_session(reef);
		inode->attributes = wish->attributes;
		inode->folder = place->folder;
		snprintf(inode->name, sizeof(inode->name), "%s", place->name);
		inode->head.crc = file_crc(inode);
		*head = inode->head;
		write.address = *at;
		rc = file_write_unshared(reef, &write, 1);
		if (rc)
			reef_free(files->space, *at, 0);
	}
	free(inode);
	return rc;
}

/* An entry was put into a folder that is gone: both go again. */
static void withdraw(struct reef_files *files, const struct file_place *place,
		     const struct file_entry *entry, uint64_t version)
{
	const struct file_binding binding = {.has_entry = true,
					     .version = version};

	file_drop_entry(files, place, &binding);
	if (file_destroy(files->space, entry->inode, entry->link) == 1)
		(void)reef_free(files->space, entry->inode, REEF_FREE_LATER);
}

/* Make a file under a name that is nobody's. Inside reef_enter. */
static int make_and_bind(struct reef_files *files,
			 const struct file_place *place,
			 const struct file_wish *wish,
			 struct file_binding *binding)
{
	struct file_entry entry = {0};
	uint64_t version;
	int rc = make_inode(files, place, wish, &binding->head, &entry.inode);

	if (rc)
		return rc;
	entry.link = binding->head.link;
	rc = file_bind(files, place, binding, &entry, &version);
	/* An inode that may be bound is not freed: is_live is asked. */
	if (rc && rc != -REEF_EINDOUBT && rc != -ETIMEDOUT)
		reef_free(files->space, entry.inode, 0);
	if (rc)
		return rc;
	rc = file_check_gate(files, &place->folder);
	if (rc == -ENOENT)
		withdraw(files, place, &entry, version);
	if (rc)
		return rc;
	binding->inode = entry.inode;
	binding->link = entry.link;
	return 0;
}

bool file_await_room(struct reef_space *space, struct reef_patience *patience,
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

static int make_once(struct reef_files *files, const struct file_place *place,
		     const struct file_wish *wish, struct file_binding *binding)
{
	struct reef *reef = reef_space_handle(files->space);
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, place, true, binding);
	if (!rc && binding->inode)
		rc = -EEXIST;
	if (!rc)
		rc = make_and_bind(files, place, wish, binding);
	reef_leave(reef);
	return rc;
}

int file_make(struct reef_files *files, const struct file_place *place,
	      const struct file_wish *wish, struct file_binding *binding)
{
	struct reef_patience patience = {0};
	uint32_t attempt = 0;
	int rc;

	do
		rc = make_once(files, place, wish, binding);
	while ((rc == -EAGAIN && ++attempt < FILE_ATTEMPTS) ||
	       file_await_room(files->space, &patience, &rc));
	return rc == -EAGAIN ? -EBUSY : rc;
}

/* --- open --- */

static int check_options(const struct reef_file_options *options)
{
	if (options->flags &
	    ~(REEF_FILE_CREATE | REEF_FILE_EXCLUSIVE | REEF_FILE_SCRATCH))
		return -EINVAL;
	if (options->chunk && !file_is_chunk_size(options->chunk))
		return -EINVAL;
	return 0;
}

/* Find a file, or make it: as reef_file_open has it. */
static int find_or_make(struct reef_files *files,
			const struct file_place *place,
			const struct reef_file_options *options,
			struct file_binding *binding)
{
	const struct file_wish wish = {
		.chunk = options->chunk,
		.flags = options->flags & REEF_FILE_SCRATCH ? FILE_IS_SCRATCH
							    : 0,
		.attributes.mode = 0644,
	};
	struct reef *reef = reef_space_handle(files->space);
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		reef_enter(reef);
		rc = file_look_up(files, place, false, binding);
		reef_leave(reef);
		if (rc)
			return rc;
		if (binding->inode)
			return options->flags & REEF_FILE_EXCLUSIVE ? -EEXIST
								    : 0;
		if (!(options->flags & REEF_FILE_CREATE))
			return -ENOENT;
		rc = file_make(files, place, &wish, binding);
		if (rc != -EEXIST || options->flags & REEF_FILE_EXCLUSIVE)
			return rc;
	}
	return -EBUSY;
}

int reef_file_open(struct reef_space *space, const char *name,
		   const struct reef_file_options *options,
		   struct reef_file **out)
{
	static const struct reef_file_options defaults;
	const struct file_place place = {.name = name};
	struct file_binding binding;
	struct reef_files files;
	struct reef_file *file;
	int rc = file_check_name(name);

	if (!options)
		options = &defaults;
	if (!rc)
		rc = check_options(options);
	if (!rc)
		rc = file_open_directory(space,
					 options->flags & REEF_FILE_CREATE
						 ? 0
						 : REEF_TREE_EXISTING,
					 &files);
	if (rc)
		return rc;
	rc = find_or_make(&files, &place, options, &binding);
	file_close_directory(&files);
	if (!rc && binding.head.flags & FILE_IS_FOLDER)
		rc = -EISDIR;
	file = rc ? NULL : malloc(sizeof(*file));
	if (!rc && !file)
		rc = -ENOMEM;
	if (!rc)
		rc = file_init(file, space, binding.inode, &binding.head);
	if (rc) {
		free(file);
		return rc;
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

static int delete_once(struct reef_files *files, const struct file_place *place)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_binding binding;
	int rc;

	reef_enter(reef);
	rc = file_look_up(files, place, true, &binding);
	if (rc == -REEF_ELOST) {
		/* Whatever is left of it, nobody finds any more. */
		rc = file_give_up_lost(files, &binding);
		if (!rc)
			file_drop_entry(files, place, &binding);
	} else if (!rc && !binding.inode) {
		file_drop_entry(files, place, &binding);
		rc = -ENOENT;
	} else if (!rc && binding.head.flags & FILE_IS_FOLDER) {
		rc = -EISDIR;
	} else if (!rc) {
		rc = file_destroy(files->space, binding.inode, binding.link);
		rc = rc == 1 ? 0 : rc ? rc : -EAGAIN;
		if (!rc) {
			file_drop_entry(files, place, &binding);
			(void)reef_free(files->space, binding.inode,
					REEF_FREE_LATER);
		}
	}
	reef_leave(reef);
	return rc;
}

int file_delete(struct reef_files *files, const struct file_place *place)
{
	uint32_t attempt = 0;
	int rc;

	do
		rc = delete_once(files, place);
	while (rc == -EAGAIN && ++attempt < FILE_ATTEMPTS);
	return rc == -EAGAIN ? -EBUSY : rc;
}

int reef_file_delete(struct reef_space *space, const char *name)
{
	const struct file_place place = {.name = name};
	struct reef_files files;
	int rc = file_check_name(name);

	if (!rc)
		rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc;
	rc = file_delete(&files, &place);
	file_close_directory(&files);
	return rc;
}

/* --- list --- */

#define LIST_NAMES 256u

static int note_name(void *context, const struct reef_map_entry *entry)
{
	struct file_listing *listing = context;

	if (entry->key_size < 9 || entry->key_size > FILE_KEY_MAX ||
	    listing->count == listing->room)
		return 0;
	memset(listing->names[listing->count], 0, sizeof(*listing->names));
	memcpy(listing->names[listing->count++],
	       (const uint8_t *)entry->key + 8, entry->key_size - 8);
	return 0;
}

/* The key behind all that begin with these bytes: NULL: there is none. */
static const void *end_of(uint8_t *key, size_t *size)
{
	while (*size && key[*size - 1] == 0xff)
		--*size;
	if (*size)
		key[*size - 1]++;
	return *size ? key : NULL;
}

int file_list_names(struct reef_files *files, const struct file_folder *folder,
		    const char *after, struct file_listing *listing)
{
	uint8_t from[FILE_KEY_MAX], to[FILE_KEY_MAX];
	struct reef_range range = {
		.from = from,
		.flags = REEF_RANGE_KEYS,
		.limit = LIST_NAMES,
	};

	if (!listing->names) {
		listing->names = malloc(LIST_NAMES * sizeof(*listing->names));
		listing->room = LIST_NAMES;
	}
	if (!listing->names)
		return -ENOMEM;
	range.from_size = make_key(from, folder->number, listing->prefix);
	range.to_size = make_key(to, folder->number, listing->prefix);
	if (*after && strcmp(after, listing->prefix) >= 0) {
		range.from_size = make_key(from, folder->number, after);
		range.flags |= REEF_RANGE_AFTER;
	}
	range.to = end_of(to, &range.to_size);
	listing->count = 0;
	return note_lost(
		files, reef_tree_scan(files->tree, &range, note_name, listing));
}

/* Call `each` for the names of a listing that are a file's. */
static int tell_names(struct reef_files *files,
		      const struct file_listing *listing,
		      int (*each)(void *context, const char *name),
		      void *context)
{
	struct reef *reef = reef_space_handle(files->space);
	struct file_place place = {0};
	struct file_binding binding;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < listing->count; i++) {
		place.name = listing->names[i];
		reef_enter(reef);
		rc = file_look_up(files, &place, false, &binding);
		reef_leave(reef);
		/* A file that is lost has its name still. */
		if (rc == -REEF_ELOST ||
		    (!rc && binding.inode &&
		     !(binding.head.flags & FILE_IS_FOLDER)))
			rc = each(context, listing->names[i]);
	}
	return rc;
}

int reef_file_list(struct reef_space *space, const char *prefix,
		   int (*each)(void *context, const char *name), void *context)
{
	static const struct file_folder root;
	struct file_listing listing = {.prefix = prefix ? prefix : ""};
	char after[REEF_FILE_NAME_MAX + 1] = "";
	struct reef_files files;
	int rc;

	if (strlen(listing.prefix) > REEF_FILE_NAME_MAX)
		return 0;
	rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	do {
		rc = file_list_names(&files, &root, after, &listing);
		if (!rc)
			rc = tell_names(&files, &listing, each, context);
		if (listing.count)
			memcpy(after, listing.names[listing.count - 1],
			       sizeof(after));
	} while (!rc && listing.count == LIST_NAMES);
	free(listing.names);
	file_close_directory(&files);
	return rc;
}
