/* test_sim.c - what the simulator does to hosts and the network between them:
 * clocks, kills, power, pauses, partitions, disks. */
#include "fixture/sim_world.h"

#include "base/store/store.h"
#include "fixture/seeds.h"

#include <stdio.h>
#include <string.h>

#define SEEDS 40

/* --- hosts and time --- */

struct sleeper {
	uint64_t passed_ns, result;
};

static int sleeping_main(struct reef_sim_host *host, void *arg)
{
	struct sleeper *sleeper = arg;
	uint64_t source_ns = reef_sched_now_ns(reef_fiber_sched());
	int rc = reef_sleep(100 * SECOND);

	sleeper->passed_ns = reef_sched_now_ns(reef_fiber_sched()) - source_ns;
	return rc ? rc : 42;
}

static void sim_clocks_drift_apart(void **state)
{
	struct reef_sim_options options = {.seed = 3};
	struct sleeper sleepers[8] = {0};
	struct reef_sim_host *hosts[8];
	struct reef_sim *sim;
	char name[8];
	int i, result, others = 0;

	assert_int_equal(reef_sim_create(&options, &sim), 0);
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "h%d", i);
		assert_int_equal(reef_sim_host_add(sim, name, sleeping_main,
						   &sleepers[i], &hosts[i]),
				 0);
		assert_string_equal(reef_sim_host_name(hosts[i]), name);
		assert_int_equal(reef_sim_host_result(hosts[i], &result),
				 -EAGAIN);
	}
	assert_int_equal(reef_sim_run(sim, 1000 * SECOND), 0);
	for (i = 0; i < 8; i++) {
		assert_in_range(sleepers[i].passed_ns, 99980 * MILLISECOND,
				100020 * MILLISECOND + 1000);
		others += sleepers[i].passed_ns != sleepers[0].passed_ns;
		assert_int_equal(reef_sim_host_result(hosts[i], &result), 0);
		assert_int_equal(result, 42);
	}
	assert_true(others > 3);
	reef_sim_destroy(sim);
}

static int endless_main(struct reef_sim_host *host, void *arg)
{
	int rc = 0;

	while (!rc)
		rc = reef_sleep(MILLISECOND);
	return rc;
}

static int parked_main(struct reef_sim_host *host, void *arg)
{
	return reef_fiber_park(REEF_FOREVER);
}

static void sim_run_past_its_limit_times_out(void **state)
{
	struct reef_sim_host *host;
	struct reef_sim *sim;
	int result;

	assert_int_equal(reef_sim_create(&(struct reef_sim_options){0}, &sim),
			 0);
	assert_int_equal(
		reef_sim_host_add(sim, "host", endless_main, NULL, &host), 0);
	assert_int_equal(reef_sim_run(sim, SECOND), -ETIMEDOUT);
	assert_int_equal(reef_sim_host_result(host, &result), 0);
	assert_int_equal(result, -REEF_EHOSTDEAD);
	reef_sim_destroy(sim);
}

static int outside_main(void *arg)
{
	*(int *)arg = reef_fiber_park(REEF_FOREVER);
	return 0;
}

static void sim_run_in_which_all_are_parked_is_deadlocked(void **state)
{
	struct reef_sim *sim;
	int outside = 0;

	assert_int_equal(reef_sim_create(&(struct reef_sim_options){0}, &sim),
			 0);
	assert_int_equal(
		reef_sim_host_add(sim, "host", parked_main, NULL, NULL), 0);
	/* Fibers of no host end with the rest. */
	assert_int_equal(reef_fiber_spawn(reef_sim_sched(sim), outside_main,
					  &outside, NULL),
			 0);
	assert_int_equal(reef_sim_run(sim, SECOND), -EDEADLK);
	assert_int_equal(outside, -REEF_EHOSTDEAD);
	reef_sim_destroy(sim);
}

static void sim_destroy_ends_what_never_ran(void **state)
{
	struct reef_sim *sim;

	assert_int_equal(reef_sim_create(&(struct reef_sim_options){0}, &sim),
			 0);
	assert_int_equal(
		reef_sim_host_add(sim, "host", endless_main, NULL, NULL), 0);
	reef_sim_destroy(sim);
	reef_sim_destroy(NULL);
}

