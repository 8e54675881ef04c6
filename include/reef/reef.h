/* reef.h - memory of a pool: spaces, blocks, one-sided access, names.
 *
 * A *pool* lends the memory of many machines. A process joins it once (its
 * *session*, kept alive by a hidden thread); each thread opens a *handle*,
 * which is to this library what a connection is to SQLite: cheap, and not
 * shared. A *space* is what memory belongs to: the unit of sharing, quota and
 * access. An *address* is 64 bits (extent 32, offset 32) and the same for
 * everyone; it stays valid while data moves between nodes.
 *
 * (1) Calls block; inside a fiber (fiber.h) they park it. reef_task_submit does
 *     not block. A handle that was opened inside a fiber is for the fibers of
 *     that scheduler, which may share it; any other fiber gets -EINVAL.
 * (2) Only an aligned 8-byte word is read or written as a whole. Anything
 *     longer can be torn by concurrent access.
 * (3) A word that CAS or FAA may touch is changed by CAS and FAA only, once it
 *     is shared.
 * (4) -REEF_EINDOUBT: a WRITE, CAS or FAA whose connection was lost; when the
 *     call returns it is settled: it happened or it never will. READs are
 *     repeated by the library and never in doubt. To settle it takes the node,
 *     or the broker and the node's answer to the broker, or the node's death.
 *     Only where none of these came for 30 seconds it stays open: -ETIMEDOUT,
 *     it may still happen. Until it cannot, which the library goes on to see
 *     to, memory that anybody frees with REEF_FREE_LATER, or this session in
 *     any way, is not reused: so it never changes another's data.
 *     If the session has ended meanwhile (5), nobody settles it for this call:
 *     it happened, or it does before the session is fenced everywhere, or it
 *     never will; the next call says -REEF_EFENCED.
 * (5) What died: -REEF_ELOST, the memory is gone, with its node or taken back
 *     by its owner (revocable spaces). -REEF_EFENCED: this session has ended
 *     (its process stood still for too long, or an operator ended it); close
 *     every handle and open anew.  -REEF_ENOLINK: nothing happened; the node,
 *     or for what asks the broker the broker, was out of reach for 30 seconds.
 * (6) A session that ends gives back its scratch spaces and the blocks it
 *     allocated and did not keep.
 * (7) In a space with two copies (reef_space_options.copies) accesses are as
 *     ever, but: A word that CAS may touch takes no value again that it had
 *     before, as long as anybody is inside a call from then: put a counter into
 *     it, and something of one's own, so that of two who are in doubt one knows
 *     that it was itself. `compare` is what was read, or set, and not a guess.
 *     WRITEs of two clients to one place at a time may leave the copies
 *     different. What a WRITE alone made visible can be gone again, if its
 *     writer and a node die together: what counts is published by CAS. A READ
 *     waits while the session's lease is not renewed: without a broker,
 *     -REEF_ENOLINK after 30 seconds. Calls pin the epoch, as reef_enter does.
 *
 * Out-parameters are written only on success. What can fail may fail with
 * -ENOMEM; in a forked child everything returns -REEF_EFORKED.
 *
 * Thread: owner of the handle, and so of its spaces and tasks. */
#ifndef REEF_REEF_H
#define REEF_REEF_H

#include <reef/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef;
struct reef_space;

/* --- handles --- */

/* Zero means the default. */
struct reef_options {
	const char *credential; /* file with a user's key, from `reef user add`;
				 * default: $REEF_CREDENTIAL, else the owner's,
				 * which `reef up` left for this machine's user
				 */
	const char *name;    /* of this program, for `reef status`; its own */
	const char *fabrics; /* blank-separated, to choose from; $REEF_FABRICS,
			      * else all */
	/* Whether what crosses tcp is encrypted: "auto", unless the peer's
	 * address is a loopback one, "yes" or "no"; $REEF_TLS, else auto. The
	 * pool's servers decide for themselves; they must agree. */
	const char *tls;
	uint64_t timeout_ns; /* to find and join the pool; 10 s */
	/* How long a call waits for a node and a broker that are both out of
	 * reach; $REEF_PATIENCE, as "10s", else 30 s. As the first handle of
	 * the process has it. */
	uint64_t patience_ns;
};

