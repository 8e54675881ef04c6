/* test_sim_chaos.c - everything at once: links lost, networks cut, hosts
 * paused, killed and started again, while clients count by FAA. Whatever
 * happens, an FAA that was reported done has happened once, one in doubt at
 * most once, and one that was refused not at all. */
#include "fixture/seeds.h"
#include "fixture/sim_world.h"

#include <stdio.h>

#define SEEDS 30
#define SEEDS_SOAK 3000
#define WORDS 8

/* What a client knows of its word, over all its lives. A life keeps what it
 * has opened to itself: the next one may begin before it has unwound. */
struct tally {
	struct client client;
	struct reef_link *link; /* of the latest life */
	uint64_t done, doubt, refused;
	bool over;
};

struct chaos {
	struct cluster cluster;
	struct tally tallies[CLIENTS_MAX];
	bool calm;
};

static int count_once(struct tally *tally, struct client *client)
{
	struct reef_random *random = reef_sim_host_random(client->host);
	struct reef_op ops[3];
	uint64_t words[WORDS];
	int rc;

	/* The middle one counts; the others are there to be torn apart. */
	ops[0] = cluster_read(client, 1024, words, sizeof(words));
	ops[1] = cluster_faa(client, 8 * client->number, 1);
	ops[2] = (struct reef_op){
		.kind = REEF_SEND, .local = "count", .length = 5};
	rc = cluster_run_ops(client, ops, 3);
	if (!rc)
		tally->done++;
	else if (rc == -REEF_EINDOUBT || rc == -REEF_EHOSTDEAD)
		tally->doubt++;
	else
		tally->refused++;
	return rc ? rc : reef_sleep(reef_random_below(random, 500000));
}

/* Until the test is over, with as many links as it takes. */
static int count_on(struct tally *tally, struct client *client)
{
	const struct cluster *cluster = client->cluster;
	int rc = 0;

	while (!cluster->over && rc != -REEF_EHOSTDEAD) {
		rc = cluster_join(client);
		if (!rc)
			tally->link = client->link;
		while (!rc && !cluster->over)
			rc = count_once(tally, client);
		if (rc != -REEF_EHOSTDEAD)
			rc = reef_sleep(100000);
		if (tally->link == client->link)
			tally->link = NULL;
		reef_link_close(client->link);
		client->link = NULL;
	}
	return rc;
}

static int tally_main(struct reef_sim_host *host, void *arg)
{
	struct tally *tally = arg;
	struct client client = tally->client;
	int rc;

	rc = reef_fabric_open("sim", &client.cluster->options, &client.fabric);
	if (rc)
		return rc;
	rc = reef_queue_open(client.fabric, NULL, &client.queue);
	if (!rc)
		rc = count_on(tally, &client);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
	tally->over = !rc;
	return rc;
}

static int lender_main(struct reef_sim_host *host, void *arg)
{
	struct chaos *chaos = arg;
	struct cluster *cluster = &chaos->cluster;
	struct cluster mine;
	struct reef_message *message;
	int rc = cluster_node_open(cluster);

	mine = *cluster;
	while (!rc && !chaos->calm) {
		rc = reef_receive(mine.queue, MILLISECOND, &message);
		if (!rc)
			reef_message_free(message);
		if (rc == -ETIMEDOUT)
			rc = 0;
	}
	reef_listener_close(mine.listener);
	reef_queue_close(mine.queue);
	reef_fabric_close(mine.fabric);
	return rc;
}

static struct reef_sim_host *pick_host(struct chaos *chaos, uint64_t index)
{
	return index ? chaos->tallies[index - 1].client.host
		     : chaos->cluster.node;
}

static void start_again(struct chaos *chaos, uint64_t index)
{
	if (index)
		reef_sim_host_restart(pick_host(chaos, index), tally_main,
				      &chaos->tallies[index - 1]);
	else
		reef_sim_host_restart(pick_host(chaos, 0), lender_main, chaos);
}

