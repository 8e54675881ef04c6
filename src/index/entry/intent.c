/* intent.c - intents: lines, statuses, and what a dead coordinator left. */
#include "index/entry/intent.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/quick.h"
#include "index/entry/word.h"

#include <errno.h>

#define PATIENCE_NS UINT64_C(1000000)
#define PATIENCE_MAX_NS UINT64_C(1000000000)
#define ATTEMPTS_SHIFT_MAX 10u
#define PAUSE_MIN_NS 2000u
#define PAUSE_MAX_NS 100000u
#define LOOKS 16	 /* at a line whose status is on another node */
#define LINES_MAX 65536u /* of a block */
#define TOGETHER 64u	 /* lines that are read at once */

static intent_resolve *resolvers[INTENT_INDEXES];

static uint32_t line_crc(const struct intent_line *line)
{
	return reef_crc32c_quick(0, line, offsetof(struct intent_line, crc));
}

void intent_line_seal(struct intent_line *line)
{
	line->crc = line_crc(line);
}

static bool is_line(const struct intent_line *line)
{
	return line->crc == line_crc(line) && !(line->main & 7) &&
	       line->index && line->index < INTENT_INDEXES;
}

/* --- one that is met --- */

/* The READ of a status, and of `next` after it: on one node in that order, so
 * what is COMMITTED has one. Elsewhere the line may have to be read once more.
 */
static void add_status(struct intent *intent, struct reef_access *accesses)
{
	accesses[0] = (struct reef_access){
		.kind = REEF_READ,
		.address = intent->line.main,
		.local = &intent->status,
		.length = 8,
	};
	accesses[1] = (struct reef_access){
		.kind = REEF_READ,
		.address = intent->at + offsetof(struct intent_line, next),
		.local = &intent->line.next,
		.length = 8,
	};
}

static bool lacks_next(const struct intent *intents, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (intents[i].status == INTENT_COMMITTED &&
		    !intents[i].line.next)
			return true;
	return false;
}

int intent_read_statuses(struct reef *reef, struct intent *intents,
			 uint32_t count, const struct reef_access *extra,
			 uint32_t extra_count)
{
	struct reef_access accesses[2 * INTENT_TOGETHER + INTENT_EXTRA];
	uint32_t i;
	int rc = 0;

	reef_assert(count <= INTENT_TOGETHER && extra_count <= INTENT_EXTRA);
	for (i = 0; i < count; i++)
		add_status(&intents[i], &accesses[(size_t)2 * i]);
	for (i = 0; i < extra_count; i++)
		accesses[2 * count + i] = extra[i];
	for (i = 0; i < LOOKS; i++) {
		rc = reef_execute(reef, accesses, 2 * count + extra_count);
		if (rc || !lacks_next(intents, count))
			break;
	}
	for (i = 0; i < count && !rc; i++)
		if (intents[i].status > INTENT_ABORTED)
			rc = -REEF_ECORRUPT;
	return !rc && lacks_next(intents, count) ? -REEF_ECORRUPT : rc;
}

int intent_read_lines(struct reef_space *space, uint32_t number,
		      const uint64_t *blocks, struct intent *out,
		      uint32_t count)
{
	struct reef_access accesses[INTENT_TOGETHER];
	uint32_t i;
	int rc = 0;

	reef_assert(count <= INTENT_TOGETHER);
	for (i = 0; i < count && !rc; i++) {
		rc = reef_long_address(space, blocks[i], &out[i].at);
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = out[i].at,
			.local = &out[i].line,
			.length = sizeof(out[i].line),
		};
	}
	if (!rc)
		rc = reef_execute(reef_space_handle(space), accesses, count);
	for (i = 0; i < count && !rc; i++)
		if (!is_line(&out[i].line) || out[i].line.number != number)
			rc = -REEF_ECORRUPT;
	return rc;
}

int intent_read(struct reef_space *space, uint32_t number, uint64_t block,
		struct intent *out)
{
	int rc = intent_read_lines(space, number, &block, out, 1);

	return rc ? rc
		  : intent_read_statuses(reef_space_handle(space), out, 1, NULL,
					 0);
}

/* (R10) 0 if a status may be there: in memory of the space. Else whoever can
 * write to this space could have others change words of theirs elsewhere. Its
 * extent is known, as the status was READ before. */
static int check_main(struct reef_space *space, uint64_t main)
{
	uint64_t block;

	return reef_short_address(space, main, &block) ? -REEF_ECORRUPT : 0;
}

int intent_abort(struct reef_space *space, struct intent *intent)
{
	struct reef *reef = reef_space_handle(space);
	uint64_t before;
	int rc = 0;

	if (intent->status == INTENT_PENDING)
		rc = check_main(space, intent->line.main);
	if (rc)
		return rc;
	if (intent->status == INTENT_PENDING)
		rc = index_cas(reef, intent->line.main, INTENT_PENDING,
			       INTENT_ABORTED, &before);
	/* It is decided once, so a READ tells, after a doubt too. */
	if (rc < 0 && rc != -REEF_EINDOUBT)
		return rc;
	return intent_read_statuses(reef, intent, 1, NULL, 0);
}

static bool is_older(const struct intent_wait *wait,
		     const struct intent_line *line)
{
	if (wait->priority != line->priority)
		return wait->priority < line->priority;
	return wait->main < line->main;
}

