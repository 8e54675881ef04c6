/* region.c - memory given and taken: regions, their holders, and remotes.
 *
 *   owner                                     holder
 *     EXPOSED                                   (new)
 *        |      <-- ATTACH (owes_attach) --       |
 *        |      -- ATTACHED, descriptor -->     check, map: USABLE
 *     withdraw                                    |
 *        |      -- WITHDRAW, control word -->   CLOSED: state -REEF_EKEY
 *        |                                        | grace (owes_unmap)
 *        |                                      UNMAPPED
 *        |      <-- DETACH (owes_detach) --       |
 *     no holds: freed                           freed by detach
 *
 * A hold counts the ATTACHEDs that carried a descriptor, less the DETACHes; it
 * ends with its link when the peer is gone. */
#include "base/random.h"
#include "fabric/shm/shm.h"
#include "wire/control.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* So much of an attached memfd is mapped at once, in small pages 4.3 ms for 64
 * MiB; without, an attach takes 0.05 ms, and then each page that a WRITE is the
 * first to touch a fault: 15 to 20 ms for 10,000 of the 16,000 (READs 4 ms, as
 * the kernel maps 16 pages for each). Not more than that at once: the fabric's
 * lock is held. Of huge pages the rest costs a fault for each 2 MiB only. */
#define POPULATE_MAX (64ull << 20)

/* --- the owner's side --- */

int shm_expose(struct reef_layer *layer, struct reef_memory *memory,
	       struct reef_region **out)
{
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_region *region;
	uint64_t keys[2];
	int rc;

	if (memory->domain != shm->fabric.domain)
		return -REEF_EDOMAIN;
	/* A holder gets the descriptor, so only a memfd, whose seals forbid
	 * writing, can be read-only. */
	if (memory->fd < 0 ||
	    (memory->read_only && memory->backing != REEF_BACKING_MEMFD))
		return -EINVAL;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->region.fabric = &shm->fabric;
	region->region.memory = memory;
	/* Whoever has a link and guesses a key could attach. So a key is
	 * random, and none is ever used again. */
	do {
		rc = reef_random_secret(keys, sizeof(keys));
	} while (!rc && (!keys[0] || !keys[1] || keys[0] == keys[1]));
	if (rc) {
		free(region);
		return rc;
	}
	region->region.key = keys[0];
	region->region.read_key = keys[1];
	pthread_mutex_lock(&shm->lock);
	region->next = shm->regions;
	shm->regions = region;
	pthread_mutex_unlock(&shm->lock);
	*out = &region->region;
	return 0;
}

static void drop_hold(struct shm_link *link, struct shm_hold *hold)
{
	struct shm_hold **at = &link->holds;

	while (*at != hold)
		at = &(*at)->next;
	*at = hold->next;
	hold->region->holds--;
	free(hold);
}

void shm_holds_drop(struct shm_link *link)
{
	while (link->holds)
		drop_hold(link, link->holds);
}

static struct shm_hold *find_hold(struct shm_link *link, uint64_t key)
{
	struct shm_hold *hold;

	for (hold = link->holds; hold; hold = hold->next)
		if (hold->key == key)
			break;
	return hold;
}

static struct shm_hold *find_or_make_hold(struct shm_link *link,
					  struct shm_region *region,
					  uint64_t key)
{
	struct shm_hold *hold = find_hold(link, key);

	if (hold)
		return hold;
	hold = calloc(1, sizeof(*hold));
	if (!hold)
		return NULL;
	hold->region = region;
	hold->key = key;
	hold->next = link->holds;
	link->holds = hold;
	region->holds++;
	return hold;
}

static struct shm_region *find_region(struct shm_fabric *shm, uint64_t key)
{
	struct shm_region *region;

	for (region = shm->regions; region; region = region->next)
		if (reef_region_has_key(&region->region, key) &&
		    !region->withdrawn)
			break;
	return region;
}

static int send_attached(struct shm_link *link, uint64_t tag,
			 const struct reef_wire_attached *attached, int fd)
{
	uint8_t bytes[REEF_WIRE_ATTACHED_SIZE];
	struct iovec part = {bytes, sizeof(bytes)};

	reef_wire_attached_encode(attached, bytes);
	return reef_stream_send(link->stream, REEF_FRAME_ATTACHED, tag, &part,
				1, fd);
}

