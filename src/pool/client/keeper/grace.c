/* grace.c - when a link or a remote may go.
 *
 * A handle finds a link and a remote in its cache, or in the view, and uses
 * them without a lock. The keeper takes them out of the view, moves `version`,
 * and closes them after a grace:
 *
 *   handle                                keeper
 *     inside[phase] + 1                     out of the view, version + 1
 *     (1) -----------------------           (2), until inside[!phase] is 0
 *     version as seen? use the cache        phase + 1
 *     inside[phase] - 1 (release)           (2), until inside[!phase] is 0
 *                                           (acquire): close
 *
 * (1) Either the handle's count is noted, or its load of version comes after
 *     the keeper moved it: a full barrier at (1) and (2). Calls are many and
 *     graces few, so (1) is a compiler barrier and (2) is membarrier(2), which
 *     makes every running thread of the process execute one. Where the kernel
 *     has none, (1) is an atomic exchange.
 * (2) Fibers of one handle come and go, so its count may never be 0. With two
 *     counts, and newcomers in one of them only, the other runs empty. Who read
 *     the phase long ago may still join the wrong one: hence both are awaited.
 * (3) A fiber or task that waits for the keeper is outside. */
#include "pool/client/keeper/grace.h"

#include "pool/client/handle/handle.h"
#include "pool/client/keeper/keeper.h"

#include "base/mutant.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

bool client_strong;

static int barrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void init(void)
{
	client_strong = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
#ifdef THREAD_SANITIZER
	/* It does not know membarrier. */
	client_strong = true;
#endif
}

void client_grace_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init);
}

void client_grace_barrier(void)
{
	if (!client_strong && barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
		barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
		barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	}
}

static void retire(struct reef_client *client, struct reef_peer *peer,
		   struct reef_remote *remote)
{
	struct client_retired *retired = malloc(sizeof(*retired));

	/* Without memory it stays until the rpc and its port are closed. */
	if (!retired)
		return;
	*retired = (struct client_retired){.peer = peer, .remote = remote};
	*client->retired_tail = retired;
	client->retired_tail = &retired->next;
	client_wake(&client->changed);
}

void client_retire_peer(struct reef_client *client, struct reef_peer *peer)
{
	retire(client, peer, NULL);
}

void client_retire_remote(struct reef_client *client,
			  struct reef_remote *remote)
{
	retire(client, NULL, remote);
}

static void bury(struct reef_client *client, struct client_retired *retired)
{
	struct client_retired *next;

	for (; retired; retired = next) {
		next = retired->next;
		if (retired->peer)
			reef_peer_close(retired->peer);
		else
			reef_detach(reef_port_queue_of(client->port,
						       retired->remote->link),
				    retired->remote);
		free(retired);
	}
}

static struct client_retired *take(struct reef_client *client)
{
	struct client_retired *retired = client->retired;

	client->retired = NULL;
	client->retired_tail = &client->retired;
	return retired;
}

void client_bury(struct reef_client *client)
{
	bury(client, take(client));
}

static bool have_left(struct reef_client *client, uint32_t phase)
{
	struct reef *reef;
	bool left = true;

	pthread_mutex_lock(&client->lock);
	for (reef = client->handles; reef && left; reef = reef->next)
		left = !atomic_load_explicit(&reef->inside[phase],
					     memory_order_acquire);
	pthread_mutex_unlock(&client->lock);
	return left;
}

static int wait_until_left(struct reef_client *client, uint32_t phase)
{
	uint64_t pause_ns = CLIENT_MILLISECOND / 20;
	int rc = 0;

	client_grace_barrier();
	while (!rc && !have_left(client, phase) && !client->stopping) {
		rc = reef_sleep(pause_ns);
		if (pause_ns < 10 * CLIENT_MILLISECOND)
			pause_ns *= 2;
	}
	return rc;
}

int client_grace_main(void *arg)
{
	struct reef_client *client = arg;
	struct client_retired *retired;
	uint32_t phase;
	int rc = 0;

	while (!rc && !client->stopping) {
		/* The mutant's handles never take another view. */
		if (!client->retired || REEF_MUTATED(CLIENT_STALE_EXTENT)) {
			rc = client_wait(&client->changed, REEF_FOREVER);
			continue;
		}
		retired = take(client);
		phase = atomic_load(&client->phase) & 1;
		rc = wait_until_left(client, !phase);
		atomic_store(&client->phase, !phase);
		if (!rc)
			rc = wait_until_left(client, phase);
		bury(client, retired);
	}
	client_fiber_end(client);
	return 0;
}
