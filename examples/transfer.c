/* transfer.c - money moves from one account to another: both change, or none.
 * Accounts may as well lie in a tree: reef_txn_tree_take, and so on. */
#include <errno.h>
#include <reef/txn.h>
#include <stdio.h>
#include <string.h>

struct transfer {
	struct reef_map *accounts;
	const char *from, *to;
	long amount;
};

/* Add to an account, inside a transaction; none is one without money. */
static int add(struct reef_txn *txn, struct reef_map *accounts, const char *who,
	       long amount)
{
	struct reef_map_value value = {0};
	long money = 0;
	int rc = reef_txn_take(txn, accounts, who, strlen(who), &value);

	if (!rc)
		memcpy(&money, value.bytes, sizeof(money));
	reef_map_value_free(&value);
	if (rc && rc != -ENOENT)
		return rc;
	printf("%s: %ld\n", who, money += amount);
	rc = reef_txn_put(txn, accounts, who, strlen(who), &money, 8, 0);
	return money < 0 ? -EDOM : rc;
}

/* The body may run several times: when another changed an account meanwhile. */
static int move(struct reef_txn *txn, void *context)
{
	struct transfer *pay = context;
	int rc = add(txn, pay->accounts, pay->to, pay->amount);

	return rc ? rc : add(txn, pay->accounts, pay->from, -pay->amount);
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct transfer pay = {.from = "ann", .to = "bob", .amount = 30};
	struct reef_space *space;
	struct reef *reef = NULL;
	long all = 100;
	int rc = reef_open("embedded:64M", NULL, &reef);

	rc = rc ? rc : reef_space_open(reef, "examples", &make, &space);
	rc = rc ? rc : reef_map_open(space, "accounts", NULL, &pay.accounts);
	rc = rc ? rc : reef_map_put(pay.accounts, "ann", 3, &all, 8, 0, NULL);
	rc = rc ? rc : reef_txn_run(space, move, &pay, NULL);
	pay.amount = 1000; /* refused, and bob has nothing of it */
	rc = rc ? rc : reef_txn_run(space, move, &pay, NULL) != -EDOM;
	reef_map_close(pay.accounts);
	reef_close(reef);
	return rc != 0;
}
