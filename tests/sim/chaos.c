/* chaos.c - what goes wrong, and when.
 *
 * One fiber sleeps, picks a trouble that the options allow, and starts a fiber
 * that lets it happen and mends it after a while; so several overlap. When the
 * workload's time is up nothing new happens, and what is broken is mended.
 *
 * What may cost a client its lease is noted at its seat: a pause, or a cut from
 * the broker, that comes near the TTL by itself or with the one before it. A
 * cut from a node is noted apart: it costs no renewal, but whoever waits there
 * may hold memory back that others lack, and is ended for that (broker/lease.c,
 * 10) and for nothing else. */
#include "cluster.h"

#include "base/store/store.h"
#include "pool/broker/journal/format.h"

#include <stdlib.h>

#define SEGMENTS_MAX 1000 /* that a journal here may have */

/* A trouble that a fiber of its own sees through. */
struct trouble {
	struct cluster *cluster;
	struct seat *seat;    /* whose lease may suffer; or NULL */
	struct seat *waiting; /* who may wait for a node; or NULL */
	struct reef_sim_host *a, *b;
	uint32_t index; /* of a node; or of a call */
	uint64_t lasts_ns;
	bool power;
	int (*see)(struct trouble *trouble);
};

static uint64_t now_ns(const struct cluster *cluster)
{
	return reef_sched_now_ns(reef_sim_sched(cluster->sim));
}

static bool is_late(const struct cluster *cluster)
{
	return cluster->is_over || cluster->failure[0] ||
	       now_ns(cluster) >= cluster->ends_ns;
}

static int trouble_main(void *arg)
{
	struct trouble *trouble = arg;
	struct cluster *cluster = trouble->cluster;
	struct seat *seat = trouble->seat;
	int rc;

	rc = trouble->see(trouble);
	cluster->troubles--;
	if (seat) {
		seat->troubles--;
		seat->troubled_ns = now_ns(cluster);
	}
	if (trouble->waiting)
		trouble->waiting->waits--;
	free(trouble);
	return rc;
}

static void begin(struct cluster *cluster, const struct trouble *like)
{
	uint64_t ttl_ns = cluster->options.ttl_ns;
	struct trouble *trouble = malloc(sizeof(*trouble));
	struct seat *seat = like->seat;

	if (!trouble)
		return;
	*trouble = *like;
	trouble->cluster = cluster;
	if (reef_fiber_spawn_in(cluster->fates, trouble_main, trouble, NULL)) {
		free(trouble);
		return;
	}
	cluster->troubles++;
	if (like->waiting) {
		like->waiting->waits++;
		like->waiting->has_waited = true;
	}
	if (!seat)
		return;
	/* Renewed every ttl/4, judged by four samples: what is shorter than
	 * half of it, and alone, costs nothing. */
	if (like->lasts_ns > ttl_ns / 2 || seat->troubles ||
	    now_ns(cluster) < seat->troubled_ns + ttl_ns)
		seat->disturbed = true;
	seat->troubles++;
}

static uint64_t between(struct cluster *cluster, uint64_t low, uint64_t high)
{
	return reef_random_between(&cluster->random, low, high);
}

/* --- the broker --- */

static int see_broker_killed(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	int rc;

	cluster_trace(cluster, "the broker is killed%s",
		      trouble->power ? ", power gone" : "");
	if (trouble->power)
		reef_sim_host_power_off(cluster->broker);
	else
		reef_sim_host_kill(cluster->broker);
	cluster->broker_kills++;
	rc = reef_sleep(trouble->lasts_ns);
	if (rc) /* all is over */
		return rc;
	cluster->broker_is_down = false;
	return reef_sim_host_restart(cluster->broker, cluster_broker_main,
				     cluster);
}

/* Its disk fails at some call from now on, and the broker gives up; then the
 * power goes. */
static int see_disk_failing(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	struct reef_store *disk = reef_sim_host_disk(cluster->broker);
	int rc;

	cluster_trace(cluster, "the broker's disk is to fail at call %u",
		      trouble->index);
	reef_store_fail_after(disk, trouble->index);
	rc = reef_sleep(trouble->lasts_ns);
	reef_store_fail_after(disk, 0);
	trouble->power = true;
	trouble->lasts_ns /= 2;
	return rc ? rc : see_broker_killed(trouble);
}

