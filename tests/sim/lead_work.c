/* lead_work.c - candidates in the simulator, and what leaders write.
 *
 * A leader writes its term into a record that nothing protects but that there
 * is one leader: the terms there must only grow, and while it leads nobody else
 * writes.
 *
 * (1) Truth says that somebody leads from after its win has returned until
 *     before it resigns. So two that overlap are a violation, unless the older
 *     one is fenced: that one may believe that it leads, but cannot write.
 * (2) Terms grow from leader to leader.
 * (3) Where nothing but a death delays it, and somebody stands, there is a new
 *     leader two leases after it. */
#include "cluster.h"

#include "base/log.h"
#include "fixture/units.h"

#include <reef/sync.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOME "home"
#define DATA "data"
#define REPEATS_MAX 1000
#define RECORD_WORDS 4

struct candidate {
	struct candidate *next;
	struct client *client;
	struct reef *reef;
	struct reef_space *space;
	struct reef_random random;
	struct reef_election *election;
	uint64_t since_ns; /* its step began; 0: it has none */
	uint64_t stood_ns; /* it waits to be elected since; 0: it does not */
	bool canceled;
};

struct leads {
	struct cluster *cluster;
	uint64_t record; /* address; 0: not made yet */
	uint32_t parts_each;
	/* Who leads, or did last; session 0: nobody. */
	uint32_t session;
	struct seat *seat;
	uint64_t term;
	uint64_t died_ns; /* of that leader; 0: it lives */
	struct candidate *candidates;
};

static struct leads *leads_of(const struct candidate *candidate)
{
	return candidate->client->cluster->work;
}

static uint64_t now_ns(const struct cluster *cluster)
{
	return reef_sched_now_ns(reef_sim_sched(cluster->sim));
}

static uint64_t below(struct candidate *candidate, uint64_t bound)
{
	return reef_random_below(&candidate->random, bound);
}

