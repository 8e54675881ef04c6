/* lock_work.c - what participants do inside and outside of the locks.
 *
 * Inside, a writer READs the record, waits, WRITEs what it is about to do
 * (intent), then the words of one block, then those of another, then that it is
 * done: nothing of this is protected by anything but the lock. A writer who
 * inherits finishes what it finds begun. A reader READs the record twice.
 *
 * Outside: takes that wait for ever, for a while, not at all, until somebody
 * cancels; gives and takes that must be refused; locks closed while held, and
 * opened again. Each error only where something explains it.
 *
 * Everything that is chosen once for a cluster comes from its seed: the kind of
 * lock, its limits, how many participants, how eager they are. */
#include "lock_work.h"

#include "base/log.h"
#include "fixture/units.h"
#include "sync/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOME "home" /* of the locks */
#define DATA "data" /* of what they protect */
#define REPEATS_MAX 1000

static uint64_t below(struct part *part, uint64_t bound)
{
	return reef_random_below(&part->random, bound);
}

static uint64_t now_ns(const struct part *part)
{
	return reef_sched_now_ns(reef_sim_sched(part->client->cluster->sim));
}

static bool is_troubled(const struct cluster *cluster)
{
	return cluster->options.chaos || cluster->options.strike;
}

/* Nothing but the end of session or host explains an error here. */
static int judge(struct part *part, const char *what, int rc)
{
	if (!rc || rc == -REEF_EHOSTDEAD)
		return rc;
	if (rc == -REEF_EFENCED && is_troubled(part->client->cluster))
		return rc;
	cluster_fail(part->client->cluster,
		     "%s lock %u, client %u (session %08x): %s: %s",
		     lock_kind_name(locks_of(part)->options.kind), part->index,
		     part->client->index, part->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- inside --- */

static int read_record(struct part *part, struct record *record)
{
	struct truth *truth = &locks_of(part)->truths[part->index];
	struct reef_access both[] = {
		{.kind = REEF_READ,
		 .address = truth->first,
		 .local = record,
		 .length = offsetof(struct record, second)},
		{.kind = REEF_READ,
		 .address = truth->second,
		 .local = record->second,
		 .length = sizeof(record->second)},
	};

	return judge(part, "read the record",
		     reef_execute(part->reef, both, 2));
}

/* Again while it is in doubt: it is ours to write, and writes the same. */
static int write_words(struct part *part, uint64_t address,
		       const uint64_t *words, uint32_t count, bool zombie)
{
	int rc = -REEF_EINDOUBT;

	for (uint32_t i = 0; rc == -REEF_EINDOUBT && i < REPEATS_MAX; i++)
		rc = reef_write(part->reef, address, words,
				count * sizeof(*words));
	if (!rc && zombie) {
		cluster_fail(part->client->cluster,
			     "session %08x wrote after it was fenced",
			     part->client->session);
		return -REEF_EFENCED;
	}
	return judge(part, "write the record", rc);
}

/* Time passes: none, some, or a lot. */
static int dwell(struct part *part)
{
	uint64_t ttl_ns = part->client->cluster->options.ttl_ns;

	switch (below(part, 16)) {
	case 0:
		if (ttl_ns > 2 * MILLISECOND)
			ttl_ns = 2 * MILLISECOND;
		return reef_sleep(below(part, ttl_ns));
	case 1:
	case 2:
	case 3:
		return reef_sleep(below(part, 60 * MICROSECOND));
	default:
		return 0;
	}
}

/* From the intent on: what an heir does, too. */
static int finish(struct part *part, uint64_t number, bool zombie)
{
	struct truth *truth = &locks_of(part)->truths[part->index];
	uint64_t words[WORDS], done = 0;
	int rc;

	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = number;
	rc = write_words(part, truth->first + offsetof(struct record, first),
			 words, WORDS, zombie);
	if (!rc)
		rc = dwell(part);
	if (!rc)
		rc = write_words(part, truth->second, words, WORDS, zombie);
	if (!rc)
		rc = dwell(part);
	if (!rc)
		rc = write_words(part, truth->first, &done, 1, zombie);
	if (!rc && truth->floor < number)
		truth->floor = number;
	return rc;
}

static int update(struct part *part, bool told, bool zombie)
{
	struct truth *truth = &locks_of(part)->truths[part->index];
	struct truth before = *truth;
	struct record record;
	uint64_t number;
	int rc;

	rc = read_record(part, &record);
	if (rc)
		return rc;
	if (!zombie)
		truth_check(part, &record, &before, told);
	number = record.first[0];
	if (told && record.intent) {
		number = record.intent;
		rc = finish(part, number, zombie);
	}
	if (!rc)
		rc = dwell(part);
	if (rc)
		return rc;
	truth->begun++;
	number++;
	rc = write_words(part, truth->first, &number, 1, zombie);
	if (!rc)
		rc = dwell(part);
	if (!rc)
		rc = finish(part, number, zombie);
	truth->finished += !rc;
	return rc;
}

static int look(struct part *part, bool told, bool zombie)
{
	struct truth *truth = &locks_of(part)->truths[part->index];
	struct truth before = *truth;
	struct record record, again;
	int rc;

	rc = read_record(part, &record);
	if (!rc)
		rc = dwell(part);
	if (!rc)
		rc = read_record(part, &again);
	if (rc || zombie)
		return rc;
	truth_check(part, &record, &before, told);
	if (memcmp(&record, &again, sizeof(record)))
		cluster_fail(part->client->cluster,
			     "%s lock %u, client %u: what it reads changes",
			     lock_kind_name(locks_of(part)->options.kind),
			     part->index, part->client->index);
	return 0;
}

/* --- open and close --- */

static int open_lock(struct part *part, uint32_t index)
{
	struct reef_lock_options options = locks_of(part)->options;
	char name[8];
	int rc = -REEF_EINDOUBT;

	snprintf(name, sizeof(name), "l%u", index);
	if (part->client->cluster->options.copies > 1 && index)
		options.kind = REEF_LOCK_SHIFT; /* which is SPIN there */
	part->cancels[index] = 0;
	for (uint32_t i = 0; rc == -REEF_EINDOUBT && i < REPEATS_MAX; i++)
		rc = reef_lock_open(part->space, name, &options,
				    &part->locks[index]);
	return judge(part, "open", rc);
}

static void close_lock(struct part *part, uint32_t index)
{
	struct reef_lock *lock = part->locks[index];

	part->locks[index] = NULL;
	reef_lock_close(lock);
}

static void close_part(struct part *part)
{
	struct locks *locks = locks_of(part);
	struct part **at = &locks->parts;

	while (*at != part)
		at = &(*at)->next;
	*at = part->next;
	for (uint32_t i = 0; i < locks->count; i++)
		close_lock(part, i);
	reef_space_close(part->space);
}

static int open_part(struct part *part, struct client *client,
		     struct reef *reef, uint64_t stream)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
	struct locks *locks = client->cluster->work;
	int rc;

	memset(part, 0, sizeof(*part));
	part->client = client;
	part->reef = reef;
	part->group = reef_fiber_group();
	part->random = reef_random_split(&client->random, stream);
	part->next = locks->parts;
	locks->parts = part;
	rc = judge(part, "open the space",
		   reef_space_open(reef, HOME, &options, &part->space));
	for (uint32_t i = 0; !rc && i < locks->count; i++)
		rc = open_lock(part, i);
	if (rc)
		close_part(part);
	return rc;
}

/* --- takes and gives --- */

struct canceler {
	struct part *part;
	uint32_t index;
	uint64_t after_ns;
};

static int cancel_main(void *arg)
{
	struct canceler *canceler = arg;
	struct part *part = canceler->part;
	int rc = reef_sleep(canceler->after_ns);

	if (rc)
		return rc;
	part->cancels[canceler->index]++;
	reef_lock_cancel(part->locks[canceler->index]);
	return 0;
}

/* -EAGAIN: canceled, as somebody asked for. One that comes right after it is
 * for the next take. */
static int note_cancel(struct part *part, int rc)
{
	if (rc != -ECANCELED || !part->cancels[part->index])
		return rc;
	part->cancels[part->index]--;
	return -EAGAIN;
}

/* Somebody cancels, sooner or later. */
static int take_canceled(struct part *part, enum reef_lock_mode mode)
{
	struct canceler canceler = {
		.part = part,
		.index = part->index,
		.after_ns = below(part, 400 * MICROSECOND),
	};
	struct reef_fiber *fiber;
	int rc;

	rc = reef_fiber_spawn(reef_sim_sched(part->client->cluster->sim),
			      cancel_main, &canceler, &fiber);
	if (rc)
		return rc;
	rc = note_cancel(part, reef_lock_take(part->locks[part->index], mode,
					      REEF_FOREVER));
	reef_fiber_join(fiber, NULL);
	return rc;
}

/* 0, REEF_LOCK_INHERITED: held.  -EAGAIN: it is not, and for a good reason. */
static int judge_take(struct part *part, uint64_t timeout_ns, int rc)
{
	part->waits = false;
	part->gave_up[part->index] |= rc < 0 && part->exclusive;
	rc = note_cancel(part, rc);
	if (rc == 0 || rc == REEF_LOCK_INHERITED || rc == -EAGAIN)
		return rc;
	if (rc == -EBUSY &&
	    (timeout_ns == 0 || locks_of(part)->options.attempts_max))
		return -EAGAIN;
	if (rc == -ETIMEDOUT && timeout_ns && timeout_ns != REEF_FOREVER)
		return -EAGAIN;
	return judge(part, "take", rc);
}

static int take(struct part *part, bool exclusive)
{
	enum reef_lock_mode mode =
		exclusive ? REEF_LOCK_EXCLUSIVE : REEF_LOCK_SHARED;
	struct reef_lock *lock = part->locks[part->index];
	uint64_t timeout_ns = REEF_FOREVER;
	int rc;

	truth_begin(part, part->index, exclusive);
	switch (below(part, 10)) {
	case 0:
		rc = take_canceled(part, mode);
		break;
	case 1:
		timeout_ns = 0;
		rc = reef_lock_take(lock, mode, 0);
		break;
	case 2:
	case 3:
		timeout_ns = 1 + below(part, 500 * MICROSECOND);
		rc = reef_lock_take(lock, mode, timeout_ns);
		break;
	default:
		rc = reef_lock_take(lock, mode, REEF_FOREVER);
	}
	return judge_take(part, timeout_ns, rc);
}

/* What must be refused, and change nothing. */
static int expect(struct part *part, const char *what, int rc, int expected)
{
	if (rc == expected || rc == -REEF_EHOSTDEAD || rc == -REEF_EFENCED)
		return rc == expected ? 0 : rc;
	cluster_fail(part->client->cluster,
		     "%s lock %u, client %u: %s: %s, not %s",
		     lock_kind_name(locks_of(part)->options.kind), part->index,
		     part->client->index, what,
		     rc < 0 ? reef_error_name(rc) : "it is taken",
		     reef_error_name(expected));
	return -REEF_EFENCED;
}

/* Not held. */
static int misuse(struct part *part)
{
	enum reef_lock_kind kind = locks_of(part)->options.kind;
	struct reef_lock *lock = part->locks[part->index];
	int rc;

	rc = expect(part, "give what is another's", reef_lock_give(lock),
		    -EPERM);
	if (!rc && (kind == REEF_LOCK_SPIN || kind == REEF_LOCK_MCS))
		rc = expect(
			part, "read",
			reef_lock_take(lock, REEF_LOCK_SHARED, REEF_FOREVER),
			-EOPNOTSUPP);
	return rc;
}

/* Held: out of it, in one of two ways. */
static int give(struct part *part, bool zombie)
{
	uint32_t index = part->index;
	int rc;

	truth_leave(part);
	if (below(part, 32) == 0) {
		close_lock(part, index);
		return open_lock(part, index);
	}
	rc = reef_lock_give(part->locks[index]);
	if (!rc && zombie) {
		cluster_fail(part->client->cluster,
			     "session %08x gave a lock after it was fenced",
			     part->client->session);
		return -REEF_EFENCED;
	}
	return judge(part, "give", rc);
}

/* Between a take and its give. */
static int inside(struct part *part, bool told)
{
	bool zombie, exclusive = part->exclusive;
	struct reef_lock *lock = part->locks[part->index];
	int rc;

	rc = truth_enter(part, told, &zombie);
	if (!rc && below(part, 16) == 0)
		rc = expect(
			part, "take twice",
			reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER),
			-EDEADLK);
	if (!rc)
		rc = exclusive ? update(part, told, zombie)
			       : look(part, told, zombie);
	/* One that is fenced never gave: the next must be told. */
	if (rc == -REEF_EFENCED && below(part, 2))
		reef_lock_give(lock);
	return rc ? rc : give(part, zombie);
}

