/* ops.c - the kernel's questions on names, folders and attributes. */
#include "gateway/mount/internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define BLOCK 4096u
/* What programs read and write at once if they have no wish of their own: the C
 * library's buffers. Each is a request, and each costs two switches. */
#define BUFFER (128u << 10)
/* Of a mount that is alone: */
#define BELIEF 3600.0  /* seconds */
#define BACKGROUND 64u /* requests that nobody waits for */

static struct mount *mount_of(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

uint64_t mount_now(void)
{
	return reef_wall_ns();
}

void mount_fill(const struct mount *mount, const struct reef_file_about *about,
		struct stat *out)
{
	static const mode_t types[] = {S_IFREG, S_IFDIR, S_IFLNK};

	*out = (struct stat){
		.st_ino = about->id.at ? about->id.number : FUSE_ROOT_ID,
		.st_mode = types[about->type] | about->mode,
		.st_nlink = about->type == REEF_FILE_FOLDER ? 2 : 1,
		.st_uid = about->user,
		.st_gid = about->group,
		.st_size = (off_t)about->size,
		.st_blocks = (blkcnt_t)((about->size + 511) / 512),
		.st_blksize = BUFFER,
		.st_mtim = {.tv_sec = (time_t)(about->changed_ns / SECOND),
			    .tv_nsec = (long)(about->changed_ns % SECOND)},
	};
	out->st_ctim = out->st_atim = out->st_mtim;
}

/* How long the kernel may believe what it was told of names and attributes. */
static double belief(const struct mount *mount)
{
	return mount->options->alone ? BELIEF : 0;
}

/* Answer with a file that is looked at. */
static void reply_entry(fuse_req_t request, const struct reef_file_about *about)
{
	struct mount *mount = mount_of(request);
	struct fuse_entry_param entry = {
		.attr_timeout = belief(mount),
		.entry_timeout = belief(mount),
	};
	struct node *node = node_look(mount, about->id);

	if (!node) {
		fuse_reply_err(request, ENOMEM);
		return;
	}
	entry.ino = node_number(mount, node);
	mount_fill(mount, about, &entry.attr);
	if (fuse_reply_entry(request, &entry))
		node_forget(mount, node, 1);
}

/* --- looking --- */

/* What a question is about, and what is found. */
struct question {
	struct mount *mount;
	struct node *node, *to; /* to: of a rename */
	const char *name, *to_name;
	struct reef_file_about about;
	uint32_t flags;
	uint64_t size;
	bool is_lost; /* the file is, and has its name still */
};

/* Stop at the name in question, or behind it. */
static int see_lost(void *context, const char *name,
		    const struct reef_file_about *about)
{
	struct question *question = context;

	question->is_lost = !strcmp(name, question->name) && !about->id.at;
	return strcmp(name, question->name) >= 0;
}

/* Find out whether a name is there whose file is lost: then it is listed. The
 * list begins a little before it. */
static int look_for_lost(struct desk *desk, struct question *question)
{
	char after[REEF_FILE_NAME_MAX + 1];
	size_t size = strlen(question->name);
	int rc;

	snprintf(after, sizeof(after), "%s", question->name);
	if ((uint8_t)after[size - 1] > 1) {
		after[size - 1]--;
		memset(after + size, 0xff, sizeof(after) - 1 - size);
		size = sizeof(after) - 1;
	} else {
		size--;
	}
	after[size] = '\0';
	rc = reef_files_list(desk->files, question->node->id, after, see_lost,
			     question);
	return rc < 0 ? rc : question->is_lost ? 0 : -REEF_ELOST;
}

/* An id that is no file's, of a name in a folder. */
static struct reef_file_id lost_id(struct reef_file_id folder, const char *name)
{
	uint64_t hash = folder.number ^ UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	return (struct reef_file_id){LOST_AT, hash | UINT64_C(1) << 63};
}

/* What is told of a file that is lost. */
static struct reef_file_about about_lost(const struct mount *mount,
					 struct reef_file_id id)
{
	return (struct reef_file_about){.id = id,
					.type = REEF_FILE_REGULAR,
					.mode = 0600,
					.user = mount->top.user,
					.group = mount->top.group};
}

static int run_look(struct desk *desk, void *context)
{
	struct question *question = context;
	int rc = reef_files_look(desk->files, question->node->id,
				 question->name, &question->about);

	if (rc != -REEF_ELOST)
		return rc;
	rc = look_for_lost(desk, question);
	if (!rc)
		question->about =
			about_lost(question->mount,
				   lost_id(question->node->id, question->name));
	return rc;
}

static void op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct mount *mount = mount_of(request);
	struct question question = {
		.mount = mount, .node = node_of(mount, parent), .name = name};
	int rc = desk_run(mount, false, run_look, &question);
	/* A name that is not there is not asked for again, where nobody else
	 * makes files: DuckDB looks for thousands of them in a sort. */
	const struct fuse_entry_param absent = {.entry_timeout = BELIEF};

	if (rc == -ENOENT && mount->options->alone)
		fuse_reply_entry(request, &absent);
	else if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		reply_entry(request, &question.about);
}

