/* link_life.c - links from their first byte to their last.
 *
 * connected:
 *   connect -> OPENING --CONTROL--> UP --end--> DOWN, leaving
 *                 `------end-----------------------^  | grace: unmap, close
 *                                                     v
 *              disconnect (from anywhere): freed <- DOWN
 * accepted:
 *   accept -> half open --proof, admit--> admitted --WELCOME--> UP
 *   any of them --end--> ending (in queue->ended) --report: `closed`-->
 *      gone already: freed;  else departing --end of socket, death--> freed
 *
 * end is shm_link_end, report is shm_links_report. A session has one link:
 * admit ends an older one (F5). If that one belongs to another process, which
 * lives and has memory mapped, the new one is refused with -EBUSY until it has
 * left: otherwise what that process is just doing could happen after the new
 * link is up. In one process the same holds until what is under way has ended.
 */
#include "fabric/shm/shm.h"

#include "base/mutant.h"
#include "fabric/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCHEME "shm:"
#define ACCEPTS_PER_POLL 64
#define PAUSE_NS 10000000ull
#define SOCKET_BUFFER (1 << 20)
/* Links of a session that were told to end, and have memory mapped. A process
 * that opens one after the other and closes none would have all there are. */
#define DEPARTING_MAX 1
/* Frames and messages of a dead process: more than a socket's buffer holds, a
 * ring, and what was read already. */
#define READ_AFTER_DEATH_MAX (1u << 18)

static int parse_address(const char *text, struct reef_address *out)
{
	if (strncmp(text, SCHEME, strlen(SCHEME)))
		return -EINVAL;
	return reef_address_parse_unix(text + strlen(SCHEME), out);
}

/* --- making and freeing --- */

/* Make a link over a socket, which belongs to the link from now on; on failure
 * it is closed. */
static int make_link(struct shm_queue *queue, int fd, struct shm_peer *peer,
		     struct shm_link **out)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	uint32_t payload_max = shm->fabric.options.message_max;
	struct shm_link *link = NULL;
	int buffer = SOCKET_BUFFER, rc;

	if (posix_memalign((void **)&link, _Alignof(struct shm_link),
			   sizeof(*link))) {
		rc = -ENOMEM;
		goto err_close;
	}
	memset(link, 0, sizeof(*link));
	link->link.fabric = &shm->fabric;
	link->link.queue = &queue->queue;
	atomic_init(&link->link.state, REEF_LINK_OPENING);
	link->pending_tail = &link->pending;
	link->since_ns = reef_now_ns();
	link->peer = peer;
	link->link.process = (uint32_t)peer->pid;
	/* The kernel counts ten times its size for a small message. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	if (payload_max < REEF_HELLO_FRAME_MAX)
		payload_max = REEF_HELLO_FRAME_MAX;
	rc = reef_stream_create(fd, payload_max, &link->stream);
	if (rc)
		goto err_free;
	rc = shm_source_add(queue, fd, EPOLLIN, SHM_LINK, link);
	if (!rc)
		rc = shm_peer_watch(queue, peer);
	if (rc) {
		shm_source_remove(shm, fd);
		reef_stream_destroy(link->stream);
		free(link);
		return rc;
	}
	link->interest = EPOLLIN;
	link->next = shm->links;
	shm->links = link;
	*out = link;
	return 0;
err_free:
	free(link);
err_close:
	close(fd);
	return rc;
}

/* The end of the socket tells the peer that we have nothing mapped any more. It
 * is shut down, as a forked child may keep the descriptor open. */
static void close_stream(struct shm_link *link)
{
	if (!link->stream)
		return;
	if (link->has_held && link->held.fd >= 0)
		close(link->held.fd);
	link->has_held = link->has_more = false;
	shm_source_remove(shm_of(link->link.fabric),
			  reef_stream_fd(link->stream));
	link->interest = 0;
	shutdown(reef_stream_fd(link->stream), SHUT_RDWR);
	reef_stream_destroy(link->stream);
	link->stream = NULL;
}