static int judge(struct candidate *candidate, const char *what, int rc)
{
	struct cluster *cluster = candidate->client->cluster;

	if (!rc || rc == -REEF_EHOSTDEAD)
		return rc;
	if (rc == -REEF_EFENCED &&
	    (cluster->options.chaos || cluster->options.strike))
		return rc;
	cluster_fail(cluster, "client %u (session %08x): %s: %s",
		     candidate->client->index, candidate->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- truth --- */

/* When did that leader's host die, if it did? */
static uint64_t death_ns(const struct leads *leads)
{
	return leads->seat && leads->seat->died == leads->session
		       ? leads->seat->died_ns
		       : 0;
}

/* (3) */
static void check_delay(struct candidate *candidate)
{
	struct leads *leads = leads_of(candidate);
	struct cluster *cluster = leads->cluster;
	uint64_t ttl_ns = cluster->options.ttl_ns, died_ns = death_ns(leads);
	uint64_t from_ns =
		died_ns > candidate->stood_ns ? died_ns : candidate->stood_ns;

	if (cluster->options.strike == STRIKE_KILL && died_ns &&
	    now_ns(cluster) > from_ns + 2 * ttl_ns)
		cluster_fail(cluster,
			     "client %u leads %llu us after the last leader "
			     "died",
			     candidate->client->index,
			     (unsigned long long)((now_ns(cluster) - from_ns) /
						  1000));
}

static int enter(struct candidate *candidate, uint64_t term, bool *zombie)
{
	struct leads *leads = leads_of(candidate);
	struct cluster *cluster = leads->cluster;
	uint32_t session = candidate->client->session, other = leads->session;
	int rc;

	*zombie = cluster_session(cluster, session) == 2;
	if (*zombie)
		return 0;
	if (other && cluster_session(cluster, other) != 2) {
		rc = cluster_await_broker(cluster);
		if (rc)
			return rc;
		*zombie = cluster_session(cluster, session) == 2;
		if (*zombie)
			return 0;
		if (cluster_session(cluster, other) != 2)
			cluster_fail(cluster,
				     "session %08x leads, and so does %08x",
				     session, other);
	}
	if (term <= leads->term)
		cluster_fail(cluster, "term %llu comes after %llu",
			     (unsigned long long)term,
			     (unsigned long long)leads->term);
	check_delay(candidate);
	cluster_trace(cluster, "session %08x leads in term %llu", session,
		      (unsigned long long)term);
	leads->session = session;
	leads->seat = candidate->client->seat;
	leads->term = term;
	return 0;
}

static void leave(struct candidate *candidate, uint64_t term)
{
	struct leads *leads = leads_of(candidate);

	if (leads->term != term)
		return;
	leads->session = 0;
	leads->seat = NULL;
}

/* --- what a leader does --- */

static int check_record(struct candidate *candidate, uint64_t term, bool first)
{
	uint64_t record[RECORD_WORDS];
	int rc;

	rc = judge(candidate, "read the record",
		   reef_read(candidate->reef, leads_of(candidate)->record,
			     record, sizeof(record)));
	for (uint32_t i = 0; !rc && i < RECORD_WORDS; i++)
		if (first ? record[i] >= term : record[i] != term)
			cluster_fail(candidate->client->cluster,
				     "in term %llu session %08x finds what "
				     "term %llu wrote",
				     (unsigned long long)term,
				     candidate->client->session,
				     (unsigned long long)record[i]);
	return rc;
}

static int write_record(struct candidate *candidate, uint64_t term, bool zombie)
{
	uint64_t record[RECORD_WORDS];
	int rc = -REEF_EINDOUBT;

	for (uint32_t i = 0; i < RECORD_WORDS; i++)
		record[i] = term;
	for (uint32_t i = 0; rc == -REEF_EINDOUBT && i < REPEATS_MAX; i++)
		rc = reef_write(candidate->reef, leads_of(candidate)->record,
				record, sizeof(record));
	if (!rc && zombie)
		cluster_fail(candidate->client->cluster,
			     "session %08x wrote after it was fenced",
			     candidate->client->session);
	return judge(candidate, "write the record", rc);
}

static int look_at_self(struct candidate *candidate, uint64_t term)
{
	struct reef_lease_info info;
	int rc;

	rc = judge(candidate, "look",
		   reef_election_look(candidate->election, &info));
	if (!rc &&
	    (info.session != candidate->client->session || info.token != term))
		cluster_fail(candidate->client->cluster,
			     "session %08x leads in term %llu, and sees %08x "
			     "lead in %llu",
			     candidate->client->session,
			     (unsigned long long)term, info.session,
			     (unsigned long long)info.token);
	return rc;
}

static int lead(struct candidate *candidate, uint64_t term)
{
	bool zombie;
	int rc;

	rc = enter(candidate, term, &zombie);
	if (!rc && !zombie && below(candidate, 4) == 0)
		rc = look_at_self(candidate, term);
	if (!rc && !zombie)
		rc = check_record(candidate, term, true);
	for (uint64_t i = below(candidate, 4); !rc && i < 4; i++) {
		rc = write_record(candidate, term, zombie);
		if (!rc)
			rc = reef_sleep(below(candidate, 200 * MICROSECOND));
		if (!rc && !zombie)
			rc = check_record(candidate, term, false);
	}
	if (rc)
		return rc;
	leave(candidate, term);
	return judge(candidate, "resign",
		     reef_election_resign(candidate->election));
}

static int watch(struct candidate *candidate)
{
	struct reef_lease_info last, now;
	int rc;

	rc = judge(candidate, "look",
		   reef_election_look(candidate->election, &last));
	if (rc)
		return rc;
	rc = reef_election_watch(candidate->election, &last, 4 * MILLISECOND,
				 &now);
	if (!rc && now.session && now.session == last.session &&
	    now.token == last.token)
		cluster_fail(candidate->client->cluster,
			     "the watch ends, and nothing has changed");
	if (!rc && now.token < last.token)
		cluster_fail(candidate->client->cluster, "terms go back");
	return rc == -ETIMEDOUT ? 0 : judge(candidate, "watch", rc);
}

static int step(struct candidate *candidate)
{
	uint64_t timeout_ns = REEF_FOREVER, term = 0;
	int rc;

	candidate->since_ns = now_ns(candidate->client->cluster);
	candidate->client->seat->counting = true;
	if (below(candidate, 8) == 0) {
		rc = watch(candidate);
		candidate->since_ns = 0;
		return rc;
	}
	if (below(candidate, 4) == 0)
		timeout_ns =
			below(candidate, 2) * below(candidate, MILLISECOND);
	candidate->stood_ns = candidate->since_ns;
	rc = reef_election_win(candidate->election, timeout_ns, &term);
	if ((rc == -ETIMEDOUT && timeout_ns != REEF_FOREVER) ||
	    (rc == -EBUSY && !timeout_ns))
		rc = -EAGAIN;
	if (!rc)
		rc = lead(candidate, term);
	else if (rc != -EAGAIN)
		rc = judge(candidate, "win", rc);
	candidate->stood_ns = 0;
	candidate->since_ns = 0;
	return rc == -EAGAIN ? 0 : rc;
}

/* --- the cluster --- */

static void close_candidate(struct candidate *candidate)
{
	struct candidate **at = &leads_of(candidate)->candidates;

	while (*at != candidate)
		at = &(*at)->next;
	*at = candidate->next;
	reef_election_close(candidate->election);
	reef_space_close(candidate->space);
}

static int open_candidate(struct candidate *candidate, struct client *client,
			  struct reef *reef, uint64_t stream)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
	struct leads *leads = client->cluster->work;
	char text[32];
	int rc;

	memset(candidate, 0, sizeof(*candidate));
	candidate->client = client;
	candidate->reef = reef;
	candidate->random = reef_random_split(&client->random, stream);
	candidate->next = leads->candidates;
	leads->candidates = candidate;
	snprintf(text, sizeof(text), "client%u/%llu", client->index,
		 (unsigned long long)stream);
	rc = reef_space_open(reef, HOME, &options, &candidate->space);
	for (uint32_t i = 0; !rc && i < REPEATS_MAX; i++) {
		rc = reef_election_open(candidate->space, "leader", 0, text,
					&candidate->election);
		if (rc != -REEF_EINDOUBT)
			break;
		rc = 0;
	}
	rc = judge(candidate, "open", rc);
	if (rc)
		close_candidate(candidate);
	return rc;
}

int workload_setup(struct cluster *cluster)
{
	struct leads *leads = calloc(1, sizeof(*leads));

	if (!leads)
		return -ENOMEM;
	leads->cluster = cluster;
	leads->parts_each = 1 + cluster->options.seed % 2;
	cluster->work = leads;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	struct leads *leads = cluster->work;

	reef_assert(!leads || !leads->candidates);
	free(leads);
	cluster->work = NULL;
}

void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct leads *leads = cluster->work;
	struct candidate *at = leads->candidates;

	for (; at; at = at->next)
		if (at->since_ns &&
		    at_ns > at->since_ns + cluster->options.patience_ns)
			cluster_fail(cluster,
				     "client %u (session %08x) hangs%s",
				     at->client->index, at->client->session,
				     at->stood_ns ? ", a candidate" : "");
}

