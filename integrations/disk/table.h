/* table.h - what the processes of one user on one machine tell each other of
 * the files that they read through a cover (pages.h): a table in shared memory.
 *
 * The pool is told of writes, but may be out of anybody's reach. So whether a
 * file's pages in the pool may be believed is said here, where no write can
 * miss it:
 *
 * (1) A file is *trusted* while `cleared` is one more than `begun`. Whoever
 *     reads a page from the pool looks at that before and after.
 * (2) A write that the pool is told of page by page (a *told* one) needs
 *     nothing here. Any other write adds one to `begun` before it, so that the
 *     file is not trusted, and one to `ended` after it.
 * (3) A file becomes trusted when somebody has seen `begun` and `ended` equal,
 *     then has compared the file's state with what was noted for its
 *     generation, or renewed that: `cleared` becomes one more than what `begun`
 *     was. One that was not trusted before, or that others were found to have
 *     written (`cleared` is 0), needs a settled state (disk.h): what others
 *     have written to it a moment ago they may go on to write. Who dies in
 *     between (2) leaves the file without trust for as long as the table
 *     lives.
 * (4) Files that have no place in the table are trusted by nobody. Writes to
 *     them are counted together; a file gets trust only when none of them is
 *     under way, as it may be one to that file.
 * (5) The first who has the table begins with an empty one: no file is trusted,
 *     and what was noted of each decides.
 * (6) `print` is made of the file's state: odd when that was noted; 2 above a
 *     multiple of 4 when a write that was told has left it so, of which nothing
 *     is noted yet. It is another multiple of 4 while writes are told, or after
 *     several at once. A file that looks otherwise than its `print` was written
 *     by somebody who has not said so.
 * (7) Where there is no room the place of a file whose path is gone becomes
 *     another file's, if nobody writes that file: `begun` goes on, so that who
 *     reads sees it, and looks whose place it was in the end. Who writes adds
 *     to `telling` first, and looks then.
 *
 * Thread: any. */
#ifndef REEF_DISK_TABLE_H
#define REEF_DISK_TABLE_H

#include <reef/pages.h>
#include <stdatomic.h>

#define TABLE_SLOTS 16384u /* files; 256 bytes each */

struct table_slot {
	_Atomic uint32_t is_made; /* enum in table.c */
	_Atomic uint32_t begun, ended, cleared;
	_Atomic uint64_t print;	  /* (6) */
	_Atomic uint32_t tells;	  /* writes that were told */
	_Atomic uint32_t telling; /* writes under way, or died in */
	/* What reads were worth, less what writes have cost: below 0 the pool
	 * is not told of writes any more. */
	_Atomic int64_t credit;
	_Atomic uint64_t renewed_ms; /* last, without being noted */
	struct reef_page_file file;
	char path[176]; /* that it had at first; "": a longer one */
};
_Static_assert(sizeof(struct table_slot) == 256, "a slot has its size");

/* What all have done since the table was empty. */
struct table_counts {
	_Atomic uint64_t hits, misses, disk_reads, fills;
	_Atomic uint64_t told, untold; /* writes */
	_Atomic uint64_t validated;    /* files that became trusted */
	_Atomic uint64_t renewed;      /* of them, with a new generation */
	_Atomic uint64_t foreign;      /* files that somebody else wrote */
	_Atomic uint64_t verified;     /* hits that were compared */
	_Atomic uint64_t differed;     /* of them, those that were wrong */
	_Atomic uint64_t failures;     /* of the pool */
	_Atomic int64_t last_error;    /* -errno of the last of them */
};

struct table {
	_Atomic uint64_t version;
	_Atomic uint32_t begun, ended; /* (4) */
	struct table_counts counts;
	_Atomic uint32_t used; /* slots */
	struct table_slot slots[TABLE_SLOTS];
};

/* Attach to the table of that name (letters, digits, '-'), and make it if there
 * is none. *lock is a descriptor that is to stay open as long as it is used:
 * (5). A forked child attaches anew.
 * -EACCES: it is another's.  -errno. */
int table_attach(const char *name, struct table **out, int *lock);
/* Whose tables this process has: the user that it was when it first asked. It
 * may be another since, and goes on with what others know of, too. */
uint32_t table_user(void);
/* Where it is. */
void table_path(const char *name, char out[160]);
/* The same to look only: no table is made, and nobody is kept from emptying it.
 * -ENOENT: there is none. */
int table_look(const char *name, const struct table **out);
/* Its file, of which the lock is a new one. For a forked child.
 * -EWOULDBLOCK: the last of its users is ending. */
int table_lock_again(const char *name);
void table_detach(const struct table *table, int lock);
/* True if nobody else is attached, until table_detach. */
bool table_is_last(int lock);
/* The last gives back the memory of all places; what was counted can still be
 * looked at. */
void table_fold(int lock);

/* Find the place of a file. NULL: it has none. path: give it one; NULL: there
 * is no room: (7). */
struct table_slot *table_find(struct table *table,
			      const struct reef_page_file *file,
			      const char *path);

/* (7): true if a place is still that file's. Before `begun` is compared. */
bool table_is_of(struct table_slot *slot, const struct reef_page_file *file);
/* Keep a place for its file, until it is let go. False: it is another's. */
bool table_hold(struct table_slot *slot, const struct reef_page_file *file);
void table_let_go(struct table_slot *slot);

/* (1): *begun is what to compare with afterwards. */
static inline bool table_trusts(const struct table_slot *slot, uint32_t *begun)
{
	*begun = atomic_load(&slot->begun);
	return atomic_load(&slot->cleared) == *begun + 1;
}

/* (2), for a file that has a place and for one that has none. */
static inline void table_begin(struct table *table, struct table_slot *slot)
{
	atomic_fetch_add(slot ? &slot->begun : &table->begun, 1);
}
static inline void table_end(struct table *table, struct table_slot *slot)
{
	atomic_fetch_add(slot ? &slot->ended : &table->ended, 1);
}

#endif
