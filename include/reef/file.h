/* file.h - files in the memory of a pool.
 *
 * A file is a name of a space, a size, and bytes; there are no folders. Its
 * clients read and change it by one-sided operations alone: no server has a
 * part in it. An open file belongs to the handle that opened the space; the
 * fibers of that handle may share it.
 *
 * (1) A read brings, for each aligned word of 8 bytes, what the last write that
 *     had returned before the read began put there, or something newer. Reads
 *     and writes of more than a word are not atomic: where several clients
 *     write the same range at once, each word is one of theirs.
 * (2) What nobody wrote is zeroes, up to the file's size.
 * (3) A client may die, stop or be cut off between any two operations. A write
 *     that did not return may be there in part; where it went past the end, its
 *     bytes may come to light when somebody else makes the file longer. All
 *     else has happened, or has not, and nobody waits for the dead. Memory that
 *     nobody names any more comes back.
 * (4) reef_file_truncate and reef_file_punch return when nobody can read any
 *     more what they took away. They wait for all who are inside a call:
 *     milliseconds, a lease where somebody died.
 * (5) Names are changed atomically: a name is one file's, or another's, or
 *     nobody's. Whoever has a file open that is renamed goes on with it; who
 *     has one open that was deleted, or that another was renamed over, gets
 *     -REEF_EDROPPED from every call that begins some moments later, and until
 *     then reads and writes what is nobody's.
 *
 * Errors that every call may return, besides those of access (reef.h):
 *   -ENOMEM         this process has no memory
 *   -EBUSY          other clients changed the same words at each of very many
 *                   attempts; call again
 *   -REEF_ECORRUPT  what is there is no file, or damaged
 *   -REEF_EDROPPED  (5)
 *   -REEF_ELOST     the node that has this part of the file died, or took it
 *                   back; a file whose first block is lost can be deleted,
 *                   or another renamed over it
 * Errors of every call that changes something:
 *   -EACCES         only reading is granted
 *   -ENOSPC, -EDQUOT  there is no room in the pool, or in the space's quota
 *   -REEF_EINDOUBT  the connection was lost, and it cannot be told any more
 *                   whether the change happened
 *   -ETIMEDOUT      as reef.h, (4)
 *
 * Thread: owner of the handle. */
#ifndef REEF_FILE_H
#define REEF_FILE_H

#include <reef/reef.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_file;

enum reef_file_flags {
	REEF_FILE_CREATE = 1,	 /* make it if there is none */
	REEF_FILE_EXCLUSIVE = 2, /* -EEXIST if there is one */
	REEF_FILE_SCRATCH = 4,	 /* made so: it ends with this session */
};

#define REEF_FILE_NAME_MAX 255u

/* Zero means the default. */
struct reef_file_options {
	uint32_t flags;
	/* Of a new file: bytes that lie together, a power of two from 4 KiB to
	 * 16 MiB; 256 KiB. A file has up to 4,194,400 such parts: 1 TiB. */
	uint32_t chunk;
};

/* Open a file; options may be NULL. *out is the caller's, and must be closed
 * before its space.
 * -ENOENT: there is none.  -EEXIST: there is one, with REEF_FILE_EXCLUSIVE.
 * -EINVAL: no name, "." or "..", '/' in it, an unknown flag, or a chunk that is none.
 * -ENAMETOOLONG: more than 255 bytes. */
REEF_API int reef_file_open(struct reef_space *space, const char *name,
			    const struct reef_file_options *options,
			    struct reef_file **out);
/* Close a file, and free what the handle has of it. NULL is fine. */
REEF_API void reef_file_close(struct reef_file *file);

/* Read up to `size` bytes from `at` on. Returns how many there were; 0: it is
 * at or past the end. After an error in the middle it returns what it has until
 * there. One round trip and one operation for a part that was used since the
 * pool's last epoch began, and is inside one chunk. */
REEF_API ssize_t reef_file_pread(struct reef_file *file, void *to, size_t size,
				 uint64_t at);
/* Write `size` bytes from `at` on, and make the file that long if it is
 * shorter. Returns how many were written: fewer only after an error in the
 * middle, which the next call tells. Costs as much as reef_file_pread; past the
 * end a round trip more, and one for a new chunk. -EFBIG: the file cannot be
 * that long; nothing happened. */
REEF_API ssize_t reef_file_pwrite(struct reef_file *file, const void *from,
				  size_t size, uint64_t at);
/* Write at the end, in a place that no other append gets. *at (may be NULL):
 * where. Until it returns, its place may be zeroes inside the file; if its
 * caller dies, for good. A connection that is lost meanwhile may cost it a
 * place: then zeroes lie there, and it writes behind them. Beside writes past
 * the end at the same time it may meet them.  -EFBIG. */
REEF_API ssize_t reef_file_append(struct reef_file *file, const void *from,
				  size_t size, uint64_t *at);

/* Make the file that long: what is added is zeroes, what is cut off is gone.
 * -EFBIG. */
REEF_API int reef_file_truncate(struct reef_file *file, uint64_t size);
/* Make the file that long if it is shorter: what others have put behind that
 * meanwhile stays.  -EFBIG. */
REEF_API int reef_file_extend(struct reef_file *file, uint64_t size);
/* Make `size` bytes from `at` on zeroes. Whole chunks give their memory back.
 * The size of the file stays. */
REEF_API int reef_file_punch(struct reef_file *file, uint64_t at,
			     uint64_t size);
/* Return when everything that this handle wrote is in the pool. As every write
 * is when it returns, this only looks whether the file is still there. */
REEF_API int reef_file_sync(struct reef_file *file);

struct reef_file_info {
	uint64_t size;
	uint64_t size_max; /* it cannot become longer */
	uint64_t taken;	   /* bytes of the pool, roughly */
	uint32_t chunk;
	bool scratch;
	uint32_t session; /* of a scratch file: with which it ends */
};
/* Tell what is known of a file, by reading it: not its bytes. */
REEF_API int reef_file_stat(struct reef_file *file, struct reef_file_info *out);

/* Tell how long a file is. One round trip. */
REEF_API int reef_file_size(struct reef_file *file, uint64_t *size);

/* Find the first bytes at or after `at` that have memory: *from to before *to,
 * in whole chunks but for `at` and the end of the file. What lies between such
 * bytes is zeroes, and takes none.  -ENXIO: there are none up to the end. */
REEF_API int reef_file_find_data(struct reef_file *file, uint64_t at,
				 uint64_t *from, uint64_t *to);

/* Delete a file.  -ENOENT: there is none.  -EINVAL, -ENAMETOOLONG: as open. */
REEF_API int reef_file_delete(struct reef_space *space, const char *name);

#define REEF_FILE_NOREPLACE 1u
/* Give a file another name, in place of the file that has it; a name of its own
 * changes nothing.  -ENOENT: there is no file `from`.  -EEXIST: there is one
 * called `to`, with REEF_FILE_NOREPLACE.  -EINVAL, -ENAMETOOLONG: as open. */
REEF_API int reef_file_rename(struct reef_space *space, const char *from,
			      const char *to, uint32_t flags);

/* Call `each` for every file whose name begins with prefix (NULL: every), in no
 * order; nonzero ends the list and is returned. It may call into the handle. A
 * file that is there throughout is met at least once. */
REEF_API int reef_file_list(struct reef_space *space, const char *prefix,
			    int (*each)(void *context, const char *name),
			    void *context);

#ifdef __cplusplus
}
#endif
#endif
