/* elect.c - `reef elect`: run a command while leading, or show who leads. */
#include "cmd/object/hold.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/sync.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: reef elect [--as TEXT] [OPTIONS] NAME -- COMMAND [ARGUMENTS]\n"
	"       reef elect [--watch] [--json] [OPTIONS] [NAME]\n"
	"       reef elect --drop NAME\n\n"
	"Stands in an election, and runs a command while it leads. Without a\n"
	"command it shows who leads; with --watch, each new leader from now "
	"on.\n"
	"The command finds REEF_TERM in its environment, a number that grows\n"
	"with every leader.\n\n"
	"The exit status is the command's (128 + N: signal N ended it), or\n"
	"  1    it was not elected in time\n"
	"  124  it does not lead any more, so the command was ended\n"
	"  125  it could not stand in the election\n"
	"  126  the command cannot be run\n"
	"  127  the command was not found\n";

struct wish {
	struct hold_options hold; /* first, as hold_verb wants it */
	bool watch;
	const char *as;
};

/* --- showing --- */

struct show {
	struct reef_space *space;
	struct reef_table *table; /* NULL: JSON */
};

static void show_json(const char *name, const struct reef_lease_info *info)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "election", name);
	reef_json_number(&json, "session", info->session);
	reef_json_number(&json, "term", info->token);
	reef_json_string(&json, "leader", info->holder);
	reef_json_end(&json);
}

static int show_one(struct show *show, const char *name)
{
	struct reef_election *election;
	struct reef_lease_info info;
	int rc = reef_election_open(show->space, name, REEF_SYNC_EXISTING, NULL,
				    &election);

	if (rc)
		return rc;
	rc = reef_election_look(election, &info);
	reef_election_close(election);
	if (rc)
		return rc;
	if (!show->table) {
		show_json(name, &info);
		return 0;
	}
	reef_table_cell(show->table, "%s", name);
	if (info.session)
		reef_table_cell(show->table, "%08x", info.session);
	else
		reef_table_cell(show->table, "-");
	reef_table_cell(show->table, "%llu", (unsigned long long)info.token);
	reef_table_cell(show->table, "%s", info.holder);
	reef_table_end_row(show->table);
	return 0;
}

/* Show a name of the space if it is an election; names of other things, and
 * elections that are lost, are passed over. */
static int show_if_election(void *context, const char *name)
{
	int rc = show_one(context, name);

	return rc == -EEXIST || rc == -ENOENT || rc == -REEF_ELOST ||
			       rc == -REEF_EVERSION || rc == -EFAULT
		       ? 0
		       : rc;
}

static int say_why(const struct wish *wish, int rc)
{
	if (rc == -ENOENT)
		return operate_say("elect", "there is no election \"%.80s\"",
				   wish->hold.name);
	return hold_failed("elect", wish->hold.name ? wish->hold.name : "", rc);
}

static int show_elections(struct reef_space *space, const struct wish *wish)
{
	struct show view = {.space = space};
	int rc;

	if (!wish->hold.json)
		view.table = operate_table("<election|<led by|>term|<leader");
	rc = wish->hold.name ? show_one(&view, wish->hold.name)
			     : hold_each_name(space, show_if_election, &view);
	if (!rc && view.table)
		rc = reef_table_print(view.table, stdout);
	reef_table_destroy(view.table);
	return rc ? say_why(wish, rc) : 0;
}

static void cancel_election(void *what)
{
	reef_election_cancel(what);
}

static void print_leader(const struct wish *wish,
			 const struct reef_lease_info *info)
{
	if (wish->hold.json)
		show_json(wish->hold.name, info);
	else if (info->session)
		printf("term %llu: %s (session %08x)\n",
		       (unsigned long long)info->token, info->holder,
		       info->session);
	else
		printf("nobody leads\n");
}

static int watch_leaders(struct hold *hold, struct reef_space *space,
			 const struct wish *wish)
{
	struct reef_election *election;
	struct reef_lease_info info;
	int rc, number;

	rc = reef_election_open(space, wish->hold.name, 0, NULL, &election);
	if (!rc) {
		rc = reef_election_look(election, &info);
		if (!rc)
			print_leader(wish, &info);
		if (!rc)
			rc = hold_wait_begin(hold, cancel_election, election);
		if (!rc) {
			do {
				if (cmd_flush())
					break;
				rc = reef_election_watch(election, &info,
							 wish->hold.timeout_ns,
							 &info);
				if (!rc)
					print_leader(wish, &info);
			} while (!rc);
			number = hold_wait_end(hold);
			if (number)
				rc = 0; /* a signal is how a watch ends */
		}
		reef_election_close(election);
	}
	if (rc == -ETIMEDOUT)
		return wish->hold.busy_status;
	return rc ? say_why(wish, rc) : 0;
}

