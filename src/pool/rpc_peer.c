/* rpc_peer.c - the other ends of links.
 *
 *                accepted, or connected         lost
 *   (connecting) ---------------------> up ---------------> gone
 *        | refused                       |  reef_peer_close   | accepted: at
 *        v                               v                    v once; else
 *      freed <---------- no references left ------------------+ reef_peer_close
 *
 * lost: an accepted link's `closed` (rpc_link_closed), which a poll calls; a
 * connected link that a receiver finds down (rpc_peers_report_lost); the end of
 * the rpc (rpc_peers_end). */
#include "base/log.h"
#include "pool/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rpc_peer *rpc_peer_create(struct reef_rpc *rpc)
{
	struct rpc_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->peer.rpc = rpc;
	peer->refs = 1;
	peer->reason = -REEF_ENOLINK;
	peer->waiting_tail = &peer->waiting;
	peer->early_tail = &peer->early;
	return peer;
}

/* --- accounts --- */

/* Count the peer with others of its account. */
static void join_account(struct rpc_peer *peer)
{
	struct rpc_room *room = &peer->peer.rpc->rooms[peer->peer.room];
	struct rpc_account *account = room->accounts;

	while (account && account->number != peer->peer.account)
		account = account->next;
	if (!account) {
		account = calloc(1, sizeof(*account));
		if (!account)
			return;
		account->number = peer->peer.account;
		account->room = room;
		account->next = room->accounts;
		account->at = &room->accounts;
		if (account->next)
			account->next->at = &account->next;
		room->accounts = account;
	}
	account->refs++;
	peer->account = account;
}

static void leave_account(struct rpc_account *account)
{
	if (!account || --account->refs)
		return;
	reef_assert(!account->handlers && !account->unread);
	if (account->at) {
		*account->at = account->next;
		if (account->next)
			account->next->at = account->at;
	}
	free(account);
}

void rpc_accounts_release(struct reef_rpc *rpc)
{
	struct rpc_account *account;

	for (int i = 0; i < REEF_ROOMS; i++)
		while ((account = rpc->rooms[i].accounts)) {
			rpc->rooms[i].accounts = account->next;
			account->next = NULL;
			account->at = NULL;
		}
}

/* --- peers --- */

static void drop_early_messages(struct rpc_peer *peer)
{
	struct reef_message *message;

	while ((message = peer->early)) {
		peer->early = message->next;
		reef_message_free(message);
	}
	peer->early_tail = &peer->early;
	peer->early_count = 0;
}

void rpc_peer_unref(struct rpc_peer *peer)
{
	if (--peer->refs)
		return;
	reef_assert(!peer->peer.link && !peer->held);
	reef_assert(!peer->calls && !peer->waiting);
	drop_early_messages(peer);
	leave_account(peer->account);
	free(peer);
}

void reef_peer_ref(struct reef_peer *peer)
{
	rpc_peer_ref((struct rpc_peer *)peer);
}

void reef_peer_unref(struct reef_peer *peer)
{
	rpc_peer_unref((struct rpc_peer *)peer);
}

int rpc_peer_status(const struct rpc_peer *peer)
{
	if (peer->peer.link)
		return peer->peer.rpc->closing ? -REEF_ENOLINK : 0;
	return peer->reason == -REEF_EFENCED || peer->reason == -REEF_EHOSTDEAD
		       ? peer->reason
		       : -REEF_ENOLINK;
}

static void add_to_list(struct rpc_peer **list, struct rpc_peer *peer)
{
	peer->next = *list;
	peer->at = list;
	if (peer->next)
		peer->next->at = &peer->next;
	*list = peer;
}

static void remove_from_list(struct rpc_peer *peer)
{
	*peer->at = peer->next;
	if (peer->next)
		peer->next->at = peer->at;
}

void rpc_peer_up(struct rpc_peer *peer, struct reef_link *link, bool accepted)
{
	struct reef_rpc *rpc = peer->peer.rpc;

	peer->connecting = false;
	peer->peer.link = link;
	peer->peer.session = reef_link_session(link);
	peer->peer.accepted = accepted;
	peer->queue = reef_port_queue_of(rpc->port, link);
	if (!accepted) {
		peer->held = link;
		peer->peer.room = REEF_ROOM_SERVERS;
		peer->peer.account = peer->peer.session;
		join_account(peer);
	}
	add_to_list(accepted ? &rpc->accepted : &rpc->connected, peer);
}

