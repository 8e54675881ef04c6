/* effect.c - what an operation does at its target.
 *
 * (1) Words are moved whole (F2), in whatever order the plan has put them.
 * (2) A word between the halves of an atomic is held: another atomic on it
 *     waits for the second half. READ, WRITE and the processor do not look at
 *     holds, and so their changes in between are lost (F6).
 * (3) A calm batch is done at once, in its order, without tearing. */
#include "fabric/sim/flight.h"

#include "base/checksum.h"
#include "base/mutant.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void sim_load(struct cargo *cargo, const struct reef_op *op)
{
	*cargo = (struct cargo){
		.kind = op->kind,
		.ordered = op->flags & REEF_ORDERED,
		.length = op->length,
		.key = op->kind != REEF_SEND ? op->remote->key : 0,
		.offset = op->offset,
		.operand = op->operand,
		.compare = op->compare,
		.local = op->local,
	};
	if (op->kind == REEF_CAS || op->kind == REEF_FAA)
		cargo->length = 8;
}

int sim_check(struct reef_sim *sim, const struct sim_region *region,
	      const struct cargo *cargo)
{
	uint64_t size;

	if (cargo->kind == REEF_SEND)
		return 0;
	if (!region || region->withdrawing)
		return -REEF_EKEY;
	size = region->base.memory->size;
	if (REEF_MUTATED(SIM_F8_BOUNDS))
		size++;
	if (cargo->offset > size || cargo->length > size - cargo->offset)
		return -ERANGE;
	if (cargo->kind != REEF_READ &&
	    reef_region_only_reads(&region->base, cargo->key) &&
	    !REEF_MUTATED(SIM_F8_WRITABLE) &&
	    (region->base.memory->read_only ||
	     !REEF_MUTATED(SIM_F8_READ_KEY_WRITES)))
		return -EACCES;
	if (cargo->kind == REEF_FLUSH && !region->base.memory->durable)
		return -REEF_ENOTDURABLE;
	return 0;
}

/* --- words --- */

static_assert(PIECES_MAX == 4, "a case each in piece_of()");

/* The piece that a run of words is in. */
static uint8_t piece_of(const struct cargo *cargo, uint64_t run)
{
	uint64_t x = run + cargo->salt;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	x >>= 33;
	/* This is asked for every run, once per piece, and a division by a
	 * variable took half of a simulation's time. */
	switch (cargo->pieces) {
	case 1:
		return 0;
	case 2:
		return x % 2;
	case 3:
		return x % 3;
	default:
		return x % 4;
	}
}

static uint8_t *region_bytes(const struct sim_region *region)
{
	return region->kept ? region->kept : region->base.memory->base;
}

/* --- words that are watched (reef_sim_watch) --- */

static bool is_watched(const struct sim_region *region, uint64_t offset)
{
	return region->cased &&
	       region->cased[offset / 512] >> (offset / 8 % 64) & 1;
}

static uint64_t load_word(const struct sim_region *region, uint64_t offset)
{
	uint64_t value;

	memcpy(&value, region_bytes(region) + (offset & ~UINT64_C(7)), 8);
	return value;
}

/* Somebody tries an atomic on a word: from now on it is watched. */
static void watch_word(const struct reef_sim *sim, struct sim_region *region,
		       uint64_t offset)
{
	if (!sim->changed)
		return;
	if (!region->cased)
		region->cased = calloc(region->base.memory->size / 512 + 1, 8);
	reef_assert(region->cased);
	region->cased[offset / 512] |= UINT64_C(1) << (offset / 8 % 64);
}

static void tell_change(const struct reef_sim *sim,
			const struct sim_region *region, uint8_t kind,
			uint64_t offset, uint64_t before, uint64_t compare)
{
	struct reef_sim_change change = {
		.region = region->base.key,
		.bytes = region_bytes(region),
		.size = region->base.memory->size,
		.offset = offset & ~UINT64_C(7),
		.before = before,
		.after = load_word(region, offset),
		.compare = compare,
		.kind = kind,
	};

	sim->changed(sim->changed_context, &change);
}

/* The end of the word that has the byte at `low`, if that is before `end`. */
static uint64_t word_end(uint64_t low, uint64_t end)
{
	uint64_t high = (low | 7) + 1;

	return high < end ? high : end;
}

