/* test_client_acknowledge.c - who waits for acknowledged views waits for all
 * who could still use an old one; and safe_epoch comes with its view. */
#include "fabric/provider.h"
#include "fixture/pool_world.h"
#include "pool/broker/internal.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/view.h"
#include "pool/node/keep.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 8
#define LENGTH 1000 /* of the WRITE that is watched, and of no other */

/* Simulated hosts share this memory. */
static struct {
	uint64_t words[WORDS]; /* addresses, on both nodes */
	uint32_t step;
	uint32_t session;		/* that stops */
	uint64_t pinned;		/* the epoch that it has announced */
	const struct reef_batch *batch; /* the WRITE */
	bool has_returned;		/* from it */
	uint32_t waited;		/* 1: broker_epoch_wait has returned */
	int result;			/* of it */
	bool was_under_way;		/* the WRITE, then */
	uint8_t state;			/* of the session, then */
	bool is_violated;
	uint32_t noted;
} scene;

static uint32_t node_of(const struct member *member, uint32_t index)
{
	struct reef_node_status status;

	reef_node_status(member->pool->lenders[index].node, &status);
	return status.id;
}

/* Allocate words on both nodes, for all to use. */
static int allocate_words(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < WORDS; i++) {
		TRY(reef_alloc(space, 2 * MIB, &scene.words[i]));
		TRY(reef_keep(space, scene.words[i]));
	}
	scene.step = 1;
	return 0;
}

/* True if the view of a client has memory at a node. */
static bool has_memory_at(struct reef_client *client, uint32_t node)
{
	for (uint32_t i = 0; i < client->extents_room; i++)
		if (client->extents[i] && client->extents[i]->node == node &&
		    client->extents[i]->state != REEF_EXTENT_LOST)
			return true;
	return false;
}

/* --- in the broker --- */

/* Wait for everybody, and see how things are then. */
static void wait_for_all(struct reef_broker *broker, uint32_t space)
{
	const struct reef_state_session *session;
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	scene.result = broker_epoch_wait(broker, summary.pool_epoch, space);
	session = reef_state_session(broker->state, scene.session);
	scene.state = session ? session->state : REEF_SESSION_RECOVERED;
	scene.was_under_way =
		scene.batch && !scene.has_returned && !scene.batch->done;
	scene.waited = 1;
}

/* Cut the first node off from the broker, and wait until it is DEAD. */
static int lose_node(struct member *member)
{
	struct pool *pool = member->pool;
	uint32_t node = node_of(member, 0);

	reef_sim_partition(pool->host, pool->lenders[0].host, true);
	while (reef_state_node(pool->broker->state, node)->state !=
	       REEF_NODE_DEAD)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

/* --- calls under way --- */

struct watch {
	struct reef_layer layer;
};

static int note_write(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	if (batch->ops[0].kind == REEF_WRITE &&
	    batch->ops[0].length == LENGTH && !scene.batch)
		scene.batch = batch;
	return layer->next->ops.post(layer->next, queue, batch);
}

static void close_watch(struct reef_layer *layer)
{
	struct reef_layer *next = layer->next;

	free(layer);
	next->ops.close(next);
}

static int push_watch(struct member *member, struct reef_fabric *fabric)
{
	static const struct reef_fabric_ops ops = {
		.name = "watch",
		.close = close_watch,
		.post = note_write,
	};
	struct watch *self =
		member->number == 1 ? calloc(1, sizeof(*self)) : NULL;

	if (member->number == 1 && !self)
		return -ENOMEM;
	if (self) {
		self->layer.ops = ops;
		reef_fabric_push(fabric, &self->layer);
	}
	return 0;
}

/* The word of that node which comes first. */
static uint64_t word_at(struct member *member, uint32_t node)
{
	struct client_extent *extent;

	for (uint32_t i = 0; i < WORDS; i++) {
		extent = client_extent_find(member->client,
					    (uint32_t)(scene.words[i] >> 32));
		if (extent && extent->node == node)
			return scene.words[i];
	}
	return 0;
}

/* Write to the first node while it cannot be reached any more. */
static int writes_to_lost(struct member *member)
{
	uint8_t bytes[LENGTH] = {0};
	struct reef_space *space;
	uint64_t word;
	int rc;

	TRY(member_space(member, &space));
	TRY(allocate_words(member));
	word = word_at(member, node_of(member, 0));
	WANT(word);
	TRY(reef_write(member->reef, word, bytes, 8)); /* a link */
	reef_sim_partition(member->host, member->pool->lenders[0].host, true);
	scene.step = 2;
	rc = reef_write(member->reef, word, bytes, sizeof(bytes));
	scene.has_returned = true;
	WANT(rc == -REEF_ELOST || rc == -REEF_EINDOUBT);
	return member_await(member, &scene.step, 3);
}

static int waits_for_calls(struct member *member)
{
	struct reef_space *space;

	TRY(member_await(member, &scene.step, 2));
	TRY(member_space(member, &space));
	TRY(lose_node(member));
	TRY(broker_spawn(member->pool->broker, wait_for_all,
			 member->pool->note[0] ? 1 : 0));
	TRY(member_await(member, &scene.waited, 1));
	WANT(scene.result == 0 && scene.batch);
	WANT(!scene.was_under_way);
	WANT(!has_memory_at(member->pool->members[0].client,
			    node_of(member, 0)));
	scene.step = 3;
	return 0;
}

static int run_calls(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.witnesses = WITNESSES_MAX,
		.opened = push_watch,
		.note = {seed % 2},
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, writes_to_lost);
	pool_add(&pool, waits_for_calls);
	return pool_end(&pool);
}

