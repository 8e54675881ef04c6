/* test_settle.c - SETTLE, as the broker serves it: whom it asks to end links,
 * what it answers, and what it refuses. How clients use it:
 * test_client_settle.c. */
#include "fixture/broker_world.h"

#include "base/fiber/sched.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <stdlib.h>

#define SEEDS 5

struct question {
	uint32_t count;
	struct reef_row_link links[REEF_SETTLE_MAX + 1];
};

static void add_link(struct question *question, uint32_t node, uint32_t number,
		     uint64_t incarnation)
{
	question->links[question->count++] = (struct reef_row_link){
		.node = node,
		.number = number,
		.incarnation = incarnation,
	};
}

/* Ask; the question's links get the fates of the answer. */
static int settle(struct actor *actor, struct question *question)
{
	struct reef_row row = {.row = REEF_ROW_LINK};
	struct reef_cursor_out out = {0};
	struct reef_cursor_in in;
	struct reef_body body = {0};
	struct reef_answer answer = {0};
	uint32_t i;
	int rc;

	for (i = 0; i < question->count; i++) {
		row.link = question->links[i];
		reef_row_encode(&row, &out);
		question->links[i].fate = REEF_LINK_IN_DOUBT;
	}
	body.rows = out.bytes;
	body.rows_size = out.size;
	rc = reef_rpc_call(actor->peer, REEF_POOL_SETTLE, 0, &body, &answer,
			   60 * SECOND);
	free(out.bytes);
	if (rc)
		return rc;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while ((rc = reef_row_decode(&in, &row)) == 1)
		for (i = 0; i < question->count; i++)
			if (question->links[i].node == row.link.node)
				question->links[i].fate = row.link.fate;
	reef_answer_free(&answer);
	return rc;
}

/* The world's actors: who asks, then the nodes, whose ids are in the order in
 * which they came. */
static struct actor *node_of(const struct actor *asker, uint32_t index)
{
	return &asker->world->actors[1 + index];
}

/* The id of a node, by its name in the broker's list. 0: it is not there. */
static uint32_t id_of(struct actor *asker, const struct actor *node)
{
	struct reef_body body = {.ask.list.row = REEF_ROW_NODE};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;
	uint32_t id = 0;

	if (reef_rpc_call(asker->peer, REEF_POOL_LIST, 0, &body, &answer,
			  10 * SECOND))
		return 0;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &row) == 1)
		if (row.node.incarnation == node->incarnation)
			id = row.node.number;
	reef_answer_free(&answer);
	return id;
}

/* Join, and wait for both nodes. */
static int join_with_nodes(struct actor *actor, uint32_t *ids)
{
	TRY(actor_join(actor));
	for (uint32_t i = 0; i < 2; i++)
		while (!(ids[i] = id_of(actor, node_of(actor, i))))
			TRY(actor_stay(actor, 10 * MILLISECOND));
	return 0;
}

/* --- what is asked, and of whom --- */

static int settles_two(struct actor *actor)
{
	struct actor *first = node_of(actor, 0), *second = node_of(actor, 1);
	struct question question = {0};
	uint32_t ids[2];

	TRY(join_with_nodes(actor, ids));
	add_link(&question, ids[0], 7, first->incarnation);
	add_link(&question, ids[1], 9, second->incarnation);
	TRY(settle(actor, &question));
	WANT(question.links[0].fate == REEF_LINK_ENDED);
	WANT(question.links[1].fate == REEF_LINK_ENDED);
	WANT(first->ends == 1 && first->end_session == actor->session &&
	     first->end_number == 7);
	WANT(second->ends == 1 && second->end_session == actor->session &&
	     second->end_number == 9);
	/* Another life: nobody is asked. */
	question.links[0].incarnation ^= 1;
	TRY(settle(actor, &question));
	WANT(question.links[0].fate == REEF_LINK_LOST && first->ends == 1);
	WANT(question.links[1].fate == REEF_LINK_ENDED && second->ends == 2);
	return 0;
}

