/* lock.c - `reef lock`: run a command while holding a lock, or show locks. */
#include "cmd/object/hold.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <reef/sync.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef lock [OPTIONS] NAME -- COMMAND [ARGUMENTS]\n"
	"       reef lock [--json] [OPTIONS] [NAME]\n"
	"       reef lock --drop NAME\n\n"
	"Runs a command while holding a lock of the pool, as flock(1) does\n"
	"with a file. Without a command it shows the lock, or all locks of "
	"the\n"
	"space. If its last holder died, the command finds\n"
	"REEF_LOCK_INHERITED=1 in its environment: what the lock protects may\n"
	"be half done.\n\n"
	"The exit status is the command's (128 + N: signal N ended it), or\n"
	"  1    the lock was not had in time\n"
	"  124  the session ended while the command ran, so it was ended, too\n"
	"  125  the lock could not be asked for\n"
	"  126  the command cannot be run\n"
	"  127  the command was not found\n";

static const char *const kinds[] = {"shift", "spin", "mcs", "rw"};

struct wish {
	struct hold_options hold; /* first, as hold_verb wants it */
	bool shared;
	const char *kind;
};

/* --- showing --- */

struct show {
	struct reef_space *space;
	struct reef_table *table; /* NULL: JSON */
};

static void show_json(const char *name, const struct reef_lock_info *info)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "lock", name);
	reef_json_string(&json, "kind", kinds[info->kind]);
	reef_json_number(&json, "session", info->session);
	reef_json_number(&json, "readers", info->readers);
	reef_json_number(&json, "waiters", info->waiters);
	reef_json_bool(&json, "inherited", info->inherited);
	reef_json_end(&json);
}

static int show_one(struct show *show, const char *name)
{
	const struct reef_lock_options options = {.flags = REEF_SYNC_EXISTING};
	struct reef_lock_info info;
	struct reef_lock *lock;
	int rc = reef_lock_open(show->space, name, &options, &lock);

	if (rc)
		return rc;
	rc = reef_lock_look(lock, &info);
	reef_lock_close(lock);
	if (rc)
		return rc;
	if (!show->table) {
		show_json(name, &info);
		return 0;
	}
	reef_table_cell(show->table, "%s", name);
	reef_table_cell(show->table, "%s", kinds[info.kind]);
	if (info.session)
		reef_table_cell(show->table, "%08x", info.session);
	else
		reef_table_cell(show->table, "-");
	reef_table_cell(show->table, "%u", info.readers);
	reef_table_cell(show->table, "%u", info.waiters);
	reef_table_cell(show->table, "%s", info.inherited ? "yes" : "");
	reef_table_end_row(show->table);
	return 0;
}

/* Show a name of the space if it is a lock; names of other things, and locks
 * that are lost, are passed over. */
static int show_if_lock(void *context, const char *name)
{
	int rc = show_one(context, name);

	return rc == -EEXIST || rc == -ENOENT || rc == -REEF_ELOST ||
			       rc == -REEF_EVERSION || rc == -EFAULT
		       ? 0
		       : rc;
}

static int show_locks(struct reef_space *space, const struct wish *wish)
{
	struct show view = {.space = space};
	int rc;

	if (!wish->hold.json)
		view.table = operate_table("<lock|<kind|<held by|>readers|"
					   ">waiting|<inherited");
	rc = wish->hold.name ? show_one(&view, wish->hold.name)
			     : hold_each_name(space, show_if_lock, &view);
	if (!rc && view.table)
		rc = reef_table_print(view.table, stdout);
	reef_table_destroy(view.table);
	if (rc == -ENOENT)
		return operate_say("lock", "there is no lock \"%.80s\"",
				   wish->hold.name);
	return rc ? hold_failed("lock", wish->hold.name ? wish->hold.name : "",
				rc)
		  : 0;
}

static int drop_lock(struct reef_space *space, const struct wish *wish)
{
	int rc = reef_lock_drop(space, wish->hold.name);

	if (rc == -ENOENT)
		return operate_say("lock", "there is no lock \"%.80s\"",
				   wish->hold.name);
	return rc ? hold_failed("lock", wish->hold.name, rc) : 0;
}

/* --- holding --- */

static void cancel_take(void *what)
{
	reef_lock_cancel(what);
}

