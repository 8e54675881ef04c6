/* tend.c - spaces give back what they do not need.
 *
 * A fiber of the keeper looks at each space in which this session has allocated
 * or freed, four times in a lease, and gives extents back in which nothing has
 * been for half a lease (heap/shrink.c). It has a heap of its own for that, as
 * a handle's heap is its thread's, and because what was seen the last time has
 * to be remembered.
 *
 * A janitor also takes back what others freed in chunks that are ABANDONED:
 * those have no owner that would, and would keep their extents.
 *
 * Where memory is short, in any space of the pool, it looks a few times more,
 * at once, and leaves no slack. */
#include "pool/client/handle/recover.h"
#include "pool/client/handle/space.h"

#define SHORT_NS (10 * CLIENT_MILLISECOND)
#define SHORT_ROUNDS 4u
#define TIDY_MAX 64u /* chunks, at a look */

/* Find the next space after the number `after` in the order of numbers; takes a
 * reference. NULL: there is none. */
static struct client_space *next_space(struct reef_client *client,
				       uint32_t after)
{
	struct client_space *space, *next = NULL;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		if (!space->gone && space->is_used && space->id > after &&
		    space->rights & REEF_RIGHT_WRITE &&
		    (!next || space->id < next->id))
			next = space;
	if (next)
		next->refs++;
	pthread_mutex_unlock(&client->lock);
	return next;
}

/* Take back what others freed in chunks that are nobody's. Errors are met again
 * by whoever needs that memory. */
static void tidy_heap(struct reef_heap *heap)
{
	(void)reef_heap_tidy(heap, TIDY_MAX);
	(void)reef_heap_collect(heap, false);
	(void)reef_heap_relinquish(heap);
}

static int tend_space(struct reef_client *client, struct client_space *known,
		      bool is_short)
{
	struct reef_space *space;
	int rc = client_inner_attach(client, known, &space);

	if (rc)
		return rc;
	space->heap = known->tender;
	known->tender = NULL;
	if (!space->heap)
		rc = client_heap_make(space);
	if (!rc) {
		reef_heap_move(space->heap->heap, &client_heap_ops, space);
		client_handle_refresh(space->reef);
		client->giving++;
		if (client->janitor)
			tidy_heap(space->heap->heap);
		rc = reef_heap_shrink(space->heap->heap,
				      is_short ? SHORT_NS : client->ttl_ns / 2,
				      is_short);
		client->giving--;
	}
	known->tender = space->heap;
	space->heap = NULL;
	/* Who closes a space last sees to its idle heaps, but those may be in
	 * somebody's hands (recover.c): so this is not the last. */
	pthread_mutex_lock(&client->lock);
	known->refs++;
	pthread_mutex_unlock(&client->lock);
	reef_space_close(space);
	pthread_mutex_lock(&client->lock);
	known->refs--;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

int client_tend_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t next_ns = reef_now_ns() + client->ttl_ns, now_ns;
	uint32_t after, shorts = atomic_load(&client->shorts), rounds = 0;
	struct client_space *space;
	int rc = 0;

	while (!rc && !client->stopping && !client_over(client)) {
		now_ns = reef_now_ns();
		if (shorts != atomic_load(&client->shorts)) {
			shorts = atomic_load(&client->shorts);
			if (!rounds && next_ns > now_ns + SHORT_NS)
				next_ns = now_ns + SHORT_NS;
			rounds = SHORT_ROUNDS;
		}
		if (now_ns < next_ns) {
			rc = client_wait(&client->changed, next_ns - now_ns);
			continue;
		}
		for (after = 0; !client->stopping && client->present &&
				(space = next_space(client, after));) {
			after = space->id;
			tend_space(client, space, rounds);
		}
		rounds -= rounds > 0;
		next_ns = reef_now_ns() +
			  (rounds ? SHORT_NS : client->ttl_ns / 4);
	}
	client_fiber_end(client);
	return 0;
}
