/* pages.h - a cache of pages of files that live elsewhere, on a disk: losing it
 * costs time, never data.
 *
 * A *cover* is a named set of files whose pages are cached in one place, with
 * one size of a page and one limit. Its clients read and change it by one-sided
 * operations alone. The file itself is read and written by the caller: the
 * cache says when a page of it need not be read, and is told before and after
 * it is written.
 *
 *	read:   get --0--> the page
 *	           `-ENOENT--> read the file --> fill, if there is a token
 *	write:  begin --> write the file --> write, page by page
 *	                                        `-ESTALE--> renew
 *	cut:    change(the call that cuts the file)
 *
 * (1) A file's pages are found through its *generation*, which is looked at in
 *     the same round trip as the page: a renewed generation makes all older
 *     pages unreachable, at once and for everybody. A file that has none is
 *     not cached; reef_pages_renew gives it one.
 * (2) A miss leaves a reader's marker for a second, whose version is the token:
 *     a fill is kept only if the marker is still there. So what was read from
 *     the file before somebody wrote to it is never kept.
 * (3) Before the file is written there is a writer's marker for each page:
 *     everybody misses, nobody fills. It neither expires nor is evicted.
 * (4) A write may be told to the program when reef_pages_write has returned 0,
 *     or reef_pages_renew has, after the file was written, in another session
 *     if this one has ended: then nobody gets an older page any more. (So it is
 *     after another reef_pages_begin, whose pages are then ended without being
 *     kept: others' writes do not notice that.) Should
 *     the writer die before, whoever finds its marker renews the generation
 *     once its session has ended. (An ended session is kept from the pool, not
 *     from the disk: a process that stood still may write the file long after
 *     others have read it. It learns from reef_pages_write that it has to
 *     renew.)
 * (5) Files are told apart by file system, inode and time of birth, as the
 *     caller tells them: an inode that is used again is another file.
 * (6) What changes a file otherwise (truncate, a write that was not begun) does
 *     so inside reef_pages_change, or between reef_pages_suspend and
 *     reef_pages_renew.
 * (7) One machine at a time writes under a cover: that of the session which
 *     opened it first with REEF_PAGES_WRITER, until that one has ended, and a
 *     process of another opens it so.
 * (8) A *note* is what the caller knows a file by at some moment (size, times):
 *     it counts only for the generation that it was made for.
 * (9) In the space's memory nothing is kept that is not elsewhere: make the
 *     space revocable (REEF_SPACE_REVOCABLE), so that lenders can take it back.
 *     A page that is lost is a miss; a cover that is lost is made anew, empty.
 *
 * Whatever error reef_pages_get returns, the caller reads the file. Errors that
 *every call may return, besides those of access (reef.h): -EBUSY, -ENOMEM,
 *-REEF_ECORRUPT, as map.h has them.
 *
 * Thread: owner of the handle; its fibers may share an open cover. */
#ifndef REEF_PAGES_H
#define REEF_PAGES_H

#include <reef/reef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_pages;

enum reef_pages_flags {
	REEF_PAGES_EXISTING = 1, /* do not make the cover */
	REEF_PAGES_WRITER = 2,	 /* this machine writes: (7) */
};

/* Zero means the default. */
struct reef_pages_options {
	uint32_t flags;
	/* Fixed when the cover is made: */
	uint32_t page_size; /* bytes, 512 to 1 MiB, a power of two; 4,096 */
	uint64_t size_max;  /* bytes that it may take, roughly; 1 GiB */
	/* This handle's: */
	uint32_t remember;   /* pages whose place it remembers, so that a hit is
			      * one round trip; 65,536 (48 bytes each) */
	uint8_t machine[16]; /* with REEF_PAGES_WRITER: which one this is */
};

/* A file. The UUID of its file system, or what else tells it from all others;
 * its inode; when it was made. */
struct reef_page_file {
	uint8_t filesystem[16];
	uint64_t inode, born_ns;
};

/* Open a cover, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space.
 * -ENOENT: there is none, with REEF_PAGES_EXISTING.  -EEXIST: the name is
 * something else's.  -EINVAL: no name, an unknown flag, a size that is none, or
 * another page_size than the cover's.  -ENAMETOOLONG.  -EBUSY: another machine
 * writes under it, with REEF_PAGES_WRITER.  -EACCES, -ENOSPC, -EDQUOT: it
 * cannot be made. */
REEF_API int reef_pages_open(struct reef_space *space, const char *cover,
			     const struct reef_pages_options *options,
			     struct reef_pages **out);
