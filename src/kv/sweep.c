/* sweep.c - what calls that change keys do by the way, all handles together:
 * removing keys that have expired and that nobody touches, and counting the
 * size anew.
 *
 *   due --CAS sweep_due_ms: now + period--> ours --walk from the cursor-->
 *       removed --CAS the cursor--> at the end: the size is corrected, a new
 *       pass begins
 *
 * (1) A step is some groups. Whoever moves `sweep_due_ms` on does it; should it
 *     die, the next one is due all the same.
 * (2) A step may take a fiftieth of the time at most: the next is due when 50
 *     times as long has passed. It goes on at once, some times, while more than
 *     a quarter of what can expire has expired.
 * (3) Two who do the same step do no harm: who comes late moves no cursor, and
 *     does not count.
 * (4) The size: what a pass met is set beside what entry_bytes was, on average,
 *     while it lasted; what differs by more than the pass can be wrong by is
 *     taken for the parts that handles died with, and is corrected.
 * (5) These words are hints, and come back to what they were (R9). In a space
 *     with two copies they are changed at one alone; where that is lost, a pass
 *     begins anew. entry_bytes is added to at both, and nobody compares. */
#include "kv/internal.h"

#include <errno.h>
#include <stddef.h>

#define PERIOD_MS 10
#define IDLE_NS UINT64_C(1000000000) /* nothing expires: looked at so often */
#define MILLISECOND_NS UINT64_C(1000000)
#define STEP_GROUPS 4u
#define ROUNDS_MAX 16u
#define COST_FACTOR 50
#define CORRECT_SHARE 64 /* of the size; less is not corrected */

void map_note_expiring(struct reef_map *map)
{
	map->expiring =
		!map_cas(map->reef, MAP_WORD(map, expiring), 0, 1, NULL);
	map->care_ns = 0;
}

struct step {
	uint64_t now_ms;
	uint32_t can_expire, expired;
	uint64_t bytes;
	struct map_doomed doomed;
};

static int note_entry(void *context, const struct entry *entry)
{
	struct step *step = context;

	if (entry->stamp != ENTRY_GHOST)
		step->bytes += map_bytes_of(entry->key_size, entry->value_size);
	step->can_expire += entry->stamp != 0;
	if (!map_has_expired(entry->stamp, step->now_ms))
		return 0;
	step->expired++;
	return map_doomed_note(&step->doomed, entry);
}

static int read_body(struct reef_map *map, struct map_body *body)
{
	int rc = reef_read(map->reef, map->object.body, body, sizeof(*body));

	if (rc)
		return rc;
	body->entry_bytes = map_bytes_told(body->entry_bytes);
	body->pass_start = map_bytes_told(body->pass_start);
	body->pass_bytes = map_bytes_told(body->pass_bytes);
	map->size_known = body->entry_bytes;
	return 0;
}

/* CAS a word that is a hint: (5). One in doubt is read. *now: what it is. */
static int cas_hint(struct reef_map *map, uint64_t at, uint64_t compare,
		    uint64_t value, uint64_t *now)
{
	struct reef_access access = {.kind = REEF_CAS,
				     .flags = REEF_SINGLE,
				     .address = at,
				     .compare = compare,
				     .operand = value};
	uint64_t there = value;
	int rc = reef_execute(map->reef, &access, 1);

	if (rc == -REEF_EINDOUBT)
		rc = reef_read(map->reef, at, &there, 8);
	else if (!rc && access.result != compare)
		there = access.result;
	if (!rc && now)
		*now = there;
	return rc;
}

/* --- the size anew: (4) --- */

static int cas_if_other(struct reef_map *map, uint64_t at, uint64_t from,
			uint64_t to)
{
	return from == to ? 0 : cas_hint(map, at, from, to, NULL);
}

static int begin_pass(struct reef_map *map, const struct map_body *body)
{
	int rc = cas_if_other(map, MAP_WORD(map, pass_start), body->pass_start,
			      body->entry_bytes);

	return rc ? rc
		  : cas_if_other(map, MAP_WORD(map, pass_bytes),
				 body->pass_bytes, 0);
}

