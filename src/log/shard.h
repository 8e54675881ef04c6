/* shard.h - order by cuts: the words of a SHARDED log, and its rules.
 *
 *   body       as of any log; the words of its segments name cuts, and a second
 *              directory, behind the first, names shards; behind that is the
 *              floor: no cut below that index is needed               CAS
 *              and a count of the handles that append                 FAA
 *              and who is about to cut: index 50 | count 14           CAS
 *   directory  63 62 61   38 37    0
 *   word      |state| count | shard |                                  CAS
 *              FREE --> OPEN --> FULL --> FREE
 *   shard      a segment of entries with one writer at a time:
 *              owner: term 18 | tag 14 | session 32; session 0: nobody's  CAS
 *              count of entries, bytes of entries                      WRITE
 *              (where memory has copies: CAS)
 *              asleep: somebody waits for more of an EARLY log         CAS
 *              cells: a word as of any log, and the bytes
 *   cut        the block of a long entry: the position of its first entry, and
 *              for each shard that is not done with: from where to where
 *
 * (S1) Only the owner of a shard writes its cells, and each before the count
 *      that has it (F3a). A shard passes on when its owner let go of it with
 *      nothing in doubt, or is FENCED: then its count is final.
 * (S2) What is in doubt is settled, and repeated with the same bytes at the
 *      same place, unless it is counted. Where that cannot be, the owner never
 *      writes to that shard again.
 * (S3) A cut is made from the cut before it and from counts that were read
 *      after that one, and its word is the next one: CAS from 0. So no entry is
 *      in two cuts, and whoever appends after another's cut was there is in a
 *      later one. A shard's count in a cut is never below that of the cut
 *      before.
 * (S4) A cut has all that is needed to read its entries, and to make the next
 *      cut: it is a block of its own, and is written before its word.
 * (S5) A shard is in all cuts from the one that it joined by to the one that
 *      has its last entry. Its owner notes the first (joined) before it
 *      appends, so a shard that joined before a cut, and is not in it, is done.
 * (S6) An owner begins another shard only when all of the one before is cut.
 * (S7) No cut ends beyond body.high, which is raised first. Where the last cut
 *      is lost, the next one restarts: it begins at body.high, and what was
 *      counted by then in any shard, and was in no cut that can be read, is in
 *      none. Positions in between are lost.
 * (S8) A shard is freed, LATER, when it is done before the cut that has
 *      body.first. The last cut is not trimmed. A position that is not below
 *      body.first, as read in this epoch, has its cut and its shard.
 * (S9) EARLY: who waits marks all shards, then reads their counts. Who appends
 *      READs the mark after its count, in its batch; if it is there it cuts.
 * (S10) Anybody may cut at any time; but one at a time is enough, so there is a
 *      turn, a hint: who made the last cut makes the next. Others look for that
 *      and, where none comes for a bound, claim the turn by CAS; who claimed
 *      and does not cut is passed by after another such bound. Nobody waits for
 *      more than a few of these, whoever died.
 * (S11) Who wants to know of its own entries alone READs its own part of a cut,
 *      where it was in the last one, and not those of all others: the bytes
 *      that a cut costs do not grow with the square of the shards. So a part
 *      stays where it is from cut to cut: one that is done with leaves an empty
 *      one behind it (shard 0), which another takes; seldom all move up.
 * (S12) A cut has CUT_PARTS_MAX parts at most. Who wants to join where all are
 *      taken is refused; those who have joined before stay in.
 *
 * Thread: owner of the handle. */
#ifndef REEF_LOG_SHARD_H
#define REEF_LOG_SHARD_H

#include "base/checksum.h"
#include "log/internal.h"

/* --- the directory of shards --- */

enum shard_state { SHARD_FREE, SHARD_OPEN, SHARD_FULL };

static inline enum shard_state shard_word_state(uint64_t word)
{
	return (enum shard_state)(word >> 62);
}

/* What the word becomes after `before`: counted, so that it does not return. */
static inline uint64_t shard_word_after(uint64_t before, enum shard_state state,
					uint64_t block)
{
	uint64_t count = ((before >> 38) + 1) & ((UINT64_C(1) << 24) - 1);

	return (uint64_t)state << 62 | count << 38 | block;
}

