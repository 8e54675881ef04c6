/* test_confirm.c - a broker that nodes do not confirm acknowledges nothing; and
 * what confirming costs. In simulation, over several seeds. */
#include "base/mutant.h"
#include "fixture/broker_world.h"
#include "fixture/seeds.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdio.h>

#define SEEDS seeds_of(10, 1000)
#define OTHER_START 77

static int run_seed(int (*script)(struct actor *actor), uint32_t nodes,
		    enum reef_mutant mutant, uint64_t seed)
{
	struct broker_world world = {0};
	int rc;

	reef_mutate(mutant);
	broker_world_start(&world, seed);
	broker_world_add(&world, script);
	for (uint32_t i = 0; i < nodes; i++)
		broker_world_add(&world, actor_node_script);
	rc = broker_world_finish(&world);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void run(int (*script)(struct actor *actor), uint32_t nodes)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++)
		assert_int_equal(
			run_seed(script, nodes, REEF_MUTANT_NONE, seed), 0);
}

/* Wait until that many nodes follow the broker. */
static int await_nodes(struct actor *actor, uint32_t count)
{
	uint32_t n;

	do {
		TRY(reef_sleep(MILLISECOND));
		n = 0;
		for (uint32_t i = 1; i < actor->world->count; i++)
			n += actor->world->actors[i].confirms > 0;
	} while (n < count);
	return reef_sleep(TTL);
}

static int bind(struct actor *actor, uint32_t space, const char *name,
		uint32_t sequence)
{
	struct reef_body body =
		actor_name_body(REEF_POOL_NAME_BIND, space, name, 1, 0);

	return actor_call(actor, REEF_POOL_NAME_BIND, sequence, &body, NULL);
}

static uint32_t count_confirms(const struct broker_world *world)
{
	uint32_t sum = 0;

	for (uint32_t i = 1; i < world->count; i++)
		sum += world->actors[i].confirms;
	return sum;
}

/* --- cost --- */

#define BINDS 20

/* Nothing while nothing changes; at most one message to each node for a change,
 * and for an epoch of R8. */
static int counts_messages(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint32_t before, space;
	uint64_t epochs;
	char name[16];

	TRY(await_nodes(actor, 3));
	before = count_confirms(world);
	TRY(reef_sleep(20 * TTL));
	WANT(count_confirms(world) == before);
	TRY(actor_join(actor));
	TRY(actor_space(actor, "a", &space));
	TRY(actor_renew(actor));
	before = count_confirms(world);
	epochs = world->broker->safe_epoch;
	for (int i = 0; i < BINDS; i++) {
		snprintf(name, sizeof(name), "%d", i);
		TRY(bind(actor, space, name, ++actor->sequence));
		TRY(actor_renew(actor));
	}
	epochs = world->broker->safe_epoch - epochs;
	WANT(count_confirms(world) - before <= 3 * (BINDS + epochs + 2));
	return 0;
}

static void confirm_costs_a_message_for_a_change_alone(void **state)
{
	run(counts_messages, 3);
}

/* --- nobody confirms --- */

/* Nodes that are there, and do not say that this is their broker. */
static int asks_in_vain(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint32_t space, sequence;
	uint64_t begun_ns;
	int rc;

	TRY(await_nodes(actor, 2));
	TRY(actor_join(actor));
	TRY(actor_space(actor, "a", &space));
	TRY(bind(actor, space, "before", ++actor->sequence));
	for (uint32_t i = 1; i < world->count; i++)
		world->actors[i].confirm_rc = -EAGAIN;
	sequence = ++actor->sequence;
	for (begun_ns = reef_now_ns(); reef_now_ns() - begun_ns < 4 * TTL;) {
		rc = bind(actor, space, "now", sequence);
		WANT(rc == -ETIMEDOUT || rc == -REEF_EINDOUBT || rc == -EBUSY ||
		     rc == -REEF_ENOLINK);
		TRY(actor_renew(actor));
	}
	for (uint32_t i = 1; i < world->count; i++)
		world->actors[i].confirm_rc = 0;
	do
		rc = bind(actor, space, "now", sequence);
	while (rc == -ETIMEDOUT || rc == -REEF_EINDOUBT || rc == -EBUSY);
	return rc;
}