static void unmap_link(struct shm_link *link)
{
	shm_remotes_free(link);
	if (link->control_map)
		munmap(link->control_map, (size_t)sysconf(_SC_PAGESIZE));
	link->control_map = NULL;
}

/* True for a link whose process somebody wants to hear of. */
static bool is_watched(const struct shm_fabric *shm,
		       const struct shm_link *link)
{
	return shm->fabric.options.let_in && link->is_accepted &&
	       !link->peer->self;
}

/* A link goes. If its process has not let go, it stays known. */
static void tell_let_go(struct shm_fabric *shm, struct shm_link *link)
{
	if (link->admitted && is_watched(shm, link) &&
	    (!link->holds || shm_peer_is_dead(link->peer)))
		shm->fabric.options.let_go(shm->fabric.options.watcher,
					   link->link.session,
					   link->link.number);
}

void shm_link_free(struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	struct shm_link **at = &shm->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	reef_assert(!link->pending);
	shm_ring_leave(link);
	tell_let_go(shm, link);
	unmap_link(link);
	close_stream(link);
	shm_holds_drop(link);
	if (link->admitted) {
		shm_control_give(shm, link);
		shm->accepted--;
	}
	reef_hello_destroy(link->hello);
	shm_peer_give(shm, link->peer);
	free(link);
}

/* --- ending --- */

static void fail_pending(struct shm_queue *polling, struct shm_link *link)
{
	struct reef_batch *batch;

	while ((batch = link->pending)) {
		link->pending = batch->next;
		reef_batch_fail(batch, (uint32_t)batch->scratch[0],
				-REEF_EINDOUBT);
		reef_batch_ended(polling ? &polling->queue : NULL, batch);
	}
	link->pending_tail = &link->pending;
	link->pending_count = 0;
}

static void end_connected(struct shm_queue *polling, struct shm_link *link,
			  int reason)
{
	struct shm_remote *remote;
	int state;

	if (atomic_load(&link->link.state) == REEF_LINK_DOWN)
		return;
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	atomic_store(&link->link.control_seen, SHM_CONTROL_NEVER);
	reef_link_ended(&polling->queue, &link->link, reason);
	for (remote = link->remotes; remote; remote = remote->next) {
		state = atomic_load(&remote->remote.state);
		if (state == 1)
			reef_attach_ended(&polling->queue, &remote->remote,
					  -REEF_ENOLINK);
		else if (!state)
			shm_remote_close(remote, -REEF_ENOLINK);
	}
	link->attaching = 0;
	link->leaving = reef_grace_begin();
	atomic_store(&shm_of(link->link.fabric)->restless, true);
}

/* Tell the connector that its link has ended: by BYE, and by the control word,
 * so that its next post stops even if it never reads the socket. */
static void announce_end(struct shm_link *link, int reason)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	if (!link->stream)
		return;
	atomic_store(&shm->restless, true); /* tend_link looks at the time */
	reef_stream_bye(link->stream, reason);
	if (!link->admitted || link->fenced)
		return;
	shm_control_change(shm, link, SHM_CONTROL_ENDED);
	if (link->peer->self)
		link->end_grace = reef_grace_begin();
}

/* True if the connector of a link that was told to end may still do what it was
 * just doing: a process until it has left, this one until the grace is over. */
static bool may_still_act(const struct shm_link *old,
			  const struct shm_link *next)
{
	if (!old->holds)
		return false;
	return old->peer != next->peer ||
	       (old->peer->self && !reef_grace_is_over(old->end_grace));
}

static void end_accepted(struct shm_queue *polling, struct shm_link *link,
			 int reason)
{
	struct shm_queue *queue = (struct shm_queue *)link->link.queue;
	struct shm_fabric *shm = shm_of(link->link.fabric);

	if (atomic_load(&link->link.state) == REEF_LINK_OPENING) {
		shm->half_open--;
		link->peer->half_open--;
	}
	link->ending = true;
	link->reason = link->fenced ? -REEF_EFENCED : reason;
	link->next_ended = queue->ended;
	queue->ended = link;
	atomic_store(&queue->attention, true);
	if (queue != polling)
		reef_queue_wake(&queue->queue);
}

