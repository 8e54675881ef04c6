/* test_pool_nodes.c - real nodes under the real broker, in simulation: what
 * clients wrote is there after drains, restarts and lost links, and nothing
 * comes back from the dead. The clients speak raw calls. */
#include "fixture/broker_world.h"

#include "base/log.h"
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "pool/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENDERS 3
#define THINGS 8
#define SIZE 16384u
#define CAPACITY (32 * SIZE)
#define SEEDS seeds_of(10, 2000)

struct lender {
	struct broker_world *world;
	char name[8], where[16];
	struct reef_sim_host *host;
	struct reef_node *node;
};

static struct lender lenders[LENDERS];

static int lender_main(struct reef_sim_host *host, void *arg)
{
	struct lender *lender = arg;
	uint32_t number = (uint32_t)(lender - lenders) + 1;
	struct reef_node_key key;
	struct reef_node_options options = {
		.key = &key,
		.listen = lender->where,
		.capacity = CAPACITY,
		.seed = 1 + reef_random_below(reef_sim_host_random(host), 9999),
	};

	TRY(sim_node_key(&lender->world->key, number, &key));
	return sim_node_serve(&options, &lender->world->over, &lender->node);
}

static struct reef_node_status status_of(uint32_t lender)
{
	struct reef_node_status status = {.link = 1};

	if (lenders[lender].node)
		reef_node_status(lenders[lender].node, &status);
	return status;
}

/* --- a client's view --- */

struct view {
	struct actor *actor;
	uint32_t space;
	struct reef_row_extent extents[THINGS + 1];
	uint32_t count;
	struct at_node {
		uint32_t id;
		char address[64];
		uint8_t secret[REEF_KEY_SIZE];
		struct reef_link *link;
	} nodes[LENDERS];
	uint32_t nodes_count;
};

static void view_close(struct view *view)
{
	for (uint32_t i = 0; i < view->nodes_count; i++)
		reef_link_close(view->nodes[i].link);
	view->nodes_count = 0;
}

static struct at_node *node_of(struct view *view, uint32_t id)
{
	uint32_t i = 0;

	while (i < view->nodes_count && view->nodes[i].id != id)
		i++;
	reef_assert(i < LENDERS);
	if (i == view->nodes_count) {
		view->nodes[i] = (struct at_node){.id = id};
		view->nodes_count++;
	}
	return &view->nodes[i];
}

static void view_take(struct view *view, const struct reef_row *row)
{
	struct at_node *node;

	if (row->row == REEF_ROW_EXTENT && view->count <= THINGS)
		view->extents[view->count++] = row->extent;
	if (row->row != REEF_ROW_NODE)
		return;
	node = node_of(view, row->node.number);
	memcpy(node->secret, row->node.secret, sizeof(node->secret));
	snprintf(node->address, sizeof(node->address), "%.*s",
		 (int)row->node.addresses.size, row->node.addresses.bytes);
}

/* Ask the broker where things are. */
static int view_refresh(struct view *view)
{
	struct reef_body body = {
		.ask.space_extents = {.space = view->space,
				      .ordinal = UINT32_MAX},
	};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	int rc;

	for (;;) {
		rc = view->actor->peer
			     ? reef_rpc_call(view->actor->peer,
					     REEF_POOL_SPACE_EXTENTS, 0, &body,
					     &answer, SECOND)
			     : -REEF_ENOLINK;
		if (rc != -REEF_ENOLINK && rc != -REEF_EINDOUBT &&
		    rc != -ETIMEDOUT && rc != -ECANCELED)
			break;
		TRY(actor_return(view->actor));
	}
	TRY(rc);
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	view->count = 0;
	while (reef_row_decode(&in, &row) > 0)
		view_take(view, &row);
	reef_answer_free(&answer);
	return 0;
}

static int link_to(struct view *view, struct at_node *node)
{
	struct actor *actor = view->actor;
	struct reef_connect_options options = {
		.session = actor->session,
		.identity = "session",
	};

	if (node->link && !reef_link_status(node->link))
		return 0;
	reef_link_close(node->link);
	node->link = NULL;
	memcpy(options.key, node->secret, sizeof(options.key));
	return reef_connect(actor_queue(actor), node->address, &options,
			    &node->link);
}

