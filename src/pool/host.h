/* host.h - a broker, a node, or both, in this process: what `reef up`, `reef
 * broker`, `reef node` and an embedded pool run.
 *
 * With a data directory: pool.key and journal/ of a broker; node-NUMBER/ of a
 * node that keeps its memory as an image (node/keep_image.h). Without:
 * everything in memory, gone with the process. A node on its own has its key in
 * a file (keys.h); beside a broker it is told it. With a runtime directory: the
 * sockets broker.sock and node.sock, and, beside a broker, the files of
 * target.h, which "local" clients find. Without: sockets without a name in the
 * file system.
 *
 * A node that listens on verbs lends memory of the NIC's atomic domain, and has
 * no socket.
 *
 * (1) Directories and key files are private (base/system/private.h), or
 * refused. (2) What is written into the runtime directory goes at stop; what a
 * dead process left there is replaced.
 *
 * Runs in fibers of the calling one's scheduler.
 *
 * Thread: owner, which is the scheduler's thread. */
#ifndef REEF_POOL_HOST_H
#define REEF_POOL_HOST_H

#include "pool/broker/broker.h"
#include "pool/keys.h"
#include "pool/mesh.h"
#include "pool/node/keep_both.h"
#include "pool/node/keep_image.h"
#include "pool/node/node.h"

struct reef_host;

/* What a clean stop saved. */
struct reef_host_saved {
	struct reef_keep_image_report image;
	bool has_holder; /* who has what could not be saved */
};

/* Zero means the default. */
struct reef_host_options {
	bool with_broker, with_node;
	const char *data;	   /* directory */
	const char *run;	   /* directory */
	const char *key_file;	   /* the pool's key; NULL: in data */
	const char *node_key_file; /* of a node without a broker here */
	const char *node_name;	   /* of a node beside a broker */
	/* Starts a holder of the node's memory (holder.h), whose socket in
	 * the runtime directory is hold.sock, or hold-NUMBER.sock of a node
	 * without a broker here. folder: where it saves what nobody came for;
	 * NULL: nowhere. NULL: there are no holders. */
	int (*start_holder)(void *context, int listen_fd, const char *path,
			    const char *folder);
	void *holder_context;
	struct reef_mesh_options mesh;
	/* mesh, sched, store and key are filled in; listen: in addition to the
	 * socket, may be NULL. */
	struct reef_broker_options broker;
	/* Likewise; broker: filled in if there is one here. */
	struct reef_node_options node;
	/* Keep the node's memory from a stop to the next start, with its
	 * holder, or in node-NUMBER of the data directory: node/keep_both.h
	 * says which counts. What an earlier process left is taken without
	 * these, too; then its holder goes at the next clean stop. */
	bool keep_holder, keep_image;
	struct reef_keep_image_options image;
	/* Filled in at stop, if it is not NULL. */
	struct reef_host_saved *saved;
};

/* What a start does, in this order. */
enum reef_host_step {
	REEF_HOST_MEMORY,
	REEF_HOST_DATA, /* the directory */
	REEF_HOST_KEY,	/* the pool's, or that of a node on its own */
	REEF_HOST_RUN,	/* the directory */
	REEF_HOST_FABRICS,
	REEF_HOST_STORE, /* where the journal is */
	REEF_HOST_BROKER,
	REEF_HOST_ANNOUNCE, /* in the runtime directory */
	REEF_HOST_NODE
};

/* Start. In a fiber. Caller owns *out. On error *step (may be NULL) is what
 * could not be done.
 * -EBUSY: another broker has the journal.  -EPERM: not private.  -ENOENT: no
 * key.  Else: mesh's, broker's, node's. */
int reef_host_start(const struct reef_host_options *options,
		    struct reef_host **out, enum reef_host_step *step);

/* Stop both, in order; take what was written out of the runtime directory. In
 * a fiber. NULL is fine. */
void reef_host_stop(struct reef_host *host);

/* What of the node's memory was kept when it started; NULL: it keeps none. */
const struct reef_keep_both_report *
reef_host_kept(const struct reef_host *host);
struct reef_broker *reef_host_broker(const struct reef_host *host);
struct reef_node *reef_host_node(const struct reef_host *host);
/* The credential of user 0, the pool's owner; beside a broker. It changes when
 * it is rotated. */
const struct reef_credential *reef_host_owner(const struct reef_host *host);

#endif
