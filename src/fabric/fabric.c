/* fabric.c - the calls of fabric.h, but for queues (queue.c): they check, and
 * dispatch to the layers below. */
#include "fabric/fabric.h"

#include "base/mutant.h"
#include "fabric/internal.h"
#include "fabric/provider.h"
#include "wire/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILLISECOND 1000000ull

/* --- fork --- */

uint32_t reef_forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
	reef_forks++;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

/* --- fabrics --- */

static _Atomic(int (*)(const struct reef_fabric_options *options,
		       struct reef_fabric **out)) sim_open;

void reef_fabric_set_sim(int (*open)(const struct reef_fabric_options *options,
				     struct reef_fabric **out))
{
	atomic_store(&sim_open, open);
}

static int open_sim(const struct reef_fabric_options *options,
		    struct reef_fabric **out)
{
	int (*open)(const struct reef_fabric_options *options,
		    struct reef_fabric **out) = atomic_load(&sim_open);

	return open ? open(options, out) : -EINVAL;
}

static const struct {
	const char *kind;
	int (*open)(const struct reef_fabric_options *options,
		    struct reef_fabric **out);
	uint64_t silence_ns;
} providers[] = {
	{"shm", reef_shm_open, 3000 * MILLISECOND},
	{"tcp", reef_tcp_open, 3000 * MILLISECOND},
	{"verbs", reef_verbs_open, 1000 * MILLISECOND},
	{"sim", open_sim, 3000 * MILLISECOND},
};

int reef_tls_use_parse(const char *text, enum reef_tls_use *out)
{
	static const char *const words[] = {"auto", "yes", "no"};

	for (int i = 0; i < 3; i++)
		if (!text || !strcmp(text, words[i])) {
			*out = (enum reef_tls_use)i;
			return 0;
		}
	return -EINVAL;
}

#define DEFAULT(field, value)                                                  \
	do {                                                                   \
		if (!filled.field)                                             \
			filled.field = (value);                                \
	} while (0)

int reef_fabric_open(const char *kind,
		     const struct reef_fabric_options *options,
		     struct reef_fabric **out)
{
	struct reef_fabric_options filled = {0};
	struct reef_fabric *fabric;
	size_t i;
	int rc;

