/* barrier.c - a barrier: nobody passes a round before all its members came.
 *
 * Dissemination: in step k of a round each member sends a message to the one
 * 2^k places further in the group and waits for that of the one 2^k places
 * before; after ceil(log2 n) steps it has heard, through others, of all. The
 * memory node sees one CAS of a round, by one member, and nothing else, unless
 * something is slow, lost or dead; on one machine memory takes the messages'
 * place (barrier_near.c).
 *
 *   body   C: version 23 | pending 1 | round 40    rounds begun
 *          X: the change under way, if any         (barrier_change.c)
 *          places: word (session, member, tenure, state), inbox, joined, gone,
 *          mark
 *          near parts, one for each place          (barrier_near.c)
 *
 * Who is a member of round r follows from the places alone: joined while C was
 * at a round before r, not left while it was at one before r, not struck off
 * (barrier_view.c). The *tag* of a group is a hash of exactly those. One of the
 * group, the *beginner*, moves C from r - 1 to r when it comes, by a CAS that
 * fails if the version is not that of its view.
 *
 *   away -arrive-> [beginner: begin] --> step 0 --> ... --> last --> away
 *                         ^                |   (send, wait)       (passed + 1)
 *                         |                |
 *                         +----- look <----+ another tag, waited long, a hint,
 *                                  |         or somebody is ahead
 *                                  +--> away: all came, as was seen
 *
 * (1) C goes from r - 1 to r only after all members of r - 1 have come to it:
 *     the beginner took part in it and has passed it (so one that joined just
 *     now does not begin, if there is another); where nobody stayed, it looks
 *     whether all have come. So once C is at r + 1, round r is complete.
 *     When it came and went away again before C was at r, another of the same
 *     kind, who waits long, moves C; marks do the rest (4).
 * (2) From then on, who is in round r changes by death only: whoever joins or
 *     leaves does so by a change of C, which puts it before or after.
 * (3) A message counts for its own round and tag. Passing by messages takes
 *     one of each of the group, the beginner's too, which has none before C is
 *     at r and its view is of after that, or of the version of that: so the
 *     group is who was in round r then, but for the dead; and each has come.
 * (4) Passing without them takes a view (so that the dead are told of) that
 *     shows C beyond r, or one that took part in r and has passed it, or all
 *     of the group having come and C at r. Or a view, and the message of one
 *     that passed r. Each of them implies that all have come.
 * (5) Messages may be lost, and a member may be away for long after it sent
 *     some: so `mark`, in its place, says how far it got. It is written by
 *     whoever waits long, returns without having passed, or could not send. A
 *     member that waits long looks, and passes by (4). Left open: a message
 *     that is lost with its connection, whose sender passed and is away. Who
 *     waits for it goes on when the sender comes back, to whatever round, or
 *     another who passed does, or the sender's session ends. A WRITE by each
 *     member of each round would close that, at n memory-node operations.
 * (6) A sender is at most two rounds ahead of the one that is next for us: C is
 *     at most one beyond what we have come to, by (1), and who joins then
 *     begins one later. So messages of passed + 1 to passed + 3 are kept, two
 *     tags of each step; others are of the past.
 * (7) Whoever finds in a round that the group is another one starts over with
 *     its steps, and tells its partners to look, too; those do likewise, so all
 *     know after as many messages in a row as there are steps.
 *
 * Messages are trusted: whoever may read the space could let a round pass that
 * is not complete. They can do no other harm.
 *
 *   word: the receiver's, state 0
 *   words: round | tag | kind 8, step 8, receiver's place | last round that
 *          the sender took part in and passed (0: none) */
#include "sync/barrier.h"

#include "base/log.h"
#include "base/mutant.h"
#include "sync/member.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_DEFAULT 64u
#define NOT_LEFT UINT64_MAX
#define LOOK_MIN_NS UINT64_C(1000000)

enum message_kind { MESSAGE_STEP = 1, MESSAGE_LOOK };

uint64_t barrier_sends(const struct reef_barrier *barrier)
{
	return barrier->sends;
}

/* --- messages --- */

