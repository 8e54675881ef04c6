/* through.h - files on disk, read through a cover of a pool (pages.h) by any
 * number of processes of one user on one machine, and written to the disk.
 *
 * (1) Nothing that the pool does, or does not do, is an error for whoever reads
 *     or writes: without it every read is the disk's.
 * (2) A read is never older than a write that has returned, to any process that
 *     comes by here: the pool is told of a write page by page before and after,
 *     or the file loses its trust (table.h) before it is written.
 * (3) Programs that do not come by here may write a file while nobody has it
 *     open here, or while nobody here writes it: its state tells (disk.h).
 * (4) What is known of a file is asked of the kernel at each call, by its
 *     descriptor: so duplicates, inherited ones and those that came by a socket
 *     are all the same.
 *
 *   read:   through_read --false--> read it yourself
 *   write:  through_begin --> write it --> through_end
 *
 * Thread: any. A signal's handler may call, also while it interrupts a call. */
#ifndef REEF_DISK_THROUGH_H
#define REEF_DISK_THROUGH_H

#include "integrations/disk/disk.h"
#include "integrations/disk/table.h"

#include <sys/types.h>

#define THROUGH_PAGES_MAX 64u /* of one read, or of one write that is told */
#define THROUGH_DIRECTORIES_MAX 16u

struct through_options {
	/* Whose files: real paths, to NULL. Texts stay the caller's. */
	const char *directories[THROUGH_DIRECTORIES_MAX + 1];
	const char *pool, *credential, *token, *program; /* may be NULL */
	const char *space, *cover;
	uint64_t size_max;  /* of a new cover; 0: pages.h's */
	uint32_t page_size; /* 0: 8 KiB */
	bool verify;	    /* compare each hit with the disk */
	bool is_calm;	    /* nobody changes memory that is being written */
	/* How the file itself is reached, past whoever stands before it. */
	ssize_t (*pread)(int fd, void *to, size_t size, off_t at);
	/* A hit was not what is on disk; the file is not cached any more. May
	 * be NULL. */
	void (*differs)(const char *path, uint64_t page);
};

/* Begin; once in a process, before any other call. The pool and the table are
 * opened when they are needed. */
void through_init(const struct through_options *options);
/* Leave the pool; notes what was written, if this process is the last. */
void through_fini(void);
/* The name of the table that a cover has on this machine. */
void through_table_name(const char *space, const char *cover,
			uint32_t page_size, char out[100]);

/* True inside a call of the pool's library, and in its threads, which say so
 * themselves. */
bool through_is_inside(void);
void through_stay_inside(void);

/* Before the program closes descriptors, and after that: the pool is left first
 * if some are the library's, which the program does not know. */
void through_closing(unsigned first, unsigned last);
void through_closed(unsigned first, unsigned last);

/* Read from the pool. False: nothing was done, read the file. *got is what
 * pread would have returned, never negative. */
bool through_read(int fd, void *to, size_t size, uint64_t at, ssize_t *got);

enum through_how {
	THROUGH_TOLD,	/* that range of the file; if `pwrite` would write there
			 */
	THROUGH_UNTOLD, /* some change of it */
	THROUGH_OFF,	/* changes that nobody sees end: it is not cached */
	THROUGH_MAPPED, /* the same by memory, of which its times do not tell
			 * either: also if it comes to be ours later, by
			 * another name */
};

/* A write that is under way. Its thread is not cancelled before it has ended:
 * others would wait for that. */
struct through_write {
	int cancel;		 /* as the thread had it */
	struct table_slot *slot; /* NULL: the file has none */
	bool is_counted;	 /* table_begin was called */
	struct desk *desk;	 /* told: the pool's handle */
	int fd;			 /* told */
	bool is_direct;		 /* past the kernel's cache */
	struct reef_page_file file;
	uint64_t at, size;
	uint32_t count;
	uint64_t tokens[THROUGH_PAGES_MAX];
};
/* Before a file is changed: the one that is open as fd or, where path is not
 * NULL, that path's, if there is one. */
void through_begin(struct through_write *write, int fd, const char *path,
		   enum through_how how, uint64_t at, size_t size);
/* After that. bytes: what was written, if THROUGH_TOLD; NULL: not in one piece.
 * done: how much of it, or less than 0. errno stays what it is. */
void through_end(struct through_write *write, const void *bytes, ssize_t done);

#endif