static int touch_once(struct view *view, const struct reef_row_extent *row,
		      uint8_t kind, uint64_t *value)
{
	struct reef_queue *queue = actor_queue(view->actor);
	struct at_node *node;
	struct reef_op op = {.kind = kind,
			     .offset = 8 * row->ordinal,
			     .local = value,
			     .length = 8};
	struct reef_batch batch = {.ops = &op, .count = 1};
	int rc;

	if (row->state != REEF_EXTENT_LIVE)
		return row->state == REEF_EXTENT_LOST ? -REEF_ELOST
						      : -REEF_EKEY;
	node = node_of(view, row->node);
	rc = link_to(view, node);
	if (!rc)
		rc = reef_attach(queue, node->link, row->keys[0], &op.remote);
	batch.link = node->link;
	return rc ? rc : reef_run(queue, &batch);
}

/* As the library does it: refused means look again; a lost link, try again.
 * A WRITE may have happened then, and happens again with the same value. */
static int touch(struct view *view, uint32_t ordinal, uint8_t kind,
		 uint64_t *value)
{
	uint32_t i;
	int rc = -ENOENT;

	for (int tries = 0; tries < 20000; tries++) {
		for (i = 0; i < view->count; i++)
			if (view->extents[i].ordinal == ordinal)
				rc = touch_once(view, &view->extents[i], kind,
						value);
		if (rc == 0 || rc == -REEF_ELOST || rc == -REEF_EFENCED ||
		    rc == -REEF_EHOSTDEAD)
			return rc;
		TRY(reef_sleep(MILLISECOND));
		TRY(view_refresh(view));
	}
	return rc;
}

static int view_open(struct actor *actor, struct view *view)
{
	memset(view, 0, sizeof(*view));
	view->actor = actor;
	TRY(actor_join(actor));
	return actor_space(actor, "things", &view->space);
}

static int view_add(struct view *view)
{
	struct reef_body body = {.ask.extent_add = {view->space, SIZE, 0}};

	TRY(actor_ask(view->actor, REEF_POOL_EXTENT_ADD, &body, NULL));
	return view_refresh(view);
}

static int write_all(struct view *view, uint64_t salt)
{
	uint64_t value;

	for (uint32_t i = 0; i < view->count; i++) {
		value = salt + i;
		TRY(touch(view, i, REEF_WRITE, &value));
	}
	return 0;
}

static int check_all(struct view *view, uint64_t salt)
{
	uint64_t value;

	for (uint32_t i = 0; i < view->count; i++) {
		value = 0;
		TRY(touch(view, i, REEF_READ, &value));
		WANT(value == salt + i);
	}
	return 0;
}

#define AWAIT(condition)                                                       \
	do {                                                                   \
		for (int tries_ = 0; !(condition); tries_++) {                 \
			WANT(tries_ < 60000);                                  \
			TRY(reef_sleep(MILLISECOND));                          \
		}                                                              \
	} while (0)

static int all_here(void)
{
	for (uint32_t i = 0; i < LENDERS; i++)
		AWAIT(status_of(i).link == 0);
	return 0;
}

/* --- scripts --- */

static uint32_t count_at(const struct view *view, uint32_t node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < view->count; i++)
		count += view->extents[i].node == node;
	return count;
}

static int drain(struct view *view, uint32_t lender, uint64_t salt)
{
	uint32_t id = status_of(lender).id;
	struct reef_body body = {.ask.node_drain.node = id};

	TRY(actor_ask(view->actor, REEF_POOL_NODE_DRAIN, &body, NULL));
	for (uint64_t round = 1; count_at(view, id) > 0; round++) {
		WANT(round < 10000);
		/* Users go on meanwhile. */
		TRY(write_all(view, salt + 100 * round));
		TRY(check_all(view, salt + 100 * round));
		TRY(view_refresh(view));
		TRY(reef_sleep(MILLISECOND));
	}
	TRY(write_all(view, salt));
	AWAIT(status_of(lender).lent == 0);
	body.ask.node_drain.flags = REEF_POOL_DRAIN_STOP;
	return actor_ask(view->actor, REEF_POOL_NODE_DRAIN, &body, NULL);
}

