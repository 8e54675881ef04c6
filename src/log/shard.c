/* shard.c - which shard a handle appends to: (S1), (S5), (S6) of shard.h.
 *
 *   OPEN, nobody's --CAS owner--\
 *   OPEN, a dead one's --CAS-----+--> ours --join--> appends --> ended, cut
 *   FREE --write, CAS word------/                                    |
 *                                        FULL <--CAS word------------+ */
#include "log/shard.h"

#include "base/mutant.h"

#include <stdlib.h>

#define CHECKS 16u	 /* sessions that are asked for at a time */
#define SHARDS_TRIED 32u /* shards that are looked at */

/* --- what is ours --- */

void shard_forget(struct reef_log *log)
{
	log->sharded->own = (struct shard_own){.want = UINT64_MAX};
}

static uint64_t owner_at(uint64_t shard)
{
	return shard_head_at(shard) + offsetof(struct shard_head, owner);
}

void shard_let_go(struct reef_log *log)
{
	struct shard_own *own = &log->sharded->own;

	if (own->at && !own->is_doubtful && !own->is_gone &&
	    !reef_is_lost(log->reef, own->at))
		(void)log_cas(log->reef, owner_at(own->at), own->owner,
			      shard_owner_after(own->owner, 0, 0), NULL);
	shard_forget(log);
}

uint32_t shard_count_of(const struct reef_log *log,
			struct reef_access *accesses,
			const uint64_t *bytes_and_count)
{
	const struct shard_own *own = &log->sharded->own;
	uint64_t at =
		shard_head_at(own->at) + offsetof(struct shard_head, bytes);

	if (!log_is_copied(log)) {
		accesses[0] = log_write_of(at, bytes_and_count, 16);
		return 1;
	}
	accesses[0] = log_write_of(at, bytes_and_count, 8);
	accesses[1] = log_cas_of(at + 8, own->count, bytes_and_count[1]);
	return 2;
}

/* WRITE a word of the own shard's head, again where that is in doubt. */
static int write_head(struct reef_log *log, size_t offset, uint64_t value)
{
	uint64_t at = shard_head_at(log->sharded->own.at) + offset;
	int rc, attempt = 0;

	do
		rc = reef_write(log->reef, at, &value, 8);
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	return rc;
}

/* --- the end of one --- */

/* Let nothing more come into the own shard. */
static int end_own(struct reef_log *log)
{
	struct shard_own *own = &log->sharded->own;
	uint64_t words[2] = {own->bytes, own->count | SHARD_ENDED};
	struct reef_access accesses[2];
	int rc = -REEF_EINDOUBT, attempt;

	if (shard_is_whole(log, own->count))
		return 0;
	for (attempt = 0; rc == -REEF_EINDOUBT && attempt < LOG_ATTEMPTS;
	     attempt++)
		rc = reef_execute(log->reef, accesses,
				  shard_count_of(log, accesses, words));
	if (!rc)
		own->count |= SHARD_ENDED;
	else if (rc != -REEF_ELOST)
		own->is_doubtful = true;
	return rc == -REEF_ELOST ? 0 : rc;
}

static void mark_full(struct reef_log *log, uint64_t index, uint64_t word)
{
	(void)reef_cas(
		log->reef, shard_slot_at(log, index), word,
		shard_word_after(word, SHARD_FULL, word & LOG_BLOCK_MASK),
		NULL);
}

/* The own shard is not used any more: all of it is cut, then it is FULL. */
static int finish_own(struct reef_log *log)
{
	struct shard_own *own = &log->sharded->own;
	int rc = end_own(log), attempt = 0;

	if (!rc && !own->is_done)
		rc = cuts_peek(log);
	own->is_ending = true;
	while (!rc && !own->is_done && !own->is_gone &&
	       ++attempt < LOG_ATTEMPTS) {
		rc = turn_await(log);
		if (rc == 1)
			rc = cut_now(log, NULL);
	}
	own->is_ending = false;
	if (!rc && !own->is_done && !own->is_gone)
		rc = -EBUSY;
	if (rc)
		return rc;
	if (own->is_done)
		mark_full(log, own->index, own->word);
	shard_forget(log);
	return 0;
}

/* What was appended early to a shard that must not be used any more is cut
 * before anything that comes later: (S6). */
