/* lock_truth.c - who holds, who was passed by, who had to be told. */
#include "lock_work.h"

#include "sync/lock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct locks *locks_of(const struct part *part)
{
	return part->client->cluster->work;
}

const char *lock_kind_name(enum reef_lock_kind kind)
{
	static const char *const names[REEF_LOCK_KINDS] = {
		[REEF_LOCK_SHIFT] = "shift",
		[REEF_LOCK_SPIN] = "spin",
		[REEF_LOCK_MCS] = "mcs",
		[REEF_LOCK_RW] = "rw",
	};

	return names[kind];
}

static struct truth *truth_of(struct part *part)
{
	return &locks_of(part)->truths[part->index];
}

__attribute__((format(printf, 2, 3))) static void fail(struct part *part,
						       const char *format, ...)
{
	struct locks *locks = locks_of(part);
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	cluster_fail(locks->cluster, "%s lock %u, client %u (session %08x): %s",
		     lock_kind_name(locks->options.kind), part->index,
		     part->client->index, part->client->session, text);
}

/* --- order --- */

bool truth_is_fair(const struct part *part)
{
	struct cluster *cluster = part->client->cluster;

	return !part->group->dead &&
	       cluster_session(cluster, part->client->session) == 0;
}

bool part_is_parked(const struct part *part)
{
	const struct reef_lock *lock = part->locks[part->index];

	return part->waits && lock && lock->parked;
}

static bool is_parked(const struct part *part, uint32_t index)
{
	return part->index == index && part_is_parked(part);
}

void truth_begin(struct part *part, uint32_t index, bool exclusive)
{
	struct locks *locks = locks_of(part);

	part->before_count = 0;
	for (struct part *at = locks->parts; at; at = at->next)
		if (is_parked(at, index) && part->before_count < HOLDS_MAX)
			part->before[part->before_count++] = at->serial;
	part->serial = ++locks->serials;
	part->index = index;
	part->exclusive = exclusive;
	part->seen = false;
	part->waits = true;
	part->passed = part->writers = 0;
}

static bool came_before(const struct part *part, uint64_t serial)
{
	for (uint32_t i = 0; i < part->before_count; i++)
		if (part->before[i] == serial)
			return true;
	return false;
}

static bool is_in_line(const struct part *part, uint32_t index)
{
	return part->waits && part->exclusive && part->index == index &&
	       part->locks[index] && part->locks[index]->queued;
}

/* The writer that waits first, as far as anybody can tell, if it is parked. */
static struct part *find_first(const struct locks *locks, uint32_t index)
{
	struct part *first = NULL;

	for (struct part *at = locks->parts; at; at = at->next)
		if (is_in_line(at, index) &&
		    (!first ||
		     at->locks[index]->ticket < first->locks[index]->ticket))
			first = at;
	return first && is_parked(first, index) ? first : NULL;
}

/* What went wrong so far. */
static uint32_t troubles(const struct cluster *cluster)
{
	return (uint32_t)(cluster->deaths + cluster->pauses + cluster->fenced +
			  cluster->cuts + cluster->drains +
			  cluster->broker_kills + cluster->has_struck);
}

/* How often the first one may be passed. By one: who gave up may be granted it
 * all the same, and has it when it comes back; and SHIFT: one that comes to be
 * the first sees the last one that passed its predecessor. Whoever breaks a
 * dead one's lock takes it without a look at the line; and a dead one may be
 * the first, of which nobody knows here. */
static uint32_t passes_max(const struct locks *locks)
{
	uint32_t passes = 0;

	if (locks->options.kind == REEF_LOCK_SHIFT)
		passes = locks->options.passes;
	return (1 + passes) *
	       (1 + locks->parts_each * troubles(locks->cluster));
}

/* Readers that are told that it is free, and do not hear it (they stand still,
 * the message was lost), have had their turn. */
static bool is_peace(const struct cluster *cluster)
{
	return !troubles(cluster) && !(cluster->options.chaos & CHAOS_LINKS);
}

/* True if nobody may pass the first, not even once. Where things go wrong,
 * leases are brief, and whoever looks by itself may take a lock that was
 * granted to one who gave up. */
static bool is_strict(const struct locks *locks, const struct part *writer)
{
	const struct cluster_options *options = &locks->cluster->options;

	return locks->options.kind != REEF_LOCK_SHIFT && !options->chaos &&
	       !options->strike && !writer->gave_up[writer->index];
}

/* A writer has come in: past whom? */
static void check_order(struct part *writer)
{
	struct locks *locks = locks_of(writer);
	struct part *first = find_first(locks, writer->index);

	if (first && came_before(writer, first->serial) &&
	    truth_is_fair(first) &&
	    (++first->passed > passes_max(locks) || is_strict(locks, writer)))
		fail(writer,
		     "passes client %u, which is the first and was passed %u "
		     "times before",
		     first->client->index, first->passed - 1);
	writer->gave_up[writer->index] = false;
	for (struct part *at = locks->parts; at; at = at->next) {
		if (at->exclusive || !is_parked(at, writer->index) ||
		    !truth_is_fair(at))
			continue;
		/* The first may have come in before it parked. */
		if (at->seen && is_peace(locks->cluster) &&
		    ++at->writers > locks->options.writers_phase)
			fail(writer,
			     "is writer %u since a reader, client %u, waits",
			     at->writers, at->client->index);
		at->seen = true;
	}
}

