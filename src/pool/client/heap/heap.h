/* heap.h - blocks in the extents of a space.
 *
 * An extent is cut into chunks of 1 MiB, a chunk into 16 units of 64 KiB. A
 * chunk has an owner, a session; what its units are is the owner's business:
 *
 *   chunk   FREE --claim: CAS--> OWNED --release: CAS--> FREE
 *                                OWNED --adopt: CAS--> OWNED by another
 *                                (of several that hang together: the first is
 *                                ADOPTING until it has all of them)
 *           OWNED --relinquish: CAS--> ABANDONED --adopt: CAS--> OWNED
 *   unit    (never used) 0 -> SLAB class, n units | LARGE n units | INNER
 *                          <-> SPARE (was used, is free)
 *   block   0 -> LIVE -> FREE | RETIRED        LIVE <-> KEPT -> FREE | RETIRED
 *
 * Layout of an extent, little-endian words; everything is 8-byte aligned:
 *
 *   0                extent header, 64 bytes: magic+format, size, ...
 *   64 + 16 i        chunk i: its word, its counter of others' frees
 *   units_at + 8 j   unit j: its descriptor
 *   (rounded up to whole units, which are never handed out)
 *   64 Ki * j        unit j
 *
 *   chunk word   owner session 32 (high) | generation 16 | heap 12 | state 4
 *   descriptor   kind 8 (low) | class 8 | 0 16 | units in the run 32
 *   block header session 32 (high) | generation 16 | state 8 | kind 8 (low)
 *
 * (1) A chunk changes hands by one CAS on its word, which names owner and
 *     generation; so of two claimers one wins, and a claim of long ago cannot
 *     succeed (R3). Whoever claims or adopts and dies leaves a chunk that names
 *     it, which the next recovery finds: no intent is needed. It names the heap
 *     of that session, too, so that one whose CAS was in doubt can read whether
 *     it was the one.
 * (2) Descriptors are written by the chunk's owner only (WRITE). A run never
 *     leaves chunks of one owner; it may span adjacent ones, so a block may be
 *     larger than a chunk. Its head says how many units it has, the rest are
 *     INNER. The head is written last, after the headers of its blocks are
 *     zero (F3a), so whoever walks a chunk finds whole runs. A chunk that is
 *     released has no heads, and none reaches into it. One whose word was
 *     never claimed (generation 0) has never been written.
 * (3) A block begins with its header word; the address given to the user is the
 *     word after it. Classes of at least 64 bytes are multiples of 64, so that
 *     a short address (ordinal 18, offset/64 20) can name such a block.
 * (4) A block's header is written with the first data of the block or before
 *     any other operation of the handle, whichever comes first: nobody can
 *     learn of a block whose header is not there.
 * (5) A header is changed by CAS only while its block is out (F6): of two frees
 *     one wins. A free names session and generation, so that one of an earlier
 *     life changes nothing.
 * (6) Own free: no operation, for a block that is LIVE; a KEPT one takes its
 *     CAS. Another's: CAS header LIVE or KEPT to FREE (RETIRED with
 *     REEF_FREE_LATER), and FAA on the chunk's counter, one batch; for small
 *     blocks one FAA tells of several, some later than their CAS. The owner
 *     looks at counters now and then (before it claims or grows, and when it
 *     collects) and takes back what it finds. So freeing what its owner has
 *     freed already, with no operation, may say 0; it changes nothing. And a
 *     block that another kept is for others to free: its owner may not know
 *     yet, and would leave it KEPT when it dies.
 * (7) R8: a RETIRED block waits in the owner's limbo, stamped with the reclaim
 *     epoch at which it was found, until safe_epoch is past it. Blocks that
 *     recovery frees wait likewise, as others may know of them.
 * (8) Recovery of a FENCED session in a space: adopt each of its chunks, then
 *     look at its blocks: header 0 or FREE: free; LIVE: raw ends with its
 *     session, for other kinds ask is_live; KEPT: stays. Afterwards no chunk
 *     names the dead session. Idempotent; the recoverer may die at any point.
 *     Chunks that a run ties together go to one session (adopt.c).
 *     A recoverer that needs no memory gives what it has judged away again, as
 *     FREE or ABANDONED (relinquish.c): that is nobody's, and whoever lacks
 *     room adopts it before the space grows, and judges nothing again. Others
 *     free in it as in any chunk.
 *     It ends whatever is lost or broken. A block or page about which an error
 *     is said that may pass (its node is away) waits for the next call, while
 *     others are judged; an extent whose table cannot be read is passed over,
 *     and its turn comes with the next call, too. With any other error a block
 *     stays until our own session ends and it is judged anew; a page is done
 *     with. What waits is in chunks of ours: until it is judged, we answer for
 *     it, and so does our own recovery.
 * (9) Nothing is half-allocated on error: -ENOSPC and -EDQUOT leave every chunk
 *     as it was, or owned and empty.
 * (10) An extent that nothing was in for a while goes back to its node, while
 *     the others have some room: shrink.c. Whoever adopts chunks has asked for
 *     the space's extents after their owner was FENCED.
 * (11) A block that was unlinked and not freed, as its freer died, is found
 *     when memory is short: its kind says that it is not live (unlinked.c).
 *
 * A heap is a handle's: blocks of another handle of this session are freed like
 * another session's. When a handle closes, its heap goes to the session, which
 * gives it to the next handle of that space.
 *
 * Costs (asserted): allocate and free in one's own slab 0 operations; a new
 * slab in a chunk one owns at most 1 round trip; claiming a chunk 2 CAS on
 * average at 512 sessions with 1,024 chunks free (candidates are picked at
 * random from what a READ of the chunk words shows); another's free 2 round
 * trips, 1 where the header was foreseen from the last one of that unit.
 *
 * Thread: owner. */
