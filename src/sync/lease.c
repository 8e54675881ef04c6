/* lease.c - see lease.h. The words of a lease, and who changes them.
 *
 *             capture                     renew (WRITE of the record)
 *   nobody's -----------> ours, term + 1 ----+
 *      ^                    |   |  ^         |
 *      |      release       |   |  +---------+
 *      +--------------------+   |
 *                               | capture by another: our session is ENDED,
 *                               v or the lease has lapsed
 *                             another's, term + 1
 *
 * (1) The term and who has it are one word: so terms and holders have one
 *     order, and nobody can die between the two (R1). The word has room for the
 *     lower bits of the term only. The floor tells the others: term - floor is
 *     less than LEASE_TERMS / 2, because whoever finds it above LEASE_TERMS / 4
 *     raises the floor before it captures. The floor is read before and after
 *     the word: was it the same, the term is certain.
 * (2) Capture is a CAS from the word that was seen. Where the word is the same
 *     again after LEASE_TERMS captures, it means the same again; the token is
 *     told by a floor read after the CAS.
 * (3) Taken from another only at ENDED, when nothing of it can follow (F7), or:
 * (4) Lapsed. The holder counts from before it posted the capture or renewal,
 *     and a renewal counts only if it was done while the lease was still ours:
 *     so it took effect before then. Others count from when a READ had been
 *     done that was the first to see this holder and this renewal; and take
 *     it if a READ that was posted duration + an eighth later sees the same.
 *     A renewal that counts would have been seen by that READ, as long as no
 *     clock is an eighth faster than another. A renewal that does not count may
 *     come late, and only makes others wait longer. Whatever is written into
 *     `renewals` was never there before, so a change is always seen.
 * (5) The record is what the holder says of itself. It is told only if it is of
 *     this term and whole (F2). One who lapsed can overwrite another's record,
 *     if it stood still at the wrong moment; the next renewal mends it.
 * (6) What is in doubt is settled when a call returns: whoever finds itself in
 *     the word, and does not know that it holds, captures again with a new
 *     term. Only -ETIMEDOUT and -REEF_ENOLINK leave a capture or a release
 *     open: `word` remembers that; should it happen later, it ends with the
 *     next take, with close, or with the session.
 * (7) A dropped lease has LEASE_DROPPED in the word before its name is unbound:
 *     so nobody can hold the old one while another makes a new one.
 * (8) A lease whose node died has no word to mark. Its holder holds nothing as
 *     soon as its view says so, and whoever drops it waits until every session
 *     has that view or is fenced (object.h, rule 7).
 * (9) What others know as the token has the generation of the name above the
 *     term: so tokens go on growing where another lease of that name begins
 *     anew with term 1, as long as none was taken 2^32 times. */
#include "sync/lease.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"
#include "sync/member.h"
#include "sync/word.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1
/* Each further attempt needs another holder, or another lost link. */
#define ATTEMPTS 64
#define DURATION_MAX (UINT64_C(1) << 60)

static uint64_t record_checksum(const struct lease_record *record)
{
	return reef_crc32c(0, record, offsetof(struct lease_record, checksum));
}

static uint64_t word_of(uint64_t self, uint64_t term)
{
	return self | (term & (LEASE_TERMS - 1));
}

static uint64_t holder_of(uint64_t word)
{
	return word & ~(LEASE_TERMS - 1);
}

static uint64_t term_of(uint64_t floor, uint64_t word)
{
	return floor + ((word - floor) & (LEASE_TERMS - 1));
}

/* Rule 9. 0: nobody has ever had it. */
static uint64_t token_of(const struct reef_lease *lease, uint64_t term)
{
	if (!term || REEF_MUTATED(LEASE_TERMS_ANEW))
		return term;
	return (lease->object.generation << 32) + term;
}

static struct reef_access read_of(const struct reef_lease *lease, size_t offset,
				  void *to, uint32_t length)
{
	return (struct reef_access){
		.kind = REEF_READ,
		.address = lease_at(lease, offset),
		.local = to,
		.length = length,
	};
}

/* --- looking --- */

