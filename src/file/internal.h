/* internal.h - the parts of a file, to each other.
 *
 *   names.c     the directory: whose name is it; open, delete, list
 *   rename.c    rename, and its intents
 *   folder.c    folders, attributes, files without a name
 *   inode.c     is it there; its words; chunks that come, go and are copied
 *   transfer.c  read, write, append
 *   shape.c     truncate, punch, stat, where there is memory
 *   recover.c   what a dead session left
 *
 * Thread: owner of the handle. */
#ifndef REEF_FILE_INTERNAL_H
#define REEF_FILE_INTERNAL_H

#include "file/layout.h"
#include "index/entry/word.h"
#include "pool/client/client.h"

#include <errno.h>
#include <reef/file.h>
#include <reef/folder.h>
#include <reef/tree.h>

/* Each further attempt needs another client that changed the same word. */
#define FILE_ATTEMPTS 64u
#define FILE_WINDOW 16u /* chunks that are read or written in one batch */
/* Of what is not known: 0 is an epoch too, that of a session which has not
 * heard of any yet. */
#define FILE_NO_EPOCH UINT64_MAX
#define FILE_KNOWN_MIN 64u
#define FILE_KNOWN_MAX 65536u

/* A word that was read: of which chunk, what, and in which epoch. */
struct file_known {
	uint64_t number; /* of the chunk */
	uint64_t word;	 /* 0: nothing is known here */
	uint64_t at;	 /* address of its block's bytes */
	uint64_t epoch;
};

struct reef_file {
	struct reef_space *space;
	struct reef *reef;
	uint64_t inode, id;
	uint32_t chunk, flags, session;
	uint64_t size_max;
	/* The epoch in which it was seen to be there, with that size, or
	 * FILE_NO_EPOCH. */
	uint64_t epoch, size;
	/* Chunks whose words are known, by the lower bits of their numbers. */
	struct file_known *known;
	uint32_t known_count;
	/* Addresses of index blocks, which stay as long as the file; 0: not
	 * known. */
	uint64_t indexes[FILE_INDEXES];
};

/* --- inode.c --- */

/* A number that is given once; and the first of several. */
uint64_t file_new_link(struct reef *reef);
uint64_t file_new_links(struct reef *reef, uint32_t count);
bool file_is_chunk_size(uint32_t chunk);
/* True if what was read is the head of an inode, though perhaps not of ours. */
bool file_is_head(const struct file_head *head);
/* The checksum of what never changes in an inode. */
uint32_t file_crc(const struct file_inode *inode);
/* Do WRITEs to a block of which nobody knows yet: what is in doubt is repeated.
 */
int file_write_unshared(struct reef *reef, struct reef_access *accesses,
			uint32_t count);
/* Set up a file whose inode was read. -ENOMEM. */
int file_init(struct reef_file *file, struct reef_space *space, uint64_t at,
	      const struct file_head *head);

/* The access that reads the head again; and take in what it brought.
 * -REEF_EDROPPED. */
struct reef_access file_read_head(const struct reef_file *file,
				  struct file_head *head);
int file_take_head(struct reef_file *file, const struct file_head *head);
/* Look whether the file is there, and how long it is, unless that is known in
 * this epoch. Inside reef_enter. */
int file_look(struct reef_file *file);

/* Find the address of a chunk's word; *at 0: there is no index block for it,
 * and so no chunk. make: there is to be one. Inside reef_enter, after
 * file_look. -REEF_EDROPPED.  -ENOSPC and such. */
int file_word_at(struct reef_file *file, uint64_t number, bool make,
		 uint64_t *at);
/* What is known of a chunk; NULL: nothing. */
struct file_known *file_known(const struct reef_file *file, uint64_t number);
/* Take in a word that was read in this epoch. -REEF_EDROPPED: it is DEAD.
 * -REEF_ECORRUPT. */
int file_note_word(struct reef_file *file, uint64_t number, uint64_t word);
/* Forget what is known of a chunk. */
void file_forget(struct reef_file *file, uint64_t number);
/* The address of the bytes of a word's block. */
int file_bytes_at(struct reef_file *file, uint64_t word, uint64_t *at);

/* Put a new chunk with these bytes (the rest zeroes) in place of `word`, which
 * names none. 1: it is there.  0: another was quicker.  -errno. */
int file_install(struct reef_file *file, uint64_t number, uint64_t word,
		 const void *bytes, uint32_t offset, uint32_t length);
/* Take the chunk of a word away and free it. after: 0, or FROZEN, if others may
 * remember the chunk in this epoch. *now: what the word is then. As
 * file_install. */
int file_empty_word(struct reef_file *file, uint64_t at, uint64_t word,
		    uint64_t after, uint64_t *now);
/* Bring a FROZEN word to its end, when the epoch in which it was seen is over:
 * as file_install. */
int file_thaw(struct reef_file *file, uint64_t number, uint64_t at,
	      uint64_t word);

/* What is done with words that were READ together, inside one reef_enter. */
struct file_walker {
	/* Called once they are READ, before `each`; NULL: nothing. */
	int (*begin)(struct reef_file *file, void *context);
	int (*each)(struct reef_file *file, uint64_t number, uint64_t at,
		    uint64_t word, void *context);
	void *context;
};
/* Walk over the words of the chunks from `first` to before `end`, where there
 * are words; what is not 0 ends the walk and is returned. */
int file_walk(struct reef_file *file, uint64_t first, uint64_t end,
	      const struct file_walker *walker);

/* Take an inode away for good, if its link is still that: its words are DEAD,
 * what they name is freed. 1: done.  0: its link is another.  -errno. */
