/* access.c - reading and writing, at once or as tasks.
 *
 * The quick path: an operation on an extent that the handle's cache knows, and
 * no header of a fresh block waits to be written. It adds a few nanoseconds to
 * what the fabric takes. Everything else, and everything that was refused, is
 * call.c's. */
#include "pool/client/word.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUICK_MAX 65536 /* bytes; what is longer may have to be cut up */
#define QUICK_COUNT 4	/* accesses, one after the other */
#define FIRST_MAX 512
#define TASKS_MAX 1024 /* under way in a handle */

/* --- one after the other --- */

/* -EAGAIN: not this way. Else what came of it. */
static inline int quick(struct reef *reef, struct reef_op *op, uint64_t address,
			uint64_t length, uint8_t need, bool pending)
{
	uint32_t number = (uint32_t)(address >> 32);
	struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];
	struct reef_batch batch;
	uint32_t phase;
	int rc = -EAGAIN;

	phase = client_enter(reef);
	if (unlikely(!client_is_current(reef) || entry->extent != number ||
		     !(entry->rights & need) || !entry->is_inline ||
		     (uint32_t)address > entry->size ||
		     length > entry->size - (uint32_t)address || pending))
		goto out;
	op->remote = entry->remote;
	op->offset = (uint32_t)address;
	batch.link = entry->link;
	batch.ops = op;
	batch.count = 1;
	batch.done = false;
	batch.on_done = NULL;
	rc = reef_run(entry->queue, &batch);
out:
	client_leave(reef, phase);
	return rc;
}

/* Did it not happen, so that it may be done in the general way? */
static bool is_refused(int rc)
{
	return rc == -EAGAIN || rc == -REEF_EKEY || rc == -REEF_ENOLINK ||
	       rc == -EMSGSIZE || rc == -ERANGE || rc == -EINVAL;
}

/* One of several accesses. False: not this way, and nothing happened. */
static inline bool quick_access(struct reef *reef, struct reef_access *access)
{
	struct reef_op op;
	uint64_t length = 8;
	uint8_t need = REEF_RIGHT_WRITE;

	op.kind = access->kind;
	op.flags = 0; /* each is done before the next: they are in order */
	op.reserved = 0;
	op.length = 0;
	op.local = access->local;
	op.buffer = NULL;
	op.operand = access->operand;
	op.compare = access->compare;
	op.result = 0;
	if (access->kind == REEF_READ || access->kind == REEF_WRITE) {
		length = op.length = access->length;
		if (access->kind == REEF_READ)
			need = REEF_RIGHT_READ;
	}
	if (unlikely(length > QUICK_MAX || access->kind > REEF_FAA))
		return false;
	access->status = quick(reef, &op, access->address, length, need, false);
	access->result = op.result;
	return !is_refused(access->status);
}

/* What a heap does is not held up by headers that wait. */
int client_execute(struct reef *reef, struct reef_access *accesses,
		   uint32_t count)
{
	struct client_call *call;
	int rc;

	while (count <= QUICK_COUNT && quick_access(reef, accesses)) {
		rc = accesses->status;
		accesses++;
		if (--count == 0)
			return rc;
		if (unlikely(rc)) {
			while (count--)
				accesses++->status = -REEF_ENOTDONE;
			return rc;
		}
	}
	call = client_call_take(reef, count);
	if (!call)
		return -ENOMEM;
	client_call_begin(call, reef, accesses, count);
	while (!client_call_step(call))
		client_call_wait(call);
	rc = client_call_status(call);
	client_call_give(reef, call);
	return rc;
}

/* A few that are all well formed can be done one after the other, where that
 * costs no round trip each. */
static bool are_few(const struct reef_access *accesses, uint32_t count)
{
	if (!count || count > QUICK_COUNT)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (client_access_check(&accesses[i]))
			return false;
	return true;
}

int reef_execute(struct reef *reef, struct reef_access *accesses,
		 uint32_t count)
{
	struct client_call *call;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	if (!reef->pending && are_few(accesses, count))
		return client_execute(reef, accesses, count);
	call = client_call_take(reef, count);
	if (!call)
		return -ENOMEM;
	client_call_begin(call, reef, accesses, count);
	rc = reef->pending ? client_call_headers(call) : 0;
	if (rc)
		client_call_fail(call, rc);
	while (!client_call_step(call))
		client_call_wait(call);
	rc = client_call_status(call);
	client_call_give(reef, call);
	return rc;
}