/* Note what a region is to who has this key, and return the descriptor to pass;
 * *opened: it is to be closed after that. */
static int describe_region(const struct shm_region *region, uint64_t key,
			   struct reef_wire_attached *out, bool *opened)
{
	const struct reef_memory *memory = region->region.memory;

	out->size = memory->size;
	out->domain = memory->domain;
	out->flags = reef_region_wire_flags(&region->region, key);
	/* What is read_only is sealed, whichever descriptor one has. */
	*opened = key == region->region.read_key && !memory->read_only;
	return *opened ? reef_memory_open_reader(memory) : memory->fd;
}

int shm_on_attach(struct shm_link *link, const struct reef_frame *frame)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	struct reef_wire_attached attached = {0};
	struct shm_region *region;
	struct shm_hold *hold = NULL;
	bool opened = false;
	int rc, fd = -1;

	rc = reef_wire_key_decode(frame->payload, frame->length, &attached.key);
	if (rc)
		return rc;
	region = find_region(shm, attached.key);
	attached.status = region ? 0 : -REEF_EKEY;
	if (region) {
		hold = find_or_make_hold(link, region, attached.key);
		attached.status = hold ? 0 : -ENOMEM;
	}
	if (hold)
		fd = describe_region(region, attached.key, &attached, &opened);
	if (fd < 0 && !attached.status)
		attached.status = fd;
	if (fd >= 0 && !link->peer->self)
		atomic_store(&region->region.memory->passed, true);
	rc = send_attached(link, frame->tag, &attached, fd);
	if (opened && fd >= 0)
		close(fd);
	if (hold && !rc && fd >= 0)
		hold->count++;
	else if (hold && !hold->count)
		drop_hold(link, hold);
	return rc;
}

int shm_on_detach(struct shm_link *link, const struct reef_frame *frame)
{
	struct shm_hold *hold;
	uint64_t key;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc)
		return rc;
	hold = find_hold(link, key);
	if (!hold)
		return -REEF_EPROTO;
	if (!--hold->count)
		drop_hold(link, hold);
	return 0;
}

/* Send WITHDRAW to one holder, unless it was told before. A holder whose
 * process is dead loses its holds. */
static void withdraw_from_holder(struct shm_queue *queue, struct shm_link *link,
				 struct shm_hold *hold)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	if (shm_peer_is_dead(link->peer)) {
		shm_link_died(queue, link);
		return;
	}
	/* The peer of a departing link was told to stop altogether. Its queue
	 * may be closed, so the end of its socket is read here, and its time is
	 * looked at. */
	if (link->departing) {
		shm_peer_hurry(link, &link->patience, reef_now_ns());
		shm_link_serve(queue, link);
		return;
	}
	/* The time counts even if the peer does not read what it is told. */
	shm_peer_hurry(link, &hold->patience, reef_now_ns());
	if (hold->told || link->ending || !link->stream)
		return;
	if (shm_send_key(link, REEF_FRAME_WITHDRAW, 0, hold->key))
		return; /* no room; shm_withdraw is called again */
	hold->told = true;
	shm_control_change(shm, link, 0);
	shm_link_interest(link);
}

/* Send WITHDRAW of one key to all its holders. */
static void withdraw_key(struct shm_fabric *shm, struct shm_queue *queue,
			 uint64_t key)
{
	struct shm_link *link, *next;
	struct shm_hold *hold;

	for (link = shm->links; link; link = next) {
		next = link->next;
		hold = find_hold(link, key);
		if (hold)
			withdraw_from_holder(queue, link, hold);
	}
}

int shm_withdraw(struct reef_layer *layer, struct reef_queue *base,
		 struct reef_region *withdrawn)
{
	struct shm_region *region = (struct shm_region *)withdrawn;
	struct shm_region **at;
	struct shm_fabric *shm = shm_of(layer->fabric);

