/* recover.c - dead sessions: what the broker asks a client that has a space
 * open to put in order there; and the page where a session leaves its intents.
 *
 *   RECOVER space, sessions --> their pages: every kind's `recover`
 *                           --> their chunks and blocks: reef_heap_recover
 *                           --> answer; the free blocks go to the next heap
 *
 * It runs in the keeper, with a handle of its own, once at a time in a space,
 * and may be asked again: each step is idempotent. A heap in which blocks wait
 * to be judged is given to no handle; it is collected now and then, and then
 * they are judged, whoever may have asked for them. */
#include "pool/client/handle/recover.h"

#include "pool/client/handle/space.h"
#include "pool/client/keeper/job.h"
#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE 4096

static const struct reef_kind_ops *kinds[REEF_BLOCK_KINDS];

void reef_kind_register(uint8_t kind, const struct reef_kind_ops *ops)
{
	reef_assert(kind > REEF_BLOCK_PAGE && !kinds[kind]);
	kinds[kind] = ops;
}

bool client_kind_is_quick(uint8_t kind)
{
	return kinds[kind] && kinds[kind]->is_live && kinds[kind]->is_quick;
}

int client_kind_is_live(struct reef_space *space, uint8_t kind,
			uint64_t address)
{
	const struct reef_kind_ops *ops = kinds[kind];

	/* The kind may be a newer library's, or of one that this program was
	 * linked without: a block that nobody can judge stays. */
	if (!ops)
		return kind > REEF_BLOCK_PAGE;
	if (!ops->is_live)
		return 0;
	return ops->is_live(space->reef, space, address);
}

/* --- the page --- */

/* Get the address of the session's page; 0: this handle is to make the page.
 * -EAGAIN: another handle is making it. */