/* Send a partner a message about a round and the group as we know it. */
static int send_message(struct reef_barrier *barrier, enum message_kind kind,
			uint64_t round, uint32_t step,
			const struct barrier_partner *partner)
{
	const struct reef_wake wake = {
		.object = barrier->object.block,
		.word = partner->word,
		.words = {round, barrier->group.tag,
			  (uint64_t)partner->place << 16 | step << 8 | kind,
			  barrier->passed >= barrier->first ? barrier->passed
							    : 0},
	};

	return partner->inbox ? reef_inbox_send(barrier->object.space,
						partner->inbox, &wake)
			      : -ENOENT;
}

static struct barrier_message *kept_messages(struct reef_barrier *barrier,
					     uint64_t round, uint32_t step)
{
	return barrier->got[round % BARRIER_WINDOW][step];
}

static void keep_message(struct reef_barrier *barrier, uint64_t round,
			 uint32_t step, uint64_t tag)
{
	struct barrier_message *kept = kept_messages(barrier, round, step);

	if (kept[0].round == round) {
		if (kept[0].tag == tag)
			return;
		kept[1] = kept[0];
	}
	kept[0] = (struct barrier_message){round, tag};
}

/* Look, if a message names another group than ours for our round: one of the
 * two knows less of who takes part. */
static void compare_tag(struct reef_barrier *barrier, uint64_t round,
			uint64_t tag)
{
	if (barrier->came && round == barrier->passed + 1 &&
	    tag != barrier->group.tag && tag != barrier->odd) {
		barrier->odd = tag;
		barrier->look = true;
	}
}

static void note_step(struct reef_barrier *barrier, uint64_t round,
		      uint32_t step, uint64_t tag)
{
	uint64_t next = barrier->passed + 1;

	if (round < next || round - next >= BARRIER_WINDOW - 1 ||
	    step >= BARRIER_STEPS_MAX)
		return;
	keep_message(barrier, round, step, tag);
	compare_tag(barrier, round, tag);
}

static void note_hint(struct reef_barrier *barrier, uint64_t round,
		      uint64_t tag)
{
	barrier->hint = (struct barrier_message){round, tag};
	compare_tag(barrier, round, tag);
}

static void note_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct reef_barrier *barrier = watch->user;

	if (wake->word != barrier->word ||
	    wake->words[2] >> 16 != barrier->place)
		return;
	/* A sender that has passed our round is usual: what we wait for is on
	 * its way. Unless it passed with the group as it was before. */
	if (wake->words[3] == barrier->passed + 1) {
		barrier->ahead = wake->words[3];
		barrier->look |= barrier->regrouped;
	}
	if ((wake->words[2] & 0xff) == MESSAGE_STEP)
		note_step(barrier, wake->words[0],
			  (uint32_t)(wake->words[2] >> 8) & 0xff,
			  wake->words[1]);
	else
		note_hint(barrier, wake->words[0], wake->words[1]);
}

static bool has_step(const struct reef_barrier *barrier, uint32_t step)
{
	uint64_t round = barrier->passed + 1, tag = barrier->group.tag;
	const struct barrier_message *kept =
		barrier->got[round % BARRIER_WINDOW][step];

	if (REEF_MUTATED(BARRIER_OLD_ROUND))
		return kept[0].tag == tag || kept[1].tag == tag;
	if (REEF_MUTATED(BARRIER_ANY_GROUP))
		return kept[0].round == round;
	return (kept[0].round == round && kept[0].tag == tag) ||
	       (kept[1].round == round && kept[1].tag == tag);
}

/* --- marks --- */

static int write_mark(struct reef_barrier *barrier, uint64_t mark)
{
	uint64_t address = barrier_place_address(barrier, barrier->place) +
			   offsetof(struct barrier_place, mark);
	int rc;

	if (barrier->marked == mark || REEF_MUTATED(BARRIER_NO_MARK))
		return 0;
	/* Nobody else writes our mark, so a WRITE in doubt may be repeated; and
	 * it has to be, because others wait for what the mark says. */
	do
		rc = reef_write(barrier->reef, address, &mark, sizeof(mark));
	while (rc == -REEF_EINDOUBT);
	if (!rc)
		barrier->marked = mark;
	return rc;
}

