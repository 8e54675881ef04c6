/* ready.h - the clients of a thread that have something to do without another
 * event: a task that can go on, requests that were put off for others, bytes
 * that TLS has decrypted already.
 *
 * (1) They get a turn after those who sent something, the longest waiting
 *     first, and the thread does not sleep while there is one.
 * (2) Nothing is read from a client that is ready.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_READY_H
#define REEF_GATEWAY_REDIS_SERVER_READY_H

#include "gateway/redis/server/thread.h"

static inline void redis_ready_add(struct redis_client *client)
{
	struct redis_thread *thread = client->thread;

	if (client->is_ready)
		return;
	client->is_ready = true;
	client->ready_next = NULL;
	client->ready_previous = thread->ready_last;
	if (thread->ready_last)
		thread->ready_last->ready_next = client;
	else
		thread->ready_first = client;
	thread->ready_last = client;
}

/* Harmless if it is not ready. */
static inline void redis_ready_remove(struct redis_client *client)
{
	struct redis_thread *thread = client->thread;

	if (!client->is_ready)
		return;
	client->is_ready = false;
	if (client->ready_previous)
		client->ready_previous->ready_next = client->ready_next;
	else
		thread->ready_first = client->ready_next;
	if (client->ready_next)
		client->ready_next->ready_previous = client->ready_previous;
	else
		thread->ready_last = client->ready_previous;
}

#endif
