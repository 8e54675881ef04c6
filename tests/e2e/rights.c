/* rights.c - a program that has a token, and does what that does not allow.
 *
 * usage: rights make|word|read|keep SPACE
 *
 * make: two maps of KEYS keys, and a block that is called "word".
 * word: read the word, and no more; the others do that first.
 * read: read all of that, in every way; change nothing, in any way: neither by
 *   the library, nor behind its back in what it has mapped. Then open the space
 *   with $RIGHTS_MORE as well, if that is set, and change something.
 * keep: map what is mapped of the space once more, where the library does not
 *   know of it; at SIGTERM write all over it, and tell how often the block's
 *   word was there. The library is not called in between.
 *
 * The pool is $REEF_POOL, the token $RIGHTS_TOKEN. Prints lines of words; ends
 * with 0, or 1 after what was not expected, which it prints. */
#include <errno.h>
#include <inttypes.h>
#include <reef/map.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEYS 300u
#define WORD UINT64_C(0x5245454652494748)
#define MAPPINGS_MAX 64
#define EXTENT_MIN (1u << 20)

struct program {
	struct reef *reef;
	struct reef_space *space;
	uint64_t address; /* of the word */
	int bad;
};

static volatile sig_atomic_t stopping;

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/* Note if something did not end as it must. */
static void want(struct program *program, const char *what, int rc, int wanted)
{
	if (rc == wanted)
		return;
	printf("error %s is %s and not %s\n", what, reef_error_name(rc),
	       reef_error_name(wanted));
	program->bad = 1;
}

static int open_space(struct program *program, const char *space,
		      const char *token)
{
	const struct reef_space_options options = {.token = token};

	return reef_space_open(program->reef, space, &options, &program->space);
}

/* --- making --- */

static void fill_map(struct program *program, const char *name,
		     const struct reef_map_options *options)
{
	struct reef_map *map;
	uint32_t i;
	int rc = reef_map_open(program->space, name, options, &map);

	want(program, name, rc, 0);
	if (rc)
		return;
	for (i = 0; i < KEYS; i++)
		want(program, "put",
		     reef_map_put(map, &i, sizeof(i), &i, sizeof(i), 0, NULL),
		     0);
	reef_map_close(map);
}

static void make(struct program *program)
{
	const struct reef_map_options lru = {.size_max = 1 << 20,
					     .eviction = REEF_MAP_LRU};
	const uint64_t word = WORD;

	fill_map(program, "plain", NULL);
	fill_map(program, "lru", &lru);
	want(program, "alloc",
	     reef_alloc(program->space, 4096, &program->address), 0);
	want(program, "write",
	     reef_write(program->reef, program->address, &word, sizeof(word)),
	     0);
	want(program, "keep", reef_keep(program->space, program->address), 0);
	want(program, "bind",
	     reef_name_bind(program->space, "word", program->address, NULL), 0);
	say("made");
}

/* --- reading --- */

static int count_entry(void *context, const struct reef_map_entry *entry)
{
	(void)entry;
	++*(uint32_t *)context;
	return 0;
}

static void scan_map(struct program *program, struct reef_map *map)
{
	uint64_t cursor = 0, count = 0;
	uint32_t met = 0;
	int rc;

	do
		rc = reef_map_scan(map, &cursor, 100, count_entry, &met);
	while (!rc && cursor);
	want(program, "scan", rc, 0);
	do
		rc = reef_map_scan_keys(map, &cursor, 100, count_entry, &met);
	while (!rc && cursor);
	want(program, "scan keys", rc, 0);
	want(program, "count", reef_map_count(map, &count), 0);
	if (met < 2 * KEYS || count != KEYS) {
		printf("error met %u counted %" PRIu64 "\n", met, count);
		program->bad = 1;
	}
}

static void read_keys(struct program *program, struct reef_map *map)
{
	struct reef_map_value value = {0};
	struct reef_map_item items[16] = {0};
	uint32_t keys[16], i;

	/* Twice: the second time places are remembered. */
	for (i = 0; i < 2 * KEYS; i++) {
		uint32_t key = i % KEYS;

		want(program, "get",
		     reef_map_get(map, &key, sizeof(key), &value), 0);
		if (value.size != sizeof(key) ||
		    memcmp(value.bytes, &key, sizeof(key)))
			want(program, "value", -EINVAL, 0);
		want(program, "peek",
		     reef_map_peek(map, &key, sizeof(key), &value), 0);
		want(program, "look",
		     reef_map_look(map, &key, sizeof(key), &value), 0);
	}
	reef_map_value_free(&value);
	for (i = 0; i < 16; i++) {
		keys[i] = i * 7;
		items[i].key = &keys[i];
		items[i].key_size = sizeof(keys[i]);
	}
	want(program, "get many", reef_map_get_many(map, items, 16), 0);
	for (i = 0; i < 16; i++) {
		want(program, "one of many", items[i].status, 0);
		reef_map_value_free(&items[i].value);
	}
}

static void read_map(struct program *program, const char *name)
{
	const struct reef_map_options existing = {.flags = REEF_MAP_EXISTING};
	struct reef_map_stats stats;
	struct reef_map *map;
	uint32_t key = 1;
	int rc = reef_map_open(program->space, name, &existing, &map);

	want(program, name, rc, 0);
	if (rc)
		return;
	read_keys(program, map);
	scan_map(program, map);
	want(program, "stats", reef_map_stats(map, &stats), 0);
	want(program, "put",
	     reef_map_put(map, &key, sizeof(key), "no", 2, 0, NULL), -EACCES);
	want(program, "delete", reef_map_delete(map, &key, sizeof(key), 0),
	     -EACCES);
	want(program, "clear", reef_map_clear(map), -EACCES);
	reef_map_close(map);
}

