/* reader.c - readers with a name: open, close, drop, list; and those that one
 * client has at a time. The rules are in reader.h; groups are in group.c.
 *
 * A reader's object is called LOG~reader~NAME. No log is made whose name, with
 * the mark behind it, has that mark before its end: so the first mark of an
 * object's name ends the log's. There may be logs from before that was so:
 * what is found under a name is asked for the log that it is of. */
#include "log/reader.h"

#include "base/log.h"

#include <errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 2
#define WINDOW 256u
#define MARK "~reader~"
#define FIXED_FLAGS ((uint32_t)REEF_READER_GROUP)

/* --- names --- */

struct reader_name {
	char text[OBJECT_NAME_MAX + 1];
};

/* The name of the object. reader "": what the names of all begin with. */
static int make_name(const char *log, const char *reader,
		     struct reader_name *out)
{
	int length;

	if (!reader)
		return -EINVAL;
	length = snprintf(out->text, sizeof(out->text), "%s" MARK "%s", log,
			  reader);

	return length < (int)sizeof(out->text) ? 0 : -ENAMETOOLONG;
}

bool log_is_name(const char *name)
{
	const size_t tail = sizeof(MARK) - 2; /* but for its last byte */
	size_t size = name ? strlen(name) : 0;

	return !name ||
	       (!strstr(name, MARK) &&
		(size < tail || memcmp(name + size - tail, MARK, tail)));
}

struct names {
	char **texts;
	size_t count;
	size_t skip; /* bytes of each */
	int rc;
};

static int keep_name(void *context, const char *name, uint64_t value,
		     uint64_t generation)
{
	struct names *names = context;
	char **more = realloc(names->texts, (names->count + 1) * sizeof(*more));

	(void)value;
	(void)generation;
	if (more)
		names->texts = more;
	if (more)
		more[names->count] = strdup(name + names->skip);
	if (!more || !more[names->count])
		return -ENOMEM;
	names->count++;
	return 0;
}

static void free_names(struct names *names)
{
	while (names->count)
		free(names->texts[--names->count]);
	free(names->texts);
}

/* --- the object --- */

/* (R10) */
static int check_body(const struct object *object,
		      const struct reader_body *body)
{
	uint64_t claims =
		body->flags & REEF_READER_GROUP ? 8ull * body->window : 0;

	return body->magic == READER_MAGIC && !(body->flags & ~FIXED_FLAGS) &&
			       body->window >= READER_WINDOW_MIN &&
			       body->window <= READER_WINDOW_MAX &&
			       body->base >= body->start &&
			       object->body_size == sizeof(*body) + claims
		       ? 0
		       : -REEF_ECORRUPT;
}

static int read_body(const struct object *object, struct reader_body *body)
{
	int rc = object->body_size < sizeof(*body)
			 ? -REEF_ECORRUPT
			 : reef_read(object->reef, object->body, body,
				     sizeof(*body));

	return rc ? rc : check_body(object, body);
}

/* --- whose it is --- */

/* 1: the reader of that name belongs to another log, which is there, or lost.
 * 0: to that one, or to one that was dropped. */
static int is_others(const struct object *log, const char *name,
		     const struct reader_body *body)
{
	const struct object_shape shape = {.kind = OBJECT_LOG,
					   .format = LOG_FORMAT};
	struct reader_name other;
	struct object object;
	const char *at;
	int rc;

	if (body->log == log->body)
		return 0;
	for (at = strstr(name, MARK); at; at = strstr(at + 1, MARK)) {
		memcpy(other.text, name, (size_t)(at - name));
		other.text[at - name] = 0;
		rc = object_open(log->space, other.text, &shape,
				 OBJECT_EXISTING, &object);
		if (rc == -ENOENT || rc == -EEXIST)
			continue;
		if (rc)
			return rc == -REEF_ELOST || rc == -REEF_EVERSION ? 1
									 : rc;
		if (object.body == body->log)
			return 1;
	}
	return 0;
}

/* The same of one that was not opened; 0 also: it cannot be, or is none. */
static int is_named_by_others(const struct object *log, const char *name)
{
	const struct object_shape shape = {.kind = OBJECT_READER,
					   .format = FORMAT};
	struct reader_body body;
	struct object object;

	if (object_open(log->space, name, &shape, OBJECT_EXISTING, &object) ||
	    read_body(&object, &body))
		return 0;
	return is_others(log, name, &body);
}

