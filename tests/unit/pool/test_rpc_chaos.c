/* test_rpc_chaos.c - seeds: a server and clients that call each other while
 * links are lost, hosts are killed, paused and cut off.
 *
 * Checked for every call: what its caller was told and how often it was handled
 * fit together (rpc.h, 2); and at the end that nobody waits any more and each
 * peer that was opened was closed, once. */
#include "fixture/rpc_station.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 3
#define WORKERS 4
#define CALLS 25
#define NUMBERS_MAX (CLIENTS * WORKERS * CALLS * 8)

struct fate {
	uint32_t handled;
	bool told;
	int rc;
};

struct chaos {
	struct reef_sim *sim;
	struct reef_sim_host *server, *clients[CLIENTS];
	struct reef_random random;
	uint32_t left; /* clients that have not ended */
	uint32_t number;
	struct fate fates[NUMBERS_MAX];
	uint32_t opened, closed, connected, given_up;
	uint32_t kills;
};

struct guest {
	struct chaos *chaos;
	struct station station;
	uint32_t session;
	uint32_t left; /* workers */
	bool connecting;
};

static void note_handled(struct station *station, uint64_t number)
{
	struct chaos *chaos = station->context;

	if (number < NUMBERS_MAX)
		chaos->fates[number].handled++;
}

static int open_station(struct chaos *chaos, struct station *station,
			struct reef_sim_host *host)
{
	struct reef_mesh_options options = {.kinds = "sim"};
	struct reef_rpc_options limits = {0};
	struct reef_random *random = &chaos->random;

	options.fabric.sim_host = host;
	if (reef_random_chance(random, 1, 2)) {
		options.fabric.inbox_max =
			(uint32_t)reef_random_between(random, 1, 8);
		options.fabric.depth_max =
			(uint32_t)reef_random_between(random, 1, 8);
	}
	options.fabric.silence_ns = 300 * MILLISECOND;
	if (reef_random_chance(random, 1, 3))
		limits.peer_max = (uint32_t)reef_random_between(random, 1, 4);
	if (reef_random_chance(random, 1, 3))
		limits.handlers_max =
			(uint32_t)reef_random_between(random, 1, 6);
	station->handled = note_handled;
	station->context = chaos;
	station->slow_ns = reef_random_between(random, 0, 30 * MILLISECOND);
	return station_open(station, &options, &limits);
}

static void close_station(struct chaos *chaos, struct station *station)
{
	station_close(station);
	chaos->opened += station->opened;
	chaos->closed += station->closed;
	chaos->connected += station->connected;
	/* Each connected one was told as lost, by the end at the latest. */
	chaos->given_up += station->lost;
}

/* --- the server --- */

static int server_main(struct reef_sim_host *host, void *arg)
{
	struct chaos *chaos = arg;
	struct station *station = calloc(1, sizeof(*station));
	int rc;

	if (!station)
		return -ENOMEM;
	rc = open_station(chaos, station, host);
	if (!rc)
		rc = station_listen(station, "sim:server/1");
	while (!rc && chaos->left)
		rc = reef_sleep(MILLISECOND);
	close_station(chaos, station);
	free(station);
	return rc;
}

/* --- clients --- */

static int join_server(struct guest *guest)
{
	int rc = 0;

	while (!rc && guest->connecting)
		rc = reef_sleep(MILLISECOND);
	if (!rc && !guest->station.rpc)
		rc = -REEF_EHOSTDEAD; /* as good as that */
	if (rc || guest->station.peer)
		return rc;
	guest->connecting = true;
	rc = station_connect(&guest->station, "sim:server/1", guest->session);
	guest->connecting = false;
	if (rc && rc != -REEF_EHOSTDEAD)
		rc = reef_sleep(10 * MILLISECOND);
	return rc;
}