static int claim_page(struct reef_space *space, uint64_t *address)
{
	struct reef_client *client = space->reef->client;
	int rc = 0;

	pthread_mutex_lock(&client->lock);
	*address = space->space->page;
	if (!*address && space->space->page_making)
		rc = -EAGAIN;
	else if (!*address)
		space->space->page_making = true;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

static int make_page(struct reef_space *space, uint64_t *address)
{
	static const uint8_t zeros[PAGE_SIZE];
	int rc;

	rc = reef_alloc_kind(space, REEF_BLOCK_PAGE, PAGE_SIZE, address);
	if (!rc)
		rc = reef_write(space->reef, *address, zeros, PAGE_SIZE);
	return rc;
}

int reef_session_page(struct reef_space *space, uint64_t *out)
{
	struct reef_client *client = space->reef->client;
	uint64_t address;
	int rc;

	while ((rc = claim_page(space, &address)) == -EAGAIN) {
		rc = reef_sleep(CLIENT_MILLISECOND);
		if (rc)
			return rc;
	}
	if (!address) {
		rc = make_page(space, &address);
		pthread_mutex_lock(&client->lock);
		space->space->page_making = false;
		if (!rc)
			space->space->page = address;
		pthread_mutex_unlock(&client->lock);
	}
	if (!rc)
		*out = address;
	return rc;
}

int reef_session_check(struct reef *reef, uint32_t session,
		       enum reef_session_view *out)
{
	struct client_check_job *job;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	job = client_job_create(&client_check_ops);
	if (!job)
		return -ENOMEM;
	job->session = session;
	rc = client_job_run(reef->client, &reef->member, &job->job);
	if (!rc)
		*out = job->view;
	client_job_unref(&job->job);
	return rc;
}

/* --- recovery --- */

static int recover_page(void *context, uint32_t session, uint64_t address,
			uint64_t size)
{
	struct reef_space *space = context;
	uint32_t kind;
	int rc = 0;

	for (kind = 0; kind < REEF_BLOCK_KINDS && !rc; kind++)
		if (kinds[kind] && kinds[kind]->recover)
			rc = kinds[kind]->recover(space->reef, space, session,
						  address, size);
	return rc;
}

static struct client_space *find_space(struct reef_client *client, uint32_t id)
{
	struct client_space *space;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		if (space->id == id && !space->gone)
			break;
	if (space)
		space->refs++;
	pthread_mutex_unlock(&client->lock);
	return space;
}

/* Find a space that may be just being opened: the broker can ask for help there
 * before the answer that opens it was taken in. */
static struct client_space *wait_for_space(struct reef_client *client,
					   uint32_t id)
{
	uint64_t until_ns = reef_now_ns() + CLIENT_SECOND, now_ns;
	struct client_space *space;

	while (!(space = find_space(client, id)) && !client->stopping) {
		now_ns = reef_now_ns();
		if (now_ns >= until_ns ||
		    client_wait(&client->changed, until_ns - now_ns))
			break;
	}
	return space;
}

int client_inner_attach(struct reef_client *client, struct client_space *known,
			struct reef_space **out)
{
	int rc = 0;

	if (!client->inner)
		rc = client_handle_open(client, client->sched, &client->inner);
	if (!rc)
		return client_space_attach(client->inner, known, out);
	pthread_mutex_lock(&client->lock);
	known->refs--;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* Bring the heap to the front of the list in which blocks wait since a recovery
 * that failed. */
static void prefer_judging_heap(struct reef_client *client,
				struct client_space *known)
{
	struct client_heap **at, *heap;

	pthread_mutex_lock(&client->lock);
	for (at = &known->heaps; (heap = *at); at = &heap->next)
		if (reef_heap_is_judging(heap->heap, 0))
			break;
	if (heap) {
		*at = heap->next;
		heap->next = known->heaps;
		known->heaps = heap;
	}
	pthread_mutex_unlock(&client->lock);
}

/* What the broker is told of a session's recovery. */
static int settle_status(const struct reef_client *client,
			 const struct client_space *known, uint32_t session,
			 int rc)
{
	/* What made no sense stays unused, and that is all there is to do. */
	if (rc == -REEF_ECORRUPT) {
		reef_log(REEF_LOG_WARNING, "client",
			 "recovery of session %08x in space %u left what makes "
			 "no sense",
			 session, known->id);
		return 0;
	}
	/* A space that is gone needs no recovery. */
	if (rc == -REEF_ELOST && known->gone)
		return 0;
	/* A client that ends during a recovery leaves it to another. */
	if (rc && !client->stopping && !client_over(client))
		reef_log(reef_recovery_may_pass(rc) ? REEF_LOG_INFO
						    : REEF_LOG_WARNING,
			 "client", "recovery of session %08x in space %u: %s",
			 session, known->id, reef_error_text(rc));
	return rc;
}

/* Open a space that this client has not opened, by its number: a janitor has
 * all rights everywhere. */
static int open_by_number(struct reef_client *client, uint32_t id,
			  struct client_space **out)
{
	struct client_open_job *job = client_job_create(&client_open_ops);
	int rc;

	if (!job)
		return -ENOMEM;
	job->ask.space = id;
	rc = client_open_ops.run(client, &job->job);
	if (!rc)
		*out = job->space;
	client_job_destroy(&job->job);
	return rc;
}

/* Find the space to recover in; takes a reference. */
static int find_or_open(struct reef_client *client, uint32_t id,
			struct client_space **out)
{
	*out = client->janitor ? find_space(client, id)
			       : wait_for_space(client, id);
	if (*out)
		return 0;
	return client->janitor ? open_by_number(client, id, out) : -ENOENT;
}

/* Wait for our turn in a space, and take it. */
static int begin_turn(struct reef_client *client, struct client_space *space)
{
	uint64_t until_ns = reef_now_ns() + client->ttl_ns, now_ns;
	int rc = 0;

	while (space->recovering && !rc) {
		now_ns = reef_now_ns();
		if (now_ns >= until_ns || client->stopping)
			return -EBUSY;
		rc = client_wait(&client->changed, until_ns - now_ns);
	}
	if (!rc)
		space->recovering = true;
	return rc;
}

static void end_turn(struct reef_client *client, struct client_space *space)
{
	space->recovering = false;
	client_wake(&client->changed);
}

/* Takes the reference over. */
static int recover_in_space(struct reef_client *client,
			    struct client_space *known,
			    const struct reef_ask_recover *ask,
			    struct reef_reply_recover *reply)
{
	struct reef_heap_recovery list[REEF_RECOVER_MAX] = {0};
	struct reef_space *space;
	uint32_t count = 0;
	int rc;

	while (count < REEF_RECOVER_MAX && ask->sessions[count]) {
		list[count].session = ask->sessions[count];
		count++;
	}
	rc = client_inner_attach(client, known, &space);
	if (rc)
		return rc;
	/* The dead sessions may have grown the space without our knowledge. */
	rc = client_view_refresh(client, known, client_patience_ns(client));
	prefer_judging_heap(client, known);
	if (!rc)
		rc = client_heap_get(space);
	if (!rc)
		reef_heap_recover(space->heap->heap, list, count, recover_page,
				  space);
	reef_space_close(space);
	for (uint32_t i = 0; i < count; i++)
		reply->errors[i] =
			(uint32_t)-settle_status(client, known, list[i].session,
						 rc ? rc : list[i].status);
	return 0;
}

int client_session_recover(struct reef_client *client,
			   const struct reef_request *request,
			   struct reef_body *answer)
{
	const struct reef_ask_recover *ask = &request->body.ask.recover;
	struct client_space *space = NULL;
	int rc;

	if (client->stopping || client_over(client))
		return -EAGAIN;
	client->fibers++; /* so that the keeper waits for this */
	rc = find_or_open(client, ask->space, &space);
	if (!rc && !(space->rights & REEF_RIGHT_WRITE))
		rc = -EACCES;
	if (!rc)
		rc = begin_turn(client, space);
	if (rc && space) {
		pthread_mutex_lock(&client->lock);
		space->refs--;
		pthread_mutex_unlock(&client->lock);
	}
	if (!rc) {
		rc = recover_in_space(client, space, ask,
				      &answer->reply.recover);
		end_turn(client, space);
	}
	client_fiber_end(client);
	return rc;
}

/* --- heaps that no handle has --- */

/* Chunks of such heaps that have become empty, because others freed what was
 * there or because limbo is over, go back to the space: only then is what was
 * recovered of use to others. Limbo is drained with each safe_epoch, which a
 * hurry makes soon; and everything is collected now and then, for a few rounds.
 * While anybody lacks memory it is collected in every round, and asked about
 * (heap.h, rule 11): whoever is short asks about the blocks of its own heap
 * only.
 */
#define COLLECTS_MAX 16

enum round {
	ROUND_LIMBO, /* heaps whose limbo is over */
	ROUND_ALL,   /* all, a few times each */
	ROUND_SHORT, /* all: somebody lacks memory */
};

/* True if blocks in the heap's limbo may be used again. */
static bool is_limbo_over(const struct reef_client *client,
			  const struct client_heap *heap)
{
	uint64_t epoch;

	return reef_heap_is_waiting(heap->heap, &epoch) &&
	       epoch < atomic_load(&client->safe_epoch);
}

static bool is_due(const struct reef_client *client,
		   const struct client_heap *heap, enum round round)
{
	if (round == ROUND_LIMBO)
		return is_limbo_over(client, heap);
	return round == ROUND_SHORT || heap->idle < COLLECTS_MAX ||
	       reef_heap_is_judging(heap->heap, 0);
}

/* Bring a heap that is to be collected in this round to the front of its
 * space's list. False: there is none. */
static bool bring_to_front(struct reef_client *client,
			   struct client_space *space, enum round round)
{
	struct client_heap **at, *heap;

	for (at = &space->heaps; (heap = *at); at = &heap->next)
		if (heap->collected != client->collects &&
		    is_due(client, heap, round))
			break;
	if (!heap)
		return false;
	*at = heap->next;
	heap->next = space->heaps;
	space->heaps = heap;
	heap->collected = client->collects;
	return true;
}

/* Find a space with a heap to collect in this round, which is then the first in
 * its list; takes a reference to the space. */
static struct client_space *find_collectable(struct reef_client *client,
					     enum round round)
{
	struct client_space *space;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		if (!space->gone && !space->recovering &&
		    bring_to_front(client, space, round))
			break;
	if (space)
		space->refs++;
	pthread_mutex_unlock(&client->lock);
	return space;
}

/* Collect the first heap of a space's list, which is then the last. */
static void collect_heap(struct reef_space *space, enum round round)
{
	bool all = round != ROUND_LIMBO;

	if (client_heap_get(space))
		return;
	if (all && reef_heap_is_judging(space->heap->heap, 0))
		reef_heap_recover(space->heap->heap, NULL, 0, recover_page,
				  space);
	if (round == ROUND_SHORT)
		reef_heap_ask(space->heap->heap);
	space->heap->idle += round == ROUND_ALL;
	client_heap_put(space, all);
}

static void collect_heaps(struct reef_client *client, enum round round)
{
	struct client_space *known;
	struct reef_space *space;

	client->collects++;
	while (!client->stopping && (known = find_collectable(client, round))) {
		/* A recovery must find the heap in which blocks wait. */
		known->recovering = true;
		if (client_inner_attach(client, known, &space)) {
			end_turn(client, known);
			return;
		}
		client->giving++;
		collect_heap(space, round);
		client->giving--;
		end_turn(client, known);
		reef_space_close(space);
	}
}

void client_heaps_abandon(struct reef_client *client)
{
	struct client_space *known;
	struct client_heap *heap;
	struct reef_space *space;
	uint32_t count;

	/* A WRITE that is not settled may be one to such a block: then they
	 * are left to recovery, which begins when we are FENCED. */
	if (atomic_load(&client->unsettled))
		return;
	for (known = client->spaces; known; known = known->next) {
		count = 0;
		for (heap = known->heaps; heap; heap = heap->next)
			count++;
		if (known->gone || !count || client_over(client))
			continue;
		pthread_mutex_lock(&client->lock);
		known->refs++;
		pthread_mutex_unlock(&client->lock);
		if (client_inner_attach(client, known, &space))
			return;
		/* This takes the first heap of the list, and puts it last. */
		while (count-- && !client_heap_get(space)) {
			reef_heap_abandon(space->heap->heap);
			client_heap_put(space, true);
		}
		reef_space_close(space);
	}
}

int client_collect_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t next_ns = reef_now_ns() + client->ttl_ns, now_ns;
	uint64_t safe, seen = 0, short_until_ns = 0;
	uint32_t shorts = atomic_load(&client->shorts);
	int rc = 0;

	while (!rc && !client->stopping && !client_over(client)) {
		now_ns = reef_now_ns();
		safe = atomic_load(&client->safe_epoch);
		if (now_ns >= next_ns ||
		    (safe != seen && shorts != atomic_load(&client->shorts))) {
			/* To note a block and to ask are two rounds, with the
			 * end of an epoch in between. */
			if (shorts != atomic_load(&client->shorts))
				short_until_ns = now_ns + 2 * client->ttl_ns;
			shorts = atomic_load(&client->shorts);
			seen = safe;
			collect_heaps(client, now_ns < short_until_ns
						      ? ROUND_SHORT
						      : ROUND_ALL);
			next_ns = reef_now_ns() + client->ttl_ns / 2;
		} else if (safe != seen) {
			seen = safe;
			collect_heaps(client, ROUND_LIMBO);
		} else {
			rc = client_wait(&client->changed, next_ns - now_ns);
		}
	}
	client_fiber_end(client);
	return 0;
}