void shm_link_end(struct shm_queue *polling, struct shm_link *link, int reason,
		  bool gone)
{
	fail_pending(polling, link);
	if (!link->is_accepted) {
		end_connected(polling, link, reason);
		return;
	}
	if (!gone)
		announce_end(link, reason);
	if (gone || !link->holds) {
		shm_holds_drop(link);
		close_stream(link);
	}
	if (!link->ending)
		end_accepted(polling, link, reason);
	else if (link->departing && !link->stream)
		shm_link_free(link);
}

void shm_link_died(struct shm_queue *polling, struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	if (link->ending || link->fenced ||
	    atomic_load(&link->link.state) != REEF_LINK_UP) {
		shm_link_end(polling, link, -REEF_ENOLINK, true);
		return;
	}
	fail_pending(polling, link);
	shm_holds_drop(link);
	link->has_more = true;
	atomic_store(&shm->restless, true); /* tend_link does the rest */
	if (link->link.queue != &polling->queue)
		reef_queue_wake(link->link.queue);
}

int shm_links_report(struct shm_queue *queue)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_link *link;
	int count = 0;

	pthread_mutex_lock(&shm->lock);
	while ((link = queue->ended)) {
		queue->ended = link->next_ended;
		link->reporting = true;
		pthread_mutex_unlock(&shm->lock);
		if (link->admitted)
			reef_link_ended(&queue->queue, &link->link,
					link->reason);
		count++;
		pthread_mutex_lock(&shm->lock);
		link->reporting = false;
		if (link->stream)
			link->departing = true;
		else
			shm_link_free(link);
	}
	pthread_mutex_unlock(&shm->lock);
	return count;
}

/* --- listening --- */

int shm_listen(struct reef_layer *layer, struct reef_queue *base,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_listener *listener;
	struct reef_address parsed;
	int rc;

	if (strlen(address) >= sizeof(listener->listener.address))
		return -ENAMETOOLONG;
	rc = parse_address(address, &parsed);
	if (rc)
		return rc;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->listener.fabric = &shm->fabric;
	listener->listener.queue = base;
	listener->listener.options = *options;
	snprintf(listener->listener.address, sizeof(listener->listener.address),
		 "%s", address);
	listener->fd = reef_socket_listen(&parsed, NULL);
	if (listener->fd < 0) {
		rc = listener->fd;
		free(listener);
		return rc;
	}
	pthread_mutex_lock(&shm->lock);
	rc = shm_source_add(queue, listener->fd, EPOLLIN, SHM_LISTENER,
			    listener);
	if (!rc) {
		listener->next = shm->listeners;
		shm->listeners = listener;
	}
	pthread_mutex_unlock(&shm->lock);
	if (rc) {
		reef_socket_unlisten(listener->fd);
		free(listener);
		return rc;
	}
	*out = &listener->listener;
	return 0;
}

/* Locked. End a link of a listener that closes; only one whose peer has memory
 * mapped stays, departing. */
static void drop_accepted(struct shm_link *link)
{
	struct shm_queue *queue = (struct shm_queue *)link->link.queue;
	struct shm_link **at = &queue->ended;
	bool known = link->admitted && !link->departing;

	if (!link->ending)
		shm_link_end(queue, link, -REEF_ENOLINK, false);
	if (link->reporting) {
		/* shm_links_report, which is calling `closed`, sees to the
		 * rest. */
		link->link.listener = NULL;
		return;
	}
	while (*at && *at != link)
		at = &(*at)->next_ended;
	if (*at)
		*at = link->next_ended;
	/* Messages forget the link. `closed` is not called: shm_unlisten has
	 * taken it out of the options. */
	if (known)
		reef_link_ended(&queue->queue, &link->link, -REEF_ENOLINK);
	link->link.listener = NULL;
	if (link->stream)
		link->departing = true;
	else
		shm_link_free(link);
}

