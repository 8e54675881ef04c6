/* budget.c - see budget.h. */
#include "gateway/redis/server/budget.h"

#include "base/log.h"
#include "gateway/redis/server/gather.h"
#include "gateway/redis/server/internal.h"
#include "gateway/redis/server/task.h"

/* Of OpenSSL, about, while it is used; and of a task's stack, what is touched.
 */
#define TLS_SIZE (UINT64_C(32) << 10)
#define TASK_SIZE (UINT64_C(24) << 10)

static uint64_t size_of_client(const struct redis_client *client)
{
	uint64_t size = redis_parser_memory(&client->parser) +
			redis_reply_memory(&client->reply) + client->scratch;

	/* What few have is asked for only where there is some. */
	if (client->transaction || client->watches)
		size += redis_transaction_memory(client);
	if (client->later)
		size += redis_later_memory(client);
	if (client->task)
		size += TASK_SIZE;
	if (client->tls)
		size += TLS_SIZE;
	return size;
}

bool redis_budget_charge(struct redis_client *client, bool is_gone)
{
	const uint64_t size = is_gone ? 0 : size_of_client(client);
	const bool is_more = size > client->charged;

	if (size == client->charged)
		return false;
	/* Only the thread itself writes it, others look. */
	atomic_fetch_add_explicit(&client->thread->charged,
				  size - client->charged, memory_order_relaxed);
	client->charged = size;
	return is_more;
}

uint64_t redis_budget_charged(const struct redis_door *door)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < door->thread_count; i++)
		sum += atomic_load_explicit(&door->threads[i].charged,
					    memory_order_relaxed);
	return sum;
}

/* The thread whose clients have most. */
static struct redis_thread *largest_thread(struct redis_door *door)
{
	struct redis_thread *most = &door->threads[0];
	uint32_t i;

	for (i = 1; i < door->thread_count; i++)
		if (atomic_load_explicit(&door->threads[i].charged,
					 memory_order_relaxed) >
		    atomic_load_explicit(&most->charged, memory_order_relaxed))
			most = &door->threads[i];
	return most;
}

static bool goes_before(const struct redis_client *a,
			const struct redis_client *b)
{
	if (!b || a->no_evict != b->no_evict)
		return !b || b->no_evict;
	return a->charged > b->charged;
}

/* The client that is to go first; NULL: none has anything. */
static struct redis_client *largest_client(const struct redis_thread *thread)
{
	struct redis_client *client, *most = NULL;

	for (client = thread->clients; client; client = client->next)
		if (client->charged && !client->is_dead &&
		    !client->is_gathered && goes_before(client, most))
			most = client;
	return most;
}

/* Take everything from a client that is to be closed, at the end of the round.
 */
static void empty_client(struct redis_client *client)
{
	client->is_dead = client->thread->has_killed = true;
	redis_task_abandon(client);
	redis_later_free(client);
	redis_transaction_reset(client);
	redis_parser_fini(&client->parser);
	redis_reply_break(&client->reply);
	redis_budget_charge(client, true);
}

void redis_budget_keep(struct redis_thread *thread)
{
	struct redis_door *door = thread->door;
	const uint64_t most = atomic_load_explicit(&door->config.memory_max,
						   memory_order_relaxed);
	struct redis_thread *largest;
	struct redis_client *client;

	while (most && redis_budget_charged(door) > most) {
		largest = largest_thread(door);
		if (largest != thread) {
			redis_serve_wake(largest);
			return;
		}
		client = largest_client(thread);
		if (!client)
			return;
		reef_log(REEF_LOG_WARNING, "redis",
			 "client %s is closed: all clients have more than "
			 "redis-memory-max, and it has most (%llu bytes)",
			 client->address, (unsigned long long)client->charged);
		thread->stats.evicted_clients++;
		empty_client(client);
	}
}