static void kill_broker(struct cluster *cluster, bool power)
{
	uint64_t longest_ns = 3 * cluster->options.ttl_ns;

	if (cluster->broker_is_down)
		return;
	cluster->broker_is_down = true;
	/* Mostly brief, so that much happens between two of them. */
	if (reef_random_below(&cluster->random, 8))
		longest_ns = cluster->options.ttl_ns / 10;
	begin(cluster,
	      &(struct trouble){
		      .see = see_broker_killed,
		      .lasts_ns = between(cluster, MILLISECOND, longest_ns),
		      .power = power,
	      });
}

static void fail_disk(struct cluster *cluster)
{
	if (cluster->broker_is_down)
		return;
	cluster->broker_is_down = true;
	begin(cluster, &(struct trouble){
			       .see = see_disk_failing,
			       .index = (uint32_t)between(cluster, 1, 40),
			       .lasts_ns = between(cluster, 5 * MILLISECOND,
						   50 * MILLISECOND),
		       });
}

/* --- two brokers --- */

static int copy_file(struct reef_store *from, struct reef_store *to,
		     const char *name)
{
	struct reef_disk_file *in, *out;
	uint8_t bytes[4096];
	uint64_t at = 0;
	ssize_t got;
	int rc;

	rc = reef_disk_open(from, name, 0, &in);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = reef_disk_open(to, name, REEF_DISK_CREATE, &out);
	if (!rc) {
		while ((got = reef_disk_read(in, at, bytes, sizeof(bytes))) >
			       0 &&
		       !rc) {
			rc = reef_disk_write(out, at, bytes, (size_t)got);
			at += (uint64_t)got;
		}
		if (!rc)
			rc = reef_disk_sync(out);
		reef_disk_close(out);
	}
	reef_disk_close(in);
	return rc;
}

/* The journal, as it is on the disk of one that stands still. */
static int copy_journal(struct reef_store *from, struct reef_store *to)
{
	char name[REEF_JOURNAL_NAME_SIZE];
	int rc;

	rc = copy_file(from, to, REEF_JOURNAL_IDENTITY_NAME);
	if (!rc)
		rc = copy_file(from, to, REEF_JOURNAL_SNAPSHOT_NAME);
	for (uint64_t i = 0; !rc && i < SEGMENTS_MAX; i++) {
		reef_journal_segment_name(name, i);
		rc = copy_file(from, to, name);
	}
	return rc ? rc : reef_store_sync_names(to);
}

/* The broker stands still, its disk is brought to another host, and one is
 * started there. Then the old one goes on. */