static int step(struct part *part)
{
	struct locks *locks = locks_of(part);
	bool readers = locks->options.kind == REEF_LOCK_RW ||
		       locks->options.kind == REEF_LOCK_SHIFT;
	bool exclusive = !readers || below(part, 2);
	int rc;

	part->since_ns = now_ns(part);
	part->index = (uint32_t)below(part, locks->count);
	part->client->seat->counting = true;
	rc = below(part, 16) ? 0 : misuse(part);
	if (!rc)
		rc = take(part, exclusive);
	if (rc >= 0)
		rc = inside(part, rc == REEF_LOCK_INHERITED);
	part->serial = 0;
	part->since_ns = 0;
	part->client->cluster->steps++;
	return rc == -EAGAIN ? 0 : rc;
}

static int think(struct part *part)
{
	uint64_t most_ns = locks_of(part)->think_ns;

	return most_ns ? reef_sleep(below(part, most_ns)) : 0;
}

/* --- the cluster --- */

int workload_setup(struct cluster *cluster)
{
	struct locks *locks = calloc(1, sizeof(*locks));
	struct reef_random random;

	if (!locks)
		return -ENOMEM;
	reef_random_init(&random, cluster->options.seed ^ 0x6c6f636b73);
	locks->cluster = cluster;
	locks->count = 1 + reef_random_below(&random, LOCKS_MAX);
	locks->parts_each = 1 + (uint32_t)reef_random_below(&random, 3);
	locks->think_ns = reef_random_below(&random, 2) * 100 * MICROSECOND +
			  reef_random_below(&random, 2) * MILLISECOND;
	locks->options = (struct reef_lock_options){
		.kind = (enum reef_lock_kind)(cluster->options.seed %
					      REEF_LOCK_KINDS),
		.waiters_max = 1u << reef_random_between(&random, 1, 5),
		.readers_max = 1u << reef_random_between(&random, 1, 5),
		.passes = (uint32_t)reef_random_between(&random, 1, 8),
		.writers_phase = (uint32_t)reef_random_between(&random, 1, 4),
	};
	/* (6) of sync.h */
	if (cluster->options.copies > 1)
		locks->options.kind = REEF_LOCK_SPIN;
	if (locks->options.kind == REEF_LOCK_SPIN &&
	    reef_random_below(&random, 2))
		locks->options.attempts_max = 4;
	cluster->work = locks;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	struct locks *locks = cluster->work;

	reef_assert(!locks || !locks->parts);
	free(locks);
	cluster->work = NULL;
}