	if (!kind)
		return -EINVAL;
	for (i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (!strcmp(providers[i].kind, kind))
			break;
	if (i == sizeof(providers) / sizeof(providers[0]))
		return -EINVAL;
	pthread_once(&fork_once, watch_forks);
	if (options)
		filled = *options;
	DEFAULT(ops_max, 256);
	DEFAULT(length_max, 16u << 20);
	DEFAULT(message_max, 64u << 10);
	DEFAULT(depth_max, 128);
	DEFAULT(inbox_max, 4096);
	DEFAULT(links_max, 4096);
	DEFAULT(spin_ns, 20000);
	DEFAULT(silence_ns, providers[i].silence_ns);
	DEFAULT(answers_max, 256u << 20);
	rc = providers[i].open(&filled, &fabric);
	if (rc)
		return rc;
	if (!fabric->options.ops_max)
		fabric->options = filled;
	fabric->kind = providers[i].kind;
	fabric->fork_generation = reef_fork_generation();
	fabric->provider.fabric = fabric;
	fabric->provider.next = NULL;
	reef_layer_fill(&fabric->provider);
	fabric->top = &fabric->provider;
	if (!fabric->description[0])
		snprintf(fabric->description, sizeof(fabric->description), "%s",
			 fabric->kind);
	if (filled.need & ~fabric->capabilities) {
		reef_fabric_close(fabric);
		return -REEF_ENOCAP;
	}
	*out = fabric;
	return 0;
}

void reef_fabric_close(struct reef_fabric *fabric)
{
	if (fabric && !reef_is_forked(fabric))
		fabric->top->ops.close(fabric->top);
}

const char *reef_fabric_kind(const struct reef_fabric *fabric)
{
	return fabric->kind;
}

const char *reef_fabric_description(const struct reef_fabric *fabric)
{
	return fabric->description;
}

uint64_t reef_fabric_domain(const struct reef_fabric *fabric)
{
	return fabric->domain;
}

uint32_t reef_fabric_capabilities(const struct reef_fabric *fabric)
{
	return fabric->capabilities;
}

const struct reef_fabric_options *
reef_fabric_limits(const struct reef_fabric *fabric)
{
	return &fabric->options;
}

/* --- posting --- */

int reef_batch_check(const struct reef_queue *queue,
		     const struct reef_batch *batch)
{
	uint32_t i;
	int rc;

	rc = reef_batch_check_link(queue, batch);
	for (i = 0; !rc && i < batch->count; i++)
		rc = reef_op_check(queue->fabric, batch->link, &batch->ops[i]);
	return rc;
}

int reef_post(struct reef_queue *queue, struct reef_batch *batch)
{
	struct reef_layer *top = queue->fabric->top;

	/* The provider checks for a fork, too, but hooks come before it. */
	if (__builtin_expect(reef_is_forked(queue->fabric), 0))
		return -REEF_EFORKED;
	batch->queue = queue;
	batch->fiber = NULL;
	batch->status = 0;
	batch->done = false;
	return top->ops.post(top, queue, batch);
}

/* Wait until a post that was refused for want of room may be tried again.
 * -REEF_ENOLINK: the link is gone. */
static int wait_for_room(struct reef_queue *queue, struct reef_link *link)
{
	struct reef_user user;
	int rc;

	reef_user_begin(queue, &user, link);
	rc = reef_wait_a_little(queue, REEF_FOREVER);
	reef_user_end(queue, &user);
	return rc || user.link ? rc : -REEF_ENOLINK;
}

int reef_run(struct reef_queue *queue, struct reef_batch *batch)
{
	int rc;

	for (;;) {
		rc = reef_post(queue, batch);
		if (__builtin_expect(rc == 1, 1))
			return batch->status;
		if (!rc)
			return reef_wait(queue, batch);
		if (rc == -EAGAIN)
			rc = wait_for_room(queue, batch->link);
		if (rc)
			return rc;
	}
}

/* --- links --- */

int reef_listen(struct reef_queue *queue, const char *address,
		const struct reef_listen_options *options,
		struct reef_listener **out)
{
	struct reef_layer *top = queue->fabric->top;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!address || !options || !options->credential)
		return -EINVAL;
	return top->ops.listen(top, queue, address, options, out);
}

void reef_listener_close(struct reef_listener *listener)
{
	struct reef_layer *top;

	if (!listener || reef_is_forked(listener->fabric))
		return;
	top = listener->fabric->top;
	top->ops.unlisten(top, listener);
}

const char *reef_listener_address(const struct reef_listener *listener)
{
	return listener->address;
}

struct opening {
	const struct reef_link *link;
	const bool *is_vain;
};

static bool is_in_vain(const struct reef_connect_options *options)
{
	return options->is_vain && *options->is_vain;
}

static bool opening_is_over(const void *what)
{
	const struct opening *opening = what;

	return atomic_load(&opening->link->state) != REEF_LINK_OPENING ||
	       (opening->is_vain && *opening->is_vain);
}

static void add_link_to_queue(struct reef_queue *queue, struct reef_link *link)
{
	link->next_of_queue = queue->links;
	link->at_of_queue = &queue->links;
	if (link->next_of_queue)
		link->next_of_queue->at_of_queue = &link->next_of_queue;
	queue->links = link;
}

static void remove_link_from_queue(struct reef_link *link)
{
	/* A link that a test made without reef_connect is in no list. */
	if (!link->at_of_queue)
		return;
	*link->at_of_queue = link->next_of_queue;
	if (link->next_of_queue)
		link->next_of_queue->at_of_queue = link->at_of_queue;
}

int reef_connect_start(struct reef_queue *queue, const char *address,
		       const struct reef_connect_options *options,
		       struct reef_link **out)
{
	struct reef_layer *top = queue->fabric->top;
	struct reef_link *link;
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!address || !options || !options->session || !options->identity ||
	    strlen(options->identity) > REEF_IDENTITY_MAX)
		return -EINVAL;
	rc = top->ops.connect(top, queue, address, options, &link);
	if (rc)
		return rc;
	add_link_to_queue(queue, link);
	link->user = options->user;
	*out = link;
	return 0;
}