static int see_takeover(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	struct reef_sim_host *old = cluster->broker;
	int rc;

	cluster_trace(cluster, "another broker takes over for %llu ms",
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	reef_sim_host_pause(old);
	rc = copy_journal(reef_sim_host_disk(old),
			  reef_sim_host_disk(cluster->other));
	if (rc)
		cluster_fail(cluster, "the journal cannot be copied: %s",
			     reef_error_text(rc));
	cluster->broker = cluster->other;
	cluster->other = old;
	reef_sim_host_kill(cluster->broker);
	reef_sim_host_restart(cluster->broker, cluster_broker_main, cluster);
	rc = reef_sleep(trouble->lasts_ns);
	reef_sim_host_resume(old);
	cluster_trace(cluster, "the old broker is back");
	cluster->broker_is_down = false;
	return rc;
}

/* True if every node has registered once: before, nothing could tell two
 * brokers apart (broker/confirm.c, 7). */
static bool has_all_nodes(const struct cluster *cluster)
{
	struct reef_node_status status = {0};

	for (uint32_t i = 0; i < cluster->options.nodes; i++) {
		if (cluster->running[i])
			reef_node_status(cluster->running[i], &status);
		if (!status.id)
			return false;
	}
	return true;
}

static void take_over(struct cluster *cluster)
{
	if (cluster->broker_is_down || cluster->taken_over ||
	    !has_all_nodes(cluster))
		return;
	cluster->broker_is_down = cluster->taken_over = true;
	begin(cluster, &(struct trouble){
			       .see = see_takeover,
			       .lasts_ns = between(cluster, MILLISECOND,
						   5 * cluster->options.ttl_ns),
		       });
}

/* --- clients --- */

static struct seat *pick_seat(struct cluster *cluster)
{
	struct seat *seat = &cluster->seats[reef_random_below(
		&cluster->random, cluster->options.clients)];

	return seat->is_over || seat->troubles ? NULL : seat;
}

static int see_client_paused(struct trouble *trouble)
{
	struct seat *seat = trouble->seat;
	int rc;

	cluster_trace(seat->cluster, "client %u is paused for %llu ms",
		      seat->index,
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	reef_sim_host_pause(seat->host);
	rc = reef_sleep(trouble->lasts_ns);
	reef_sim_host_resume(seat->host);
	cluster_trace(seat->cluster, "client %u is resumed", seat->index);
	return rc;
}

static void pause_client(struct cluster *cluster)
{
	uint64_t ttl_ns = cluster->options.ttl_ns;
	struct seat *seat = pick_seat(cluster);

	if (!seat)
		return;
	cluster->pauses++;
	begin(cluster,
	      &(struct trouble){
		      .see = see_client_paused,
		      .seat = seat,
		      .lasts_ns =
			      reef_random_below(&cluster->random, 2)
				      ? between(cluster, ttl_ns / 4, ttl_ns / 2)
				      : between(cluster, ttl_ns / 2,
						5 * ttl_ns),
	      });
}

static void kill_client(struct cluster *cluster)
{
	struct seat *seat = pick_seat(cluster);

	if (!seat)
		return;
	chaos_strike_kill(seat);
}

void chaos_strike_kill(struct seat *seat)
{
	cluster_trace(seat->cluster, "client %u is killed", seat->index);
	seat->cluster->deaths++;
	seat->died = seat->session;
	seat->died_ns = now_ns(seat->cluster);
	reef_sim_host_kill(seat->host);
	reef_sim_host_restart(seat->host, cluster_client_main, seat);
}

void chaos_strike_stop(struct seat *seat)
{
	struct cluster *cluster = seat->cluster;
	uint64_t ttl_ns = cluster->options.ttl_ns;

	cluster->pauses++;
	begin(cluster,
	      &(struct trouble){
		      .see = see_client_paused,
		      .seat = seat,
		      .lasts_ns = between(cluster, 2 * ttl_ns, 4 * ttl_ns),
	      });
}

/* --- the network --- */

static int see_cut(struct trouble *trouble)
{
	int rc;

	cluster_trace(trouble->cluster, "cut between %s and %s for %llu ms",
		      reef_sim_host_name(trouble->a),
		      reef_sim_host_name(trouble->b),
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	reef_sim_partition(trouble->a, trouble->b, true);
	rc = reef_sleep(trouble->lasts_ns);
	reef_sim_partition(trouble->a, trouble->b, false);
	return rc;
}

static void cut_network(struct cluster *cluster)
{
	struct cluster_options *options = &cluster->options;
	struct seat *seat = &cluster->seats[reef_random_below(
		&cluster->random, options->clients)];
	uint32_t node =
		(uint32_t)reef_random_below(&cluster->random, options->nodes);
	struct trouble cut = {
		.see = see_cut,
		.lasts_ns = between(cluster, MILLISECOND, 3 * options->ttl_ns),
	};

	switch (reef_random_below(&cluster->random, 3)) {
	case 0:
		cut.a = seat->host;
		cut.b = cluster->nodes[node];
		cut.waiting = seat;
		break;
	case 1:
		cut.a = seat->host;
		cut.b = cluster->broker;
		cut.seat = seat;
		break;
	default:
		cut.a = cluster->nodes[node];
		cut.b = cluster->broker;
		/* Away for too long it would be taken for dead. */
		if (options->chaos & CHAOS_NODE_KILL && options->copies == 1)
			cluster->nodes_died = !options->keeps;
		else
			cut.lasts_ns = between(cluster, MILLISECOND,
					       options->node_ttl_ns / 4);
	}
	cluster->cuts++;
	begin(cluster, &cut);
}

static void cut_clients(struct cluster *cluster, struct seat *seat)
{
	struct cluster_options *options = &cluster->options;
	uint32_t other = (uint32_t)(seat->index +
				    between(cluster, 1, options->clients - 1)) %
			 options->clients;

	cluster->cuts++;
	begin(cluster, &(struct trouble){
			       .see = see_cut,
			       .a = seat->host,
			       .b = cluster->seats[other].host,
			       .lasts_ns = between(cluster, MILLISECOND,
						   3 * options->ttl_ns),
		       });
}

void chaos_strike_cut(struct seat *seat)
{
	struct cluster *cluster = seat->cluster;
	struct cluster_options *options = &cluster->options;
	struct trouble cut = {
		.see = see_cut,
		.a = seat->host,
		.lasts_ns = between(cluster, MILLISECOND, 3 * options->ttl_ns),
	};

	switch (between(cluster, 0, 2)) {
	case 0:
		cut.b = cluster->nodes[between(cluster, 0, options->nodes - 1)];
		cut.waiting = seat;
		break;
	case 1:
		cut.b = cluster->broker;
		cut.seat = seat;
		break;
	default:
		cut_clients(cluster, seat);
		return;
	}
	cluster->cuts++;
	begin(cluster, &cut);
}

/* A client is away from the broker, and so are the nodes around the time that
 * its lease ends, so that none of them can confirm its fence at once. The
 * client reaches the nodes all the while, and goes on counting. */
static int see_fence(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	uint64_t ttl_ns = cluster->options.ttl_ns;
	int rc;

	cluster_trace(cluster, "client %u is away for %llu ms, then nodes",
		      trouble->seat->index,
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	reef_sim_partition(trouble->seat->host, cluster->broker, true);
	rc = reef_sleep(ttl_ns - ttl_ns / 8);
	for (uint32_t i = 0; i < cluster->options.nodes; i++)
		reef_sim_partition(cluster->nodes[i], cluster->broker, true);
	if (!rc)
		rc = reef_sleep(cluster->options.node_ttl_ns / 3);
	for (uint32_t i = 0; i < cluster->options.nodes; i++)
		reef_sim_partition(cluster->nodes[i], cluster->broker, false);
	if (!rc)
		rc = reef_sleep(trouble->lasts_ns - ttl_ns);
	reef_sim_partition(trouble->seat->host, cluster->broker, false);
	cluster->fencing = false;
	return rc;
}

static void fence_client(struct cluster *cluster)
{
	struct seat *seat = pick_seat(cluster);
	uint64_t ttl_ns = cluster->options.ttl_ns;

	if (!seat || cluster->fencing)
		return;
	cluster->fencing = true;
	begin(cluster,
	      &(struct trouble){
		      .see = see_fence,
		      .seat = seat,
		      .lasts_ns = between(cluster, 2 * ttl_ns, 3 * ttl_ns),
	      });
}

/* --- nodes --- */

static int see_node_killed(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	struct reef_sim_host *host = cluster->nodes[trouble->index];
	int rc;

	cluster_trace(cluster, "node %u is killed", trouble->index);
	reef_sim_host_kill(host);
	rc = reef_sleep(trouble->lasts_ns);
	if (rc) /* all is over */
		return rc;
	cluster->node_is_down[trouble->index] = false;
	return reef_sim_host_restart(host, cluster_node_main, cluster);
}

static int see_node_paused(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	struct reef_sim_host *host = cluster->nodes[trouble->index];
	int rc;

	cluster_trace(cluster, "node %u is paused for %llu ms", trouble->index,
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	reef_sim_host_pause(host);
	rc = reef_sleep(trouble->lasts_ns);
	reef_sim_host_resume(host);
	cluster->node_is_down[trouble->index] = false;
	return rc;
}

/* Cut a node off from the broker, and from all clients if told so; or let it
 * through again. */
static void cut_node(struct cluster *cluster, uint32_t index, bool all,
		     bool cut)
{
	struct reef_sim_host *host = cluster->nodes[index];

	reef_sim_partition(host, cluster->broker, cut);
	for (uint32_t i = 0; all && i < cluster->options.clients; i++)
		reef_sim_partition(host, cluster->seats[i].host, cut);
}

/* A node is cut off for longer than it is waited for: its copies are given up,
 * while clients may still reach them. */
static int see_node_cut(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	bool all = trouble->lasts_ns & 1;
	int rc;

	cluster_trace(cluster, "node %u is cut off from %s for %llu ms",
		      trouble->index, all ? "all" : "the broker",
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	cut_node(cluster, trouble->index, all, true);
	rc = reef_sleep(trouble->lasts_ns);
	cut_node(cluster, trouble->index, all, false);
	cluster->node_is_down[trouble->index] = false;
	return rc;
}

/* With copies one node at a time, when the one before was missed and its copies
 * were made anew: then nothing is lost. Unless they keep their memory. */
static bool may_harm_node(struct cluster *cluster, uint64_t lasts_ns)
{
	uint64_t now_ns = reef_now_ns();

	if (cluster->options.copies == 1 || cluster->options.several)
		return true;
	if (now_ns < cluster->harmed_until_ns || !cluster_is_whole(cluster))
		return false;
	cluster->harmed_until_ns =
		now_ns + lasts_ns + 2 * cluster->options.node_ttl_ns;
	return true;
}

static void harm_node(struct cluster *cluster,
		      int (*see)(struct trouble *trouble))
{
	uint32_t index = (uint32_t)reef_random_below(&cluster->random,
						     cluster->options.nodes);
	uint64_t ttl_ns = cluster->options.node_ttl_ns;
	uint64_t lasts_ns = between(cluster, MILLISECOND, 4 * ttl_ns);

	if (cluster->node_is_down[index] || !may_harm_node(cluster, lasts_ns))
		return;
	cluster->node_is_down[index] = true;
	cluster->harmed++;
	cluster->nodes_died =
		!cluster->options.keeps && cluster->options.copies == 1;
	/* Whoever waits for it may be ended for what it pins. With copies all
	 * go on with the other. */
	for (uint32_t i = 0; i < cluster->options.clients; i++)
		cluster->seats[i].has_waited |= cluster->options.copies == 1;
	begin(cluster, &(struct trouble){
			       .see = see,
			       .index = index,
			       .lasts_ns = lasts_ns,
		       });
}

void chaos_strike_node(struct cluster *cluster)
{
	static int (*const harms[])(struct trouble *) = {
		see_node_killed, see_node_paused, see_node_cut};

	harm_node(cluster, harms[reef_random_below(&cluster->random, 3)]);
}

/* --- an operator's orders --- */

/* What an order may say although nothing is wrong: its subject is gone. */
static int judge_order(struct cluster *cluster, const char *what, int rc)
{
	if (rc && rc != -REEF_EHOSTDEAD && rc != -ENOENT &&
	    !(cluster->nodes_died && rc == -ESTALE))
		cluster_fail(cluster, "the operator: %s: %s", what,
			     reef_error_text(rc));
	return rc;
}

static int see_drain(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	int rc;

	cluster_trace(cluster, "node %u is drained for %llu ms", trouble->index,
		      (unsigned long long)(trouble->lasts_ns / MILLISECOND));
	rc = orders_drain(cluster, trouble->index, false);
	judge_order(cluster, "drain", rc);
	if (!rc)
		rc = reef_sleep(trouble->lasts_ns);
	if (!rc) {
		rc = orders_drain(cluster, trouble->index, true);
		judge_order(cluster, "undrain", rc);
		cluster_trace(cluster, "node %u is not drained any more",
			      trouble->index);
	}
	cluster->draining = false;
	return rc;
}

static void drain_node(struct cluster *cluster)
{
	uint32_t index = (uint32_t)reef_random_below(&cluster->random,
						     cluster->options.nodes);

	if (cluster->draining || cluster->node_is_down[index])
		return;
	cluster->draining = cluster->drained = true;
	cluster->drains++;
	begin(cluster, &(struct trouble){
			       .see = see_drain,
			       .index = index,
			       .lasts_ns = between(cluster, 5 * MILLISECOND,
						   200 * MILLISECOND),
		       });
}

static int see_end(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	struct seat *seat = trouble->seat;
	int rc;

	cluster_trace(cluster, "session %08x is ended", seat->session);
	rc = orders_end(cluster, seat->session);
	return judge_order(cluster, "end", rc);
}

static void end_session(struct cluster *cluster)
{
	struct seat *seat = pick_seat(cluster);

	if (!seat || !seat->session)
		return;
	begin(cluster, &(struct trouble){
			       .see = see_end,
			       .seat = seat,
			       .lasts_ns = cluster->options.ttl_ns,
		       });
}

static int see_reclaim(struct trouble *trouble)
{
	struct cluster *cluster = trouble->cluster;
	int rc;

	cluster_trace(cluster, "node %u wants memory back", trouble->index);
	rc = orders_reclaim(cluster, trouble->index,
			    cluster->options.extent_size);
	return judge_order(cluster, "reclaim", rc);
}

static void reclaim(struct cluster *cluster)
{
	cluster->reclaimed = true;
	begin(cluster,
	      &(struct trouble){
		      .see = see_reclaim,
		      .index = (uint32_t)reef_random_below(
			      &cluster->random, cluster->options.nodes),
	      });
}

/* --- all of it --- */

static void happen(struct cluster *cluster, enum chaos chaos)
{
	switch (chaos) {
	case CHAOS_BROKER_KILL:
		kill_broker(cluster, false);
		break;
	case CHAOS_BROKER_POWER:
		kill_broker(cluster, true);
		break;
	case CHAOS_BROKER_WRITE:
		fail_disk(cluster);
		break;
	case CHAOS_CLIENT_PAUSE:
		pause_client(cluster);
		break;
	case CHAOS_CLIENT_KILL:
		kill_client(cluster);
		break;
	case CHAOS_CUT:
		cut_network(cluster);
		break;
	case CHAOS_CUT_CLIENTS:
		cut_clients(
			cluster,
			&cluster->seats[reef_random_below(
				&cluster->random, cluster->options.clients)]);
		break;
	case CHAOS_FENCE:
		fence_client(cluster);
		break;
	case CHAOS_DRAIN:
		drain_node(cluster);
		break;
	case CHAOS_TAKEOVER:
		take_over(cluster);
		break;
	case CHAOS_END:
		end_session(cluster);
		break;
	case CHAOS_RECLAIM:
		reclaim(cluster);
		break;
	case CHAOS_NODE_KILL:
		harm_node(cluster, see_node_killed);
		break;
	case CHAOS_NODE_PAUSE:
		harm_node(cluster, see_node_paused);
		break;
	case CHAOS_NODE_CUT:
		harm_node(cluster, see_node_cut);
		break;
	default:
		break;
	}
}

int chaos_main(struct reef_sim_host *host, void *arg)
{
	struct cluster *cluster = arg;
	uint32_t chaos = cluster->options.chaos;
	enum chaos one;
	int rc;

	(void)host;
	cluster->fates = reef_fiber_group();
	/* Let everybody come up first. */
	rc = reef_sleep(20 * MILLISECOND);
	while (!rc && !is_late(cluster)) {
		rc = reef_sleep(reef_random_below(
			&cluster->random, 2 * cluster->options.chaos_every_ns));
		if (rc || is_late(cluster) || !chaos)
			continue;
		do {
			one = 1u << reef_random_below(&cluster->random,
						      CHAOS_KINDS);
		} while (!(chaos & one));
		happen(cluster, one);
	}
	while (!rc && cluster->troubles)
		rc = reef_sleep(MILLISECOND);
	/* All is over: they unwind, and one may still have the operator. */
	while (cluster->troubles)
		reef_fiber_yield();
	orders_close(cluster);
	return rc;
}