static inline uint64_t shard_slot_at(const struct reef_log *log, uint64_t slot)
{
	return log->object.body + sizeof(struct log_body) +
	       8 * (log->options.segments + slot);
}

/* --- shards --- */

#define SHARD_MAGIC UINT64_C(0x3164726853674c52) /* "RLgShrd1" */

struct shard_head {
	uint64_t owner;
	uint64_t joined; /* the index of a cut that has it, and 1 */
	uint64_t has_long;
	uint64_t asleep; /* odd: somebody is; counts */
	uint64_t bytes;
	uint64_t count;
};

struct log_shard { /* the cells follow */
	uint64_t magic;
	uint64_t body;	 /* address */
	uint64_t index;	 /* in the directory */
	uint64_t slot;	 /* address of the directory's word */
	uint64_t size;	 /* cells */
	uint64_t stride; /* from cell to cell */
	uint64_t reserved[4];
	struct shard_head head;
};
static_assert(sizeof(struct log_shard) == 128, "layout");

/* The count: term 31 (where it is changed by CAS) | ended 1 | count 32. */
#define SHARD_ENDED (UINT64_C(1) << 32)
#define SHARD_TERM (UINT64_C(1) << 33)

static inline uint64_t shard_owner_after(uint64_t before, uint32_t tag,
					 uint32_t session)
{
	return ((before >> 46) + 1) << 46 | (uint64_t)(tag & 16383) << 32 |
	       session;
}

static inline uint64_t shard_head_at(uint64_t shard)
{
	return shard + offsetof(struct log_shard, head);
}

static inline uint64_t shard_cell_at(const struct reef_log *log, uint64_t shard,
				     uint64_t slot)
{
	return shard + sizeof(struct log_shard) + log->stride * slot;
}

/* The position in a long entry's block: where its word is. */
static inline uint64_t shard_place(uint64_t index, uint64_t slot)
{
	return UINT64_C(1) << 63 | index << 20 | slot;
}

/* --- cuts --- */

struct log_cut { /* the parts follow */
	uint64_t first, end;
	uint64_t bytes; /* of all entries up to its end */
	uint32_t count; /* of parts */
	uint32_t is_restart;
};

struct cut_part {
	uint64_t where; /* done 1 | 0 8 | from 17 | shard 38 */
	uint64_t what;	/* to 17 | bytes 47, of the shard up to there */
	uint64_t place; /* check 14 | position 50, of its first entry */
};
#define CUT_DONE (UINT64_C(1) << 63)
/* So many shards are in a cut at most, which is a long entry's block: (S12). */
#define CUT_PARTS_MAX                                                          \
	((uint32_t)(((LOG_STEPS - LOG_FINE_STEPS + 1) * 8192 - 8 -             \
		     sizeof(struct log_entry) - sizeof(struct log_cut)) /      \
		    sizeof(struct cut_part)))
static_assert(CUT_PARTS_MAX == 44029, "log.h says so");
#define CUT_PLACE_MASK ((UINT64_C(1) << LOG_POSITION_BITS) - 1)

static inline struct cut_part cut_part_make(uint64_t block, uint32_t from,
					    uint32_t to, uint64_t bytes,
					    bool is_done)
{
	return (struct cut_part){
		.where =
			block | (uint64_t)from << 38 | (is_done ? CUT_DONE : 0),
		.what = (uint64_t)to << 47 |
			(bytes & ((UINT64_C(1) << 47) - 1)),
	};
}

static inline uint64_t cut_part_block(const struct cut_part *part)
{
	return part->where & LOG_BLOCK_MASK;
}

static inline uint32_t cut_part_from(const struct cut_part *part)
{
	return (uint32_t)(part->where >> 38) & 131071;
}

static inline uint32_t cut_part_to(const struct cut_part *part)
{
	return (uint32_t)(part->what >> 47);
}

static inline uint64_t cut_part_bytes(const struct cut_part *part)
{
	return part->what & ((UINT64_C(1) << 47) - 1);
}