static int run_two_nodes(uint64_t seed, int (*script)(struct actor *actor))
{
	/* Nobody renews while a question waits. */
	struct broker_world world = {.options.ttl_ns = 600 * SECOND,
				     .options.node_ttl_ns = TTL};

	broker_world_start(&world, seed);
	broker_world_add(&world, script);
	broker_world_add(&world, actor_node_script);
	broker_world_add(&world, actor_node_script);
	return broker_world_finish(&world);
}

static void run(int (*script)(struct actor *actor))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++)
		assert_int_equal(run_two_nodes(seed, script), 0);
}

static void settle_asks_each_node_for_its_own(void **state)
{
	run(settles_two);
}

/* --- what is refused --- */

static int asks_badly(struct actor *actor)
{
	struct actor *node = node_of(actor, 0);
	struct question question = {0};
	struct reef_row row = {.row = REEF_ROW_USER};
	struct reef_cursor_out out = {0};
	struct reef_body body = {0};
	uint32_t ids[2], i;
	int rc;

	TRY(actor_connect(actor));
	add_link(&question, 1, 1, 1);
	WANT(settle(actor, &question) == -REEF_EFENCED); /* no session */
	TRY(join_with_nodes(actor, ids));
	question.count = 0;
	WANT(settle(actor, &question) == -EINVAL); /* nothing */
	add_link(&question, ids[0], 0, node->incarnation);
	WANT(settle(actor, &question) == -EINVAL); /* no number */
	question.count = 0;
	add_link(&question, 0, 1, node->incarnation);
	WANT(settle(actor, &question) == -EINVAL); /* no node */
	question.links[0].node = ids[0] + ids[1];
	WANT(settle(actor, &question) == -EINVAL); /* never one of the pool */
	/* One node twice: else a session could fill it with its ENDs. */
	question.count = 0;
	for (i = 0; i < REEF_SETTLE_MAX; i++)
		add_link(&question, ids[0], 1 + i, node->incarnation);
	WANT(settle(actor, &question) == -EINVAL);
	reef_row_encode(&row, &out);
	body.rows = out.bytes;
	body.rows_size = out.size;
	rc = actor_call(actor, REEF_POOL_SETTLE, 0, &body, NULL);
	free(out.bytes);
	WANT(rc == -EINVAL); /* other rows */
	WANT(node->ends == 0);
	question.count = 1;
	TRY(settle(actor, &question));
	WANT(question.links[0].fate == REEF_LINK_ENDED && node->ends == 1);
	return 0;
}

static void settle_of_what_cannot_be_is_refused(void **state)
{
	run(asks_badly);
}

/* --- nodes that do not answer --- */

/* One that cannot yet is asked again; one that is out of reach is DEAD in the
 * end; the answer has the others. */
static int settles_slowly(struct actor *actor)
{
	struct actor *first = node_of(actor, 0), *second = node_of(actor, 1);
	struct question question = {0};
	uint32_t ids[2], tries = 0;

	TRY(join_with_nodes(actor, ids));
	add_link(&question, ids[0], 1, first->incarnation);
	add_link(&question, ids[1], 1, second->incarnation);
	first->end_rc = -ETIMEDOUT;
	TRY(settle(actor, &question));
	WANT(question.links[0].fate == REEF_LINK_IN_DOUBT && first->ends > 1);
	WANT(question.links[1].fate == REEF_LINK_ENDED);
	first->end_rc = 0;
	reef_sim_host_kill(second->host);
	do {
		TRY(actor_stay(actor, MILLISECOND));
		TRY(settle(actor, &question));
		WANT(question.links[0].fate == REEF_LINK_ENDED);
	} while (question.links[1].fate != REEF_LINK_LOST && ++tries < 50);
	WANT(question.links[1].fate == REEF_LINK_LOST);
	return 0;
}

static void settle_of_a_silent_node_ends_with_its_death(void **state)
{
	run(settles_slowly);
}

/* --- one at a time, more or less --- */

struct asking {
	struct actor *actor;
	struct question question;
	struct reef_fiber *fiber;
	int rc;
};

static int ask_in_fiber(void *arg)
{
	struct asking *asking = arg;

	asking->rc = settle(asking->actor, &asking->question);
	return 0;
}

