/* window.c - see window.h. */
#include "pool/client/handle/window.h"

#include "base/mutant.h"

#include <string.h>

#define PIECE_MIN 4096u

/* --- building --- */

static bool has_right(uint8_t rights, const struct reef_access *access)
{
	uint8_t need = access->kind == REEF_READ || access->kind == REEF_FLUSH
			       ? REEF_RIGHT_READ
			       : REEF_RIGHT_WRITE;

	return (rights & need) != 0;
}

/* An entry that does not give the right: it may be of memory with copies, where
 * READs alone are done here. */
static __attribute__((noinline)) int
resolve_copied(struct client_call *call, const struct reef_access *access,
	       const struct client_entry *entry)
{
	if (!entry->twin || !has_right(entry->copied_rights, access))
		return -EACCES;
	if (call->is_part || access->flags & REEF_SINGLE)
		return 0;
	if (access->kind != REEF_READ)
		return -EXDEV;
	call->has_read_copied = true;
	return 0;
}

static uint64_t access_length(const struct reef_access *access)
{
	return access->kind == REEF_CAS || access->kind == REEF_FAA
		       ? 8
		       : access->length;
}

int call_resolve_access(struct client_call *call,
			const struct reef_access *access,
			struct client_entry **entry)
{
	uint64_t offset = (uint32_t)access->address;
	int rc;

	rc = client_entry_find(call->reef, call_extent_of(access), entry);
	if (rc)
		return rc;
	if (offset > (*entry)->size ||
	    access_length(access) > (*entry)->size - offset)
		return -EFAULT;
	if (unlikely(call->is_part && call->version != call->reef->seen))
		return -ESTALE;
	return likely(has_right((*entry)->rights, access))
		       ? 0
		       : resolve_copied(call, access, *entry);
}

/* As which fabric operations of a link are counted. */
static uint8_t counted_fabric(const struct reef_link *link)
{
	const char *kind = reef_fabric_kind(reef_link_fabric(link));

	switch (kind[0]) {
	case 't':
		return REEF_COUNTED_TCP;
	case 'v':
		return REEF_COUNTED_VERBS;
	default:
		return kind[1] == 'h' ? REEF_COUNTED_SHM : REEF_COUNTED_SIM;
	}
}

int call_part_of(struct client_call *call, const struct client_entry *entry)
{
	uint32_t i;

	for (i = 0; i < call->parts_count; i++)
		if (call->parts[i].batch.link == entry->link)
			return (int)i;
	if (i == call->parts_max || (call->serial && i))
		return -1;
	memset(&call->parts[i], 0, sizeof(call->parts[i]));
	call->parts[i].call = call;
	call->parts[i].queue = entry->queue;
	call->parts[i].batch.link = entry->link;
	call->parts[i].node = entry->node;
	call->parts[i].fabric = counted_fabric(entry->link);
	call->parts[i].link_number = entry->link_number;
	call->parts_count++;
	return (int)i;
}

static struct reef_op *add_op(struct client_call *call, uint32_t access,
			      int part, bool header,
			      const struct client_entry *entry)
{
	uint32_t index = call->ops_count++;

	call->pieces[index] = (struct piece){
		.access = access,
		.part = (uint8_t)part,
		.header = header,
		.number = entry->number,
	};
	return &call->built[index];
}

static void add_header(struct client_call *call, uint32_t index, int part,
		       const struct client_entry *entry)
{
	uint32_t offset = (uint32_t)call->accesses[index].address;

	if (call->has_header && !index && offset >= 8)
		*add_op(call, index, part, true, entry) = (struct reef_op){
			.kind = REEF_WRITE,
			.length = 8,
			.remote = entry->remote,
			.offset = offset - 8,
			.local = &call->header.word,
		};
}

bool call_add_access(struct client_call *call, uint32_t index,
		     const struct client_entry *entry, int part)
{
	const struct reef_access *access = &call->accesses[index];
	uint32_t length_max =
		reef_fabric_limits(reef_link_fabric(entry->link))->length_max;
	uint64_t inner = index == call->from ? call->inner : 0;
	uint64_t length = access_length(access), piece;

	if (length_max > call->piece_max)
		length_max = call->piece_max;
	if (!inner)
		add_header(call, index, part, entry);
	do {
		if (call->ops_count >= call->window_max) {
			call->inner_to = inner;
			return false;
		}
		piece = length - inner;
		if (access->kind != REEF_FLUSH && piece > length_max)
			piece = length_max;
		*add_op(call, index, part, false, entry) = (struct reef_op){
			.kind = access->kind,
			.flags = inner ? 0 : access->flags & REEF_ORDERED,
			.length = access->kind == REEF_CAS ||
						  access->kind == REEF_FAA
					  ? 0
					  : (uint32_t)piece,
			.remote = entry->remote,
			.offset = (uint32_t)access->address + inner,
			.local = access->local
					 ? (uint8_t *)access->local + inner
					 : NULL,
			.operand = access->operand,
			.compare = access->compare,
		};
		inner += piece;
	} while (inner < length);
	return true;
}

void call_arrange_ops(struct client_call *call)
{
	uint32_t starts[PARTS] = {0}, i, at = 0;
	struct part *part;

	for (i = 0; i < call->ops_count; i++)
		call->parts[call->pieces[i].part].batch.count++;
	for (i = 0; i < call->parts_count; i++) {
		part = &call->parts[i];
		part->first = starts[i] = at;
		part->batch.ops = &call->ops[at];
		part->batch.user = part;
		at += part->batch.count;
	}
	for (i = 0; i < call->ops_count; i++) {
		at = starts[call->pieces[i].part]++;
		call->ops[at] = call->built[i];
		call->piece_of[at] = (uint16_t)i;
	}
}