static void op_forget(fuse_req_t request, fuse_ino_t number, uint64_t lookups)
{
	struct mount *mount = mount_of(request);

	node_forget(mount, node_of(mount, number), lookups);
	fuse_reply_none(request);
}

/* --- attributes --- */

void mount_note_change(struct node *node)
{
	node->is_changed = true;
}

int mount_tell_change(struct desk *desk, struct node *node)
{
	const struct reef_file_about about = {.changed_ns = mount_now()};
	int rc;

	if (!node->is_changed)
		return 0;
	node->is_changed = false;
	rc = reef_files_set(desk->files, node->id, REEF_FILES_CHANGED, &about);
	/* One that was deleted has no time. */
	return rc == -ENOENT ? 0 : rc;
}

/* The root is the mount's own: (5) of mount.h. */
static int about_top(struct question *question, bool set)
{
	struct reef_file_about *top = &question->mount->top;

	pthread_mutex_lock(&question->mount->lock);
	if (set)
		*top = question->about;
	else
		question->about = *top;
	pthread_mutex_unlock(&question->mount->lock);
	return 0;
}

static int run_about(struct desk *desk, void *context)
{
	struct question *question = context;
	int rc;

	if (question->node == &question->mount->root)
		return about_top(question, false);
	if (question->node->id.at == LOST_AT) {
		question->about =
			about_lost(question->mount, question->node->id);
		return 0;
	}
	rc = reef_files_about(desk->files, question->node->id,
			      &question->about);
	if (!rc && question->node->is_changed)
		question->about.changed_ns = mount_now();
	return rc;
}

static void reply_about(fuse_req_t request, struct question *question, int rc)
{
	struct stat stat;

	if (rc) {
		fuse_reply_err(request,
			       rc == -ENOENT ? ESTALE : desk_errno(rc));
		return;
	}
	mount_fill(question->mount, &question->about, &stat);
	fuse_reply_attr(request, &stat, belief(question->mount));
}

static void op_getattr(fuse_req_t request, fuse_ino_t number,
		       struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct question question = {.mount = mount,
				    .node = node_of(mount, number)};

	(void)info;
	reply_about(request, &question,
		    desk_run(mount, false, run_about, &question));
}

static int run_truncate(struct desk *desk, void *context)
{
	struct question *question = context;
	struct reef_file *file;
	int rc = desk_file(desk, question->node->id, &file);

	return rc ? rc : reef_file_truncate(file, question->size);
}

static int run_set(struct desk *desk, void *context)
{
	struct question *question = context;

	if (question->node == &question->mount->root)
		return about_top(question, true);
	return reef_files_set(desk->files, question->node->id, question->flags,
			      &question->about);
}