void shm_unlisten(struct reef_layer *layer, struct reef_listener *base)
{
	struct shm_listener *listener = (struct shm_listener *)base, **at;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_link *link, *next;

	pthread_mutex_lock(&shm->lock);
	for (at = &shm->listeners; *at != listener; at = &(*at)->next)
		;
	*at = listener->next;
	shm_source_remove(shm, listener->fd);
	reef_socket_unlisten(listener->fd);
	listener->listener.options.closed = NULL;
	for (link = shm->links; link; link = next) {
		next = link->next;
		if (link->link.listener == base)
			drop_accepted(link);
	}
	pthread_mutex_unlock(&shm->lock);
	free(listener);
}

/* Let in a session that has proven its key: end its older links, and take a
 * control word. Called by reef_hello_step; locked. */
static int admit_session(void *context, struct reef_hello_peer *peer)
{
	struct shm_link *link = context, *old, *next;
	struct shm_fabric *shm = shm_of(link->link.fabric);
	struct shm_queue *queue = (struct shm_queue *)link->link.queue;
	bool busy = false, gone;
	uint32_t departing = 0;
	int rc;

	if (reef_fences_cover(&shm->fences, peer->session))
		return -REEF_EFENCED;
	rc = reef_numbers_check(&shm->numbers, peer->session, peer->number);
	if (rc)
		return rc;
	for (old = shm->links; old; old = next) {
		next = old->next;
		if (!old->admitted || old->link.session != peer->session)
			continue;
		gone = shm_peer_is_dead(old->peer);
		if (gone || !old->ending)
			shm_link_end(queue, old, -REEF_ENOLINK, gone);
		busy |= !gone && may_still_act(old, link);
		departing += !gone && old->holds && old->stream &&
			     !shm_link_has_hung_up(old);
	}
	if (busy || departing > DEPARTING_MAX ||
	    shm->accepted >= shm->fabric.options.links_max)
		return -EBUSY;
	rc = reef_numbers_use(&shm->numbers, peer->session, peer->number);
	if (!rc)
		rc = shm_control_take(shm, link);
	if (rc)
		return rc;
	/* Before it is in: what it is passed then can be mapped. */
	if (is_watched(shm, link))
		rc = shm->fabric.options.let_in(shm->fabric.options.watcher,
						peer->session, peer->number,
						link->peer->pidfd);
	if (rc && !REEF_MUTATED(SHM_PIDFD_LATE)) {
		shm_control_give(shm, link);
		return -EBUSY;
	}
	reef_link_set_owner(&link->link, peer->session, peer->number,
			    peer->identity);
	link->admitted = true;
	shm->accepted++;
	return 0;
}

static void refuse_socket(int fd, int reason)
{
	struct reef_stream *stream;

	if (reef_stream_create(fd, REEF_HELLO_FRAME_MAX, &stream)) {
		close(fd);
		return;
	}
	reef_stream_bye(stream, reason);
	reef_stream_destroy(stream);
}

/* End the link that has been half open longest. False: there is none. */
static bool drop_oldest_half_open(struct shm_queue *queue)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_link *link, *oldest = NULL;

	for (link = shm->links; link; link = link->next)
		if (link->is_accepted && !link->ending &&
		    atomic_load(&link->link.state) == REEF_LINK_OPENING &&
		    (!oldest || link->since_ns < oldest->since_ns))
			oldest = link;
	if (!oldest)
		return false;
	shm_link_end(queue, oldest, -EBUSY, true);
	return true;
}