/* Write into our mark that we came to our round. */
static int mark_come(struct reef_barrier *barrier)
{
	return write_mark(barrier, (barrier->passed + 1) << 2);
}

/* --- a round --- */

/* Make the group of our round from the last view. True: it is another than
 * before. */
static bool regroup(struct reef_barrier *barrier)
{
	uint64_t round = barrier->passed + 1, tag = barrier->group.tag;

	if (round < barrier->group.from || round > barrier->group.until)
		barrier_group_make(barrier, round);
	return barrier->group.tag != tag;
}

static void arrive(struct reef_barrier *barrier)
{
	const struct barrier_message *kept;
	uint32_t k;

	regroup(barrier);
	barrier->came = true;
	barrier->step = 0;
	barrier->sent = false;
	barrier->slow = false;
	barrier->regrouped = false;
	barrier->look_at_ns = 0;
	/* Messages that came before we did may name another group. */
	compare_tag(barrier, barrier->hint.round, barrier->hint.tag);
	for (k = 0; k < barrier->group.steps; k++) {
		kept = kept_messages(barrier, barrier->passed + 1, k);
		compare_tag(barrier, kept[0].round, kept[0].tag);
	}
}

static void count_passed(struct reef_barrier *barrier)
{
	barrier->passed++;
	barrier->came = false;
}

/* Move C to our round, as its beginner.  0: done, so messages may go out.  1:
 * not yet; or C has changed, and barrier->look is set. */
static int begin_round(struct reef_barrier *barrier)
{
	uint64_t round = barrier->passed + 1, before;
	int rc;

	if (round >= BARRIER_ROUND_MAX)
		return -EOVERFLOW;
	if (!barrier_may_begin(barrier))
		return 1;
	if (REEF_MUTATED(BARRIER_BLIND_BEGIN)) {
		rc = reef_faa(barrier->reef, barrier->object.body, 1, &before);
		barrier->c = before + 1;
		return rc;
	}
	rc = reef_cas(barrier->reef, barrier->object.body, barrier->c,
		      barrier->c + 1, &before);
	if (!rc && before == barrier->c) {
		barrier->c++;
		return 0;
	}
	barrier->look = true; /* C has changed, or the CAS is in doubt */
	return rc && rc != -REEF_EINDOUBT ? rc : 1;
}

static int send_step(struct reef_barrier *barrier)
{
	int rc = barrier_near_send(barrier);

	if (rc < 0)
		return rc;
	barrier->sent = true;
	barrier->sends++;
	if (rc == 1)
		return 0;
	rc = send_message(barrier, MESSAGE_STEP, barrier->passed + 1,
			  barrier->step,
			  &barrier->group.partners[barrier->step]);
	if (!rc)
		return 0;
	if (rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD)
		return rc;
	/* A partner that gets no message has to see our mark. */
	return mark_come(barrier);
}

/* Do the steps of our round as far as messages have come.  1: all are done.  0:
 * one is missing. */
static int advance(struct reef_barrier *barrier)
{
	const struct barrier_group *group = &barrier->group;
	int rc;

	if (barrier->place == group->beginner &&
	    barrier_round_of(barrier->c) <= barrier->passed) {
		rc = begin_round(barrier);
		if (rc)
			return rc == 1 ? 0 : rc;
	}
	while (barrier->step < group->steps) {
		if (!barrier->sent) {
			rc = send_step(barrier);
			if (rc || barrier->look)
				return rc;
		}
		if (!has_step(barrier, barrier->step) &&
		    !(REEF_MUTATED(BARRIER_NO_LAST_STEP) &&
		      barrier->step + 1 == group->steps))
			return 0;
		barrier->step++;
		barrier->sent = false;
	}
	return 1;
}

/* Tell our partners to look, too: (7). The first gets our step at once, which
 * tells it as well, unless steps go through memory. */
static int tell_partners(struct reef_barrier *barrier)
{
	uint32_t k;
	int rc;

	for (k = barrier->is_near ? 0 : 1; k < barrier->group.steps; k++) {
		rc = send_message(barrier, MESSAGE_LOOK, barrier->passed + 1, 0,
				  &barrier->group.partners[k]);
		if (rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD)
			return rc;
	}
	return 0;
}