static void note_sight(struct reef_lease *lease,
		       const struct lease_sight *sight)
{
	if (sight->holder == lease->seen_holder &&
	    sight->record.renewals == lease->seen_renewals)
		return;
	lease->seen_holder = sight->holder;
	lease->seen_renewals = sight->record.renewals;
	lease->seen_ns = sight->done_ns;
}

int lease_observe(struct reef_lease *lease, struct lease_sight *sight)
{
	uint64_t floor;
	int attempt, rc;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct reef_access accesses[] = {
			read_of(lease, offsetof(struct lease_body, floor),
				&sight->floor, 8),
			read_of(lease, offsetof(struct lease_body, holder),
				&sight->holder, 8),
			read_of(lease, offsetof(struct lease_body, record),
				&sight->record, sizeof(sight->record)),
			read_of(lease, offsetof(struct lease_body, floor),
				&floor, 8),
		};

		sight->posted_ns = reef_now_ns();
		rc = reef_execute(lease->object.reef, accesses, 4);
		if (rc)
			return rc;
		if (floor != sight->floor)
			continue;
		sight->done_ns = reef_now_ns();
		sight->term = term_of(floor, sight->holder);
		sight->is_whole = sight->record.token == sight->term &&
				  sight->record.word == sight->holder &&
				  (REEF_MUTATED(LEASE_NO_CHECKSUM) ||
				   sight->record.checksum ==
					   record_checksum(&sight->record));
		note_sight(lease, sight);
		return 0;
	}
	return -EBUSY;
}

/* Fill in what others may see. False: the holder's record is not (yet) of this
 * term, or not whole. */
static bool fill_info(const struct reef_lease *lease,
		      const struct lease_sight *sight,
		      struct reef_lease_info *out)
{
	*out = (struct reef_lease_info){
		.session = lease_session(sight->holder),
		.token = token_of(lease, sight->term),
		.renewals = sight->record.renewals,
	};
	if (out->session && sight->is_whole) {
		memcpy(out->holder, sight->record.text, sizeof(out->holder));
		out->holder[sizeof(out->holder) - 1] = 0;
	}
	return !out->session || sight->is_whole;
}

/* The record may be changing while it is read, but not for long: so many READs.
 */
#define LOOKS 4

static int read_info(struct reef_lease *lease, struct reef_lease_info *out,
		     bool *is_whole)
{
	struct reef_lease_info info;
	struct lease_sight sight;
	int i, rc;

	*is_whole = false;
	for (i = 0; i < LOOKS && !*is_whole; i++) {
		rc = lease_observe(lease, &sight);
		if (rc)
			return rc;
		if (lease_session(sight.holder) == LEASE_DROPPED)
			return -ENOENT;
		*is_whole = fill_info(lease, &sight, &info);
	}
	*out = info;
	return 0;
}

int reef_lease_look(struct reef_lease *lease, struct reef_lease_info *out)
{
	bool is_whole;

	return read_info(lease, out, &is_whole);
}

/* Find out whether a session has ended.  -REEF_ENOLINK: nobody knows. */
static int has_ended(struct reef_lease *lease, uint32_t session, bool *ended)
{
	enum reef_session_view view = REEF_VIEW_ALIVE;
	int rc;

	*ended = session == lease->ended;
	if (*ended)
		return 0;
	rc = reef_session_check(lease->object.reef, session, &view);
	*ended = !rc &&
		 (view == REEF_VIEW_ENDED ||
		  (REEF_MUTATED(LEASE_EXPIRED) && view == REEF_VIEW_EXPIRED));
	if (*ended)
		lease->ended = session;
	lease_plan(lease, !rc && view == REEF_VIEW_EXPIRED);
	return rc;
}

int lease_read_living(struct reef_lease *lease, struct reef_lease_info *out,
		      bool *is_whole)
{
	struct reef_lease_info info;
	bool ended = false;
	int rc;

	rc = read_info(lease, &info, is_whole);
	if (!rc && info.session) {
		rc = has_ended(lease, info.session, &ended);
		if (rc == -REEF_ENOLINK)
			rc = 0;
	}
	if (rc)
		return rc;
	if (ended) {
		*is_whole = true;
		info.session = 0;
		memset(info.holder, 0, sizeof(info.holder));
	}
	*out = info;
	return 0;
}