/* --- a node that is away --- */

static int take_nothing(struct reef_keep *keep,
			const struct reef_memory_options *like,
			struct reef_kept *out)
{
	return 0;
}

static int add_nothing(struct reef_keep *keep,
		       const struct reef_keep_line *line,
		       struct reef_memory *memory)
{
	return 0;
}

static void forget_nothing(struct reef_keep *keep, uint32_t extent)
{
}

static void note_nothing(struct reef_keep *keep,
			 const struct reef_keep_head *head)
{
}

/* A node with this says that it keeps its memory; it is never started again. */
static const struct reef_keep_ops nothing_ops = {
	.take = take_nothing,
	.add = add_nothing,
	.forget = forget_nothing,
	.note = note_nothing,
};

/* Have a link to the first node, which only its broker cannot reach. */
static int has_link(struct member *member)
{
	struct reef_space *space;
	uint64_t word, value = 7;

	TRY(member_space(member, &space));
	TRY(allocate_words(member));
	word = word_at(member, node_of(member, 0));
	WANT(word);
	TRY(reef_write(member->reef, word, &value, 8));
	scene.step = 2;
	return member_await(member, &scene.step, 3);
}

/* Its fences are confirmed without it: so nobody who has acknowledged that it
 * is AWAY may look at its memory, where those who were fenced go on. */
static int waits_for_links(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_client *other;
	uint32_t node;

	TRY(member_await(member, &scene.step, 2));
	node = node_of(member, 0);
	other = pool->members[0].client;
	WANT(client_node_find(other, node)->peer);
	reef_sim_partition(pool->host, pool->lenders[0].host, true);
	while (reef_state_node(pool->broker->state, node)->state !=
	       REEF_NODE_AWAY)
		TRY(reef_sleep(MILLISECOND));
	TRY(broker_spawn(pool->broker, wait_for_all, 0));
	TRY(member_await(member, &scene.waited, 1));
	WANT(scene.result == 0);
	WANT(!client_node_find(other, node)->peer);
	WANT(has_memory_at(other, node));
	scene.step = 3;
	return 0;
}

static int run_away(uint64_t seed)
{
	struct reef_keep keep = {&nothing_ops};
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.witnesses = WITNESSES_MAX,
		.keep = &keep,
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, has_link);
	pool_add(&pool, waits_for_links);
	return pool_end(&pool);
}

/* --- a session that stops --- */

/* Pin an epoch, and be stopped. */
static int stops(struct member *member)
{
	struct reef_space *space;
	uint64_t value;

	TRY(member_await(member, &scene.step, 1));
	TRY(member_space(member, &space));
	reef_enter(member->reef);
	TRY(reef_read(member->reef, scene.words[0], &value, 8));
	TRY(reef_sleep(member->pool->ttl_ns)); /* it announces that */
	scene.session = reef_session(member->reef);
	scene.pinned = broker_session_find(member->pool->broker, scene.session)
			       ->oldest;
	scene.step = 2;
	(void)member_await(member, &scene.step, 3);
	reef_leave(member->reef);
	return 0;
}