	pthread_mutex_lock(&shm->lock);
	region->withdrawn = true;
	if (region->holds)
		withdraw_key(shm, (struct shm_queue *)base, region->region.key);
	if (region->holds)
		withdraw_key(shm, (struct shm_queue *)base,
			     region->region.read_key);
	if (region->holds) {
		pthread_mutex_unlock(&shm->lock);
		return -EAGAIN;
	}
	for (at = &shm->regions; *at != region; at = &(*at)->next)
		;
	*at = region->next;
	pthread_mutex_unlock(&shm->lock);
	free(region);
	return 0;
}

/* --- the holder's side --- */

void shm_remote_close(struct shm_remote *remote, int state)
{
	atomic_store(&remote->remote.limit, 0);
	atomic_store(&remote->remote.write_limit, 0);
	atomic_store(&remote->remote.state, state);
}

static void unmap_remote(struct shm_remote *remote)
{
	if (remote->map_size)
		munmap(remote->remote.base, remote->map_size);
	remote->map_size = 0;
	remote->owes_unmap = false;
}

static void free_remote(struct shm_link *link, struct shm_remote *remote)
{
	struct shm_remote **at = &link->remotes;

	while (*at != remote)
		at = &(*at)->next;
	*at = remote->next;
	unmap_remote(remote);
	free(remote);
}

void shm_remotes_unmap(struct shm_link *link)
{
	struct shm_remote *remote;

	for (remote = link->remotes; remote; remote = remote->next)
		unmap_remote(remote);
}

void shm_remotes_free(struct shm_link *link)
{
	while (link->remotes)
		free_remote(link, link->remotes);
}

/* Take the steps that a remote owes and that can be taken now; the last frees
 * it. True: some are left. */
static bool settle_remote(struct shm_link *link, struct shm_remote *remote)
{
	if (remote->owes_unmap && reef_grace_is_over(remote->grace)) {
		unmap_remote(remote);
		remote->owes_detach = true;
	}
	/* The end of the socket has told the owner already. */
	if (!link->stream)
		remote->owes_attach = remote->owes_detach = false;
	if (remote->owes_attach &&
	    !shm_send_key(link, REEF_FRAME_ATTACH, remote->tag,
			  remote->remote.key))
		remote->owes_attach = false;
	if (remote->owes_detach &&
	    !shm_send_key(link, REEF_FRAME_DETACH, 0, remote->remote.key))
		remote->owes_detach = false;
	if (remote->owes_unmap || remote->owes_detach || remote->owes_attach)
		return true;
	/* A remote that is still attaching is freed when the answer comes. */
	if (remote->owes_freeing && atomic_load(&remote->remote.state) <= 0)
		free_remote(link, remote);
	return false;
}

void shm_remotes_settle(struct shm_link *link)
{
	struct shm_remote *remote, *next;

	link->unsettled = false;
	for (remote = link->remotes; remote; remote = next) {
		next = remote->next;
		link->unsettled |= settle_remote(link, remote);
	}
	if (link->unsettled)
		atomic_store(&shm_of(link->link.fabric)->restless, true);
}

bool shm_remotes_await_grace(const struct shm_link *link)
{
	const struct shm_remote *remote;

	for (remote = link->unsettled ? link->remotes : NULL; remote;
	     remote = remote->next)
		if (remote->owes_unmap)
			return true;
	return false;
}

int shm_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *base, uint64_t key, struct reef_remote **out)
{
	struct shm_link *link = (struct shm_link *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_remote *remote;

	(void)queue;
	if (!key)
		return -REEF_EKEY;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return -ENOMEM;
	remote->remote.link = base;
	remote->remote.key = key;
	atomic_init(&remote->remote.state, 1);
	remote->owes_attach = true;
	pthread_mutex_lock(&shm->lock);
	if (!link->stream || link->leaving) {
		pthread_mutex_unlock(&shm->lock);
		free(remote);
		return -REEF_ENOLINK;
	}
	if (!link->attaching++)
		link->asked_ns = reef_now_ns();
	remote->tag = ++link->next_tag;
	remote->next = link->remotes;
	link->remotes = remote;
	shm_remotes_settle(link);
	/* The answer has a deadline, and may have to be read by a queue that
	 * does not watch this socket. */
	atomic_store(&shm->restless, true);
	shm_link_interest(link);
	pthread_mutex_unlock(&shm->lock);
	*out = &remote->remote;
	return 0;
}

void shm_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *base)
{
	struct shm_remote *remote = (struct shm_remote *)base;
	struct shm_link *link = (struct shm_link *)base->link;
	struct shm_fabric *shm = shm_of(layer->fabric);

	(void)queue;
	pthread_mutex_lock(&shm->lock);
	if (remote->map_size) {
		/* The caller promises that nothing under way names the remote,
		 * so no grace is needed. */
		unmap_remote(remote);
		remote->owes_detach = true;
	}
	remote->owes_freeing = true;
	shm_remotes_settle(link);
	shm_link_interest(link);
	pthread_mutex_unlock(&shm->lock);
}