/* Up to 4 GiB, which is a little more than an access can say. */
static int copy(struct reef *reef, uint8_t kind, uint64_t address, void *local,
		size_t length)
{
	struct reef_access accesses[2] = {
		{.kind = kind, .address = address, .local = local},
		{.kind = kind},
	};

	if (length <= UINT32_MAX) {
		accesses[0].length = (uint32_t)length;
		return reef_execute(reef, accesses, 1);
	}
	if (length > UINT64_C(1) << 32)
		return -EFAULT;
	accesses[0].length = 1u << 31;
	accesses[1].length = 1u << 31;
	accesses[1].address = address + (1u << 31);
	accesses[1].local = (uint8_t *)local + (1u << 31);
	return reef_execute(reef, accesses, 2);
}

int reef_read(struct reef *reef, uint64_t address, void *to, size_t length)
{
	struct reef_op op;

	if (likely(length <= QUICK_MAX)) {
		op.kind = REEF_READ;
		op.flags = 0;
		op.reserved = 0;
		op.length = (uint32_t)length;
		op.local = to;
		op.buffer = NULL;
		if (likely(!quick(reef, &op, address, length, REEF_RIGHT_READ,
				  reef->pending)))
			return 0;
	}
	return copy(reef, REEF_READ, address, to, length);
}

/* The heap whose only waiting header is that of the block at `address`; it no
 * longer waits. */
static struct reef_heap *fold(struct reef *reef, uint64_t address,
			      uint64_t *header)
{
	struct reef_heap *heap = NULL;
	struct reef_space *space;

	for (space = reef->spaces; space; space = space->next) {
		if (!space->heap || !reef_heap_has_pending(space->heap->heap))
			continue;
		if (heap)
			return NULL;
		heap = space->heap->heap;
	}
	if (!heap || !reef_heap_fold(heap, address, header))
		return NULL;
	if (!reef_heap_has_pending(heap))
		return heap;
	reef_heap_unfold(heap, address);
	return NULL;
}

/* The first WRITE to a fresh block, with its header. -EAGAIN: not this way. */
static int write_first(struct reef *reef, uint64_t address, const void *from,
		       size_t length)
{
	uint64_t bytes[1 + FIRST_MAX / 8], header;
	struct reef_op op = {
		.kind = REEF_WRITE,
		.length = (uint32_t)length + 8,
		.local = bytes,
	};
	struct reef_heap *heap;
	int rc;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	heap = fold(reef, address, &header);
	if (!heap)
		return -EAGAIN;
	bytes[0] = header;
	memcpy(&bytes[1], from, length);
	reef->pending = false;
	rc = quick(reef, &op, address - 8, length + 8, REEF_RIGHT_WRITE, false);
	if (rc) {
		reef_heap_unfold(heap, address);
		reef->pending = true;
	}
	return rc;
}

int reef_write(struct reef *reef, uint64_t address, const void *from,
	       size_t length)
{
	struct reef_op op;
	int rc;

	if (unlikely(reef->pending) && length <= FIRST_MAX) {
		rc = write_first(reef, address, from, length);
		if (!is_refused(rc))
			return rc;
	}
	if (likely(length <= QUICK_MAX)) {
		op.kind = REEF_WRITE;
		op.flags = 0;
		op.reserved = 0;
		op.length = (uint32_t)length;
		op.local = (void *)from;
		op.buffer = NULL;
		rc = quick(reef, &op, address, length, REEF_RIGHT_WRITE,
			   reef->pending);
		/* On such a fabric nothing is ever in doubt. */
		if (likely(!is_refused(rc)))
			return rc;
	}
	return copy(reef, REEF_WRITE, address, (void *)from, length);
}

static __attribute__((noinline)) int
word_execute(struct reef *reef, enum reef_op_kind kind, uint64_t address,
	     uint64_t compare, uint64_t operand, uint64_t *before)
{
	struct reef_access access = {
		.kind = (uint8_t)kind,
		.address = address,
		.operand = operand,
		.compare = compare,
	};
	int rc = reef_execute(reef, &access, 1);

	if (!rc && before)
		*before = access.result;
	return rc;
}

int reef_cas(struct reef *reef, uint64_t address, uint64_t compare,
	     uint64_t value, uint64_t *before)
{
	uint64_t unwanted;
	int rc = client_cas(reef, address, compare, value,
			    before ? before : &unwanted);

	if (unlikely(is_refused(rc)))
		return word_execute(reef, REEF_CAS, address, compare, value,
				    before);
	return rc;
}

