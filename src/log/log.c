/* log.c - open a log, close it, drop it.
 *
 *   (no name) --object_open()--> tail word 0 --log_renew()--> OPEN --> SEALED
 *                                                                       |
 *             unbound <--finish_drop()-- DROPPED <------begin_drop()----+
 *
 * (1) A log is sealed before it is dropped, so nothing is acknowledged that is
 *     gone. Its name is unbound when its memory is free. Whoever opens or drops
 *     one that is DROPPED does that first, so a dropper may die anywhere.
 * (2) Opening makes no segment and no tail: the first append does. */
#include "log/shard.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CELL 240u
#define SEGMENT 4096u
#define SEGMENTS 1024u
#define HOLE_NS UINT64_C(1000000)
#define CUT_NS UINT64_C(100000)
#define FIXED_FLAGS                                                            \
	((uint32_t)(REEF_LOG_SINGLE | REEF_LOG_SHARDED | REEF_LOG_EARLY))
#define WINDOW_MAX 1024u

enum limit { ENTRY_MAX, CELL_SIZE, SEGMENT_SIZE, SEGMENTS_MAX, FLAGS };

/* The kinds are registered in this file, which every program with logs has: a
 * linker leaves out a file of a library that nothing refers to. */
__attribute__((constructor)) static void register_kinds(void)
{
	log_kinds_register();
}

static void set_defaults(struct reef_log_options *options)
{
	if (!options->entry_max)
		options->entry_max = LOG_ENTRY_MAX;
	if (!options->cell)
		options->cell = CELL;
	if (!options->segment)
		options->segment = SEGMENT;
	if (!options->segments)
		options->segments = SEGMENTS;
	if (!options->hole_ns)
		options->hole_ns =
			options->flags & REEF_LOG_SHARDED ? CUT_NS : HOLE_NS;
}

/* True if the flags that are fixed go together. */
static bool are_flags(uint32_t flags)
{
	return flags & REEF_LOG_SHARDED ? !(flags & REEF_LOG_SINGLE)
					: !(flags & REEF_LOG_EARLY);
}

/* How large the body is: with one directory; or two, the floor, a count of
 * handles, and a claim. */
static uint64_t body_size(uint32_t flags, uint32_t segments)
{
	return sizeof(struct log_body) + (flags & REEF_LOG_SHARDED
						  ? UINT64_C(16) * segments + 24
						  : UINT64_C(8) * segments);
}

/* True if what options say, or another client wrote, is within the limits. */
static bool are_limits(const struct reef_log_options *options)
{
	return options->entry_max && options->entry_max <= LOG_ENTRY_MAX &&
	       options->cell && options->cell <= LOG_CELL_MAX &&
	       options->segment >= LOG_SEGMENT_MIN &&
	       options->segment <= LOG_SEGMENT_MAX &&
	       options->segments >= LOG_SEGMENTS_MIN &&
	       options->segments <= LOG_SEGMENTS_MAX &&
	       options->hole_ns <= LOG_BOUND_MAX;
}

/* --- the object --- */

static struct log_body body_of(const struct reef_log_options *options)
{
	return (struct log_body){
		.keep_entries = options->keep_entries,
		.keep_bytes = options->keep_bytes,
		.hole_ns = options->hole_ns,
		.magic = LOG_BODY_MAGIC,
		.segment = options->segment,
		.segments = options->segments,
	};
}

static struct object_shape shape_of(const struct reef_log_options *options,
				    const struct log_body *body)
{
	return (struct object_shape){
		.kind = OBJECT_LOG,
		.format = LOG_FORMAT,
		.limits =
			{
				[ENTRY_MAX] = options->entry_max,
				[CELL_SIZE] = options->cell,
				[SEGMENT_SIZE] = options->segment,
				[SEGMENTS_MAX] = options->segments,
				[FLAGS] = options->flags & FIXED_FLAGS,
			},
		.body_size = body_size(options->flags, options->segments),
		.start = body,
		.start_size = sizeof(*body),
	};
}

/* What the log was made with, from the object and its body: (R10). */
static int take_options(struct reef_log *log, const struct log_body *body)
{
	const uint32_t *limits = log->object.limits;

	log->options = (struct reef_log_options){
		.flags = limits[FLAGS] & FIXED_FLAGS,
		.entry_max = limits[ENTRY_MAX],
		.cell = limits[CELL_SIZE],
		.segment = limits[SEGMENT_SIZE],
		.segments = limits[SEGMENTS_MAX],
		.keep_entries = body->keep_entries,
		.keep_bytes = body->keep_bytes,
		.hole_ns = body->hole_ns,
	};
	log->stride = log_is_sharded(log) ? 8 + (log->options.cell + 7) / 8 * 8
					  : log->options.cell;
	return body->magic == LOG_BODY_MAGIC && are_limits(&log->options) &&
			       are_flags(log->options.flags) &&
			       body->segment == log->options.segment &&
			       body->segments == log->options.segments &&
			       log->object.body_size ==
				       body_size(log->options.flags,
						 body->segments)
		       ? 0
		       : -REEF_ECORRUPT;
}