static int drain_own(struct reef_log *log)
{
	struct shard_own *own = &log->sharded->own;
	int rc = 0, attempt = 0;

	while (!rc && own->is_member && !own->is_gone && !own->is_done &&
	       own->cut < (uint32_t)own->count && ++attempt < LOG_ATTEMPTS &&
	       !reef_is_lost(log->reef, own->at))
		rc = cut_now(log, NULL);
	if (!rc)
		shard_forget(log);
	return rc;
}

int sharded_count(struct reef_log *log, uint64_t *count)
{
	struct log_sharded *sharded = log->sharded;
	int rc = reef_read(log->reef, shard_slot_at(log, 0), sharded->words,
			   8 * (size_t)log->options.segments);
	uint32_t i;

	*count = 0;
	for (i = 0; !rc && i < log->options.segments; i++)
		*count += shard_word_state(sharded->words[i]) != SHARD_FREE;
	return rc;
}

/* --- another --- */

/* READ the count of a shard that has become ours. With copies what its last
 * owner left half done is done, or never will be, after a CAS. */
static int settle_count(struct reef_log *log, struct shard_head *head)
{
	struct shard_own *own = &log->sharded->own;
	uint64_t at =
		shard_head_at(own->at) + offsetof(struct shard_head, count);
	uint64_t before, now;
	int rc = reef_read(log->reef, shard_head_at(own->at), head,
			   sizeof(*head)),
	    attempt = 0;

	if (rc || !log_is_copied(log))
		return rc;
	now = head->count;
	do {
		before = now;
		rc = log_cas(log->reef, at, before, before + SHARD_TERM, &now);
	} while (!rc && now != before + SHARD_TERM && ++attempt < LOG_ATTEMPTS);
	head->count = now;
	return rc ? rc : now == before + SHARD_TERM ? 0 : -EBUSY;
}

/* The own shard is in the cuts from here on, and notes that: (S5). */
static int join(struct reef_log *log, uint64_t joined)
{
	struct log_sharded *sharded = log->sharded;
	struct shard_own *own = &sharded->own;
	int rc = cuts_follow(log), attempt = 0;

	if (!rc && sharded->last.index != LOG_NOWHERE)
		cuts_note(own, &sharded->last);
	if (!rc && joined && !sharded->last.is_lost &&
	    (!own->is_member || own->is_done)) {
		/* It was done before it was ours. */
		mark_full(log, own->index, own->word);
		shard_forget(log);
		return -EAGAIN;
	}
	own->is_joining = true;
	while (!rc && !own->is_member && ++attempt < LOG_ATTEMPTS) {
		rc = turn_await(log);
		if (rc == 1)
			rc = cut_now(log, NULL);
		/* Others found it lost, and took it out. */
		if (!rc && !own->is_member && reef_is_lost(log->reef, own->at))
			rc = -EAGAIN;
		/* (S12) */
		if (!rc && !own->is_member &&
		    cut_shards(&sharded->last) >= CUT_PARTS_MAX)
			rc = -E2BIG;
	}
	own->is_joining = false;
	if (!rc && !own->is_member)
		rc = -EBUSY;
	if (!rc && !joined && !REEF_MUTATED(LOG_SHARD_UNJOINED))
		rc = write_head(log, offsetof(struct shard_head, joined),
				sharded->last.index + 1);
	return rc;
}

/* Take over a shard whose owner was found to be nobody, or dead. 1: done. */
static int take_over(struct reef_log *log, const struct shard_found *found)
{
	struct log_sharded *sharded = log->sharded;
	struct shard_own *own = &sharded->own;
	uint64_t mine = shard_owner_after(found->head.owner, sharded->tag,
					  reef_session(log->reef));
	struct shard_head head;
	uint64_t now;
	int rc = log_cas(log->reef, owner_at(found->at), found->head.owner,
			 mine, &now);

	if (rc || now != mine)
		return rc == -REEF_ELOST ? 0 : rc;
	*own = (struct shard_own){
		.at = found->at,
		.block = found->block,
		.index = found->index,
		.word = found->word,
		.owner = mine,
		.want = UINT64_MAX,
	};
	rc = settle_count(log, &head);
	if (rc) {
		own->is_doubtful = true;
		return rc;
	}
	own->count = head.count;
	own->bytes = head.bytes;
	own->has_long = head.has_long;
	rc = join(log, head.joined);
	if (rc == -EAGAIN)
		shard_forget(log);
	else if (rc == -E2BIG)
		shard_let_go(log);
	if (!rc && (uint32_t)own->count < own->cut)
		own->is_doubtful = true; /* (R10) */
	return rc ? rc : 1;
}