static void confirm_is_waited_for_by_every_answer(void **state)
{
	run(asks_in_vain, 2);
	try_quiet = true;
	assert_int_equal(
		run_seed(asks_in_vain, 2, REEF_MUTANT_BROKER_UNCONFIRMED, 1),
		-EXDEV);
	try_quiet = false;
}

/* --- who comes and knows more --- */

/* The node tells whoever comes next that another start of this epoch was chosen
 * and confirmed more than any journal here has. */
static void tell_of_later_changes(struct actor *node)
{
	uint64_t epoch = node->world->broker->epoch;

	node->tells = (struct reef_ask_node_register){
		.followed_epoch = epoch,
		.followed_start = OTHER_START,
		.confirmed_epoch = epoch,
		.confirmed_start = OTHER_START,
		.confirmed = UINT32_MAX,
	};
}

static int is_told_of_changes(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[1];
	uint64_t begun_ns;

	TRY(await_nodes(actor, 1));
	TRY(actor_join(actor));
	/* Of the start before the next one, later than its journal has. */
	tell_of_later_changes(node);
	TRY(broker_world_restart(world, false));
	for (begun_ns = reef_now_ns(); reef_now_ns() - begun_ns < 10 * TTL;) {
		TRY(actor_connect(actor));
		WANT(actor_resume(actor) != 0);
		TRY(reef_sleep(MILLISECOND));
		WANT(!world->broker || !world->broker->chosen);
	}
	/* Another one was chosen with this epoch. */
	node->tells.confirmed_epoch = world->broker->epoch;
	while (reef_broker_health(world->broker) == 0)
		TRY(reef_sleep(MILLISECOND));
	WANT(reef_broker_health(world->broker) == -ESTALE);
	return 0;
}

static void confirm_old_journal_is_not_chosen(void **state)
{
	run(is_told_of_changes, 1);
}

/* An old copy is refused, ends and is started again, several times: each start
 * begins an epoch, and none of them adds what the copy lacks. */
static int starts_an_old_copy_again(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[1];
	uint64_t begun_ns;

	TRY(await_nodes(actor, 1));
	TRY(actor_join(actor));
	tell_of_later_changes(node);
	for (int i = 0; i < 4; i++) {
		TRY(broker_world_restart(world, false));
		begun_ns = reef_now_ns();
		while (reef_now_ns() - begun_ns < 5 * TTL) {
			TRY(reef_sleep(MILLISECOND));
			WANT(!world->broker || !world->broker->chosen);
		}
	}
	return 0;
}

static void
confirm_old_journal_is_not_chosen_however_often_it_is_started(void **state)
{
	run(starts_an_old_copy_again, 1);
}

/* --- nodes that come while others are missing --- */

/* A node that comes when it is told to. */
static int node_comes_late(struct actor *actor)
{
	while (!actor->world->note[0] && !actor->world->over)
		TRY(reef_sleep(MILLISECOND));
	return actor_node_script(actor);
}

static void run_late(int (*script)(struct actor *actor), uint32_t nodes,
		     uint32_t late)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};
		struct actor *actor;

		broker_world_start(&world, seed);
		broker_world_add(&world, script);
		for (uint32_t i = 0; i < nodes; i++)
			broker_world_add(&world, actor_node_script);
		for (uint32_t i = 0; i < late; i++) {
			actor = broker_world_add(&world, node_comes_late);
			actor->node = actor->background = true;
		}
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

/* Its journal is older than the first node: it is chosen by nobody, and a node
 * that has confirmed something is not its own. */
static int has_a_journal_from_before_nodes(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[1];
	uint64_t begun_ns;

	for (int i = 0; i < 3; i++) {
		while (!world->broker || !world->broker->chosen)
			TRY(reef_sleep(MILLISECOND));
		TRY(broker_world_restart(world, false));
	}
	node->tells = (struct reef_ask_node_register){
		.followed_epoch = 2,
		.followed_start = OTHER_START,
		.confirmed_epoch = 2,
		.confirmed_start = OTHER_START,
		.confirmed = UINT32_MAX,
	};
	world->note[0] = 1;
	begun_ns = reef_now_ns();
	while (reef_now_ns() - begun_ns < 10 * TTL) {
		TRY(reef_sleep(MILLISECOND));
		WANT(node->confirms == 0);
	}
	return 0;
}

