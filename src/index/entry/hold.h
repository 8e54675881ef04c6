/* hold.h - keys that a transaction has, whichever index has them: what src/txn
 * needs of an index.
 *
 *   found or recalled --CAS slot to `word`--> held --status decided, CAS--> let
 *                                                                           go
 * (1) A hold's addresses are good in the epoch in which its key was found, and,
 *     while its transaction is PENDING, in any reef_enter in which that was
 *     read: whoever gives its slot another place, or drops it, decides the
 *     transaction first.
 * (2) Held or not, what was found is good until the key is looked up again.
 *
 * Thread: owner of the handle. */
#ifndef REEF_INDEX_ENTRY_HOLD_H
#define REEF_INDEX_ENTRY_HOLD_H

#include "index/entry/entry.h"
#include "index/entry/intent.h"

struct hold_index;

/* One key. An index has more of it behind this. */
struct hold {
	const struct hold_index *index;
	void *structure; /* the table, or tree */
	const void *key; /* its own */
	uint32_t key_size;
	bool blind; /* the caller's: its value is not wanted */
	/* As it was found: 0.  -ENOENT: it has no slot.  -EALREADY: another
	 * transaction has it, and the entry is what counts meanwhile.  -EAGAIN:
	 * others of the transaction come first; it is to be found again.  Else:
	 * an error. */
	int status;
	struct entry entry; /* with ENTRY_GHOST: the key is not there */
	uint64_t slot_at, slot;
	uint64_t epoch; /* (1) */
	bool is_recalled;
	bool is_held;	 /* the caller's: the CAS of its slot was done */
	uint64_t line;	 /* short address of its line */
	uint64_t word;	 /* of the slot while it is held */
	uint64_t before; /* what the slot named */
	uint64_t next;	 /* what it names then */
	struct entry_fresh fresh; /* what it is to have */
};

/* Words to be compared with what was found. */
struct hold_look {
	uint64_t words[2 * 16];
	uint64_t status;
};
#define HOLD_LOOKS 3u /* READs of them */
#define HOLD_AHEAD 2u /* WRITEs before a slot is taken */

/* All inside reef_enter, but for make, free and home. */
struct hold_index {
	/* NULL: there is no memory. */
	struct hold *(*make)(void *structure, const void *key,
			     uint32_t key_size);
	void (*free)(struct hold *hold);
	/* What entries of a structure have in common. */
	struct entry_home *(*home)(void *structure);

	/* Recall where a key was found last in this epoch, and what its slot
	 * was then, without an operation; it may have changed. word: not 0:
	 * what its slot, as it was found or recalled before, was seen to be
	 * since.  1: it can be taken.  0: it has to be found.  -EALREADY:
	 * another transaction has it. */
	int (*recall)(struct hold *hold, uint64_t word);
	/* The READ of a recalled entry, to be done after the CAS of its slot.
	 * -ENOMEM. */
	int (*read)(struct hold *hold, struct reef_access *access);
	/* Complete a recalled entry whose slot is held now.  1: it is the
	 * key's.  0: it is another's. */
	int (*complete)(struct hold *hold);
	/* Forget what was recalled: the slot has changed. */
	void (*forget)(struct hold *hold);

	/* Look keys up, each with a status. to_hold: to take them then. */
	int (*find)(void *structure, struct hold **holds, uint32_t count,
		    bool to_hold);
	/* True if the key is there, as the last find left it. */
	bool (*is_there)(const struct hold *hold);
	/* True if the slot has to get another place first: it is frozen, or
	 * there is none for it. And do that; all: the transaction's holds, of
	 * this structure and others.  -EINPROGRESS: another transaction is in
	 * the way, and is waited for outside. */
	bool (*is_frozen)(const struct hold *hold);
	int (*split)(struct hold *hold, struct hold **all, uint32_t count,
		     struct intent_wait *wait);
	/* Come past another's transaction.  -EINPROGRESS: it is waited for
	 * outside.  -EAGAIN: done, look again. */
	int (*pass)(struct hold *hold, struct intent_wait *wait);

	/* Fill in what a line says of the slot that was found, and what the
	 * slot becomes.  Errors of alloc. */
	int (*prepare)(struct hold *hold, uint64_t line_block,
		       struct intent_line *line);
	/* The WRITEs that have to be done before the CAS of the slot, at most
	 * HOLD_AHEAD; and: that CAS was done; or nobody can tell, and the slot
	 * is not what it was made. */
	uint32_t (*ahead)(const struct hold *hold,
			  struct reef_access *accesses);
	void (*held)(struct hold *hold);
	void (*doubted)(struct hold *hold);
	/* Free what prepare took for a slot that is not held: before reef_leave
	 * (heap/unlinked.c, a). */
	void (*discard)(struct hold *hold);

	/* Say what a key that is held becomes; put takes a block: errors of
	 * that. */
	int (*put)(struct hold *hold, const struct entry *put);
	void (*remove)(struct hold *hold);
	/* The address of a word that is to be 0 before the commit; 0: none. */
	uint64_t (*dies)(const struct hold *hold);

	/* The CAS that lets a slot go after the commit; false: it has to be
	 * resolved slowly. And what is to be done after it was done. */
	bool (*release)(const struct hold *hold, struct reef_access *access);
	void (*released)(struct hold *hold);
	/* Let a slot go as a status says, wherever it is: by its address, if
	 * (1) says that this is good. 0: no slot names the line any more. */
	int (*resolve)(struct hold *hold, uint64_t status, bool by_address);

	/* Compare with what was found: the READs, at most HOLD_LOOKS; and, when
	 * they are done, true if all is as it was. */
	uint32_t (*look)(const struct hold *hold, struct hold_look *look,
			 struct reef_access *accesses);
	bool (*is_same)(const struct hold *hold, const struct hold_look *look);
};

/* A key that is held stays as it was found. */
static inline void hold_leave(struct hold *hold)
{
	hold->next = hold->before;
}

#endif
