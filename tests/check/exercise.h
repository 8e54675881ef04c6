/* exercise.h - an exerciser of files: random calls, and beside them a model
 * that knows what each has to leave.
 *
 * A few files in a few folders are created, read, written, appended to, made
 * longer and shorter, punched, renamed and deleted. What the calls are made on
 * is a *face*: the library, a mounted directory, a block device. One exercise
 * may pass from client to client, also between two steps of one that died.
 *
 * (1) A call that returned left what the model has.
 * (2) A call that ended in doubt, or whose caller died, is settled: what it was
 *     to change is read; each aligned word must be as before or as after, and
 *     what is found is the model's from then on. Whoever settles for the dead
 *     does so once nothing of theirs can happen any more.
 * (3) The same seed makes the same calls, as long as they have the same
 *     results.
 * (4) Its maker may die at any instruction, also while it changes the model:
 *     `stage` tells how far the call had come, and what is done to the model
 *     can be done again.
 *
 * It has no pointers, so that it can lie in a file that outlives its process.
 *
 * Thread: one at a time. */
#ifndef REEF_TESTS_EXERCISE_H
#define REEF_TESTS_EXERCISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXERCISE_FOLDERS 3u /* the first is always there */
#define EXERCISE_LEAVES 3u
#define EXERCISE_NAMES (EXERCISE_FOLDERS * EXERCISE_LEAVES)
/* Of a file: with chunks of 4 KiB more than an inode names itself. */
#define EXERCISE_SIZE (100u * 4096)
#define EXERCISE_LOG 24u

enum exercise_verdict {
	EXERCISE_WRONG, /* it must not be */
	EXERCISE_DOUBT, /* the call happened, or not */
	EXERCISE_GONE,	/* that, and its maker can make no more */
};

/* What is done by a call. Zero or a count of bytes, or -errno; a member that is
 * NULL is not called. name: below EXERCISE_NAMES, in the folder name /
 * EXERCISE_LEAVES; file: which file the name has, so that one that is open can
 * be told from another that has its name now. */
struct exercise_face {
	ssize_t (*read)(void *context, uint32_t name, uint64_t file, void *to,
			size_t size, uint64_t at);
	ssize_t (*write)(void *context, uint32_t name, uint64_t file,
			 const void *from, size_t size, uint64_t at);
	/* *at: where. */
	ssize_t (*append)(void *context, uint32_t name, uint64_t file,
			  const void *from, size_t size, uint64_t *at);
	int (*truncate)(void *context, uint32_t name, uint64_t file,
			uint64_t size);
	int (*punch)(void *context, uint32_t name, uint64_t file, uint64_t at,
		     uint64_t size);
	/* -ENOENT: there is none. */
	int (*size)(void *context, uint32_t name, uint64_t file,
		    uint64_t *size);
	int (*create)(void *context, uint32_t name, uint64_t file);
	int (*rename)(void *context, uint32_t from, uint32_t to);
	int (*remove)(void *context, uint32_t name);
	/* NULL: no folder but the first is used. */
	int (*make_folder)(void *context, uint32_t folder);
	int (*remove_folder)(void *context, uint32_t folder);
	/* What an error means that was not expected. */
	enum exercise_verdict (*judge)(void *context, int rc);
	/* The one name there is, of that size, which stays; 0: many. */
	uint64_t device;
};

enum exercise_kind {
	EXERCISE_NONE,
	EXERCISE_READ,
	EXERCISE_WRITE,
	EXERCISE_APPEND,
	EXERCISE_TRUNCATE,
	EXERCISE_PUNCH,
	EXERCISE_CREATE,
	EXERCISE_RENAME,
	EXERCISE_REMOVE,
	EXERCISE_MAKE_FOLDER,
	EXERCISE_REMOVE_FOLDER,
	EXERCISE_KINDS,
};

struct exercise_op {
	uint32_t kind, name, to; /* to: of a rename; of folders: which */
	uint64_t at, size, number;
};

struct exercise_file {
	uint64_t id; /* the number of the call that made it; 0: there is none */
	uint64_t size;
	uint8_t bytes[EXERCISE_SIZE]; /* of one that is: zeroes behind the size
				       */
};

enum exercise_stage {
	EXERCISE_IDLE,	    /* no call is under way */
	EXERCISE_UNDER_WAY, /* `op` happened, or not */
	EXERCISE_DONE,	    /* it did; the model has it in part */
};

struct exercise {
	uint64_t seed, random;
	uint64_t number; /* of the last op */
	uint64_t doubts; /* calls that were settled */
	bool has_gaps;	 /* a link that falls may cost an append a place */
	uint32_t stage;
	struct exercise_op op; /* unless IDLE */
	bool folders[EXERCISE_FOLDERS];
	struct exercise_file files[EXERCISE_NAMES];
	struct exercise_op log[EXERCISE_LOG];
	uint64_t counts[EXERCISE_KINDS];
	uint8_t found[EXERCISE_SIZE]; /* what was read */
	char error[1024];	      /* what was wrong */
};

/* A new exercise: no files, no folders but the first. */
void exercise_init(struct exercise *exercise, uint64_t seed,
		   const struct exercise_face *face);
/* Make one call and look what it did. -EXDEV: something was wrong, which
 * exercise->error tells, with the calls before it. Another error: the caller is
 * gone, and another is to settle the call. */
int exercise_step(struct exercise *exercise, const struct exercise_face *face,
		  void *context);
/* Settle a call that its maker did not see return; none under way is fine.
 * -EXDEV.  Another error: it is in doubt still. */
int exercise_settle(struct exercise *exercise, const struct exercise_face *face,
		    void *context);
/* Compare everything. -EXDEV. */
int exercise_check(struct exercise *exercise, const struct exercise_face *face,
		   void *context);
/* Write the name of a file, or of a folder, as a path. */
void exercise_path(uint32_t name, char path[32]);
void exercise_folder_path(uint32_t folder, char path[32]);

#endif