static void
confirm_journal_without_nodes_gets_none_that_knows_more(void **state)
{
	run_late(has_a_journal_from_before_nodes, 0, 1);
}

static int is_not_chosen_for(struct actor *actor, uint64_t duration_ns)
{
	uint64_t begun_ns = reef_now_ns();

	while (reef_now_ns() - begun_ns < duration_ns) {
		TRY(reef_sleep(MILLISECOND));
		WANT(!actor->world->broker || !actor->world->broker->chosen);
	}
	return 0;
}

/* Node 1 was the only witness, and follows another broker now. Others come, and
 * this one is started again: they do not outvote node 1. */
static int gets_nodes_instead(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *witness = &world->actors[1];

	TRY(await_nodes(actor, 1));
	TRY(actor_join(actor));
	witness->confirm_rc = -EAGAIN;
	for (int i = 0; i < 3; i++) {
		TRY(broker_world_restart(world, false));
		world->note[0] = 1;
		TRY(is_not_chosen_for(actor, 5 * TTL));
	}
	witness->confirm_rc = 0;
	TRY(await_nodes(actor, 3));
	return 0;
}

static void
confirm_nodes_that_come_do_not_choose_for_those_missing(void **state)
{
	run_late(gets_nodes_instead, 1, 2);
}

/* It was chosen, but its witness confirms nothing any more: a node that comes
 * is not taken in, for it would be a witness in the journal. */
static int gets_a_node_unconfirmed(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *witness = &world->actors[1];
	const struct reef_state_node *node;
	uint64_t begun_ns;

	TRY(await_nodes(actor, 1));
	TRY(actor_join(actor));
	witness->confirm_rc = -EAGAIN;
	world->note[0] = 1;
	for (begun_ns = reef_now_ns(); reef_now_ns() - begun_ns < 5 * TTL;) {
		TRY(reef_sleep(MILLISECOND));
		node = reef_state_node(world->broker->state, 2);
		WANT(!node || node->state == REEF_NODE_DEAD);
	}
	witness->confirm_rc = 0;
	return await_nodes(actor, 2);
}

static void confirm_node_is_taken_in_by_who_is_confirmed(void **state)
{
	run_late(gets_a_node_unconfirmed, 1, 1);
}

static int is_told_of_an_epoch(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[1];
	uint32_t space;

	TRY(await_nodes(actor, 2));
	TRY(actor_join(actor));
	TRY(actor_space(actor, "a", &space));
	node->tells = (struct reef_ask_node_register){
		.followed_epoch = world->broker->epoch + 6,
		.followed_start = OTHER_START,
	};
	actor_hang_up(node);
	while (reef_broker_epoch(world->broker) < 8)
		TRY(reef_sleep(MILLISECOND));
	WANT(reef_broker_epoch(world->broker) == 8);
	TRY(actor_return(actor));
	WANT(node->confirmed.start == world->broker->start);
	return bind(actor, space, "a", ++actor->sequence);
}

static void confirm_higher_epoch_is_raised(void **state)
{
	run(is_told_of_an_epoch, 2);
}

/* --- a witness in a new life --- */

/* As when its process dies and its holder does not: it knows what it confirmed.
 */
static void begin_new_life(struct actor *node, bool remembers)
{
	uint64_t epoch = node->world->broker->epoch;

	node->incarnation++;
	if (!remembers)
		return;
	node->tells.followed_epoch = node->tells.confirmed_epoch = epoch;
	node->tells.followed_start = node->tells.confirmed_start =
		node->confirmed.start;
	node->tells.confirmed = node->confirmed.sequence;
	node->tells.remembers = 1;
}

/* Have all nodes say that they keep their memory. */
static int make_nodes_keep(struct broker_world *world)
{
	const struct reef_state_node *nodes;
	size_t count, i, n;

	for (i = 1; i < world->count; i++) {
		world->actors[i].tells.keeps = 1;
		world->actors[i].comes_back = true;
	}
	do {
		TRY(reef_sleep(MILLISECOND));
		nodes = reef_state_nodes(world->broker->state, &count);
		for (i = n = 0; i < count; i++)
			n += nodes[i].keeps;
	} while (n < count);
	return reef_sleep(TTL);
}