/* What a part's place has to be, in the cut of that index: (S11), (R10). */
static inline uint64_t cut_part_place(const struct cut_part *part,
				      uint64_t index, uint64_t position)
{
	const uint64_t words[] = {index, part->where, part->what, position};

	return (uint64_t)reef_crc32c(0, words, sizeof(words))
		       << LOG_POSITION_BITS |
	       (position & CUT_PLACE_MASK);
}

struct cut { /* that was read */
	uint64_t index;
	struct log_cut head;
	struct cut_part *parts;
	bool is_lost; /* it cannot be read; head has body.high */
	/* Only the own part was READ: it has neither head nor parts. */
	bool is_partial;
};

/* --- a handle of a SHARDED log --- */

#define CUTS_PAGE 32u
#define PIECES 64u
#define SHARDS_READ 128u

struct shard_own {	/* the shard that this handle appends to */
	uint64_t at;	/* address; 0: none */
	uint64_t block; /* its short address */
	uint64_t index; /* in the directory */
	uint64_t word;	/* of the directory */
	uint64_t owner; /* as we set it */
	uint64_t count, bytes;
	uint64_t cut;			   /* so many are in cuts */
	uint32_t part;			   /* which part of the last cut */
	bool has_long, is_done, is_member; /* as the last cut says */
	bool is_doubtful; /* (S2): it is not to be written to */
	/* What is waited for: the cut of entry `want`. */
	uint64_t want; /* UINT64_MAX: nothing */
	uint64_t position;
	bool is_found, is_unknown, is_gone;
	bool is_joining, is_ending; /* is_member, is_done are waited for */
};

struct log_sharded {
	struct cut last;    /* that is known; index LOG_NOWHERE: none */
	uint64_t next;	    /* index behind it */
	bool is_at_end;	    /* the log is sealed, and that was the last */
	uint64_t high;	    /* body.high was that, at least */
	uint64_t floor;	    /* so was the floor of cuts */
	uint8_t *row;	    /* cells of an append */
	uint64_t cut_ns;    /* EARLY: when we last saw that there are cuts */
	uint64_t looked_ns; /* when we last looked for cuts */
	/* (S10) */
	uint64_t made;	 /* index of the last cut that we made */
	uint64_t claim;	 /* of another, as we saw it */
	uint32_t shards; /* in cuts, about */
	struct shard_own own;
	uint32_t tag;	 /* 0: none yet */
	uint32_t turns;	 /* how often we looked for a shard */
	uint64_t *words; /* the directory */
	/* What was found of those that are OPEN. */
	struct shard_found *found;
	uint32_t found_count;
	/* For reads. */
	struct cut page[CUTS_PAGE];
	uint32_t page_count;
	uint64_t page_next; /* index behind them */
	uint32_t *slots;    /* of what was read, by position */
};

struct shard_found {
	uint64_t block, at, index, word;
	struct shard_head head;
	uint32_t column; /* which part of the last cut, if it is */
	int rc; /* why it could not be read; -REEF_ELOST: never again */
};

/* True if words are changed by CAS alone: a count that was read from one of two
 * copies is then that of both. */
static inline bool log_is_copied(const struct reef_log *log)
{
	return reef_space_copies(log->object.space) > 1;
}

static inline bool log_is_early(const struct reef_log *log)
{
	return log->options.flags & REEF_LOG_EARLY;
}

/* What a call says where an inner one found that the log was dropped, since
 * this handle entered: -ENOENT means something else there. */
static inline int sharded_told(int rc)
{
	return rc == -ESTALE ? -ENOENT : rc;
}

/* --- cuts.c: reading them; inside. -ESTALE: the log was dropped --- */

int cuts_create(struct reef_log *log);
void cuts_destroy(struct log_sharded *sharded);
void cut_free(struct cut *cut);
/* Go on to the last cut that is there. */
int cuts_follow(struct reef_log *log);
/* The same for whoever has a shard, and wants to know of that alone: (S11). */
int cuts_peek(struct reef_log *log);
/* READ cuts from *index on: at most `most`, those of one segment. *index: from
 * where to go on. *count 0: there are none.  -ESHUTDOWN: nor will be. */
int cuts_load(struct reef_log *log, uint64_t *index, struct cut *out,
	      uint32_t most, uint32_t *count);
