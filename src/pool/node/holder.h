/* holder.h - a process that keeps a node's memory across the node's death: a
 * keep (keep.h), and what that process runs.
 *
 * The holder has no network and does next to nothing: it has descriptors, and
 * gives them to whoever comes next as that node. It listens at a socket in a
 * private directory, and serves one process at a time, of its own user.
 *
 * (1) Whatever was sent to it is with it, also while it has not read it yet: a
 *     node that dies right after `add` has added.
 * (2) It ends when the node says so (`release`: another keep has the memory),
 *     or lets go of it with nothing kept; or when no node has come for
 *     `linger_ns`, also after a clean stop: then it gives up, as hold_save.h
 *     says. Its socket goes with it.
 * (3) A holder that dies is started again within a pulse, or at the node's next
 *     change, and is given everything anew, pidfds first. Only if both die at
 *     once is memory lost.
 * (4) It has the pidfds of processes that may have the memory mapped, so that
 *     the next life can end those that were fenced meanwhile. It has one before
 *     the process is let in.
 *
 *   (none) --start--> HOLDING a node's --node ends--> WAITING --take--> HOLDING
 *                        |  release                      | linger_ns
 *                        v                               v
 *                      (none)                          (none), saved
 *
 * Thread: owner. */
#ifndef REEF_POOL_NODE_HOLDER_H
#define REEF_POOL_NODE_HOLDER_H

#include "pool/node/keep.h"

#include <inttypes.h>

/* Zero means the default, where there is one. */
struct reef_holder_options {
	const char *path; /* of its socket; its directory is private */
	/* Start a process that calls reef_holder_run with this descriptor,
	 * and that outlives this one.  0, or -errno. */
	int (*start)(void *context, int listen_fd);
	void *context;
	bool only_found; /* unless one waits at the path now, there is none */
};

/* Find the holder that waits at the path, or start one when it is needed. In a
 * fiber. Caller owns *out.  -ENAMETOOLONG.  -ENOENT: only_found, and nobody
 * waits there.  Else as socket calls. */
int reef_holder_open(const struct reef_holder_options *options,
		     struct reef_keep **out);
/* Let go of the holder. It waits for the next node, if it has memory. NULL is
 * fine. */
void reef_holder_close(struct reef_keep *keep);

/* A process was let in by number `number` of its session's links, or is gone.
 * For reef_fabric_options.let_in and let_go; context is the keep. */
int reef_holder_let_in(void *keep, uint32_t session, uint32_t number,
		       int pidfd);
void reef_holder_let_go(void *keep, uint32_t session, uint32_t number);

/* --- in the holder --- */

/* What a holder has. */
struct reef_holder_state {
	uint64_t pool; /* 0: not known yet */
	uint32_t node, extents;
	uint64_t bytes;
	bool has_node; /* a node is with it */
};

/* The third word of a holder's command line begins so: pool, node, extents,
 * bytes, and since when no node is with it, in seconds of the wall clock; 0:
 * one is. */
#define REEF_HOLDER_STATE_FORMAT                                               \
	"pool %016" PRIx64 " node %" PRIu32 " extents %" PRIu32                \
	" bytes %" PRIu64 " alone-since %" PRIu64

/* How a holder that had memory gave up. */
struct reef_holder_end {
	uint32_t ended; /* processes that had it mapped */
	bool tried;	/* there is a folder to save it in */
	int rc;		/* 0, and tried: it was saved; else why not */
};

struct reef_holder_run_options {
	int listen_fd; /* a SOCK_SEQPACKET socket that listens */
	uint64_t linger_ns;
	const char *folder; /* of the node's image; NULL: nothing is saved */
	/* It gave up memory. */
	void (*gave_up)(void *context, const struct reef_holder_end *end);
	/* The state has changed. */
	void (*changed)(void *context, const struct reef_holder_state *state);
	void *context;
};

/* Be the holder, until (2).  1: the node said so, and has removed the socket's
 * file.  0: nobody came; the caller removes it, before it closes the socket.
 * -errno. */
int reef_holder_run(const struct reef_holder_run_options *options);

#endif