static void sim_bad_names_and_options_are_refused(void **state)
{
	struct reef_sim *sim;
	char name[100];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(
		reef_sim_create(&(struct reef_sim_options){.delay_min_ns = 2,
							   .delay_max_ns = 1},
				&sim),
		-EINVAL);
	assert_int_equal(reef_sim_create(&(struct reef_sim_options){0}, &sim),
			 0);
	assert_int_equal(reef_sim_host_add(sim, name, parked_main, NULL, NULL),
			 -EINVAL);
	assert_int_equal(reef_sim_host_add(sim, "a/b", parked_main, NULL, NULL),
			 -EINVAL);
	assert_int_equal(reef_sim_host_add(sim, "", parked_main, NULL, NULL),
			 -EINVAL);
	assert_int_equal(reef_sim_host_add(sim, "a", parked_main, NULL, NULL),
			 0);
	assert_int_equal(reef_sim_host_add(sim, "a", parked_main, NULL, NULL),
			 -EINVAL);
	reef_sim_destroy(sim);
}

/* --- connecting --- */

static int try_address(struct client *client, const char *address)
{
	struct reef_connect_options options = {
		.session = SESSION(9),
		.identity = "test",
		.timeout_ns = SECOND,
	};
	struct reef_link *link;
	int rc;

	memset(options.key, 7, sizeof(options.key));
	rc = reef_connect(client->queue, address, &options, &link);
	if (!rc)
		reef_link_close(link);
	return -rc;
}

static int addresses_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_connect_options wrong = {
		.session = SESSION(9),
		.identity = "test",
	};
	struct reef_link *link;

	cluster->note[0] = (uint64_t)try_address(client, "sim:node/2");
	cluster->note[1] = (uint64_t)try_address(client, "sim:nobody/1");
	cluster->note[2] = (uint64_t)try_address(client, "tcp:node/1");
	cluster->note[3] = (uint64_t)try_address(client, "sim:node/x");
	cluster->note[4] = (uint64_t)try_address(client, "sim:node/1");
	cluster->note[5] = (uint64_t)-reef_connect(client->queue, "sim:node/1",
						   &wrong, &link);
	reef_sim_host_kill(cluster->node);
	cluster->note[6] = (uint64_t)try_address(client, "sim:node/1");
	return 0;
}

static void sim_connect_tells_why_it_failed(void **state)
{
	struct cluster cluster = {0};

	cluster_run(&cluster, 1, addresses_script);
	assert_int_equal(cluster.note[0], ECONNREFUSED);
	assert_int_equal(cluster.note[1], EHOSTUNREACH);
	assert_int_equal(cluster.note[2], EINVAL);
	assert_int_equal(cluster.note[3], EINVAL);
	assert_int_equal(cluster.note[4], 0);
	assert_int_equal(cluster.note[5], REEF_EAUTH);
	assert_int_equal(cluster.note[6], ETIMEDOUT);
}

/* --- kills --- */

static void noted(struct reef_batch *batch)
{
	*(int *)batch->user = batch->status;
}

/* note[0..]: what calls on a dead host return. */
static int dying_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_op op = cluster_faa(client, 0, 1);
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};
	struct reef_batch other = batch;
	struct reef_op other_op = op;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_remote *remote;
	struct reef_link *link;
	int seen = 0;

	other.ops = &other_op;
	other.on_done = noted;
	other.user = &seen;
	reef_post(client->queue, &batch);
	reef_post(client->queue, &other);
	reef_sim_host_kill(client->host); /* runs on until it parks */
	cluster->note[0] = (uint64_t)-reef_wait(client->queue, &batch);
	reef_poll(client->queue);
	cluster->note[1] = (uint64_t)-seen;
	cluster->note[2] = (uint64_t)-cluster_run_op(client, op);
	cluster->note[3] = (uint64_t)-cluster_connect(client, &link);
	cluster->note[4] = (uint64_t)-reef_attach(client->queue, client->link,
						  cluster->key, &remote);
	cluster->note[5] =
		(uint64_t)-reef_queue_open(client->fabric, NULL, &queue);
	cluster->note[6] = (uint64_t)-reef_fabric_open("sim", NULL, &fabric);
	cluster->note[7] = (uint64_t)-reef_sleep(1);
	return 0;
}

static void sim_calls_on_a_dead_host_say_so(void **state)
{
	struct cluster cluster = {0};
	int i;

	cluster_run(&cluster, 1, dying_script);
	for (i = 0; i < 8; i++)
		assert_int_equal(cluster.note[i], REEF_EHOSTDEAD);
}

static int counting_script(struct client *client)
{
	int rc = 0;

	while (!rc)
		rc = cluster_run_op(client, cluster_faa(client, 0, 1));
	return rc;
}