/* Close a cover, and free what the handle has of it. NULL is fine. */
REEF_API void reef_pages_close(struct reef_pages *pages);
/* Drop a cover with all its pages.  -ENOENT: there is none.  -EEXIST: the name
 * is something else's. */
REEF_API int reef_pages_drop(struct reef_space *space, const char *cover);

/* --- reading --- */

/* Get a page; `to` has room for one. One round trip, if its place is
 * remembered.
 * -ENOENT: it is not cached: read the file. *token: to fill with; 0: do not,
 * because somebody else fills it, or writes it.  -ENODATA: the file has no
 * generation: (1). */
REEF_API int reef_pages_get(struct reef_pages *pages,
			    const struct reef_page_file *file, uint64_t page,
			    void *to, uint64_t *token);
/* Keep a page that was read from the file after its token was given.  -ESTALE:
 * somebody has written it since, or more than a second has passed; it is not
 * kept. No error matters to the caller: it has the page. */
REEF_API int reef_pages_fill(struct reef_pages *pages,
			     const struct reef_page_file *file, uint64_t page,
			     uint64_t token, const void *bytes);

/* --- writing --- */

/* Begin to write `count` pages from `first` on; returns before the file may be
 * written. tokens: `count` of them, for reef_pages_write.
 * -EPERM: another machine writes under the cover: (7).  -EINVAL: not opened
 * with REEF_PAGES_WRITER, or count is 0.  -ENOSPC, -EDQUOT: there is no room
 * for markers, so the file is suspended: it may be written, and is to be
 * renewed afterwards; a writer that dies between may leave older pages with
 * whoever renewed it meanwhile.  After any other error the file should not be
 * written. */
REEF_API int reef_pages_begin(struct reef_pages *pages,
			      const struct reef_page_file *file, uint64_t first,
			      uint32_t count, uint64_t *tokens);
/* Keep a page that was begun, after it was written to the file; bytes NULL: end
 * that without keeping it, as a part of it was written, or nothing.  -ESTALE:
 * its marker was not there any more; renew the file.  After any other error,
 * too; after -REEF_EFENCED in another session. */
REEF_API int reef_pages_write(struct reef_pages *pages,
			      const struct reef_page_file *file, uint64_t page,
			      uint64_t token, const void *bytes);

/* Give a file a new generation: all its pages are gone. Where there is no room
 * for one it has none afterwards, and is not cached. */
REEF_API int reef_pages_renew(struct reef_pages *pages,
			      const struct reef_page_file *file);
/* Take a file's generation away: until it is renewed, by anybody, it is not
 * cached. For a file that is gone, or that somebody writes by ways that are not
 * told. */
REEF_API int reef_pages_suspend(struct reef_pages *pages,
				const struct reef_page_file *file);
/* Suspend a file, call `change`, which may change it in any way, and renew it.
 * Returns what `change` did if that is not 0. An error of the pool before it:
 * `change` is not called. One after it: renew. *changed (may be NULL) tells
 * which. */
REEF_API int reef_pages_change(struct reef_pages *pages,
			       const struct reef_page_file *file,
			       int (*change)(void *context), void *context,
			       bool *changed);

/* --- notes --- */

#define REEF_PAGES_NOTE_MAX 64u
/* Note what a file is known by, for the generation that this handle knows, from
 * its last call on that file.  -ENOENT: it knows none.  -EINVAL: longer than
 * REEF_PAGES_NOTE_MAX. */
REEF_API int reef_pages_note(struct reef_pages *pages,
			     const struct reef_page_file *file,
			     const void *note, size_t size);
/* Compare with what was noted. 0: it is that, for the file's generation.
 * -ESTALE: it is something else.  -ENOENT: nothing is noted for that
 * generation, or the file has none. */
REEF_API int reef_pages_compare(struct reef_pages *pages,
				const struct reef_page_file *file,
				const void *note, size_t size);

/* --- about it --- */

struct reef_pages_stats {
	/* The cover's, as whoever made it set them: */
	uint32_t page_size;
	uint64_t size_max;
	/* Of this handle since it was opened: */
	uint64_t hits, misses; /* of get */
	uint64_t fills, late;  /* kept, and not */
	uint64_t writes, lost; /* kept, and -ESTALE */
	uint64_t renewals;
	uint64_t ended; /* markers of ended sessions that were met */
	uint64_t anew;	/* times that the cover was lost, and made anew */
};
/* Tell what this handle did. Costs nothing. */
REEF_API void reef_pages_stats(const struct reef_pages *pages,
			       struct reef_pages_stats *out);

#ifdef __cplusplus
}
#endif
#endif