static struct shm_remote *find_remote(struct shm_link *link, uint64_t tag)
{
	struct shm_remote *remote;

	for (remote = link->remotes; remote; remote = remote->next)
		if (remote->tag == tag &&
		    atomic_load(&remote->remote.state) == 1)
			break;
	return remote;
}

/* Check and map the memory that ATTACHED has brought. */
static int map_attached(struct shm_link *link, struct shm_remote *remote,
			const struct reef_wire_attached *attached, int fd)
{
	bool read_only = attached->flags & REEF_WIRE_READ_ONLY;
	uint64_t limit = attached->size & ~7ull;
	void *map;
	int rc;

	if (attached->domain != link->link.fabric->domain)
		return -REEF_EDOMAIN;
	rc = shm_map_passed(fd, 0, attached->size,
			    read_only ? PROT_READ : PROT_READ | PROT_WRITE,
			    &map);
	if (rc)
		return rc;
	/* Huge pages are a hint, as in memory.c: its failure is none. */
	madvise(map, attached->size, MADV_HUGEPAGE);
	if (!(attached->flags & REEF_WIRE_DURABLE))
		reef_memory_populate(map, attached->size < POPULATE_MAX
						  ? attached->size
						  : POPULATE_MAX);
	remote->remote.base = map;
	remote->remote.size = attached->size;
	reef_remote_take_flags(&remote->remote, attached->flags);
	remote->map_size = attached->size;
	atomic_store(&remote->remote.limit, limit);
	atomic_store(&remote->remote.write_limit, read_only ? 0 : limit);
	return 0;
}

int shm_on_attached(struct shm_queue *polling, struct shm_link *link,
		    const struct reef_frame *frame)
{
	struct reef_wire_attached attached;
	struct shm_remote *remote;
	int rc;

	rc = reef_wire_attached_decode(frame->payload, frame->length,
				       &attached);
	remote = find_remote(link, frame->tag);
	if (rc || !remote || attached.key != remote->remote.key ||
	    (attached.status == 0) != (frame->fd >= 0))
		return -REEF_EPROTO;
	link->attaching--;
	link->asked_ns = reef_now_ns();
	if (attached.status) {
		reef_attach_ended(&polling->queue, &remote->remote,
				  attached.status);
	} else {
		rc = remote->owes_freeing
			     ? -ECANCELED
			     : map_attached(link, remote, &attached, frame->fd);
		/* The owner counts a hold even if mapping failed here. */
		remote->owes_detach = rc != 0;
		reef_attach_ended(&polling->queue, &remote->remote, rc);
	}
	shm_remotes_settle(link);
	/* A peer that passes memory which could be cut short is no peer. */
	return rc == -REEF_EPROTO ? rc : 0;
}

int shm_on_withdraw(struct shm_link *link, const struct reef_frame *frame)
{
	struct shm_remote *remote;
	uint64_t key, grace = 0;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc)
		return rc;
	for (remote = link->remotes; remote; remote = remote->next) {
		if (remote->remote.key != key || !remote->map_size ||
		    remote->owes_unmap)
			continue;
		shm_remote_close(remote, -REEF_EKEY);
		remote->owes_unmap = true;
	}
	/* One grace for all of them, after all are closed. */
	for (remote = link->remotes; remote; remote = remote->next) {
		if (!remote->owes_unmap || remote->grace)
			continue;
		if (!grace)
			grace = reef_grace_begin();
		remote->grace = grace;
	}
	shm_remotes_settle(link);
	return 0;
}