struct killer {
	struct cluster *cluster;
	uint64_t after_ns, at_kill, noticed_ns, at_notice, at_end;
	int result;
};

static int killer_main(struct reef_sim_host *host, void *arg)
{
	struct killer *killer = arg;
	struct cluster *cluster = killer->cluster;
	struct client *client = &cluster->clients[0];
	uint64_t start_ns;

	while (!cluster->opened)
		reef_sleep(1000);
	reef_sleep(killer->after_ns);
	reef_sim_host_kill(client->host);
	killer->at_kill = cluster_word(cluster, 0);
	start_ns = reef_now_ns();
	while (!cluster->closed)
		reef_sleep(MILLISECOND);
	killer->noticed_ns = reef_now_ns() - start_ns;
	killer->at_notice = cluster_word(cluster, 0);
	killer->result = client->result;
	client->result = 1;
	/* A new life, the same session: nothing of the old one any more. */
	reef_sim_host_restart(client->host, run_client, client);
	while (cluster->opened < 2)
		reef_sleep(1000);
	reef_sleep(MILLISECOND);
	reef_sim_host_kill(client->host);
	killer->at_end = cluster_word(cluster, 0);
	cluster->over = true;
	return 0;
}

static void sim_a_killed_host_is_missed_and_may_return(void **state)
{
	struct reef_sim_options options = {0};
	uint64_t late = 0;

	for (options.seed = seeds_first(); seeds_has(options.seed, SEEDS);
	     options.seed++) {
		struct cluster cluster = {.options.silence_ns = SECOND,
					  .stay = true};
		struct killer killer = {
			.cluster = &cluster,
			.after_ns = 100000 + 777 * options.seed,
		};

		cluster_start(&cluster, &options);
		cluster_add(&cluster, counting_script);
		assert_int_equal(reef_sim_host_add(cluster.sim, "killer",
						   killer_main, &killer, NULL),
				 0);
		assert_int_equal(cluster_finish(&cluster), 0);
		assert_int_equal(killer.result, -REEF_EHOSTDEAD);
		/* It is silence that tells, on a clock that drifts. */
		assert_in_range(killer.noticed_ns, 999 * MILLISECOND,
				1070 * MILLISECOND);
		assert_in_range(killer.at_notice, killer.at_kill,
				killer.at_kill + 1);
		late += killer.at_notice - killer.at_kill;
		assert_true(killer.at_end > killer.at_notice);
		assert_int_equal(cluster.opened, 2);
	}
	/* What was on its way has sometimes landed after the death. */
	assert_true(late > 0);
}

/* Kill at many moments; nothing may leak, hang or crash. */
static int busy_script(struct client *client)
{
	uint64_t words[64], i;
	struct reef_remote *again;
	struct reef_op ops[4];
	int rc = 0;

	for (i = 0; !rc && i < 20; i++) {
		memset(words, (int)i, sizeof(words));
		ops[0] = cluster_write(client, 0, words, sizeof(words));
		ops[1] = cluster_faa(client, 1024, 1);
		ops[2] = cluster_read(client, 0, words, sizeof(words));
		ops[3] = (struct reef_op){
			.kind = REEF_SEND, .local = words, .length = 64};
		rc = cluster_run_ops(client, ops, 4);
		if (!rc)
			rc = reef_attach(client->queue, client->link,
					 client->cluster->key, &again);
		if (!rc && i % 2)
			reef_detach(client->queue, again);
	}
	return rc;
}

struct reaper {
	struct cluster *cluster;
	struct reef_sim_host *victim;
	uint64_t after_ns;
};

static int reaper_main(struct reef_sim_host *host, void *arg)
{
	struct reaper *reaper = arg;

	reef_sleep(reaper->after_ns);
	reef_sim_host_power_off(reaper->victim);
	return 0;
}

static void sim_hosts_may_die_at_any_moment(void **state)
{
	struct reef_sim_options options = {0};
	int i;

	for (options.seed = seeds_first(); seeds_has(options.seed, 10 * SEEDS);
	     options.seed++) {
		struct cluster cluster = {.options.silence_ns = SECOND};
		struct reaper reaper = {
			.cluster = &cluster,
			.after_ns = options.seed * 997,
		};

		cluster_start(&cluster, &options);
		for (i = 0; i < 2; i++)
			cluster_add(&cluster, busy_script);
		reaper.victim = options.seed % 2 ? cluster.node
						 : cluster.clients[0].host;
		reef_sim_host_add(cluster.sim, "reaper", reaper_main, &reaper,
				  NULL);
		/* A node that died before it was ready is waited for. */
		i = cluster_finish(&cluster);
		assert_true(i == 0 || (i == -ETIMEDOUT && !cluster.ready));
	}
}