/* --- who holds --- */

static struct hold *conflict(struct truth *truth, const struct part *part)
{
	for (uint32_t i = 0; i < truth->holds_count; i++)
		if (part->exclusive || truth->holds[i].exclusive)
			return &truth->holds[i];
	return NULL;
}

static struct hold *find(struct truth *truth, uint64_t serial)
{
	for (uint32_t i = 0; i < truth->holds_count; i++)
		if (truth->holds[i].serial == serial)
			return &truth->holds[i];
	return NULL;
}

static void forget(struct truth *truth, struct hold *hold)
{
	if (hold)
		*hold = truth->holds[--truth->holds_count];
}

/* Somebody holds it already: which of the two is not any more? */
static int resolve(struct part *part, struct hold other, bool *zombie)
{
	struct cluster *cluster = part->client->cluster;
	struct truth *truth = truth_of(part);
	int rc;

	/* One that is about to serve may have published what we miss. */
	if (cluster_session(cluster, other.session) != 2) {
		rc = cluster_await_broker(cluster);
		if (rc)
			return rc;
	}
	if (cluster_session(cluster, other.session) == 2) {
		if (find(truth, other.serial)) {
			truth->debt |= other.exclusive;
			forget(truth, find(truth, other.serial));
		}
		return 0;
	}
	*zombie = cluster_session(cluster, part->client->session) == 2;
	if (*zombie)
		return 0;
	fail(part, "holds it (%s), and so does session %08x (%s)",
	     part->exclusive ? "writer" : "reader", other.session,
	     other.exclusive ? "writer" : "reader");
	return -REEF_EFENCED;
}

int truth_enter(struct part *part, bool told, bool *zombie)
{
	struct cluster *cluster = part->client->cluster;
	struct truth *truth = truth_of(part);
	struct hold *other;
	int rc = 0;

	*zombie = cluster_session(cluster, part->client->session) == 2;
	while (!rc && !*zombie && (other = conflict(truth, part)))
		rc = resolve(part, *other, zombie);
	if (rc || *zombie)
		return rc;
	if (truth->debt && !told) {
		fail(part, "is not told that a writer died");
		return -REEF_EFENCED;
	}
	if (told && !cluster->options.chaos && !cluster->options.strike)
		fail(part, "is told that somebody died, and nobody did");
	if (part->exclusive)
		check_order(part);
	cluster_trace(cluster, "lock %u: session %08x %s (%llu)%s", part->index,
		      part->client->session,
		      part->exclusive ? "writes" : "reads",
		      (unsigned long long)part->serial, told ? ", told" : "");
	if (truth->holds_count < HOLDS_MAX)
		truth->holds[truth->holds_count++] = (struct hold){
			.session = part->client->session,
			.serial = part->serial,
			.exclusive = part->exclusive,
			.inherited = told,
		};
	return 0;
}

void truth_leave(struct part *part)
{
	struct truth *truth = truth_of(part);
	struct hold *hold = find(truth, part->serial);

	cluster_trace(part->client->cluster,
		      "lock %u: session %08x gives (%llu)", part->index,
		      part->client->session, (unsigned long long)part->serial);
	if (hold && hold->exclusive && hold->inherited)
		truth->debt = false;
	forget(truth, hold);
}

/* --- what it protects --- */

void truth_check(struct part *part, const struct record *record,
		 const struct truth *before, bool told)
{
	const struct truth *truth = truth_of(part);
	uint64_t words[2 * WORDS], least = UINT64_MAX, most = 0;

	memcpy(words, record->first, sizeof(record->first));
	memcpy(words + WORDS, record->second, sizeof(record->second));
	for (uint32_t i = 0; i < 2 * WORDS; i++) {
		least = words[i] < least ? words[i] : least;
		most = words[i] > most ? words[i] : most;
	}
	if (!told && (least != most || record->intent))
		fail(part, "finds %llu to %llu, half done to become %llu",
		     (unsigned long long)least, (unsigned long long)most,
		     (unsigned long long)record->intent);
	else if (record->intent && !part->exclusive)
		return; /* half done: nothing to be said of it */
	else if (record->intent
			 ? least + 1 < record->intent || most > record->intent
			 : least != most)
		fail(part,
		     "is told, but nobody could repair %llu to %llu, becoming "
		     "%llu",
		     (unsigned long long)least, (unsigned long long)most,
		     (unsigned long long)record->intent);
	else if (least < before->floor || least < before->finished ||
		 most > truth->begun)
		fail(part,
		     "finds %llu; %llu were begun, %llu finished, the last was "
		     "%llu",
		     (unsigned long long)least,
		     (unsigned long long)truth->begun,
		     (unsigned long long)before->finished,
		     (unsigned long long)before->floor);
}
