/* process.h - programs that a competitor starts, and their files.
 *
 * (1) They print nothing, run on any processor unless told otherwise, and end
 *     with the process that started them, whatever becomes of that.
 * (2) Where they have a directory it is their home: nothing of the user's is
 *     read or written.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PROCESS_H
#define REEF_BENCH_PROCESS_H

#include "driver.h"

#include <limits.h>

/* Zero means the default. */
struct process_options {
	const char *directory; /* its home; NULL: the user's */
	bool has_output;       /* what it prints goes to: */
	int output;	       /* a descriptor */
	bool is_pinned;	       /* to: */
	uint32_t processor;    /* see driver_pin */
	const char *joins;     /* the cgroup.procs that it joins; NULL: none */
	bool is_other_user;    /* it runs as: */
	uid_t user;
	gid_t group;
	/* NAME, VALUE, ... for its environment, to NULL; NULL: none. */
	const char *const *environment;
};

/* Start a program; arguments: its name first, NULL last. Its exit status is 127
 * if there is no such program.  -errno; pair->error says why. */
int process_start(struct driver_pair *pair,
		  const struct process_options *options,
		  const char *const *arguments, pid_t *out);
/* End it by SIGTERM, or SIGKILL, and wait; 0 is fine, and what is left. */
void process_end(pid_t *pid, int signal_number);
/* Run one to its end. 0: it ended well.  -EPROTO: it did not. */
int process_run(struct driver_pair *pair, const struct process_options *options,
		const char *const *arguments);

/* The path of this very program. */
int process_self(struct driver_pair *pair, char path[PATH_MAX]);
/* Make a directory for programs' files, and remove it with all in it; nothing
 * happens to an empty name. */
int process_directory(struct driver_pair *pair, char directory[64]);
void process_directory_remove(char directory[64]);

#endif
