/* internal.h - what the files of the heap share.
 *
 *   heap.c     create, allocate, free: the paths without operations
 *   classes.c  sizes
 *   units.c    extents, free runs of units, best fit
 *   run.c      slabs and large blocks: cutting a run, giving it back
 *   claim.c    chunks: read their tables, claim, grow
 *   release.c  chunks: give back
 *   relinquish.c  chunks with blocks: give away
 *   shrink.c   extents: give back
 *   pending.c  headers that wait (rule 4)
 *   collect.c  others' frees, limbo (R8)
 *   other.c    blocks of others: free, keep, size
 *   unlinked.c blocks that nothing names any more
 *   adopt.c    dead sessions' chunks, and ABANDONED ones (adopt.h)
 *   chains.c   which chunks go together (adopt.h)
 *   install.c  what was adopted becomes the heap's
 *   headers.c  the headers of whole runs
 *   recover.c  dead sessions' blocks
 *   abandon.c  the blocks of a session that ends well
 *
 * (A) A unit is in one of: a chunk that is not ours (runs[] NULL); a free run
 *     (runs[] of its first and last unit name it, between them NULL); a run in
 *     use (runs[] of every unit names it); nothing, when its run is being made
 *     or could not be (NULL).
 * (B) shadow[] is what the descriptors of our chunks are in memory. They lag
 *     behind: a run that was freed keeps its head there until its units are
 *     used anew or their chunk is released. Units are always taken from the low
 *     end of a free run, so an old head that covers them is overwritten with
 *     them.
 * (C) Whatever parks may find another fiber in the heap when it returns. So
 *     what takes operations and changes runs or chunks holds the lock, and what
 *     it has in hand across an operation is not in any list. Allocating and
 *     freeing in slabs takes no lock: who has parked finds blocks anew by their
 *     addresses. An extent that is forgotten meanwhile goes at unlock.
 *
 * Thread: owner. */
#ifndef REEF_POOL_CLIENT_HEAP_INTERNAL_H
#define REEF_POOL_CLIENT_HEAP_INTERNAL_H

#include "base/log.h"
#include "base/random.h"
#include "pool/client/heap/layout.h"

#include <errno.h>
#include <reef/fiber.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_BATCH 128u /* accesses in one execute */
#define HEAP_BINS 65u	/* free runs by units; the last: 64 and more */
#define HEAP_PENDING_MAX 4096u
#define HEAP_GUESSES 64u
#define HEAP_ASKS 256u
#define HEAP_RETURNS_MAX 15u /* of 65,536 generations; at 4,096 sessions */

/* A block as this heap sees it: generation 16 (high), kind 8, flags 8. */
enum block_flags {
	BLOCK_OUT = 1,	    /* allocated; also while in limbo */
	BLOCK_PENDING = 2,  /* its header is still to be written */
	BLOCK_LISTED = 4,   /* its address is in pending_list */
	BLOCK_SHARED = 8,   /* KEPT, or a page: others read its header, so that
			     * freeing it takes a CAS */
	BLOCK_LIMBO = 16,   /* freed, and waits for its epoch to be over */
	BLOCK_ADOPTED = 32, /* its header names a session that is gone */
	BLOCK_FLYING = 64,  /* its header is being written */
	BLOCK_UNJUDGED = 128, /* recovered; whether it lives is not known yet */
};
/* Freeing a block with any of these takes more than forgetting it. */
#define BLOCK_RARE (BLOCK_LIMBO | BLOCK_SHARED | BLOCK_ADOPTED | BLOCK_FLYING)
#define BLOCK_GENERATION UINT32_C(0xffff0000)

enum run_kind {
	RUN_FREE,
	RUN_SLAB,
	RUN_LARGE,
	RUN_BROKEN, /* its descriptors could not be written: in heap->broken */
};

struct run {
	/* What freeing a block touches comes first. */
	uint32_t *blocks; /* by index */
	uint32_t *stack;  /* of free blocks below bump: offsets of their data */
	uint64_t address; /* of its first block's data */
	uint64_t span;	  /* bytes from there that are its own */
	uint64_t block_size, inverse;
	uint32_t count; /* of blocks */
	uint32_t bump;	/* blocks from here on were never handed out */
	uint32_t top;	/* of the stack; bump - top blocks are out */
	uint8_t kind, class;
	bool is_listed; /* in its class's list, bin, or the broken */
	struct run *next, *prev;
	struct extent *extent;
	uint32_t first, units;
	uint32_t single; /* LARGE: its one block */
};

