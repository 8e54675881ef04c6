/* remote.c - memory of others that this process has attached. The other end,
 * and how a key is taken back, is in target.c. */
#include "fabric/verbs/verbs.h"

#include "wire/control.h"

#include <stdlib.h>

static struct verbs_remote *find_remote(struct verbs_link *link, uint64_t key)
{
	struct verbs_remote *remote = link->remotes;

	while (remote && remote->remote.key != key)
		remote = remote->next;
	return remote;
}

static void send_detach(struct verbs_link *link, uint64_t key)
{
	uint8_t payload[REEF_WIRE_KEY_SIZE];

	reef_wire_key_encode(key, payload);
	verbs_link_send(link, REEF_FRAME_DETACH, 0, payload, sizeof(payload));
}

/* End a remote's attach with this state, if it is under way (state 1). */
static void end_attach(struct verbs_remote *remote, struct verbs_queue *polling,
		       int state)
{
	struct verbs_link *link = verbs_link(remote->remote.link);

	if (atomic_load(&remote->remote.state) != 1)
		return;
	link->attaching--;
	atomic_fetch_sub(&link->owner->attaching, 1);
	if (remote->watch)
		atomic_fetch_sub(&remote->watch->attaching, 1);
	reef_attach_ended(&polling->queue, &remote->remote, state);
}

int verbs_attach(struct reef_layer *layer, struct reef_queue *queue,
		 struct reef_link *base, uint64_t key, struct reef_remote **out)
{
	struct verbs_link *link = verbs_link(base);
	uint8_t payload[REEF_WIRE_KEY_SIZE];
	struct verbs_remote *remote;
	struct verbs_watch *watch;
	int rc;

	if (!key)
		return -REEF_EKEY;
	rc = verbs_queue_watch_hub(verbs_queue(queue), link, &watch);
	if (rc)
		return rc;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return -ENOMEM;
	remote->remote.link = base;
	remote->remote.key = key;
	remote->asked_ns = reef_now_ns();
	remote->watch = watch;
	atomic_init(&remote->remote.state, 1);
	reef_wire_key_encode(key, payload);
	pthread_mutex_lock(&link->hub->lock);
	if (link->broken || link->phase != VERBS_UP) {
		pthread_mutex_unlock(&link->hub->lock);
		free(remote);
		return -REEF_ENOLINK;
	}
	remote->tag = ++link->tag;
	remote->next = link->remotes;
	link->remotes = remote;
	link->attaching++;
	atomic_fetch_add(&link->owner->attaching, 1);
	if (watch)
		atomic_fetch_add(&watch->attaching, 1);
	verbs_link_send(link, REEF_FRAME_ATTACH, remote->tag, payload,
			sizeof(payload));
	verbs_hub_settle(link->hub, verbs_queue(queue));
	/* The deadline is kept by the link's own queue, which sets its timer
	 * when it is woken. */
	if (watch)
		reef_queue_wake(&link->owner->queue);
	else
		verbs_queue_timer(link->owner);
	pthread_mutex_unlock(&link->hub->lock);
	*out = &remote->remote;
	return 0;
}

void verbs_detach(struct reef_layer *layer, struct reef_queue *queue,
		  struct reef_remote *base)
{
	struct verbs_remote *remote =
		reef_container(base, struct verbs_remote, remote);
	struct verbs_link *link = verbs_link(base->link);
	struct verbs_remote **at = &link->remotes;
	bool was_usable;

	pthread_mutex_lock(&link->hub->lock);
	while (*at != remote)
		at = &(*at)->next;
	*at = remote->next;
	was_usable = atomic_load(&base->state) == 0;
	end_attach(remote, verbs_queue(queue), -ECANCELED);
	/* Another remote may still use the key; a withdrawn one was or will be
	 * told of; an unanswered attach is undone when its answer comes. */
	if (was_usable && !find_remote(link, base->key))
		send_detach(link, base->key);
	verbs_hub_settle(link->hub, verbs_queue(queue));
	pthread_mutex_unlock(&link->hub->lock);
	free(remote);
}

int verbs_remote_attached(struct verbs_link *link, struct verbs_queue *polling,
			  const struct reef_frame *frame)
{
	struct reef_wire_attached attached;
	struct verbs_remote *remote;
	int rc;

	rc = reef_wire_attached_decode(frame->payload, frame->length,
				       &attached);
	if (rc)
		return rc;
	for (remote = link->remotes; remote; remote = remote->next)
		if (remote->tag == frame->tag)
			break;
	if (!remote) { /* detached meanwhile */
		if (!attached.status && !find_remote(link, attached.key))
			send_detach(link, attached.key);
		return 0;
	}
	if (attached.key != remote->remote.key)
		return -REEF_EPROTO;
	if (!attached.status && (attached.address > UINT64_MAX - attached.size))
		return -REEF_EPROTO;
	remote->remote.size = attached.size;
	reef_remote_take_flags(&remote->remote, attached.flags);
	remote->address = attached.address;
	remote->rkey = attached.rkey;
	end_attach(remote, polling, attached.status);
	return 0;
}

int verbs_remote_withdrawn(struct verbs_link *link,
			   const struct reef_frame *frame)
{
	struct verbs_withdrawal *withdrawal;
	struct verbs_remote *remote;
	uint64_t key;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc)
		return rc;
	/* Posting checks this under the same lock: nothing new uses the key. */
	for (remote = link->remotes; remote; remote = remote->next)
		if (remote->remote.key == key &&
		    atomic_load(&remote->remote.state) == 0)
			atomic_store(&remote->remote.state, -REEF_EKEY);
	if (link->ended == link->taken) {
		send_detach(link, key);
		return 0;
	}
	withdrawal = malloc(sizeof(*withdrawal));
	if (!withdrawal)
		return -ENOMEM;
	*withdrawal = (struct verbs_withdrawal){
		.key = key,
		.after = link->taken,
		.next = link->withdrawals,
	};
	link->withdrawals = withdrawal;
	return 0;
}

void verbs_remote_ended(struct verbs_link *link)
{
	struct verbs_withdrawal **at = &link->withdrawals, *withdrawal;

	while ((withdrawal = *at)) {
		if (link->ended < withdrawal->after) {
			at = &withdrawal->next;
			continue;
		}
		*at = withdrawal->next;
		send_detach(link, withdrawal->key);
		free(withdrawal);
	}
}

void verbs_remote_lost(struct verbs_link *link, struct verbs_queue *polling)
{
	struct verbs_remote *remote;

	for (remote = link->remotes; remote; remote = remote->next)
		end_attach(remote, polling, -REEF_ENOLINK);
}

void verbs_remote_free(struct verbs_link *link)
{
	struct verbs_withdrawal *withdrawal;
	struct verbs_remote *remote;

	while ((remote = link->remotes)) {
		link->remotes = remote->next;
		free(remote);
	}
	while ((withdrawal = link->withdrawals)) {
		link->withdrawals = withdrawal->next;
		free(withdrawal);
	}
}