/* Take a new view, and do what it calls for.  1: our round is complete.  0: go
 * on with its steps. */
static int apply_new_view(struct reef_barrier *barrier)
{
	int rc = 0;

	if (barrier->slow)
		rc = mark_come(barrier);
	barrier->look = false; /* a message after this sets it again */
	if (!rc)
		rc = barrier_read_view(barrier);
	if (rc)
		return rc;
	if (barrier_is_complete(barrier))
		return 1;
	if (regroup(barrier)) {
		barrier->step = 0;
		barrier->sent = false;
		barrier->regrouped = true;
		rc = tell_partners(barrier);
	}
	if (!rc && barrier->slow)
		rc = barrier_strike_dead(barrier);
	if (!rc && barrier->slow && barrier_is_kept_up(barrier)) {
		rc = begin_round(barrier);
		rc = rc < 0 ? rc : 1;
	}
	if (rc == 1)
		barrier->look = true; /* there is more to be seen */
	else
		barrier->slow = false;
	return rc == 1 ? 0 : rc;
}

/* --- waiting --- */

static bool is_ready(const void *what)
{
	const struct reef_barrier *barrier = what;

	return barrier->look ||
	       (barrier->step < barrier->group.steps && barrier->sent &&
		has_step(barrier, barrier->step));
}

/* Sleep until a message comes, or until it is time to look.  -ETIMEDOUT: the
 * deadline. */
static int park_member(struct reef_barrier *barrier, uint64_t now_ns,
		       uint64_t deadline_ns)
{
	uint64_t ttl_ns = reef_session_ttl(barrier->reef), until_ns;
	int rc;

	if (!barrier->look_at_ns) {
		barrier->period_ns = ttl_ns / 256;
		if (barrier->period_ns < LOOK_MIN_NS)
			barrier->period_ns = LOOK_MIN_NS;
		barrier->look_at_ns = now_ns + barrier->period_ns;
	}
	until_ns = barrier->look_at_ns < deadline_ns ? barrier->look_at_ns
						     : deadline_ns;
	rc = reef_inbox_wait(barrier->reef, is_ready, barrier,
			     until_ns > now_ns ? until_ns - now_ns : 0);
	if (rc != -ETIMEDOUT)
		return rc;
	if (until_ns == deadline_ns)
		return -ETIMEDOUT;
	barrier->look = barrier->slow = true;
	if (barrier->period_ns < ttl_ns / 8)
		barrier->period_ns *= 2;
	barrier->look_at_ns = until_ns + barrier->period_ns;
	return 0;
}

/* Go on with our round without waiting, looking where that is due.  1: all have
 * come.  0: not yet. */
static int carry_on(struct reef_barrier *barrier)
{
	int rc;

	do {
		rc = barrier->look ? apply_new_view(barrier) : 0;
		if (!rc)
			rc = advance(barrier);
	} while (!rc && barrier->look);
	return rc;
}

/* Wait for the next message, in memory, then asleep.  0: one came, or it is
 * time to look. */
static int wait_for_more(struct reef_barrier *barrier, uint64_t timeout_ns,
			 uint64_t *deadline_ns)
{
	uint64_t now_ns;
	int rc = barrier_near_wait(barrier, timeout_ns > 0);

	if (rc == 1) {
		keep_message(barrier, barrier->passed + 1, barrier->step,
			     barrier->group.tag);
		return 0;
	}
	if (rc)
		return rc;
	now_ns = reef_now_ns();
	if (!*deadline_ns)
		*deadline_ns = timeout_ns < UINT64_MAX - now_ns
				       ? now_ns + timeout_ns
				       : UINT64_MAX;
	return park_member(barrier, now_ns, *deadline_ns);
}

/* Come to our round, and wait until all have.  0: it is passed.  As
 * reef_barrier_wait. */
