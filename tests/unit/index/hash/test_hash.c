/* The hash table in the simulator: what it answers, and what that costs.
 * Histories of many clients, and mutants, are tests/sim/tables. */
#include "fixture/plain_table.h"

#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int many_keys(struct member *member)
{
	struct hash_table *table;
	struct reef_space *space;
	struct plain gone = {.verdict = ENTRY_DELETE};
	uint64_t i, value;

	TRY(table_begin(member, 4, &space, &table));
	for (i = 0; i < 3000; i++)
		TRY(table_put(table, i, i * 3));
	for (i = 0; i < 3000; i++) {
		TRY(table_get(table, i, &value));
		WANT(value == i * 3);
	}
	WANT_RC(table_get(table, 3000, &value), -ENOENT);
	for (i = 0; i < 3000; i += 2)
		TRY(table_put(table, i, i + 1));
	for (i = 0; i < 3000; i += 3) {
		TRY(table_apply(table, i, &gone));
		WANT(gone.was_there);
	}
	for (i = 0; i < 3000; i++) {
		if (i % 3 == 0) {
			WANT_RC(table_get(table, i, &value), -ENOENT);
			continue;
		}
		TRY(table_get(table, i, &value));
		WANT(value == (i % 2 ? i * 3 : i + 1));
	}
	hash_close(table);
	return 0;
}

static void hash_many_keys_are_found(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, many_keys);
	pool_finish(&pool);
}

static int sized_decide(void *context, const struct entry *now,
			struct entry *put_out)
{
	(void)now;
	*put_out = *(struct entry *)context;
	return ENTRY_PUT;
}

#define LONGEST 1500100u /* each begins a byte later */

static int any_size(struct member *member)
{
	static const uint32_t sizes[] = {0,	1,	15,	16,   17,
					 80,	300,	4000,	4100, 9000,
					 65536, 200000, 1500000};
	struct hash_table *table;
	struct reef_space *space;
	uint8_t *bytes = malloc(LONGEST);
	uint32_t i;
	int rc = 0;

	WANT(bytes);
	for (i = 0; i < LONGEST; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	rc = table_begin(member, 4, &space, &table);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++) {
		uint32_t key_size = sizes[i] > 65536 ? 3 : sizes[i];
		struct entry entry = {
			.value = bytes + i,
			.value_size = sizes[i] ? sizes[i] - 1 : 0,
			.stamp = i,
		};
		struct entry_change change = {
			.key = bytes + i,
			.key_size = key_size,
			.decide = sized_decide,
			.context = &entry,
		};
		struct hash_reading reading = {
			.key = bytes + i,
			.key_size = key_size,
		};

		rc = hash_apply(table, &change);
		if (!rc)
			rc = hash_get(table, &reading, 1);
		if (!rc)
			rc = reading.status;
		if (!rc && (reading.entry.value_size != entry.value_size ||
			    reading.entry.stamp != i ||
			    reading.entry.version != change.version ||
			    memcmp(reading.entry.value, bytes + i,
				   entry.value_size) != 0))
			rc = -EXDEV;
		hash_reading_free(&reading);
	}
	free(bytes);
	if (rc)
		print_message("size %u: %s\n", sizes[i - 1],
			      reef_error_name(rc));
	hash_close(table);
	return rc;
}

static void hash_keys_and_values_of_any_size_come_back(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 2);
	pool_add(&pool, any_size);
	pool_finish(&pool);
}

/* --- what is noted of an entry, and how many there are --- */

static int touch(struct member *member)
{
	uint64_t key = 5, value, i;
	struct hash_reading reading = {.key = &key, .key_size = 8};
	struct hash_table *table;
	struct reef_space *space;
	struct hash_count count;
	uint32_t round;

	TRY(table_begin(member, 2, &space, &table));
	for (i = 0; i < 300; i++)
		TRY(table_put(table, i, i));
	/* Through its slot, then remembered. */
	for (round = 0; round < 2; round++) {
		reef_enter(member->reef);
		TRY(hash_get(table, &reading, 1));
		WANT(!reading.status);
		WANT(reading.entry.touched == (round ? 0xfffe : 0));
		TRY(hash_touch(table, &reading, 0xfffe));
		reef_leave(member->reef);
	}
	TRY(table_get(table, key, &value));
	WANT(value == key);
	TRY(table_put(table, key, 6));
	TRY(hash_get(table, &reading, 1));
	WANT(!reading.status && reading.entry.touched == 0);
	key = 999;
	TRY(hash_get(table, &reading, 1));
	WANT_RC(hash_touch(table, &reading, 1), -EINVAL);
	hash_reading_free(&reading);
	TRY(hash_count(table, &count));
	WANT(count.keys == 300 && count.subtables > 4);
	WANT(count.slots == count.subtables * UINT64_C(48));
	WANT(count.depth >= 3 && count.bytes > 8 * count.slots);
	hash_close(table);
	return 0;
}

