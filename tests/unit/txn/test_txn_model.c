/* test_txn_model.c - many transactions, open at once and used in turn, beside
 * plain calls, against a model.
 *
 * One thread does everything, so what is there is known at each moment, and
 * what each call may say: what a transaction reads is there just then, or is
 * what it has read or put before; when a commit says 0, all that it has read is
 * still there; then, and only then, all that it put is. */
#include "fixture/pool_world.h"

#include "kv/hold.h"
#include "kv/tree.h"

#include <reef/txn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL "embedded:128M"
#define HANDLES 2u
#define INDEXES 5u /* the last two are trees */
#define MAPS 3u
#define KEYS 130u /* of each */
#define ALL (INDEXES * KEYS)
#define TXNS 20u /* more than a handle keeps for the next ones */
#define LONGEST 140000u
#define PAST (UINT64_C(1) << 63) /* of a serial: it expires at once */

/* A value; serial 0: none. */
struct truth {
	uint64_t serial;
	uint32_t size;
};

struct view {
	bool is_read, is_put;	/* is_put: or deleted */
	struct truth read, put; /* what was read first; what is to be */
};

struct session {
	struct reef_txn *txn; /* NULL: none */
	uint32_t handle;
	bool only_reads, has_lost, has_ended;
	bool uses[INDEXES];
	struct view keys[ALL];
};

struct world {
	struct reef *reefs[HANDLES];
	struct reef_space *spaces[HANDLES];
	struct reef_space *elsewhere;
	struct reef_map *far;
	struct reef_map *maps[HANDLES][INDEXES];
	struct truth truths[ALL];
	struct session sessions[TXNS];
	struct reef_random random;
	uint64_t serials, commits, losses;
	uint32_t largest; /* of values */
	struct reef_map_value value;
	char bytes[LONGEST];
};

static uint64_t below(struct world *world, uint64_t bound)
{
	return reef_random_below(&world->random, bound);
}

/* --- keys and values --- */

static const char *const names[INDEXES] = {"m0", "m1", "m2", "t0", "t1"};

static size_t key_of(uint32_t key, char bytes[256])
{
	static const uint32_t sizes[] = {3,  4,	 7,  8,	 9,  15, 16,
					 17, 32, 63, 64, 65, 200};
	uint32_t size = sizes[key % (sizeof(sizes) / sizeof(sizes[0]))];

	key %= KEYS;
	if (key < 2) {
		bytes[0] = 'a';
		return key; /* one is empty */
	}
	memset(bytes, 'x', size);
	for (uint32_t i = 0, rest = key; i < 3; i++, rest /= 10)
		bytes[2 - i] = (char)('0' + rest % 10);
	return size;
}

static uint32_t choose_key(struct world *world)
{
	uint32_t index = (uint32_t)below(world, INDEXES);

	return index * KEYS +
	       (uint32_t)below(world, below(world, 3) ? 8 : KEYS);
}

static void fill_bytes(char *bytes, const struct truth *truth)
{
	uint64_t word = (truth->serial & ~PAST) * UINT64_C(0x9e3779b97f4a7c15);

	for (uint32_t i = 0; i < truth->size; i++, word += 0x1234567)
		bytes[i] = (char)(word >> (8 * (i % 8)));
}

static struct truth choose_value(struct world *world)
{
	static const uint32_t sizes[] = {0,	1,     8,      40,   41,   63,
					 64,	65,    66,     127,  128,  255,
					 256,	1023,  1024,   1025, 4095, 4097,
					 65400, 65536, LONGEST};
	uint32_t size;

	do
		size = sizes[below(world, sizeof(sizes) / sizeof(sizes[0]))];
	while (size > world->largest || (size > 5000 && below(world, 8)));
	return (struct truth){++world->serials, size};
}

static bool is_same(const struct truth *a, const struct truth *b)
{
	return a->serial == b->serial;
}

/* What a get said is what it should be. */
static int check_value(struct world *world, int rc, const struct truth *truth,
		       const struct reef_map_value *value)
{
	if (!truth->serial) {
		WANT_RC(rc, -ENOENT);
		return 0;
	}
	WANT_RC(rc, 0);
	WANT(value->size == truth->size);
	fill_bytes(world->bytes, truth);
	WANT(!truth->size || !memcmp(value->bytes, world->bytes, truth->size));
	return 0;
}

