/* fault.c - see fault.h.
 *
 * A post takes one of these ways:
 *
 *   REFUSE   ---------------------------------------------> error returned
 *   DELAY    take -> at -> post all ----------------------> end as it ended
 *   DONE     take -------> post all -> lose link ---------> end in doubt
 *   CUT      take -------> post prefix -> lose link ------> end in doubt
 *   UNDONE   take -> lose link ---------------------------> end in doubt
 *   else     straight down, the layer keeps nothing of it
 */
#include "fabric/hook/fault.h"

#include "base/random.h"
#include "fabric/hook/hold.h"

#include <stdlib.h>
#include <string.h>

#define RULES_MAX 64
#define DELAY_MAX_NS 100000
#define POISON 0xfa17fa17fa17fa17ull

/* What is to be done to one call. */
struct verdict {
	enum reef_fault_kind kind;
	uint64_t delay_ns;
	uint32_t prefix;
	int error;
};

struct lost_link {
	const struct reef_link *link; /* only compared */
	struct lost_link *next;
};

struct reef_fault {
	struct reef_hold hold;
	struct reef_fault_options options;
	pthread_mutex_t lock; /* of all below */
	struct reef_random random;
	struct reef_fault_rule rules[RULES_MAX];
	uint32_t rules_count;
	uint64_t until_failure; /* calls until fail_nth's; 0: not set */
	enum reef_fault_kind nth_kind;
	bool forever;
	struct lost_link *lost;
	_Atomic uint64_t calls, count; /* read without the lock */
};

struct fault_held {
	struct reef_held held;
	struct verdict verdict;
};

static const int default_errors[REEF_CALLS] = {
	[REEF_CALL_POST] = -EAGAIN,
	[REEF_CALL_CONNECT] = -ECONNREFUSED,
	[REEF_CALL_ATTACH] = -REEF_EKEY,
	[REEF_CALL_LISTEN] = -EADDRINUSE,
	[REEF_CALL_EXPOSE] = -ENOMEM,
	[REEF_CALL_WITHDRAW] = -ETIMEDOUT,
	[REEF_CALL_BUFFER_REGISTER] = -ENOMEM,
	[REEF_CALL_QUEUE_OPEN] = -ENOMEM,
	[REEF_CALL_FENCE] = -ETIMEDOUT,
	[REEF_CALL_END_LINKS] = -ETIMEDOUT,
};

/* --- what happens to a call --- */

/* Count a call against every rule for its kind. Returns whether one was due;
 * the first that is decides. */
static bool apply_rules(struct reef_fault *fault, enum reef_fault_call call,
			struct verdict *verdict)
{
	bool taken = false;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < fault->rules_count; i++) {
		struct reef_fault_rule *rule = &fault->rules[i];

		if (rule->call == call && --rule->nth == 0) {
			if (!taken)
				*verdict = (struct verdict){
					.kind = rule->kind,
					.delay_ns = rule->delay_ns,
					.prefix = rule->prefix,
					.error = rule->error,
				};
			taken = true;
		} else {
			fault->rules[kept++] = *rule;
		}
	}
	fault->rules_count = kept;
	return taken;
}

static bool apply_nth(struct reef_fault *fault, struct verdict *verdict)
{
	if (!fault->until_failure)
		return false;
	if (fault->until_failure > 1) {
		fault->until_failure--;
		return false;
	}
	if (!fault->forever)
		fault->until_failure = 0;
	verdict->kind = fault->nth_kind;
	return true;
}

static bool chance(struct reef_fault *fault, uint32_t ppm)
{
	return ppm && reef_random_chance(&fault->random, ppm, 1000000);
}