static void note_part_done(struct reef_batch *batch)
{
	struct part *part = batch->user;

	part->call->under_way--;
}

void call_post_part(struct client_call *call, struct part *part)
{
	int rc;

	part->batch.on_done = note_part_done;
	rc = reef_post(part->queue, &part->batch);
	part->posted = rc >= 0;
	if (rc == 0)
		call->under_way++;
	else if (rc < 0)
		part->batch.status = rc;
}

/* --- collecting results --- */

static bool is_repeatable(const struct client_call *call, uint32_t op)
{
	const struct piece *piece = &call->pieces[call->piece_of[op]];

	return piece->header || call->ops[op].kind == REEF_READ ||
	       call->ops[op].kind == REEF_FLUSH || REEF_MUTATED(CLIENT_REPEAT);
}

/* Note that the keeper has to be asked about a part, because of `why`; accesses
 * of the part that are PENDING stay so. */
static void note_to_ask(struct part *part, uint32_t op, int why)
{
	part->why = why;
	part->why_op = op;
}

/* Handle a part that is in doubt from op `at` on: accesses that can be repeated
 * stay PENDING, the others are reported when the keeper has settled them. */
static void mark_in_doubt(struct client_call *call, struct part *part,
			  uint32_t at)
{
	uint32_t end_op = part->first + part->batch.count, op;
	bool doubt = false;

	for (op = at; op < end_op; op++) {
		if (call->ops[op].status != -REEF_EINDOUBT)
			continue;
		part->is_lost |= call->ops[op].kind != REEF_READ &&
				 call->ops[op].kind != REEF_FLUSH;
		doubt |= !is_repeatable(call, op);
	}
	if (!doubt) { /* every access in doubt is repeated */
		note_to_ask(part, at, -REEF_EINDOUBT);
		return;
	}
	client_count(&call->reef->member.counters.in_doubt, 1);
	call->failed = true;
	for (op = at; op < end_op; op++)
		if (call->ops[op].status == -REEF_EINDOUBT &&
		    !is_repeatable(call, op))
			call_access_of(call, op)->status = -REEF_EINDOUBT;
		else if (call_access_of(call, op)->status == PENDING)
			call_access_of(call, op)->status = -REEF_ENOTDONE;
}

static void fail_part(struct client_call *call, const struct part *part,
		      uint32_t at, int rc)
{
	uint32_t end_op = part->first + part->batch.count, op;

	call->failed = true;
	call_access_of(call, at)->status = rc == -ERANGE ? -EFAULT : rc;
	for (op = at + 1; op < end_op; op++)
		if (call_access_of(call, op)->status == PENDING)
			call_access_of(call, op)->status = -REEF_ENOTDONE;
}

/* Make windows smaller, then pieces, for a peer that refused a batch as too
 * large. False: they cannot be made any smaller. */
static bool lower_limits(struct client_call *call)
{
	if (call->window_max > 2)
		call->window_max /= 2;
	else if (call->piece_max > (64u << 20))
		call->piece_max = 8u << 20;
	else if (call->piece_max > PIECE_MIN)
		call->piece_max /= 2;
	else
		return false;
	return true;
}

static void handle_failure(struct client_call *call, struct part *part,
			   uint32_t at, int rc)
{
	switch (rc) {
	case -EAGAIN:
		break; /* the fabric had no room: it is posted again */
	case -EMSGSIZE:
		if (!lower_limits(call))
			fail_part(call, part, at, rc);
		break;
	case -REEF_EKEY:
	case -REEF_ENOLINK:
		note_to_ask(part, at, rc);
		break;
	case -REEF_EINDOUBT:
		mark_in_doubt(call, part, at);
		break;
	case -REEF_EFENCED:
		client_session_end(call->reef->client, rc);
		/* fall through */
	default:
		fail_part(call, part, at, rc);
	}
}

static bool is_last_of_access(const struct client_call *call, uint32_t op)
{
	uint32_t piece = call->piece_of[op];

	if (call->pieces[piece].header)
		return false;
	/* Pieces of one access are neighbours; the last one may come with
	 * another window. */
	if (piece + 1 < call->ops_count &&
	    call->pieces[piece + 1].access == call->pieces[piece].access)
		return false;
	return call->pieces[piece].access != call->to || !call->inner_to;
}

/* Count an operation that was done. */
static void count_op(struct client_call *call, const struct part *part,
		     const struct reef_op *op)
{
	struct reef_counters *counters = &call->reef->member.counters;

	client_count(&counters->operations[part->fabric][op->kind - 1], 1);
	client_count(&counters->bytes[op->kind - 1], op->length);
}

void call_collect_part(struct client_call *call, struct part *part)
{
	uint32_t op, end_op = part->first + part->batch.count;

	if (!part->posted) {
		handle_failure(call, part, part->first, part->batch.status);
		return;
	}
	for (op = part->first; op < end_op; op++) {
		if (call->ops[op].status)
			break;
		count_op(call, part, &call->ops[op]);
		if (!is_last_of_access(call, op))
			continue;
		call_access_of(call, op)->result = call->ops[op].result;
		call_access_of(call, op)->status = 0;
	}
	if (op < end_op)
		handle_failure(call, part, op, call->ops[op].status);
}
