/* ring.c - short messages through memory, for links that asked for it.
 *
 * A socket costs its sender one system call and its receiver two; a ring costs
 * the receiver none, and the sender one if the receiver sleeps. The connector
 * makes it and writes it; the acceptor reads it.
 *
 *   connector: up --RING, with the memory--> asked --BELL--> in use
 *   acceptor:  RING --map, answer BELL--> in queue->ringed
 *
 * What does not fit goes through the socket as before.
 *
 * (1) SENDs stay in order. Each entry says how many messages went through the
 *     socket before it, each MESSAGE (its tag) how many through the ring; the
 *     receiver takes each only when it has those. The sender uses the ring only
 *     while nothing of the socket's is left in this process.
 * (2) Nobody believes the other: what is in the memory is copied, then looked
 *     at, and a receiver takes no more than there can be. The memory is a memfd
 *     of ordinary pages, which cannot be cut short. There is nothing else that
 *     both have: whoever has an eventfd of ours could empty it, so that others
 *     wake nobody, or make it block, and us with it.
 * (3) No wake-up is lost. Receiver: asleep = 1, then looks at tail, then
 *     sleeps. Sender: tail, then looks at asleep; who makes it 2 rings: a BELL
 *     through the socket, which wakes whoever sleeps. Both with a full fence in
 *     between. 0: the receiver is up. A socket that is full wakes as well. A
 *     BELL that comes late wakes for nothing, once.
 * (4) What was sent arrives, also if its sender dies after it (F1): an accepted
 *     link ends only when its ring is empty.
 *
 * All locked by the fabric's lock, but for what a queue asks of its rings while
 * it has nothing to do: ring_lock keeps those mapped. What was taken so far is
 * the queue's thread's. */
#include "fabric/shm/shm.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ENTRIES 32
#define RING_SIZE 8192

struct entry {
	uint32_t length;
	uint32_t streamed; /* (1) */
	uint8_t bytes[SHM_RING_MESSAGE_MAX];
};

struct shm_ring {
	_Alignas(64) _Atomic uint64_t tail;   /* written: the connector's */
	_Alignas(64) _Atomic uint64_t head;   /* taken: the acceptor's */
	_Alignas(64) _Atomic uint32_t asleep; /* (3) */
	_Alignas(4096) struct entry entries[ENTRIES];
};
_Static_assert(sizeof(struct entry) == 128, "two lines");
_Static_assert(sizeof(struct shm_ring) == RING_SIZE, "layout");

/* --- the connector --- */