/* A step that does not end is a lost wake-up, or a deadlock. */
void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct locks *locks = cluster->work;

	for (struct part *part = locks->parts; part; part = part->next)
		if (part->since_ns &&
		    at_ns > part->since_ns + cluster->options.patience_ns)
			cluster_fail(cluster,
				     "%s lock %u: client %u (session %08x) "
				     "hangs%s",
				     lock_kind_name(locks->options.kind),
				     part->index, part->client->index,
				     part->client->session,
				     part_is_parked(part) ? ", parked" : "");
}

static int make_block(struct client *client, const char *name,
		      uint64_t *address)
{
	static const struct record zero;
	int rc;

	rc = reef_name_lookup(client->home, name, address, NULL);
	if (rc != -ENOENT)
		return rc;
	rc = reef_alloc(client->space, sizeof(zero), address);
	if (!rc)
		rc = reef_write(client->reef, *address, &zero, sizeof(zero));
	if (!rc)
		rc = reef_keep(client->space, *address);
	if (!rc)
		rc = reef_name_bind(client->home, name, *address, NULL);
	if (rc)
		*address = 0;
	return rc == -EEXIST
		       ? reef_name_lookup(client->home, name, address, NULL)
		       : rc;
}

static int make_records(struct client *client)
{
	struct locks *locks = client->cluster->work;
	char name[8];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < locks->count; i++) {
		struct truth *truth = &locks->truths[i];
		uint64_t first, second;

		if (truth->second)
			continue;
		snprintf(name, sizeof(name), "a%u", i);
		rc = make_block(client, name, &first);
		snprintf(name, sizeof(name), "b%u", i);
		if (!rc)
			rc = make_block(client, name, &second);
		if (rc)
			continue;
		truth->first = first;
		truth->second = second;
	}
	return rc;
}