/* Take over what is to be set. */
static void wish_attributes(struct question *question, const struct stat *wish,
			    int which)
{
	struct reef_file_about *about = &question->about;

	if (which & FUSE_SET_ATTR_MODE) {
		about->mode = wish->st_mode & 07777;
		question->flags |= REEF_FILES_MODE;
	}
	if (which & FUSE_SET_ATTR_UID)
		about->user = wish->st_uid;
	if (which & FUSE_SET_ATTR_GID)
		about->group = wish->st_gid;
	if (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		question->flags |= REEF_FILES_OWNER;
	if (which & FUSE_SET_ATTR_MTIME_NOW)
		about->changed_ns = mount_now();
	else if (which & FUSE_SET_ATTR_MTIME && wish->st_mtim.tv_sec < 0)
		about->changed_ns = 0; /* there is no earlier time */
	else if (which & FUSE_SET_ATTR_MTIME)
		about->changed_ns = (uint64_t)wish->st_mtim.tv_sec * SECOND +
				    (uint64_t)wish->st_mtim.tv_nsec;
	if (which & (FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_MTIME)) {
		question->flags |= REEF_FILES_CHANGED;
		question->node->is_changed = false;
	}
}

static void op_setattr(fuse_req_t request, fuse_ino_t number, struct stat *wish,
		       int which, struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct question question = {.mount = mount,
				    .node = node_of(mount, number)};
	int rc = 0;

	(void)info;
	if (which & FUSE_SET_ATTR_SIZE) {
		question.size = (uint64_t)wish->st_size;
		rc = desk_run(mount, false, run_truncate, &question);
		mount_note_change(question.node);
		if (!rc && !question.size)
			question.node->failed = 0;
	}
	if (!rc)
		rc = desk_run(mount, false, run_about, &question);
	if (question.node->id.at == LOST_AT)
		rc = -REEF_ELOST;
	if (!rc)
		wish_attributes(&question, wish, which);
	if (!rc && question.flags)
		rc = desk_run(mount, false, run_set, &question);
	reply_about(request, &question, rc);
}

/* --- making --- */

static int run_make(struct desk *desk, void *context)
{
	struct question *question = context;
	struct reef_file_about made;
	int rc = reef_files_make(desk->files, question->node->id,
				 question->name, &question->about, &made);

	if (!rc)
		question->about = made;
	return rc;
}

static int make(fuse_req_t request, fuse_ino_t parent, const char *name,
		enum reef_file_type type, mode_t mode,
		struct question *question)
{
	const struct fuse_ctx *caller = fuse_req_ctx(request);
	struct mount *mount = mount_of(request);
	int rc;

	*question = (struct question){
		.mount = mount,
		.node = node_of(mount, parent),
		.name = name,
		.about = {.type = type,
			  .mode = mode & 07777,
			  .user = caller->uid,
			  .group = caller->gid,
			  .changed_ns = mount_now(),
			  .chunk = mount->options->chunk},
	};
	rc = desk_run(mount, true, run_make, question);
	/* Its folder is gone: then the kernel asks again what it knows of it.
	 */
	return rc == -ENOENT && mount->options->alone ? -ESTALE : rc;
}

static void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name,
		     mode_t mode)
{
	struct question question;
	int rc = make(request, parent, name, REEF_FILE_FOLDER, mode, &question);

	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		reply_entry(request, &question.about);
}

static void op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name,
		     mode_t mode, dev_t device)
{
	struct question question;
	int rc = S_ISREG(mode) ? make(request, parent, name, REEF_FILE_REGULAR,
				      mode, &question)
			       : -EPERM;

	(void)device;
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		reply_entry(request, &question.about);
}

struct target {
	struct reef_file_id id;
	char *bytes; /* with room for `size` */
	size_t size, got;
};

static int run_write_target(struct desk *desk, void *context)
{
	struct target *target = context;
	struct reef_file *file;
	int rc = desk_file(desk, target->id, &file);
	ssize_t put;

	if (rc)
		return rc;
	put = reef_file_pwrite(file, target->bytes, target->size, 0);
	if (put < 0)
		return (int)put;
	return (size_t)put == target->size ? 0 : -EIO;
}