#ifndef REEF_POOL_CLIENT_HEAP_HEAP_H
#define REEF_POOL_CLIENT_HEAP_HEAP_H

#include "wire/kind.h"

#include <reef/reef.h>

struct reef_heap;
struct reef_random;

#define REEF_CHUNK_SIZE (UINT64_C(1) << 20)
#define REEF_UNIT_SIZE (UINT64_C(1) << 16)
#define REEF_HEAP_NUMBER_MAX 4095u

/* What a heap needs of the handle and the space it is in. */
struct reef_heap_ops {
	/* As reef_execute, also in addresses of extent headers; it neither asks
	 * for headers that wait nor calls the heap otherwise. At most 128
	 * accesses, of at most 1 MiB each. */
	int (*execute)(void *context, struct reef_access *accesses,
		       uint32_t count);
	/* The space's extents that are not lost, in no order, those that are
	 * closed for now, too: fills at most `max` numbers and sizes, returns
	 * how many there are. Costs no message. */
	uint32_t (*extents)(void *context, uint32_t *numbers, uint64_t *sizes,
			    uint32_t max);
	/* The node that an extent is on; 0: not known. Costs no message.
	 * Optional. */
	uint32_t (*node)(void *context, uint32_t number);
	/* Ask for one more extent, of at least that size (0: the usual); its
	 * memory is zero.  -ENOSPC, -EDQUOT, ... */
	int (*grow)(void *context, uint64_t size, uint32_t *number,
		    uint64_t *real_size);
	/* Give an extent back, all of whose chunks are this heap's. 0: it is
	 * gone.  -EACCES: it stays.  Else: nobody can tell yet, ask again.
	 * Optional: extents stay. */
	int (*shrink)(void *context, uint32_t number);
	/* Is that session past FENCED? One READ, or little more; 1, 0, -errno.
	 */
	int (*is_fenced)(void *context, uint32_t session);
	/* R8, as the keeper last saw them. */
	uint64_t (*reclaim_epoch)(void *context);
	uint64_t (*safe_epoch)(void *context);
	/* Much is waiting: let safe_epoch become that soon. Optional. */
	void (*hurry)(void *context, uint64_t epoch);
	/* So many more bytes wait in limbo, or fewer; told in steps, and when
	 * nothing waits any more. Optional. */
	void (*waiting)(void *context, int64_t bytes);
	/* Is the caller inside reef_enter? Then what is freed LATER meanwhile
	 * is not used anew. Optional: no. */
	bool (*is_inside)(void *context);
	/* A raw kind is never asked about. 1: some structure still reaches the
	 * block at `address`.  0: free it.  -errno. Optional. */
	int (*is_live)(void *context, uint8_t kind, uint64_t address);
	/* Rule 11: true if a block of that kind is published inside the
	 * reef_enter in which it is allocated, and this one is not being
	 * prepared for longer. Optional: nothing is asked about. */
	bool (*is_asked)(void *context, uint8_t kind, uint64_t address);
};