/* Copy a word, or a part of one. Returns its value. */
static uint64_t copy_word(uint8_t *to, const uint8_t *from, uint64_t size)
{
	uint64_t value = 0;

	if (size == 8) { /* most are whole, and need no call */
		memcpy(&value, from, 8);
		memcpy(to, &value, 8);
	} else {
		memcpy(&value, from, size);
		memcpy(to, &value, size);
	}
	return value;
}

/* Move the bytes [low, high) of a region. */
static void move_words(struct reef_sim *sim, const struct sim_region *region,
		       const struct cargo *cargo, uint64_t low, uint64_t high)
{
	uint64_t size = region->base.memory->size, hash = sim->hash, next,
		 value;
	uint8_t *remote = region_bytes(region), *local;
	uint64_t before;
	bool watched;

	/* Only mutant SIM_F8_BOUNDS gets here with more than there is. */
	if (high > size)
		high = size;
	local = cargo->captured ? cargo->bytes : cargo->local;
	for (; low < high; low = next) {
		uint8_t *far = remote + low;
		uint8_t *near = local + (low - cargo->offset);

		next = word_end(low, high);
		watched = cargo->kind == REEF_WRITE && is_watched(region, low);
		before = watched ? load_word(region, low) : 0;
		if (cargo->kind == REEF_READ)
			value = copy_word(near, far, next - low);
		else
			value = copy_word(far, near, next - low);
		if (watched)
			tell_change(sim, region, REEF_WRITE, low, before, 0);
		hash = sim_mixed(hash, value);
	}
	sim->hash = hash;
}

/* Mutant SIM_F2_TORN_WORD: half of each word is in another piece. */
static void move_halves(struct reef_sim *sim, const struct sim_region *region,
			const struct cargo *cargo, uint8_t piece, uint8_t mine,
			uint64_t low, uint64_t high)
{
	uint64_t middle, next;

	for (; low < high; low = next) {
		next = word_end(low, high);
		middle = (low + next) / 2;
		if (mine == piece)
			move_words(sim, region, cargo, low, middle);
		if ((mine + 1) % cargo->pieces == piece)
			move_words(sim, region, cargo, middle, next);
	}
}

/* Long ops are torn in runs of words: at any word, but not at every one. */
void sim_move_piece(struct reef_sim *sim, const struct sim_region *region,
		    const struct cargo *cargo, uint8_t piece)
{
	bool torn = REEF_MUTATED(SIM_F2_TORN_WORD);
	uint64_t end = cargo->offset + cargo->length;
	uint64_t words = word_count(cargo) / 1024 + 1; /* of a run */
	uint64_t ahead = cargo->salt % words;
	uint64_t run = (cargo->offset / 8 + ahead) / words;
	uint64_t low, high;
	uint8_t mine;

	for (low = cargo->offset; low < end; low = high, run++) {
		high = ((run + 1) * words - ahead) * 8;
		if (high > end)
			high = end;
		mine = piece_of(cargo, run);
		if (torn)
			move_halves(sim, region, cargo, piece, mine, low, high);
		else if (mine == piece)
			move_words(sim, region, cargo, low, high);
	}
}

/* --- atomics --- */

static struct hold **hold_bucket(struct reef_sim *sim, uint64_t offset)
{
	return &sim->holds[(offset / 8) % HOLD_BUCKETS];
}

/* When the word is free again; 0: it is free. */
uint64_t sim_held_until(struct reef_sim *sim, const struct reef_memory *memory,
			uint64_t offset)
{
	const struct hold *hold = *hold_bucket(sim, offset);

	if (REEF_MUTATED(SIM_F6_SPLIT))
		return 0;
	while (hold && (hold->memory != memory || hold->offset != offset))
		hold = hold->next;
	return hold ? hold->until_ns : 0;
}

void sim_hold(struct reef_sim *sim, struct cargo *cargo,
	      const struct reef_memory *memory, uint64_t until_ns)
{
	struct hold **bucket = hold_bucket(sim, cargo->offset);

	cargo->open = true;
	cargo->hold = (struct hold){
		.next = *bucket,
		.memory = memory,
		.offset = cargo->offset,
		.until_ns = until_ns,
	};
	*bucket = &cargo->hold;
}

void sim_let_go(struct reef_sim *sim, struct cargo *cargo)
{
	struct hold **at = hold_bucket(sim, cargo->offset);

	while (*at != &cargo->hold)
		at = &(*at)->next;
	*at = cargo->hold.next;
	cargo->open = false;
}