static void op_symlink(fuse_req_t request, const char *path, fuse_ino_t parent,
		       const char *name)
{
	struct question question;
	struct target target = {.bytes = (char *)path, .size = strlen(path)};
	int rc = make(request, parent, name, REEF_FILE_LINK, 0777, &question);

	if (!rc) {
		target.id = question.about.id;
		rc = desk_run(question.mount, false, run_write_target, &target);
		question.about.size = target.size;
	}
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		reply_entry(request, &question.about);
}

static int run_read_target(struct desk *desk, void *context)
{
	struct target *target = context;
	struct reef_file *file;
	int rc = desk_file(desk, target->id, &file);
	ssize_t got;

	if (rc)
		return rc;
	got = reef_file_pread(file, target->bytes, target->size, 0);
	target->got = got < 0 ? 0 : (size_t)got;
	return got < 0 ? (int)got : 0;
}

static void op_readlink(fuse_req_t request, fuse_ino_t number)
{
	struct mount *mount = mount_of(request);
	char bytes[4097];
	struct target target = {.id = node_of(mount, number)->id,
				.bytes = bytes,
				.size = sizeof(bytes) - 1};
	int rc = desk_run(mount, false, run_read_target, &target);

	bytes[target.got] = '\0';
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		fuse_reply_readlink(request, bytes);
}

static void op_create(fuse_req_t request, fuse_ino_t parent, const char *name,
		      mode_t mode, struct fuse_file_info *info)
{
	struct fuse_entry_param entry = {0};
	struct question question;
	struct node *node;
	int rc =
		make(request, parent, name, REEF_FILE_REGULAR, mode, &question);

	/* Another mount was quicker. */
	if (rc == -EEXIST && !(info->flags & O_EXCL))
		rc = desk_run(question.mount, false, run_look, &question);
	if (!rc && question.about.type != REEF_FILE_REGULAR)
		rc = -EEXIST;
	node = rc ? NULL : node_look(question.mount, question.about.id);
	if (!rc && !node)
		rc = -ENOMEM;
	if (rc) {
		fuse_reply_err(request, desk_errno(rc));
		return;
	}
	entry.ino = node_number(question.mount, node);
	entry.attr_timeout = entry.entry_timeout = belief(question.mount);
	mount_fill(question.mount, &question.about, &entry.attr);
	data_opened(question.mount, node, info);
	if (fuse_reply_create(request, &entry, info)) {
		node->opens--;
		node_forget(question.mount, node, 1);
	}
}

/* --- names --- */

/* Take a name away: from a file that is open here as reef_files_hold does.
 * Under the lock of its shard. */
static int take_name(struct desk *desk, struct mount *mount,
		     struct reef_file_id folder, const char *name,
		     const struct reef_file_about *about)
{
	struct node *node = node_find(mount, about->id);
	uint64_t ticket;
	int rc;

	if (!node || !node->opens)
		return reef_files_delete(desk->files, folder, name);
	rc = reef_files_hold(desk->files, folder, name, &ticket);
	if (!rc)
		node->ticket = ticket;
	return rc;
}

static int run_unlink(struct desk *desk, void *context)
{
	struct question *question = context;
	struct reef_file_about about;
	pthread_mutex_t *shard;
	int rc = reef_files_look(desk->files, question->node->id,
				 question->name, &about);

	/* What is lost can be deleted. */
	if (rc == -REEF_ELOST)
		return reef_files_delete(desk->files, question->node->id,
					 question->name);
	if (rc)
		return rc;
	if (about.type == REEF_FILE_FOLDER)
		return -EISDIR;
	shard = node_shard(question->mount, about.id);
	pthread_mutex_lock(shard);
	rc = take_name(desk, question->mount, question->node->id,
		       question->name, &about);
	pthread_mutex_unlock(shard);
	if (!rc)
		desk_close_file(desk, about.id);
	return rc;
}

static int run_rmdir(struct desk *desk, void *context)
{
	struct question *question = context;

	return reef_files_remove_folder(desk->files, question->node->id,
					question->name);
}

static void op_unlink(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct mount *mount = mount_of(request);
	struct question question = {
		.mount = mount, .node = node_of(mount, parent), .name = name};

	fuse_reply_err(request, desk_errno(desk_run(mount, true, run_unlink,
						    &question)));
}

