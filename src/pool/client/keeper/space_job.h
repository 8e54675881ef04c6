/* space_job.h - what handles ask of the keeper about spaces: jobs (job.h).
 *
 * Thread: the handle's until the job is started, and once it is done; in
 * between the keeper's. */
#ifndef REEF_POOL_CLIENT_KEEPER_SPACE_JOB_H
#define REEF_POOL_CLIENT_KEEPER_SPACE_JOB_H

#include "pool/client/keeper/job.h"
#include "wire/body.h"

struct client_space;

/* Open a space, or make it. */
struct client_open_job {
	struct client_job job;
	struct reef_ask_space_open ask; /* its name: the job's */
	char *name, *token;		/* the job's; NULL: none */
	/* What came of it, with a reference for whoever asked. */
	struct client_space *space;
};
extern const struct client_job_ops client_open_ops;

/* Drop a space.  -ENOENT: there is none. */
struct client_drop_job {
	struct client_job job;
	char *name;	/* the job's */
	uint32_t space; /* its number; 0: not known */
};
extern const struct client_job_ops client_drop_ops;

/* Close a space, or refresh the view of it. */
struct client_space_job {
	struct client_job job;
	struct client_space *space; /* close: takes the reference over */
};
extern const struct client_job_ops client_close_ops;
extern const struct client_job_ops client_refresh_ops;

/* Add an extent to a space. */
struct client_grow_job {
	struct client_job job;
	struct client_space *space;
	uint64_t size;	 /* at least; 0: the usual. Then: its size */
	uint32_t extent; /* the new one */
};
extern const struct client_job_ops client_grow_ops;

/* Give an extent of a space back, in which nobody has anything.  -EACCES: the
 * session may not.  Else: it may be gone, or go still. */
struct client_shrink_job {
	struct client_job job;
	struct client_space *space;
	uint32_t extent;
};
extern const struct client_job_ops client_shrink_ops;

/* One step of a restore (broker/restore.c). NAME makes the space a shared one
 * of that name. */
struct client_restore_job {
	struct client_job job;
	struct client_space *space;
	struct reef_ask_space_restore ask; /* without the name */
	char *name;			   /* the job's; NULL: none */
};
extern const struct client_job_ops client_restore_ops;

#endif