int workload_begin(struct client *client)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
	struct part *part = calloc(1, sizeof(*part));
	int rc;

	if (!part)
		return -ENOMEM;
	part->client = client;
	rc = reef_space_open(client->reef, HOME, &options, &client->home);
	if (!rc)
		rc = reef_space_open(client->reef, DATA, &options,
				     &client->space);
	/* In doubt: as after a death, somebody else makes it. Without room: the
	 * nodes have yet to come. */
	for (uint32_t i = 0; !rc && i < REPEATS_MAX; i++) {
		rc = make_records(client);
		if (rc != -REEF_EINDOUBT && rc != -ENOSPC)
			break;
		rc = reef_sleep(MILLISECOND / 4);
	}
	rc = judge(part, "make the records", rc);
	if (!rc)
		rc = open_part(part, client, client->reef, 1);
	if (rc)
		free(part);
	else
		client->work = part;
	return rc;
}

void workload_forget(struct client *client, bool well)
{
	(void)well;
	if (client->work)
		close_part(client->work);
	free(client->work);
	client->work = NULL;
}

int workload_step(struct client *client)
{
	int rc = step(client->work);

	return rc ? rc : think(client->work);
}

static int work_beside(struct client *client, struct reef *reef,
		       uint64_t stream)
{
	struct part part;
	int rc;

	rc = open_part(&part, client, reef, stream);
	if (rc)
		return rc;
	while (!rc && !client->leaving) {
		rc = step(&part);
		if (!rc)
			rc = think(&part);
		if (!rc)
			rc = reef_sleep(MICROSECOND);
	}
	close_part(&part);
	return rc;
}

