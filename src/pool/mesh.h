/* mesh.h - a process's ends of all the fabrics it uses, as one thing.
 *
 * A *mesh* is what the process opened ("shm", "tcp", ...); a *port* is a mesh
 * for one thread: a queue of each fabric, all on one scheduler or on none. The
 * pool speaks to ports and to addresses, and never asks which fabric it is.
 *
 * Addresses of a peer are one text, blank-separated, in the order of its doors:
 * "shm:/run/reef/node tcp:10.0.0.1:7338".
 *
 * (1) Who connects tries shm first where the peer is on this machine (equal CPU
 *     domains), then verbs, then tcp; sim where that is what there is. It is
 *     told which it became.
 * (2) That a new link settles what was under way on the one before (F5) holds
 *     within a fabric. So a session that had a link to a peer and connects anew
 *     does so with the one address that it was on; unless the peer has ended
 *     that link on all its fabrics (F10), then with any.
 *
 * Thread: a mesh: any. A port: owner. */
#ifndef REEF_POOL_MESH_H
#define REEF_POOL_MESH_H

#include "fabric/fabric.h"

struct reef_mesh;
struct reef_port;

#define REEF_MESH_MAX 4		  /* fabrics; also REEF_DOORS_MAX */
#define REEF_MESH_ADDRESS_MAX 192 /* bytes of one address and its zero */

struct reef_mesh_options {
	const char *kinds; /* blank-separated; NULL: "shm tcp", and verbs where
			    * there is a device */
	struct reef_fabric_options fabric;
	/* Optional: called for each fabric after it was opened, to push hooks
	 * (count, fault, trace). An error ends the open with it. */
	int (*opened)(void *context, struct reef_fabric *fabric);
	void *context;
};

/* Caller owns *out.  -EINVAL: no kinds, or one that does not exist.  Else: what
 * reef_fabric_open returned for one that was named. */
int reef_mesh_open(const struct reef_mesh_options *options,
		   struct reef_mesh **out);
/* Ports are closed first. NULL is fine. */
void reef_mesh_close(struct reef_mesh *mesh);
uint32_t reef_mesh_count(const struct reef_mesh *mesh);
struct reef_fabric *reef_mesh_fabric(const struct reef_mesh *mesh,
				     uint32_t index);
/* Which fabric an address is of: its index, or -1: none that we have. */
int reef_mesh_find(const struct reef_mesh *mesh, const char *address);

/* True if one of the addresses is of that fabric. */
bool reef_mesh_names(const struct reef_mesh *mesh, const char *addresses,
		     uint32_t index);

/* A queue of every fabric, as reef_queue_open. Caller owns *out. */
int reef_port_open(struct reef_mesh *mesh, struct reef_sched *sched,
		   struct reef_port **out);
void reef_port_close(struct reef_port *port); /* NULL is fine */
struct reef_sched *reef_port_sched(const struct reef_port *port); /* or NULL */
struct reef_mesh *reef_port_mesh(const struct reef_port *port);
struct reef_queue *reef_port_queue(const struct reef_port *port,
				   uint32_t index);
/* The queue of this port for operations on that link, of the same mesh. */
struct reef_queue *reef_port_queue_of(const struct reef_port *port,
				      const struct reef_link *link);
/* Poll every queue once; how much happened. Negative: what reef_poll said. */
int reef_port_poll(struct reef_port *port);

/* As reef_queue_wait_until, on whatever happens in any of its queues. */
int reef_port_wait_until(struct reef_port *port,
			 bool (*ready)(const void *what), const void *what,
			 uint64_t timeout_ns);

/* Listen on every address of the text; once per port. real, if not NULL: the
 * real addresses in the same order, in real_max bytes.
 * -EINVAL: none, too many (REEF_MESH_MAX), or one for a fabric that is not
 * there.  -ENOSPC: real_max is too little.  -EBUSY: it listens already.  Else:
 * reef_listen's. After an error nothing listens. */
int reef_port_listen(struct reef_port *port, const char *addresses,
		     const struct reef_listen_options *options, char *real,
		     size_t real_max);
/* Stop listening, and end the links that came that way, as
 * reef_listener_close. The end of the port does it, too. */
void reef_port_unlisten(struct reef_port *port);

/* What to try as number `rank`, from 0 on, of a peer's addresses (1): *index is
 * its place among them, *queue where to connect, address its text. domain as
 * below.  -ENOENT: no more.  -EINVAL: no addresses, or too many. */
int reef_port_choose(const struct reef_port *port, const char *addresses,
		     uint64_t domain, uint32_t rank, uint32_t *index,
		     struct reef_queue **queue,
		     char address[REEF_MESH_ADDRESS_MAX]);

/* Connect to whichever of the addresses is best (1). domain: the peer's CPU
 * domain, 0: unknown (then shm is tried, and is not there on another machine).
 * *door, if not NULL: the index of the address in use. The next address is
 * tried after any error but those that would not change, or make a second link
 * of a session that has one: -REEF_EFENCED, -EBUSY, and what a fork or a killed
 * host returns. Errors: the last one; -EINVAL: no address fits a fabric we
 * have, or there are too many. */
int reef_port_connect(struct reef_port *port, const char *addresses,
		      uint64_t domain,
		      const struct reef_connect_options *options,
		      struct reef_link **out, uint32_t *door);

#endif
