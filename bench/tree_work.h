/* tree_work.h - what is done with an ordered map, word for word the same for
 * all.
 *
 *   get, put          as in map_work.h: keys that are there, drawn evenly
 *                     (uniform) or by Zipf's law (zipf)
 *   insert-random     keys that were not there, anywhere
 *   insert-ascending  keys that were not there, each behind all others
 *   scan-100          100 entries from a key on that is drawn evenly
 *   scan-all          all entries in order, SCAN_LONG at a time; the figure is
 *                     entries a second
 *   ycsb-e            of the Yahoo! Cloud Serving Benchmark: 95 in 100 scans of
 *                     1 to 100 entries from a key drawn by Zipf, 5 in 100
 *                     inserts
 *   ...-tcp16         16 fibers
 *
 * (1) Keys come in three kinds, which the group tells by its `fabric`:
 *       letters  16 letters, values of 64 bytes (shm, tcp)
 *       u64      8 bytes, the most significant first, values of 8
 *       url      40 letters, a host of 1,024 and a page, values of 64
 * (2) A value begins with its key's first 8 bytes, of url the last: what is
 *     read is looked at (-EILSEQ), of a scan every entry.
 * (3) Loops, drawing and time are as map_work.h has them (2), (3), (4).
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TREE_WORK_H
#define REEF_BENCH_TREE_WORK_H

#include "map_work.h"

#define TREE_KEY_MAX 40u
#define TREE_VALUE_MAX 64u
#define SCAN_SHORT 100u
#define SCAN_LONG 10000u

struct tree_kind {
	const char *name;
	uint32_t key, value; /* bytes */
	uint32_t mark;	     /* where the 8 bytes are that a value has, too */
};

static const struct tree_kind tree_kinds[] = {
	{.name = "letters", .key = 16, .value = 64},
	{.name = "u64", .key = 8, .value = 8},
	{.name = "url", .key = 40, .value = 64, .mark = 32},
};

/* The kind that a group's fabric tells. */
static inline const struct tree_kind *tree_kind_of(const char *fabric)
{
	for (size_t i = 1; i < sizeof(tree_kinds) / sizeof(tree_kinds[0]); i++)
		if (strcmp(fabric, tree_kinds[i].name) == 0)
			return &tree_kinds[i];
	return &tree_kinds[0];
}

/* Keys that so many bytes of driver_options.size are. */
static inline uint64_t tree_keys(uint64_t size)
{
	return size / MAP_ENTRY;
}

enum tree_what {
	TREE_GET,
	TREE_PUT,
	TREE_INSERT,
	TREE_ASCEND,
	TREE_SCAN,
	TREE_ALL,
	TREE_MIXED
};

struct tree_work {
	const char *name;
	enum tree_what what;
	enum map_drawn drawn;
	uint32_t fibers; /* 0: none */
};

static const struct tree_work tree_works[] = {
	{.name = "get-uniform"},
	{.name = "get-zipf", .drawn = MAP_ZIPF},
	{.name = "put-uniform", .what = TREE_PUT},
	{.name = "insert-random", .what = TREE_INSERT},
	{.name = "insert-ascending", .what = TREE_ASCEND},
	{.name = "scan-100", .what = TREE_SCAN},
	{.name = "scan-all", .what = TREE_ALL},
	{.name = "ycsb-e", .what = TREE_MIXED, .drawn = MAP_ZIPF},
	{.name = "get-uniform-tcp16", .fibers = MAP_FIBERS},
};

/* Find a case; those of other kinds of keys have the kind in front. */
static inline const struct tree_work *tree_work_find(const char *name)
{
	for (size_t i = 1; i < sizeof(tree_kinds) / sizeof(tree_kinds[0]); i++)
		if (!strncmp(name, tree_kinds[i].name,
			     strlen(tree_kinds[i].name)))
			name += strlen(tree_kinds[i].name) + 1;
	for (size_t i = 0; i < sizeof(tree_works) / sizeof(tree_works[0]); i++)
		if (strcmp(tree_works[i].name, name) == 0)
			return &tree_works[i];
	return NULL;
}

static inline bool tree_is_bytes(const char *name)
{
	const char *end = strstr(name, MAP_BYTES);

	return end && strcmp(end, MAP_BYTES) == 0;
}

/* What a scan has met. */
struct tree_seen {
	const struct tree_kind *kind;
	uint64_t count;
	bool wrong;
	char last[TREE_KEY_MAX];
};

/* What a competitor can do. 0, or -errno. Keys and values have the sizes of
 * the kind. */
