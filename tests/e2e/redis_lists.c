/* redis_lists.c - histories of transactions over lists, by doors and by native
 * clients, and whether they are strictly serializable (tests/check/cycle.h).
 *
 * usage: redis_lists native SPACE MAP COUNT SEED
 *        redis_lists judge < HISTORY
 *
 * A list is a value such as "3,17,4,". native makes COUNT transactions on the
 * lists of a map, and prints them; judge reads the lines of all clients:
 *
 *   CLIENT CALLED RETURNED done|unknown|refused OP...
 *
 * where an OP is a:KEY:VALUE or r:KEY:LIST, and times are CLOCK_MONOTONIC's in
 * ns. Ends with 0, or 1 and says what is wrong. */
#include "check/cycle.h"

#include <errno.h>
#include <inttypes.h>
#include <reef/txn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OPS_MAX 8
#define LINE_SIZE (1u << 20)

/* --- native --- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct wish {
	struct reef_map *map;
	uint32_t count;
	struct {
		uint64_t key, value; /* value 0: read it */
		struct reef_map_value found;
	} ops[OPS_MAX];
};

static int do_wish(struct reef_txn *txn, void *context)
{
	struct wish *wish = context;
	char key[24], *longer;
	int rc = 0, size;

	for (uint32_t i = 0; i < wish->count && !rc; i++) {
		struct reef_map_value *found = &wish->ops[i].found;

		size = snprintf(key, sizeof(key), "l%" PRIu64,
				wish->ops[i].key);
		rc = reef_txn_get(txn, wish->map, key, (size_t)size, found);
		if (rc == -ENOENT) {
			found->size = 0;
			rc = 0;
		}
		if (rc || !wish->ops[i].value)
			continue;
		longer = malloc(found->size + 24);
		if (!longer)
			return -ENOMEM;
		if (found->size)
			memcpy(longer, found->bytes, found->size);
		rc = reef_txn_put(txn, wish->map, key, (size_t)size, longer,
				  found->size +
					  (size_t)sprintf(longer + found->size,
							  "%" PRIu64 ",",
							  wish->ops[i].value),
				  0);
		free(longer);
	}
	return rc;
}

static int make_history(struct reef_space *space, struct reef_map *map,
			uint64_t count, uint64_t seed)
{
	struct wish wish = {.map = map};
	uint64_t called;
	int rc = 0;

	srand48((long)seed);
	for (uint64_t i = 0; i < count && !rc; i++) {
		wish.count = 1 + (uint32_t)(lrand48() % 3);
		for (uint32_t j = 0; j < wish.count; j++) {
			wish.ops[j].key = i / 20 + (uint64_t)(lrand48() % 4);
			wish.ops[j].value =
				lrand48() % 2
					? seed * 10000000 + i * OPS_MAX + j + 1
					: 0;
		}
		called = now_ns();
		rc = reef_txn_run(space, do_wish, &wish, NULL);
		if (rc && rc != -ECANCELED)
			break;
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %s", seed, called,
		       now_ns(), rc ? "refused" : "done");
		rc = 0;
		for (uint32_t j = 0; j < wish.count; j++) {
			if (wish.ops[j].value)
				printf(" a:%" PRIu64 ":%" PRIu64,
				       wish.ops[j].key, wish.ops[j].value);
			else
				printf(" r:%" PRIu64 ":%.*s", wish.ops[j].key,
				       (int)wish.ops[j].found.size,
				       (const char *)wish.ops[j].found.bytes);
		}
		printf("\n");
	}
	for (uint32_t j = 0; j < OPS_MAX; j++)
		reef_map_value_free(&wish.ops[j].found);
	return rc;
}

static int native(char **argv)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	int rc = reef_open(NULL, NULL, &reef);

	if (rc)
		goto err;
	rc = reef_space_open(reef, argv[0], &options, &space);
	if (rc)
		goto err_close;
	rc = reef_map_open(space, argv[1], NULL, &map);
	if (rc)
		goto err_space;
	rc = make_history(space, map, strtoull(argv[2], NULL, 10),
			  strtoull(argv[3], NULL, 10));
	reef_map_close(map);
err_space:
	reef_space_close(space);
err_close:
	reef_close(reef);
err:
	if (rc)
		fprintf(stderr, "native: %s\n", reef_error_name(rc));
	return rc ? 1 : 0;
}

/* --- judge --- */

static void *grow(void *array, size_t count, size_t size)
{
	/* By doubling: at powers of two. */
	if (count & (count - 1))
		return array;
	array = realloc(array, (count ? 2 * count : 1) * size);
	if (!array)
		abort();
	return array;
}

static struct cycle_op parse_op(const char *word)
{
	struct cycle_op op = {.is_append = word[0] == 'a'};
	uint64_t *list = NULL;
	char *at;

	op.key = strtoull(word + 2, &at, 10);
	at++;
	if (op.is_append) {
		op.value = strtoull(at, NULL, 10);
		return op;
	}
	while (*at) {
		list = grow(list, op.list_count, sizeof(*list));
		list[op.list_count++] = strtoull(at, &at, 10);
		at += *at == ',';
	}
	op.list = list;
	return op;
}

static struct cycle_txn parse_line(char *line)
{
	struct cycle_txn txn = {0};
	struct cycle_op *ops = NULL;
	char *word = strtok(line, " \n");

	txn.client = (uint32_t)strtoul(word, NULL, 10);
	txn.called_at = strtoull(strtok(NULL, " \n"), NULL, 10);
	txn.returned_at = strtoull(strtok(NULL, " \n"), NULL, 10);
	word = strtok(NULL, " \n");
	txn.result = !strcmp(word, "done")	? CYCLE_DONE
		     : !strcmp(word, "refused") ? CYCLE_REFUSED
						: CYCLE_UNKNOWN;
	if (txn.result == CYCLE_UNKNOWN)
		txn.returned_at = CYCLE_NEVER;
	while ((word = strtok(NULL, " \n"))) {
		ops = grow(ops, txn.ops_count, sizeof(*ops));
		ops[txn.ops_count++] = parse_op(word);
	}
	txn.ops = ops;
	return txn;
}

static int judge(void)
{
	char *line = malloc(LINE_SIZE);
	struct cycle_txn *txns = NULL;
	size_t count = 0, which = 0;
	const char *wrong;

	while (line && fgets(line, LINE_SIZE, stdin)) {
		txns = grow(txns, count, sizeof(*txns));
		txns[count++] = parse_line(line);
	}
	wrong = cycle_check(txns, count, &which);
	printf("%zu transactions: %s\n", count, wrong ? wrong : "serializable");
	if (wrong)
		printf("client %u, called at %" PRIu64 "\n", txns[which].client,
		       txns[which].called_at);
	for (size_t i = 0; i < count; i++) {
		for (uint32_t j = 0; j < txns[i].ops_count; j++)
			free((void *)(uintptr_t)txns[i].ops[j].list);
		free((void *)(uintptr_t)txns[i].ops);
	}
	free(txns);
	free(line);
	return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "native"))
		return native(argv + 2);
	if (argc == 2 && !strcmp(argv[1], "judge"))
		return judge();
	return 2;
}