/* -REEF_EHOSTDEAD: over. */
static int call_once(struct guest *guest)
{
	struct chaos *chaos = guest->chaos;
	struct reef_random *random = &chaos->random;
	uint32_t number = chaos->number++;
	struct fate *fate = &chaos->fates[number];
	uint64_t timeout_ns = reef_random_chance(random, 1, 8)
				      ? reef_random_below(random, MILLISECOND)
				      : SECOND;

	fate->rc = station_ask(guest->station.peer,
			       (uint32_t)reef_random_below(random, WHATS),
			       number, timeout_ns);
	fate->told = true;
	return fate->rc;
}

static int worker_main(void *arg)
{
	struct guest *guest = arg;
	struct reef_random *random = &guest->chaos->random;
	uint32_t done = 0;
	int rc = 0;

	while (rc != -REEF_EHOSTDEAD && done < CALLS &&
	       guest->chaos->number < NUMBERS_MAX) {
		rc = join_server(guest);
		if (rc || !guest->station.peer)
			continue;
		rc = call_once(guest);
		done++;
		if (rc == -REEF_EHOSTDEAD)
			break;
		if (guest->station.peer && reef_random_chance(random, 1, 50)) {
			reef_peer_close(guest->station.peer);
			guest->station.peer = NULL;
			guest->station.connected--;
		}
		if (reef_random_chance(random, 1, 4))
			rc = reef_sleep(reef_random_below(random, MILLISECOND));
		else if (guest->station.peer)
			reef_rpc_note(guest->station.peer, REEF_POOL_NOTICE,
				      NULL);
	}
	guest->left--;
	return 0;
}

static int client_main(struct reef_sim_host *host, void *arg)
{
	struct chaos *chaos = arg;
	struct guest *guest = calloc(1, sizeof(*guest));
	struct reef_fiber *workers[WORKERS];
	int rc, count = 0;

	if (!guest)
		return -ENOMEM;
	guest->chaos = chaos;
	guest->session = SESSION(++chaos->kills + 10);
	guest->station.close_in_closed = true;
	rc = open_station(chaos, &guest->station, host);
	for (; !rc && count < WORKERS; count++) {
		guest->left++;
		rc = reef_fiber_spawn(reef_fiber_sched(), worker_main, guest,
				      &workers[count]);
	}
	/* Now and then the rpc ends under its workers' feet. */
	if (!rc && reef_random_chance(&chaos->random, 1, 4)) {
		reef_sleep(reef_random_below(&chaos->random, 20 * MILLISECOND));
		reef_rpc_destroy(guest->station.rpc);
		guest->station.rpc = NULL;
	}
	while (count > 0)
		reef_fiber_join(workers[--count], NULL);
	close_station(chaos, &guest->station);
	free(guest);
	chaos->left--;
	return rc;
}

/* --- what befalls them --- */

static void befall(struct chaos *chaos)
{
	struct reef_random *random = &chaos->random;
	struct reef_sim_host *client =
		chaos->clients[reef_random_below(random, CLIENTS)];

	switch (reef_random_below(random, 8)) {
	case 0:
		reef_sim_host_kill(chaos->server);
		break;
	case 1:
		reef_sim_host_kill(client);
		break;
	case 2:
		reef_sim_partition(chaos->server, client, true);
		break;
	case 3:
		reef_sim_partition(chaos->server, client, false);
		break;
	case 4:
		reef_sim_host_pause(client);
		break;
	case 5:
		reef_sim_host_pause(chaos->server);
		break;
	default:
		reef_sim_host_resume(client);
		reef_sim_host_resume(chaos->server);
	}
}

/* Whoever is dead comes back; a client counts as one more. */
static void revive(struct chaos *chaos)
{
	reef_sim_host_resume(chaos->server);
	reef_sim_host_restart(chaos->server, server_main, chaos);
	for (int i = 0; i < CLIENTS; i++) {
		reef_sim_host_resume(chaos->clients[i]);
		reef_sim_partition(chaos->server, chaos->clients[i], false);
		if (!reef_sim_host_restart(chaos->clients[i], client_main,
					   chaos))
			chaos->left++;
	}
}