static bool is_lost(void *context)
{
	return reef_health(context) == -REEF_EFENCED;
}

static int take_lock(struct hold *hold, struct reef_lock *lock,
		     const struct wish *wish, int *status)
{
	enum reef_lock_mode mode =
		wish->shared ? REEF_LOCK_SHARED : REEF_LOCK_EXCLUSIVE;
	int number, rc = hold_wait_begin(hold, cancel_take, lock);

	if (rc)
		return rc;
	rc = reef_lock_take(lock, mode, wish->hold.timeout_ns);
	number = hold_wait_end(hold);
	if (number && rc >= 0)
		reef_lock_give(lock);
	if (number) {
		*status = 128 + number;
		return -ECANCELED;
	}
	if (rc == -EBUSY || rc == -ETIMEDOUT) {
		operate_say("lock", "%.80s: %s", wish->hold.name,
			    rc == -EBUSY ? "others hold it"
					 : "it was not had in time");
		*status = wish->hold.busy_status;
	}
	return rc;
}

/* Run the command while the lock is held, and give the lock back. */
static int run_and_give(struct hold *hold, struct reef *reef,
			struct reef_lock *lock, const struct wish *wish)
{
	const struct hold_command command = {
		.words = wish->hold.words,
		.what = "the lock",
		.grace_ns = wish->hold.grace_ns,
		.is_lost = is_lost,
		.context = reef,
	};
	int rc, status = hold_run(hold, &command);

	rc = reef_lock_give(lock);
	if (rc && status != HOLD_LOST) {
		hold_failed("lock", wish->hold.name, rc);
		status = HOLD_LOST;
	}
	return status;
}

static int hold_and_run(struct hold *hold, struct reef *reef,
			struct reef_space *space, const struct wish *wish)
{
	struct reef_lock_options options = {0};
	int rc, status = HOLD_FAILED;
	struct reef_lock *lock;

	for (uint32_t i = 0; wish->kind && i < REEF_LOCK_KINDS; i++)
		if (!strcmp(wish->kind, kinds[i]))
			options.kind = (enum reef_lock_kind)i;
	rc = reef_lock_open(space, wish->hold.name, &options, &lock);
	if (rc) {
		hold_failed("lock", wish->hold.name, rc);
		return HOLD_FAILED;
	}
	rc = take_lock(hold, lock, wish, &status);
	if (rc < 0) {
		if (status == HOLD_FAILED)
			hold_failed("lock", wish->hold.name, rc);
	} else if (setenv("REEF_LOCK", wish->hold.name, 1) ||
		   (rc == REEF_LOCK_INHERITED
			    ? setenv("REEF_LOCK_INHERITED", "1", 1)
			    : unsetenv("REEF_LOCK_INHERITED"))) {
		hold_failed("lock", wish->hold.name, -errno);
	} else {
		status = run_and_give(hold, reef, lock, wish);
	}
	reef_lock_close(lock);
	return status;
}

static int act_on_lock(struct hold *hold, struct reef *reef,
		       struct reef_space *space,
		       const struct hold_options *options)
{
	const struct wish *wish = (const struct wish *)options;

	if (options->words)
		return hold_and_run(hold, reef, space, wish);
	return options->drop ? drop_lock(space, wish) : show_locks(space, wish);
}

static int check_options(struct hold_options *options)
{
	const struct wish *wish = (const struct wish *)options;
	bool known = !wish->kind;

	for (uint32_t i = 0; wish->kind && i < REEF_LOCK_KINDS; i++)
		known |= !strcmp(wish->kind, kinds[i]);
	if (!known)
		return cmd_usage_error("lock",
				       "--kind is shift, spin, mcs or rw");
	if (wish->hold.drop && (!wish->hold.name || wish->hold.words))
		return cmd_usage_error("lock", "--drop takes one NAME");
	return -1;
}

int cmd_lock(int argc, char **argv)
{
	static const struct hold_verb verb = {"lock", usage, check_options,
					      act_on_lock};
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"shared", NULL, "take it together with other readers",
		 &wish.shared, NULL},
		{"kind", "shift|spin|mcs|rw", "of a new lock; shift", NULL,
		 &wish.kind},
		HOLD_FLAGS(wish.hold),
		{0},
	};

	return hold_main(&verb, argc, argv, flags, &wish.hold);
}