/* Find the cut that has a position, or the last one before it. 0: *out is the
 * caller's to free.  -ENOENT: there is none. */
int cuts_find(struct reef_log *log, uint64_t position, bool is_bytes,
	      struct cut *out);
/* What is waited for from here on: the cut of that entry of the own shard. */
void cuts_want(struct reef_log *log, uint64_t entry);
/* How many shards are in a cut. */
uint32_t cut_shards(const struct cut *cut);
/* Note what a cut says of the own shard. */
void cuts_note(struct shard_own *own, const struct cut *cut);

/* --- cut.c: making them; inside --- */

/* READ the directory of shards, and the heads of those that are OPEN. */
int shards_look(struct reef_log *log);
/* READ the heads of shards, of which index and word are set: all else is. Each
 * has its own rc; at most SHARDS_READ.  -REEF_EFENCED, -REEF_EHOSTDEAD. */
int shards_read(struct reef_log *log, struct shard_found *found,
		uint32_t count);
/* Take into the log what is counted, or what this handle waits for. *made (may
 * be NULL): there is one more cut, whoever made it. 0 also: there was nothing
 * to take in.  -ENOSPC, -E2BIG: no room for a cut. */
int cut_now(struct reef_log *log, bool *made);
/* True if what this handle waits for is decided. */
bool cut_is_decided(const struct shard_own *own);

/* --- turn.c: who makes the next: (S10); inside --- */

/* Wait for others to cut what this handle waits for. 0: it is decided.  1: it
 * is this handle's turn. */
int turn_await(struct reef_log *log);
/* Whether this handle is to cut now. 1: it is.  0: another is at it. */
int turn_claim(struct reef_log *log);
/* How long others are waited for. */
uint64_t turn_bound_ns(const struct reef_log *log);
/* True if it is this handle's turn, or nobody else has a shard. */
bool turn_is_ours(const struct log_sharded *sharded);

/* --- shard.c: having one; inside --- */

/* See to it that this handle has a shard that `count` entries fit into. */
int shard_take(struct reef_log *log, uint32_t count);
/* Tell how many shards there are. */
int sharded_count(struct reef_log *log, uint64_t *count);
/* Let go of the own shard, if that can be. */
void shard_let_go(struct reef_log *log);
/* Forget the own shard, whoever has it then. */
void shard_forget(struct reef_log *log);
/* Count up to `count`, after other accesses of a list: 1 or 2 more. */
uint32_t shard_count_of(const struct reef_log *log,
			struct reef_access *accesses,
			const uint64_t *bytes_and_count);
/* True if the shard is full, or ended. */
static inline bool shard_is_whole(const struct reef_log *log, uint64_t count)
{
	return count & SHARD_ENDED || (uint32_t)count >= log->options.segment;
}

/* --- shard_append.c --- */
int sharded_append(struct reef_log *log, const struct iovec *entries,
		   uint32_t count, uint64_t *first);

/* --- shard_read.c --- */

/* READ entries from a position on, into words, cells and slots. *count 0: it is
 * the end.  -REEF_ELOST, -REEF_ECORRUPT: *next is behind what cannot be read.
 */
int sharded_read(struct reef_log *log, uint64_t from, uint32_t most,
		 uint32_t *count, uint64_t *next);
/* The end of the last cut; EARLY: after another, if there is anything. */
int sharded_tail(struct reef_log *log, uint64_t *position);
/* True if a position can be read, or is known to be lost: 1. *index: of the cut
 * to wait for.  -ESHUTDOWN. */
int sharded_look(struct reef_log *log, uint64_t position, uint64_t *index);

/* --- shard_trim.c --- */
int sharded_trim(struct reef_log *log, uint64_t position);
/* Trim what is not to be kept. */
void sharded_retain(struct reef_log *log);
/* Free all shards of a log that was dropped. */
int sharded_drop(struct reef_log *log);
/* What is_live asks of a long entry. 1, 0, -errno. */
int sharded_entry_is_live(struct reef *reef, struct reef_space *space,
			  const struct log_entry *entry,
			  const struct log_body *body, uint64_t address);

#endif
