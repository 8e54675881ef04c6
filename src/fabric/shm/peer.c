/* peer.c - the processes on the other side: who they are, whether they live,
 * and their end.
 *
 *   UNKNOWN --take--> ALIVE --(pidfd readable)--> DEAD
 *                       `--(fence: SIGKILL)--------^
 *
 * A pidfd names a process, not a number that can be given to another. It is
 * readable when every thread of the process has ended; the kernel drops a
 * process's mappings before that, so a DEAD peer cannot touch memory. */
#include "fabric/shm/shm.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; older headers */
#endif

static bool is_readable(int pidfd)
{
	struct pollfd pollfd = {.fd = pidfd, .events = POLLIN};

	return poll(&pollfd, 1, 0) == 1;
}

static int send_signal(int pidfd, int number)
{
	return syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) ? -errno
								      : 0;
}

bool shm_peer_is_dead(struct shm_peer *peer)
{
	if (!peer->dead && !peer->self && peer->pidfd >= 0)
		peer->dead = is_readable(peer->pidfd);
	return peer->dead;
}

/* A pidfd of the process at the other end: that connected, or that listens. */
static int open_pidfd(int fd, pid_t pid)
{
	socklen_t size = sizeof(int);
	int pidfd;

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size))
		return pidfd;
	if (errno != ENOPROTOOPT)
		return -errno;
	/* On an older kernel the process could have died, and its number been
	 * given away, since it connected. It has yet to prove its key over this
	 * socket, so what remains is a process that left the socket to its own
	 * child and died in between. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

static struct shm_peer *find_peer(struct shm_fabric *shm, pid_t pid)
{
	struct shm_peer *peer;

	for (peer = shm->peers; peer; peer = peer->next)
		/* While a process lives no other has its number. */
		if (peer->pid == pid && (peer->self || peer->pidfd >= 0) &&
		    !shm_peer_is_dead(peer))
			return peer;
	return NULL;
}

/* Only who can be killed can be fenced. The check asks the kernel, which knows
 * about users, capabilities and name spaces. It is made for every link that is
 * accepted: the process may be known from one that we made, and may have
 * changed its user since the last. */
static bool may_be_killed(const struct shm_peer *peer)
{
	int rc;

	if (peer->self)
		return true;
	rc = peer->pidfd < 0 ? -EPERM : send_signal(peer->pidfd, 0);
	/* -ESRCH: the process has ended, and the end of its socket follows. */
	return !rc || rc == -ESRCH;
}