/* Three nodes keep their memory. The broker dies with one of them, which comes
 * back; of the others one never answers. */
static int starts_with_one_missing(struct actor *actor, bool remembers)
{
	struct broker_world *world = actor->world;

	TRY(await_nodes(actor, 3));
	TRY(make_nodes_keep(world));
	TRY(actor_join(actor));
	WANT(world->actors[1].confirmed.sequence > 0);
	world->actors[3].confirm_rc = -EAGAIN;
	begin_new_life(&world->actors[1], remembers);
	return broker_world_restart(world, false);
}

static int gets_one_that_remembers(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun_ns, pool_epoch;
	struct reef_state_summary summary;

	TRY(starts_with_one_missing(actor, true));
	while (!world->broker)
		TRY(reef_sleep(MILLISECOND));
	reef_state_summary(world->broker->state, &summary);
	pool_epoch = summary.pool_epoch;
	begun_ns = reef_now_ns();
	while (!world->broker->sure) {
		WANT(reef_now_ns() - begun_ns < 20 * TTL);
		TRY(reef_sleep(MILLISECOND));
	}
	/* Its former life is over all the same. */
	reef_state_summary(world->broker->state, &summary);
	WANT(summary.pool_epoch > pool_epoch);
	return actor_return(actor);
}

static void confirm_two_of_three_choose_if_who_came_remembers(void **state)
{
	run(gets_one_that_remembers, 3);
}

/* Who does not answer follows another start, perhaps, which the one that forgot
 * it followed, too. */
static int gets_one_that_forgot(struct actor *actor)
{
	TRY(starts_with_one_missing(actor, false));
	TRY(is_not_chosen_for(actor, 10 * TTL));
	actor->world->actors[3].confirm_rc = 0;
	return actor_return(actor);
}

static void confirm_two_of_three_do_not_choose_if_one_forgot(void **state)
{
	run(gets_one_that_forgot, 3);
	try_quiet = true;
	assert_int_equal(run_seed(gets_one_that_forgot, 3,
				  REEF_MUTANT_BROKER_FORGETFUL, 1),
			 -EXDEV);
	try_quiet = false;
}

/* --- the operator --- */

static int removes_the_last(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body body = {.ask.node_remove.node = 1};
	uint32_t space;

	TRY(await_nodes(actor, 1));
	TRY(actor_join(actor));
	TRY(actor_space(actor, "a", &space));
	reef_sim_host_kill(world->actors[1].host);
	TRY(reef_sleep(10 * TTL));
	WANT(!world->broker->sure);
	WANT(reef_state_node(world->broker->state, 1)->state != REEF_NODE_DEAD);
	TRY(actor_connect(actor));
	TRY(actor_call(actor, REEF_POOL_NODE_REMOVE, 0, &body, NULL));
	TRY(actor_return(actor));
	return bind(actor, space, "a", ++actor->sequence);
}

static void confirm_operator_vouches_for_what_is_removed(void **state)
{
	run(removes_the_last, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(confirm_costs_a_message_for_a_change_alone),
		cmocka_unit_test(confirm_is_waited_for_by_every_answer),
		cmocka_unit_test(confirm_old_journal_is_not_chosen),
		cmocka_unit_test(
			confirm_old_journal_is_not_chosen_however_often_it_is_started),
		cmocka_unit_test(
			confirm_journal_without_nodes_gets_none_that_knows_more),
		cmocka_unit_test(
			confirm_nodes_that_come_do_not_choose_for_those_missing),
		cmocka_unit_test(confirm_node_is_taken_in_by_who_is_confirmed),
		cmocka_unit_test(confirm_higher_epoch_is_raised),
		cmocka_unit_test(
			confirm_two_of_three_choose_if_who_came_remembers),
		cmocka_unit_test(
			confirm_two_of_three_do_not_choose_if_one_forgot),
		cmocka_unit_test(confirm_operator_vouches_for_what_is_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