static void apply_chance(struct reef_fault *fault, enum reef_fault_call call,
			 uint32_t ops, struct verdict *verdict)
{
	const struct reef_fault_options *options = &fault->options;
	struct reef_random *random = &fault->random;

	if (call == REEF_CALL_CONNECT && chance(fault, options->connect_ppm)) {
		verdict->kind = REEF_FAULT_REFUSE;
	} else if (call == REEF_CALL_ATTACH &&
		   chance(fault, options->attach_ppm)) {
		verdict->kind = REEF_FAULT_REFUSE;
	} else if (call != REEF_CALL_POST) {
		return;
	} else if (chance(fault, options->again_ppm)) {
		verdict->kind = REEF_FAULT_REFUSE;
	} else if (chance(fault, options->doubt_ppm)) {
		verdict->kind = REEF_FAULT_DONE + reef_random_below(random, 3);
		verdict->prefix = (uint32_t)reef_random_below(random, ops);
	} else if (chance(fault, options->delay_ppm)) {
		verdict->kind = REEF_FAULT_DELAY;
		verdict->delay_ns =
			reef_random_below(random, options->delay_max_ns) + 1;
	}
}

/* Decide what happens to one fallible call. ops: of a post. */
static struct verdict judge_call(struct reef_fault *fault,
				 enum reef_fault_call call, uint32_t ops)
{
	struct verdict verdict = {.kind = REEF_FAULT_NONE};
	bool nth;

	pthread_mutex_lock(&fault->lock);
	atomic_fetch_add_explicit(&fault->calls, 1, memory_order_relaxed);
	nth = apply_nth(fault, &verdict);
	/* The rules count along even when the call fails for another reason. */
	if (!apply_rules(fault, call, &verdict) && !nth)
		apply_chance(fault, call, ops ? ops : 1, &verdict);
	if (verdict.kind != REEF_FAULT_NONE) {
		if (call != REEF_CALL_POST)
			verdict.kind = REEF_FAULT_REFUSE;
		if (!verdict.error)
			verdict.error = default_errors[call];
		if (verdict.prefix >= ops)
			verdict.prefix = ops ? ops - 1 : 0;
		atomic_fetch_add_explicit(&fault->count, 1,
					  memory_order_relaxed);
	}
	pthread_mutex_unlock(&fault->lock);
	return verdict;
}

/* Judge a call that can only be refused. Returns 0, or the error. */
static int refuse_call(struct reef_layer *layer, enum reef_fault_call call)
{
	struct verdict verdict =
		judge_call((struct reef_fault *)layer, call, 0);

	return verdict.kind == REEF_FAULT_NONE ? 0 : verdict.error;
}

/* --- lost links --- */

static bool is_lost(struct reef_fault *fault, const struct reef_link *link)
{
	struct lost_link *lost;

	pthread_mutex_lock(&fault->lock);
	for (lost = fault->lost; lost; lost = lost->next)
		if (lost->link == link)
			break;
	pthread_mutex_unlock(&fault->lock);
	return lost != NULL;
}

static void lose_link(struct reef_fault *fault, struct reef_link *link)
{
	struct lost_link *lost;

	if (fault->options.lose_link) {
		fault->options.lose_link(link);
		return;
	}
	if (is_lost(fault, link))
		return;
	lost = malloc(sizeof(*lost));
	if (!lost)
		return; /* it stays up: also a thing that may happen */
	pthread_mutex_lock(&fault->lock);
	lost->link = link;
	lost->next = fault->lost;
	fault->lost = lost;
	pthread_mutex_unlock(&fault->lock);
}

static void fault_forget(struct reef_hold *hold, const struct reef_link *link)
{
	struct reef_fault *fault = (struct reef_fault *)hold;
	struct lost_link **at, *lost;

	pthread_mutex_lock(&fault->lock);
	for (at = &fault->lost; (lost = *at);) {
		if (lost->link == link) {
			*at = lost->next;
			free(lost);
		} else {
			at = &lost->next;
		}
	}
	pthread_mutex_unlock(&fault->lock);
}

/* --- posts --- */

static void end_as_inner(struct reef_held *held)
{
	held->outer->status = held->inner.status;
	reef_held_end(held);
}