static void hash_touch_is_seen_and_harms_nothing(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 5);
	pool_add(&pool, touch);
	pool_finish(&pool);
}

/* --- walking --- */

#define WALKED 2000u

struct seen {
	uint8_t times[2 * WALKED];
	bool wrong;
};

static int note_seen(void *context, const struct entry *entry)
{
	struct seen *seen = context;
	uint64_t key, value;

	if (entry->key_size != 8 || entry->value_size != 8) {
		seen->wrong = true;
		return 0;
	}
	memcpy(&key, entry->key, 8);
	memcpy(&value, entry->value, 8);
	if (key >= 2 * WALKED)
		seen->wrong = true;
	else
		seen->times[key]++;
	return 0;
}

#define LONG_KEY 300u /* longer than what a head is read with */

struct heads {
	uint8_t key[LONG_KEY];
	uint32_t count, long_count;
	bool wrong;
};

static int note_head(void *context, const struct entry *entry)
{
	struct heads *heads = context;

	heads->count++;
	heads->wrong |= entry->value || entry->value_size != 100000;
	if (entry->key_size == LONG_KEY && heads->long_count++ == 0)
		heads->wrong |= memcmp(entry->key, heads->key, LONG_KEY) != 0;
	return 0;
}

static int walk_heads(struct member *member)
{
	struct entry entry = {.value_size = 100000};
	struct entry_change change = {.decide = sized_decide,
				      .context = &entry};
	struct hash_cursor cursor = {0};
	struct heads heads = {0};
	struct hash_table *table;
	struct reef_space *space;
	struct reef_counts before, cost;
	uint8_t *value = calloc(1, 100000);
	uint64_t i;
	int rc;

	WANT(value);
	entry.value = value;
	memset(heads.key, 7, LONG_KEY);
	TRY(table_begin(member, 2, &space, &table));
	for (i = 0; i < 20; i++) {
		change.key = i ? (const void *)&i : heads.key;
		change.key_size = i ? 8 : LONG_KEY;
		TRY(hash_apply(table, &change));
	}
	free(value);
	before = reef_count_read(&member->count);
	do
		rc = hash_walk(table, &cursor, 1, HASH_WALK_HEADS, note_head,
			       &heads);
	while (!rc && !hash_cursor_is_zero(&cursor));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	WANT(!rc && !heads.wrong);
	WANT(heads.count == 20 && heads.long_count == 1);
	/* Values are not read. */
	WANT(cost.bytes_in < 60000);
	hash_close(table);
	return 0;
}

static void hash_walk_of_heads_reads_no_values(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 4);
	pool_add(&pool, walk_heads);
	pool_finish(&pool);
}

/* Over and over, many times what the pool has. */
static int put_more_than_there_is(struct member *member)
{
	struct entry entry = {.value_size = 200000};
	uint64_t key = 0, i;
	struct entry_change change = {
		.key = &key,
		.key_size = 8,
		.decide = sized_decide,
		.context = &entry,
	};
	struct hash_table *table;
	struct reef_space *space;
	uint8_t *value = calloc(1, entry.value_size);

	WANT(value);
	entry.value = value;
	TRY(table_begin(member, 2, &space, &table));
	for (i = 0; i < 600; i++) {
		key = i % 120;
		TRY(hash_apply(table, &change));
	}
	free(value);
	hash_close(table);
	return 0;
}

static void hash_full_pool_gets_back_what_was_superseded(void **state)
{
	struct pool pool = {.capacity = 16 * MIB};

	(void)state;
	pool_start(&pool, 4);
	pool_add(&pool, put_more_than_there_is);
	pool_finish(&pool);
}

static int walk_quiet(struct member *member)
{
	struct hash_cursor cursor = {0};
	static struct seen seen;
	struct hash_table *table;
	struct reef_space *space;
	uint64_t i;
	int rc;

	memset(&seen, 0, sizeof(seen));
	TRY(table_begin(member, 4, &space, &table));
	for (i = 0; i < WALKED; i++)
		TRY(table_put(table, i, i));
	do
		rc = hash_walk(table, &cursor, 3, 0, note_seen, &seen);
	while (!rc && !hash_cursor_is_zero(&cursor));
	WANT(!rc && !seen.wrong);
	for (i = 0; i < 2 * WALKED; i++)
		WANT(seen.times[i] == (i < WALKED));
	hash_close(table);
	return 0;
}