/* Of a chunk that is being relinquished: what is left to do. */
enum leaving {
	LEAVING_NONE,
	LEAVING_FIRST, /* its CAS, after those of the others of its chain */
	LEAVING_OTHER, /* its CAS */
};

/* What is known of a chunk; of others' it may be out of date. */
struct chunk {
	uint64_t word;
	uint64_t counter;     /* others' frees, as read last */
	uint64_t found;	      /* of those frees, how many were found */
	uint64_t doubt_epoch; /* 0, or when a claim or release may have failed
			       * or may still happen */
	uint16_t free_map;    /* of a chunk of ours: which units are free */
	uint8_t tries;	      /* scans that are left to find the rest */
	bool mine;
	bool partly;	 /* ours by adoption; others of its chain are not yet */
	uint8_t leaving; /* enum leaving; it is not ours then */
	uint32_t from;	 /* the session that it was adopted from; 0: nobody */
	/* With copies: how often it was given back since that epoch. */
	uint32_t returns;
	uint64_t returns_epoch;
	/* What an adoption that is in doubt would have made of the word; 0:
	 * none is. And the epoch in which that was; from is set. */
	uint64_t adopt_word, adopt_epoch;
};

struct extent {
	uint32_t number;
	struct heap_shape shape;
	uint32_t mine; /* how many of its chunks are ours */
	bool dead;     /* forgotten while somebody was inside */
	bool checked;  /* its header is there and right */
	bool known;    /* its words were read, or it is new */
	bool wrong;    /* its header is another's: nothing is claimed */
	bool leaving;  /* all its chunks are ours, and it is to be removed */
	/* shrink.c: 0, or a sum of its words, since when it is that */
	uint64_t vacant_sum, vacant_since_ns;
	struct chunk *chunks;
	/* Both by unit, and NULL until we own a chunk of this extent. */
	struct run **runs;
	uint64_t *shadow;
	struct extent *next; /* in heap->extents */
};

struct limbo_entry {
	uint64_t address, epoch;
};

/* What was seen of another's unit last: its blocks, and one header. */
struct guess {
	uint64_t unit; /* address >> 16; 0: none */
	uint64_t base; /* offset of its run's first block */
	uint64_t block_size, inverse;
	uint64_t end; /* offset after its last block */
	uint64_t header;
};

/* Frees in a chunk of another that are still to be added to its counter. */
struct untold {
	uint64_t counter; /* address of the counter; 0: there are none */
	uint64_t count;
};

struct waiter {
	struct reef_fiber *fiber;
	struct waiter *next;
	bool go;
};

/* A block that was adopted and not judged yet. */
struct unjudged {
	uint64_t address;
	uint32_t session; /* that is being recovered */
};

/* A block that its kind is to be asked about, as it was when it was noted. */
struct ask {
	uint64_t address;
	uint32_t block;
};

struct reef_heap {
	struct run *current[HEAP_CLASS_LARGE + 1]; /* of LARGE: NULL */
	struct run *recent; /* the slab that was used last, or &none */
	/* By extent number, open addressing; a power of two. */
	struct extent **table;
	uint32_t table_mask, table_count;
	uint32_t session;
	uint32_t pending; /* headers that wait or are under way */
	uint32_t listed;  /* addresses in pending_list */
	uint64_t *pending_list;
	struct heap_classes classes;

	struct reef_heap_options options;
	struct reef_random random;
	struct extent *extents;
	struct run *partial[HEAP_CLASSES_MAX]; /* slabs with room */
	struct run *vacant[HEAP_CLASSES_MAX];  /* a slab without a block */
	struct run *broken;
	struct run *bins[HEAP_BINS];
	uint64_t bins_used;    /* bit n: bins[n]; the last by itself */
	uint32_t chunks;       /* owned */
	uint32_t empty;	       /* of them without a block */
	uint32_t claims;       /* since all tables were read last */
	uint32_t doubts;       /* chunks with a doubt_epoch, at most */
	uint32_t adopt_doubts; /* chunks with an adopt_word, at most */
	uint64_t short_free;   /* chunks that were nobody's when an allocation
				* found no room last */
	uint64_t scan_next_ns; /* when all blocks may be looked at again */
	uint16_t generation;
	uint32_t beat; /* the one in which it collected last */

	struct limbo_entry *limbo; /* a ring, oldest first */
	uint32_t limbo_first, limbo_count, limbo_capacity;
	uint64_t limbo_bytes;	/* of the blocks in it */
	uint64_t limbo_told;	/* of them, to ops->waiting */
	uint64_t limbo_hurried; /* epoch in which a hurry was asked for last */
	bool limbo_due;		/* after a hurry: it is to be drained soon */
	uint64_t given;		/* count of blocks that heap_block_give took */