/* Open the object, or make it; `log` is a fresh one. *state: of its tail. */
static int open_object(struct reef_space *space, const char *name,
		       const struct reef_log_options *options,
		       struct reef_log *log, enum log_state *state)
{
	const struct log_body start = body_of(options);
	const struct object_shape shape = shape_of(options, &start);
	uint32_t flags = options->flags & REEF_LOG_EXISTING;
	struct log_body body;
	int rc;

	static_assert(REEF_LOG_EXISTING == OBJECT_EXISTING, "one flag");
	/* A log that has such a name from before can be opened. */
	if (!log_is_name(name))
		flags = OBJECT_EXISTING;
	rc = object_open(space, name, &shape, flags, &log->object);
	if (rc == -ENOENT && !(options->flags & REEF_LOG_EXISTING))
		rc = flags ? -EINVAL : rc;
	if (rc == -REEF_ELOST && options->flags & REEF_LOG_RENEW) {
		rc = object_renew(space, name, &shape, &log->object);
		/* Another has dropped it meanwhile. */
		if (rc == -ENOENT)
			rc = -EAGAIN;
	}
	if (rc)
		return rc;
	log->reef = log->object.reef;
	rc = reef_read(log->reef, log->object.body, &body, sizeof(body));
	if (!rc)
		rc = take_options(log, &body);
	if (!rc)
		*state = log_tail_state(body.tail);
	return rc;
}

/* --- room --- */

static void free_room(struct reef_log *log)
{
	cuts_destroy(log->sharded);
	log->sharded = NULL;
	free(log->words);
	free(log->cells);
	log->words = NULL;
	log->cells = NULL;
}

static int make_room(struct reef_log *log)
{
	uint32_t most = LOG_WINDOW_BYTES / log->stride;

	most = most < WINDOW_MAX ? most : WINDOW_MAX;
	log->window = most < log->options.segment ? most : log->options.segment;
	log->words = calloc(log->window, 8);
	log->cells = malloc((size_t)log->window * log->stride);
	if (!log->words || !log->cells)
		return -ENOMEM;
	return log_is_sharded(log) ? cuts_create(log) : 0;
}

/* --- the end of a log --- */

/* Free what a DROPPED log has, and unbind its name. */
static int finish_drop(struct reef_log *log, const char *name)
{
	struct log_map map;
	int rc;

	reef_enter(log->reef);
	rc = log_map_read(log, &map);
	if (!rc) {
		rc = log_unlink(log, &map, UINT64_MAX);
		free(map.slots);
	}
	if (!rc && log_is_sharded(log))
		rc = sharded_drop(log);
	reef_leave(log->reef);
	if (rc)
		return rc;
	log_drop_readers(&log->object, name);
	rc = object_unbind(&log->object, name);
	return rc == -ENOENT ? 0 : rc;
}

/* Mark a log as DROPPED, and free its tail's block, if it has one still. */
static int mark_dropped(struct reef_log *log)
{
	uint64_t word, now, at;
	int rc = reef_read(log->reef, log_tail_word_at(&log->object), &word, 8);

	while (!rc && log_tail_state(word) != LOG_DROPPED) {
		uint64_t to = log_tail_make(0, log_tail_generation(word),
					    LOG_DROPPED);

		rc = reef_cas(log->reef, log_tail_word_at(&log->object), word,
			      to, &now);
		/* After a doubt another may free it. */
		if (rc == -REEF_EINDOUBT)
			rc = reef_read(log->reef,
				       log_tail_word_at(&log->object), &now, 8);
		else if (!rc && now == word && word & LOG_BLOCK_MASK &&
			 !reef_long_address(log->object.space,
					    word & LOG_BLOCK_MASK, &at))
			(void)reef_free(log->object.space, at, REEF_FREE_LATER);
		if (!rc && now == word)
			break;
		word = now;
	}
	return rc;
}

static int begin_drop(struct reef_log *log)
{
	int rc;

	log_forget(log);
	rc = reef_log_seal(log);
	/* -ENOSPC: there is no place for the seal in the directory: no segment
	 * can be made either. -ENOENT: another drops it. What is damaged or
	 * lost in parts can be dropped, too. */
	if (rc && rc != -ENOSPC && rc != -ENOENT && rc != -REEF_ECORRUPT &&
	    rc != -EBUSY)
		return rc;
	reef_enter(log->reef);
	rc = mark_dropped(log);
	reef_leave(log->reef);
	return rc;
}