int reef_connect(struct reef_queue *queue, const char *address,
		 const struct reef_connect_options *options,
		 struct reef_link **out)
{
	struct opening opening;
	struct reef_link *link;
	int rc;

	rc = reef_connect_start(queue, address, options, &link);
	if (rc)
		return rc;
	opening = (struct opening){link, options->is_vain};
	rc = reef_queue_wait_until(queue, opening_is_over, &opening,
				   options->timeout_ns
					   ? options->timeout_ns
					   : queue->fabric->options.silence_ns);
	if (!rc && is_in_vain(options))
		rc = -ECANCELED;
	if (!rc && atomic_load(&link->state) == REEF_LINK_DOWN)
		rc = atomic_load(&link->reason);
	if (rc) {
		reef_link_close(link);
		return rc;
	}
	*out = link;
	return 0;
}

void reef_link_sever(struct reef_link *link)
{
	struct reef_layer *top = link->fabric->top;

	if (reef_is_forked(link->fabric))
		return;
	reef_assert(!link->listener);
	top->ops.sever(top, link);
}

void reef_link_close(struct reef_link *link)
{
	struct reef_layer *top;
	struct reef_queue *queue;

	if (!link || reef_is_forked(link->fabric))
		return;
	reef_assert(!link->listener);
	top = link->fabric->top;
	queue = link->is_orphan ? NULL : link->queue;
	if (queue)
		remove_link_from_queue(link);
	top->ops.disconnect(top, link);
	/* Before disconnect another thread could still bring a message. */
	if (queue)
		reef_forget_link(queue, link);
}

int reef_link_status(const struct reef_link *link)
{
	int reason;

	if (reef_is_forked(link->fabric))
		return -REEF_EFORKED;
	switch (atomic_load_explicit(&link->state, memory_order_acquire)) {
	case REEF_LINK_UP:
		return 0;
	case REEF_LINK_OPENING:
		return -REEF_ENOLINK;
	default:
		reason = atomic_load(&link->reason);
		return reason == -REEF_EFENCED || reason == -REEF_EHOSTDEAD
			       ? reason
			       : -REEF_ENOLINK;
	}
}

uint32_t reef_link_session(const struct reef_link *link)
{
	return link->session;
}

uint32_t reef_link_number(const struct reef_link *link)
{
	return link->number;
}

const char *reef_link_identity(const struct reef_link *link)
{
	return link->identity;
}

void reef_link_set_owner(struct reef_link *link, uint32_t session,
			 uint32_t number, const char *identity)
{
	size_t length = strlen(identity);

	reef_assert(length <= REEF_IDENTITY_MAX);
	link->session = session;
	link->number = number;
	memcpy(link->identity, identity, length + 1);
}

struct reef_fabric *reef_link_fabric(const struct reef_link *link)
{
	return link->fabric;
}

const char *reef_link_host(const struct reef_link *link)
{
	return link->host;
}

uint32_t reef_link_process(const struct reef_link *link)
{
	return link->process;
}

void reef_link_set_user(struct reef_link *link, void *user)
{
	link->user = user;
}

void *reef_link_user(const struct reef_link *link)
{
	return link->user;
}

/* --- memory --- */

int reef_expose(struct reef_fabric *fabric, struct reef_memory *memory,
		struct reef_region **out)
{
	if (reef_is_forked(fabric))
		return -REEF_EFORKED;
	if (!memory)
		return -EINVAL;
	return fabric->top->ops.expose(fabric->top, memory, out);
}

uint64_t reef_region_key(const struct reef_region *region)
{
	return region->key;
}

uint64_t reef_region_read_key(const struct reef_region *region)
{
	return region->read_key;
}

uint32_t reef_region_wire_flags(const struct reef_region *region, uint64_t key)
{
	return (region->memory->durable ? REEF_WIRE_DURABLE : 0) |
	       (reef_region_only_reads(region, key) ? REEF_WIRE_READ_ONLY : 0);
}