static void try_changes(struct program *program)
{
	uint64_t word = 0, address = program->address;

	reef_enter(program->reef);
	want(program, "read",
	     reef_read(program->reef, address, &word, sizeof(word)), 0);
	reef_leave(program->reef);
	if (word != WORD)
		want(program, "word", -EINVAL, 0);
	want(program, "write",
	     reef_write(program->reef, address, &word, sizeof(word)), -EACCES);
	want(program, "cas", reef_cas(program->reef, address, WORD, 1, NULL),
	     -EACCES);
	want(program, "faa", reef_faa(program->reef, address, 1, NULL),
	     -EACCES);
	want(program, "free", reef_free(program->space, address, 0), -EACCES);
	want(program, "alloc", reef_alloc(program->space, 64, &address),
	     -EACCES);
	want(program, "drop", reef_map_drop(program->space, "plain"), -EACCES);
	want(program, "bind", reef_name_bind(program->space, "n", 1, NULL),
	     -EACCES);
}

/* --- behind the library's back --- */

struct mapping {
	uint8_t *base;
	size_t size;
};

/* Find what this process has mapped of extents, with these permissions; returns
 * how many. The broker's table is among what it may read. */
static int find_mappings(const char *wanted, struct mapping found[MAPPINGS_MAX])
{
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t from, to;
	char line[512], allowed[5];
	int count = 0;

	while (file && count < MAPPINGS_MAX &&
	       fgets(line, sizeof(line), file)) {
		if (!strstr(line, "/memfd:reef (deleted)") ||
		    sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to,
			   allowed) != 3 ||
		    strcmp(allowed, wanted) || to - from < EXTENT_MIN)
			continue;
		found[count].base = (uint8_t *)from;
		found[count++].size = to - from;
	}
	if (file)
		fclose(file);
	return count;
}

static void pry_open(struct program *program)
{
	struct mapping found[MAPPINGS_MAX];
	int count = find_mappings("r--s", found);

	for (int i = 0; i < count; i++)
		if (!mprotect(found[i].base, found[i].size,
			      PROT_READ | PROT_WRITE))
			want(program, "mprotect", 0, -EACCES);
	if (find_mappings("rw-s", found))
		want(program, "mapping", 0, -EACCES);
	printf("pried %d\n", count);
}

static void read_all(struct program *program, const char *space)
{
	const char *more = getenv("RIGHTS_MORE");
	uint64_t before = 0;

	read_map(program, "plain");
	read_map(program, "lru");
	try_changes(program);
	pry_open(program);
	say("read");
	if (!more)
		return;
	want(program, "more", open_space(program, space, more), 0);
	want(program, "faa",
	     reef_faa(program->reef, program->address, 0, &before), 0);
	want(program, "alloc",
	     reef_alloc(program->space, 64, &program->address), 0);
	want(program, "free", reef_free(program->space, program->address, 0),
	     0);
	say("wrote");
}

static void keep(struct program *program)
{
	struct mapping found[MAPPINGS_MAX];
	int count = find_mappings("rw-s", found);
	unsigned long seen = 0;

	for (int i = 0; i < count; i++) {
		/* A shared mapping of size 0 is moved by being doubled. */
		found[i].base =
			mremap(found[i].base, 0, found[i].size, MREMAP_MAYMOVE);
		if (found[i].base == MAP_FAILED)
			want(program, "mremap", -errno, 0);
	}
	printf("keeps %d\n", count);
	fflush(stdout);
	while (!stopping && !program->bad)
		pause();
	for (int i = 0; i < count && !program->bad; i++) {
		uint64_t *words = (uint64_t *)(void *)found[i].base;

		for (size_t at = 0; at < found[i].size / 8; at++) {
			seen += words[at] == WORD;
			words[at] = ~WORD;
		}
	}
	printf("saw %lu\n", seen);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop};
	struct program program = {0};
	int rc;

	if (argc < 3)
		return 2;
	sigaction(SIGTERM, &action, NULL);
	rc = reef_open(NULL, NULL, &program.reef);
	if (!rc)
		rc = open_space(&program, argv[2], getenv("RIGHTS_TOKEN"));
	want(&program, "open", rc, 0);
	if (!rc && strcmp(argv[1], "make")) {
		uint64_t word;

		rc = reef_name_lookup(program.space, "word", &program.address,
				      NULL);
		if (!rc)
			rc = reef_read(program.reef, program.address, &word,
				       sizeof(word));
		if (!rc && word != WORD)
			rc = -EUCLEAN;
		want(&program, "word", rc, 0);
	}
	if (!rc && !strcmp(argv[1], "make"))
		make(&program);
	else if (!rc && !strcmp(argv[1], "read"))
		read_all(&program, argv[2]);
	else if (!rc && !strcmp(argv[1], "keep"))
		keep(&program);
	/* Who keeps does not come back: its library may wait for nothing. */
	if (strcmp(argv[1], "keep"))
		reef_close(program.reef);
	say(program.bad ? "failed" : "closed");
	return program.bad;
}