/* See to what is of no use any more. True if the shard may be taken. */
static bool is_useful(struct reef_log *log, const struct shard_found *found)
{
	const struct cut *last = &log->sharded->last;
	uint32_t i;

	if (found->rc == -REEF_ELOST)
		(void)reef_cas(log->reef, shard_slot_at(log, found->index),
			       found->word,
			       shard_word_after(found->word, SHARD_FREE, 0),
			       NULL);
	if (found->rc)
		return false;
	if (!shard_is_whole(log, found->head.count))
		return true;
	/* It is FULL if it is done, which its owner did not come to say. */
	if (last->index == LOG_NOWHERE || last->is_lost || last->is_partial ||
	    !found->head.joined || found->head.joined > last->index + 1)
		return false;
	for (i = 0; i < last->head.count; i++)
		if (cut_part_block(&last->parts[i]) == found->block)
			return false;
	mark_full(log, found->index, found->word);
	return false;
}

/* Take one that nobody has, of some. 1: done.  0: there is none. */
static int take_of(struct reef_log *log, const struct shard_found *some,
		   uint32_t count)
{
	uint32_t i, checks = 0, me = reef_session(log->reef), last = 0;
	int rc = 0;

	for (i = 0; !rc && i < count; i++)
		if (is_useful(log, &some[i]) && !(uint32_t)some[i].head.owner)
			rc = take_over(log, &some[i]);
	for (i = 0; !rc && i < count && checks < CHECKS; i++) {
		uint32_t session = (uint32_t)some[i].head.owner;
		enum reef_session_view view = REEF_VIEW_ALIVE;

		if (some[i].rc || !session || session == me ||
		    session == last || shard_is_whole(log, some[i].head.count))
			continue;
		last = session;
		checks++;
		/* Nobody can tell, or it lives. */
		if (reef_session_check(log->reef, session, &view))
			break;
		if (view == REEF_VIEW_ENDED ||
		    (REEF_MUTATED(LOG_SHARD_EARLY) && checks == 1))
			rc = take_over(log, &some[i]);
	}
	return rc;
}

/* Take one that nobody has: READ the directory, then the heads of some that are
 * OPEN, others each time; is_thorough: of all. So what a crowd pays does not
 * grow with its square. */
static int take_one(struct reef_log *log, bool is_thorough)
{
	struct log_sharded *sharded = log->sharded;
	const uint32_t size = log->options.segments;
	uint32_t i, at, count,
		first = sharded->tag + SHARDS_TRIED * sharded->turns++;
	struct shard_found some[SHARDS_TRIED];
	int rc = reef_read(log->reef, shard_slot_at(log, 0), sharded->words,
			   8 * (size_t)size);

	for (i = 0; !rc && i < size && (!i || is_thorough);) {
		for (count = 0; i < size && count < SHARDS_TRIED; i++) {
			at = (first + i) % size;
			if (shard_word_state(sharded->words[at]) == SHARD_OPEN)
				some[count++] = (struct shard_found){
					.index = at,
					.word = sharded->words[at],
				};
		}
		rc = shards_read(log, some, count);
		if (!rc)
			rc = take_of(log, some, count);
	}
	return rc;
}

/* Write a shard of which nobody knows yet. */
static int write_shard(struct reef_log *log, uint64_t at, uint32_t index,
		       uint64_t owner)
{
	const struct log_shard shard = {
		.magic = SHARD_MAGIC,
		.body = log->object.body,
		.index = index,
		.slot = shard_slot_at(log, index),
		.size = log->options.segment,
		.stride = log->stride,
		.head = {.owner = owner},
	};
	int rc, attempt = 0;

	do
		rc = reef_write(log->reef, at, &shard, sizeof(shard));
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	return rc;
}

/* A shard that could not join has nothing, and is not left behind: the log may
 * be dropped meanwhile. */
static void discard_own(struct reef_log *log)
{
	struct shard_own *own = &log->sharded->own;
	uint64_t before;

	if (own->at &&
	    !reef_cas(log->reef, shard_slot_at(log, own->index), own->word,
		      shard_word_after(own->word, SHARD_FREE, 0), &before) &&
	    before == own->word)
		reef_free(log->object.space, own->at, REEF_FREE_LATER);
	shard_forget(log);
}

/* Put a new shard into a word of the directory. 1: done.  0: another was
 * quicker. */