static int make_ring_memory(void)
{
	int fd = memfd_create("reef-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || fallocate(fd, 0, 0, RING_SIZE) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* A link that gets no ring sends everything through its socket. */
void shm_ring_ask(struct shm_link *link)
{
	int fd = make_ring_memory();
	void *map;

	if (fd < 0)
		return;
	if (!shm_map_passed(fd, 0, RING_SIZE, PROT_READ | PROT_WRITE, &map)) {
		if (reef_stream_send(link->stream, REEF_FRAME_RING, 0, NULL, 0,
				     fd))
			munmap(map, RING_SIZE);
		else
			link->ring = map;
	}
	close(fd);
}

int shm_ring_on_bell(struct shm_link *link, const struct reef_frame *frame)
{
	if (!link->ring || frame->length)
		return -REEF_EPROTO;
	/* An acceptor was woken; it polls the rings by itself. */
	if (link->is_accepted)
		return 0;
	if (link->ring_is_usable)
		return -REEF_EPROTO;
	link->ring_is_usable = true;
	return 0;
}

/* Wake the acceptor. One whose socket is full finds something there, and one
 * that is gone needs nothing more. */
static void ring_bell(struct shm_link *link)
{
	reef_stream_send(link->stream, REEF_FRAME_BELL, 0, NULL, 0, -1);
	shm_link_interest(link);
}

bool shm_ring_send(struct shm_link *link, const void *bytes, uint32_t length)
{
	struct shm_ring *ring = link->ring;
	struct entry *entry;
	uint32_t asleep = 1;
	uint64_t used;

	if (!ring || link->is_accepted || !link->ring_is_usable ||
	    length > SHM_RING_MESSAGE_MAX)
		return false;
	/* Acquire: the receiver has done with the entry; the partner is
	 * take_entry. */
	used = link->ringed_count -
	       atomic_load_explicit(&ring->head, memory_order_acquire);
	if (used >= ENTRIES)
		return false;
	entry = &ring->entries[link->ringed_count % ENTRIES];
	entry->length = length;
	entry->streamed = (uint32_t)link->streamed_count;
	if (length)
		memcpy(entry->bytes, bytes, length);
	/* Release: the entry; the partner is take_entry. */
	atomic_store_explicit(&ring->tail, ++link->ringed_count,
			      memory_order_release);
	atomic_thread_fence(memory_order_seq_cst); /* (3) */
	if (atomic_load_explicit(&ring->asleep, memory_order_relaxed) == 1 &&
	    atomic_compare_exchange_strong(&ring->asleep, &asleep, 2))
		ring_bell(link);
	return true;
}

/* --- the acceptor --- */

/* True if memory that a peer passed is a memfd of ordinary pages that cannot
 * shrink. A file, or a memfd of huge pages, may be without a page when one is
 * needed, and whoever touches it then dies. */
static bool is_plain_memfd(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat stat;

	return seals >= 0 && (seals & F_SEAL_SHRINK) && !fstat(fd, &stat) &&
	       !stat.st_nlink && !fstatfs(fd, &system) &&
	       system.f_type == TMPFS_MAGIC;
}

int shm_ring_on_ask(struct shm_queue *polling, struct shm_link *link,
		    const struct reef_frame *frame)
{
	void *map;
	int rc;

	if (link->ring || frame->fd < 0 || frame->length ||
	    !is_plain_memfd(frame->fd))
		return -REEF_EPROTO;
	rc = shm_map_passed(frame->fd, 0, RING_SIZE, PROT_READ | PROT_WRITE,
			    &map);
	if (rc)
		return rc;
	rc = reef_stream_send(link->stream, REEF_FRAME_BELL, 0, NULL, 0, -1);
	if (rc == -EAGAIN) {
		munmap(map, RING_SIZE);
		return rc;
	}
	/* Any other error means that the peer has gone; what it put into the
	 * ring before is still to be taken. */
	link->ring = map;
	pthread_mutex_lock(&polling->ring_lock);
	link->next_ringed = polling->ringed;
	polling->ringed = link;
	pthread_mutex_unlock(&polling->ring_lock);
	atomic_fetch_add(&polling->ringed_links, 1);
	return 0;
}

/* Take the next message of a ring.  1: that was done.  0: there is none, or a
 * message of the socket comes first.  -EAGAIN: there is no room for it.  Other
 * errors: the sender broke the protocol. */
static int take_entry(struct shm_queue *polling, struct shm_link *link)
{
	struct shm_ring *ring = link->ring;
	struct entry entry; /* (2) */
	uint64_t there;
	int rc = 0;

	/* Acquire: the partner is shm_ring_send. */
	there = atomic_load_explicit(&ring->tail, memory_order_acquire) -
		link->ringed_count;
	if (!there)
		return 0;
	if (there > ENTRIES)
		return -REEF_EPROTO;
	memcpy(&entry, &ring->entries[link->ringed_count % ENTRIES],
	       sizeof(entry));
	if (entry.length > SHM_RING_MESSAGE_MAX ||
	    entry.length > link->link.fabric->options.message_max)
		return -REEF_EPROTO;
	if (entry.streamed != (uint32_t)link->streamed_count)
		return 0; /* the socket's turn (1) */
	/* After the end of the link or a fence the message is dropped, as a
	 * frame is. */
	if (!link->ending && !link->fenced)
		rc = reef_message_arrived(&polling->queue, &link->link,
					  entry.bytes, entry.length);
	if (rc)
		return rc == -ENOSPC ? -EAGAIN : rc;
	link->ringed_count++;
	/* Release: the entry is free again; the partner is shm_ring_send. */
	atomic_store_explicit(&ring->head, link->ringed_count,
			      memory_order_release);
	return 1;
}

int shm_ring_take(struct shm_queue *polling, struct shm_link *link)
{
	uint32_t awake = 1;
	int rc, count = 0;

	if (!link->ring || !link->is_accepted)
		return 0;
	while (count < ENTRIES && (rc = take_entry(polling, link)) != 0) {
		if (rc == -EAGAIN)
			break;
		if (rc < 0)
			return rc;
		count++;
	}
	/* The sender need not ring while this queue is polled. */
	if (count)
		atomic_compare_exchange_strong(&link->ring->asleep, &awake, 0);
	return count;
}

int shm_ring_take_before(struct shm_queue *polling, struct shm_link *link,
			 uint64_t ringed)
{
	int rc;

	if (!link->ring || !link->is_accepted)
		return ringed ? -REEF_EPROTO : 0;
	while (link->ringed_count != ringed) {
		rc = take_entry(polling, link);
		/* What is not in the ring, or waits for another message of the
		 * socket than this one, never comes. */
		if (rc <= 0)
			return rc ? rc : -REEF_EPROTO;
	}
	return 0;
}

bool shm_ring_is_empty(const struct shm_link *link)
{
	return !link->ring || !link->is_accepted ||
	       atomic_load_explicit(&link->ring->tail, memory_order_acquire) ==
		       link->ringed_count;
}

bool shm_ring_delays_end(struct shm_queue *polling, struct shm_link *link,
			 int *count)
{
	int rc;

	if (link->ending || link->fenced || shm_ring_is_empty(link))
		return false;
	rc = shm_ring_take(polling, link);
	if (rc > 0)
		*count += rc;
	/* What is left for want of room is taken later. Anything else that is
	 * left can never be taken. */
	link->has_more =
		rc > 0 || (!rc && polling->queue.inbox_count >=
					  link->link.fabric->options.inbox_max);
	return link->has_more;
}

bool shm_rings_have_any(struct shm_queue *queue)
{
	const struct shm_link *link;

	if (!atomic_load_explicit(&queue->ringed_links, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&queue->ring_lock);
	for (link = queue->ringed; link && shm_ring_is_empty(link);
	     link = link->next_ringed)
		;
	pthread_mutex_unlock(&queue->ring_lock);
	return link != NULL;
}

int shm_rings_poll(struct shm_queue *queue)
{
	struct shm_link *link, *next;
	int rc, count = 0;

	for (link = queue->ringed; link; link = next) {
		next = link->next_ringed;
		if (link->ending || link->is_deaf)
			continue;
		rc = shm_ring_take(queue, link);
		if (rc < 0) {
			link->is_deaf = true;
			shm_link_end(queue, link, rc, false);
			count++;
		} else {
			count += rc;
		}
	}
	return count;
}

void shm_rings_arm(struct shm_queue *queue)
{
	struct shm_link *link;

	if (!atomic_load_explicit(&queue->ringed_links, memory_order_relaxed))
		return;
	pthread_mutex_lock(&queue->ring_lock);
	for (link = queue->ringed; link; link = link->next_ringed)
		atomic_store_explicit(&link->ring->asleep, 1,
				      memory_order_relaxed);
	pthread_mutex_unlock(&queue->ring_lock);
	/* The poll that follows looks at every tail (3); its partner is the
	 * fence in shm_ring_send. */
	atomic_thread_fence(memory_order_seq_cst);
}

/* --- the end --- */

void shm_ring_leave(struct shm_link *link)
{
	struct shm_queue *queue = (struct shm_queue *)link->link.queue;
	struct shm_link **at;

	link->ring_is_usable = false;
	if (!link->ring)
		return;
	if (link->is_accepted && queue) {
		pthread_mutex_lock(&queue->ring_lock);
		for (at = &queue->ringed; *at && *at != link;
		     at = &(*at)->next_ringed)
			;
		if (*at) {
			*at = link->next_ringed;
			atomic_fetch_sub(&queue->ringed_links, 1);
		}
		pthread_mutex_unlock(&queue->ring_lock);
	}
	munmap(link->ring, RING_SIZE);
	link->ring = NULL;
}