/* --- opening --- */

static int open_index(struct world *world, uint32_t handle, uint32_t index)
{
	const struct reef_map_options options = {.key_max = 300};
	const struct reef_tree_options shape = {
		.leaf_bytes = 512,
		.inline_max = 64,
		.key_max = 300,
	};
	struct reef_tree *tree;

	if (index < MAPS)
		return reef_map_open(world->spaces[handle], names[index],
				     &options, &world->maps[handle][index]);
	TRY(reef_tree_open(world->spaces[handle], names[index], &shape, &tree));
	world->maps[handle][index] = map_hold_of_tree(tree);
	return 0;
}

static int open_world(struct world *world)
{
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};

	for (uint32_t i = 0; i < HANDLES; i++) {
		TRY(reef_space_open(world->reefs[i], "data", &make,
				    &world->spaces[i]));
		for (uint32_t j = 0; j < INDEXES; j++)
			TRY(open_index(world, i, j));
	}
	TRY(reef_space_open(world->reefs[0], "elsewhere", &make,
			    &world->elsewhere));
	return reef_map_open(world->elsewhere, "far", NULL, &world->far);
}

static int drop_index(struct world *world, uint32_t handle, uint32_t index)
{
	return index < MAPS
		       ? reef_map_drop(world->spaces[handle], names[index])
		       : reef_tree_drop(world->spaces[handle], names[index]);
}

/* --- sessions --- */

/* What a session sees of a key. */
static const struct truth *see(const struct world *world,
			       const struct session *session, uint32_t key)
{
	const struct view *view = &session->keys[key];

	if (view->is_put)
		return &view->put;
	return view->is_read ? &view->read : &world->truths[key];
}

/* It has asked for a key, and knows it then. */
static void note_read(struct world *world, struct session *session,
		      uint32_t key)
{
	struct view *view = &session->keys[key];

	if (!view->is_read)
		view->read = world->truths[key];
	view->is_read = true;
}

/* True if the session has lost; it is to say so, from then on. */
static bool has_lost(struct world *world, struct session *session, int rc)
{
	session->has_lost |= rc == -ECANCELED;
	world->losses += rc == -ECANCELED;
	return rc == -ECANCELED;
}

static struct reef_map *map_of(const struct world *world,
			       const struct session *session, uint32_t key)
{
	return world->maps[session->handle][key / KEYS];
}

static int begin(struct world *world, struct session *session)
{
	struct reef_txn_options options = {.patience_ns = 1000};

	memset(session, 0, sizeof(*session));
	session->handle = (uint32_t)below(world, HANDLES);
	session->only_reads = !below(world, 4);
	options.flags = session->only_reads ? REEF_TXN_READ_ONLY : 0;
	return reef_txn_begin(world->spaces[session->handle], &options,
			      &session->txn);
}

static int get(struct world *world, struct session *session, uint32_t key)
{
	char bytes[256];
	size_t size = key_of(key, bytes);
	bool takes = !session->only_reads && below(world, 2);
	struct reef_map *map = map_of(world, session, key);
	int rc = takes ? reef_txn_take(session->txn, map, bytes, size,
				       &world->value)
		       : reef_txn_get(session->txn, map, bytes, size,
				      &world->value);

	session->uses[key / KEYS] = true;
	if (has_lost(world, session, rc))
		return 0;
	TRY(check_value(world, rc, see(world, session, key), &world->value));
	if (!session->keys[key].is_put || !session->keys[key].put.serial)
		note_read(world, session, key);
	return 0;
}