/* --- pauses --- */

static int waiting_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_message *message;
	int rc;

	cluster->note[0] = 1;
	rc = reef_receive(client->queue, 10 * SECOND, &message);
	if (rc)
		return rc;
	reef_message_free(message);
	cluster->note[1] = reef_sched_now_ns(reef_fiber_sched());
	while (!reef_link_status(client->link) && !cluster->note[6])
		reef_queue_wait(client->queue, MILLISECOND);
	return 0;
}

static struct reef_link *first_link;

static void remember_link(void *context, struct reef_link *link)
{
	first_link = link;
	((struct cluster *)context)->opened++;
}

/* Runs on the node while the client is paused. */
static int pausing_main(void *arg)
{
	struct cluster *cluster = arg;
	struct reef_sim_host *host = cluster->clients[0].host;
	struct reef_op op = {.kind = REEF_SEND, .local = "hello", .length = 5};
	struct reef_batch batch = {.ops = &op, .count = 1};

	reef_sim_host_pause(host);
	batch.link = first_link;
	cluster->note[2] = (uint64_t)-reef_run(cluster->queue, &batch);
	/* It cannot acknowledge, and nobody takes it for dead: not before it
	 * has been silent for long. */
	cluster->note[3] = (uint64_t)-reef_withdraw(
		cluster->queue, cluster->region, SECOND / 2);
	cluster->note[4] = cluster->note[1] + cluster->closed;
	cluster->note[5] = reef_sched_now_ns(reef_fiber_sched());
	reef_sim_host_resume(host);
	cluster->note[7] = (uint64_t)-reef_withdraw(cluster->queue,
						    cluster->region, SECOND);
	cluster->note[6] = 1;
	return 0;
}

static void pause_when_ready(struct cluster *cluster)
{
	if (cluster->note[0] == 1) {
		cluster->note[0] = 2;
		reef_fiber_spawn(reef_fiber_sched(), pausing_main, cluster,
				 NULL);
	}
	if (cluster->listener)
		cluster->listener->options.opened = remember_link;
}

static void sim_a_paused_host_stands_still_but_is_not_dead(void **state)
{
	struct cluster cluster = {.tick = pause_when_ready,
				  .options.silence_ns = SECOND};

	cluster_start(&cluster, &(struct reef_sim_options){.seed = 5});
	cluster_add(&cluster, waiting_script);
	assert_int_equal(cluster_finish(&cluster), 0);
	assert_int_equal(cluster.clients[0].result, 0);
	assert_int_equal(cluster.note[2], 0); /* its card took the message */
	assert_int_equal(cluster.note[3], ETIMEDOUT);
	assert_int_equal(cluster.note[4], 0); /* no run, no end */
	assert_true(cluster.note[1] >= cluster.note[5]);
	assert_int_equal(cluster.note[7], 0);
}

/* --- messages --- */

#define FLOOD 200 /* twice that is more than a card holds */

/* note[2]: for how long; note[3..4]: how the two batches ended. */
static int flooding_main(void *arg)
{
	struct cluster *cluster = arg;
	struct reef_sim_host *host = cluster->clients[0].host;
	static uint64_t numbers[2][FLOOD]; /* too much for a stack */
	static struct reef_op ops[2][FLOOD];
	struct reef_batch batches[2];
	uint64_t i, j;

	reef_sim_host_pause(host);
	for (i = 0; i < 2; i++) {
		for (j = 0; j < FLOOD; j++) {
			numbers[i][j] = i * FLOOD + j;
			ops[i][j] = (struct reef_op){.kind = REEF_SEND,
						     .local = &numbers[i][j],
						     .length = 8};
		}
		batches[i] = (struct reef_batch){
			.link = first_link, .ops = ops[i], .count = FLOOD};
		reef_post(cluster->queue, &batches[i]);
	}
	reef_sleep(cluster->note[2]);
	reef_sim_host_resume(host);
	for (i = 0; i < 2; i++)
		cluster->note[3 + i] =
			(uint64_t)-reef_wait(cluster->queue, &batches[i]);
	cluster->note[6] = 1;
	return 0;
}

static void flood_when_ready(struct cluster *cluster)
{
	if (cluster->note[0] == 1) {
		cluster->note[0] = 2;
		reef_fiber_spawn(reef_fiber_sched(), flooding_main, cluster,
				 NULL);
	}
	if (cluster->listener)
		cluster->listener->options.opened = remember_link;
}