static void end_in_doubt(struct reef_held *held)
{
	struct reef_batch *outer = held->outer;

	/* A caller that uses a result in doubt shall notice. */
	for (uint32_t i = 0; i < outer->count; i++)
		if (outer->ops[i].kind == REEF_CAS ||
		    outer->ops[i].kind == REEF_FAA)
			outer->ops[i].result = POISON;
	reef_batch_fail_all(outer, -REEF_EINDOUBT);
	reef_held_end(held);
}

static void lose_and_end(struct reef_held *held)
{
	if (!atomic_load(&held->lost))
		lose_link((struct reef_fault *)held->hold, held->link);
	end_in_doubt(held);
}

/* Start what was decided for a held batch. This runs from a timer or a poll,
 * never inside post: nobody would report a batch that ends there. */
static void begin_held(struct reef_held *held)
{
	struct verdict *verdict = &((struct fault_held *)held)->verdict;

	if (verdict->kind == REEF_FAULT_DELAY)
		reef_held_post(held, 0, held->outer->count, end_as_inner);
	else if (verdict->kind == REEF_FAULT_DONE)
		reef_held_post(held, 0, held->outer->count, lose_and_end);
	else if (verdict->kind == REEF_FAULT_CUT && verdict->prefix)
		reef_held_post(held, 0, verdict->prefix, lose_and_end);
	else
		lose_and_end(held);
}

static int fault_post(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	struct reef_fault *fault = (struct reef_fault *)layer;
	struct verdict verdict =
		judge_call(fault, REEF_CALL_POST, batch->count);
	struct fault_held *self;
	int rc;

	if (batch->link && is_lost(fault, batch->link))
		return -REEF_ENOLINK;
	if (verdict.kind == REEF_FAULT_NONE)
		return layer->next->ops.post(layer->next, queue, batch);
	if (verdict.kind == REEF_FAULT_REFUSE)
		return verdict.error;
	rc = reef_batch_check(queue, batch);
	if (rc)
		return rc;
	self = (struct fault_held *)reef_held_take(&fault->hold, queue, batch);
	if (!self)
		return -EAGAIN;
	self->verdict = verdict;
	reef_held_at(&self->held,
		     reef_hold_now_ns(queue) + 1 + verdict.delay_ns,
		     begin_held);
	return 0;
}

/* --- the other calls --- */

static int fault_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	int rc = refuse_call(layer, REEF_CALL_QUEUE_OPEN);

	return rc ? rc : layer->next->ops.queue_open(layer->next, out);
}

static int fault_listen(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_listen_options *options,
			struct reef_listener **out)
{
	int rc = refuse_call(layer, REEF_CALL_LISTEN);

	return rc ? rc : reef_hold_listen(layer, queue, address, options, out);
}

static int fault_connect(struct reef_layer *layer, struct reef_queue *queue,
			 const char *address,
			 const struct reef_connect_options *options,
			 struct reef_link **out)
{
	int rc = refuse_call(layer, REEF_CALL_CONNECT);

	return rc ? rc
		  : layer->next->ops.connect(layer->next, queue, address,
					     options, out);
}

static int fault_expose(struct reef_layer *layer, struct reef_memory *memory,
			struct reef_region **out)
{
	int rc = refuse_call(layer, REEF_CALL_EXPOSE);

	return rc ? rc : layer->next->ops.expose(layer->next, memory, out);
}

static int fault_withdraw(struct reef_layer *layer, struct reef_queue *queue,
			  struct reef_region *region)
{
	int rc = refuse_call(layer, REEF_CALL_WITHDRAW);

	return rc ? rc : layer->next->ops.withdraw(layer->next, queue, region);
}

static int fault_attach(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_link *link, uint64_t key,
			struct reef_remote **out)
{
	int rc = refuse_call(layer, REEF_CALL_ATTACH);

	if (is_lost((struct reef_fault *)layer, link))
		return -REEF_ENOLINK;
	return rc ? rc
		  : layer->next->ops.attach(layer->next, queue, link, key, out);
}