static int take_many(struct world *world, struct session *session)
{
	static const uint32_t counts[] = {0,  1,  2,  3,  4,  7,  8,  9,
					  15, 16, 17, 19, 63, 64, 65, 513};
	uint32_t count = counts[below(world, below(world, 6) ? 8 : 16)];
	struct reef_txn_item *items = calloc(count + 1, sizeof(*items));
	char(*bytes)[256] = calloc(count + 1, 256);
	uint32_t *keys = calloc(count + 1, sizeof(*keys));
	int rc;

	WANT(items && bytes && keys);
	for (uint32_t i = 0; i < count; i++) {
		keys[i] = count > 60 ? (uint32_t)below(world, ALL)
				     : choose_key(world);
		if (count == 513) /* not too many of trees */
			keys[i] %= (MAPS * KEYS + 20);
		items[i].map = map_of(world, session, keys[i]);
		if (keys[i] / KEYS >= MAPS) {
			items[i].tree = (struct reef_tree *)items[i].map;
			items[i].map = NULL;
		}
		items[i].key_size = key_of(keys[i], bytes[i]);
		items[i].key = bytes[i];
		session->uses[keys[i] / KEYS] = true;
	}
	rc = reef_txn_take_many(session->txn, items, count);
	if (!has_lost(world, session, rc)) {
		WANT_RC(rc, 0);
		for (uint32_t i = 0; i < count; i++) {
			TRY(check_value(world, items[i].status,
					see(world, session, keys[i]),
					&items[i].value));
			if (!session->keys[keys[i]].is_put ||
			    !session->keys[keys[i]].put.serial)
				note_read(world, session, keys[i]);
		}
	}
	for (uint32_t i = 0; i < count; i++)
		reef_map_value_free(&items[i].value);
	free(items);
	free(bytes);
	free(keys);
	return 0;
}

static int put(struct world *world, struct session *session, uint32_t key,
	       bool inserts)
{
	struct view *view = &session->keys[key];
	struct truth value = choose_value(world);
	uint64_t expires_ms = 0;
	char bytes[256];
	size_t size = key_of(key, bytes);
	struct reef_map *map = map_of(world, session, key);
	bool is_there = see(world, session, key)->serial;
	bool asks = inserts && !(view->is_put && view->put.serial);
	int rc;

	if (!below(world, 6))
		expires_ms = below(world, 2) ? 1 : REEF_MAP_PINNED;
	fill_bytes(world->bytes, &value);
	rc = inserts ? reef_txn_insert(session->txn, map, bytes, size,
				       world->bytes, value.size, expires_ms)
		     : reef_txn_put(session->txn, map, bytes, size,
				    world->bytes, value.size, expires_ms);
	session->uses[key / KEYS] = true;
	if (session->only_reads) {
		WANT_RC(rc, -EINVAL);
		return 0;
	}
	if (has_lost(world, session, rc))
		return 0;
	if (asks)
		note_read(world, session, key);
	WANT_RC(rc, inserts && is_there ? -EEXIST : 0);
	if (rc)
		return 0;
	view->is_put = true;
	view->put = value;
	if (expires_ms == 1) /* the model's sign for it */
		view->put.serial |= PAST;
	return 0;
}

static int delete_key(struct world *world, struct session *session,
		      uint32_t key)
{
	struct view *view = &session->keys[key];
	char bytes[256];
	size_t size = key_of(key, bytes);
	bool is_there = see(world, session, key)->serial;
	bool asks = !(view->is_put && view->put.serial);
	int rc = reef_txn_delete(session->txn, map_of(world, session, key),
				 bytes, size);

	session->uses[key / KEYS] = true;
	if (session->only_reads) {
		WANT_RC(rc, -EINVAL);
		return 0;
	}
	if (has_lost(world, session, rc))
		return 0;
	if (asks)
		note_read(world, session, key);
	WANT_RC(rc, is_there ? 0 : -ENOENT);
	view->is_put |= is_there;
	if (is_there)
		view->put = (struct truth){0};
	return 0;
}

/* Nonsense changes nothing. */
static int misuse(struct world *world, struct session *session)
{
	char bytes[400] = {0};
	struct reef_map *map = world->maps[session->handle][0];
	struct reef_map *other = world->maps[1 - session->handle][0];
	struct reef_txn_item items[2] = {
		{.map = map, .key = "a", .key_size = 1},
		{.key = "a", .key_size = 1},
	};

	WANT_RC(reef_txn_get(session->txn, map, bytes, 301, &world->value),
		-EINVAL);
	WANT_RC(reef_txn_get(session->txn, other, "a", 1, &world->value),
		-EXDEV);
	WANT_RC(reef_txn_get(session->txn, world->far, "a", 1, &world->value),
		-EXDEV);
	session->uses[0] = true;
	WANT_RC(reef_txn_take_many(session->txn, items, 2), -EINVAL);
	items[1].map = other;
	WANT_RC(reef_txn_take_many(session->txn, items, 2), -EXDEV);
	reef_map_value_free(&items[0].value);
	return 0;
}

