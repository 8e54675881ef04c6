/* shard_read.c - reading a SHARDED log: positions, cuts, cells.
 *
 *   position --> the cut that has it --> its parts --{READ cells, each}-->
 *
 * Cuts are read in pages and kept: what they say does not change. Where there
 * is nothing more an EARLY log is cut first. */
#include "log/shard.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

/* --- cuts of a position --- */

static void drop_page(struct log_sharded *sharded)
{
	while (sharded->page_count)
		cut_free(&sharded->page[--sharded->page_count]);
}

/* READ the cuts that follow those of the page. */
static int turn_page(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	struct cut cuts[CUTS_PAGE];
	uint64_t next = sharded->page_next;
	uint32_t count = 0;
	int rc = cuts_load(log, &next, cuts, CUTS_PAGE, &count);

	if (rc || !count)
		return rc == -ESHUTDOWN || !rc ? -ENOENT : rc;
	drop_page(sharded);
	memcpy(sharded->page, cuts, count * sizeof(cuts[0]));
	sharded->page_count = count;
	sharded->page_next = next;
	return 0;
}

/* Begin the page with the cut that has a position, or the last before it.
 * -ENODATA: all that can be read is behind it. */
static int open_page(struct reef_log *log, uint64_t position)
{
	struct log_sharded *sharded = log->sharded;
	struct cut cut;
	int rc = cuts_follow(log);

	drop_page(sharded);
	if (!rc)
		rc = cuts_find(log, position, false, &cut);
	if (rc == -ENOENT) {
		sharded->page_next = 0;
		rc = cuts_find(log, UINT64_MAX, false, &cut);
		if (!rc)
			cut_free(&cut);
		return rc ? rc : -ENODATA;
	}
	if (rc)
		return rc;
	sharded->page[0] = cut;
	sharded->page_count = 1;
	sharded->page_next = cut.index + 1;
	return 0;
}

/* The cut of the page that has a position. */
static uint32_t find_in_page(const struct log_sharded *sharded,
			     uint64_t position)
{
	uint32_t i;

	for (i = 0; i < sharded->page_count; i++)
		if (!sharded->page[i].is_lost &&
		    sharded->page[i].head.first <= position &&
		    position < sharded->page[i].head.end)
			break;
	return i;
}

/* Where the first cut behind a position begins that can be read; the page is
 * about there. */
static int find_behind(struct reef_log *log, uint64_t position, uint64_t *next)
{
	struct log_sharded *sharded = log->sharded;
	uint32_t i;
	int rc = 0;

	do {
		for (i = 0; i < sharded->page_count; i++) {
			const struct cut *cut = &sharded->page[i];

			if (!cut->is_lost && cut->head.first > position) {
				*next = cut->head.first;
				return -REEF_ELOST;
			}
			/* It is there by now. */
			if (!cut->is_lost && cut->head.end > position)
				return 0;
		}
		rc = turn_page(log);
	} while (!rc);
	return rc;
}

/* Where a range of lost positions ends that begins before all cuts. */
static int find_lowest_first(struct reef_log *log, uint64_t position,
			     uint64_t *next)
{
	uint64_t low = position, high = log->sharded->last.head.first;
	struct cut cut;
	int rc = 0;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		rc = cuts_find(log, middle, false, &cut);
		if (!rc) {
			high = cut.head.first;
			cut_free(&cut);
			if (high > middle)
				return -REEF_ECORRUPT;
		} else if (rc == -ENOENT) {
			low = middle + 1;
		} else {
			return rc;
		}
	}
	*next = low;
	return low > position ? -REEF_ELOST : -EAGAIN;
}

/* See to it that the page has a position; *at: the cut. -ENOENT: it is the end.
 * -REEF_ELOST: *next is behind what is lost. */
static int find_cut(struct reef_log *log, uint64_t position, uint32_t *at,
		    uint64_t *next)
{
	struct log_sharded *sharded = log->sharded;
	const struct cut *end;
	int rc = 0;

	*at = find_in_page(sharded, position);
	if (*at < sharded->page_count)
		return 0;
	end = sharded->page_count ? &sharded->page[sharded->page_count - 1]
				  : NULL;
	if (end && !end->is_lost && end->head.end == position)
		rc = turn_page(log);
	else
		rc = open_page(log, position);
	if (rc == -ERANGE)
		rc = open_page(log, position);
	if (rc == -ENODATA)
		return find_lowest_first(log, position, next);
	if (rc)
		return rc;
	*at = find_in_page(sharded, position);
	if (*at < sharded->page_count)
		return 0;
	rc = find_behind(log, position, next);
	*at = find_in_page(sharded, position);
	return rc ? rc : *at < sharded->page_count ? 0 : -EAGAIN;
}