/* Open a handle for the calling thread; options may be NULL. target:
 *   NULL           $REEF_POOL, else "local"
 *   "local"        the pool of this machine's user (`reef up`)
 *   "embedded:SIZE" a pool inside this process, e.g. "embedded:256M"; nothing
 *                  to start, gone with the last handle
 *   "reef://HOST:PORT[,HOST:PORT...]"  a broker, or several places of one;
 *                  "reef://" may be left out
 * The first handle of a process joins the pool, the others cost no message.
 * -EINVAL: no such target, or a variable of the environment is not what it
 * should be.  -ECONNREFUSED, -ENOENT: nobody is there.
 * -ETIMEDOUT.  -REEF_EAUTH: the key is not right.  -REEF_ETLS: the pool wants
 * TLS and this program does not, or the other way round.  -EACCES: a credential
 * that others may read, or none.  -ENOSPC: too many sessions.  -EDQUOT:
 * this user has as many sessions, or links to the broker, as their limit
 * allows. */
REEF_API int reef_open(const char *target, const struct reef_options *options,
		       struct reef **out);

/* Close a handle, with its spaces and tasks. The last one ends the session.
 * NULL is fine. */
REEF_API void reef_close(struct reef *reef);

/* The number of the handle's session, 32 bits: slot 16, generation 16. */
REEF_API uint32_t reef_session(const struct reef *reef);

/* Tell how the session is. 0: all is well.  -REEF_EFENCED: the session has
 * ended.  -REEF_ENOLINK: the broker is out of reach at the moment; memory works
 * all the same. */
REEF_API int reef_health(const struct reef *reef);

/* --- spaces --- */

enum reef_space_flags {
	REEF_SPACE_CREATE = 1,	  /* make it if there is none */
	REEF_SPACE_EXCLUSIVE = 2, /* -EEXIST if there is one */
	REEF_SPACE_REVOCABLE = 4, /* made revocable: the lender may take it
				   * back after a notice */
	REEF_SPACE_STRICT = 8, /* a new one with copies: it grows by no memory
				* that has fewer */
};

struct reef_space_options {
	uint32_t flags;
	uint64_t quota;	   /* of a new one, in bytes; 0: none */
	const char *token; /* from `reef space token`; the owner needs none */
	/* Copies of a new one's memory, on different nodes, and on different
	 * machines where there are any: 1 or 2; 0: 1. Memory for which there is
	 * one node only has one until there is another: `reef status` shows
	 * that. Both copies count against the quota. */
	uint8_t copies;
};

/* Open a space by name; options may be NULL. name NULL: a new scratch space,
 * which ends when it is closed, or with the session. What a token allows is the
 * session's: another handle of the process may do it, too.
 * *out is the caller's; closing its handle closes it, too.
 * -ENOENT: there is none.  -EEXIST: there is one, with REEF_SPACE_EXCLUSIVE.
 * -EACCES: the token is missing, forged, or revoked.  -ENAMETOOLONG: the name
 * is longer than the pool takes.  -EINVAL: an empty name, or an unknown flag;
 * or more than two copies, or two of a revocable space. -EPERM: the name of a
 * new one is kept for the pool's owner ("redis", "sync"). -EDQUOT: this user
 * has as many spaces as their limit allows.  -ENOSPC: the pool has too many
 * spaces; or fewer nodes than copies, with REEF_SPACE_STRICT. */
REEF_API int reef_space_open(struct reef *reef, const char *name,
			     const struct reef_space_options *options,
			     struct reef_space **out);
/* Close a space; one without a name ends. NULL is fine. */
REEF_API void reef_space_close(struct reef_space *space);

/* Drop a space with all that is in it: its users get -REEF_ELOST.
 * -ENOENT: there is none.  -EACCES: it is not this user's. */
REEF_API int reef_space_drop(struct reef *reef, const char *name);

struct reef_space_info {
	uint32_t id;
	bool scratch, revocable;
	uint64_t quota; /* 0: none */
	uint64_t used;	/* bytes of its extents; second copies count */
	uint32_t extents;
	uint32_t degraded; /* of them, those that have fewer copies than: */
	uint8_t copies;	   /* wanted */
	char name[256];
};