static void hash_walk_meets_every_entry_once(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 4);
	pool_add(&pool, walk_quiet);
	pool_finish(&pool);
}

/* The first half stays, and is updated; the other half comes meanwhile. */
static int walk_busy(struct member *member)
{
	struct hash_cursor cursor = {0};
	static struct seen seen;
	struct hash_table *table;
	struct reef_space *space;
	uint64_t i;
	int rc;

	memset(&seen, 0, sizeof(seen));
	TRY(table_begin(member, 2, &space, &table));
	for (i = 0; i < WALKED / 10; i++)
		TRY(table_put(table, i, i));
	member->pool->note[0] = 1;
	do
		rc = hash_walk(table, &cursor, 1, 0, note_seen, &seen);
	while (!rc && !hash_cursor_is_zero(&cursor));
	member->pool->note[0] = 2;
	WANT(!rc && !seen.wrong);
	for (i = 0; i < WALKED / 10; i++)
		WANT(seen.times[i] >= 1);
	hash_close(table);
	return 0;
}

static int disturb(struct member *member)
{
	struct hash_table *table;
	struct reef_space *space;
	uint64_t i;

	TRY(table_begin(member, 2, &space, &table));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < WALKED && member->pool->note[0] == 1; i++) {
		TRY(table_put(table, WALKED / 10 + i, i));
		TRY(table_put(table, i % (WALKED / 10), i));
	}
	hash_close(table);
	return 0;
}

static void hash_walk_misses_nothing_while_subtables_are_split(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, walk_busy);
		pool_add(&pool, disturb);
		pool_finish(&pool);
	}
}

/* --- budgets --- */

#define MANY 64u

/* What one of `repeats` costs at least: a renewal may fall into the others. */
static struct reef_counts cheapest(struct member *member,
				   int (*act)(struct hash_table *, uint64_t),
				   struct hash_table *table, uint64_t first,
				   uint32_t repeats)
{
	struct reef_counts best = {.round_trips = UINT64_MAX}, before, cost;

	for (uint32_t i = 0; i < repeats; i++) {
		before = reef_count_read(&member->count);
		if (act(table, first + i))
			continue;
		cost = reef_count_read(&member->count);
		cost = reef_counts_between(&before, &cost);
		if (cost.round_trips < best.round_trips)
			best = cost;
	}
	return best;
}

static int ahead_decide(void *context, const struct entry *now,
			struct entry *put_out)
{
	(void)now;
	*put_out = *(struct entry *)context;
	return ENTRY_PUT;
}

static int act_put(struct hash_table *table, uint64_t key)
{
	struct entry entry = {.value = &key, .value_size = 8};
	struct entry_change change = {
		.key = &key,
		.key_size = 8,
		.decide = ahead_decide,
		.context = &entry,
		.ahead = &entry,
	};

	return hash_apply(table, &change);
}

static int act_get(struct hash_table *table, uint64_t key)
{
	uint64_t value;

	return table_get(table, key, &value);
}

static int act_remove(struct hash_table *table, uint64_t key)
{
	struct plain plain = {.verdict = ENTRY_DELETE};

	return table_apply(table, key, &plain);
}

static int act_get_many(struct hash_table *table, uint64_t first)
{
	struct hash_reading readings[MANY] = {0};
	uint64_t keys[MANY];
	uint32_t i;
	int rc;

	for (i = 0; i < MANY; i++) {
		keys[i] = first + i;
		readings[i].key = &keys[i];
		readings[i].key_size = 8;
	}
	rc = hash_get(table, readings, MANY);
	for (i = 0; i < MANY; i++) {
		rc = rc ? rc : readings[i].status;
		hash_reading_free(&readings[i]);
	}
	return rc;
}

static int act_put_many(struct hash_table *table, uint64_t first)
{
	struct entry_change changes[MANY] = {0};
	struct entry entries[MANY] = {0};
	uint64_t keys[MANY];
	uint32_t i;
	int rc;

	for (i = 0; i < MANY; i++) {
		keys[i] = first * MANY + i;
		entries[i].value = &keys[i];
		entries[i].value_size = 8;
		changes[i].key = &keys[i];
		changes[i].key_size = 8;
		changes[i].ahead = &entries[i];
	}
	rc = hash_put_many(table, changes, MANY);
	for (i = 0; i < MANY; i++)
		rc = rc ? rc : changes[i].status;
	return rc;
}