/* The names of all readers of a log. */
static int list_names(const struct object *log, const char *log_name,
		      struct names *names)
{
	struct reader_name prefix = {0}, full;
	int rc = make_name(log_name, "", &prefix);
	size_t i, count;

	*names = (struct names){.skip = strlen(log_name) + sizeof(MARK) - 1};
	/* A name that is too long has no readers. */
	rc = rc ? 0 : reef_name_list(log->space, prefix.text, keep_name, names);
	count = names->count;
	for (i = names->count = 0; i < count; i++) {
		if (make_name(log_name, names->texts[i], &full) ||
		    (strstr(names->texts[i], &MARK[1]) &&
		     is_named_by_others(log, full.text)))
			free(names->texts[i]);
		else
			names->texts[names->count++] = names->texts[i];
	}
	return rc;
}

static int drop_by_name(const struct object *log, const char *log_name,
			const char *reader)
{
	struct reader_name name;
	int rc = make_name(log_name, reader, &name);

	if (!rc && !reader[0])
		rc = -EINVAL;
	if (!rc)
		rc = is_named_by_others(log, name.text);
	if (rc == 1)
		rc = -ENOENT;
	return rc ? rc
		  : object_drop(log->space, name.text, OBJECT_READER, NULL);
}

void log_drop_readers(const struct object *log, const char *name)
{
	struct names names;

	/* Those that stay are of a log that is not there any more, and so are
	 * replaced when they are opened. */
	if (!list_names(log, name, &names))
		for (size_t i = 0; i < names.count; i++)
			(void)drop_by_name(log, name, names.texts[i]);
	free_names(&names);
}

int reef_reader_drop(struct reef_log *log, const char *name)
{
	return drop_by_name(&log->object, log->name, name);
}

int reef_reader_list(struct reef_log *log,
		     int (*each)(void *context, const char *name),
		     void *context)
{
	struct names names;
	int rc = list_names(&log->object, log->name, &names);

	for (size_t i = 0; !rc && i < names.count; i++)
		rc = each(context, names.texts[i]);
	free_names(&names);
	return rc;
}

/* --- opening --- */

/* Where a new reader begins. */
static int find_start(struct reef_log *log, uint32_t flags, uint64_t *start)
{
	return flags & REEF_READER_NEW ? reef_log_tail(log, start)
				       : reef_log_first(log, start);
}

static int open_object(struct reef_log *log, const char *name,
		       const struct reef_reader_options *options,
		       struct reef_reader *reader)
{
	struct reader_body start = {
		.magic = READER_MAGIC,
		.log = log->object.body,
		.redeliver_ns = options->redeliver_ns,
		.window = options->window,
		.flags = options->flags & FIXED_FLAGS,
	};
	struct object_shape shape = {
		.kind = OBJECT_READER,
		.format = FORMAT,
		.body_size = sizeof(start) +
			     (start.flags ? 8ull * options->window : 0),
		.start = &start,
		.start_size = sizeof(start),
	};
	int rc = find_start(log, options->flags, &start.start);

