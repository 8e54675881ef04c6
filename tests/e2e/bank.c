/* bank.c - one of several processes of a bank, any of which may be killed.
 *
 *   bank open SPACE FILE NUMBER         make the accounts, all at once
 *   bank move|sum SPACE FILE NUMBER     until SIGTERM
 *   bank look SPACE FILE NUMBER         sum them up once
 *
 * Accounts lie in a map and in a tree; one without money is not there. `move`
 * moves money between two of them by transactions, `sum` adds all of it up in
 * READ_ONLY ones: by gets in the map, by a scan or by gets in the tree. For
 * each that commits it writes a byte to the FILE. NUMBER: of the process, each
 * another. Ends with 0; 1: a sum that is wrong, or an error that was not
 * expected; 3: the session was fenced. */
#include <errno.h>
#include <fcntl.h>
#include <reef/fiber.h>
#include <reef/txn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FENCED 3
#define ACCOUNTS 40u
#define MONEY 10
#define ATTEMPTS 10000u

struct bank {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_tree *tree;
	uint64_t random, commits;
	int64_t sum;
	uint32_t from, to;
	bool scans;
	int fd;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static uint64_t below(struct bank *bank, uint64_t bound)
{
	bank->random = bank->random * UINT64_C(6364136223846793005) +
		       UINT64_C(1442695040888963407);
	return (bank->random >> 33) % bound;
}

/* --- accounts: the odd ones are the tree's --- */

static size_t name_of(char name[24], uint32_t number)
{
	return (size_t)snprintf(name, 24, "account %03u", number);
}

static int get_account(struct bank *bank, struct reef_txn *txn, uint32_t number,
		       int64_t *money)
{
	struct reef_map_value value = {0};
	char name[24];
	size_t size = name_of(name, number);
	int rc = number % 2 ? reef_txn_tree_get(txn, bank->tree, name, size,
						&value)
			    : reef_txn_get(txn, bank->map, name, size, &value);

	*money = 0;
	if (!rc)
		memcpy(money, value.bytes, sizeof(*money));
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static int put_account(struct bank *bank, struct reef_txn *txn, uint32_t number,
		       int64_t money)
{
	char name[24];
	size_t size = name_of(name, number);
	int rc;

	if (money)
		return number % 2 ? reef_txn_tree_put(txn, bank->tree, name,
						      size, &money, 8, 0)
				  : reef_txn_put(txn, bank->map, name, size,
						 &money, 8, 0);
	rc = number % 2 ? reef_txn_tree_delete(txn, bank->tree, name, size)
			: reef_txn_delete(txn, bank->map, name, size);
	return rc == -ENOENT ? 0 : rc;
}

/* --- bodies --- */

static int open_body(struct reef_txn *txn, void *context)
{
	int rc = 0;

	for (uint32_t i = 0; i < ACCOUNTS && !rc; i++)
		rc = put_account(context, txn, i, MONEY);
	return rc;
}

static int move_body(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	int64_t from, to, some;
	int rc = get_account(bank, txn, bank->from, &from);

	if (!rc)
		rc = get_account(bank, txn, bank->to, &to);
	if (rc || !from)
		return rc;
	some = 1 + (int64_t)below(bank, (uint64_t)from);
	rc = put_account(bank, txn, bank->from, from - some);
	return rc ? rc : put_account(bank, txn, bank->to, to + some);
}

static int add(void *context, const struct reef_map_entry *entry)
{
	struct bank *bank = context;
	int64_t money;

	memcpy(&money, entry->value, sizeof(money));
	bank->sum += money;
	return 0;
}

static int sum_body(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	struct reef_txn_item items[ACCOUNTS] = {0};
	char names[ACCOUNTS][24];
	uint32_t count = 0, i;
	int64_t money;
	int rc = 0;

	bank->sum = 0;
	if (bank->scans)
		rc = reef_txn_scan(txn, bank->tree, NULL, add, bank);
	for (i = 0; i < ACCOUNTS; i++) {
		if (bank->scans && i % 2)
			continue;
		items[count].map = i % 2 ? NULL : bank->map;
		items[count].tree = i % 2 ? bank->tree : NULL;
		items[count].key = names[count];
		items[count].key_size = name_of(names[count], i);
		count++;
	}
	if (!rc)
		rc = reef_txn_take_many(txn, items, count);
	for (i = 0; i < count; i++) {
		if (!rc && !items[i].status) {
			memcpy(&money, items[i].value.bytes, sizeof(money));
			bank->sum += money;
		}
		reef_map_value_free(&items[i].value);
	}
	return rc;
}

/* --- steps --- */

static int move(struct bank *bank)
{
	bank->from = (uint32_t)below(bank, ACCOUNTS);
	bank->to = (bank->from + 1 + (uint32_t)below(bank, ACCOUNTS - 1)) %
		   ACCOUNTS;
	return reef_txn_run(bank->space, move_body, bank, NULL);
}

static int sum(struct bank *bank)
{
	const struct reef_txn_options options = {.flags = REEF_TXN_READ_ONLY};
	int rc;

	bank->scans = below(bank, 2);
	rc = reef_txn_run(bank->space, sum_body, bank, &options);
	if (!rc && bank->sum != (int64_t)ACCOUNTS * MONEY) {
		fprintf(stderr, "the sum is %lld\n", (long long)bank->sum);
		rc = -EDOM;
	}
	return rc;
}

static int run(struct bank *bank, const char *mode)
{
	int rc = 0;

	while (!rc && !stopping) {
		rc = strcmp(mode, "move") ? sum(bank) : move(bank);
		if (!rc)
			rc = write(bank->fd, "x", 1) == 1 ? 0 : -EIO;
		/* Lost to others at every attempt, or nobody can tell. */
		if (rc == -ECANCELED || rc == -REEF_EINDOUBT || rc == -EBUSY)
			rc = 0;
	}
	return rc;
}

static int look(struct bank *bank)
{
	int rc = -ECANCELED;

	for (uint32_t i = 0; rc == -ECANCELED && i < ATTEMPTS; i++)
		rc = sum(bank);
	return rc;
}

static int open_all(struct bank *bank, const char *space)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	const struct reef_tree_options small = {.leaf_bytes = 512};
	int rc = reef_open("local", NULL, &bank->reef);

	if (!rc)
		rc = reef_space_open(bank->reef, space, &create, &bank->space);
	if (!rc)
		rc = reef_map_open(bank->space, "accounts", NULL, &bank->map);
	if (!rc)
		rc = reef_tree_open(bank->space, "ledger", &small, &bank->tree);
	return rc;
}

int main(int argc, char **argv)
{
	struct sigaction stop = {.sa_handler = on_stop};
	struct bank bank = {0};
	int rc;

	if (argc != 5)
		return 2;
	sigaction(SIGTERM, &stop, NULL);
	bank.random = strtoull(argv[4], NULL, 10);
	bank.fd = open(argv[3], O_CREAT | O_WRONLY | O_APPEND, 0600);
	rc = bank.fd < 0 ? -errno : open_all(&bank, argv[2]);
	if (!rc && !strcmp(argv[1], "open"))
		rc = reef_txn_run(bank.space, open_body, &bank, NULL);
	else if (!rc && !strcmp(argv[1], "look"))
		rc = look(&bank);
	else if (!rc)
		rc = run(&bank, argv[1]);
	if (!rc) {
		reef_tree_close(bank.tree);
		reef_map_close(bank.map);
		reef_close(bank.reef);
		return 0;
	}
	fprintf(stderr, "%s: %s\n", argv[1], reef_error_text(rc));
	return rc == -REEF_EFENCED || reef_health(bank.reef) == -REEF_EFENCED
		       ? FENCED
		       : 1;
}