/* Call `each` for every space that this user may see; nonzero ends the list and
 * is returned. It must not call into the handle. */
REEF_API int reef_space_list(struct reef *reef,
			     int (*each)(void *context,
					 const struct reef_space_info *info),
			     void *context);

/* --- images --- */

struct reef_image_options {
	const char *token; /* as in reef_space_options; save only */
	/* Called after each MiB: so many of all bytes are done. Not 0 ends the
	 * work, and is returned. It must not call into the handle. May be
	 * NULL. */
	int (*progress)(void *context, uint64_t done, uint64_t all);
	void *context;
	uint8_t copies; /* restore: of its memory; 0: as many as it had */
};

struct reef_image_report {
	uint64_t bytes;	   /* of memory, with its zeroes */
	uint64_t pause_ns; /* save: for how long others were held up */
	uint32_t extents, names;
	uint32_t sessions; /* that used the space, and have to be recovered */
	char name[256];	   /* of the space */
};

/* Save a space to a file (mode 0600), which takes the place of one that is
 * there: an image of one moment, while others use the space. They are held up
 * meanwhile, for about half a second per GiB; who waits for longer than a
 * client has patience gets -REEF_ENOLINK, and nothing is lost by that. options
 * and report may be NULL.
 * -ENOENT: no such space, or folder.  -EACCES: this user may not manage it.
 * -EBUSY: another save of it is under way; or a holder does not let go; or
 * another handle of this process has it open.  -REEF_ELOST: some of its memory
 * is lost.  -ESTALE, -ETIMEDOUT: it was opened to others before all was copied
 * (a node or the broker died, or this process stood still): there is no image,
 * try again.  -EINVAL: no name; or what is there is no file (a device).  Else
 * errors of access, and of the file. */
REEF_API int reef_space_save(struct reef *reef, const char *name,
			     const char *path,
			     const struct reef_image_options *options,
			     struct reef_image_report *report);

/* Make the space that a file holds, as it was; name NULL: under its own name.
 * Only the pool's owner may. The space appears at once, when all is there.
 * Addresses in it stay what they were, in this pool or another; leases and
 * elections go on with higher terms, clocks with later times. Tokens of before
 * are void.
 * -ENOENT: no such file.  -EPERM: another user.  -EEXIST: there is a space of
 * that name; or memory of this pool has a number that the image needs.  -EBUSY:
 * a session that used the space when it was saved, or one in its slot, is still
 * alive.  -REEF_EVERSION, -REEF_ECORRUPT: the image is of another version, or
 * damaged; nothing was changed.  -EINVAL: it is no image of a space, or copies
 * are more than 2, or of a revocable one.  -ENOSPC,
 * -EDQUOT.  Else errors of access, and of the file. */
REEF_API int reef_space_restore(struct reef *reef, const char *path,
				const char *name,
				const struct reef_image_options *options,
				struct reef_image_report *report);

/* --- blocks --- */

/* Take `size` bytes of a space, 8-byte aligned, contents undefined. The block
 * ends with this session unless it is kept. Where there is no room, but memory
 * that was freed with REEF_FREE_LATER is about to come back, and the caller is
 * not itself inside reef_enter, it waits for that: some milliseconds, or, after
 * a death or while somebody does not leave, up to three leases and two seconds
 * in which the process ran. Where no node has come to the pool yet, it waits
 * for the first as long as the client has patience. -ENOSPC: the pool is full.
 * -EDQUOT: over the space's quota, or the limit of the user whose it is.
 * -EINVAL: size 0 or larger than an extent can be (4 GiB).  -EACCES: only
 * reading is granted.
 */
REEF_API int reef_alloc(struct reef_space *space, uint64_t size,
			uint64_t *address);

enum reef_free_flags {
	/* Others may still change it in place: reuse it only when nobody who
	 * could have seen it is inside reef_enter/reef_leave. */
	REEF_FREE_LATER = 1,
};

/* Give a block back, anyone's. -EALREADY: it is free already, and nothing
 * happened.  -EINVAL: no block begins there.  -REEF_EINDOUBT: it may be free by
 * now. */
