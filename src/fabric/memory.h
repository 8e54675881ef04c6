/* memory.h - memory that can be lent.
 *
 * (1) A memfd is sealed against shrinking and growing and has mode 0400, so
 *     that whoever is handed it can neither cut it short under others nor open
 *     it again through /proc with more rights. That holds against other users:
 *     one's own user may change the mode, as it may ptrace, and root may do
 *     anything.
 * (2) A memfd's pages are taken, cleared and mapped when it is made, 64 MiB in
 *     about 40 ms: a touch later neither fails nor waits for the kernel. They
 *     are huge if huge_pages asks and enough are reserved (hugetlb; `huge`), or
 *     as far as the machine gives shared memory transparent ones (advise,
 *     always) and has some; that much is the kernel's affair, and not told.
 * (3) Its mapping does not follow a fork, and is in no core dump: what users
 *     put there is not the business of whoever reads those.
 * (4) The atomic domain (F6) is fixed here.
 * (5) What is read_only its peers may READ and nothing else; its owner writes.
 *     A memfd then has a seal that no descriptor to it can be written or mapped
 *     writable any more, whoever has one; only the owner's mapping stays.
 * (6) A reader is a descriptor to it that was opened for reading: what is
 *     mapped from it cannot be made writable, but for (1).
 * (7) Who was passed a descriptor can keep it, and what is mapped from it, for
 *     as long as it likes. `passed` says that another process was; from such a
 *     one what is here is safe in fresh memory only (reef_memory_copy). When a
 *     memfd is destroyed its pages go, whoever has a descriptor; unless it is
 *     `kept` by another process for the next one of its owner.
 *
 * Thread: any; destroyed when no region uses it. */
#ifndef REEF_FABRIC_MEMORY_H
#define REEF_FABRIC_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

enum reef_backing {
	REEF_BACKING_MEMFD,	/* ends with the last process that maps it */
	REEF_BACKING_FILE,	/* durable after FLUSH */
	REEF_BACKING_DAX,	/* a file on persistent memory, MAP_SYNC */
	REEF_BACKING_SIMULATED, /* for sim: no descriptor */
};

struct reef_memory_options {
	uint64_t size; /* bytes; rounded up to pages */
	enum reef_backing backing;
	const char *path; /* FILE, DAX: made if absent, mode 0600 */
	uint64_t domain;  /* 0: this machine's CPUs */
	bool huge_pages;  /* MEMFD: ask for them; falls back, see `huge` */
	bool durable;	  /* SIMULATED: behave like FILE */
	bool read_only;	  /* peers may READ it and nothing else (5) */
};

struct reef_memory {
	void *base;
	uint64_t size;
	uint64_t domain;
	int fd; /* -1: none */
	bool durable;
	bool huge; /* all of it is in pages of the reserved kind */
	bool read_only;
	_Atomic bool passed; /* (7) */
	bool kept;	     /* (7) */
	enum reef_backing backing;
	uint8_t *flushed; /* SIMULATED, durable: what power would leave */
};

/* Take memory, zeroed (FILE and DAX: as the file was). Caller owns *out.
 * -ENOMEM, -ENOSPC: there is not that much.  -EINVAL: size 0 or over 2^47.
 * -EOPNOTSUPP: DAX on a file system that has none, or a kernel (before 5.1)
 * that cannot keep a memfd read_only. */
int reef_memory_create(const struct reef_memory_options *options,
		       struct reef_memory **out);
void reef_memory_destroy(struct reef_memory *memory); /* NULL is fine */
/* Take another share in memory: it goes when as many destroy it. */
struct reef_memory *reef_memory_ref(struct reef_memory *memory);

/* Take over a memfd that another process made by reef_memory_create, and that
 * has options->size bytes, in whole pages. It counts as passed (7). Caller owns
 * *out, and the descriptor belongs to it.  -REEF_EPROTO: it is not one, could
 * be cut short, or has another size; it stays the caller's then.  Else: as
 * mmap. */
int reef_memory_adopt(const struct reef_memory_options *options, int fd,
		      struct reef_memory **out);

/* Take memory as the options say and copy into it what is in `from`, which has
 * its size and which nobody changes meanwhile. Caller owns *out.  Errors as
 * reef_memory_create.  -EINVAL: another size. */
int reef_memory_copy(const struct reef_memory_options *options,
		     const struct reef_memory *from, struct reef_memory **out);

/* Open a reader (6), which the caller closes. Returns the descriptor, or
 * -errno.  -EINVAL: the memory has none. */
int reef_memory_open_reader(const struct reef_memory *memory);

/* Make a range durable.  -REEF_ENOTDURABLE. */
int reef_memory_flush(struct reef_memory *memory, uint64_t offset,
		      uint64_t length);

/* Keep a mapping of lent memory out of forked children and core dumps (3). */
int reef_memory_confine(void *base, uint64_t size);

/* Map the pages of a shared mapping now, for writing too if it is writable;
 * for memory, not for files, which it would read. A hint. */
void reef_memory_populate(void *base, uint64_t size);

/* The domain of this machine's CPUs: the same in every process on it, another
 * on every other machine and after every boot. Never 0. */
uint64_t reef_domain_cpu(void);

#endif