static void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct mount *mount = mount_of(request);
	struct question question = {
		.mount = mount, .node = node_of(mount, parent), .name = name};

	fuse_reply_err(request,
		       desk_errno(desk_run(mount, true, run_rmdir, &question)));
}

/* A file that is held is its node's, if that is open here; else it goes. Under
 * the lock of its shard. */
static void keep_held(struct desk *desk, struct mount *mount,
		      struct reef_file_id id, uint64_t ticket)
{
	struct node *node = node_find(mount, id);

	if (node && node->opens)
		node->ticket = ticket;
	else
		(void)reef_files_let_go(desk->files, ticket);
}

static int rename_plainly(struct desk *desk, const struct question *question)
{
	return reef_files_rename(desk->files, question->node->id,
				 question->name, question->to->id,
				 question->to_name, question->flags);
}

/* Put a file in place of another, which lives on if it is open here. */
static int replace(struct desk *desk, const struct question *question,
		   struct reef_file_id target)
{
	struct mount *mount = question->mount;
	pthread_mutex_t *shard = node_shard(mount, target);
	struct reef_file_id former;
	uint64_t ticket = 0;
	struct node *node;
	int rc;

	pthread_mutex_lock(shard);
	node = node_find(mount, target);
	if (node && node->opens)
		rc = reef_files_replace(desk->files, question->node->id,
					question->name, question->to->id,
					question->to_name, &ticket, &former);
	else
		rc = rename_plainly(desk, question);
	if (!rc && ticket && former.number == target.number) {
		keep_held(desk, mount, target, ticket);
		ticket = 0;
	}
	pthread_mutex_unlock(shard);
	if (rc || !ticket)
		return rc;
	/* By then another mount had given the name to another file. */
	shard = node_shard(mount, former);
	pthread_mutex_lock(shard);
	keep_held(desk, mount, former, ticket);
	pthread_mutex_unlock(shard);
	return 0;
}

static int run_rename(struct desk *desk, void *context)
{
	const struct question *question = context;
	struct reef_file_about target;

	if (question->flags & REEF_FILE_NOREPLACE ||
	    reef_files_look(desk->files, question->to->id, question->to_name,
			    &target) ||
	    target.type == REEF_FILE_FOLDER)
		return rename_plainly(desk, question);
	return replace(desk, question, target.id);
}

static void op_rename(fuse_req_t request, fuse_ino_t parent, const char *name,
		      fuse_ino_t to, const char *to_name, unsigned int flags)
{
	struct mount *mount = mount_of(request);
	struct question question = {
		.mount = mount,
		.node = node_of(mount, parent),
		.to = node_of(mount, to),
		.name = name,
		.to_name = to_name,
		.flags = flags & RENAME_NOREPLACE ? REEF_FILE_NOREPLACE : 0,
	};
	int rc = flags & ~(unsigned int)RENAME_NOREPLACE
			 ? -EINVAL
			 : desk_run(mount, true, run_rename, &question);

	fuse_reply_err(request, desk_errno(rc));
}

/* --- folders --- */

/* What a folder had in it when it was read from its beginning. */
struct listing {
	struct mount *mount;
	struct reef_file_id folder;
	struct listed {
		char name[256];
		struct reef_file_about about;
	} * rows;
	size_t count, room;
};

static int note_row(void *context, const char *name,
		    const struct reef_file_about *about)
{
	struct listing *listing = context;
	size_t room = listing->room ? 2 * listing->room : 64;
	struct listed *rows;

	if (listing->count == listing->room) {
		rows = realloc(listing->rows, room * sizeof(*rows));
		if (!rows)
			return -ENOMEM;
		listing->rows = rows;
		listing->room = room;
	}
	rows = &listing->rows[listing->count++];
	snprintf(rows->name, sizeof(rows->name), "%s", name);
	rows->about = *about;
	return 0;
}

