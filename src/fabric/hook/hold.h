/* hold.h - how a hook keeps a batch back and posts others in its place.
 *
 * fault and cost stand between the caller's batch (the outer) and the layer
 * below. They take it, wait, post parts of it further down as batches of their
 * own (the inner, over the same ops), and end the outer when they please.
 *
 *          take               post                      end
 *   (new) ------> HELD ------------------> BELOW      ------> (freed)
 *                 |  ^                       |          ^
 *                 +--+ at: step is called    +---- done is called: HELD
 *
 * (1) What was taken ends exactly once.
 * (2) Once its link is closed, or an accepted link is gone, nothing more of a
 *     batch goes down: at its next step it ends with -REEF_EINDOUBT.
 * (3) At most held_max batches are held; over that, take refuses.
 * (4) A step runs on the thread of the batch's queue: from a timer where the
 *     queue has a scheduler, else from poll, and such a queue does not sleep
 *     meanwhile.
 *
 * A hook embeds struct reef_hold as its first member and sets the hold's
 * queue_close, poll, arm, listen, unlisten and disconnect in its ops, or calls
 * them from its own.
 *
 * Thread: a held batch: its queue's. The rest: any. */
#ifndef REEF_FABRIC_HOOK_HOLD_H
#define REEF_FABRIC_HOOK_HOLD_H

#include "fabric/provider.h"

struct reef_hold;

struct reef_held {
	struct reef_hold *hold;
	struct reef_queue *queue;
	struct reef_batch *outer;
	struct reef_batch inner; /* its status says how the last post went */
	/* the hold's: */
	struct reef_timer timer;
	void (*step)(struct reef_held *held);
	void (*done)(struct reef_held *held);
	struct reef_link *link; /* compared only once lost */
	_Atomic bool lost;	/* the link is gone */
	bool waiting;		/* for a step */
	bool below;		/* the inner is under way */
	uint64_t deadline_ns;	/* of a queue without scheduler */
	struct reef_held **at;	/* locked */
	struct reef_held *next; /* locked */
	uint32_t first, count;	/* ops of the inner */
};

struct reef_hold {
	struct reef_layer layer;
	size_t held_size; /* of the hook's struct that begins with reef_held */
	uint32_t held_max;
	/* Optional: a link is about to go, or gone; a pointer to compare. */
	void (*forget)(struct reef_hold *hold, const struct reef_link *link);
	/* Optional: a held batch is about to end, in whatever way. */
	void (*ending)(struct reef_held *held);
	/* the hold's: */
	pthread_mutex_t lock;
	struct reef_held *held, *free;	 /* locked */
	uint32_t count;			 /* locked */
	_Atomic uint32_t unscheduled;	 /* waiting without scheduler */
	struct hold_listener *listeners; /* locked */
};

/* held_size: see above; held_max: 0: 65,536. */
void reef_hold_init(struct reef_hold *hold, size_t held_size,
		    uint32_t held_max);
void reef_hold_fini(struct reef_hold *hold);

/* Take a batch that is being posted, already checked. What follows reef_held in
 * the hook's struct is zeroed. NULL: too many, or no memory: refuse the post
 * with -EAGAIN. */
struct reef_held *reef_held_take(struct reef_hold *hold,
				 struct reef_queue *queue,
				 struct reef_batch *outer);

/* The time that `at` is measured in for this queue. */
uint64_t reef_hold_now_ns(const struct reef_queue *queue);

/* Call step at at_ns, or soon if that has passed; from a timer or a poll, not
 * from here: what ends inside a post is reported by nobody. */
void reef_held_at(struct reef_held *held, uint64_t at_ns,
		  void (*step)(struct reef_held *held));

/* Post ops [first, first + count) of the outer as the inner; done is called
 * when they ended, maybe before this returns. Waits out -EAGAIN. If the layer
 * below refuses them, the outer ends. */
void reef_held_post(struct reef_held *held, uint32_t first, uint32_t count,
		    void (*done)(struct reef_held *held));

/* End the outer, whose status and ops' statuses are set, and free held. */
void reef_held_end(struct reef_held *held);

/* Ops for the hook's layer. queue_close forgets what is still held there: the
 * host it was for is dead. */
void reef_hold_queue_close(struct reef_layer *layer, struct reef_queue *queue);
int reef_hold_poll(struct reef_layer *layer, struct reef_queue *queue);
int reef_hold_arm(struct reef_layer *layer, struct reef_queue *queue);
int reef_hold_listen(struct reef_layer *layer, struct reef_queue *queue,
		     const char *address,
		     const struct reef_listen_options *options,
		     struct reef_listener **out);
void reef_hold_unlisten(struct reef_layer *layer,
			struct reef_listener *listener);
void reef_hold_disconnect(struct reef_layer *layer, struct reef_link *link);

#endif
