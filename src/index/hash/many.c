/* many.c - put many keys in shared batches.
 *
 *   all: entries written, places READ | entries that are there READ
 *        | slots CAS; of new keys: provisional, and places READ again
 *        | new keys: confirmed
 *
 * One that does not go straight through (another was quicker, no slot is free,
 * something is in doubt) is left to hash_apply, afterwards: -EAGAIN. */
#include "index/hash/place.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MAX 8192u /* kept for the next entry that is met */

struct one {
	struct entry_change *change;
	struct hash_insertion insertion;
	uint64_t slot; /* what it becomes, or is to be confirmed as */
	struct reef_access *cas;
	enum { DONE, UPDATE, INSERT } way;
};

struct many {
	struct hash_table *table;
	uint32_t count;
	struct one ones[HASH_TOGETHER];
	struct hash_reading readings[HASH_TOGETHER];
	struct entry_fresh fresh[HASH_TOGETHER];
	/* Of old entries, from the end on: they go before the accesses. */
	struct reef_access marks[HASH_TOGETHER];
	struct reef_access accesses[4 * HASH_TOGETHER];
	struct hash_reading other; /* of all insertions, one after the other */
	uint32_t marks_count, accesses_count;
	bool apart; /* an entry and its slot are in two extents */
};

static struct reef_access *add_access(struct many *many,
				      struct reef_access access)
{
	/* The status of an access that a failed batch never began. */
	access.status = -REEF_ENOTDONE;
	many->accesses[many->accesses_count] = access;
	return &many->accesses[many->accesses_count++];
}

static struct reef_access cas_of(uint64_t at, uint64_t compare, uint64_t value)
{
	return (struct reef_access){
		.kind = REEF_CAS,
		.address = at,
		.compare = compare,
		.operand = value,
	};
}

/* --- finding --- */

static void prepare_entries(struct many *many)
{
	for (uint32_t i = 0; i < many->count; i++) {
		struct entry_change *change = many->ones[i].change;

		many->readings[i].key = change->key;
		many->readings[i].key_size = change->key_size;
		many->readings[i].blind = change->blind;
		many->readings[i].value_most = 0;
		many->readings[i].losses = 0;
		change->status = -EAGAIN;
		if (change->key_size > ENTRY_KEY_MAX ||
		    change->ahead->value_size > ENTRY_VALUE_MAX) {
			change->status = -EINVAL;
			continue;
		}
		/* A key without a block is left to hash_apply. */
		entry_fresh_make(&many->table->home, change->key,
				 change->key_size, change->ahead,
				 &many->fresh[i]);
	}
}

static void decide_one(struct many *many, uint32_t i)
{
	struct hash_reading *reading = &many->readings[i];
	struct entry_change *change = many->ones[i].change;
	struct entry put = {0};
	int verdict = ENTRY_PUT;

	if (change->status == -EINVAL || !many->fresh[i].at)
		return;
	if (reading->status == -EALREADY)
		return; /* hash_apply waits for the transaction */
	if (reading->status && reading->status != -ENOENT) {
		change->status = reading->status;
		return;
	}
	if (change->decide)
		verdict = change->decide(
			change->context,
			reading->status ? NULL : &reading->entry, &put);
	if (verdict < 0 || verdict == ENTRY_KEEP)
		change->status = verdict;
	if (verdict != ENTRY_PUT)
		return;
	if (reading->status)
		many->ones[i].way = INSERT;
	else if (!(reading->slot & HASH_FROZEN))
		many->ones[i].way = UPDATE;
}

/* WRITE the entries that did not go along with a lookup, because their key was
 * found in place, or because they are long. */