/* Make a link of an accepted socket, and begin its hello; or refuse it. */
static void accept_socket(struct shm_queue *queue,
			  struct shm_listener *listener, int fd)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct reef_hello_local local =
		reef_hello_local("shm", &shm->fabric.options);
	struct shm_peer *peer;
	struct shm_link *link;
	int rc;

	rc = shm_peer_take(shm, fd, true, &peer);
	if (rc) {
		refuse_socket(fd, rc);
		return;
	}
	if (peer->half_open >= SHM_HALF_OPEN_PEER_MAX) {
		refuse_socket(fd, -EBUSY);
		goto err_give;
	}
	if (shm->half_open >= SHM_HALF_OPEN_MAX)
		drop_oldest_half_open(queue);
	if (make_link(queue, fd, peer, &link))
		goto err_give;
	link->link.listener = &listener->listener;
	link->is_accepted = true;
	peer->half_open++;
	shm->half_open++;
	rc = reef_hello_accept(link->stream, &local,
			       &listener->listener.options, admit_session, link,
			       &link->hello);
	if (rc)
		shm_link_end(queue, link, rc, true);
	atomic_store(&shm->restless, true);
	return;
err_give:
	shm_peer_give(shm, peer);
}

void shm_accept(struct shm_queue *queue, struct shm_listener *listener)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	bool dropped = false;
	int fd, i;

	for (i = 0; i < ACCEPTS_PER_POLL; i++) {
		fd = reef_socket_accept(listener->fd);
		if (fd >= 0) {
			accept_socket(queue, listener, fd);
			continue;
		}
		if (fd == -EAGAIN)
			return;
		/* No descriptor is left: a half-open link makes room. */
		if (!dropped && drop_oldest_half_open(queue)) {
			dropped = true;
			continue;
		}
		reef_log(REEF_LOG_WARNING, "shm", "%s: cannot accept: %s",
			 listener->listener.address, reef_error_name(fd));
		listener->paused_ns = reef_now_ns();
		shm_source_remove(shm, listener->fd);
		atomic_store(&shm->restless, true);
		return;
	}
}

/* --- connecting --- */

/* Why the acceptor closed the socket: it sends BYE and hangs up at once on
 * those whom it does not let in, perhaps before they have sent anything. */
static int read_refusal(struct shm_link *link)
{
	struct reef_frame frame;

	if (reef_stream_receive(link->stream, &frame))
		return -REEF_ENOLINK;
	if (frame.fd >= 0)
		close(frame.fd);
	return reef_frame_bye_reason(&frame);
}

int shm_connect(struct reef_layer *layer, struct reef_queue *base,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct reef_hello_local local =
		reef_hello_local("shm", &shm->fabric.options);
	struct reef_address parsed;
	struct shm_link *link;
	struct shm_peer *peer;
	int fd, rc;

	rc = parse_address(address, &parsed);
	if (rc)
		return rc;
	fd = reef_socket_connect(&parsed);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&shm->lock);
	rc = shm_peer_take(shm, fd, false, &peer);
	if (rc) {
		close(fd);
		goto out;
	}
	rc = make_link(queue, fd, peer, &link);
	if (rc) {
		shm_peer_give(shm, peer);
		goto out;
	}
	reef_link_set_owner(&link->link, options->session, options->number,
			    options->identity);
	link->link.control = &link->quiet; /* until CONTROL says which */
	link->wants_ring = options->short_messages;
	rc = reef_hello_connect(link->stream, &local, options, &link->hello);
	if (rc == -REEF_ENOLINK)
		rc = read_refusal(link);
	if (rc)
		shm_link_free(link);
	else
		*out = &link->link;
out:
	pthread_mutex_unlock(&shm->lock);
	return rc;
}

void shm_disconnect(struct reef_layer *layer, struct reef_link *base)
{
	struct shm_link *link = (struct shm_link *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);

	pthread_mutex_lock(&shm->lock);
	fail_pending((struct shm_queue *)base->queue, link);
	shm_link_free(link);
	pthread_mutex_unlock(&shm->lock);
}

/* --- time --- */

void shm_link_leave(struct shm_link *link)
{
	shm_ring_leave(link);
	/* Remotes stay until their link is closed, without their mappings. */
	shm_remotes_unmap(link);
	close_stream(link);
	shm_remotes_settle(link);
	link->leaving = 0;
}