/* note[1]: messages; note[5]: out of order within their batch. */
static int flooded_script(struct client *client)
{
	uint64_t *note = client->cluster->note, next[2] = {0, FLOOD}, number;
	struct reef_message *message;

	note[0] = 1;
	while (!note[6] || note[1] < note[7]) {
		if (reef_receive(client->queue, MILLISECOND, &message))
			continue;
		memcpy(&number, message->bytes, 8);
		note[1]++;
		note[5] += number != next[number / FLOOD]++;
		reef_message_free(message);
	}
	return 0;
}

static void sim_messages_wait_for_room_and_none_is_lost(void **state)
{
	struct reef_sim_options options = {0};

	for (options.seed = seeds_first(); seeds_has(options.seed, SEEDS);
	     options.seed++) {
		struct cluster cluster = {
			.tick = flood_when_ready,
			.options = {.silence_ns = SECOND, .inbox_max = 16},
			.note = {[2] = SECOND / 10, [7] = 2 * FLOOD},
		};

		cluster_start(&cluster, &options);
		cluster_add(&cluster, flooded_script);
		assert_int_equal(cluster_finish(&cluster), 0);
		assert_int_equal(cluster.note[1], 2 * FLOOD);
		assert_int_equal(cluster.note[3], 0);
		assert_int_equal(cluster.note[4], 0);
		assert_int_equal(cluster.note[5], 0);
	}
}

static void sim_a_receiver_without_room_counts_as_lost(void **state)
{
	struct cluster cluster = {
		.tick = flood_when_ready,
		.options.silence_ns = SECOND,
		.note = {[2] = 10 * SECOND},
	};

	cluster_start(&cluster, &(struct reef_sim_options){.seed = 1});
	cluster_add(&cluster, flooded_script);
	assert_int_equal(cluster_finish(&cluster), 0);
	assert_true(cluster.note[3] == REEF_EINDOUBT ||
		    cluster.note[4] == REEF_EINDOUBT);
	assert_int_equal(cluster.note[5], 0);
}

/* The memory of a paused node is served all the same. */
static int patient_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint64_t i;
	int rc = 0;

	reef_sim_host_pause(cluster->node);
	for (i = 0; i < 100 && !rc; i++)
		rc = cluster_run_op(client, cluster_faa(client, 0, 1));
	cluster->note[0] = cluster_word(cluster, 0);
	cluster->note[1] = (uint64_t)try_address(client, "sim:node/1");
	reef_sim_host_resume(cluster->node);
	cluster->note[2] = (uint64_t)try_address(client, "sim:node/1");
	return rc;
}

static void sim_a_paused_nodes_memory_is_served(void **state)
{
	struct cluster cluster = {0};

	cluster_run(&cluster, 1, patient_script);
	assert_int_equal(cluster.note[0], 100);
	assert_int_equal(cluster.note[1], ETIMEDOUT);
	assert_int_equal(cluster.note[2], 0);
}

/* --- partitions --- */

static int cut_script(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_op op = cluster_faa(client, 0, 1);
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};
	struct reef_link *link;
	uint64_t start_ns, word = 0;
	int rc;

	/* A short one delays, no more. */
	rc = reef_post(client->queue, &batch);
	reef_sim_partition(cluster->node, client->host, true);
	reef_sleep(SECOND / 2);
	cluster->note[0] = batch.done;
	reef_sim_partition(client->host, cluster->node, false);
	if (!rc)
		rc = reef_wait(client->queue, &batch);
	if (rc)
		return rc;
	/* A long one is taken for a death, by both. */
	reef_sim_partition(cluster->node, client->host, true);
	start_ns = reef_now_ns();
	cluster->note[1] = (uint64_t)-cluster_run_op(client, op);
	cluster->note[2] = reef_now_ns() - start_ns;
	while (!cluster->closed)
		reef_sleep(MILLISECOND);
	cluster->note[3] = reef_now_ns() - start_ns;
	cluster->note[4] = (uint64_t)-cluster_connect(client, &link);
	reef_sim_partition(cluster->node, client->host, false);
	reef_link_close(client->link);
	rc = cluster_join(client);
	if (!rc)
		rc = cluster_run_op(client, cluster_read(client, 0, &word, 8));
	cluster->note[5] = word;
	return rc;
}