static int end(struct world *world, struct session *session)
{
	int rc = reef_txn_commit(session->txn);

	session->has_ended = true;
	if (has_lost(world, session, rc))
		return 0;
	WANT_RC(rc, 0);
	world->commits++;
	for (uint32_t i = 0; i < ALL; i++) {
		struct view *view = &session->keys[i];

		WANT(!view->is_read || is_same(&view->read, &world->truths[i]));
		if (!view->is_put)
			continue;
		world->truths[i] = view->put;
		if (view->put.serial >> 63)
			world->truths[i] = (struct truth){0};
	}
	return 0;
}

/* What has ended, or lost, says so. */
static int use_dead(struct world *world, struct session *session)
{
	int wanted = session->has_lost ? -ECANCELED : -EINVAL;
	struct reef_map *map = map_of(world, session, 0);

	WANT_RC(reef_txn_get(session->txn, map, "a", 1, &world->value), wanted);
	WANT_RC(reef_txn_put(session->txn, map, "a", 1, "a", 1, 0), wanted);
	WANT_RC(reef_txn_commit(session->txn), wanted);
	WANT_RC(reef_txn_check(session->txn), wanted);
	return 0;
}

static void close_session(struct session *session)
{
	reef_txn_close(session->txn);
	session->txn = NULL;
}

static int use(struct world *world, struct session *session)
{
	uint32_t key = choose_key(world);
	int rc;

	if (!session->txn)
		return begin(world, session);
	if (session->has_lost || session->has_ended) {
		if (below(world, 3))
			TRY(use_dead(world, session));
		close_session(session);
		return 0;
	}
	switch (below(world, 16)) {
	case 0:
	case 1:
		return take_many(world, session);
	case 2:
	case 3:
	case 4:
		return get(world, session, key);
	case 5:
	case 6:
	case 7:
		return put(world, session, key, false);
	case 8:
	case 9:
		return put(world, session, key, true);
	case 10:
	case 11:
		return delete_key(world, session, key);
	case 12:
		rc = reef_txn_check(session->txn);
		if (!has_lost(world, session, rc))
			WANT_RC(rc, 0);
		return 0;
	case 13:
		if (!below(world, 2))
			return misuse(world, session);
		if (below(world, 2))
			reef_txn_abort(session->txn);
		close_session(session);
		return 0;
	default:
		return end(world, session);
	}
}

/* --- plain calls --- */

static int plain_get(struct world *world, uint32_t handle, uint32_t key)
{
	struct reef_map *map = world->maps[handle][key / KEYS];
	char bytes[256];
	size_t size = key_of(key, bytes);
	int rc = key / KEYS < MAPS
			 ? reef_map_get(map, bytes, size, &world->value)
			 : reef_tree_get((struct reef_tree *)map, bytes, size,
					 &world->value);

	return check_value(world, rc, &world->truths[key], &world->value);
}

static int plain_change(struct world *world, uint32_t handle, uint32_t key)
{
	struct reef_map *map = world->maps[handle][key / KEYS];
	struct truth value = choose_value(world);
	char bytes[256];
	size_t size = key_of(key, bytes);
	int rc;

	if (!below(world, 3)) {
		rc = reef_map_delete(map, bytes, size, 0);
		WANT_RC(rc, world->truths[key].serial ? 0 : -ENOENT);
		world->truths[key] = (struct truth){0};
		return 0;
	}
	fill_bytes(world->bytes, &value);
	rc = reef_map_put(map, bytes, size, world->bytes, value.size, 0, NULL);
	WANT_RC(rc, 0);
	world->truths[key] = value;
	return 0;
}

struct counting {
	uint64_t count;
};

static int count_one(void *context, const struct reef_map_entry *entry)
{
	struct counting *counting = context;

	(void)entry;
	counting->count++;
	return 0;
}