static int play(struct view *view)
{
	struct actor *actor = view->actor;
	struct broker_world *world = actor->world;
	struct reef_random *random = reef_sim_random(world->sim);
	uint64_t lent = 0;
	uint32_t i;

	TRY(all_here());
	for (i = 0; i < THINGS; i++)
		TRY(view_add(view));
	WANT(view->count == THINGS);
	TRY(write_all(view, 1000));
	TRY(check_all(view, 1000));
	/* The broker dies, and comes back. */
	TRY(broker_world_restart(world, reef_random_chance(random, 1, 2)));
	TRY(check_all(view, 1000));
	TRY(actor_return(actor));
	TRY(all_here());
	TRY(view_refresh(view));
	TRY(check_all(view, 1000));
	/* A node drains, and the broker dies meanwhile or not. */
	if (reef_random_chance(random, 1, 2))
		TRY(broker_world_restart(world, false));
	TRY(drain(view, 0, 2000));
	TRY(check_all(view, 2000));
	for (i = 0; i < LENDERS; i++)
		lent += status_of(i).lent;
	WANT(lent == THINGS * SIZE);
	return 0;
}

static int player(struct actor *actor)
{
	struct view view;
	int rc = view_open(actor, &view);

	if (!rc)
		rc = play(&view);
	view_close(&view);
	return rc;
}

static int run_seed(int (*script)(struct actor *actor),
		    int (*other)(struct actor *actor), enum reef_mutant mutant,
		    uint64_t seed)
{
	struct broker_world world = {0};
	int rc;

	world.options.ttl_ns = 3600 * SECOND; /* nobody renews */
	reef_mutate(mutant);
	broker_world_start(&world, seed);
	world.nodes = LENDERS;
	for (uint32_t i = 0; i < LENDERS; i++) {
		lenders[i] = (struct lender){.world = &world};
		snprintf(lenders[i].name, 8, "node%u", i);
		snprintf(lenders[i].where, 16, "sim:node%u/1", i);
		assert_int_equal(reef_sim_host_add(world.sim, lenders[i].name,
						   lender_main, &lenders[i],
						   &lenders[i].host),
				 0);
	}
	broker_world_add(&world, script);
	if (other)
		broker_world_add(&world, other);
	rc = broker_world_finish(&world);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void run(int (*script)(struct actor *actor),
		int (*other)(struct actor *actor))
{
	uint64_t seed;
	int rc;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		rc = run_seed(script, other, REEF_MUTANT_NONE, seed);
		if (rc)
			print_message("seed %u: %s\n", (unsigned)seed,
				      reef_error_name(rc));
		assert_int_equal(rc, 0);
	}
}

/* A mutant must be found by one of the seeds. */
static void find(int (*script)(struct actor *actor),
		 int (*other)(struct actor *actor), enum reef_mutant mutant)
{
	int rc = 0;

	try_quiet = true;
	for (uint64_t seed = seeds_first(); !rc && seeds_has(seed, SEEDS);
	     seed++)
		rc = run_seed(script, other, mutant, seed);
	try_quiet = false;
	assert_int_not_equal(rc, 0);
}

static void pool_nodes_drained_and_restarted_nothing_lost(void **state)
{
	run(player, NULL);
}