static int make_record(struct client *client)
{
	static const uint64_t zero[RECORD_WORDS];
	struct leads *leads = client->cluster->work;
	uint64_t address;
	int rc;

	if (leads->record)
		return 0;
	rc = reef_name_lookup(client->home, "record", &address, NULL);
	if (rc == -ENOENT) {
		rc = reef_alloc(client->space, sizeof(zero), &address);
		if (!rc)
			rc = reef_write(client->reef, address, zero,
					sizeof(zero));
		if (!rc)
			rc = reef_keep(client->space, address);
		if (!rc)
			rc = reef_name_bind(client->home, "record", address,
					    NULL);
		if (rc == -EEXIST)
			rc = reef_name_lookup(client->home, "record", &address,
					      NULL);
	}
	if (!rc)
		leads->record = address;
	return rc;
}

int workload_begin(struct client *client)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
	struct candidate *candidate = calloc(1, sizeof(*candidate));
	int rc;

	if (!candidate)
		return -ENOMEM;
	candidate->client = client;
	rc = reef_space_open(client->reef, HOME, &options, &client->home);
	if (!rc)
		rc = reef_space_open(client->reef, DATA, &options,
				     &client->space);
	for (uint32_t i = 0; !rc && i < REPEATS_MAX; i++) {
		rc = make_record(client);
		if (rc != -REEF_EINDOUBT && rc != -ENOSPC)
			break;
		rc = reef_sleep(MILLISECOND / 4);
	}
	rc = judge(candidate, "make the record", rc);
	if (!rc)
		rc = open_candidate(candidate, client, client->reef, 1);
	if (rc)
		free(candidate);
	else
		client->work = candidate;
	return rc;
}

void workload_forget(struct client *client, bool well)
{
	(void)well;
	if (client->work)
		close_candidate(client->work);
	free(client->work);
	client->work = NULL;
}

int workload_step(struct client *client)
{
	return step(client->work);
}

int workload_count(struct client *client, struct reef *reef)
{
	struct leads *leads = client->cluster->work;
	struct candidate candidate;
	int rc;

	if (leads->parts_each < 2)
		return 0;
	rc = open_candidate(&candidate, client, reef, 2);
	if (rc)
		return rc;
	while (!rc && !client->leaving) {
		rc = step(&candidate);
		if (!rc)
			rc = reef_sleep(MICROSECOND +
					below(&candidate, 100 * MICROSECOND));
	}
	close_candidate(&candidate);
	return rc;
}

int workload_stamp(struct client *client, struct reef *reef)
{
	(void)client;
	(void)reef;
	return 0;
}

/* Whoever died is fenced: it can be won, and is nobody's after that. */
int workload_audit(struct client *client)
{
	struct candidate *candidate = client->work;
	struct cluster *cluster = client->cluster;
	struct reef_lease_info info;
	uint64_t term;
	int rc = 0;

	if (cluster->options.chaos || cluster->options.strike)
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	if (!rc)
		rc = judge(candidate, "win",
			   reef_election_win(candidate->election,
					     cluster->options.patience_ns,
					     &term));
	if (!rc)
		rc = lead(candidate, term);
	if (!rc)
		rc = judge(candidate, "look",
			   reef_election_look(candidate->election, &info));
	if (!rc && info.session)
		cluster_fail(cluster, "in the end session %08x leads",
			     info.session);
	return rc;
}