/* --- taking --- */

/* True if the lease has lapsed by rule 4. */
static bool has_lapsed(const struct reef_lease *lease,
		       const struct lease_sight *sight)
{
	uint64_t margin_ns = lease->duration_ns / 8 + 1;
	uint64_t looked_ns = sight->posted_ns;

	if (!lease->duration_ns)
		return false;
	if (REEF_MUTATED(LEASE_NO_MARGIN))
		margin_ns = 0;
	if (REEF_MUTATED(LEASE_OLD_SIGHT))
		looked_ns = sight->done_ns;
	return looked_ns >= lease->seen_ns &&
	       looked_ns - lease->seen_ns >= lease->duration_ns + margin_ns;
}

/* 0: the lease may be taken from whoever has it.  -EBUSY: it may not.  -ENOENT:
 * it was dropped. */
static int may_take(struct reef_lease *lease, const struct lease_sight *sight)
{
	uint32_t session = lease_session(sight->holder);
	bool ended;
	int rc;

	if (session == LEASE_DROPPED)
		return -ENOENT;
	if (!session || holder_of(sight->holder) == lease->self ||
	    has_lapsed(lease, sight))
		return 0;
	if (session == reef_session(lease->object.reef) ||
	    sight->posted_ns < lease->look_ns)
		return -EBUSY;
	rc = has_ended(lease, session, &ended);
	if (rc && rc != -REEF_ENOLINK)
		return rc;
	return !rc && ended ? 0 : -EBUSY;
}

static int raise_floor(struct reef_lease *lease, uint64_t from, uint64_t to)
{
	if (REEF_MUTATED(LEASE_NO_FLOOR))
		return 0;
	return reef_cas(lease->object.reef,
			lease_at(lease, offsetof(struct lease_body, floor)),
			from, to, NULL);
}

static void fill_record(struct reef_lease *lease, uint64_t term)
{
	memset(&lease->record, 0, sizeof(lease->record));
	lease->record.renewals = term << 32;
	lease->record.token = term;
	lease->record.word = lease->word;
	memcpy(lease->record.text, lease->text, sizeof(lease->text));
	lease->record.checksum = record_checksum(&lease->record);
}

/* Write our record and raise the floor, after the word was captured, and tell
 * those who watch.  -EAGAIN: the word is another's by now, or the lease lapsed.
 */
static int publish_record(struct reef_lease *lease, uint64_t floor)
{
	struct lease_place places[LEASE_PLACES];
	uint64_t holder;
	int attempt, rc = -REEF_EINDOUBT;

	for (attempt = 0; attempt < ATTEMPTS && rc == -REEF_EINDOUBT;
	     attempt++) {
		struct reef_access accesses[] = {
			{
				.kind = REEF_WRITE,
				.address = lease_at(
					lease,
					offsetof(struct lease_body, record)),
				.local = &lease->record,
				.length = sizeof(lease->record),
			},
			{
				.kind = REEF_CAS,
				.address = lease_at(
					lease,
					offsetof(struct lease_body, floor)),
				.compare = floor,
				.operand = REEF_MUTATED(LEASE_NO_FLOOR)
						   ? floor
						   : lease->record.token,
			},
			read_of(lease, offsetof(struct lease_body, holder),
				&holder, 8),
			read_of(lease, offsetof(struct lease_body, places),
				places, sizeof(places)),
		};

		rc = reef_execute(lease->object.reef, accesses, 4);
	}
	if (rc)
		return rc;
	if (holder != lease->word && !REEF_MUTATED(LEASE_DOUBT_IS_DONE)) {
		lease->word = 0;
		return -EAGAIN;
	}
	lease_wake_others(lease, false, places);
	lease->is_held = true;
	if (reef_lease_left(lease))
		return 0;
	lease->is_held = false;
	return -EAGAIN;
}

/* CAS the word from what was seen to us and a new term: rules 1 and 2. -EAGAIN:
 * it was another by then, or the CAS is in doubt; look again. */