	struct guess guesses[HEAP_GUESSES];
	struct untold untold;

	struct unjudged *unjudged; /* recovered blocks */
	uint32_t unjudged_count, unjudged_capacity;
	bool recovering;

	struct ask asks[HEAP_ASKS];
	uint32_t asks_count;
	bool asking;
	uint64_t ask_epoch, ask_next_ns;
	uint64_t ask_next; /* the address to go on from */

	bool locked;
	struct run none; /* stands for no run: it contains no address */
	struct waiter *waiters, **waiters_end;
	uint32_t dead; /* extents to free at unlock */
};

/* --- the lock (C) --- */

/* -REEF_EHOSTDEAD: this simulated host was killed. */
int heap_lock(struct reef_heap *heap);
void heap_unlock(struct reef_heap *heap);

/* --- looking things up --- */

static inline struct extent *heap_extent(const struct reef_heap *heap,
					 uint32_t number)
{
	uint32_t slot = number & heap->table_mask;
	struct extent *extent;

	while ((extent = heap->table[slot]) && extent->number != number)
		slot = (slot + 1) & heap->table_mask;
	return extent;
}

/* Our run in use that contains an address; NULL: there is none. */
static inline struct run *heap_run_at(const struct reef_heap *heap,
				      uint64_t address)
{
	struct extent *extent = heap_extent(heap, (uint32_t)(address >> 32));
	uint32_t unit = (uint32_t)address >> HEAP_UNIT_SHIFT;
	struct run *run;

	if (!extent || !extent->runs || unit >= extent->shape.units)
		return NULL;
	run = extent->runs[unit];
	return run && run->count ? run : NULL;
}

/* How many blocks of a run are out, those in limbo included. */
static inline uint32_t heap_run_used(const struct run *run)
{
	return run->bump - run->top;
}

static inline bool heap_run_has_room(const struct run *run)
{
	return run && heap_run_used(run) < run->count;
}

/* The index of the block whose data begin at an address; UINT32_MAX: none. */
static inline uint32_t heap_index_at(const struct run *run, uint64_t address)
{
	uint64_t from = address - run->address;
	uint64_t index = (from * run->inverse) >> 40;

	if (index >= run->count || index * run->block_size != from)
		return UINT32_MAX;
	return (uint32_t)index;
}

static inline uint64_t heap_block_address(const struct run *run, uint32_t index)
{
	return run->address + index * run->block_size;
}

/* The state of our block whose data begin at an address, be it out or free;
 * NULL: there is none. */
uint32_t *heap_block_at(const struct reef_heap *heap, uint64_t address,
			struct run **run);

static inline uint64_t heap_block_header(const struct reef_heap *heap,
					 uint32_t block, uint8_t state)
{
	return heap_header(heap->session, (uint16_t)(block >> 16), state,
			   (uint8_t)(block >> 8));
}

/* All units of a chunk that can be handed out, as a map. */
static inline uint16_t heap_chunk_map(const struct heap_shape *shape,
				      uint32_t chunk)
{
	uint32_t start = chunk * HEAP_UNITS_PER_CHUNK;
	uint32_t from = heap_chunk_first(shape, chunk) - start;
	uint32_t to = heap_chunk_end(shape, chunk) - start;

	reef_assert(from <= to && to <= HEAP_UNITS_PER_CHUNK);
	return (uint16_t)(((1u << to) - 1) & ~((1u << from) - 1));
}

static inline bool heap_chunk_is_empty(const struct extent *extent,
				       uint32_t chunk)
{
	return extent->chunks[chunk].mine &&
	       extent->chunks[chunk].free_map ==
		       heap_chunk_map(&extent->shape, chunk);
}

static inline uint64_t heap_counter_at(const struct extent *extent,
				       uint32_t chunk)
{
	return heap_address(extent->number,
			    HEAP_TABLE_AT + 8 + chunk * HEAP_TABLE_STEP);
}

static inline uint64_t heap_word_at(const struct extent *extent, uint32_t chunk)
{
	return heap_counter_at(extent, chunk) - 8;
}

static inline uint64_t heap_descriptor_at(const struct extent *extent,
					  uint32_t unit)
{
	return heap_address(extent->number, extent->shape.units_at + unit * 8);
}

/* --- accesses --- */

int heap_execute(struct reef_heap *heap, struct reef_access *accesses,
		 uint32_t count);