REEF_API int reef_free(struct reef_space *space, uint64_t address,
		       uint32_t flags);

/* Let a block outlive this session. -EALREADY: it is kept already.  -EINVAL: no
 * block begins there, or it is free.  -REEF_EINDOUBT: it may be kept by now. */
REEF_API int reef_keep(struct reef_space *space, uint64_t address);

/* Tell how many bytes the block at that address has room for.  -EINVAL: no
 * block begins there. */
REEF_API int reef_block_size(struct reef_space *space, uint64_t address,
			     uint64_t *size);

#define REEF_CLASSES_MAX 96

struct reef_block_stats {
	uint64_t bytes_taken;	/* chunks of the space that are its own */
	uint64_t bytes_live;	/* blocks, with their headers */
	uint64_t bytes_waiting; /* freed with REEF_FREE_LATER, not reused yet */
	uint32_t classes;
	struct {
		uint64_t size;			/* of a block */
		uint64_t blocks, live, waiting; /* how many */
	} by_class[REEF_CLASSES_MAX];
};
/* Tell what this handle's blocks of a space take; those of other handles are
 * theirs to tell. */
REEF_API int reef_block_stats(struct reef_space *space,
			      struct reef_block_stats *out);

/* Begin an interval in which nothing that is reachable now, and is freed with
 * REEF_FREE_LATER meanwhile, is reused; reef_leave ends it. Intervals nest,
 * cost no operation, and should be brief: a handle that never leaves keeps
 * everybody's freed memory from coming back. If that goes on for longer than a
 * lease while others have no room, the session is ended as if it had been
 * silent: -REEF_EFENCED, and on shared memory the process is killed. Fibers
 * that share a handle enter and leave each for itself. */
REEF_API void reef_enter(struct reef *reef);
/* End the interval that the last reef_enter began. */
REEF_API void reef_leave(struct reef *reef);

/* --- access --- */

enum reef_op_kind {
	REEF_READ = 1,
	REEF_WRITE,
	REEF_CAS,
	REEF_FAA,
	REEF_FLUSH,
	REEF_SEND, /* inside the library only */
	REEF_OP_KINDS
};

#define REEF_ORDERED 1u /* takes effect after all before it */
/* Inside the library only, for memory with two copies: */
#define REEF_BLIND                                                             \
	4u	       /* FAA at both, not one after the other; never with CAS \
			*/
#define REEF_SINGLE 8u /* a hint: at one of them alone */

/* Errors of all access: -EFAULT: no memory of an open space is there.  -EINVAL:
 * CAS or FAA at an address that is not a multiple of 8.  -EACCES: the token
 * does not allow it.  -REEF_EINDOUBT, -ETIMEDOUT: (4).  -REEF_ELOST,
 * -REEF_EFENCED, -REEF_ENOLINK: (5). */

/* Copy `length` bytes of the pool to the caller's memory. */
REEF_API int reef_read(struct reef *reef, uint64_t address, void *to,
		       size_t length);
/* Copy `length` bytes of the caller's memory to the pool. */
REEF_API int reef_write(struct reef *reef, uint64_t address, const void *from,
			size_t length);
/* Set a word to `value` if it is `compare`. *before (may be NULL): what it was;
 * equal to `compare`: it was set. */
REEF_API int reef_cas(struct reef *reef, uint64_t address, uint64_t compare,
		      uint64_t value, uint64_t *before);
/* Add to a word. *before (may be NULL): what it was. */
REEF_API int reef_faa(struct reef *reef, uint64_t address, uint64_t add,
		      uint64_t *before);

struct reef_access {
	uint8_t kind;
	uint8_t flags;
	uint16_t reserved; /* 0 */
	uint32_t length;   /* READ, WRITE, FLUSH: bytes */
	uint64_t address;
	void *local;	  /* READ: to; WRITE: from */
	uint64_t operand; /* CAS: new value; FAA: what to add */
	uint64_t compare; /* CAS */
	uint64_t result;  /* out: CAS, FAA: the value before */
	int status;	  /* out: 0, or what went wrong */
};