	start.base = start.start;
	if (!rc)
		rc = object_open(log->object.space, name, &shape,
				 options->flags & REEF_READER_EXISTING,
				 &reader->object);
	if (!rc)
		rc = read_body(&reader->object, &reader->fixed);
	if (rc || reader->fixed.log == log->object.body)
		return rc;
	rc = is_others(&log->object, name, &reader->fixed);
	if (rc)
		return rc == 1 ? -EEXIST : rc;
	/* It is of a log of that name that was dropped. */
	rc = object_unbind(&reader->object, name);
	return rc && rc != -ENOENT && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

/* --- one at a time --- */

/* Become the owner: (7). */
static int take_over(struct reef_reader *reader)
{
	struct reef *reef = reader->object.reef;
	enum reef_session_view view = REEF_VIEW_ENDED;
	uint64_t word, mine, now;
	int rc = reef_read(reef, reader_owner_at(&reader->object), &word, 8);

	if (!rc && (uint32_t)word)
		rc = reef_session_check(reef, (uint32_t)word, &view);
	if (rc)
		return rc;
	if (view != REEF_VIEW_ENDED)
		return -EBUSY;
	/* Two handles of a session must not take each other's CAS for theirs.
	 */
	mine = ((word >> 46) + 1) << 46 |
	       (uint64_t)(reader->number & 16383) << 32 | reef_session(reef);
	rc = log_cas(reef, reader_owner_at(&reader->object), word, mine, &now);
	if (!rc && now != mine)
		return -EAGAIN;
	if (!rc)
		rc = reef_read(reef, reader_base_at(&reader->object),
			       &reader->base, 8);
	reader->owner = mine;
	reader->next = reader->base;
	return rc;
}

static void let_go(struct reef_reader *reader)
{
	uint64_t none = ((reader->owner >> 46) + 1) << 46, now;

	(void)log_cas(reader->object.reef, reader_owner_at(&reader->object),
		      reader->owner, none, &now);
}

struct giving {
	int (*each)(void *context, uint64_t position, const void *bytes,
		    size_t size);
	void *context;
	uint32_t count;
	uint64_t end; /* behind the last */
};

static int give(void *context, uint64_t position, const void *bytes,
		size_t size)
{
	struct giving *giving = context;

	giving->count++;
	giving->end = position + 1;
	return giving->each(giving->context, position, bytes, size);
}

static int single_next(struct reef_reader *reader, uint32_t most,
		       uint64_t timeout_ns, struct giving *giving)
{
	uint64_t from, now_ns = reef_now_ns();
	uint64_t until_ns = timeout_ns < UINT64_MAX - now_ns
				    ? now_ns + timeout_ns
				    : UINT64_MAX;
	int rc = 0;

	while (!rc) {
		from = reader->next;
		rc = reef_log_read(reader->log, from, most, give, giving,
				   &reader->next);
		if (giving->count) {
			reader->given = giving->end;
			return rc;
		}
		/* (4) of log_reader.h */
		if (rc == -ERANGE)
			rc = reef_log_first(reader->log, &reader->next);
		if (rc || reader->next != from)
			continue;
		now_ns = reef_now_ns();
		rc = reef_log_wait(reader->log, from,
				   now_ns < until_ns ? until_ns - now_ns : 0);
		/* The log has ended, and not all of it is acknowledged. */
		if (rc == -ESHUTDOWN && reader->given > reader->base)
			rc = -EDEADLK;
	}
	return rc;
}

/* Move base up to a position. */
static int single_done(struct reef_reader *reader, uint64_t position)
{
	uint64_t now;
	int rc;

	if (position <= reader->base)
		return 0;
	rc = log_cas(reader->object.reef, reader_base_at(&reader->object),
		     reader->base, position, &now);
	if (rc)
		return rc;
	if (now != position)
		return -ESTALE;
	reader->base = position;
	return 0;
}

/* --- open, close --- */

static int make_room(struct reef_reader *reader)
{
	uint32_t window = reader->fixed.window;

	reader->is_group = reader->fixed.flags & REEF_READER_GROUP;
	if (!reader->is_group)
		return 0;
	reader->words = calloc(window, 8);
	reader->mine = calloc(window, 8);
	reader->doubts = calloc(window, 8);
	reader->seen = calloc(window, 8);
	reader->since_ns = calloc(window, 8);
	reader->is_over = calloc(window, sizeof(bool));
	return reader->words && reader->mine && reader->doubts &&
			       reader->seen && reader->since_ns &&
			       reader->is_over
		       ? 0
		       : -ENOMEM;
}

static void free_reader(struct reef_reader *reader)
{
	free(reader->words);
	free(reader->mine);
	free(reader->doubts);
	free(reader->seen);
	free(reader->since_ns);
	free(reader->is_over);
	free(reader->entries);
	free(reader->bytes);
	free(reader);
}

/* -EAGAIN: something changed meanwhile; once more. */
static int try_open(struct reef_log *log, const char *name,
		    const struct reef_reader_options *options,
		    struct reef_reader *reader)
{
	uint64_t number;
	int rc = open_object(log, name, options, reader);

	if (rc)
		return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	if ((reader->fixed.flags ^ options->flags) & REEF_READER_GROUP)
		return -EEXIST;
	rc = reef_faa(reader->object.reef,
		      reader->object.body +
			      offsetof(struct reader_body, members),
		      1, &number);
	if (rc)
		return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	reader->number = (uint32_t)number;
	return reader->fixed.flags & REEF_READER_GROUP ? 0 : take_over(reader);
}

int reef_reader_open(struct reef_log *log, const char *name,
		     const struct reef_reader_options *given,
		     struct reef_reader **out)
{
	struct reef_reader_options options = {0};
	struct reader_name full;
	struct reef_reader *reader;
	int rc = make_name(log->name, name, &full), attempt;

