/* hold.h - run a command while something is held: what `reef lock` and `reef
 * elect` share.
 *
 *   begin --> wait_begin --(take; a signal cancels it)--> wait_end --> run
 *                                                                       |
 *   exit status <-- end <-- (give) <------------------------------------+
 *
 * (1) The exit status is the command's, 128 + N if signal N ended it, or one of
 *     these, as timeout(1) and env(1) have them.
 * (2) Signals that ask us to end go to the command; a terminal sends them to
 *     both by itself.
 * (3) The command does not outlive us: should we be killed, the kernel kills
 *     it, for what it counts on is about to pass on to another. (Its own
 *     children are its own affair.)
 *
 * Thread: main; the one that wait_begin starts is inside. */
#ifndef REEF_CMD_OBJECT_HOLD_H
#define REEF_CMD_OBJECT_HOLD_H

#include "cmd/operate.h"

#include <pthread.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdatomic.h>

enum hold_status {
	HOLD_BUSY = 1,	 /* not had in time; --exit-code sets another number */
	HOLD_LOST = 124, /* lost while the command ran */
	HOLD_FAILED = 125, /* the lock could not be asked for */
	HOLD_CANNOT_RUN = 126,
	HOLD_NOT_FOUND = 127,
};

struct hold {
	const char *name; /* of the subcommand */
	sigset_t before;
	int signal_fd, stop_fd;
	pthread_t thread;
	void (*cancel)(void *what);
	void *what;
	_Atomic int signal; /* that came while waiting; 0: none */
};

/* Block the signals and watch for them; before the pool is opened, so that its
 * threads have them blocked, too. -errno. */
int hold_begin(struct hold *hold, const char *name);
void hold_end(struct hold *hold);

/* Until wait_end a signal calls cancel(what). -errno. */
int hold_wait_begin(struct hold *hold, void (*cancel)(void *what), void *what);
/* Stop watching. Returns the signal that came; 0: none. */
int hold_wait_end(struct hold *hold);

struct hold_command {
	const char *const *words; /* NULL at the end */
	const char *what;	  /* "the lock", in what is said */
	uint64_t grace_ns;	  /* between SIGTERM and SIGKILL, once lost */
	bool (*is_lost)(void *context);
	void *context;
};
/* Run the command to its end; returns the exit status. */
int hold_run(struct hold *hold, const struct hold_command *command);

/* Say what went wrong with the object of that name. Returns 1. */
int hold_failed(const char *name, const char *object, int rc);

/* --- flags that both have --- */

struct hold_options {
	const char *space, *timeout, *exit_code, *grace; /* as given */
	bool no_wait, json, drop;
	uint64_t timeout_ns, grace_ns;
	int busy_status;
	const char *name;	  /* of the object; NULL: none */
	const char *const *words; /* of the command; NULL: none */
	bool make; /* make the space if it is not there; always with a command
		    */
};
#define HOLD_FLAGS(o)                                                          \
	{"space", "NAME", "the space it is in; sync", NULL, &(o).space},       \
		{"timeout", "TIME", "how long to wait; for ever", NULL,        \
		 &(o).timeout},                                                \
		{"no-wait", NULL, "do not wait", &(o).no_wait, NULL},          \
		{"exit-code", "N", "status if it was not had in time; 1",      \
		 NULL, &(o).exit_code},                                        \
		{"grace", "TIME",                                              \
		 "time for the command to end, once lost; 5s", NULL,           \
		 &(o).grace},                                                  \
		{"json", NULL, "print a line of JSON for each", &(o).json,     \
		 NULL},                                                        \
	{                                                                      \
		"drop", NULL, "remove NAME", &(o).drop, NULL                   \
	}

/* What a subcommand is. Its wishes begin with their hold_options. */
struct hold_verb {
	const char *name, *usage;
	/* Check the options. -1: go on; otherwise the exit status, and an error
	 * was printed. */
	int (*check)(struct hold_options *options);
	/* Do what was asked for; returns the exit status. */
	int (*act)(struct hold *hold, struct reef *reef,
		   struct reef_space *space,
		   const struct hold_options *options);
};
/* Read the settings, open pool and space, and act; the exit status. flags: with
 * HOLD_FLAGS of the options. */
int hold_main(const struct hold_verb *verb, int argc, char **argv,
	      const struct reef_config_flag *flags,
	      struct hold_options *options);

/* Call each for every name in the space; it may call into the handle. 0, or
 * what went wrong. */
int hold_each_name(struct reef_space *space,
		   int (*each)(void *context, const char *name), void *context);

#endif