static int asks_in_a_crowd(struct actor *actor)
{
	struct asking askings[8] = {0};
	uint32_t ids[2], busy = 0, done = 0, i;

	TRY(join_with_nodes(actor, ids));
	node_of(actor, 0)->end_rc = -ETIMEDOUT;
	for (i = 0; i < 8; i++) {
		askings[i].actor = actor;
		add_link(&askings[i].question, ids[0], 1,
			 node_of(actor, 0)->incarnation);
		TRY(reef_fiber_spawn(reef_fiber_sched(), ask_in_fiber,
				     &askings[i], &askings[i].fiber));
	}
	for (i = 0; i < 8; i++) {
		reef_fiber_join(askings[i].fiber, NULL);
		busy += askings[i].rc == -EBUSY;
		done += askings[i].rc == 0;
	}
	WANT(busy == 4 && done == 4);
	node_of(actor, 0)->end_rc = 0;
	askings[0].rc = settle(actor, &askings[0].question);
	WANT(askings[0].rc == 0);
	WANT(askings[0].question.links[0].fate == REEF_LINK_ENDED);
	return 0;
}

static void settle_of_one_session_has_a_limit(void **state)
{
	run(asks_in_a_crowd);
}

#define SESSIONS 20
#define QUESTIONS (4 * SESSIONS)

/* Sessions whose links a node cannot end ask as often as they may: they have no
 * fiber of the broker's for that, and who has links that can be ended does not
 * wait for them. */
static int asks_beside_a_crowd(struct actor *actor)
{
	/* More than a fiber's stack has room for. */
	static struct actor others[SESSIONS];
	static struct asking askings[QUESTIONS];
	struct question own = {0};
	uint32_t ids[2], before, i;
	uint64_t begun;

	TRY(join_with_nodes(actor, ids));
	for (i = 0; i < 2; i++) {
		node_of(actor, i)->end_rc = -ETIMEDOUT;
		node_of(actor, i)->end_spared = actor->session;
		add_link(&own, ids[i], 1, node_of(actor, i)->incarnation);
	}
	for (i = 0; i < SESSIONS; i++) {
		others[i] = *actor;
		others[i].links += (i + 1) * 16;
		others[i].peer = NULL;
		others[i].renewal = others[i].table = NULL;
		others[i].session = 0;
		TRY(actor_connect(&others[i]));
		TRY(actor_session(&others[i]));
	}
	before = reef_sched_fibers(reef_fiber_sched());
	for (i = 0; i < QUESTIONS; i++) {
		askings[i] = (struct asking){
			.actor = &others[i % SESSIONS],
			.question = own,
		};
		TRY(reef_fiber_spawn(reef_fiber_sched(), ask_in_fiber,
				     &askings[i], &askings[i].fiber));
	}
	TRY(reef_sleep(TTL / 4));
	WANT(reef_sched_fibers(reef_fiber_sched()) - before < QUESTIONS + 16);
	begun = reef_now_ns();
	TRY(settle(actor, &own));
	WANT(reef_now_ns() - begun < TTL / 4);
	WANT(own.links[0].fate == REEF_LINK_ENDED);
	WANT(own.links[1].fate == REEF_LINK_ENDED);
	for (i = 0; i < QUESTIONS; i++) {
		reef_fiber_join(askings[i].fiber, NULL);
		WANT(askings[i].rc == 0);
		WANT(askings[i].question.links[0].fate == REEF_LINK_IN_DOUBT);
	}
	for (i = 0; i < SESSIONS; i++)
		reef_peer_close(others[i].peer);
	return 0;
}

static void settle_of_a_crowd_disturbs_nobody(void **state)
{
	run(asks_beside_a_crowd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settle_asks_each_node_for_its_own),
		cmocka_unit_test(settle_of_what_cannot_be_is_refused),
		cmocka_unit_test(settle_of_a_silent_node_ends_with_its_death),
		cmocka_unit_test(settle_of_one_session_has_a_limit),
		cmocka_unit_test(settle_of_a_crowd_disturbs_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