static int capture_word(struct reef_lease *lease,
			const struct lease_sight *sight)
{
	uint64_t floor, term = sight->term + 1;
	struct reef_access accesses[2];
	int rc;

	if (sight->term - sight->floor >= LEASE_TERMS / 4) {
		rc = raise_floor(lease, sight->floor, sight->term);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		if (!REEF_MUTATED(LEASE_NO_FLOOR))
			return -EAGAIN;
	}
	if (REEF_MUTATED(LEASE_SAME_TERM))
		term--;
	accesses[0] = (struct reef_access){
		.kind = REEF_CAS,
		.address = lease_at(lease, offsetof(struct lease_body, holder)),
		.compare = sight->holder,
		.operand = word_of(lease->self, term),
	};
	accesses[1] =
		read_of(lease, offsetof(struct lease_body, floor), &floor, 8);
	lease->since_ns = reef_now_ns();
	lease->is_held = false;
	lease->word = accesses[0].operand;
	rc = reef_execute(lease->object.reef, accesses, 2);
	if (rc == -REEF_EINDOUBT && REEF_MUTATED(LEASE_DOUBT_IS_DONE)) {
		floor = sight->floor;
	} else if (rc == -REEF_EINDOUBT) {
		return -EAGAIN;
	} else if (rc) {
		return rc;
	} else if (accesses[0].result != sight->holder) {
		lease->word = 0;
		return -EAGAIN;
	}
	fill_record(lease, term_of(floor, lease->word));
	return publish_record(lease, floor);
}

int lease_attempt(struct reef_lease *lease)
{
	struct lease_sight sight;
	int attempt, rc = -EAGAIN;

	for (attempt = 0; attempt < ATTEMPTS && rc == -EAGAIN; attempt++) {
		rc = lease_observe(lease, &sight);
		if (!rc)
			rc = may_take(lease, &sight);
		if (!rc)
			rc = capture_word(lease, &sight);
	}
	return rc == -EAGAIN ? -EBUSY : rc;
}

static int wait_and_take(struct reef_lease *lease, uint64_t deadline_ns)
{
	bool is_late = REEF_MUTATED(LEASE_ENLIST_LATE);
	int rc = -EBUSY;

	if (is_late)
		rc = lease_attempt(lease);
	lease_enlist(lease, LEASE_WAITS);
	while (rc == -EBUSY) {
		if (!is_late)
			rc = lease_attempt(lease);
		is_late = false;
		if (rc == -EBUSY) {
			rc = lease_wait(lease, deadline_ns);
			rc = rc ? rc : -EBUSY;
		}
	}
	lease_delist(lease, rc != 0);
	return rc;
}

int reef_lease_take(struct reef_lease *lease, uint64_t timeout_ns,
		    uint64_t *token)
{
	uint64_t deadline_ns = lease_deadline(timeout_ns);
	int rc;

	if (reef_lease_left(lease))
		return -EDEADLK;
	lease->look_ns = 0;
	lease->pause_ns = 0;
	do {
		rc = lease_attempt(lease);
		if (rc == -EBUSY && timeout_ns)
			rc = wait_and_take(lease, deadline_ns);
		/* It may have lapsed on the way here. */
	} while (!rc && !reef_lease_left(lease));
	if (!rc && token)
		*token = token_of(lease, lease->record.token);
	return rc;
}

/* --- having it --- */

bool lease_is_lost(const struct reef_lease *lease)
{
	return reef_is_lost(lease->object.reef, lease->object.body) &&
	       !REEF_MUTATED(LEASE_LOST_IS_HELD);
}

uint64_t reef_lease_left(const struct reef_lease *lease)
{
	uint64_t spent_ns;

	if (!lease->is_held ||
	    reef_health(lease->object.reef) == -REEF_EFENCED ||
	    lease_is_lost(lease))
		return 0;
	if (!lease->duration_ns)
		return UINT64_MAX;
	spent_ns = reef_now_ns() - lease->since_ns;
	return spent_ns < lease->duration_ns ? lease->duration_ns - spent_ns
					     : 0;
}