/* A node is cut off from the broker, and taken for dead. */
static int cut_off(struct view *view)
{
	struct broker_world *world = view->actor->world;
	uint64_t incarnation, value;
	uint32_t i, lost = 0, left = 0, id;
	struct reef_row_extent old = {0};

	TRY(all_here());
	for (i = 0; i < THINGS; i++)
		TRY(view_add(view));
	TRY(write_all(view, 1000));
	id = status_of(1).id;
	incarnation = status_of(1).incarnation;
	left = count_at(view, id);
	for (i = 0; i < THINGS; i++)
		if (view->extents[i].node == id)
			old = view->extents[i];
	reef_sim_partition(world->host, lenders[1].host, true);
	for (i = 0; i < THINGS; i++)
		TRY(reef_sleep(TTL / 2));
	TRY(view_refresh(view));
	for (i = 0; i < THINGS; i++) {
		int rc = touch(view, i, REEF_READ, &value);

		WANT(rc == 0 || rc == -REEF_ELOST);
		WANT(rc || value == 1000 + i);
		lost += rc != 0;
	}
	WANT(lost == left);
	/* It still lends to whoever has a key; then it learns of its death. */
	WANT(status_of(1).lent == left * SIZE);
	reef_sim_partition(world->host, lenders[1].host, false);
	for (i = 0; status_of(1).incarnation == incarnation; i++) {
		WANT(i < 1000000);
		TRY(reef_sleep(MILLISECOND / 50));
	}
	value = 7;
	WANT(!left || touch_once(view, &old, REEF_WRITE, &value) < 0);
	AWAIT(status_of(1).link == 0);
	WANT(status_of(1).id == id);
	AWAIT(status_of(1).lent == 0);
	return 0;
}

static int cut_off_player(struct actor *actor)
{
	struct view view;
	int rc = view_open(actor, &view);

	if (!rc)
		rc = cut_off(&view);
	view_close(&view);
	return rc;
}

static void pool_nodes_cut_off_comes_back_empty(void **state)
{
	run(cut_off_player, NULL);
	find(cut_off_player, NULL, REEF_MUTANT_NODE_SAME_LIFE);
}

/* A session is ended by an operator: no node lets it do anything more. */
static int victim(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct view view;
	uint64_t value = 1;
	int rc = view_open(actor, &view);

	if (!rc)
		rc = all_here();
	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = view_add(&view);
	if (!rc)
		rc = write_all(&view, 1000);
	world->note[0] = actor->session;
	world->note[1] = view.space;
	while (!rc && !world->note[2])
		rc = reef_sleep(MILLISECOND);
	/* Keys and links it has; what it may not do is use them. */
	for (uint32_t i = 0; !rc && i < view.count; i++)
		rc = touch_once(&view, &view.extents[i], REEF_WRITE, &value) < 0
			     ? 0
			     : -EXDEV;
	view_close(&view);
	world->note[3] = 1;
	return rc;
}

static int executioner(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body body = {0};
	struct view view;
	int rc = view_open(actor, &view);

	while (!rc && !world->note[0])
		rc = reef_sleep(MILLISECOND);
	body.ask.session_end.session = (uint32_t)world->note[0];
	if (!rc)
		rc = actor_ask(actor, REEF_POOL_SESSION_END, &body, NULL);
	if (!rc)
		rc = actor_await(actor, body.ask.session_end.session,
				 REEF_SESSION_FENCED, 100 * SECOND);
	world->note[2] = 1;
	while (!rc && !world->note[3])
		rc = reef_sleep(MILLISECOND);
	if (!rc)
		rc = view_refresh(&view);
	if (!rc)
		rc = check_all(&view, 1000);
	view_close(&view);
	return rc;
}

static void pool_nodes_ended_session_changes_nothing(void **state)
{
	run(victim, executioner);
	find(victim, executioner, REEF_MUTANT_NODE_NO_FENCE);
}

/* --- everything at once --- */

/* What was acknowledged is there, unless the node it was on died. */
struct ledger {
	struct view view;
	uint64_t value[THINGS];
	uint32_t node[THINGS]; /* where it was seen last */
	bool lost[THINGS];
	bool draining[LENDERS];
	bool gentle; /* no node is to die */
	bool died;   /* one did, or may have been taken for dead */
};

static int visit(struct ledger *ledger, uint32_t ordinal, uint64_t value)
{
	struct view *view = &ledger->view;
	uint64_t seen = 0;
	int rc;

	if (ledger->lost[ordinal])
		return 0;
	rc = touch(view, ordinal, REEF_READ, &seen);
	if (!rc) {
		WANT(seen == ledger->value[ordinal]);
		rc = touch(view, ordinal, REEF_WRITE, &value);
	}
	if (!rc) {
		ledger->value[ordinal] = value;
		ledger->node[ordinal] = view->extents[ordinal].node;
		return 0;
	}
	if (rc != -REEF_ELOST)
		return rc;
	WANT(ledger->died);
	ledger->lost[ordinal] = true;
	return 0;
}