/* --- cells --- */

struct pieces {
	struct reef_access accesses[PIECES];
	uint32_t counts[PIECES];
	uint32_t count, positions;
};

/* Add what a cut has from a position on. */
static int add_pieces(struct reef_log *log, struct pieces *pieces,
		      const struct cut *cut, uint64_t position, uint32_t most)
{
	struct log_sharded *sharded = log->sharded;
	uint64_t at = cut->head.first, shard;
	uint32_t i, j, from, to, take;
	int rc;

	for (i = 0; i < cut->head.count && pieces->positions < most &&
		    pieces->count < PIECES;
	     i++) {
		from = cut_part_from(&cut->parts[i]);
		to = cut_part_to(&cut->parts[i]);
		at += to - from;
		if (at <= position || from == to)
			continue;
		from = to - (uint32_t)(at - position);
		take = to - from;
		if (take > most - pieces->positions)
			take = most - pieces->positions;
		rc = reef_long_address(log->object.space,
				       cut_part_block(&cut->parts[i]), &shard);
		if (rc)
			return rc == -EFAULT || rc == -ERANGE || rc == -EINVAL
				       ? -REEF_ECORRUPT
				       : rc;
		pieces->accesses[pieces->count] = log_read_of(
			shard_cell_at(log, shard, from),
			log->cells + (size_t)log->stride * pieces->positions,
			take * log->stride);
		pieces->counts[pieces->count++] = take;
		for (j = 0; j < take; j++)
			sharded->slots[pieces->positions++] = from + j;
		position += take;
	}
	return 0;
}

/* READ them; after an error those before it count. */
static int read_pieces(struct reef_log *log, struct pieces *pieces)
{
	uint32_t i;
	int rc = reef_execute(log->reef, pieces->accesses, pieces->count);

	if (!rc)
		return 0;
	pieces->positions = 0;
	for (i = 0; i < pieces->count; i++) {
		rc = reef_read(log->reef, pieces->accesses[i].address,
			       pieces->accesses[i].local,
			       pieces->accesses[i].length);
		if (rc)
			break;
		pieces->positions += pieces->counts[i];
	}
	return pieces->positions ? 0 : rc == -EFAULT ? -REEF_ECORRUPT : rc;
}

static int read_cells(struct reef_log *log, uint64_t from, uint32_t most,
		      uint32_t at, uint32_t *count, uint64_t *next)
{
	struct log_sharded *sharded = log->sharded;
	struct pieces pieces = {.count = 0};
	uint64_t position = from;
	uint32_t i;
	int rc = 0;

	for (; !rc && at < sharded->page_count; at++) {
		const struct cut *cut = &sharded->page[at];

		if (cut->is_lost || cut->head.first > position)
			break;
		rc = add_pieces(log, &pieces, cut, position, most);
		position = from + pieces.positions;
	}
	if (!rc || pieces.count)
		rc = read_pieces(log, &pieces);
	*next = from + (pieces.count ? pieces.counts[0] : 1);
	for (i = 0; !rc && i < pieces.positions; i++)
		memcpy(&log->words[i], log->cells + (size_t)log->stride * i, 8);
	*count = rc ? 0 : pieces.positions;
	return rc;
}

/* EARLY: what was appended and not cut. */
static int cut_more(struct reef_log *log, bool *made)
{
	int rc;

	*made = false;
	if (!log_is_early(log) && !log->sharded->last.is_lost)
		return 0;
	rc = cut_now(log, made);
	/* Who may only read, or finds no room, sees what is there. */
	return rc == -EACCES || rc == -ENOSPC || rc == -EDQUOT ||
			       rc == -E2BIG || rc == -ESHUTDOWN
		       ? 0
		       : rc;
}

/* No cut that can be read has a position; but the last one, which this handle
 * knows, may have it, or be behind it. -ENOENT: it is behind the last. */