static void write_rest(struct many *many)
{
	uint32_t i;
	int rc;

	many->accesses_count = 0;
	for (i = 0; i < many->count; i++) {
		struct entry_fresh *fresh = &many->fresh[i];

		if (many->ones[i].way == DONE || fresh->written)
			continue;
		if (fresh->size <= ENTRY_ALONG)
			add_access(many, entry_fresh_access(fresh));
		else if (entry_fresh_write(&many->table->home, fresh))
			many->ones[i].way = DONE; /* hash_apply does it */
	}
	rc = many->accesses_count
		     ? reef_execute(many->table->reef, many->accesses,
				    many->accesses_count)
		     : 0;
	many->accesses_count = 0;
	for (i = 0; i < many->count; i++) {
		if (many->ones[i].way == DONE || many->fresh[i].written)
			continue;
		many->fresh[i].written = !rc;
		if (rc)
			many->ones[i].way = DONE;
	}
}

/* --- slots --- */

static void begin_update(struct many *many, uint32_t i)
{
	static const uint64_t zero;
	struct hash_reading *reading = &many->readings[i];
	struct one *one = &many->ones[i];

	many->marks[HASH_TOGETHER - ++many->marks_count] = (struct reef_access){
		.kind = REEF_WRITE,
		.address = reading->entry_at,
		.local = (void *)&zero,
		.length = 8,
	};
	many->apart |= reading->entry_at >> 32 != reading->slot_at >> 32;
	one->slot = hash_tagged(reading->slot,
				hash_fresh_content(reading, &many->fresh[i]));
	one->cas = add_access(
		many, cas_of(reading->slot_at, reading->slot, one->slot));
}

static void begin_insert(struct many *many, uint32_t i, uint64_t *taken,
			 uint32_t *taken_count)
{
	struct hash_reading *reading = &many->readings[i];
	struct one *one = &many->ones[i];

	one->insertion.table = many->table;
	one->insertion.reading = reading;
	one->insertion.other = &many->other;
	if (!hash_insertion_choose(
		    &one->insertion,
		    hash_fresh_content(&many->readings[i], &many->fresh[i]),
		    taken, *taken_count)) {
		one->way = DONE; /* hash_apply does it */
		return;
	}
	taken[(*taken_count)++] = one->insertion.at;
	one->cas = add_access(many,
			      cas_of(one->insertion.at, one->insertion.before,
				     one->insertion.word));
	for (uint32_t place = 0; place < 2; place++)
		add_access(many, (struct reef_access){
					 .kind = REEF_READ,
					 .address = reading->leaf +
						    reading->place[place],
					 .local = reading->slots[place],
					 .length = HASH_PLACE_SIZE,
				 });
}

/* Zero `live` of the old entries, then CAS the slots. Where an entry and its
 * slot are in one extent, and so on one node, one batch keeps that order (F3a);
 * else it takes two. */
static int run_slots(struct many *many)
{
	struct reef_access *marks =
		many->marks + HASH_TOGETHER - many->marks_count;
	uint32_t count = many->marks_count + many->accesses_count;
	int rc;

	static_assert(offsetof(struct many, accesses) ==
			      offsetof(struct many, marks) +
				      sizeof(many->marks),
		      "one after the other");
	if (many->apart) {
		rc = reef_execute(many->table->reef, marks, many->marks_count);
		if (rc)
			return rc;
		marks = many->accesses;
		count = many->accesses_count;
	}
	return count ? reef_execute(many->table->reef, marks, count) : 0;
}

/* Note that the entry is its key's value now. */
static void note_put(struct many *many, uint32_t i, uint64_t slot_at)
{
	struct one *one = &many->ones[i];
	struct entry_fresh *fresh = &many->fresh[i];

	one->change->version = fresh->bytes->version;
	one->change->status = 0;
	hash_remember(many->table, &many->readings[i], slot_at, one->slot,
		      fresh->at, fresh->bytes->version);
	entry_fresh_drop(&many->table->home, fresh, false);
}

/* End a put whose CAS came to rc, as index_cas returns; 0: hash_apply does it.
 */