int file_destroy(struct reef_space *space, uint64_t inode, uint64_t link);

/* --- transfer.c --- */

/* Make the file that long, if it is shorter. size: its word before. Inside
 * reef_enter.  -ESTALE: it was shortened since. */
int file_extend(struct reef_file *file, uint64_t size, uint64_t end);
/* Write inside one chunk, and do not make the file longer. */
int file_write_inside(struct reef_file *file, const void *from, uint32_t size,
		      uint64_t at);

/* --- shape.c --- */

/* Bring a shrink under way to its end: after that the file can become longer.
 * Not inside reef_enter. */
int file_finish_shrink(struct reef_file *file);

/* --- names.c --- */

/* The directory of a space, open. */
struct reef_files {
	struct reef_space *space;
	struct reef_tree *tree;
	bool is_lost;	/* the tree's own memory is, or it was dropped */
	bool is_second; /* it was opened because of that */
};

/* A name in a folder. */
struct file_place {
	struct file_folder folder;
	const char *name;
};

/* What a name is at a moment. */
struct file_binding {
	bool has_entry;
	uint64_t version;	 /* of the entry */
	struct file_entry entry; /* as it is in the directory */
	uint64_t seen;		 /* the link of the entry's inode; 0: none */
	/* Whose name it is: one of the two in the entry; 0: nobody's. */
	uint64_t inode, link;
	struct file_head head; /* of that one */
};

/* -EINVAL, -ENAMETOOLONG: it cannot be the name of a file. */
int file_check_name(const char *name);
/* flags: REEF_TREE_EXISTING: do not make it; -ENOENT.  REEF_TREE_RENEW. */
int file_open_directory(struct reef_space *space, uint32_t flags,
			struct reef_files *out);
void file_close_directory(struct reef_files *files);

/* Read the head of an inode that an entry names. 0: it is none (any more);
 * 1: it is one. */
int file_read_inode(struct reef *reef, uint64_t inode, struct file_head *head);
/* See to it that a folder is there, and stays for an entry that is in it by now
 * (layout.h, 9). -ENOENT: it is gone.  -ENOTDIR. */
int file_check_gate(struct reef_files *files, const struct file_folder *folder);

/* Look a name up; 0 also: it has no entry. change: so that it can be changed
 * (names.c, 1). Inside reef_enter. */
int file_look_up(struct reef_files *files, const struct file_place *place,
		 bool change, struct file_binding *out);
/* Bind a name, whose binding is nobody's or is to be another's; *version: of
 * the entry. -EAGAIN: another client was quicker. Inside reef_enter. */
int file_bind(struct reef_files *files, const struct file_place *place,
	      const struct file_binding *binding,
	      const struct file_entry *entry, uint64_t *version);
/* Take an entry away that is nobody's name any more. What goes wrong leaves an
 * entry that counts for nothing. */
void file_drop_entry(struct reef_files *files, const struct file_place *place,
		     const struct file_binding *binding);
/* Delete or hold the file that a rename has put another in place of, unless
 * that is done. The rename has happened. 1: it is held.  0: it is not. */
int file_end_former(struct reef_space *space, const struct file_entry *entry);
/* Make a name nobody's whose look_up was -REEF_ELOST, so that it can be
 * another's: if a rename was under way, it was the lost file's, or the
 * former's, who goes.  -REEF_ELOST: the names are lost. */
int file_give_up_lost(struct reef_files *files, struct file_binding *binding);
/* True if an allocation inside reef_enter found no room, and it was waited for.
 */
bool file_await_room(struct reef_space *space, struct reef_patience *patience,
		     int *rc);

/* What a new inode has. */
struct file_wish {
	uint32_t chunk; /* 0: the default */
	uint32_t flags; /* of the inode */
	struct file_attributes attributes;
};
/* Make a file under a name, if it is nobody's; else -EEXIST. *binding: its. */
int file_make(struct reef_files *files, const struct file_place *place,
	      const struct file_wish *wish, struct file_binding *binding);
/* Delete a file. -EISDIR. */
int file_delete(struct reef_files *files, const struct file_place *place);

/* Names of a part of a folder that a scan has met. */
struct file_listing {
	const char *prefix;
	char (*names)[REEF_FILE_NAME_MAX + 1];
	uint32_t count, room;
};
/* Note the next names of a folder that begin with the listing's prefix, from
 * behind `after` on ("": all). Free names at the end. */
int file_list_names(struct reef_files *files, const struct file_folder *folder,
		    const char *after, struct file_listing *listing);

/* --- rename.c --- */

/* A file that another took the place of, and that lives on. */
struct file_held {
	uint64_t ticket; /* 0: there was none */
	struct file_folder id;
};
/* held: what it is told of; NULL: the file whose place is taken is deleted. */
int file_rename(struct reef_files *files, const struct file_place *from,
		const struct file_place *to, uint32_t flags,
		struct file_held *held);
/* Bring the rename of an intent to its end, whose session has ended. */
int file_finish_intent(struct reef_space *space,
		       const struct file_intent *intent);

/* --- folder.c --- */

/* The place of a file without a name. */
#define FILE_TICKET_SIZE 32u
struct file_place file_ticket_place(char name[FILE_TICKET_SIZE],
				    uint64_t ticket);
/* Remove a folder whose name was looked up. -EAGAIN: try again. */
int file_remove_folder(struct reef_files *files, const struct file_place *place,
		       const struct file_binding *binding);

/* --- recover.c --- */

void file_kinds_register(void);

#endif