int reef_faa(struct reef *reef, uint64_t address, uint64_t add,
	     uint64_t *before)
{
	uint64_t unwanted;
	int rc = client_faa(reef, address, add, before ? before : &unwanted);

	if (unlikely(is_refused(rc)))
		return word_execute(reef, REEF_FAA, address, 0, add, before);
	return rc;
}

bool reef_is_near(const struct reef *reef, uint64_t address)
{
	uint32_t number = (uint32_t)(address >> 32);
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];

	return client_is_current(reef) && entry->extent == number &&
	       entry->is_inline && !reef_fiber_self();
}

/* --- without blocking --- */

static void task_end(struct reef *reef, struct client_call *call)
{
	struct reef_task *task = *client_call_task(call);
	struct client_call **at = &reef->tasks;

	while (*at != call)
		at = client_call_next(*at);
	*at = *client_call_next(call);
	reef->tasks_count--;
	task->status = client_call_status(call);
	task->done = true;
	client_call_give(reef, call);
}

int reef_task_submit(struct reef *reef, struct reef_task *task)
{
	struct client_call *call;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	if (reef->tasks_count >= TASKS_MAX)
		return -EAGAIN;
	call = client_call_take(reef, task->count);
	if (!call)
		return -ENOMEM;
	task->done = false;
	client_call_begin(call, reef, task->accesses, task->count);
	rc = reef->pending ? client_call_headers(call) : 0;
	if (rc)
		client_call_fail(call, rc);
	*client_call_task(call) = task;
	*client_call_next(call) = reef->tasks;
	reef->tasks = call;
	reef->tasks_count++;
	if (!client_call_step(call))
		return 0;
	task_end(reef, call);
	return 1;
}

/* One task that can end, if there is one. on_done may submit and so change the
 * list; hence one at a time. */
static bool end_a_task(struct reef *reef)
{
	struct client_call *call;
	struct reef_task *task;

	for (call = reef->tasks; call; call = *client_call_next(call))
		if (client_call_step(call))
			break;
	if (!call)
		return false;
	task = *client_call_task(call);
	task_end(reef, call);
	if (task->on_done)
		task->on_done(task);
	return true;
}

int reef_progress(struct reef *reef)
{
	int count, ended = 0;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	count = reef_port_poll(reef->port);
	while (reef->tasks && end_a_task(reef))
		ended++;
	return count < 0 && !ended ? count : (count > 0 ? count : 0) + ended;
}

static struct client_call *call_of(struct reef *reef,
				   const struct reef_task *task)
{
	struct client_call *call = reef->tasks;

	while (call && *client_call_task(call) != task)
		call = *client_call_next(call);
	return call;
}

int reef_task_wait(struct reef *reef, struct reef_task *task)
{
	struct client_call *call;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	while (!task->done) {
		call = call_of(reef, task);
		if (!call)
			return -EINVAL; /* never submitted */
		client_call_wait(call);
		/* It may have ended while this fiber waited. */
		call = call_of(reef, task);
		if (call && client_call_step(call)) {
			task_end(reef, call);
			if (task->on_done)
				task->on_done(task);
		}
	}
	return task->status;
}

static int make_epoll(struct reef *reef)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct reef_mesh *mesh = reef_port_mesh(reef->port);
	uint32_t i;
	int fd;

	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (i = 0; i < reef_mesh_count(mesh); i++) {
		int queue_fd = reef_queue_fd(reef_port_queue(reef->port, i));

		if (queue_fd < 0 ||
		    epoll_ctl(fd, EPOLL_CTL_ADD, queue_fd, &event)) {
			close(fd);
			return -ENOSYS;
		}
	}
	return fd;
}

int reef_fd(struct reef *reef)
{
	int fd;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	if (reef->epoll_fd < 0) {
		fd = make_epoll(reef);
		if (fd < 0)
			return fd;
		reef->epoll_fd = fd;
	}
	return reef->epoll_fd;
}

int reef_arm(struct reef *reef)
{
	struct reef_mesh *mesh = reef_port_mesh(reef->port);
	struct client_call *call;
	uint32_t i;
	int rc, count = 0;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	for (i = 0; i < reef_mesh_count(mesh); i++) {
		rc = reef_queue_arm(reef_port_queue(reef->port, i));
		if (rc < 0)
			return rc;
		count += rc;
	}
	/* What waits for room has no event of its own. */
	for (call = reef->tasks; call && !count; call = *client_call_next(call))
		count += client_call_is_ready(call);
	return count;
}