static int waits_for_stopped(struct member *member)
{
	struct reef_sim_host *other = member->pool->members[0].host;

	TRY(allocate_words(member));
	TRY(member_await(member, &scene.step, 2));
	reef_sim_host_pause(other);
	TRY(lose_node(member));
	TRY(broker_spawn(member->pool->broker, wait_for_all, 0));
	TRY(member_await(member, &scene.waited, 1));
	WANT(scene.result == 0);
	WANT(scene.state >= REEF_SESSION_FENCED);
	WANT(!client_over(member->client));
	reef_sim_host_resume(other);
	scene.step = 3;
	return 0;
}

static int run_stopped(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = TTL,
		.node_ttl_ns = TTL / 2,
		.witnesses = WITNESSES_MAX,
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, stops);
	pool_add(&pool, waits_for_stopped);
	return pool_end(&pool);
}

/* --- safe_epoch --- */

/* Before each post of the second member: it does not believe that the stopped
 * session's epoch is over while its view has memory where that may go on. */
static void look_at_epochs(struct member *member, bool is_posted)
{
	(void)is_posted;
	if (member->number != 2 || !scene.noted || !member->client)
		return;
	if (atomic_load(&member->client->safe_epoch) > scene.pinned &&
	    has_memory_at(member->client, scene.noted))
		scene.is_violated = true;
}

/* The fence of the stopped session waits for the first node, until that is
 * DEAD. Notices of it are missed. */
static int believes(struct member *member)
{
	struct reef_sim_host *other = member->pool->members[0].host;

	TRY(allocate_words(member));
	TRY(member_await(member, &scene.step, 2));
	reef_sim_host_pause(other);
	scene.noted = node_of(member, 0);
	member->client->refreshing = true;
	TRY(lose_node(member));
	while (atomic_load(&member->client->safe_epoch) <= scene.pinned)
		TRY(reef_sleep(MILLISECOND));
	look_at_epochs(member, false);
	member->client->refreshing = false;
	WANT(!scene.is_violated);
	reef_sim_host_resume(other);
	scene.step = 3;
	return 0;
}

/* Let the second member stand still from the death of the node until safe_epoch
 * has risen: its next renewal brings both. */
static int stops_believer(struct member *member)
{
	const struct pool *pool = member->pool;
	const struct reef_state_node *node;

	while (!scene.noted)
		TRY(reef_sleep(MILLISECOND));
	node = reef_state_node(pool->broker->state, scene.noted);
	while (node->state != REEF_NODE_DEAD)
		TRY(reef_sleep(MILLISECOND / 20));
	reef_sim_host_pause(pool->members[1].host);
	while (pool->broker->safe_epoch <= scene.pinned)
		TRY(reef_sleep(MILLISECOND / 20));
	reef_sim_host_resume(pool->members[1].host);
	return 0;
}

static int run_safe(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = TTL,
		.node_ttl_ns = 3 * TTL,
		.witnesses = WITNESSES_MAX,
		.posts = look_at_epochs,
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, stops);
	pool_add(&pool, believes);
	pool_add(&pool, stops_believer);
	return pool_end(&pool);
}

/* --- all of them --- */

static void run_seeds(int (*run)(uint64_t seed), enum reef_mutant mutant)
{
	bool found = false;
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++)
		assert_int_equal(run(seed), 0);
	try_quiet = true;
	reef_mutate(mutant);
	for (seed = seeds_first(); seeds_has(seed, 400) && !found; seed++)
		found = run(seed) != 0;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void client_acknowledge_waits_for_calls_under_way(void **state)
{
	(void)state;
	run_seeds(run_calls, REEF_MUTANT_CLIENT_ACK_EARLY);
}

static void client_acknowledge_has_no_link_to_who_is_away(void **state)
{
	(void)state;
	run_seeds(run_away, REEF_MUTANT_CLIENT_AWAY_STALE);
}

static void client_acknowledge_of_a_stopped_session_is_its_fence(void **state)
{
	(void)state;
	run_seeds(run_stopped, REEF_MUTANT_BROKER_ACK_MISSING);
}

static void client_acknowledge_safe_epoch_comes_with_its_view(void **state)
{
	(void)state;
	run_seeds(run_safe, REEF_MUTANT_CLIENT_SAFE_FIRST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_acknowledge_waits_for_calls_under_way),
		cmocka_unit_test(client_acknowledge_has_no_link_to_who_is_away),
		cmocka_unit_test(
			client_acknowledge_of_a_stopped_session_is_its_fence),
		cmocka_unit_test(
			client_acknowledge_safe_epoch_comes_with_its_view),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