static int use_last(struct reef_log *log, uint64_t from, uint64_t *next)
{
	struct log_sharded *sharded = log->sharded;
	const struct cut *last = &sharded->last;
	size_t size = sizeof(*last->parts) * (last->head.count + (size_t)1);

	if (last->index == LOG_NOWHERE || from >= last->head.end)
		return -ENOENT;
	/* Nobody has restarted the log yet; what was before is gone. */
	if (last->is_lost || from < last->head.first) {
		*next = last->is_lost ? last->head.end : last->head.first;
		return -REEF_ELOST;
	}
	drop_page(sharded);
	sharded->page[0] = *last;
	sharded->page[0].parts = malloc(size);
	if (!sharded->page[0].parts)
		return -ENOMEM;
	memcpy(sharded->page[0].parts, last->parts,
	       sizeof(*last->parts) * last->head.count);
	sharded->page_count = 1;
	sharded->page_next = last->index + 1;
	return 0;
}

/* The end of the last cut that is known. */
static uint64_t known_end(const struct reef_log *log)
{
	return log->sharded->last.index == LOG_NOWHERE
		       ? 0
		       : log->sharded->last.head.end;
}

int sharded_read(struct reef_log *log, uint64_t from, uint32_t most,
		 uint32_t *count, uint64_t *next)
{
	uint32_t at = 0;
	bool made = false;
	int rc = -EAGAIN, attempt = 0;

	*count = 0;
	*next = from;
	most = most < log->window ? most : log->window;
	while (rc == -EAGAIN && ++attempt < LOG_ATTEMPTS) {
		uint64_t end = known_end(log);

		rc = find_cut(log, from, &at, next);
		/* Others have trimmed up to there, or beyond; or (R10). */
		if (rc == -ERANGE) {
			rc = log_refresh(log, false);
			if (!rc)
				rc = from < log->first ? -ERANGE : -EAGAIN;
		}
		if (rc != -ENOENT)
			continue;
		at = 0;
		/* What was there before is not found any more. */
		if (from < end) {
			rc = use_last(log, from, next);
			break;
		}
		rc = cuts_follow(log);
		if (!rc && attempt == 1)
			rc = cut_more(log, &made);
		if (!rc)
			rc = from < known_end(log) ? -EAGAIN : -ENOENT;
	}
	if (rc == -ENOENT)
		return 0;
	if (!rc)
		rc = read_cells(log, from, most, at, count, next);
	/* Or was it trimmed, or all of it dropped, since this handle looked? */
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT) {
		int looked = log_refresh(log, false);

		rc = looked ? looked : from < log->first ? -ERANGE : rc;
	}
	return sharded_told(rc);
}

/* --- the end --- */

int sharded_tail(struct reef_log *log, uint64_t *position)
{
	bool made;
	int rc = cuts_follow(log);

	if (!rc)
		rc = cut_more(log, &made);
	if (!rc)
		*position = known_end(log);
	return sharded_told(rc);
}

/* Mark all shards, so that who appends knows of a sleeper: (S9). */
static int mark_asleep(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	uint32_t i;
	int rc = shards_look(log);

	for (i = 0; !rc && i < sharded->found_count; i++) {
		const struct shard_found *found = &sharded->found[i];

		if (found->rc || found->head.asleep & 1 ||
		    REEF_MUTATED(LOG_SLEEP_UNMARKED))
			continue;
		(void)reef_cas(log->reef,
			       shard_head_at(found->at) +
				       offsetof(struct shard_head, asleep),
			       found->head.asleep, found->head.asleep + 1,
			       NULL);
	}
	return rc;
}

/* True if a position is in the cuts that are known. */
static bool is_cut(const struct reef_log *log, uint64_t position)
{
	return position < known_end(log);
}

int sharded_look(struct reef_log *log, uint64_t position, uint64_t *index)
{
	struct log_sharded *sharded = log->sharded;
	bool made = true;
	int rc = cuts_follow(log), attempt;

	/* A cut of our own may have taken in a shard that is not marked. Who
	 * makes another wakes us. */
	for (attempt = 0; !rc && made && attempt < LOG_ATTEMPTS; attempt++) {
		if (log_is_early(log) && !sharded->is_at_end &&
		    !is_cut(log, position))
			rc = mark_asleep(log);
		if (!rc)
			rc = cut_more(log, &made);
		made = made && !is_cut(log, position);
	}
	if (rc)
		return sharded_told(rc);
	*index = sharded->next;
	if (is_cut(log, position))
		return 1;
	return sharded->is_at_end ? -ESHUTDOWN : 0;
}
