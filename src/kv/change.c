/* change.c - changing keys: every change is one `decide` over the table's.
 *
 * decide() stands between the caller's and the table's: an entry that has
 * expired is not there for the caller, and does not outlive the call: what the
 * caller leaves alone is deleted then (get.c says why). */
#include "kv/internal.h"
#include "pool/client/handle/near.h"

#include <errno.h>

#define MAKE_ROOM 4    /* times that a full pool is met by eviction */
#define EVICT_SOME 16u /* then */

/* Fill in what the caller's decide puts, unless it has expired already or is
 * over size_max. */
static int decide_put(struct map_work *work, const struct entry *now,
		      struct entry *put)
{
	struct reef_map *map = work->map;
	uint64_t now_ms, bytes;
	int rc;

	put->value = work->put.value;
	put->value_size = (uint32_t)work->put.value_size;
	put->stamp = work->put.expires_ms;
	put->staged = work->staged;
	if (map->index->notes_uses)
		put->touched = map_use_first(map, now ? &now->touched : NULL);
	if (put->stamp) {
		rc = map_time(map, &now_ms);
		if (rc)
			return rc;
		work->too_late = map_has_expired(put->stamp, now_ms);
		if (work->too_late)
			return ENTRY_DELETE;
	}
	bytes = map_bytes_of(work->change->key_size, put->value_size);
	work->bytes += (int64_t)bytes;
	if (!map->size_max)
		return ENTRY_PUT;
	work->over = map->eviction == REEF_MAP_KEEP && work->bytes > 0 &&
		     map_size(map) + (uint64_t)work->bytes > map->size_max;
	/* A value that is larger than size_max evicts nothing. */
	work->rc = bytes > map->size_max ? -ENOSPC : 0;
	return work->over || work->rc ? -ENOSPC : ENTRY_PUT;
}

/* Ask the caller's decide. */
static int ask_caller(struct map_work *work, const struct entry *now)
{
	struct reef_map_change *change = work->change;
	struct reef_map_entry entry;
	int rc;

	work->put = (struct reef_map_entry){0};
	work->map->decisions++;
	if (now)
		entry = map_entry_of(now);
	rc = change->decide(change->context, now ? &entry : NULL, &work->put);
	if (rc == REEF_MAP_PUT && work->put.value_size > work->map->value_max)
		rc = -EINVAL;
	work->rc = rc < 0 ? rc : 0;
	if (rc >= 0)
		change->verdict = (enum reef_map_verdict)rc;
	return rc;
}

static int decide(void *context, const struct entry *now, struct entry *put)
{
	struct map_work *work = context;
	uint64_t now_ms = 0;
	int rc = 0;

	if (now && now->stamp)
		rc = map_time(work->map, &now_ms);
	if (rc)
		return rc;
	work->too_late = work->over = false;
	work->met_expired = now && map_has_expired(now->stamp, now_ms);
	work->met_ghost = now && now->stamp == ENTRY_GHOST;
	rc = ask_caller(work, work->met_expired ? NULL : now);
	work->bytes = 0;
	if (rc != REEF_MAP_PUT && rc != REEF_MAP_DELETE && !work->met_expired)
		return rc < 0 ? rc : ENTRY_KEEP;
	if (now && !work->met_ghost)
		work->bytes =
			-(int64_t)map_bytes_of(now->key_size, now->value_size);
	if (rc != REEF_MAP_PUT)
		return ENTRY_DELETE;
	return decide_put(work, work->met_expired ? NULL : now, put);
}

/* Make room after -ENOSPC or -EDQUOT. True: there may be more now. */
static bool can_make_room(struct reef_map *map, const struct map_work *work)
{
	uint64_t before = map_size(map);
	uint32_t evicted = 0;

	if (work->over) {
		/* Others may have freed something since we read the size. */
		map_account_flush(map);
		return !reef_read(map->reef, MAP_WORD(map, entry_bytes),
				  &map->size_known, 8) &&
		       map_size(map) < before;
	}
	if (map->eviction == REEF_MAP_KEEP || work->rc)
		return false;
	while (evicted < EVICT_SOME && map_evict(map) == 1)
		evicted++;
	return evicted;
}

void map_work_begin(struct map_work *work, struct reef_map *map,
		    struct reef_map_change *change, struct entry_staged *staged)
{
	const struct reef_map_entry *put = change->ahead;