static int install(struct reef_log *log, uint32_t index, uint64_t before)
{
	struct log_sharded *sharded = log->sharded;
	struct reef_space *space = log->object.space;
	uint64_t owner =
		shard_owner_after(0, sharded->tag, reef_session(log->reef));
	uint64_t at, block, word, now;
	int rc = reef_alloc_kind(space, REEF_BLOCK_LOG_SEGMENT,
				 shard_cell_at(log, 0, log->options.segment),
				 &at);

	if (rc)
		return rc;
	rc = write_shard(log, at, index, owner);
	if (!rc)
		rc = reef_short_address(space, at, &block);
	if (rc) {
		reef_free(space, at, 0);
		return rc == -REEF_ELOST ? 0 : rc;
	}
	word = shard_word_after(before, SHARD_OPEN, block);
	rc = log_cas(log->reef, shard_slot_at(log, index), before, word, &now);
	/* A block that may be in the directory is left to recovery. */
	if (rc)
		return rc;
	if (now != word) {
		reef_free(space, at, 0);
		return 0;
	}
	sharded->own = (struct shard_own){
		.at = at,
		.block = block,
		.index = index,
		.word = word,
		.owner = owner,
		.want = UINT64_MAX,
	};
	rc = join(log, 0);
	if (rc)
		discard_own(log);
	return rc ? rc : 1;
}

static int make_one(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const uint32_t size = log->options.segments;
	uint32_t i, some = 0, open = 0, one;

	for (i = 0; i < size; i++) {
		some += shard_word_state(sharded->words[i]) == SHARD_FREE;
		open += shard_word_state(sharded->words[i]) == SHARD_OPEN;
	}
	if (!some || open >= CUT_PARTS_MAX)
		return -E2BIG;
	/* A crowd that comes at once does not want the same word. */
	one = (sharded->tag * 2654435761u + sharded->turns * 40503u) % some;
	for (i = 0; one || shard_word_state(sharded->words[i]) != SHARD_FREE;
	     i++)
		one -= shard_word_state(sharded->words[i]) == SHARD_FREE;
	return install(log, i, sharded->words[i]);
}

/* A number of this handle's own, so that two of one session do not take each
 * other's CAS for theirs. One that is in doubt is not used. */
static int take_tag(struct log_sharded *sharded, struct reef_log *log)
{
	uint64_t before;
	int rc = 0, attempt = 0;

	while (!sharded->tag && ++attempt < LOG_ATTEMPTS) {
		rc = reef_faa(log->reef, log_floor_at(log) + 8, 1, &before);
		if (!rc)
			sharded->tag = (uint32_t)before + 1;
		else if (rc != -REEF_EINDOUBT)
			break;
	}
	return rc;
}

static int acquire(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	int rc = take_tag(sharded, log);

	if (!rc)
		rc = cuts_follow(log);
	if (!rc && sharded->is_at_end)
		rc = -ESHUTDOWN;
	if (!rc)
		rc = take_one(log, false);
	if (!rc) {
		sharded_retain(log);
		rc = make_one(log);
	}
	/* There is no room for another. */
	if (rc == -E2BIG || rc == -ENOSPC || rc == -EDQUOT) {
		int taken = take_one(log, true);

		rc = taken ? taken : rc;
	}
	sharded->cut_ns = reef_now_ns();
	/* What failed half way is let go of, and found by the next one. */
	if (rc < 0 && rc != -EAGAIN)
		shard_let_go(log);
	return rc == 1 ? 0 : rc ? rc : -EAGAIN;
}

/* True if so many more fit into the own shard, and it can be written to. */
static bool fits(const struct reef_log *log, uint32_t count)
{
	const struct shard_own *own = &log->sharded->own;

	return !shard_is_whole(log, own->count) &&
	       (uint32_t)own->count + count <= log->options.segment;
}

int shard_take(struct reef_log *log, uint32_t count)
{
	struct shard_own *own = &log->sharded->own;
	int rc = 0, attempt = 0;

	while (!rc || rc == -EAGAIN) {
		if (own->at && (own->is_doubtful || own->is_gone ||
				reef_is_lost(log->reef, own->at)))
			rc = drain_own(log);
		else if (own->at && fits(log, count))
			return 0;
		else
			rc = own->at ? finish_own(log) : acquire(log);
		if (++attempt > LOG_ATTEMPTS)
			return -EBUSY;
	}
	return rc;
}