bool sim_first_half(struct reef_sim *sim, struct cargo *cargo,
		    struct sim_region *region)
{
	watch_word(sim, region, cargo->offset);
	memcpy(&cargo->result, region_bytes(region) + cargo->offset, 8);
	if (sim->changed && cargo->kind == REEF_CAS &&
	    cargo->result != cargo->compare)
		tell_change(sim, region, REEF_CAS, cargo->offset, cargo->result,
			    cargo->compare);
	return cargo->kind == REEF_FAA || cargo->result == cargo->compare;
}

void sim_second_half(struct reef_sim *sim, struct cargo *cargo,
		     const struct sim_region *region)
{
	uint64_t value = cargo->operand, before;

	if (cargo->kind == REEF_FAA) {
		value += cargo->result;
		if (REEF_MUTATED(SIM_F1_TWICE) &&
		    reef_random_chance(&sim->net, 1, 8))
			value += cargo->operand;
	}
	before = load_word(region, cargo->offset);
	memcpy(region_bytes(region) + cargo->offset, &value, 8);
	if (is_watched(region, cargo->offset))
		tell_change(sim, region, cargo->kind, cargo->offset, before,
			    cargo->compare);
	sim_mix(sim, value);
}

/* --- messages --- */

void sim_deliver(struct reef_sim *sim, struct side *side,
		 const struct cargo *cargo)
{
	const uint8_t *bytes = cargo->captured ? cargo->bytes : cargo->local;
	struct parcel *parcel;

	if (!side->link)
		return; /* a stray, and nobody is there any more */
	if (REEF_MUTATED(SIM_F1_LOST_SEND) &&
	    reef_random_chance(&sim->net, 1, 8))
		return;
	parcel = malloc(sizeof(*parcel) + cargo->length);
	reef_assert(parcel);
	parcel->next = NULL;
	parcel->length = cargo->length;
	if (cargo->length)
		memcpy(parcel->bytes, bytes, cargo->length);
	sim_mix(sim, reef_hash(parcel->bytes, cargo->length, 0));
	*side->pipe_tail = parcel;
	side->pipe_tail = &parcel->next;
	side->pipe_count++;
	sim_pipe_filled(side->link);
}

/* --- calm --- */

static int calm_op(struct reef_sim *sim, struct side *side, struct reef_op *op)
{
	struct sim_region *region = NULL;
	struct cargo cargo;
	int rc;

	sim_load(&cargo, op);
	cargo.pieces = 1;
	if (op->kind != REEF_SEND)
		region = reef_container(op->remote, struct sim_remote, base)
				 ->region;
	rc = sim_check(sim, region, &cargo);
	if (rc)
		return rc;
	sim_trace(sim, (enum trace_kind)op->kind, side->host,
		  cargo.key ^ cargo.offset, cargo.length);
	if (!cargo.length && op->kind != REEF_SEND)
		return 0;
	switch (op->kind) {
	case REEF_READ:
		memcpy(op->local, region_bytes(region) + op->offset,
		       op->length);
		break;
	case REEF_WRITE:
		memcpy(region_bytes(region) + op->offset, op->local,
		       op->length);
		sim_mix(sim, reef_hash(op->local, op->length, 0));
		break;
	case REEF_FLUSH:
		sim_region_flush(region, op->offset, op->length);
		break;
	case REEF_SEND:
		sim_deliver(sim, side, &cargo);
		break;
	default:
		if (sim_first_half(sim, &cargo, region))
			sim_second_half(sim, &cargo, region);
		op->result = cargo.result;
	}
	return 0;
}

int sim_batch_calm(struct sim_link *link, struct reef_batch *batch)
{
	struct conn *conn = link->conn;
	struct side *side = &conn->sides[link->base.listener ? 0 : 1];
	uint32_t i, sends = 0;
	int rc;

	if (conn->state != CONN_UP)
		return -REEF_ENOLINK;
	for (i = 0; i < batch->count; i++)
		sends += batch->ops[i].kind == REEF_SEND;
	if (sends && side->pipe_count >= PIPE_MAX)
		return -EAGAIN;
	for (i = 0; i < batch->count; i++) {
		rc = calm_op(conn->sim, side, &batch->ops[i]);
		batch->ops[i].status = rc;
		if (rc) {
			reef_batch_fail(batch, i, rc);
			break;
		}
	}
	batch->done = true;
	return 1;
}
