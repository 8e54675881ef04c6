/* fault.h - faults on any fabric, from a seed or from a script.
 *
 * (1) A fault stays within the contract of fabric.h: a refused call changed
 *     nothing, -REEF_EINDOUBT may or may not have happened, nothing happens
 *     twice.
 * (2) Every fallible call that passes is counted; each can be made to fail in
 *     turn. The same seed and the same calls give the same faults.
 * (3) After a batch in doubt its link is lost: posts and attaches through it
 *     get -REEF_ENOLINK until it is closed. With lose_link the connection under
 *     it is cut for real; without, the peer hears of it when it is closed.
 *
 * To make every fallible call fail in turn, as SQLite's tests do:
 *
 *	for (n = 1;; n++) {
 *		... open a fabric, push fault ...
 *		reef_fault_fail_nth(fault, n, REEF_FAULT_UNDONE, false);
 *		... do the work: it may fail, but loses and tears nothing ...
 *		if (!reef_fault_count(fault))
 *			break;	-- n calls were not made: all had their turn
 *	}
 *
 * Thread: any. */
#ifndef REEF_FABRIC_HOOK_FAULT_H
#define REEF_FABRIC_HOOK_FAULT_H

#include "fabric/fabric.h"

struct reef_fault;

enum reef_fault_call {
	REEF_CALL_POST,
	REEF_CALL_CONNECT,
	REEF_CALL_ATTACH,
	REEF_CALL_LISTEN,
	REEF_CALL_EXPOSE,
	REEF_CALL_WITHDRAW,
	REEF_CALL_BUFFER_REGISTER,
	REEF_CALL_QUEUE_OPEN,
	REEF_CALL_FENCE,
	REEF_CALL_END_LINKS,
	REEF_CALLS
};

/* What is done to a post. Other calls can only be refused. */
enum reef_fault_kind {
	REEF_FAULT_NONE,
	REEF_FAULT_REFUSE, /* `error`; by default -EAGAIN for a post */
	REEF_FAULT_DELAY,  /* delay_ns before anything of it happens */
	REEF_FAULT_DONE,   /* all of it happens; in doubt, link lost */
	REEF_FAULT_UNDONE, /* nothing of it happens; in doubt, link lost */
	REEF_FAULT_CUT,	   /* the first `prefix` ops happen; in doubt, lost */
};

/* Zero means none, or the default; *_ppm are chances in a million, per batch
 * or per call. */
struct reef_fault_options {
	uint64_t seed;
	uint32_t again_ppm;    /* posts refused with -EAGAIN */
	uint32_t delay_ppm;    /* batches delayed by up to delay_max_ns */
	uint32_t doubt_ppm;    /* DONE, UNDONE or CUT somewhere: one of three */
	uint32_t connect_ppm;  /* connects refused */
	uint32_t attach_ppm;   /* attaches refused */
	uint64_t delay_max_ns; /* 100,000 */
	/* Cut the connection under a link for real: reef_sim_lose_link. */
	void (*lose_link)(struct reef_link *link);
};

/* Put faults on a fabric; before its first queue is opened. options may be
 * NULL: no faults but scripted ones. *out is valid until the fabric is closed.
 * -ENOMEM. */
int reef_fault_push(struct reef_fabric *fabric,
		    const struct reef_fault_options *options,
		    struct reef_fault **out);

/* One fault for the nth `call` from now on (1: the next). */
struct reef_fault_rule {
	enum reef_fault_call call;
	enum reef_fault_kind kind; /* other than POST: taken as REFUSE */
	uint64_t nth;
	uint64_t delay_ns; /* DELAY */
	uint32_t prefix;   /* CUT: ops that happen; less than the batch has */
	int error;	   /* REFUSE: negative; 0: the default of the call */
};

/* Add a rule to the script. -EINVAL: nth is 0, or an error is positive.
 * -ENOSPC: 64 rules are waiting. */
int reef_fault_add(struct reef_fault *fault,
		   const struct reef_fault_rule *rule);

/* Fail the nth fallible call of whatever kind from now on, and with `forever`
 * all after it; a post by `kind`, others by their default error. n 0: stop. */
void reef_fault_fail_nth(struct reef_fault *fault, uint64_t n,
			 enum reef_fault_kind kind, bool forever);

/* Fallible calls that passed, and faults that were put in, since the push. */
uint64_t reef_fault_calls(const struct reef_fault *fault);
uint64_t reef_fault_count(const struct reef_fault *fault);

#endif