static int run_list(struct desk *desk, void *context)
{
	struct listing *listing = context;
	struct reef_file_about about = {.type = REEF_FILE_FOLDER};
	int rc;

	listing->count = 0;
	rc = note_row(listing, ".", &about);
	if (!rc)
		rc = note_row(listing, "..", &about);
	return rc ? rc
		  : reef_files_list(desk->files, listing->folder, NULL,
				    note_row, listing);
}

static void op_opendir(fuse_req_t request, fuse_ino_t number,
		       struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct listing *listing = calloc(1, sizeof(*listing));

	if (!listing) {
		fuse_reply_err(request, ENOMEM);
		return;
	}
	listing->mount = mount;
	listing->folder = node_of(mount, number)->id;
	info->fh = (uintptr_t)listing;
	if (fuse_reply_open(request, info))
		free(listing);
}

static void op_releasedir(fuse_req_t request, fuse_ino_t number,
			  struct fuse_file_info *info)
{
	struct listing *listing = (struct listing *)(uintptr_t)info->fh;

	(void)number;
	free(listing->rows);
	free(listing);
	fuse_reply_err(request, 0);
}

static void op_readdir(fuse_req_t request, fuse_ino_t number, size_t size,
		       off_t at, struct fuse_file_info *info)
{
	struct listing *listing = (struct listing *)(uintptr_t)info->fh;
	char *bytes = malloc(size);
	int rc = bytes ? 0 : -ENOMEM;
	size_t done = 0, some;
	struct stat stat;

	(void)number;
	if (!rc && !at)
		rc = desk_run(listing->mount, false, run_list, listing);
	for (size_t i = (size_t)at; !rc && i < listing->count; i++) {
		mount_fill(listing->mount, &listing->rows[i].about, &stat);
		some = fuse_add_direntry(request, bytes + done, size - done,
					 listing->rows[i].name, &stat,
					 (off_t)i + 1);
		if (some > size - done)
			break;
		done += some;
	}
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		fuse_reply_buf(request, bytes, done);
	free(bytes);
}

/* --- room --- */

struct room {
	struct mount *mount;
	struct reef_space_info info;
};

static int run_room(struct desk *desk, void *context)
{
	struct room *room = context;

	return desk_space(room->mount, desk, &room->info);
}

/* A space without a quota ends where the pool does, which nobody knows: so much
 * again as it has, and some, is free. */
static void op_statfs(fuse_req_t request, fuse_ino_t number)
{
	struct mount *mount = mount_of(request);
	struct room room = {.mount = mount};
	int rc = desk_run(mount, false, run_room, &room);
	uint64_t all = room.info.quota;
	struct statvfs out = {.f_bsize = BLOCK,
			      .f_frsize = BLOCK,
			      .f_namemax = REEF_FILE_NAME_MAX};

	(void)number;
	if (rc) {
		fuse_reply_err(request, desk_errno(rc));
		return;
	}
	if (!all)
		all = 2 * room.info.used + (UINT64_C(1) << 40);
	out.f_blocks = all / BLOCK;
	if (all > room.info.used)
		out.f_bfree = out.f_bavail = (all - room.info.used) / BLOCK;
	out.f_files = out.f_ffree = out.f_favail = UINT32_MAX;
	fuse_reply_statfs(request, &out);
}

static void op_init(void *context, struct fuse_conn_info *connection)
{
	const struct mount *mount = context;

	connection->max_write = REQUEST_MAX;
	connection->max_read = REQUEST_MAX;
	connection->time_gran = 1;
	/* Two mounts may write the same file. */
	connection->want &= ~FUSE_CAP_WRITEBACK_CACHE;
	if (!mount->options->alone)
		return;
	connection->want |= connection->capable & FUSE_CAP_WRITEBACK_CACHE;
	connection->max_background = BACKGROUND;
	connection->congestion_threshold = BACKGROUND / 4 * 3;
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.open = data_open,
	.read = data_read,
	.write = data_write,
	.flush = data_flush,
	.release = data_release,
	.fsync = data_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.releasedir = op_releasedir,
	.statfs = op_statfs,
	.create = op_create,
	.fallocate = data_fallocate,
	.lseek = data_lseek,
};