static int budgets_of_many(struct member *member, struct hash_table *warm,
			   struct hash_table *cold)
{
	struct reef_counts cost;
	uint64_t i, value;

	cost = cheapest(member, act_put_many, warm, 1000, 5);
	print_message("put %u, new  %llu\n", MANY,
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips <= 4);
	cost = cheapest(member, act_put_many, cold, 1000, 5);
	print_message("put %u, cold %llu\n", MANY,
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips <= 4);
	for (i = 1000 * MANY; i < 1005 * MANY; i++) {
		TRY(table_get(cold, i, &value));
		WANT(value == i);
	}
	return 0;
}

static int budgets(struct member *member)
{
	struct hash_table *warm, *cold;
	struct reef_counts cost;
	struct reef_space *space;
	uint64_t root, i;

	TRY(table_begin(member, 64, &space, &warm));
	TRY(reef_name_lookup(space, "table", &root, NULL));
	hash_close(warm);
	TRY(hash_open(space, root, 0, &warm));
	for (i = 0; i < 600; i++)
		TRY(act_put(warm, i));
	/* Remembers one key only, so each is new to it. */
	TRY(hash_open(space, root, 1, &cold));
	TRY(act_get(cold, 0));
	cost = cheapest(member, act_put, warm, 1000, 9);
	print_message("insert       %llu round trips\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 3);
	cost = cheapest(member, act_get, warm, 300, 9);
	print_message("get, warm    %llu, %llu READ\n",
		      (unsigned long long)cost.round_trips,
		      (unsigned long long)cost.reads);
	WANT(cost.round_trips == 1 && cost.reads == 1);
	cost = cheapest(member, act_get, cold, 300, 9);
	print_message("get, cold    %llu\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 2);
	/* A slot's address is trusted within an epoch: met just before. */
	cheapest(member, act_put, warm, 100, 9);
	cost = cheapest(member, act_put, warm, 100, 9);
	print_message("update, warm %llu\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 2);
	cost = cheapest(member, act_put, cold, 200, 9);
	print_message("update, cold %llu\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 3);
	cost = cheapest(member, act_remove, warm, 100, 9);
	print_message("delete, warm %llu\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 2);
	cost = cheapest(member, act_remove, cold, 200, 9);
	print_message("delete, cold %llu\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 3);
	cost = cheapest(member, act_get_many, cold, 300, 5);
	print_message("get %u keys  %llu\n", MANY,
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips == 2);
	TRY(budgets_of_many(member, warm, cold));
	hash_close(cold);
	hash_close(warm);
	return 0;
}

/* A table that grows from the first key on: splits among it all. */
static int growth(struct member *member)
{
	const uint64_t keys = 8000;
	struct reef_counts before, cost;
	struct hash_table *table;
	struct reef_space *space;
	struct hash_count count;

	TRY(table_begin(member, 64, &space, &table));
	before = reef_count_read(&member->count);
	for (uint64_t i = 0; i < keys; i++)
		TRY(act_put(table, i));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	TRY(hash_count(table, &count));
	print_message("growth       %.2f a key, %u subtables\n",
		      (double)cost.round_trips / (double)keys, count.subtables);
	WANT(count.subtables >= 8);
	WANT(cost.round_trips < 4 * keys);
	hash_close(table);
	return 0;
}

static void hash_growing_takes_few_round_trips(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, growth);
	pool_finish(&pool);
}

static void hash_operations_keep_their_budgets(void **state)
{
	/* One extent, so one node: what goes out side by side to two nodes is
	 * counted twice. */
	struct pool pool = {.extent_size = 16 * MIB};

	(void)state;
	pool_start(&pool, 3);
	pool_add(&pool, budgets);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_many_keys_are_found),
		cmocka_unit_test(hash_keys_and_values_of_any_size_come_back),
		cmocka_unit_test(hash_touch_is_seen_and_harms_nothing),
		cmocka_unit_test(hash_walk_meets_every_entry_once),
		cmocka_unit_test(hash_walk_of_heads_reads_no_values),
		cmocka_unit_test(hash_full_pool_gets_back_what_was_superseded),
		cmocka_unit_test(
			hash_walk_misses_nothing_while_subtables_are_split),
		cmocka_unit_test(hash_operations_keep_their_budgets),
		cmocka_unit_test(hash_growing_takes_few_round_trips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