/* End everything that goes through the peer's link. */
static void detach_link(struct rpc_peer *peer, int reason)
{
	peer->peer.link = NULL;
	peer->reason = reason;
	rpc_send_drop(peer);
	rpc_calls_end(peer, -REEF_EINDOUBT);
	drop_early_messages(peer);
}

/* Take the peer out of its list, and give up the list's reference. */
static void release_peer(struct rpc_peer *peer)
{
	remove_from_list(peer);
	reef_link_close(peer->held);
	peer->held = NULL;
	rpc_peer_unref(peer);
}

void rpc_peer_lost(struct rpc_peer *peer, int reason)
{
	struct reef_rpc *rpc = peer->peer.rpc;
	bool accepted = peer->peer.accepted;

	detach_link(peer, reason);
	if (rpc->options.closed)
		rpc->options.closed(rpc->options.context, &peer->peer, reason);
	if (accepted) /* a connected one may be gone by now */
		release_peer(peer);
}

void rpc_link_opened(void *context, struct reef_link *link)
{
	struct reef_rpc *rpc = context;
	struct rpc_peer *peer = rpc_peer_create(rpc);

	/* Without memory the link has no peer, and its messages are dropped. */
	reef_link_set_user(link, peer);
	if (!peer)
		return;
	rpc_peer_up(peer, link, true);
	if (rpc->options.opened)
		rpc->options.opened(rpc->options.context, &peer->peer);
	join_account(peer);
}

void rpc_link_closed(void *context, struct reef_link *link, int reason)
{
	struct rpc_peer *peer = reef_link_user(link);

	if (peer)
		rpc_peer_lost(peer, reason);
}

static struct rpc_peer *find_peer_down(struct reef_rpc *rpc)
{
	struct rpc_peer *peer = rpc->connected;

	while (peer && !(peer->peer.link && reef_link_status(peer->peer.link)))
		peer = peer->next;
	return peer;
}

void rpc_peers_report_lost(struct reef_rpc *rpc)
{
	struct rpc_peer *peer;

	/* Search from the start each time: the owner may close any of them. */
	while ((peer = find_peer_down(rpc)))
		rpc_peer_lost(peer, reef_link_status(peer->peer.link));
}

void rpc_peers_end(struct reef_rpc *rpc)
{
	struct rpc_peer *peer;

	/* Whoever is lost or released leaves its list, which the checker does
	 * not see. NOLINTBEGIN(clang-analyzer-unix.Malloc) */
	while ((peer = rpc->accepted))
		rpc_peer_lost(peer, -ECANCELED);
	while ((peer = rpc->connected)) {
		if (peer->peer.link)
			rpc_peer_lost(peer, -ECANCELED);
		if (rpc->connected == peer)
			release_peer(peer);
	}
	/* NOLINTEND(clang-analyzer-unix.Malloc) */
}

void reef_peer_close(struct reef_peer *base)
{
	struct rpc_peer *peer = (struct rpc_peer *)base;

	if (!peer)
		return;
	reef_assert(!base->accepted && peer->held);
	if (base->link)
		detach_link(peer, -REEF_ENOLINK);
	release_peer(peer);
}

/* --- connecting --- */

int reef_rpc_connect(struct reef_rpc *rpc, const char *addresses,
		     uint64_t domain,
		     const struct reef_connect_options *options,
		     struct reef_peer **out, uint32_t *door)
{
	struct reef_connect_options as = *options;
	struct reef_link *link;
	struct rpc_peer *peer;
	int rc;

	if (rpc->closing)
		return -REEF_ENOLINK;
	peer = rpc_peer_create(rpc);
	if (!peer)
		return -ENOMEM;
	peer->connecting = true;
	as.user = peer;
	rpc->connects++;
	rc = reef_port_connect(rpc->port, addresses, domain, &as, &link, door);
	explicit_bzero(as.key, sizeof(as.key));
	rpc->connects--;
	if (!rc && rpc->closing) {
		reef_link_close(link);
		rc = -REEF_ENOLINK;
	}
	if (rc) {
		rpc_peer_unref(peer);
		rpc_wake_destroyer(rpc);
		return rc;
	}
	rpc_peer_up(peer, link, false);
	if (peer->early) {
		rpc->has_early = true;
		reef_queue_wake(peer->queue);
	}
	*out = &peer->peer;
	return 0;
}