static int drain_one(struct ledger *ledger, uint32_t lender)
{
	struct reef_body body = {
		.ask.node_drain = {.node = status_of(lender).id,
				   .flags = ledger->draining[lender]},
	};
	int rc;

	if (!body.ask.node_drain.node)
		return 0;
	rc = actor_ask(ledger->view.actor, REEF_POOL_NODE_DRAIN, &body, NULL);
	if (!rc)
		ledger->draining[lender] = !ledger->draining[lender];
	/* It may be dead just now. */
	return rc == -EBUSY || rc == -ENOENT || rc == -EINVAL ? 0 : rc;
}

static int upset(struct ledger *ledger)
{
	struct broker_world *world = ledger->view.actor->world;
	struct reef_random *random = reef_sim_random(world->sim);
	uint32_t at = (uint32_t)reef_random_below(random, LENDERS);
	struct lender *lender = &lenders[at];

	switch (reef_random_below(random, ledger->gentle ? 6 : 8)) {
	case 0:
		return broker_world_restart(world,
					    reef_random_chance(random, 1, 2));
	case 1:
	case 2:
		return drain_one(ledger, at);
	case 3: /* not long enough to be dead */
		reef_sim_host_pause(lender->host);
		TRY(reef_sleep(TTL / 4));
		reef_sim_host_resume(lender->host);
		return 0;
	case 6: /* its memory is gone */
		ledger->died = true;
		lender->node = NULL;
		ledger->draining[at] = false;
		reef_sim_host_kill(lender->host);
		return reef_sim_host_restart(lender->host, lender_main, lender);
	case 7: /* long enough, perhaps */
		ledger->died = true;
		ledger->draining[at] = false;
		reef_sim_partition(world->host, lender->host, true);
		TRY(reef_sleep(reef_random_below(random, 3 * TTL)));
		reef_sim_partition(world->host, lender->host, false);
		return 0;
	default:
		return reef_sleep(reef_random_below(random, TTL));
	}
}

static int suffer(struct ledger *ledger)
{
	struct view *view = &ledger->view;
	struct reef_random *random = reef_sim_random(view->actor->world->sim);
	uint32_t i, at, lent = 0, left = 0;

	ledger->gentle = reef_random_chance(random, 1, 2);
	TRY(all_here());
	for (i = 0; i < THINGS; i++)
		TRY(view_add(view));
	for (i = 0; i < 120; i++) {
		if (reef_random_chance(random, 1, 6))
			TRY(upset(ledger));
		at = (uint32_t)reef_random_below(random, THINGS);
		TRY(visit(ledger, at, 100 + i));
	}
	TRY(all_here());
	for (at = 0; at < THINGS; at++) {
		TRY(visit(ledger, at, 1000 + at));
		left += !ledger->lost[at];
	}
	/* In the end every byte that is lent is an extent's. */
	for (i = 0; i < 60000; i++) {
		for (at = 0, lent = 0; at < LENDERS; at++)
			lent += (uint32_t)(status_of(at).lent / SIZE);
		if (lent == left)
			break;
		TRY(reef_sleep(MILLISECOND));
	}
	WANT(lent == left);
	return 0;
}

static int sufferer(struct actor *actor)
{
	static struct ledger ledger;
	int rc;

	memset(&ledger, 0, sizeof(ledger));
	rc = view_open(actor, &ledger.view);
	if (!rc)
		rc = suffer(&ledger);
	view_close(&ledger.view);
	return rc;
}

static void pool_nodes_upset_at_random_keep_what_was_written(void **state)
{
	run(sufferer, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_nodes_drained_and_restarted_nothing_lost),
		cmocka_unit_test(pool_nodes_cut_off_comes_back_empty),
		cmocka_unit_test(pool_nodes_ended_session_changes_nothing),
		cmocka_unit_test(
			pool_nodes_upset_at_random_keep_what_was_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