static int plain_scan(struct world *world, uint32_t handle)
{
	uint32_t index = MAPS + (uint32_t)below(world, INDEXES - MAPS);
	struct counting counting = {0};
	uint64_t wanted = 0;

	for (uint32_t i = index * KEYS; i < (index + 1) * KEYS; i++)
		wanted += world->truths[i].serial != 0;
	TRY(reef_tree_scan((struct reef_tree *)world->maps[handle][index], NULL,
			   count_one, &counting));
	WANT(counting.count == wanted);
	return 0;
}

static bool has_keys_of(const struct session *session, uint32_t index)
{
	for (uint32_t i = index * KEYS; i < (index + 1) * KEYS; i++)
		if (session->keys[i].is_put || session->keys[i].is_read)
			return true;
	return false;
}

/* Drop what transactions use: they lose, all others go on. */
static int drop(struct world *world, uint32_t handle)
{
	uint32_t index = (uint32_t)below(world, INDEXES);

	TRY(drop_index(world, handle, index));
	for (uint32_t i = 0; i < KEYS; i++)
		world->truths[index * KEYS + i] = (struct truth){0};
	for (uint32_t i = 0; i < TXNS; i++) {
		struct session *session = &world->sessions[i];

		if (!session->txn || !session->uses[index])
			continue;
		if (!session->has_lost && !session->has_ended &&
		    !session->only_reads && has_keys_of(session, index))
			WANT(reef_txn_commit(session->txn));
		close_session(session);
	}
	for (uint32_t i = 0; i < HANDLES; i++) {
		reef_map_close(world->maps[i][index]);
		TRY(open_index(world, i, index));
	}
	return 0;
}

static int step(struct world *world)
{
	uint32_t handle = (uint32_t)below(world, HANDLES);

	switch (below(world, 40)) {
	case 0:
	case 1:
	case 2:
	case 3:
		return plain_get(world, handle, choose_key(world));
	case 4:
	case 5:
		return plain_change(world, handle, choose_key(world));
	case 6:
		return plain_scan(world, handle);
	case 7:
		return below(world, 30) ? 0 : drop(world, handle);
	default:
		return use(world, &world->sessions[below(world, TXNS)]);
	}
}

static int close_world(struct world *world)
{
	for (uint32_t i = 0; i < TXNS; i++)
		if (world->sessions[i].txn)
			close_session(&world->sessions[i]);
	for (uint32_t i = 0; i < ALL; i++)
		TRY(plain_get(world, i % HANDLES, i));
	reef_map_value_free(&world->value);
	for (uint32_t i = 0; i < HANDLES; i++)
		for (uint32_t j = 0; j < INDEXES; j++)
			reef_map_close(world->maps[i][j]);
	for (uint32_t j = 0; j < INDEXES; j++)
		TRY(drop_index(world, 0, j));
	reef_map_close(world->far);
	WANT(world->commits && world->losses);
	return 0;
}

/* largest: of the values, in bytes. */
static int run_model(struct reef *first, struct reef *second, uint64_t seed,
		     uint32_t steps, uint32_t largest)
{
	struct world *world = calloc(1, sizeof(*world));
	int rc;

	WANT(world);
	world->reefs[0] = first;
	world->reefs[1] = second;
	world->largest = largest;
	reef_random_init(&world->random, seed);
	rc = open_world(world);
	for (uint32_t i = 0; i < steps && !rc; i++)
		rc = step(world);
	if (!rc)
		rc = close_world(world);
	free(world);
	return rc;
}

static void txn_model_holds_in_place(void **state)
{
	struct reef *first, *second;

	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(3, 300));
	     seed++) {
		assert_int_equal(reef_open(POOL, NULL, &first), 0);
		assert_int_equal(reef_open(POOL, NULL, &second), 0);
		assert_int_equal(run_model(first, second, seed, 4000, LONGEST),
				 0);
		reef_close(second);
		reef_close(first);
	}
}

static int follow_model(struct member *member)
{
	struct reef *second;
	int rc;

	TRY(reef_client_handle(member->client, &second));
	rc = run_model(member->reef, second, member->pool->seed, 2000, 5000);
	reef_close(second);
	return rc;
}

static void txn_model_holds_over_a_network(void **state)
{
	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(2, 200));
	     seed++) {
		struct pool pool = {.ttl_ns = 20 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, follow_model);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_model_holds_in_place),
		cmocka_unit_test(txn_model_holds_over_a_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