static void sim_partitions_delay_and_then_divide(void **state)
{
	struct reef_sim_options options = {0};

	for (options.seed = seeds_first(); seeds_has(options.seed, SEEDS);
	     options.seed++) {
		struct cluster cluster = {.options.silence_ns = SECOND};

		cluster_start(&cluster, &options);
		cluster_add(&cluster, cut_script);
		assert_int_equal(cluster_finish(&cluster), 0);
		assert_int_equal(cluster.clients[0].result, 0);
		assert_int_equal(cluster.note[0], 0);
		assert_int_equal(cluster.note[1], REEF_EINDOUBT);
		assert_in_range(cluster.note[2], 999 * MILLISECOND,
				1070 * MILLISECOND);
		assert_in_range(cluster.note[3], 999 * MILLISECOND,
				1080 * MILLISECOND);
		assert_int_equal(cluster.note[4], ETIMEDOUT);
		assert_in_range(cluster.note[5], 1, 2);
	}
}

/* --- disks --- */

struct writer {
	struct reef_sim_host *host;
	int written, late;
	char read[8];
	int read_result;
};

static int writer_main(struct reef_sim_host *host, void *arg)
{
	struct writer *writer = arg;
	struct reef_store *store = reef_sim_host_store(host);
	struct reef_disk_file *file;

	if (reef_disk_open(store, "f", REEF_DISK_CREATE | REEF_DISK_LOCK,
			   &file))
		return -1;
	writer->written = reef_disk_write(file, 0, "first", 5);
	if (!writer->written)
		writer->written = reef_disk_sync(file);
	if (!writer->written)
		writer->written = reef_store_sync_names(store);
	reef_sim_host_kill(host);
	/* What unwinds changes nothing. */
	writer->late = reef_disk_write(file, 0, "later", 5);
	reef_disk_close(file);
	return 0;
}

static int reader_main(struct reef_sim_host *host, void *arg)
{
	struct writer *writer = arg;
	struct reef_disk_file *file;

	writer->read_result = reef_disk_open(reef_sim_host_store(host), "f",
					     REEF_DISK_LOCK, &file);
	if (writer->read_result)
		return 0;
	writer->read_result = (int)reef_disk_read(file, 0, writer->read, 5);
	reef_disk_close(file);
	return 0;
}

static int disk_main(struct reef_sim_host *host, void *arg)
{
	struct writer *writer = arg;

	while (!writer->late)
		reef_sleep(MILLISECOND);
	reef_sim_host_power_off(writer->host);
	return reef_sim_host_restart(writer->host, reader_main, writer);
}

static void sim_disks_survive_their_hosts(void **state)
{
	struct reef_sim_options options = {.seed = 8};
	struct writer writer = {.read_result = -1};
	struct reef_sim *sim;

	assert_int_equal(reef_sim_create(&options, &sim), 0);
	assert_int_equal(reef_sim_host_add(sim, "disk", writer_main, &writer,
					   &writer.host),
			 0);
	assert_int_equal(
		reef_sim_host_add(sim, "other", disk_main, &writer, NULL), 0);
	assert_int_equal(
		reef_sim_host_restart(writer.host, reader_main, &writer),
		-EBUSY);
	assert_int_equal(reef_sim_run(sim, 100 * SECOND), 0);
	assert_int_equal(writer.written, 0);
	assert_int_equal(writer.late, -REEF_EHOSTDEAD);
	assert_int_equal(writer.read_result, 5);
	assert_string_equal(writer.read, "first");
	reef_sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sim_clocks_drift_apart),
		cmocka_unit_test(sim_run_past_its_limit_times_out),
		cmocka_unit_test(sim_run_in_which_all_are_parked_is_deadlocked),
		cmocka_unit_test(sim_destroy_ends_what_never_ran),
		cmocka_unit_test(sim_bad_names_and_options_are_refused),
		cmocka_unit_test(sim_connect_tells_why_it_failed),
		cmocka_unit_test(sim_calls_on_a_dead_host_say_so),
		cmocka_unit_test(sim_a_killed_host_is_missed_and_may_return),
		cmocka_unit_test(sim_hosts_may_die_at_any_moment),
		cmocka_unit_test(
			sim_a_paused_host_stands_still_but_is_not_dead),
		cmocka_unit_test(sim_a_paused_nodes_memory_is_served),
		cmocka_unit_test(sim_messages_wait_for_room_and_none_is_lost),
		cmocka_unit_test(sim_a_receiver_without_room_counts_as_lost),
		cmocka_unit_test(sim_partitions_delay_and_then_divide),
		cmocka_unit_test(sim_disks_survive_their_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