struct reef_heap_options {
	const struct reef_heap_ops *ops;
	void *context;
	uint32_t session;
	/* Of this heap; no other of the session that is in use has it. 0: none,
	 * when there are more than REEF_HEAP_NUMBER_MAX. */
	uint16_t number;
	uint64_t seed;	    /* of its choices */
	uint32_t spare_max; /* empty chunks kept for later; 0: 4 */
	/* The space's memory has two copies. R9 then: a header is READ before
	 * its CAS, and never guessed; what another frees is free LATER; and a
	 * chunk is given back HEAP_RETURNS_MAX times in an epoch at most. */
	bool has_copies;
	/* Changes now and then: who frees something then collects. NULL: only
	 * who is asked does. */
	const _Atomic uint32_t *beats;
};

/* Costs no operation. Caller owns *out. */
int reef_heap_create(const struct reef_heap_options *options,
		     struct reef_heap **out);
/* Its chunks stay the session's until recovery. NULL is fine. */
void reef_heap_destroy(struct reef_heap *heap);
/* Give it to another handle of the same session. */
void reef_heap_move(struct reef_heap *heap, const struct reef_heap_ops *ops,
		    void *context);

/* As reef_alloc, for a kind. */
int reef_heap_alloc(struct reef_heap *heap, uint8_t kind, uint64_t size,
		    uint64_t *address);
int reef_heap_free(struct reef_heap *heap, uint64_t address, uint32_t flags);
/* A block is about to be freed: begin to fetch what reef_heap_free will read. A
 * hint. */
void reef_heap_free_hint(const struct reef_heap *heap, uint64_t address);
int reef_heap_keep(struct reef_heap *heap, uint64_t address);
int reef_heap_block_size(struct reef_heap *heap, uint64_t address,
			 uint64_t *size);
/* How many bytes a block for `size` bytes takes, of any heap. */
uint64_t reef_heap_footprint(uint64_t size);

/* Rule 4. The handle asks before it executes: are headers waiting? If so, one
 * of these. fold: the WRITE begins at the first data byte of a block whose
 * header waits: returns true and the header to put in front (the WRITE then
 * begins 8 bytes earlier); the header no longer waits. flush: write all that
 * wait. */
bool reef_heap_has_pending(const struct reef_heap *heap);
bool reef_heap_fold(struct reef_heap *heap, uint64_t address, uint64_t *header);
/* The WRITE that had the header failed: the header waits again. */
void reef_heap_unfold(struct reef_heap *heap, uint64_t address);
int reef_heap_flush(struct reef_heap *heap);

/* Take back what others freed; release empty chunks but for a few (spare_max at
 * most), or all (on close).  Best effort; errors of the memory are returned. */
int reef_heap_collect(struct reef_heap *heap, bool all);

/* Collect, but for a few empty chunks, if the time has come for that. Whoever
 * has a heap and may be idle for long calls this now and then. */
void reef_heap_tend(struct reef_heap *heap);

/* Give extents back in which nothing was for that long, as far as calls of this
 * have seen; so only the same heap's next ones know. all: those, too, that are
 * kept so that the space need not grow again soon. Returns how many went. */
int reef_heap_shrink(struct reef_heap *heap, uint64_t vacant_ns, bool all);

/* Claims of this process that were in doubt and stay so, as the heap has no
 * number: each may have made a chunk nobody's until its session ends. For
 * audits. Thread: any. */
uint64_t reef_heap_doubts(void);

