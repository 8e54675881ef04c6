/* access.c - reading and writing, at once or as tasks.
 *
 * The quick path: operations in place (fabric/near.h), on extents that the
 * handle's cache knows. It adds a few nanoseconds to what the memory takes.
 * Everything else, and everything that was refused, is call.c's. */
#include "pool/client/handle/call.h"
#include "pool/client/handle/copies.h"
#include "pool/client/handle/near.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TASKS_MAX 1024 /* under way in a handle */

/* --- in place --- */

/* Where an access is; entered. It is on its way into the cache, if there are
 * several. NULL: call.c does it, or tells what is wrong. */
static inline uint8_t *locate_access(struct reef *reef,
				     const struct reef_access *access,
				     bool is_alone,
				     struct client_near_extent *last)
{
	uint64_t length = client_near_length(access);
	bool writes = access->kind != REEF_READ;
	uint8_t *at;

	at = client_near_next(reef, access->address, length, writes, last);
	if (likely(at) && !is_alone)
		reef_near_prefetch(at, length, writes);
	return at;
}

/* If the only header that waits is that of the block at `address`: take it from
 * its heap, which is returned. NULL: another waits, or none. */
static struct reef_heap *fold_only_header(struct reef *reef, uint64_t address,
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

/* Write the header of a fresh block, before its first data; entered. False: not
 * in place, and nothing happened. */
static bool write_header_near(struct reef *reef,
			      const struct reef_access *access)
{
	uint64_t header;
	uint8_t *at;

	if (access->kind != REEF_WRITE)
		return false;
	at = client_near_at(reef, access->address - 8, 8, true);
	if (!at || (uintptr_t)at & 7 ||
	    !fold_only_header(reef, access->address, &header))
		return false;
	reef_near_write(at, &header, 8);
	reef->pending = false;
	return true;
}

/* Do all accesses in place, in turn; none of them can fail. False: not in
 * place, and nothing happened. All are located first, and prefetched, so that
 * their misses overlap. pending: headers that wait go first. */
static bool execute_near(struct reef *reef, struct reef_access *accesses,
			 uint32_t count, bool pending)
{
	uint8_t *at[CLIENT_NEAR_COUNT];
	struct client_near_extent last = {0};
	bool dirty = false, done = false;
	uint32_t i;

	if (!client_near_enter(reef))
		return false;
	for (i = 0; i < count; i++) {
		at[i] = locate_access(reef, &accesses[i], count == 1, &last);
		if (unlikely(!at[i]))
			goto out;
	}
	if (unlikely(pending) && !write_header_near(reef, &accesses[0]))
		goto out;
	for (i = 0; i < count; i++) {
		struct reef_access *access = &accesses[i];

		reef_near_do(access->kind, at[i], access->local, access->length,
			     access->compare, access->operand, &access->result,
			     &dirty);
		/* With the kind as a constant it is two instructions. */
		if (likely(access->kind == REEF_READ))
			client_count_near(&reef->member.counters, REEF_READ,
					  access->length);
		else
			client_count_near(&reef->member.counters, access->kind,
					  access->length);
		access->status = 0;
	}
	reef_near_end(dirty);
	done = true;
out:
	client_near_leave(reef);
	return done;
}

/* --- at once --- */

/* Do accesses in place that come upon memory with copies. False: not in place,
 * and nothing happened. pending: as execute_near. */
static bool execute_copied(struct reef *reef, struct reef_access *accesses,
			   uint32_t count, bool pending, int *rc)
{
	struct reef_heap *heap = NULL;
	uint64_t header;

	if (pending && accesses[0].kind == REEF_WRITE)
		heap = fold_only_header(reef, accesses[0].address, &header);
	if (pending && !heap)
		return false;
	if (client_copies_near(reef, accesses, count, heap ? &header : NULL,
			       rc)) {
		reef->pending &= !heap;
		return true;
	}
	if (heap)
		reef_heap_unfold(heap, accesses[0].address);
	return false;
}

/* None of the accesses was begun: each says so, as who reads what they tell
 * must not take it for done. */
static __attribute__((noinline)) int refuse(struct reef_access *accesses,
					    uint32_t count, int rc)
{
	for (uint32_t i = 0; i < count; i++)
		accesses[i].status = rc;
	return rc;
}

/* Do accesses by call.c, wherever their memory is. pending: headers that wait
 * go first. */
static int execute_by_call(struct reef *reef, struct reef_access *accesses,
			   uint32_t count, bool pending)
{
	struct client_call *call = client_call_take(reef, count);
	int rc;

	if (!call)
		return refuse(accesses, count, -ENOMEM);
	client_call_begin(call, reef, accesses, count);
	rc = pending ? client_call_headers(call) : 0;
	if (rc)
		client_call_fail(call, rc);
	while (!client_call_step(call))
		client_call_wait(call);
	rc = client_call_status(call);
	client_call_give(reef, call);
	return rc;
}

/* The same for those that were refused in place, as of one copy. */
static __attribute__((noinline)) int execute_far(struct reef *reef,
						 struct reef_access *accesses,
						 uint32_t count, bool pending)
{
	int rc;

	if (reef->has_copies &&
	    execute_copied(reef, accesses, count, pending, &rc))
		return rc;
	return execute_by_call(reef, accesses, count, pending);
}

int client_execute_far(struct reef *reef, struct reef_access *accesses,
		       uint32_t count)
{
	return execute_by_call(reef, accesses, count, false);
}

static inline int execute(struct reef *reef, struct reef_access *accesses,
			  uint32_t count, bool pending)
{
	if (likely(count - 1 < CLIENT_NEAR_COUNT) &&
	    likely(execute_near(reef, accesses, count, pending)))
		return 0;
	return execute_far(reef, accesses, count, pending);
}

/* For a heap's own accesses, which no header has to go in front of. */
int client_execute(struct reef *reef, struct reef_access *accesses,
		   uint32_t count)
{
	return execute(reef, accesses, count, false);
}

int reef_execute(struct reef *reef, struct reef_access *accesses,
		 uint32_t count)
{
	int rc = client_handle_check(reef);

	return unlikely(rc) ? refuse(accesses, count, rc)
			    : execute(reef, accesses, count, reef->pending);
}

/* --- one copy --- */

/* True if a copy may be tried in place. A fiber of another scheduler is told
 * that it may not use the handle at all, as everywhere. */
static inline bool may_be_near(const struct reef *reef, const void *local,
			       size_t length)
{
	return likely(!reef->pending && local &&
		      length <= CLIENT_NEAR_LENGTH) &&
	       (likely(!reef_fiber_self_quick()) ||
		reef_fiber_sched() == reef->sched);
}

/* A READ or WRITE that was not done in place: up to 4 GiB, which is a little
 * more than an access can say. */
static __attribute__((noinline)) int copy_far(struct reef *reef, uint8_t kind,
					      uint64_t address, void *local,
					      size_t length)
{
	struct reef_access accesses[2] = {
		{.kind = kind, .address = address, .local = local},
		{.kind = kind},
	};
	int rc = client_handle_check(reef);

	if (rc)
		return rc;
	/* The header of a fresh block can go with it in place. */
	if (reef->pending && length <= CLIENT_NEAR_LENGTH) {
		accesses[0].length = (uint32_t)length;
		return execute(reef, accesses, 1, true);
	}
	if (length <= UINT32_MAX) {
		accesses[0].length = (uint32_t)length;
		return execute_far(reef, accesses, 1, reef->pending);
	}
	if (length > UINT64_C(1) << 32)
		return -EFAULT;
	accesses[0].length = 1u << 31;
	accesses[1].length = 1u << 31;
	accesses[1].address = address + (1u << 31);
	accesses[1].local = (uint8_t *)local + (1u << 31);
	return execute_far(reef, accesses, 2, reef->pending);
}

/* Copies that take a call are functions of their own, which leave: so reef_read
 * and reef_write have no registers to save for the short ones. */
static __attribute__((noinline)) int read_long_and_leave(struct reef *reef,
							 const uint8_t *at,
							 void *to,
							 size_t length)
{
	reef_near_read(at, to, length);
	client_near_leave(reef);
	return 0;
}

static __attribute__((noinline)) int write_long_and_leave(struct reef *reef,
							  uint8_t *at,
							  const void *from,
							  size_t length)
{
	reef_near_write(at, from, length);
	reef_near_end(true);
	client_near_leave(reef);
	return 0;
}

/* A READ that is entered and did not find memory with one copy. */
static __attribute__((noinline)) int read_copied_and_leave(struct reef *reef,
							   uint64_t address,
							   void *to,
							   size_t length)
{
	const uint8_t *at = client_near_see(reef, address, length);

	if (at)
		reef_near_read(at, to, length);
	client_near_leave(reef);
	if (!at || !client_near_counts(reef))
		return copy_far(reef, REEF_READ, address, to, length);
	client_count_near(&reef->member.counters, REEF_READ, length);
	return 0;
}

int reef_read(struct reef *reef, uint64_t address, void *to, size_t length)
{
	const uint8_t *at;

	if (may_be_near(reef, to, length) && likely(client_near_enter(reef))) {
		at = client_near_at(reef, address, length, false);
		if (likely(at)) {
			client_count_near(&reef->member.counters, REEF_READ,
					  length);
			if (!reef_near_is_short(at, length))
				return read_long_and_leave(reef, at, to,
							   length);
			reef_near_read(at, to, length);
			client_near_leave(reef);
			return 0;
		}
		return read_copied_and_leave(reef, address, to, length);
	}
	return copy_far(reef, REEF_READ, address, to, length);
}

int reef_write(struct reef *reef, uint64_t address, const void *from,
	       size_t length)
{
	uint8_t *at;

	if (may_be_near(reef, from, length) &&
	    likely(client_near_enter(reef))) {
		at = client_near_at(reef, address, length, true);
		if (likely(at)) {
			client_count_near(&reef->member.counters, REEF_WRITE,
					  length);
			if (!reef_near_is_short(at, length))
				return write_long_and_leave(reef, at, from,
							    length);
			reef_near_write(at, from, length);
			reef_near_end(true);
			client_near_leave(reef);
			return 0;
		}
		client_near_leave(reef);
	}
	return copy_far(reef, REEF_WRITE, address, (void *)from, length);
}

/* --- one word --- */

/* A CAS or FAA that was not done in place. */
static __attribute__((noinline)) int word_far(struct reef *reef, uint8_t kind,
					      uint64_t address,
					      uint64_t compare,
					      uint64_t operand,
					      uint64_t *before)
{
	struct reef_access access = {
		.kind = kind,
		.address = address,
		.operand = operand,
		.compare = compare,
	};
	int rc = client_handle_check(reef);

	rc = rc ? rc : execute_far(reef, &access, 1, reef->pending);
	if (!rc && before)
		*before = access.result;
	return rc;
}

int reef_cas(struct reef *reef, uint64_t address, uint64_t compare,
	     uint64_t value, uint64_t *before)
{
	/* A word of its own, for who does not want it, would be guarded by the
	 * compiler as an array is: a seventh of this call. */
	if (likely(client_near_cas(reef, address, compare, value, before)))
		return 0;
	return word_far(reef, REEF_CAS, address, compare, value, before);
}

int reef_faa(struct reef *reef, uint64_t address, uint64_t add,
	     uint64_t *before)
{
	if (likely(client_near_faa(reef, address, add, before)))
		return 0;
	return word_far(reef, REEF_FAA, address, 0, add, before);
}

bool reef_is_near(const struct reef *reef, uint64_t address)
{
	uint32_t number = (uint32_t)(address >> 32);
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];

	return client_is_current(reef) &&
	       (entry->near_seen == number || entry->near_write == number) &&
	       !reef_fiber_self();
}

/* --- without blocking --- */

static void end_task(struct reef *reef, struct client_call *call)
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
	end_task(reef, call);
	return 1;
}

/* End one task that can end; false: there is none. on_done may submit and so
 * change the list; hence one at a time. */
static bool end_ready_task(struct reef *reef)
{
	struct client_call *call;
	struct reef_task *task;

	for (call = reef->tasks; call; call = *client_call_next(call))
		if (client_call_step(call))
			break;
	if (!call)
		return false;
	task = *client_call_task(call);
	end_task(reef, call);
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
	while (reef->tasks && end_ready_task(reef))
		ended++;
	return count < 0 && !ended ? count : (count > 0 ? count : 0) + ended;
}

static struct client_call *call_of_task(struct reef *reef,
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
		call = call_of_task(reef, task);
		if (!call)
			return -EINVAL; /* never submitted */
		client_call_wait(call);
		/* The task may have ended while this fiber waited. */
		call = call_of_task(reef, task);
		if (call && client_call_step(call)) {
			end_task(reef, call);
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