	if (given)
		options = *given;
	if (!options.window)
		options.window = WINDOW;
	if (!name || !name[0] || options.window < READER_WINDOW_MIN ||
	    options.window > READER_WINDOW_MAX ||
	    options.flags & ~(REEF_READER_EXISTING | REEF_READER_GROUP |
			      REEF_READER_NEW))
		rc = -EINVAL;
	reader = rc ? NULL : calloc(1, sizeof(*reader));
	if (!reader)
		return rc ? rc : -ENOMEM;
	reader->log = log;
	rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = try_open(log, full.text, &options, reader);
	if (!rc) {
		rc = make_room(reader);
		if (rc && !reader->is_group)
			let_go(reader);
	}
	if (rc) {
		free_reader(reader);
		return log_told(rc);
	}
	*out = reader;
	return 0;
}

void reef_reader_close(struct reef_reader *reader)
{
	if (!reader)
		return;
	if (reader->is_group)
		group_give_back(reader);
	else
		let_go(reader);
	free_reader(reader);
}

/* --- next, done --- */

int reef_reader_next(struct reef_reader *reader, uint32_t most,
		     uint64_t timeout_ns,
		     int (*each)(void *context, uint64_t position,
				 const void *bytes, size_t size),
		     void *context)
{
	struct giving giving = {.each = each, .context = context};

	if (!most)
		return -EINVAL;
	if (most > READER_MOST)
		most = READER_MOST;
	return reader->is_group
		       ? group_next(reader, most, timeout_ns, each, context)
		       : single_next(reader, most, timeout_ns, &giving);
}

int reef_reader_done(struct reef_reader *reader, uint64_t position)
{
	if (reader->is_group)
		return group_done(reader, position);
	if (position >= reader->next || position < reader->base)
		return -EINVAL;
	return single_done(reader, position + 1);
}

int reef_reader_done_all(struct reef_reader *reader)
{
	return reader->is_group ? group_done_all(reader)
				: single_done(reader, reader->next);
}

/* --- stats --- */

/* Count what is claimed of a group; reader->words were read. */
static void count_claims(const struct reef_reader *reader,
			 struct reef_reader_stats *stats)
{
	uint64_t position, end = stats->next + reader->fixed.window;

	for (position = stats->next; position < end; position++) {
		uint64_t word = reader->words[reader_slot(reader, position)];
		uint32_t session = (uint32_t)word;

		if (claim_behind(reader, position, word) ||
		    claim_state(word) != CLAIM_TAKEN)
			continue;
		stats->taken++;
		/* Members take entries in turn, so this is about right. */
		stats->holders += session != stats->session;
		stats->session = session;
	}
}

static int read_stats(struct reef_reader *reader,
		      struct reef_reader_stats *stats)
{
	const struct reader_body *body = &reader->fixed;
	int rc = 0;

	*stats = (struct reef_reader_stats){
		.options =
			{
				.flags = body->flags,
				.window = body->window,
				.redeliver_ns = body->redeliver_ns,
			},
		.next = body->base,
	};
	if (reader->is_group)
		rc = group_look(reader);
	if (!rc && reader->is_group) {
		stats->next = group_base(reader);
		count_claims(reader, stats);
	} else {
		stats->session = (uint32_t)body->owner;
		stats->holders = stats->session != 0;
	}
	return rc;
}

int reef_reader_stats(struct reef_log *log, const char *name,
		      struct reef_reader_stats *out)
{
	const struct object_shape shape = {.kind = OBJECT_READER,
					   .format = FORMAT};
	struct reef_reader *reader = calloc(1, sizeof(*reader));
	struct reef_reader_stats stats;
	struct reader_name full;
	uint64_t tail = 0;
	int rc = reader ? make_name(log->name, name, &full) : -ENOMEM;

	if (!rc)
		rc = object_open(log->object.space, full.text, &shape,
				 OBJECT_EXISTING, &reader->object);
	if (!rc)
		rc = read_body(&reader->object, &reader->fixed);
	if (!rc && reader->fixed.log != log->object.body)
		rc = -ENOENT;
	if (!rc)
		rc = make_room(reader);
	if (!rc)
		rc = read_stats(reader, &stats);
	if (!rc)
		rc = reef_log_tail(log, &tail);
	if (!rc) {
		stats.behind = tail > stats.next ? tail - stats.next : 0;
		*out = stats;
	}
	if (reader)
		free_reader(reader);
	return log_told(rc);
}
