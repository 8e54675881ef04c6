/* recover.c - what a dead session left: is a block still part of a file?
 *
 *   inode    if it has a link, and, as long as that is its first one, the
 *            directory has it under the name that it was made with: every other
 *            link was given by an entry that is there. A scratch file ends with
 *            its session.
 *            A folder that is GONE is none, nor is what was put into it.
 *   intent   never: but the rename is brought to its end
 *   index    if its inode lives and names it
 *   chunk    if its inode lives, and its word names it
 *
 * What only lost memory could name is not live: nobody can find it any more.
 * (R10) A block that says nonsense of itself is part of nothing. */
#include "file/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

/* True if what would name a block is gone for good, or never was there. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || rc == -ERANGE || index_is_nonsense(rc);
}

/* 1: the folder in which an inode was made is there. */
static int is_folder_there(struct reef *reef, const struct file_folder *folder)
{
	struct file_head head;
	int rc;

	if (!folder->at)
		return 1;
	rc = file_read_inode(reef, folder->at, &head);
	if (rc < 0)
		return is_gone(rc) ? 0 : rc;
	return rc && head.id == folder->number && head.link &&
	       head.flags & FILE_IS_FOLDER && !(head.size & FOLDER_GONE);
}

/* 1: the directory has the inode under the name that it was made with. */
static int is_in_directory(struct reef_space *space, uint64_t address,
			   const struct file_inode *inode)
{
	const struct file_place place = {inode->folder, inode->name};
	struct reef *reef = reef_space_handle(space);
	struct file_binding binding;
	struct reef_files files;
	int rc = is_folder_there(reef, &inode->folder);

	if (rc != 1)
		return rc;
	rc = file_open_directory(space, REEF_TREE_EXISTING, &files);
	if (rc)
		return rc == -ENOENT || is_gone(rc) ? 0 : rc;
	reef_enter(reef);
	rc = file_look_up(&files, &place, false, &binding);
	reef_leave(reef);
	file_close_directory(&files);
	if (rc && binding.has_entry && is_gone(rc))
		rc = 0;
	if (rc || !binding.has_entry)
		return is_gone(rc) ? 0 : rc;
	/* As the former of a rename under way it has its name still. */
	return (binding.entry.inode == address &&
		binding.entry.link == inode->head.id) ||
	       (file_former_of(&binding.entry) == address &&
		binding.entry.former_link == inode->head.id);
}

/* 1: a scratch file's session has ended. */
static int is_over(struct reef *reef, const struct file_head *head)
{
	enum reef_session_view view;
	int rc;

	if (!(head->flags & FILE_IS_SCRATCH))
		return 0;
	rc = reef_session_check(reef, head->session, &view);
	return rc ? rc : view == REEF_VIEW_ENDED;
}

static int inode_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct file_inode inode;
	size_t size = offsetof(struct file_inode, direct);
	int rc = reef_read(reef, address, &inode, size);

	if (rc)
		return is_gone(rc) ? 0 : rc;
	inode.name[sizeof(inode.name) - 1] = '\0';
	if (!file_is_head(&inode.head) || inode.head.crc != file_crc(&inode) ||
	    !inode.head.link)
		return 0;
	rc = is_over(reef, &inode.head);
	if (rc == 1 && REEF_MUTATED(FILE_SCRATCH_OPEN))
		return 0;
	if (rc == 1) {
		/* Whoever has it open must not take what comes there for it. */
		rc = file_destroy(space, address, inode.head.link);
		return rc == 1 ? 0 : rc ? rc : -EAGAIN;
	}
	if (rc)
		return rc;
	if (inode.head.flags & FILE_IS_FOLDER && inode.head.size & FOLDER_GONE)
		return 0;
	if (inode.head.link != inode.head.id)
		return 1;
	rc = is_in_directory(space, address, &inode);
	if (rc)
		return rc;
	/* Nobody finds it, but one who did may have it open. */
	rc = file_destroy(space, address, inode.head.link);
	return rc < 0 ? rc : rc == 1 ? 0 : -EAGAIN;
}

/* Look at the word of an inode, or of an index block, that would name a block.
 */
static int is_named(struct reef_space *space, uint64_t at, uint64_t address)
{
	uint64_t word, block;
	int rc = reef_short_address(space, address, &block);

	if (!rc)
		rc = reef_read(reef_space_handle(space), at, &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return file_word_block(word) == block;
}

/* Read of which file a block is. 1: of one that lives. */
static int read_part(struct reef *reef, struct reef_space *space,
		     uint64_t address, uint64_t magic, struct file_part *part)
{
	struct file_head head;
	int rc = reef_read(reef, address, part, sizeof(*part));

	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (part->magic != magic || part->number >= FILE_CHUNKS_MAX)
		return 0;
	rc = reef_read(reef, part->inode, &head, sizeof(head));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (!file_is_head(&head) || head.id != part->id || !head.link)
		return 0;
	return inode_is_live(reef, space, part->inode);
}

static int index_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct file_part part;
	int rc = read_part(reef, space, address, FILE_INDEX_MAGIC, &part);

	if (rc != 1 || part.number >= FILE_INDEXES)
		return rc == 1 ? 0 : rc;
	return is_named(space,
			part.inode + offsetof(struct file_inode, indexes) +
				8 * part.number,
			address);
}

static int chunk_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct reef_file file = {0};
	struct file_part part;
	struct file_head head;
	uint64_t at = 0;
	int rc = read_part(reef, space, address, FILE_CHUNK_MAGIC, &part);

	if (rc != 1)
		return rc;
	reef_enter(reef);
	rc = reef_read(reef, part.inode, &head, sizeof(head));
	if (!rc)
		rc = file_init(&file, space, part.inode, &head);
	if (!rc)
		rc = file_take_head(&file, &head);
	if (!rc)
		rc = file_word_at(&file, part.number, false, &at);
	if (!rc)
		rc = at ? is_named(space, at, address) : 0;
	reef_leave(reef);
	free(file.known);
	return rc == -REEF_EDROPPED || is_gone(rc) ? 0 : rc;
}

/* A rename whose caller died is brought to its end; then nothing is left of the
 * intent. */
static int intent_is_live(struct reef *reef, struct reef_space *space,
			  uint64_t address)
{
	struct file_intent intent;
	int rc = reef_read(reef, address, &intent, sizeof(intent));

	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (REEF_MUTATED(FILE_INTENT_LEFT))
		return 0;
	rc = file_finish_intent(space, &intent);
	return is_gone(rc) ? 0 : rc;
}

/* All of them are published, or freed, inside the reef_enter in which they are
 * allocated. */
static const struct reef_kind_ops inodes = {
	.name = "file inode",
	.is_quick = true,
	.is_live = inode_is_live,
};
static const struct reef_kind_ops indexes = {
	.name = "file index",
	.is_quick = true,
	.is_live = index_is_live,
};
static const struct reef_kind_ops chunks = {
	.name = "file chunk",
	.is_quick = true,
	.is_live = chunk_is_live,
};

static const struct reef_kind_ops intents = {
	.name = "file intent",
	.is_quick = true,
	.is_live = intent_is_live,
};

void file_kinds_register(void)
{
	reef_kind_register(REEF_BLOCK_FILE_INTENT, &intents);
	reef_kind_register(REEF_BLOCK_FILE_INODE, &inodes);
	reef_kind_register(REEF_BLOCK_FILE_INDEX, &indexes);
	reef_kind_register(REEF_BLOCK_FILE_CHUNK, &chunks);
}