static int drop_election(struct reef_space *space, const struct wish *wish)
{
	int rc = reef_election_drop(space, wish->hold.name);

	if (rc == -EBUSY)
		return operate_say("elect", "%.80s has a leader",
				   wish->hold.name);
	return rc ? say_why(wish, rc) : 0;
}

/* --- leading --- */

static bool is_lost(void *context)
{
	return reef_election_check(context) != 0;
}

static int win_election(struct hold *hold, struct reef_election *election,
			const struct wish *wish, uint64_t *term, int *status)
{
	int number, rc = hold_wait_begin(hold, cancel_election, election);

	if (rc)
		return rc;
	rc = reef_election_win(election, wish->hold.timeout_ns, term);
	number = hold_wait_end(hold);
	if (number) {
		*status = 128 + number;
		return -ECANCELED; /* closing it resigns */
	}
	if (rc == -EBUSY || rc == -ETIMEDOUT) {
		operate_say("elect", "%.80s: %s", wish->hold.name,
			    rc == -EBUSY ? "another leads"
					 : "it was not won in time");
		*status = wish->hold.busy_status;
	}
	return rc;
}

static int run_and_resign(struct hold *hold, struct reef_election *election,
			  const struct wish *wish)
{
	const struct hold_command command = {
		.words = wish->hold.words,
		.what = "leadership",
		.grace_ns = wish->hold.grace_ns,
		.is_lost = is_lost,
		.context = election,
	};
	int rc, status = hold_run(hold, &command);

	rc = reef_election_resign(election);
	if (rc && status != HOLD_LOST) {
		hold_failed("elect", wish->hold.name, rc);
		status = HOLD_LOST;
	}
	return status;
}

/* The text that others see of us: --as, else HOST/PID. */
static void fill_own_text(const struct wish *wish, char *text, size_t size)
{
	char host[32] = "";

	if (wish->as) {
		snprintf(text, size, "%s", wish->as);
		return;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(text, size, "%s/%d", host, (int)getpid());
}

static int stand_and_run(struct hold *hold, struct reef_space *space,
			 const struct wish *wish)
{
	struct reef_election *election;
	int rc, status = HOLD_FAILED;
	char text[64], number[24];
	uint64_t term;

	fill_own_text(wish, text, sizeof(text));
	rc = reef_election_open(space, wish->hold.name, 0, text, &election);
	if (rc) {
		hold_failed("elect", wish->hold.name, rc);
		return HOLD_FAILED;
	}
	rc = win_election(hold, election, wish, &term, &status);
	if (!rc) {
		snprintf(number, sizeof(number), "%llu",
			 (unsigned long long)term);
		if (setenv("REEF_ELECTION", wish->hold.name, 1) ||
		    setenv("REEF_TERM", number, 1))
			rc = -errno;
		else
			status = run_and_resign(hold, election, wish);
	}
	if (rc && status == HOLD_FAILED)
		hold_failed("elect", wish->hold.name, rc);
	reef_election_close(election);
	return status;
}

static int act_on_election(struct hold *hold, struct reef *reef,
			   struct reef_space *space,
			   const struct hold_options *options)
{
	const struct wish *wish = (const struct wish *)options;

	(void)reef;
	if (options->words)
		return stand_and_run(hold, space, wish);
	if (wish->watch)
		return watch_leaders(hold, space, wish);
	return options->drop ? drop_election(space, wish)
			     : show_elections(space, wish);
}

static int check_options(struct hold_options *options)
{
	const struct wish *wish = (const struct wish *)options;

	options->make |= wish->watch;
	if (wish->as && strlen(wish->as) > 63)
		return cmd_usage_error("elect",
				       "--as takes 63 bytes at the most");
	if ((wish->hold.drop || wish->watch) &&
	    (!wish->hold.name || wish->hold.words))
		return cmd_usage_error("elect", "--%s takes one NAME",
				       wish->watch ? "watch" : "drop");
	return -1;
}

int cmd_elect(int argc, char **argv)
{
	static const struct hold_verb verb = {"elect", usage, check_options,
					      act_on_election};
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"as", "TEXT", "how it is shown to others; HOST/PID", NULL,
		 &wish.as},
		{"watch", NULL, "show each new leader, until interrupted",
		 &wish.watch, NULL},
		HOLD_FLAGS(wish.hold),
		{0},
	};

	return hold_main(&verb, argc, argv, flags, &wish.hold);
}