/* Do several accesses at once: one round trip where they are on one node. To
 * one node, in their order: whatever follows a WRITE takes effect after it; a
 * READ after everything before it; a WRITE, CAS or FAA may overtake an earlier
 * READ, CAS or FAA unless REEF_ORDERED. Between nodes: no order. A malformed
 * one: nothing of the list happens. The first to fail ends its node's part, and
 * what comes 256 operations later; an address where no memory is, or none any
 * more, ends the whole rest. Those report -REEF_ENOTDONE. Returns 0, or the
 * status of the first in the list that failed by itself. */
REEF_API int reef_execute(struct reef *reef, struct reef_access *accesses,
			  uint32_t count);

/* --- without blocking --- */

/* Belongs to the handle, with its accesses and their bytes, from a successful
 * submit until done. Zero what is not named. */
struct reef_task {
	struct reef_access *accesses;
	uint32_t count;
	int status; /* out, as reef_execute returns */
	bool done;  /* out */
	/* Optional: called by reef_progress when done; may submit, may not
	 * block. */
	void (*on_done)(struct reef_task *task);
	void *user;
	uint64_t scratch[8]; /* the handle's */
};

/* Begin a task. 0: it is under way.  1: it is done already; on_done is not
 * called.  -EAGAIN: 1,024 are under way, call reef_progress first.  -EINVAL: an
 * access is malformed. If the header of a fresh block is still to be written,
 * it waits for that one round trip. */
REEF_API int reef_task_submit(struct reef *reef, struct reef_task *task);
/* Wait for a submitted task; returns its status. on_done is called, if there
 * is one. */
REEF_API int reef_task_wait(struct reef *reef, struct reef_task *task);
/* Carry tasks on, without blocking. Returns how much happened. */
REEF_API int reef_progress(struct reef *reef);

/* The handle's descriptor, for foreign event loops: one for everything, to be
 * polled, not read; the handle closes it.  -ENOSYS: there is none. */
REEF_API int reef_fd(struct reef *reef);
/* Ask for the descriptor to become readable at the next event. If that returns
 * 0, call reef_progress once more; if that returns 0, too, the loop may sleep.
 */
REEF_API int reef_arm(struct reef *reef);

/* --- names: small, few, durable at the broker --- */

/* Errors of every call on names: -EINVAL: the name is empty.  -ENAMETOOLONG.
 * -EACCES: the token does not allow it.  -REEF_ENOLINK: the broker is out of
 * reach; nothing happened.  -REEF_EINDOUBT, of those that change something: the
 * broker may have heard of it.  -REEF_EFENCED: (5). */

/* Bind a name of a space to a number, if it is not bound. *generation (may be
 * NULL) is new for every change.  -EEXIST: it is bound.  -EDQUOT: over the
 * limit of names of the user whose space it is.  -ENOSPC: the pool has too
 * many. */
REEF_API int reef_name_bind(struct reef_space *space, const char *name,
			    uint64_t value, uint64_t *generation);
/* Bind a name to another number, if its binding is still of that generation.
 * *now (may be NULL): the new generation.  -ENOENT: it is not bound.  -ESTALE:
 * its generation is another. */
REEF_API int reef_name_replace(struct reef_space *space, const char *name,
			       uint64_t generation, uint64_t value,
			       uint64_t *now);
/* Look a name up. value and generation may be NULL.  -ENOENT: it is not bound.
 */
REEF_API int reef_name_lookup(struct reef_space *space, const char *name,
			      uint64_t *value, uint64_t *generation);
/* Unbind a name, if its binding is still of that generation; 0: of any.
 * -ENOENT: it is not bound.  -ESTALE: its generation is another. */
REEF_API int reef_name_unbind(struct reef_space *space, const char *name,
			      uint64_t generation);
/* Call `each` for every name of a space that begins with prefix, in order;
 * nonzero ends the list and is returned. It must not call into the handle. */
REEF_API int reef_name_list(struct reef_space *space, const char *prefix,
			    int (*each)(void *context, const char *name,
					uint64_t value, uint64_t generation),
			    void *context);

#ifdef __cplusplus
}
#endif
#endif