/* The lease ended by itself: it has lapsed, or it is lost. */
static int note_lapsed(struct reef_lease *lease)
{
	lease->is_held = false;
	return lease_is_lost(lease) ? -REEF_ELOST : -ETIMEDOUT;
}

static int write_record(struct reef_lease *lease, uint64_t *holder)
{
	struct reef_access accesses[] = {
		{
			.kind = REEF_WRITE,
			.address = lease_at(
				lease, offsetof(struct lease_body, record)),
			.local = &lease->record,
			.length = sizeof(lease->record),
		},
		read_of(lease, offsetof(struct lease_body, holder), holder, 8),
	};

	lease->record.renewals++;
	lease->record.checksum = record_checksum(&lease->record);
	return reef_execute(lease->object.reef, accesses, 2);
}

int reef_lease_renew(struct reef_lease *lease)
{
	uint64_t since_ns, holder;
	int attempt, rc = -REEF_EINDOUBT;

	if (!lease->is_held)
		return -EPERM;
	for (attempt = 0; attempt < ATTEMPTS && rc == -REEF_EINDOUBT;
	     attempt++) {
		if (!reef_lease_left(lease))
			return note_lapsed(lease);
		since_ns = reef_now_ns();
		rc = write_record(lease, &holder);
	}
	if (rc) {
		lease->is_held &= rc != -REEF_ELOST && rc != -REEF_EFENCED;
		return rc;
	}
	if (holder != lease->word) {
		lease->is_held = false;
		lease->word = 0;
		return lease_session(holder) == LEASE_DROPPED ? -ENOENT
							      : -EPERM;
	}
	if (REEF_MUTATED(LEASE_LATE_COUNT))
		since_ns = reef_now_ns();
	if (!reef_lease_left(lease) && !REEF_MUTATED(LEASE_LATE_RENEWAL))
		return note_lapsed(lease);
	lease->since_ns = since_ns;
	return 0;
}

/* CAS the word from us to nobody.  0: it is nobody's, or has become another's
 * since.  -EPERM: it was not ours. */
static int release_word(struct reef_lease *lease)
{
	struct lease_place places[LEASE_PLACES];
	bool in_doubt = false;
	int attempt, rc = -REEF_EINDOUBT;
	uint64_t nobody = word_of(0, lease->word);

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct reef_access accesses[] = {
			{
				.kind = REEF_CAS,
				.address = lease_at(
					lease,
					offsetof(struct lease_body, holder)),
				.compare = lease->word,
				.operand = nobody,
			},
			read_of(lease, offsetof(struct lease_body, places),
				places, sizeof(places)),
		};

		rc = reef_execute(lease->object.reef, accesses, 2);
		if (rc == -REEF_EINDOUBT) {
			in_doubt = true;
			continue;
		}
		if (!rc && accesses[0].result != lease->word &&
		    !(in_doubt && accesses[0].result == nobody))
			rc = in_doubt ? 0 : -EPERM;
		else if (!rc)
			lease_wake_others(lease, true, places);
		break;
	}
	return rc;
}

int reef_lease_give(struct reef_lease *lease)
{
	int rc;

	if (!lease->word)
		return -EPERM;
	rc = release_word(lease);
	lease->is_held = false;
	if (!rc || rc == -EPERM)
		lease->word = 0;
	return rc;
}

void reef_lease_cancel(struct reef_lease *lease)
{
	atomic_store(&lease->is_canceled, true);
	reef_inbox_poke(lease->object.reef);
}

/* --- opening --- */

/* Rule 7: 1, if it was dropped by somebody who did not come to unbind it. */
static int is_dropped(struct reef_lease *lease)
{
	struct lease_sight sight;
	int rc = lease_observe(lease, &sight);

	return rc ? rc : lease_session(sight.holder) == LEASE_DROPPED;
}

static int open_object(struct reef_lease *lease, const char *name,
		       const struct object_shape *shape, uint32_t flags,
		       struct reef_space *space)
{
	int attempt, rc = 1;

	for (attempt = 0; attempt < ATTEMPTS && rc == 1; attempt++) {
		rc = object_open(space, name, shape, flags, &lease->object);
		if (!rc)
			rc = is_dropped(lease);
		if (rc != 1)
			return rc;
		if (flags & OBJECT_EXISTING)
			return -ENOENT;
		rc = object_unbind(&lease->object, name);
		if (rc && rc != -ENOENT)
			return rc;
		rc = 1;
	}
	return -EBUSY;
}