static void end_put(struct many *many, uint32_t i, uint64_t slot_at, int rc)
{
	struct one *one = &many->ones[i];

	if (rc == 1) {
		note_put(many, i, slot_at);
	} else if (rc && rc != -EAGAIN) {
		one->change->status = rc;
		/* After a doubt a slot may name the entry, so its block stays:
		 * recovery asks is_live when our session has ended. */
		entry_fresh_drop(&many->table->home, &many->fresh[i],
				 rc != -REEF_EINDOUBT && rc != -ETIMEDOUT);
	}
	one->way = DONE;
}

static void end_update(struct many *many, uint32_t i)
{
	const struct hash_reading *reading = &many->readings[i];
	struct one *one = &many->ones[i];
	uint64_t before, old = reading->entry_at;
	int rc = one->cas->status;

	hash_remember(many->table, reading, 0, 0, 0, 0);
	if (!rc)
		rc = one->cas->result == reading->slot;
	else if (rc == -REEF_EINDOUBT)
		rc = hash_swap_settle(many->table, reading, one->slot, &before);
	else if (rc == -REEF_ENOTDONE)
		rc = 0;
	end_put(many, i, reading->slot_at, rc);
	if (rc == 1)
		entry_free(&many->table->home, old);
}

/* Do the rest of an insert by itself. */
static void end_slowly(struct many *many, uint32_t i,
		       int (*rest)(struct hash_insertion *insertion))
{
	struct one *one = &many->ones[i];
	int rc = rest(&one->insertion);

	hash_insertion_end(&one->insertion, &many->fresh[i], rc);
	end_put(many, i, one->insertion.at, rc ? rc : 1);
}

/* End the CAS that was to make a slot provisional. If it is ours and no other
 * slot has the key, the way stays INSERT, and the next batch confirms it. */
static void end_take(struct many *many, uint32_t i)
{
	struct one *one = &many->ones[i];
	struct hash_insertion *insertion = &one->insertion;
	uint64_t now;
	int rc = one->cas->status;

	one->slot = hash_insertion_confirmed(insertion);
	if (rc == -REEF_EINDOUBT) {
		/* Only we write that word, so a READ tells. */
		rc = reef_read(many->table->reef, insertion->at, &now, 8);
		many->fresh[i].is_named = rc;
		if (!rc && now == insertion->word)
			end_slowly(many, i, hash_insertion_retry);
		else
			end_put(many, i, 0, rc);
	} else if (rc == -ETIMEDOUT) {
		end_put(many, i, 0, rc);
	} else if (rc || one->cas->result != insertion->before) {
		end_put(many, i, 0, 0);
	} else if (one->cas[1].status || one->cas[2].status) {
		end_slowly(many, i, hash_insertion_retry);
	} else if (!REEF_MUTATED(HASH_NO_REREAD)) {
		rc = hash_insertion_check_rivals(insertion);
		if (!rc) {
			end_slowly(many, i, hash_insertion_retry);
		} else if (rc < 0) {
			hash_insertion_end(insertion, &many->fresh[i], rc);
			end_put(many, i, 0, rc);
		}
	}
}

static void end_confirm(struct many *many, uint32_t i)
{
	struct one *one = &many->ones[i];
	struct hash_insertion *insertion = &one->insertion;
	uint64_t before;
	int rc = one->cas->status;

	if (!rc)
		rc = one->cas->result == insertion->word;
	else if (rc == -REEF_EINDOUBT)
		rc = index_cas_again(many->table->reef, insertion->at,
				     insertion->word, one->slot, &before);
	else if (rc == -REEF_ENOTDONE)
		rc = index_cas(many->table->reef, insertion->at,
			       insertion->word, one->slot, &before);
	if (rc < 0)
		hash_insertion_end(insertion, &many->fresh[i], rc);
	end_put(many, i, insertion->at, rc);
}

/* Call `end` for each that goes that way. */
static void end_all(struct many *many, int way,
		    void (*end)(struct many *many, uint32_t i))
{
	for (uint32_t i = 0; i < many->count; i++)
		if (many->ones[i].way == (unsigned)way)
			end(many, i);
}