static int chaos_main(void *arg)
{
	struct chaos *chaos = arg;

	for (int i = 0; i < 6 && chaos->left; i++) {
		reef_sleep(reef_random_below(&chaos->random, 40 * MILLISECOND));
		if (!chaos->left)
			break;
		befall(chaos);
		reef_sleep(reef_random_below(&chaos->random, 40 * MILLISECOND));
		if (chaos->left && reef_random_chance(&chaos->random, 1, 2))
			revive(chaos);
	}
	reef_sim_host_resume(chaos->server);
	if (chaos->left)
		revive(chaos);
	return 0;
}

static void check_fate(uint64_t seed, uint32_t number, const struct fate *fate)
{
	bool fits = fate->handled <= 1;

	switch (fate->told ? fate->rc : -ETIMEDOUT) {
	case 0:
	case -ENOENT:
		fits = fits && fate->handled == 1;
		break;
	case -REEF_ENOLINK:
	case -EBUSY:
		fits = fits && fate->handled == 0;
		break;
	case -REEF_EINDOUBT:
	case -ETIMEDOUT:
	case -REEF_EHOSTDEAD:
		break;
	default:
		fits = false;
	}
	if (!fits)
		fail_msg("seed %lu: call %u was told %s, and handled %u times",
			 (unsigned long)seed, number, reef_error_name(fate->rc),
			 fate->handled);
}

static void run_seed(uint64_t seed, struct chaos *chaos)
{
	struct reef_sim_options options = {.seed = seed};
	char name[16];
	int rc;

	memset(chaos, 0, sizeof(*chaos));
	reef_random_init(&chaos->random, seed);
	if (reef_random_chance(&chaos->random, 1, 2))
		options.lose_link_ppm =
			(uint32_t)reef_random_below(&chaos->random, 20000);
	assert_int_equal(reef_sim_create(&options, &chaos->sim), 0);
	assert_int_equal(reef_sim_host_add(chaos->sim, "server", server_main,
					   chaos, &chaos->server),
			 0);
	chaos->left = CLIENTS;
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(name, sizeof(name), "client%d", i);
		assert_int_equal(reef_sim_host_add(chaos->sim, name,
						   client_main, chaos,
						   &chaos->clients[i]),
				 0);
	}
	assert_int_equal(reef_fiber_spawn(reef_sim_sched(chaos->sim),
					  chaos_main, chaos, NULL),
			 0);
	rc = reef_sim_run(chaos->sim, 1000 * SECOND);
	if (rc)
		print_error("seed %lu: %s\n", (unsigned long)seed,
			    reef_error_text(rc));
	assert_int_equal(rc, 0);
	reef_sim_destroy(chaos->sim);
	for (uint32_t i = 0; i < chaos->number; i++)
		check_fate(seed, i, &chaos->fates[i]);
	assert_int_equal(chaos->opened, chaos->closed);
	assert_int_equal(chaos->connected, chaos->given_up);
}

static void rpc_chaos_calls_are_told_the_truth(void **state)
{
	const char *only = getenv("REEF_SEED");
	uint64_t seeds = seeds_of(300, 20000);
	struct chaos *chaos = malloc(sizeof(*chaos));
	uint64_t calls = 0, answered = 0;

	assert_non_null(chaos);
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++) {
		run_seed(seed, chaos);
		calls += chaos->number;
		for (uint32_t i = 0; i < chaos->number; i++)
			answered += chaos->fates[i].told && !chaos->fates[i].rc;
	}
	print_message("%lu calls, %lu answered\n", (unsigned long)calls,
		      (unsigned long)answered);
	/* Else nothing was looked at. */
	assert_true(only || answered > seeds * 20);
	free(chaos);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_chaos_calls_are_told_the_truth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