/* READs only. A READ in a lost extent ends its batch, but the others are of
 * other extents: they are done one by one. What is -REEF_ENOTDONE after that
 * stands behind an error of the session. */
void heap_execute_reads(struct reef_heap *heap, struct reef_access *accesses,
			uint32_t count);
/* WRITEs only, of memory that is ours alone: those in doubt are repeated. */
int heap_execute_writes(struct reef_heap *heap, struct reef_access *accesses,
			uint32_t count);

static inline struct reef_access heap_read(uint64_t address, void *to,
					   uint32_t length)
{
	return (struct reef_access){.kind = REEF_READ,
				    .address = address,
				    .local = to,
				    .length = length};
}

static inline struct reef_access heap_write(uint64_t address, const void *from,
					    uint32_t length)
{
	return (struct reef_access){.kind = REEF_WRITE,
				    .address = address,
				    .local = (void *)from,
				    .length = length};
}

static inline struct reef_access heap_cas(uint64_t address, uint64_t compare,
					  uint64_t value)
{
	return (struct reef_access){.kind = REEF_CAS,
				    .address = address,
				    .compare = compare,
				    .operand = value};
}

/* For counters, which nobody compares with. */
static inline struct reef_access heap_faa(const struct reef_heap *heap,
					  uint64_t address, uint64_t add)
{
	return (struct reef_access){
		.kind = REEF_FAA,
		.flags = heap->options.has_copies ? REEF_BLIND : 0,
		.address = address,
		.operand = add};
}

/* --- units.c --- */

/* The extent of that number, which is added if it is new.  NULL: no memory. */
struct extent *heap_extent_add(struct reef_heap *heap, uint32_t number,
			       uint64_t size);
void heap_extent_free(struct extent *extent);
/* Take an extent out of the table by number. */
void heap_table_remove(struct reef_heap *heap, struct extent *extent);
/* Allocate what is kept by unit of an extent.  -ENOMEM. */
int heap_extent_own(struct extent *extent);

/* Take a run of exactly that many units, best fit; NULL: none, or no memory.
 * The run is in no list, and has no kind yet. */
struct run *heap_units_take(struct reef_heap *heap, uint32_t units);
/* Give units back; the run becomes part of a free one. */
void heap_units_give(struct reef_heap *heap, struct run *run);
/* Make the units of a chunk that is ours free, from `first` to before `end`.
 * -ENOMEM. */
int heap_units_add(struct reef_heap *heap, struct extent *extent,
		   uint32_t first, uint32_t end);
/* Take a chunk's free units out of the free runs; all of them must be free.
 * -ENOMEM. */
int heap_units_remove(struct reef_heap *heap, struct extent *extent,
		      uint32_t chunk);
/* Take the free units of a range out of the free runs.  -ENOMEM: only where a
 * free run goes on at both ends. */
int heap_units_cut(struct reef_heap *heap, struct extent *extent,
		   uint32_t first, uint32_t end);
/* True if heap_units_take would find that many units. */
bool heap_units_has(const struct reef_heap *heap, uint32_t units);
/* A free run's extent is gone: take the run out of its bin for good. */
void heap_units_forget(struct reef_heap *heap, struct run *run);
void heap_list_add(struct run **list, struct run *run);
void heap_list_remove(struct run **list, struct run *run);

/* --- run.c --- */

/* A new slab of a class, current from now on; locked. */
int heap_slab_make(struct reef_heap *heap, uint32_t class);
int heap_large_make(struct reef_heap *heap, uint8_t kind, uint64_t size,
		    uint64_t *address);
/* Free what heap_run_init allocated. */
void heap_run_fini(struct run *run);
/* Make the units of a run free, all of whose blocks are. No operation. */
void heap_run_drop(struct reef_heap *heap, struct run *run);
/* Drop the slabs without a block that are kept for their class; current: and
 * current slabs without one. */
void heap_vacant_drop(struct reef_heap *heap, bool current);
/* Fill in the fields of a slab or large block that has its units already. The
 * caller calls heap_run_map.  -ENOMEM. */
int heap_run_init(struct reef_heap *heap, struct run *run, uint8_t kind,
		  uint32_t class);
/* Name a run in runs[] of all its units, where heap_run_at finds it. */
void heap_run_map(struct run *run);
/* A run in use is no longer ours: take it from all lists, and free it. */
void heap_run_forget(struct reef_heap *heap, struct run *run);
/* A block of a run becomes free, with which the run may be dropped. */
void heap_block_give(struct reef_heap *heap, struct run *run, uint32_t index);

/* --- claim.c --- */