static int put_straight(struct many *many)
{
	uint64_t taken[HASH_TOGETHER];
	uint32_t taken_count = 0, i;
	int rc;

	prepare_entries(many);
	rc = hash_find_along(many->table, many->readings, many->fresh,
			     many->count);
	if (rc)
		return rc;
	for (i = 0; i < many->count; i++)
		decide_one(many, i);
	write_rest(many);
	for (i = 0; i < many->count; i++) {
		if (many->ones[i].way == UPDATE)
			begin_update(many, i);
		else if (many->ones[i].way == INSERT)
			begin_insert(many, i, taken, &taken_count);
	}
	/* Each access has a status of its own. */
	run_slots(many);
	end_all(many, UPDATE, end_update);
	end_all(many, INSERT, end_take);
	many->accesses_count = 0;
	for (i = 0; i < many->count; i++)
		if (many->ones[i].way == INSERT)
			many->ones[i].cas = add_access(
				many, cas_of(many->ones[i].insertion.at,
					     many->ones[i].insertion.word,
					     many->ones[i].slot));
	if (many->accesses_count)
		reef_execute(many->table->reef, many->accesses,
			     many->accesses_count);
	end_all(many, INSERT, end_confirm);
	return 0;
}

/* --- all of it --- */

static int put_ahead(void *context, const struct entry *now, struct entry *put)
{
	(void)now;
	*put = *(const struct entry *)context;
	return ENTRY_PUT;
}

static void put_slowly(struct hash_table *table, struct entry_change *change)
{
	struct entry_change slow = *change;

	if (!slow.decide) {
		slow.decide = put_ahead;
		slow.context = (void *)change->ahead;
	}
	change->status = hash_apply(table, &slow);
	change->version = slow.version;
}

void hash_many_free(struct many *many)
{
	if (!many)
		return;
	for (uint32_t i = 0; i < HASH_TOGETHER; i++)
		hash_reading_free(&many->readings[i]);
	hash_reading_free(&many->other);
	free(many);
}

/* Take what the table keeps for this, or make another: fibers share a table. */
static struct many *take_many(struct hash_table *table)
{
	struct many *many = table->many;

	table->many = NULL;
	if (many)
		return many;
	many = calloc(1, sizeof(*many));
	for (uint32_t i = 0; many && i < HASH_TOGETHER; i++)
		many->readings[i].to_change = true;
	return many;
}

static void give_many(struct hash_table *table, struct many *many)
{
	for (uint32_t i = 0; i < many->count; i++) {
		entry_fresh_drop(&table->home, &many->fresh[i], true);
		if (many->readings[i].room.size > ROOM_MAX)
			hash_reading_free(&many->readings[i]);
	}
	if (table->many)
		hash_many_free(many);
	else
		table->many = many;
}

static int put_some(struct hash_table *table, struct entry_change *changes,
		    uint32_t count)
{
	struct many *many = take_many(table);
	uint32_t i;
	int rc;

	if (!many)
		return -ENOMEM;
	many->table = table;
	many->count = count;
	many->marks_count = many->accesses_count = 0;
	many->apart = false;
	for (i = 0; i < count; i++) {
		many->ones[i].change = &changes[i];
		many->ones[i].way = DONE;
	}
	reef_enter(table->reef);
	rc = put_straight(many);
	give_many(table, many);
	reef_leave(table->reef);
	for (i = 0; i < count && !rc; i++)
		if (changes[i].status == -EAGAIN)
			put_slowly(table, &changes[i]);
	return rc;
}

int hash_put_many(struct hash_table *table, struct entry_change *changes,
		  uint32_t count)
{
	uint32_t some;
	int rc = 0;

	for (; count && !rc; count -= some, changes += some) {
		some = count < HASH_TOGETHER ? count : HASH_TOGETHER;
		rc = put_some(table, changes, some);
	}
	return rc;
}