int shm_peer_take(struct shm_fabric *shm, int fd, bool accepting,
		  struct shm_peer **out)
{
	socklen_t size = sizeof(struct ucred);
	struct ucred credentials;
	struct shm_peer *peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
		return -errno;
	peer = find_peer(shm, credentials.pid);
	if (peer) {
		if (accepting && !may_be_killed(peer))
			return -EPERM;
		peer->refs++;
		*out = peer;
		return 0;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	peer->pid = credentials.pid;
	peer->self = credentials.pid == getpid();
	peer->pidfd = -1;
	peer->refs = 1;
	if (!peer->self)
		peer->pidfd = open_pidfd(fd, credentials.pid);
	if (peer->pidfd < 0)
		peer->pidfd = -1;
	if (accepting && !may_be_killed(peer)) {
		if (peer->pidfd >= 0)
			close(peer->pidfd);
		free(peer);
		return -EPERM;
	}
	peer->next = shm->peers;
	shm->peers = peer;
	*out = peer;
	return 0;
}

void shm_peer_give(struct shm_fabric *shm, struct shm_peer *peer)
{
	struct shm_peer **at = &shm->peers;

	if (!peer || --peer->refs)
		return;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	if (peer->pidfd >= 0) {
		shm_source_remove(shm, peer->pidfd);
		close(peer->pidfd);
	}
	free(peer);
}

int shm_peer_watch(struct shm_queue *queue, struct shm_peer *peer)
{
	if (peer->pidfd < 0 || peer->dead)
		return 0;
	return shm_source_add(queue, peer->pidfd, EPOLLIN, SHM_PEER, peer);
}

void shm_peer_kill(struct shm_peer *peer)
{
	int rc;

	reef_assert(!peer->self && peer->pidfd >= 0);
	rc = send_signal(peer->pidfd, SIGKILL);
	/* The process may have changed its user since it was let in. Then the
	 * fence is not confirmed before the process ends by itself. */
	if (rc && rc != -ESRCH)
		reef_log(REEF_LOG_ERROR, "shm", "cannot kill process %d: %s",
			 (int)peer->pid, reef_error_name(rc));
}

/* Time in which this process stood still, or had no room for a message that
 * the peer sent before its answer, is not the peer's fault. The latter is
 * counted a little, or a peer that sends messages without end had no end. */
static uint64_t count_wait(const struct shm_link *link,
			   const struct shm_patience *patience, uint64_t now_ns)
{
	uint64_t most_ns = link->link.fabric->options.silence_ns / 8;
	uint64_t passed_ns = now_ns - patience->looked_ns;

	if (!patience->looked_ns || now_ns < patience->looked_ns)
		return 0;
	if (passed_ns > most_ns)
		passed_ns = most_ns;
	if (link->has_held && link->held.type == REEF_FRAME_MESSAGE)
		passed_ns /= 8;
	return passed_ns;
}

void shm_peer_hurry(struct shm_link *link, struct shm_patience *patience,
		    uint64_t now_ns)
{
	struct shm_peer *peer = link->peer;

	if (peer->self || peer->pidfd < 0 || peer->killed)
		return;
	patience->waited_ns += count_wait(link, patience, now_ns);
	patience->looked_ns = now_ns;
	if (patience->waited_ns <= link->link.fabric->options.silence_ns ||
	    shm_peer_is_dead(peer))
		return;
	reef_log(REEF_LOG_WARNING, "shm",
		 "process %d does not let go of memory, and is killed",
		 (int)peer->pid);
	peer->killed = true;
	shm_peer_kill(peer);
}

/* --- fencing, and ending links --- */

/* Fence one link. True: nothing of it can take effect any more. */
static bool fence_link(struct shm_queue *queue, struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	/* A process that has closed its end has unmapped before that. It is not
	 * killed only because this side has not read the end yet. */
	if (!link->fenced && (!link->stream || shm_link_has_hung_up(link))) {
		link->fenced = true;
		shm_link_end(queue, link, -REEF_EFENCED, true);
		return true;
	}
	if (!link->fenced) {
		link->fenced = true; /* what it still sends is not read */
		shm_control_change(shm, link, SHM_CONTROL_FENCED);
		if (link->stream)
			reef_stream_bye(link->stream, -REEF_EFENCED);
		if (link->peer->self)
			link->end_grace = reef_grace_begin();
		else if (!shm_peer_is_dead(link->peer))
			shm_peer_kill(link->peer);
	}
	if (link->peer->self ? !reef_grace_is_over(link->end_grace)
			     : !shm_peer_is_dead(link->peer))
		return false;
	shm_link_end(queue, link, -REEF_EFENCED, true);
	return true;
}

int shm_fence(struct reef_layer *layer, struct reef_queue *base,
	      uint32_t session)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_link *link, *next;
	bool confirmed = true;

	pthread_mutex_lock(&shm->lock);
	reef_fences_add(&shm->fences, session);
	reef_numbers_fence(&shm->numbers, session);
	for (link = shm->links; link; link = next) {
		next = link->next;
		if (link->admitted &&
		    reef_session_covers(session, link->link.session))
			confirmed &= fence_link(queue, link);
	}
	pthread_mutex_unlock(&shm->lock);
	return confirmed ? 0 : -EAGAIN;
}

/* End one link without harm to its process. True: nothing of it can take effect
 * any more. May free it. */
static bool end_link(struct shm_queue *queue, struct shm_link *link)
{
	bool gone = !link->stream || shm_link_has_hung_up(link) ||
		    shm_peer_is_dead(link->peer);

	if (gone) {
		shm_link_end(queue, link, -REEF_ENOLINK, true);
		return true;
	}
	if (!link->ending && !link->fenced)
		shm_link_end(queue, link, -REEF_ENOLINK, false);
	return !link->holds ||
	       (link->peer->self && reef_grace_is_over(link->end_grace));
}

int shm_end_links(struct reef_layer *layer, struct reef_queue *base,
		  uint32_t session, uint32_t number)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_link *link, *next;
	bool confirmed = true;
	int rc;

	pthread_mutex_lock(&shm->lock);
	rc = reef_numbers_use(&shm->numbers, session, number);
	for (link = shm->links; !rc && link; link = next) {
		next = link->next;
		if (link->admitted &&
		    reef_numbers_end_covers(session, number, link->link.session,
					    link->link.number))
			confirmed &= end_link(queue, link);
	}
	pthread_mutex_unlock(&shm->lock);
	return rc ? rc : confirmed ? 0 : -EAGAIN;
}