/* Take back what others freed or limbo lets go. 1: something has come back
 * since *given was that (it is brought up to date; begin with 0, and what comes
 * now counts).  0: something waits, at least until safe_epoch is past *epoch.
 * -ENOSPC: nothing waits.  Else: errors of the memory. */
int reef_heap_reclaim(struct reef_heap *heap, uint64_t *given, uint64_t *epoch);
/* True if the space has more chunks that nobody owns than when this was asked
 * last, or an allocation found no room, as the tables were read last. No
 * operation. */
bool reef_heap_has_more(struct reef_heap *heap);
/* True if a block waits in limbo; *epoch as above. No operation. */
bool reef_heap_is_waiting(const struct reef_heap *heap, uint64_t *epoch);

/* Rule 11, outside reef_enter: note some blocks, or ask about those that were
 * noted. Returns how many went to limbo. */
uint32_t reef_heap_ask(struct reef_heap *heap);

/* The session ends: free its raw blocks that are not kept, so that nobody needs
 * to wait for them. collect then gives the chunks back. Best effort. */
int reef_heap_abandon(struct reef_heap *heap);

/* A session to recover, and what came of it. */
struct reef_heap_recovery {
	uint32_t session; /* the caller's */
	int status;
	bool dead; /* it is FENCED */
};
/* Rule 8: recover sessions in this space; their free blocks become this heap's.
 * All words are read once, however many sessions there are. Each has a status
 * afterwards: 0: no chunk names it any more, and none of its blocks waits here
 * to be judged.  -EBUSY: it is not FENCED, or some of its chunks hang together
 * with one that another recoverer has: that one, or its own recovery, takes
 * them.  -EAGAIN: some of its blocks wait here, call again.  -REEF_ECORRUPT: it
 * is done, but something in its memory made no sense and stays unused.  Else
 * the first error; call again, on this heap. Returns the first status that is
 * not 0.
 * A session's page, if it had one, is given to `page` before anything of it is
 * freed (may be NULL; an error ends its recovery). What waits here of sessions
 * that are not in the list is judged afterwards: another may have been told
 * that no chunk names them. */
int reef_heap_recover(struct reef_heap *heap, struct reef_heap_recovery *list,
		      uint32_t count,
		      int (*page)(void *context, uint32_t session,
				  uint64_t address, uint64_t size),
		      void *context);
/* True if blocks wait to be judged, of that session or any (0), as a call of
 * the above failed; or a chunk may be ours since an adoption in doubt. The next
 * call of the above goes on with that. No operation. */
bool reef_heap_is_judging(const struct reef_heap *heap, uint32_t session);

/* True if a fiber is inside a call of this heap, or waits to be. */
bool reef_heap_is_busy(const struct reef_heap *heap);

/* Give every chunk away that nothing waits in: without a block as FREE, the
 * others as ABANDONED. Nobody may allocate or free meanwhile. The first error;
 * what could not be given away is tried again by the next call. */
int reef_heap_relinquish(struct reef_heap *heap);

/* Adopt at most that many chunks that are ABANDONED and in which others have
 * freed blocks since this heap looked: nobody else takes those back. What is
 * empty then is released, the rest is to be given away again (collect,
 * relinquish). How many; or an error of access. */
int reef_heap_tidy(struct reef_heap *heap, uint32_t max);
/* Adopt ABANDONED chunks, up to `max` or a few more. Returns how many, or an
 * error. */
int reef_heap_adopt(struct reef_heap *heap, uint32_t max);

/* An extent went (lost, dropped): forget its chunks, blocks and headers. */
void reef_heap_forget(struct reef_heap *heap, uint32_t extent);

struct reef_heap_class_stats {
	uint64_t block_size, blocks, live, limbo; /* blocks, of this heap */
};
struct reef_heap_stats {
	uint64_t chunks, units_used, bytes_live, bytes_limbo;
	uint32_t classes;
	struct reef_heap_class_stats by_class[REEF_CLASSES_MAX];
};
void reef_heap_stats(const struct reef_heap *heap, struct reef_heap_stats *out);

#endif