struct tree_ops {
	int (*get)(void *context, const char *key, uint64_t *value);
	int (*put)(void *context, const char *key, const uint64_t *value);
	/* tree_see every entry from key on, at most so many. */
	int (*scan)(void *context, const char *key, uint32_t limit,
		    struct tree_seen *seen);
	clockid_t clock;
};

struct tree_state {
	struct map_state map;
	const struct tree_kind *kind;
	uint64_t ascended;
	char next[TREE_KEY_MAX]; /* of scan-all */
};

/* --- keys and values --- */

/* Write 64 bits so that their order is that of the bytes. */
workload_inline void tree_letters(uint64_t bits, char *to)
{
	for (uint32_t i = 0; i < 16; i++)
		to[i] = (char)('a' + ((bits >> (60 - 4 * i)) & 15));
}

workload_inline void tree_url(const char letters[16], uint64_t host, char *key)
{
	/* Parts of a key, which has no end mark. */
	static const char front[11] = "http://www.", middle[5] = ".org/";
	uint64_t name = map_letters((uint32_t)workload_fill(host));

	memcpy(key, front, sizeof(front));
	memcpy(key + 11, &name, 8);
	memcpy(key + 19, middle, sizeof(middle));
	memcpy(key + 24, letters, 16);
}

/* Make the key of a number; neighbours in number are far from each other. */
workload_inline void tree_key(const struct tree_kind *kind, uint64_t number,
			      char *key)
{
	uint64_t spread;
	char letters[16];

	if (kind->key == 16) {
		map_key(number, key);
	} else if (kind->key == 8) {
		/* The upper half is left to keys that ascend. */
		spread = __builtin_bswap64(workload_fill(number) >> 1);
		memcpy(key, &spread, 8);
	} else {
		map_key(number, letters);
		tree_url(letters, number % 1024, key);
	}
}

/* The next key behind all others. */
workload_inline void tree_ascending(const struct tree_kind *kind,
				    uint64_t number, char *key)
{
	uint64_t bits;
	char letters[16];

	tree_letters(number, letters);
	letters[0] = 'z';
	if (kind->key == 16) {
		memcpy(key, letters, 16);
	} else if (kind->key == 8) {
		bits = __builtin_bswap64(number | UINT64_C(1) << 63);
		memcpy(key, &bits, 8);
	} else {
		tree_url(letters, 0, key);
		memset(key + 11, 'z', 8);
	}
}

workload_inline void tree_value(const struct tree_kind *kind, const char *key,
				uint64_t mark, uint64_t *value)
{
	memcpy(value, key + kind->mark, 8);
	for (uint32_t i = 1; i < kind->value / 8; i++)
		value[i] = mark;
}

workload_inline int tree_check(const struct tree_kind *kind, const char *key,
			       const void *value)
{
	return memcmp(key + kind->mark, value, 8) ? -EILSEQ : 0;
}

/* Note an entry that a scan has met. */
workload_inline void tree_see(struct tree_seen *seen, const void *key,
			      const void *value)
{
	seen->wrong |= memcmp((const char *)key + seen->kind->mark, value, 8);
	seen->count++;
	memcpy(seen->last, key, seen->kind->key);
}

static inline int tree_state_init(struct tree_state *state,
				  const struct driver_options *options,
				  uint64_t keys)
{
	*state = (struct tree_state){.kind = tree_kind_of(options->fabric)};
	return map_state_init(&state->map, keys);
}

/* --- the loops --- */

workload_inline int tree_insert(const struct tree_ops *ops, void *context,
				struct tree_state *state, bool ascending)
{
	uint64_t value[TREE_VALUE_MAX / 8];
	char key[TREE_KEY_MAX];
	int rc;

	if (ascending)
		tree_ascending(state->kind, state->ascended++, key);
	else
		tree_key(state->kind, state->map.keys, key);
	tree_value(state->kind, key, state->map.random, value);
	rc = ops->put(context, key, value);
	state->map.keys += !rc && !ascending;
	return rc;
}

workload_inline int tree_scan(const struct tree_ops *ops, void *context,
			      struct tree_state *state, const char *key,
			      uint32_t limit, struct tree_seen *seen)
{
	int rc;

	seen->kind = state->kind;
	seen->count = 0;
	seen->wrong = false;
	rc = ops->scan(context, key, limit, seen);
	/* A key behind the last has nothing behind it. */
	return rc ? rc : seen->wrong || seen->count > limit ? -EILSEQ : 0;
}