/* With a handle of its own. */
int workload_count(struct client *client, struct reef *reef)
{
	struct locks *locks = client->cluster->work;

	return locks->parts_each > 1 ? work_beside(client, reef, 2) : 0;
}

/* With the handle of the client's first participant. */
int workload_stamp(struct client *client, struct reef *reef)
{
	struct locks *locks = client->cluster->work;

	(void)reef;
	return locks->parts_each > 2 ? work_beside(client, client->reef, 3) : 0;
}

/* --- the audit --- */

/* Take it, and give it. */
static int audit_turn(struct part *part)
{
	struct reef_lock *lock = part->locks[part->index];
	int rc;

	truth_begin(part, part->index, true);
	rc = judge_take(
		part, REEF_FOREVER,
		reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER));
	if (rc >= 0)
		rc = inside(part, rc == REEF_LOCK_INHERITED);
	/* All attempts of a spinning one are used up. */
	if (rc == -EAGAIN)
		rc = reef_sleep(MILLISECOND);
	part->serial = 0;
	return rc;
}

/* What the dead left goes as it comes to be their turn: SHIFT may pass each of
 * them a few times. Then it is as new. */
static int audit_lock(struct part *part)
{
	struct locks *locks = locks_of(part);
	struct reef_lock_info info = {.waiters = 1};
	struct reef_lock *lock;
	uint32_t turns =
		32 + locks->options.waiters_max * (locks->options.passes + 2);
	int rc = 0;

	while (!rc && turns-- &&
	       (info.session || info.readers || info.waiters ||
		info.inherited)) {
		rc = audit_turn(part);
		if (!rc)
			rc = judge(part, "look",
				   reef_lock_look(part->locks[part->index],
						  &info));
	}
	if (rc)
		return rc;
	if (info.session || info.readers || info.waiters || info.inherited)
		cluster_fail(locks->cluster,
			     "%s lock %u: in the end session %08x holds it, %u "
			     "read, %u wait%s",
			     lock_kind_name(info.kind), part->index,
			     info.session, info.readers, info.waiters,
			     info.inherited ? ", inherited" : "");
	lock = part->locks[part->index];
	rc = expect(part, "take what is free",
		    reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, 0), 0);
	return rc ? rc : judge(part, "give", reef_lock_give(lock));
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct locks *locks = cluster->work;
	struct part *part = client->work;
	int rc = 0;

	/* Whoever died is fenced by then. */
	if (is_troubled(cluster))
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	for (uint32_t i = 0; !rc && i < locks->count; i++) {
		part->index = i;
		part->since_ns = now_ns(part);
		rc = audit_lock(part);
		part->since_ns = 0;
	}
	return rc;
}