static void do_harm(struct chaos *chaos, struct reef_random *random)
{
	uint64_t index = reef_random_below(random, CLIENTS_MAX + 1);
	uint64_t client = reef_random_below(random, CLIENTS_MAX);
	struct reef_sim_host *host = pick_host(chaos, index);
	struct reef_link *link = chaos->tallies[client].link;
	uint64_t for_ns = reef_random_below(
		random, reef_random_chance(random, 1, 4) ? 3 * SECOND : 200000);

	switch (reef_random_below(random, 5)) {
	case 0:
		reef_sim_host_kill(host);
		reef_sleep(for_ns);
		start_again(chaos, index);
		break;
	case 1:
		reef_sim_host_pause(host);
		reef_sleep(for_ns);
		reef_sim_host_resume(host);
		break;
	case 2:
		reef_sim_partition(chaos->cluster.node,
				   pick_host(chaos, client + 1), true);
		reef_sleep(for_ns);
		reef_sim_partition(chaos->cluster.node,
				   pick_host(chaos, client + 1), false);
		break;
	default:
		if (link && !reef_link_status(link))
			reef_sim_lose_link(link);
	}
}

static int chaos_main(struct reef_sim_host *host, void *arg)
{
	struct chaos *chaos = arg;
	struct reef_random *random = reef_sim_random(chaos->cluster.sim);
	uint32_t i;
	bool over = false;

	for (i = 0; i < 30; i++) {
		reef_sleep(reef_random_below(random, 300000));
		do_harm(chaos, random);
	}
	reef_sleep(reef_random_below(random, MILLISECOND));
	chaos->cluster.over = true;
	while (!over) {
		over = true;
		for (i = 0; i < CLIENTS_MAX; i++)
			over &= chaos->tallies[i].over;
		reef_sleep(MILLISECOND);
	}
	chaos->calm = true;
	return 0;
}

static uint64_t run_chaos(const struct reef_sim_options *options,
			  uint64_t totals[3])
{
	struct chaos chaos = {.cluster.options.silence_ns = SECOND};
	char name[16];
	uint64_t i;

	assert_int_equal(reef_sim_create(options, &chaos.cluster.sim), 0);
	assert_int_equal(reef_sim_host_add(chaos.cluster.sim, "node",
					   lender_main, &chaos,
					   &chaos.cluster.node),
			 0);
	for (i = 0; i < CLIENTS_MAX; i++) {
		struct tally *tally = &chaos.tallies[i];

		tally->client.cluster = &chaos.cluster;
		tally->client.number = (uint32_t)i + 1;
		snprintf(name, sizeof(name), "client%u", tally->client.number);
		assert_int_equal(reef_sim_host_add(chaos.cluster.sim, name,
						   tally_main, tally,
						   &tally->client.host),
				 0);
	}
	assert_int_equal(reef_sim_host_add(chaos.cluster.sim, "chaos",
					   chaos_main, &chaos, NULL),
			 0);
	assert_int_equal(reef_sim_run(chaos.cluster.sim, 1000 * SECOND), 0);
	for (i = 0; i < CLIENTS_MAX; i++) {
		const struct tally *tally = &chaos.tallies[i];
		uint64_t word = cluster_word(&chaos.cluster, 8 * (i + 1));

		assert_in_range(word, tally->done, tally->done + tally->doubt);
		totals[0] += tally->done;
		totals[1] += tally->doubt;
		totals[2] += word - tally->done;
	}
	i = reef_sim_trace_hash(chaos.cluster.sim);
	reef_sim_destroy(chaos.cluster.sim);
	reef_memory_destroy(chaos.cluster.memory);
	return i;
}

static void sim_chaos_keeps_every_promise(void **state)
{
	struct reef_sim_options options = {.lose_link_ppm = 1000};
	uint64_t totals[3] = {0}, seeds = seeds_of(SEEDS, SEEDS_SOAK);

	for (options.seed = seeds_first(); seeds_has(options.seed, seeds);
	     options.seed++)
		run_chaos(&options, totals);
	/* Much was done, some was in doubt, and of that some had happened. */
	assert_true(totals[0] > 1000 * seeds);
	assert_true(totals[1] > seeds);
	assert_true(totals[2] > 0 && totals[2] < totals[1]);
}

static void sim_chaos_can_be_replayed(void **state)
{
	struct reef_sim_options options = {.lose_link_ppm = 1000};
	uint64_t totals[3] = {0};

	for (options.seed = seeds_first(); seeds_has(options.seed, 3);
	     options.seed++)
		assert_true(run_chaos(&options, totals) ==
			    run_chaos(&options, totals));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sim_chaos_keeps_every_promise),
		cmocka_unit_test(sim_chaos_can_be_replayed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