static int wait_for_round(struct reef_barrier *barrier, uint64_t timeout_ns,
			  uint32_t *dead)
{
	uint64_t deadline_ns = 0;
	uint32_t session;
	int rc;

	if (!barrier->came)
		arrive(barrier);
	barrier_near_begin(barrier);
	do {
		rc = carry_on(barrier);
		if (rc < 0)
			return rc;
		if (barrier_next_dead(barrier, &session)) {
			barrier->look = true; /* further deaths, next time */
			if (dead)
				*dead = session;
			rc = -REEF_EMEMBER;
			break;
		}
		if (rc == 1) {
			count_passed(barrier);
			return 0;
		}
		rc = wait_for_more(barrier, timeout_ns, &deadline_ns);
	} while (!rc);
	/* The caller may be away for long: our mark tells that we have come. */
	if (rc == -ETIMEDOUT || rc == -REEF_EMEMBER)
		mark_come(barrier);
	return rc;
}

int reef_barrier_wait(struct reef_barrier *barrier, uint64_t timeout_ns,
		      uint32_t *dead)
{
	if (barrier->last != NOT_LEFT)
		return -EPERM;
	return wait_for_round(barrier, timeout_ns, dead);
}

/* --- leaving --- */

static int leave_members(struct reef_barrier *barrier)
{
	struct barrier_partner next;
	uint32_t begins;
	int rc;

	if (barrier->last != NOT_LEFT)
		return 0;
	rc = barrier_change(barrier, barrier->place, barrier->word,
			    BARRIER_LEAVE);
	if (!rc)
		rc = barrier_read_view(barrier);
	if (rc)
		return rc == -ESTALE ? -REEF_EFENCED : rc;
	barrier->last = barrier_round_of(barrier->places[barrier->place].gone);
	/* If we would have begun the next round, another has to: tell it. */
	barrier_group_make(barrier, barrier->last + 1);
	begins = barrier->group.beginner;
	if (barrier->group.count) {
		next = (struct barrier_partner){
			.inbox = barrier->places[begins].inbox,
			.word = barrier_tenure_of(barrier->places[begins].word),
			.place = begins,
		};
		send_message(barrier, MESSAGE_LOOK, barrier->last + 1, 0,
			     &next);
	}
	if (barrier->came) {
		barrier->group.from = barrier->group.until = 0;
		barrier->look = true;
	}
	return 0;
}

static int write_last_mark(struct reef_barrier *barrier)
{
	uint64_t mark = barrier->last << 2 | BARRIER_MARK_FINISHED;
	int rc;

	if (barrier->finished)
		return 0;
	if (barrier->passed >= barrier->last)
		mark |= BARRIER_MARK_PASSED;
	rc = write_mark(barrier, mark);
	barrier->finished = !rc;
	return rc;
}

int reef_barrier_leave(struct reef_barrier *barrier, uint64_t timeout_ns)
{
	int rc = leave_members(barrier);

	while (!rc && barrier->passed < barrier->last)
		rc = wait_for_round(barrier, timeout_ns, NULL);
	return rc ? rc : write_last_mark(barrier);
}

/* --- opening and closing --- */

static void destroy(struct reef_barrier *barrier)
{
	if (barrier->watch.user)
		reef_inbox_unwatch(barrier->reef, &barrier->watch);
	if (barrier->member)
		sync_member_give(reef_session(barrier->reef),
				 barrier->object.block, barrier->member);
	free(barrier->places);
	free(barrier->order);
	free(barrier);
}

static int prepare_member(struct reef_barrier *barrier)
{
	int rc;

	barrier->reef = barrier->object.reef;
	barrier->places_max = barrier->object.limits[0];
	barrier->needed = barrier->object.limits[1];
	barrier->last = NOT_LEFT;
	if (!barrier->places_max || barrier->places_max > BARRIER_MEMBERS_MAX)
		return -REEF_ECORRUPT;
	barrier->places =
		calloc(barrier->places_max, sizeof(struct barrier_place));
	barrier->order = calloc(barrier->places_max, sizeof(uint16_t));
	if (!barrier->places || !barrier->order)
		return -ENOMEM;
	rc = sync_member_take(reef_session(barrier->reef),
			      barrier->object.block, &barrier->member);
	if (rc)
		return rc;
	rc = reef_inbox_open(barrier->object.space, &barrier->inbox);
	/* A member without an inbox looks for itself. */
	if (rc == -EADDRNOTAVAIL)
		rc = 0;
	return rc;
}