/* Do one operation; how many that counts as, or -errno. */
workload_inline int tree_do(const struct tree_ops *ops, void *context,
			    const struct tree_work *work,
			    struct tree_state *state)
{
	uint64_t value[TREE_VALUE_MAX / 8];
	char key[TREE_KEY_MAX];
	struct tree_seen seen;
	uint32_t limit = SCAN_SHORT;
	int rc;

	if (work->what == TREE_INSERT || work->what == TREE_ASCEND)
		return tree_insert(ops, context, state,
				   work->what == TREE_ASCEND)
			       ?: 1;
	if (work->what == TREE_ALL) {
		rc = tree_scan(ops, context, state, state->next, SCAN_LONG,
			       &seen);
		if (rc)
			return rc;
		/* The next begins with the key that this one ended with; at the
		 * end, anew. */
		memset(state->next, 0, sizeof(state->next));
		if (seen.count == SCAN_LONG)
			memcpy(state->next, seen.last, state->kind->key);
		return (int)seen.count;
	}
	if (work->what == TREE_MIXED) {
		if (map_random(&state->map) % 100 < 5)
			return tree_insert(ops, context, state, false) ?: 1;
		limit = 1 + (uint32_t)(map_random(&state->map) % SCAN_SHORT);
	}
	tree_key(state->kind, map_draw(&state->map, work->drawn), key);
	if (work->what == TREE_SCAN || work->what == TREE_MIXED)
		return tree_scan(ops, context, state, key, limit, &seen) ?: 1;
	if (work->what == TREE_PUT) {
		tree_value(state->kind, key, state->map.random, value);
		return ops->put(context, key, value) ?: 1;
	}
	rc = ops->get(context, key, value);
	return (rc ? rc : tree_check(state->kind, key, value)) ?: 1;
}

workload_inline int tree_gets(const struct tree_ops *ops, void *context,
			      const struct tree_work *work,
			      struct tree_state *state)
{
	uint64_t value[TREE_VALUE_MAX / 8];
	char keys[MAP_CHUNK][TREE_KEY_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < MAP_CHUNK; i++)
		tree_key(state->kind, map_draw(&state->map, work->drawn),
			 keys[i]);
	for (uint32_t i = 0; !rc && i < MAP_CHUNK; i++) {
		rc = ops->get(context, keys[i], value);
		rc = rc ? rc : tree_check(state->kind, keys[i], value);
	}
	return rc ?: (int)MAP_CHUNK;
}

/* Run the loop for about so many seconds. *rate: operations a second. */
workload_inline int tree_loop(const struct tree_ops *ops, void *context,
			      const struct tree_work *work,
			      struct tree_state *state, double seconds,
			      double *rate)
{
	double begin = workload_seconds(ops->clock), now = begin;
	uint64_t done = 0;
	int rc;

	while (now - begin < seconds) {
		if (work->what == TREE_GET) {
			rc = tree_gets(ops, context, work, state);
		} else {
			rc = tree_do(ops, context, work, state);
			workload_serialize();
		}
		if (rc < 0)
			return rc;
		done += (uint64_t)rc;
		/* A look at the clock is a system call here and there. */
		if (work->what >= TREE_SCAN || work->what == TREE_GET ||
		    done % MAP_CHUNK == 0)
			now = workload_seconds(ops->clock);
	}
	*rate = (double)done / (now - begin);
	return 0;
}

/* A driver's run. bytes: of memory, of a key. */
workload_inline int tree_run(const struct tree_ops *ops, void *context,
			     struct tree_state *state, double bytes,
			     const char *name, double seconds, double *rate)
{
	const struct tree_work *work = tree_work_find(name);

	if (tree_is_bytes(name)) {
		*rate = bytes;
		return 0;
	}
	if (!work || work->fibers)
		return -ENOSYS;
	return tree_loop(ops, context, work, state, seconds, rate);
}

/* Load keys 0 to keys - 1, by the competitor's own quickest way. */
workload_inline int tree_load(const struct tree_kind *kind, uint64_t keys,
			      void *context,
			      int (*add)(void *context, const char *key,
					 const uint64_t *value))
{
	uint64_t value[TREE_VALUE_MAX / 8];
	char key[TREE_KEY_MAX];
	int rc = 0;

	for (uint64_t i = 0; !rc && i < keys; i++) {
		tree_key(kind, i, key);
		tree_value(kind, key, i, value);
		rc = add(context, key, value);
	}
	return rc;
}

#endif