static int end_pass(struct reef_map *map)
{
	struct map_body body;
	int64_t during, wrong, moved;
	int rc = read_body(map, &body);

	if (rc)
		return rc;
	during = ((int64_t)body.pass_start + (int64_t)body.entry_bytes) / 2;
	moved = (int64_t)(body.entry_bytes - body.pass_start);
	wrong = (int64_t)body.pass_bytes - during;
	if ((wrong < 0 ? -wrong : wrong) <=
	    (moved < 0 ? -moved : moved) + during / CORRECT_SHARE)
		return 0;
	return map_add_hint(map, MAP_WORD(map, entry_bytes), (uint64_t)wrong,
			    REEF_BLIND, NULL);
}

/* --- steps --- */

/* Do some groups of the pass. Returns how many keys were removed. *again: more
 * is worth doing at once, (2). */
static int sweep_some(struct reef_map *map, uint32_t groups, bool *again)
{
	struct map_body body;
	struct step step = {0};
	uint64_t cursor, now = 0, removed = 0;
	int rc = read_body(map, &body);

	*again = false;
	if (!rc)
		rc = map_now(map, &step.now_ms);
	if (!rc && !body.sweep_cursor && map->size_max)
		rc = begin_pass(map, &body);
	if (rc)
		return rc;
	cursor = body.sweep_cursor;
	rc = map->index->walk(map, &cursor, groups, note_entry, &step);
	if (!rc)
		rc = cas_hint(map, MAP_WORD(map, sweep_cursor),
			      body.sweep_cursor, cursor, &now);
	if (!rc && now == cursor && map->size_max)
		rc = map_add_hint(map, MAP_WORD(map, pass_bytes), step.bytes,
				  REEF_SINGLE, NULL);
	if (!rc && now == cursor && !cursor && map->size_max)
		rc = end_pass(map);
	if (!rc)
		rc = map_doomed_remove(map, &step.doomed, false, &removed);
	map_doomed_free(&step.doomed);
	map->expired += removed;
	*again = removed && step.expired * 4 > step.can_expire && cursor;
	return rc ? rc : (int)removed;
}

/* Do a step that is ours: (1), (2). due_ms: what we have set. */
static void sweep_step(struct reef_map *map, uint64_t due_ms)
{
	uint64_t began_ns = reef_now_ns(), cost_ms, now_ms;
	uint32_t rounds = 0;
	bool again;

	do
		if (sweep_some(map, STEP_GROUPS, &again) < 0)
			return;
	while (again && ++rounds < ROUNDS_MAX);
	cost_ms = (reef_now_ns() - began_ns) * COST_FACTOR / MILLISECOND_NS;
	if (cost_ms > PERIOD_MS && !map_now(map, &now_ms))
		cas_hint(map, MAP_WORD(map, sweep_due_ms), due_ms,
			 now_ms + cost_ms, NULL);
}

void map_care_now(struct reef_map *map)
{
	struct map_body body;
	uint64_t now_ms, next_ms, now;

	map->care_ns = reef_now_coarse_ns() + IDLE_NS;
	map_spare_keep(map);
	if (read_body(map, &body))
		return;
	if (body.expiring)
		map->expiring = true;
	if ((!map->expiring && !map->size_max) || map_now(map, &now_ms))
		return;
	map->care_ns = reef_now_coarse_ns() + PERIOD_MS * MILLISECOND_NS;
	if (now_ms < body.sweep_due_ms &&
	    body.sweep_due_ms - now_ms < IDLE_NS / MILLISECOND_NS * 60)
		return;
	next_ms = now_ms + PERIOD_MS;
	if (!cas_hint(map, MAP_WORD(map, sweep_due_ms), body.sweep_due_ms,
		      next_ms, &now) &&
	    now == next_ms)
		sweep_step(map, next_ms);
}

int reef_map_sweep(struct reef_map *map, uint32_t steps)
{
	uint32_t evictions = 0;
	bool again;
	int rc, removed = steps ? sweep_some(map, steps, &again) : 0;

	map_account_flush(map);
	while (removed >= 0 && map->size_max &&
	       map->eviction != REEF_MAP_KEEP &&
	       map_size(map) > map->size_max && evictions++ < steps) {
		rc = map_evict(map);
		if (rc <= 0)
			return rc ? rc : removed;
		removed++;
	}
	return removed;
}