/* If we are the last member that was needed, tell the beginner, who may wait
 * for that. */
static int tell_beginner(struct reef_barrier *barrier)
{
	struct barrier_partner to;
	uint32_t begins;
	int rc;

	barrier_group_make(barrier, barrier->first);
	begins = barrier->group.beginner;
	if (barrier->passed || begins == barrier->place || !barrier->needed ||
	    barrier->group.count < barrier->needed)
		return 0;
	to = (struct barrier_partner){
		.inbox = barrier->places[begins].inbox,
		.word = barrier_tenure_of(barrier->places[begins].word),
		.place = begins,
	};
	rc = send_message(barrier, MESSAGE_LOOK, barrier->first, 0, &to);
	return rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD ? rc : 0;
}

static int join_members(struct reef_barrier *barrier)
{
	uint64_t joined;
	int rc = prepare_member(barrier);

	if (!rc)
		rc = barrier_join(barrier);
	if (rc)
		return rc;
	joined = barrier->places[barrier->place].joined;
	barrier->passed = barrier_round_of(joined);
	barrier->first = barrier->passed + 1;
	barrier->told = barrier_version_of(joined);
	barrier->watch = (struct reef_watch){
		.object = barrier->object.block,
		.message = note_message,
		.user = barrier,
	};
	reef_inbox_watch(barrier->reef, &barrier->watch);
	return tell_beginner(barrier);
}

int reef_barrier_open(struct reef_space *space, const char *name,
		      const struct reef_barrier_options *options,
		      uint32_t members, struct reef_barrier **out)
{
	static const struct reef_barrier_options none;
	uint32_t max;
	struct object_shape shape;
	struct reef_barrier *barrier;
	int rc;

	options = options ? options : &none;
	max = options->members_max ? options->members_max : MEMBERS_DEFAULT;
	if (max > BARRIER_MEMBERS_MAX || members > max)
		return -EINVAL;
	shape = (struct object_shape){
		.kind = OBJECT_BARRIER,
		.format = BARRIER_FORMAT,
		.limits = {max, members},
		.body_size = sizeof(struct barrier_body) +
			     max * (sizeof(struct barrier_place) +
				    barrier_near_size(max)),
	};
	barrier = calloc(1, sizeof(*barrier));
	if (!barrier)
		return -ENOMEM;
	rc = object_open(space, name, &shape, options->flags, &barrier->object);
	if (!rc)
		rc = join_members(barrier);
	if (rc && barrier->joined)
		reef_barrier_close(barrier);
	else if (rc)
		destroy(barrier);
	if (rc)
		return rc;
	*out = barrier;
	return 0;
}

void reef_barrier_close(struct reef_barrier *barrier)
{
	if (!barrier)
		return;
	/* It does not wait for the others: they can see by our mark that we
	 * came to our last round. */
	if (!barrier->finished && !leave_members(barrier))
		write_last_mark(barrier);
	destroy(barrier);
}

int reef_barrier_drop(struct reef_space *space, const char *name)
{
	struct object object;
	uint64_t c = 0, before = 1;
	int rc = object_drop(space, name, OBJECT_BARRIER, &object);

	if (rc || !object.block)
		return rc;
	/* C says DROPPED to whoever looks, or begins a round. */
	while (!rc && before != c && c != BARRIER_DROPPED) {
		rc = reef_read(object.reef, object.body, &c, 8);
		before = ~c;
		if (!rc && c != BARRIER_DROPPED)
			rc = reef_cas(object.reef, object.body, c,
				      BARRIER_DROPPED, &before);
		if (rc == -REEF_EINDOUBT)
			rc = 0;
	}
	return rc;
}

uint32_t reef_barrier_members(const struct reef_barrier *barrier)
{
	uint32_t i, count = 0;

	for (i = 0; i < barrier->places_max; i++)
		count += barrier_state_of(barrier->places[i].word) ==
			 BARRIER_MEMBER;
	return count;
}

uint64_t reef_barrier_round(const struct reef_barrier *barrier)
{
	return barrier->passed;
}