void reef_remote_take_flags(struct reef_remote *remote, uint32_t flags)
{
	remote->durable = flags & REEF_WIRE_DURABLE;
	remote->read_only = flags & REEF_WIRE_READ_ONLY;
}

int reef_withdraw(struct reef_queue *queue, struct reef_region *region,
		  uint64_t timeout_ns)
{
	struct reef_layer *top = queue->fabric->top;
	uint64_t until_ns = reef_deadline_ns(timeout_ns);
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!region || region->fabric != queue->fabric)
		return -EINVAL;
	while ((rc = top->ops.withdraw(top, queue, region)) == -EAGAIN) {
		rc = reef_wait_a_little(queue, until_ns);
		if (rc)
			break;
	}
	return rc;
}

int reef_attach(struct reef_queue *queue, struct reef_link *link, uint64_t key,
		struct reef_remote **out)
{
	struct reef_layer *top = queue->fabric->top;
	struct reef_remote *remote;
	struct reef_user user;
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!link || link->fabric != queue->fabric || link->listener)
		return -EINVAL;
	rc = reef_link_status(link);
	if (rc)
		return rc;
	rc = top->ops.attach(top, queue, link, key, &remote);
	if (rc)
		return rc;
	reef_user_begin(queue, &user, link);
	/* The end of an attach is told to the link's queue, which may not be
	 * the one that waits here. */
	while (!rc && user.link && atomic_load(&remote->state) == 1)
		rc = reef_wait_a_little(queue, REEF_FOREVER);
	reef_user_end(queue, &user);
	if (!user.link) /* closed meanwhile, and the remote with it */
		return -REEF_ENOLINK;
	if (!rc)
		rc = atomic_load(&remote->state);
	if (rc) {
		top->ops.detach(top, queue, remote);
		return rc;
	}
	*out = remote;
	return 0;
}

void reef_detach(struct reef_queue *queue, struct reef_remote *remote)
{
	struct reef_layer *top = queue->fabric->top;

	if (remote && !reef_is_forked(queue->fabric))
		top->ops.detach(top, queue, remote);
}

uint64_t reef_remote_size(const struct reef_remote *remote)
{
	return remote->size;
}

int reef_buffer_register(struct reef_fabric *fabric, void *base, size_t size,
			 struct reef_buffer **out)
{
	if (reef_is_forked(fabric))
		return -REEF_EFORKED;
	if (!base || !size || (uintptr_t)base + size < (uintptr_t)base)
		return -EINVAL;
	return fabric->top->ops.buffer_register(fabric->top, base, size, out);
}

void reef_buffer_unregister(struct reef_buffer *buffer)
{
	struct reef_layer *top;

	if (!buffer || reef_is_forked(buffer->fabric))
		return;
	top = buffer->fabric->top;
	top->ops.buffer_unregister(top, buffer);
}

/* --- fencing, and ending links --- */

int reef_fence(struct reef_queue *queue, uint32_t session, uint64_t timeout_ns)
{
	struct reef_layer *top = queue->fabric->top;
	uint64_t until_ns = reef_deadline_ns(timeout_ns);
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!session)
		return -EINVAL;
	while ((rc = top->ops.fence(top, queue, session)) == -EAGAIN) {
		rc = reef_wait_a_little(queue, until_ns);
		if (rc)
			break;
	}
	return rc;
}

int reef_end_links(struct reef_queue *queue, uint32_t session, uint32_t number,
		   uint64_t timeout_ns)
{
	struct reef_layer *top = queue->fabric->top;
	uint64_t until_ns = reef_deadline_ns(timeout_ns);
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	if (!session || !number)
		return -EINVAL;
	while ((rc = top->ops.end_links(top, queue, session, number)) ==
	       -EAGAIN) {
		if (REEF_MUTATED(FABRIC_END_EARLY))
			return 0;
		rc = reef_wait_a_little(queue, until_ns);
		if (rc)
			break;
	}
	return rc;
}