static int try_drop(struct reef_space *space, const char *name)
{
	struct reef_log_options options = {.flags = REEF_LOG_EXISTING};
	struct reef_log log = {.lacking = LOG_NOWHERE};
	enum log_state state = LOG_OPEN;
	int rc;

	set_defaults(&options);
	rc = open_object(space, name, &options, &log, &state);
	/* A lost log can only be forgotten. One whose body is damaged leaves
	 * its memory to nobody: only the name goes. */
	if (rc == -REEF_ELOST)
		return object_forget(space, name, 0, NULL);
	if (rc == -REEF_ECORRUPT)
		return object_unbind(&log.object, name);
	if (!rc && log_is_sharded(&log))
		rc = make_room(&log);
	if (!rc && state != LOG_DROPPED)
		rc = begin_drop(&log);
	if (!rc)
		rc = finish_drop(&log, name);
	free_room(&log);
	return rc;
}

int reef_log_drop(struct reef_space *space, const char *name)
{
	int rc = try_drop(space, name), attempt = 0;

	/* -EAGAIN: another dropped a lost one, and made a new one. */
	if (rc != -REEF_EINDOUBT && rc != -EAGAIN)
		return rc;
	while ((rc == -REEF_EINDOUBT || rc == -EAGAIN) &&
	       attempt++ < LOG_ATTEMPTS)
		rc = try_drop(space, name);
	/* The unbind that was in doubt happened. */
	return rc == -ENOENT ? 0 : log_told(rc);
}

/* --- open, close --- */

/* -EAGAIN: something was done that this needs; once more. */
static int try_open(struct reef_space *space, const char *name,
		    const struct reef_log_options *options,
		    struct reef_log *log)
{
	enum log_state state = LOG_OPEN;
	int rc = open_object(space, name, options, log, &state);

	if (rc || state != LOG_DROPPED)
		return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	if (log_is_sharded(log) && !log->sharded)
		rc = make_room(log);
	if (!rc)
		rc = finish_drop(log, name);
	free_room(log);
	return rc && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

int reef_log_open(struct reef_space *space, const char *name,
		  const struct reef_log_options *given, struct reef_log **out)
{
	struct reef_log_options options = {0};
	struct reef_log *log;
	int rc = -EAGAIN, attempt;

	if (given)
		options = *given;
	set_defaults(&options);
	if (!are_limits(&options) || !are_flags(options.flags) ||
	    options.flags & ~(REEF_LOG_EXISTING | REEF_LOG_RENEW | FIXED_FLAGS))
		return -EINVAL;
	log = calloc(1, sizeof(*log));
	if (!log)
		return -ENOMEM;
	log->lacking = LOG_NOWHERE;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = try_open(space, name, &options, log);
	if (!rc) {
		log->name = strdup(name);
		rc = log->name ? make_room(log) : -ENOMEM;
	}
	if (rc) {
		reef_log_close(log);
		return log_told(rc);
	}
	*out = log;
	return 0;
}

/* SHARDED: what was appended early comes in, and another may have the shard. */
static void leave_shard(struct reef_log *log)
{
	if (!log->sharded->own.at || log_enter(log, true))
		return;
	if (log_is_early(log))
		(void)cut_now(log, NULL);
	shard_let_go(log);
	log_leave(log);
}

void reef_log_close(struct reef_log *log)
{
	if (!log)
		return;
	if (log->sharded && log->sharded->words)
		leave_shard(log);
	free_room(log);
	log_row_free(log->row);
	free(log->name);
	free(log);
}

/* --- stats --- */

static int read_stats(struct reef_log *log, struct reef_log_stats *out)
{
	struct log_tail tail = {0};
	struct log_map map;
	int rc = log_map_read(log, &map);

	if (rc)
		return rc;
	free(map.slots);
	if (log->sharded)
		rc = sharded_count(log, &map.count);
	if (rc)
		return rc;
	if (log->tail_at && !log_is_single(log) && !log->sharded)
		rc = log_tail_read(log, &tail);
	if (rc && rc != -EACCES && rc != -ESHUTDOWN && rc != -EAGAIN &&
	    !log_lacks_room(rc))
		return rc;
	*out = (struct reef_log_stats){
		.options = log->options,
		.first = log->first,
		.tail = map.is_empty ? 0
				     : (map.last + 1) * log->options.segment,
		.segments = (uint32_t)map.count,
		.generation = log_generation(log),
		.sealed = log_tail_state(log->tail_word) == LOG_SEALED,
		.hole_ns = tail.bound,
	};
	return 0;
}

int reef_log_stats(struct reef_log *log, struct reef_log_stats *out)
{
	struct reef_log_stats stats;
	int rc;

	log_forget(log);
	rc = log_enter(log, false);
	if (rc)
		return rc;
	rc = read_stats(log, &stats);
	log_leave(log);
	if (!rc)
		rc = reef_log_tail(log, &stats.tail);
	if (log_lacks_room(rc))
		rc = 0;
	if (!rc)
		*out = stats;
	return log_told(rc);
}
