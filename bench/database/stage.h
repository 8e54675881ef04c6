/* stage.h - where the scenarios of databases are played: a machine with little
 * memory, a pool beside it, and a guard who clears up.
 *
 *   harness --fork--> guard: waits; whatever becomes of the harness, it ends
 *      |              all that was started, unmounts, removes files and cgroups
 *      +--> cgroup reef-bench-PID/pool:     `reef up`, which lends memory
 *      +--> cgroup reef-bench-PID/machine:  all that plays the database machine
 *
 * (1) The machine has a limit of memory, page cache included: without it the
 *     kernel would keep the whole disk in memory, and nothing could be gained.
 *     The memory of the pool is taken by the pool's process, and counts there.
 * (2) Whatever is started on a stage is in one of the two groups. When the
 *     harness has ended, by whatever signal, the guard ends both of them, so
 *     that nothing of it is left: no process, mount, file or cgroup.
 * (3) A stage is made before the competitors are forked, who know it therefore;
 *     what is in its directory, all of them see.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_DATABASE_STAGE_H
#define REEF_BENCH_DATABASE_STAGE_H

#include "bench/process.h"

struct stage_options {
	uint64_t lend;	/* bytes of the pool */
	uint64_t limit; /* bytes of memory of the machine */
};

struct stage {
	struct stage_options options;
	char directory[64]; /* of all files; its place is $TMPDIR's, or /tmp */
	char group[PATH_MAX / 4];
	char machine[PATH_MAX / 2]; /* cgroup.procs of the machine */
	char pool[PATH_MAX / 2];    /* and of the pool */
	char self[PATH_MAX];	    /* this program */
	pid_t guard, up;
	int alarm;		   /* to the guard; -1: none */
	bool shows;		   /* progress, on a terminal */
	bool is_unlimited;	   /* programs are not in the machine's group */
	struct driver_pair errors; /* error says what is wrong */
};

/* How a program ended that ran on the machine. */
struct stage_result {
	int status; /* as waitpid has it */
	double seconds;
	double worked; /* seconds of processors, with what it had started */
	struct driver_cost cost; /* of it, and of what it had started */
	char text[512];		 /* the beginning of what it printed */
};

/* Make the groups and the directory, start the guard and the pool.
 * -EPERM: it needs root.  -ENOTSUP: no cgroup can be made.  -errno. */
int stage_open(struct stage *stage, const struct stage_options *options);
/* Wait until nothing of it is left. */
void stage_close(struct stage *stage);

/* Competitor: forget the guard, who is the harness's alone. */
void stage_visit(struct stage *stage);
/* This process itself plays the machine from now on. */
int stage_join(struct stage *stage);

/* Make the kernel forget what it has read from disks. */
int stage_forget(struct stage *stage);
/* Make it remember what is there, a file or a directory. */
void stage_remember(struct stage *stage, const char *name);

/* The disk that its directory is on. */
struct stage_disk {
	char name[64];	/* of the device; "?": it has none */
	double read_us; /* 8 KiB anywhere, past the kernel's cache; 0: cannot */
};
void stage_look(struct stage *stage, struct stage_disk *out);

/* A program for the machine: arguments, and what else there is to it. */
struct stage_program {
	const char *const *arguments;
	const char *const *environment; /* as process_options has it */
	bool is_other_user;		/* it runs as nobody but: */
	uid_t user;
	gid_t group;
	/* A file that grows while it runs, to what size; NULL: none. Its
	 * progress is shown. */
	const char *watched, *says;
	uint64_t size;
};
/* Run one to its end.  -EPROTO: it did not end well; what it printed last is
 * the error. */
int stage_run(struct stage *stage, const struct stage_program *program,
	      struct stage_result *out);
/* Start one, and end it by SIGINT; then out is filled, if it is not NULL. */
int stage_start(struct stage *stage, const struct stage_program *program,
		pid_t *out);
void stage_end(struct stage *stage, pid_t *pid, int signal_number,
	       struct stage_result *out);

/* Mount files of the pool at DIRECTORY/spill; and unmount them. */
int stage_mount(struct stage *stage, pid_t *out);
void stage_unmount(struct stage *stage, pid_t *pid);

/* Start another pool, of another user, whose files are in DIRECTORY/NAME: for
 * programs that run as that user. Nothing if there is one. It ends with the
 * competitor that starts it, or with the stage. */
int stage_lend(struct stage *stage, const char *name, uid_t user, gid_t group,
	       uint64_t bytes);

/* Let the pool's memory for that many bytes of such files be there: a lender
 * that has been up for a while has touched it before, and the first touch of
 * memory is slow, on virtual machines slower than their disk. Done once. */
int stage_warm(struct stage *stage, uint64_t bytes);

/* A path in its directory. Returns path. */
const char *stage_path(const struct stage *stage, const char *name,
		       char path[PATH_MAX]);

/* Show a line of progress, in place of the last; an empty one clears it. */
__attribute__((format(printf, 2, 3))) void stage_tell(const struct stage *stage,
						      const char *format, ...);

#endif