bool intent_is_due(struct intent_wait *wait, uint64_t word,
		   const struct intent *intent)
{
	uint64_t limit_ns = wait->patience_ns ? wait->patience_ns : PATIENCE_NS;
	uint32_t shift = intent->line.attempts;

	if (wait->priority && wait->looks >= INTENT_LOOKS &&
	    is_older(wait, &intent->line))
		return true;
	if (wait->word != word) {
		wait->word = word;
		wait->since_ns = reef_now_ns();
	}
	if (shift > ATTEMPTS_SHIFT_MAX)
		shift = ATTEMPTS_SHIFT_MAX;
	/* Compared first, as much patience would overflow. */
	limit_ns = limit_ns > PATIENCE_MAX_NS >> shift ? PATIENCE_MAX_NS
						       : limit_ns << shift;
	return reef_now_ns() - wait->since_ns >= limit_ns;
}

int intent_pause(const struct intent_wait *wait)
{
	uint64_t pause_ns = (reef_now_ns() - wait->since_ns) / 2;

	if (pause_ns < PAUSE_MIN_NS)
		pause_ns = PAUSE_MIN_NS;
	return reef_sleep(pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS);
}

/* --- recovery: (4) --- */

void intent_resolver_register(enum intent_index index, intent_resolve *resolve)
{
	resolvers[index] = resolve;
}

/* True if memory is gone, or never was any: nothing that it says counts. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || index_is_nonsense(rc) || rc == -ERANGE;
}

static int resolve_line(struct reef_space *space, struct intent *intent)
{
	intent_resolve *resolve;
	uint64_t block;
	int rc;

	if (!is_line(&intent->line))
		return 0; /* no word names it */
	resolve = resolvers[intent->line.index];
	rc = reef_short_address(space, intent->at, &block);
	if (!rc)
		rc = resolve ? resolve(space, intent, block) : -ENOSYS;
	return is_gone(rc) ? 0 : rc;
}

/* Resolve all lines of one block. */
static int resolve_block(struct reef_space *space, uint64_t main,
			 uint64_t block, uint32_t lines, uint64_t status)
{
	struct intent_line read[TOGETHER];
	struct intent intent = {.status = status};
	uint32_t at, i, part;
	int rc = 0;

	for (at = 0; at < lines && !rc; at += part) {
		part = lines - at < TOGETHER ? lines - at : TOGETHER;
		rc = reef_read(reef_space_handle(space),
			       intent_line_at(block, at), read,
			       part * sizeof(*read));
		for (i = 0; i < part && !rc; i++) {
			intent.at = intent_line_at(block, at + i);
			intent.line = read[i];
			if (intent.line.main == main)
				rc = resolve_line(space, &intent);
		}
	}
	return is_gone(rc) ? 0 : rc;
}

static int read_head(struct reef *reef, uint64_t block, uint64_t magic,
		     struct intent_head *head)
{
	int rc = reef_read(reef, block, head, sizeof(*head));

	if (!rc && (head->magic != magic || head->lines > LINES_MAX ||
		    head->status > INTENT_ABORTED))
		rc = -REEF_ECORRUPT;
	return rc;
}

/* Decide a transaction whose session has ended, and resolve all its words. */
static int recover_main(struct reef_space *space, uint64_t main,
			const struct intent_head *head)
{
	struct reef *reef = reef_space_handle(space);
	struct intent_head other;
	uint64_t before, status = head->status;
	int rc = 0;

	if (status == INTENT_PENDING) {
		rc = index_cas(reef, main, INTENT_PENDING, INTENT_ABORTED,
			       &before);
		if (rc >= 0 || rc == -REEF_EINDOUBT)
			rc = reef_read(reef, main, &status, 8);
	}
	if (!rc)
		rc = resolve_block(space, main, main, head->lines, status);
	for (uint32_t i = 0; i < INTENT_BLOCKS && !rc; i++) {
		if (!head->blocks[i])
			continue;
		rc = read_head(reef, head->blocks[i], INTENT_MORE_MAGIC,
			       &other);
		if (!rc && other.blocks[0] == main)
			rc = resolve_block(space, main, head->blocks[i],
					   other.lines, status);
		if (is_gone(rc))
			rc = 0;
	}
	return rc;
}

/* A transaction's block never outlives its session: it is resolved, as a whole,
 * and then nothing names it. */
static int block_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct intent_head head;
	uint64_t main = address;
	uint32_t session;
	int rc = read_head(reef, address, INTENT_MAIN_MAGIC, &head);

	if (rc == -REEF_ECORRUPT) {
		rc = read_head(reef, address, INTENT_MORE_MAGIC, &head);
		main = head.blocks[0];
		session = head.session;
		if (!rc)
			rc = read_head(reef, main, INTENT_MAIN_MAGIC, &head);
		if (!rc)
			rc = check_main(space, main);
		/* The first block may have been freed before this one, and be
		 * another's by now. */
		if (!rc && head.session != session)
			return 0;
	}
	if (!rc)
		rc = recover_main(space, main, &head);
	return is_gone(rc) ? 0 : rc;
}

static const struct reef_kind_ops blocks = {
	.name = "transaction",
	.is_live = block_is_live,
};

/* Registered here, as every program with an index has this file. */
__attribute__((constructor)) static void register_kind(void)
{
	reef_kind_register(REEF_BLOCK_TXN, &blocks);
}