int lease_open(struct reef_space *space, const char *name,
	       enum object_kind kind, const struct reef_lease_options *options,
	       const char *text, struct reef_lease **out)
{
	uint64_t duration_ns = options ? options->duration_ns : 0;
	struct object_shape shape = {
		.kind = kind,
		.format = FORMAT,
		.limits = {(uint32_t)duration_ns,
			   (uint32_t)(duration_ns >> 32)},
		.body_size = sizeof(struct lease_body),
	};
	struct reef_lease *lease;
	uint32_t session;
	int rc;

	if (duration_ns > DURATION_MAX || strlen(text) >= LEASE_TEXT)
		return -EINVAL;
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return -ENOMEM;
	rc = open_object(lease, name, &shape, options ? options->flags : 0,
			 space);
	if (rc)
		goto err_free;
	lease->duration_ns = lease->object.limits[0] |
			     (uint64_t)lease->object.limits[1] << 32;
	session = reef_session(lease->object.reef);
	rc = sync_member_take(session, lease->object.block, &lease->member);
	if (rc)
		goto err_free;
	lease->self = sync_word_pack((struct sync_word){
		.session = session,
		.member = lease->member,
	});
	lease->place = LEASE_PLACES;
	memcpy(lease->text, text, strlen(text));
	*out = lease;
	return 0;
err_free:
	free(lease);
	return rc;
}

int reef_lease_open(struct reef_space *space, const char *name,
		    const struct reef_lease_options *options,
		    struct reef_lease **out)
{
	return lease_open(space, name, OBJECT_LEASE, options, "", out);
}

void reef_lease_close(struct reef_lease *lease)
{
	int rc = 0;

	if (!lease)
		return;
	if (lease->word)
		rc = reef_lease_give(lease);
	/* Rule 6: a release that is still open may happen later, so nobody else
	 * may get our member number. */
	if (rc != -ETIMEDOUT && rc != -REEF_ENOLINK)
		sync_member_give(lease_session(lease->self),
				 lease->object.block, lease->member);
	free(lease);
}

/* Put LEASE_DROPPED into the word, if the lease may be taken: rule 7. */
static int mark_dropped(struct reef_lease *lease)
{
	struct lease_sight sight;
	uint64_t before, dropped;
	int attempt, rc;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = lease_observe(lease, &sight);
		if (rc)
			return rc;
		if (lease_session(sight.holder) == LEASE_DROPPED)
			return 0;
		rc = may_take(lease, &sight);
		if (rc)
			return rc;
		dropped = word_of((uint64_t)LEASE_DROPPED << 32, sight.term);
		rc = reef_cas(
			lease->object.reef,
			lease_at(lease, offsetof(struct lease_body, holder)),
			sight.holder, dropped, &before);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		if (!rc && before == sight.holder)
			return 0;
	}
	return -EBUSY;
}

static uint64_t forget_wait_ns(struct reef_space *space)
{
	if (REEF_MUTATED(LEASE_LOST_AT_ONCE))
		return 0;
	return object_loss_wait_ns(reef_space_handle(space));
}

int lease_drop(struct reef_space *space, const char *name,
	       enum object_kind kind)
{
	const struct object_shape shape = {.kind = kind, .format = FORMAT};
	struct reef_lease lease = {0};
	int rc;

	rc = object_open(space, name, &shape, OBJECT_EXISTING, &lease.object);
	if (!rc)
		rc = mark_dropped(&lease);
	/* Rule 8. */
	if (rc == -REEF_ELOST)
		rc = object_forget(space, name, forget_wait_ns(space), NULL);
	else if (!rc)
		rc = object_unbind(&lease.object, name);
	/* Another dropped the lost one, and made a new one. */
	return rc == -EAGAIN ? -EBUSY : rc;
}

int reef_lease_drop(struct reef_space *space, const char *name)
{
	return lease_drop(space, name, OBJECT_LEASE);
}
