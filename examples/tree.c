/* tree.c - an ordered map in the memory of a pool: readings by sensor and time.
 * With `reef up` use NULL for "embedded:64M": any process has it then. */
#include <reef/key.h>
#include <reef/tree.h>
#include <stdio.h>

/* A key of two numbers is in order of the first, then of the second. */
static size_t make_key(uint8_t key[16], uint64_t sensor, uint64_t second)
{
	size_t size = reef_key_u64(key, sensor);

	return size + reef_key_u64(key + size, second);
}

static int show(void *context, const struct reef_map_entry *entry)
{
	printf("%s: %.*s degrees\n", (const char *)context,
	       (int)entry->value_size, (const char *)entry->value);
	return 0;
}

static int use(struct reef_tree *tree)
{
	uint8_t from[16], to[16], key[16];
	struct reef_range range = {.from = from, .to = to};
	char text[8];
	int rc = 0;

	for (unsigned i = 0; !rc && i < 100; i++)
		rc = reef_tree_put(tree, key, make_key(key, i % 4, i / 4), text,
				   (size_t)snprintf(text, 8, "%u", 10 + i / 4),
				   0, NULL);
	/* The readings of sensor 2 from second 10 on, and before second 13. */
	range.from_size = make_key(from, 2, 10);
	range.to_size = make_key(to, 2, 13);
	rc = rc ? rc : reef_tree_scan(tree, &range, show, "sensor 2");
	/* Its latest: the last key below all of sensor 3. */
	range = (struct reef_range){.from = from, .limit = 1};
	range.flags = REEF_RANGE_BACKWARD | REEF_RANGE_AFTER;
	range.from_size = make_key(from, 3, 0);
	return rc ? rc : reef_tree_scan(tree, &range, show, "its latest");
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_tree *tree = NULL;
	struct reef_space *space;
	struct reef *reef = NULL;
	int rc = reef_open("embedded:64M", NULL, &reef);

	rc = rc ? rc : reef_space_open(reef, "examples", &make, &space);
	rc = rc ? rc : reef_tree_open(space, "readings", NULL, &tree);
	rc = rc ? rc : use(tree);
	if (rc)
		fprintf(stderr, "%s\n", reef_error_text(rc));
	reef_tree_close(tree);
	reef_close(reef);
	return rc != 0;
}