	*work = (struct map_work){
		.map = map,
		.change = change,
		.staged = staged,
		.below =
			{
				.key = change->key,
				.key_size = (uint32_t)change->key_size,
				.decide = decide,
				.context = work,
				.blind = change->blind,
			},
	};
	/* LFU: the counter of uses goes on from that of the value before, which
	 * is not known ahead. */
	if (!put || map->eviction == REEF_MAP_LFU)
		return;
	work->ahead = (struct entry){
		.value = put->value,
		.value_size = (uint32_t)put->value_size,
		.stamp = put->expires_ms,
		.touched = map->index->notes_uses ? map->tick : 0,
		.staged = work->staged,
	};
	work->below.ahead = &work->ahead;
}

int map_work_end(struct map_work *work)
{
	struct reef_map *map = work->map;
	struct reef_map_change *change = work->change;

	map->expired += work->met_expired && !work->met_ghost;
	map_account(map, work->bytes);
	if (change->verdict == REEF_MAP_PUT && !work->rc)
		change->version = work->too_late ? 0 : work->below.version;
	if (!work->rc && work->put.expires_ms && !map->expiring)
		map_note_expiring(map);
	return work->rc;
}

bool map_is_within_limits(const struct reef_map *map,
			  const struct reef_map_change *change)
{
	return change->key_size <= map->key_max &&
	       (!change->ahead || change->ahead->value_size <= map->value_max);
}

static int apply(struct reef_map *map, struct reef_map_change *change,
		 struct entry_staged *staged)
{
	const struct reef_map_entry *put = change->ahead;
	struct map_work work;
	int rc = 0, attempt = 0;

	map_refresh_tick(map);
	if (map->size_max)
		rc = map_make_room(map,
				   map_bytes_of(change->key_size,
						put ? put->value_size : 0));
	/* A change without `ahead` may turn out not to put. */
	if (rc == -ENOSPC && !put)
		rc = 0;
	if (rc)
		return rc;
	map_work_begin(&work, map, change, staged);
	do
		rc = map->index->apply(map->table, &work.below);
	while ((rc == -ENOSPC || rc == -EDQUOT) && attempt++ < MAKE_ROOM &&
	       can_make_room(map, &work));
	if (!rc)
		rc = map_work_end(&work);
	map_care(map);
	return rc;
}

/* A change that is timed, if all of it is done in place; it stands for those
 * that are not timed. */
static __attribute__((noinline)) int apply_timed(struct reef_map *map,
						 struct reef_map_change *change,
						 struct entry_staged *staged)
{
	const uint64_t told_ns = client_counted_ns(map->reef);
	const uint64_t begun_ns = reef_now_ns();
	int rc = apply(map, change, staged);

	/* What waits for a fabric times itself. */
	if (client_counted_ns(map->reef) == told_ns)
		client_count_time(map->reef, reef_now_ns() - begun_ns,
				  MAP_SAMPLE);
	return rc;
}

int map_apply(struct reef_map *map, struct reef_map_change *change,
	      struct entry_staged *staged)
{
	if (!map_is_within_limits(map, change))
		return -EINVAL;
	if (unlikely(++map->changes % MAP_SAMPLE == 0))
		return apply_timed(map, change, staged);
	return apply(map, change, staged);
}

int reef_map_apply(struct reef_map *map, struct reef_map_change *change)
{
	return map_apply(map, change, NULL);
}

/* --- removing, by the map itself --- */

struct removing {
	const struct map_removal *removal;
	uint64_t bytes;
	bool done;
};

static int decide_removal(void *context, const struct entry *now,
			  struct entry *put)
{
	struct removing *removing = context;
	const struct map_removal *removal = removing->removal;

	(void)put;
	removing->done =
		now &&
		(!removal->version || now->version == removal->version) &&
		(!removal->touched || now->touched == *removal->touched);
	if (!removing->done)
		return ENTRY_KEEP;
	removing->bytes =
		now->stamp == ENTRY_GHOST
			? 0
			: map_bytes_of(now->key_size, now->value_size);
	return ENTRY_DELETE;
}

int map_remove(struct reef_map *map, const struct map_removal *removal)
{
	struct removing removing = {.removal = removal};
	struct entry_change change = {
		.key = removal->key,
		.key_size = (uint32_t)removal->key_size,
		.decide = decide_removal,
		.context = &removing,
		.blind = true,
		.gently = removal->gently,
	};
	int rc = map->index->apply(map->table, &change);

	if (!rc && removing.done)
		map_account(map, -(int64_t)removing.bytes);
	return rc ? rc : removing.done;
}