/* See to it that heap_units_take finds that many; locked. 1: not needed, as a
 * slab of that class has room now (HEAP_CLASS_LARGE: none can).  -ENOSPC, ...
 */
int heap_claim(struct reef_heap *heap, uint32_t units, uint32_t class);
/* Claim those of the chunks first to last that are free, as far as others do
 * not claim them first; locked. */
int heap_claim_chunks(struct reef_heap *heap, struct extent *extent,
		      uint32_t first, uint32_t last);
/* Nobody knows what became of a claim or release of a chunk: claim.c finds out,
 * once it has happened or never will. */
void heap_note_doubt(struct reef_heap *heap, struct chunk *chunk);
/* Add the space's extents that are new. No operation. */
int heap_learn_extents(struct reef_heap *heap);
/* Read every table anew: words and counters; locked. */
int heap_read_tables(struct reef_heap *heap);
/* Read the table of one extent, which may turn out lost; locked. */
int heap_read_table(struct reef_heap *heap, struct extent *extent);
/* True for errors that say that an extent is lost, not the session. */
bool heap_is_lost(int status);

/* --- release.c --- */

/* An old head below a unit, the first of its chunk, may claim to reach into it:
 * add the WRITE that makes it SPARE. Returns how many accesses there are. */
uint32_t heap_cut_cover(struct extent *extent, uint32_t first,
			struct reef_access *accesses, uint32_t count);
/* Give empty chunks back but for `keep`; locked. */
int heap_release(struct reef_heap *heap, uint32_t keep);
/* Take the lock, and do so but for spare_max. */
void heap_trim(struct reef_heap *heap);

/* --- collect.c --- */

/* Take back what others freed, in chunks whose counters say that they did, or
 * everywhere; locked. */
int heap_scan(struct reef_heap *heap, bool everywhere);
/* An extent goes: blocks of it no longer count as waiting in limbo. */
void heap_limbo_forget(struct reef_heap *heap, uint32_t number);
/* Free the blocks in limbo whose epoch is over. True: there were some. */
bool heap_limbo_drain(struct reef_heap *heap);
/* Put a block into limbo. Without memory for that, it stays out for good. Frees
 * nothing. */
void heap_limbo_add(struct reef_heap *heap, struct run *run, uint32_t index);

/* --- pending.c --- */

/* Note that a block's header waits. There must be room in pending_list. */
static inline void heap_pending_add(struct reef_heap *heap, uint32_t *block,
				    uint64_t address)
{
	heap->pending++;
	if (!(*block & BLOCK_LISTED))
		heap->pending_list[heap->listed++] = address;
	*block |= BLOCK_PENDING | BLOCK_LISTED;
}

/* Make room in pending_list, which is full. */
int heap_pending_room(struct reef_heap *heap);
/* Write all headers that wait; locked. */
int heap_pending_write(struct reef_heap *heap);

/* --- adopt.c --- */

/* Make the chunks of FENCED sessions ours, in every extent; their blocks that
 * may live go to unjudged; locked. Each session whose status is 0 gets one.
 * -EBUSY: another is at some of its chunks.  -REEF_ECORRUPT: they are ours, but
 * something in them is not to be trusted and stays unused.  Else the first
 * error: not all of them are ours. */
void heap_adopt(struct reef_heap *heap, struct reef_heap_recovery *list,
		uint32_t count);

/* Adopt ABANDONED chunks, as reef_heap_adopt, by words that were read before;
 * locked. */
int heap_adopt_abandoned(struct reef_heap *heap, uint32_t max, bool freed);

/* --- headers.c --- */

/* What a header of a run says. */
typedef void heap_header_fn(void *context, struct run *run, uint32_t index,
			    uint64_t header);
/* Read the headers of all blocks of some runs. */
int heap_read_headers(struct reef_heap *heap, struct run **runs, uint32_t count,
		      heap_header_fn *each, void *context);

/* --- other.c --- */

/* Change the header of a LIVE or KEPT block to FREE, or RETIRED, by CAS.
 * expect: what the header should be, for a block of ours; 0: it is read. ours:
 * the chunk's counter need not say so.  -EALREADY: it is FREE or RETIRED.
 * -EINVAL: there is no block. */
int heap_other_free(struct reef_heap *heap, uint64_t address, uint32_t flags,
		    uint64_t expect, bool ours);
/* Add the frees that chunks of others do not count yet to their counters; best
 * effort. */
void heap_notify_owners(struct reef_heap *heap);
int heap_other_size(struct reef_heap *heap, uint64_t address, uint64_t *size);

#endif