static int fault_buffer_register(struct reef_layer *layer, void *base,
				 size_t size, struct reef_buffer **out)
{
	int rc = refuse_call(layer, REEF_CALL_BUFFER_REGISTER);

	return rc ? rc
		  : layer->next->ops.buffer_register(layer->next, base, size,
						     out);
}

static int fault_fence(struct reef_layer *layer, struct reef_queue *queue,
		       uint32_t session)
{
	int rc = refuse_call(layer, REEF_CALL_FENCE);

	return rc ? rc : layer->next->ops.fence(layer->next, queue, session);
}

static int fault_end_links(struct reef_layer *layer, struct reef_queue *queue,
			   uint32_t session, uint32_t number)
{
	int rc = refuse_call(layer, REEF_CALL_END_LINKS);

	return rc ? rc
		  : layer->next->ops.end_links(layer->next, queue, session,
					       number);
}

static void fault_close(struct reef_layer *layer)
{
	struct reef_fault *fault = (struct reef_fault *)layer;
	struct reef_layer *next = layer->next;
	struct lost_link *lost;

	while ((lost = fault->lost)) {
		fault->lost = lost->next;
		free(lost);
	}
	reef_hold_fini(&fault->hold);
	pthread_mutex_destroy(&fault->lock);
	free(fault);
	next->ops.close(next);
}

/* --- what the test says --- */

int reef_fault_add(struct reef_fault *fault, const struct reef_fault_rule *rule)
{
	int rc = 0;

	if (!rule->nth || rule->error > 0 || rule->call >= REEF_CALLS)
		return -EINVAL;
	pthread_mutex_lock(&fault->lock);
	if (fault->rules_count == RULES_MAX)
		rc = -ENOSPC;
	else
		fault->rules[fault->rules_count++] = *rule;
	pthread_mutex_unlock(&fault->lock);
	return rc;
}

void reef_fault_fail_nth(struct reef_fault *fault, uint64_t n,
			 enum reef_fault_kind kind, bool forever)
{
	pthread_mutex_lock(&fault->lock);
	fault->until_failure = n;
	fault->nth_kind = kind;
	fault->forever = forever;
	pthread_mutex_unlock(&fault->lock);
}

uint64_t reef_fault_calls(const struct reef_fault *fault)
{
	return atomic_load_explicit(&fault->calls, memory_order_relaxed);
}

uint64_t reef_fault_count(const struct reef_fault *fault)
{
	return atomic_load_explicit(&fault->count, memory_order_relaxed);
}

static const struct reef_fabric_ops fault_ops = {
	.name = "fault",
	.close = fault_close,
	.queue_open = fault_queue_open,
	.queue_close = reef_hold_queue_close,
	.post = fault_post,
	.poll = reef_hold_poll,
	.arm = reef_hold_arm,
	.listen = fault_listen,
	.unlisten = reef_hold_unlisten,
	.connect = fault_connect,
	.disconnect = reef_hold_disconnect,
	.expose = fault_expose,
	.withdraw = fault_withdraw,
	.attach = fault_attach,
	.buffer_register = fault_buffer_register,
	.fence = fault_fence,
	.end_links = fault_end_links,
};

int reef_fault_push(struct reef_fabric *fabric,
		    const struct reef_fault_options *options,
		    struct reef_fault **out)
{
	struct reef_fault *fault = calloc(1, sizeof(*fault));

	if (!fault)
		return -ENOMEM;
	if (options)
		fault->options = *options;
	if (!fault->options.delay_max_ns)
		fault->options.delay_max_ns = DELAY_MAX_NS;
	reef_random_init(&fault->random, fault->options.seed);
	pthread_mutex_init(&fault->lock, NULL);
	reef_hold_init(&fault->hold, sizeof(struct fault_held), 0);
	fault->hold.forget = fault_forget;
	fault->hold.layer.ops = fault_ops;
	reef_fabric_push(fabric, &fault->hold.layer);
	*out = fault;
	return 0;
}