static bool is_silent(const struct shm_link *link, uint64_t since_ns,
		      uint64_t now_ns)
{
	uint64_t heard_ns = reef_stream_heard_ns(link->stream);
	uint64_t last_ns = heard_ns > since_ns ? heard_ns : since_ns;

	return now_ns > last_ns &&
	       now_ns - last_ns > link->link.fabric->options.silence_ns;
}

static bool is_overdue(const struct shm_link *link, bool opening,
		       uint64_t now_ns)
{
	uint64_t silence_ns = link->link.fabric->options.silence_ns;

	if (link->pending && is_silent(link, link->moved_ns, now_ns))
		return true;
	if (link->attaching && is_silent(link, link->asked_ns, now_ns))
		return true;
	/* The deadline of a connected link that opens is its caller's. */
	return link->is_accepted && opening && !link->ending &&
	       now_ns > link->since_ns + silence_ns;
}

/* End the link of a dead process when all that it had sent is read. A child of
 * it may keep the socket open, so the end of the socket is not awaited; nor the
 * end of what comes, if that is more than can have been on its way. */
static void finish_dead(struct shm_queue *polling, struct shm_link *link,
			int before, int *count)
{
	bool has_more = link->has_held || link->has_more;

	if (!has_more)
		has_more = shm_ring_delays_end(polling, link, count);
	link->read_after_death += (uint32_t)(*count - before);
	if (has_more && link->read_after_death < READ_AFTER_DEATH_MAX)
		return;
	shm_link_end(polling, link, -REEF_ENOLINK, true);
	*count += 1;
}

/* Do what is due for one link, which may free it. True: something is still to
 * come that no descriptor announces. */
static bool tend_link(struct shm_queue *polling, struct shm_link *link,
		      uint64_t now_ns, int *count)
{
	bool opening = atomic_load(&link->link.state) == REEF_LINK_OPENING;
	bool dying = link->peer->dead && !link->ending && !link->leaving;
	bool restless = link->is_accepted && opening;
	int before;

	if (link->leaving) {
		if (!reef_grace_is_over(link->leaving))
			return true;
		shm_link_leave(link);
		return false;
	}
	if (!link->stream)
		return false;
	if (is_overdue(link, opening, now_ns)) {
		shm_link_end(polling, link, -REEF_ENOLINK, opening);
		*count += 1;
		return true;
	}
	if (link->ending && link->holds) {
		shm_peer_hurry(link, &link->patience, now_ns);
		restless = true;
	}
	if (!link->pending && !link->attaching && !link->has_held &&
	    !link->has_more && !link->unsettled)
		return restless;
	/* An accepted link is served by its own queue only. */
	if (link->is_accepted && link->link.queue != &polling->queue)
		return true;
	before = *count;
	*count += shm_link_serve(polling, link);
	if (dying && !link->ending && !link->leaving)
		finish_dead(polling, link, before, count);
	return true;
}

int shm_links_tend(struct shm_queue *polling)
{
	struct shm_fabric *shm = shm_of(polling->queue.fabric);
	struct shm_listener *listener;
	struct shm_link *link, *next;
	uint64_t now_ns = reef_now_ns();
	bool restless = false;
	int count = 0;

	atomic_store(&shm->restless, false);
	for (link = shm->links; link; link = next) {
		next = link->next;
		restless |= tend_link(polling, link, now_ns, &count);
	}
	for (listener = shm->listeners; listener; listener = listener->next) {
		if (!listener->paused_ns)
			continue;
		restless = true;
		if (listener->listener.queue != &polling->queue ||
		    now_ns - listener->paused_ns < PAUSE_NS)
			continue;
		if (!shm_source_add(polling, listener->fd, EPOLLIN,
				    SHM_LISTENER, listener))
			listener->paused_ns = 0;
	}
	if (restless)
		atomic_store(&shm->restless, true);
	return count;
}

bool shm_links_await_grace(const struct shm_fabric *shm)
{
	const struct shm_link *link;

	for (link = shm->links; link; link = link->next)
		if (link->leaving || shm_remotes_await_grace(link))
			return true;
	return false;
}
