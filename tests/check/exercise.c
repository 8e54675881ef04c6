/* exercise.c - random calls on files, and the model beside them. */
#include "check/exercise.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SETTLE_ATTEMPTS 100u

static const char *const kind_names[EXERCISE_KINDS] = {
	"none",	  "read",   "write",  "append", "truncate",	 "punch",
	"create", "rename", "remove", "mkdir",	"remove folder",
};

void exercise_folder_path(uint32_t folder, char path[32])
{
	snprintf(path, 32, "folder%u", folder);
}

void exercise_path(uint32_t name, char path[32])
{
	uint32_t folder = name / EXERCISE_LEAVES;

	if (folder)
		snprintf(path, 32, "folder%u/file%u", folder,
			 name % EXERCISE_LEAVES);
	else
		snprintf(path, 32, "file%u", name % EXERCISE_LEAVES);
}

/* --- chance --- */

static uint64_t below(struct exercise *exercise, uint64_t bound)
{
	exercise->random ^= exercise->random << 13;
	exercise->random ^= exercise->random >> 7;
	exercise->random ^= exercise->random << 17;
	return (exercise->random >> 11) % bound;
}

/* The bytes that an op writes, from `from` of them on: of no other op, and
 * never 0. */
static void fill_part(uint8_t *bytes, const struct exercise_op *op,
		      uint64_t from, uint64_t size)
{
	uint64_t word;

	for (uint64_t i = from; i < from + size; i++) {
		word = (op->number << 20 | i >> 3) *
		       UINT64_C(0x9e3779b97f4a7c15);
		bytes[i - from] = (uint8_t)(word >> (8 * (i & 7))) | 1;
	}
}

static void fill(uint8_t *bytes, const struct exercise_op *op)
{
	fill_part(bytes, op, 0, op->size);
}

/* --- telling --- */

__attribute__((format(printf, 2, 3))) static int
wrong(struct exercise *exercise, const char *format, ...)
{
	size_t size = sizeof(exercise->error), done;
	const struct exercise_op *op;
	va_list arguments;

	done = (size_t)snprintf(exercise->error, size, "seed %llu, call %llu: ",
				(unsigned long long)exercise->seed,
				(unsigned long long)exercise->number);
	va_start(arguments, format);
	done += (size_t)vsnprintf(exercise->error + done, size - done, format,
				  arguments);
	va_end(arguments);
	for (uint64_t i = EXERCISE_LOG; i > 0 && done < size; i--) {
		op = &exercise->log[(exercise->number + 1 + EXERCISE_LOG - i) %
				    EXERCISE_LOG];
		if (op->kind)
			done += (size_t)snprintf(
				exercise->error + done, size - done,
				"\n%llu %s %u %u %llu %llu",
				(unsigned long long)op->number,
				kind_names[op->kind], op->name, op->to,
				(unsigned long long)op->at,
				(unsigned long long)op->size);
	}
	return -EXDEV;
}

/* --- comparing --- */

/* Tell where bytes that were read differ from what is wanted. */
static int compare(struct exercise *exercise, uint32_t name, uint64_t at,
		   const uint8_t *wanted, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		if (exercise->found[i] != wanted[i])
			return wrong(exercise,
				     "file %u at %llu: found %02x instead of "
				     "%02x",
				     name, (unsigned long long)(at + i),
				     exercise->found[i], wanted[i]);
	return 0;
}

static int check_read(struct exercise *exercise,
		      const struct exercise_face *face, void *context,
		      const struct exercise_op *op)
{
	const struct exercise_file *file = &exercise->files[op->name];
	uint64_t left = op->at < file->size ? file->size - op->at : 0;
	ssize_t rc;

	if (left > op->size)
		left = op->size;
	memset(exercise->found, 0xee, op->size);
	rc = face->read(context, op->name, file->id, exercise->found, op->size,
			op->at);
	if (rc < 0)
		return (int)rc;
	if ((uint64_t)rc != left)
		return wrong(exercise, "read %lld bytes of %llu", (long long)rc,
			     (unsigned long long)left);
	return compare(exercise, op->name, op->at, file->bytes + op->at, left);
}

int exercise_check(struct exercise *exercise, const struct exercise_face *face,
		   void *context)
{
	struct exercise_op op = {.size = EXERCISE_SIZE};
	struct exercise_file *file;
	uint64_t size;
	int rc;

	for (op.name = 0; op.name < EXERCISE_NAMES; op.name++) {
		file = &exercise->files[op.name];
		if (!face->make_folder && op.name >= EXERCISE_LEAVES)
			break;
		rc = face->size(context, op.name, file->id, &size);
		if (rc == -ENOENT && !file->id)
			continue;
		if (rc && rc != -ENOENT)
			return rc;
		if (rc || !file->id || size != file->size)
			return wrong(exercise,
				     "file %u: size %lld (%d) instead of %lld",
				     op.name, rc ? -1 : (long long)size, rc,
				     file->id ? (long long)file->size : -1);
		rc = check_read(exercise, face, context, &op);
		if (rc)
			return rc;
	}
	return 0;
}

/* --- the model --- */

static bool has_folder(const struct exercise *exercise, uint32_t name)
{
	return exercise->folders[name / EXERCISE_LEAVES];
}

static bool is_folder_empty(const struct exercise *exercise, uint32_t folder)
{
	for (uint32_t i = 0; i < EXERCISE_LEAVES; i++)
		if (exercise->files[folder * EXERCISE_LEAVES + i].id)
			return false;
	return true;
}

/* What a call must return that is not in doubt; of a count of bytes 0. */
static int expect(const struct exercise *exercise, const struct exercise_op *op)
{
	bool is_there = exercise->files[op->name].id;

	switch (op->kind) {
	case EXERCISE_CREATE:
		return !has_folder(exercise, op->name) ? -ENOENT
		       : is_there		       ? -EEXIST
						       : 0;
	case EXERCISE_RENAME:
		return is_there && has_folder(exercise, op->to) ? 0 : -ENOENT;
	case EXERCISE_MAKE_FOLDER:
		return exercise->folders[op->to] ? -EEXIST : 0;
	case EXERCISE_REMOVE_FOLDER:
		return !exercise->folders[op->to]	   ? -ENOENT
		       : is_folder_empty(exercise, op->to) ? 0
							   : -ENOTEMPTY;
	default:
		return is_there ? 0 : -ENOENT;
	}
}

/* Whoever comes after a death sees the stores of the dead in their order: so
 * the compiler must leave it as it is. */
static void keep_order(void)
{
	atomic_signal_fence(memory_order_seq_cst);
}

static void set_stage(struct exercise *exercise, enum exercise_stage stage)
{
	keep_order();
	exercise->stage = stage;
	keep_order();
}

/* Give a file that size; what is cut off is gone. */
static void resize(struct exercise_file *file, uint64_t size)
{
	if (size < file->size)
		memset(file->bytes + size, 0, file->size - size);
	keep_order();
	file->size = size;
}

static void delete (struct exercise_file *file)
{
	file->id = 0;
	keep_order();
	file->size = 0;
}

/* Do to the model what a call did. Whoever does it again, after a part or all
 * of it, comes to the same. */
static void apply(struct exercise *exercise, const struct exercise_op *op)
{
	struct exercise_file *file = &exercise->files[op->name];

	switch (op->kind) {
	case EXERCISE_WRITE:
	case EXERCISE_APPEND:
		fill(file->bytes + op->at, op);
		if (op->at + op->size > file->size)
			file->size = op->at + op->size;
		break;
	case EXERCISE_TRUNCATE:
		resize(file, op->size);
		break;
	case EXERCISE_PUNCH:
		memset(file->bytes + op->at, 0, op->size);
		break;
	case EXERCISE_CREATE:
		*file = (struct exercise_file){.id = op->number};
		break;
	case EXERCISE_RENAME:
		if (op->to == op->name)
			break;
		if (file->id) /* else that was done before */
			exercise->files[op->to] = *file;
		keep_order();
		delete (file);
		break;
	case EXERCISE_REMOVE:
		delete (file);
		break;
	case EXERCISE_MAKE_FOLDER:
	case EXERCISE_REMOVE_FOLDER:
		exercise->folders[op->to] = op->kind == EXERCISE_MAKE_FOLDER;
		break;
	default:
		break;
	}
}

/* A call is about to be made. */
static void begin(struct exercise *exercise, const struct exercise_op *op)
{
	exercise->op = *op;
	set_stage(exercise, EXERCISE_UNDER_WAY);
}

/* The call under way happened; of an append *op has the place. */
static void complete(struct exercise *exercise, const struct exercise_op *op)
{
	/* One store: who dies before the stage is set leaves a call under way
	 * as it was but for its place, which nobody looks at to settle it. */
	exercise->op.at = op->at;
	set_stage(exercise, EXERCISE_DONE);
	apply(exercise, op);
	set_stage(exercise, EXERCISE_IDLE);
}

/* --- settling --- */

/* Read a whole file. *size UINT64_MAX: there is none. */
static int read_all(struct exercise *exercise, const struct exercise_face *face,
		    void *context, uint32_t name, uint64_t id, uint64_t *size)
{
	ssize_t got;
	int rc = face->size(context, name, id, size);

	memset(exercise->found, 0, sizeof(exercise->found));
	if (rc == -ENOENT) {
		*size = UINT64_MAX;
		return 0;
	}
	if (rc)
		return rc;
	if (*size > EXERCISE_SIZE)
		return wrong(exercise, "file %u has %llu bytes", name,
			     (unsigned long long)*size);
	got = face->read(context, name, id, exercise->found, EXERCISE_SIZE, 0);
	if (got < 0)
		return (int)got;
	if ((uint64_t)got != *size)
		return wrong(exercise, "file %u: read %lld bytes of %llu", name,
			     (long long)got, (unsigned long long)*size);
	return 0;
}

/* Of a write or a punch in doubt: each word that was found is the old or the
 * new, and is the model's now. */
static int adopt_words(struct exercise *exercise, const struct exercise_op *op,
		       uint64_t size)
{
	struct exercise_file *file = &exercise->files[op->name];
	uint8_t new[8], found[8], *old;
	uint64_t first = op->at & ~UINT64_C(7), end = op->at + op->size;
	struct exercise_op part = *op;

	for (uint64_t at = 0; at < EXERCISE_SIZE; at += 8) {
		old = file->bytes + at;
		memcpy(found, exercise->found + at, 8);
		if (!memcmp(found, old, 8))
			continue;
		memcpy(new, old, 8);
		part.at = at < op->at ? op->at : at;
		part.size = (end < at + 8 ? end : at + 8) - part.at;
		if (at < first || at >= end)
			part.size = 0;
		if (op->kind == EXERCISE_PUNCH)
			memset(new + (part.at - at), 0, part.size);
		else
			fill_part(new + (part.at - at), op, part.at - op->at,
				  part.size);
		/* Of a word that the size cuts nothing is behind it. */
		if (at + 8 > size)
			memset(new + (size > at ? size - at : 0), 0,
			       8 - (size > at ? size - at : 0));
		if (memcmp(found, new, 8))
			return wrong(exercise,
				     "file %u at %llu is neither old nor new",
				     op->name, (unsigned long long)at);
		memcpy(old, new, 8);
	}
	file->size = size;
	return 0;
}

static int settle_write(struct exercise *exercise,
			const struct exercise_face *face, void *context)
{
	const struct exercise_op *op = &exercise->op;
	struct exercise_file *file = &exercise->files[op->name];
	uint64_t end = op->at + op->size, size;
	int rc;

	/* What it left behind the end is brought to light. */
	if (op->kind != EXERCISE_PUNCH && !face->device) {
		rc = face->size(context, op->name, file->id, &size);
		if (!rc && size < file->size)
			return wrong(exercise, "file %u is shorter", op->name);
		if (!rc && size < end)
			rc = face->truncate(context, op->name, file->id, end);
		if (rc)
			return rc;
	}
	rc = read_all(exercise, face, context, op->name, file->id, &size);
	if (rc)
		return rc;
	if (op->kind == EXERCISE_PUNCH || end < file->size)
		end = file->size;
	if (size != end)
		return wrong(exercise, "file %u has size %llu", op->name,
			     (unsigned long long)size);
	return adopt_words(exercise, op, size);
}

/* An append whose place is not known: what it may have left is behind the end,
 * and is cut off. */
static int settle_append(struct exercise *exercise,
			 const struct exercise_face *face, void *context)
{
	const struct exercise_op *op = &exercise->op;
	struct exercise_file *file = &exercise->files[op->name];
	uint64_t size;
	int rc = read_all(exercise, face, context, op->name, file->id, &size);

	if (rc)
		return rc;
	if (size == UINT64_MAX || size < file->size)
		return wrong(exercise, "file %u is shorter", op->name);
	rc = compare(exercise, op->name, 0, file->bytes, file->size);
	/* A file becomes longer, so that making it shorter counts. */
	if (!rc)
		rc = face->truncate(context, op->name, file->id, size + 1);
	return rc ? rc
		  : face->truncate(context, op->name, file->id, file->size);
}

static int settle_truncate(struct exercise *exercise,
			   const struct exercise_face *face, void *context)
{
	const struct exercise_op *op = &exercise->op;
	struct exercise_file *file = &exercise->files[op->name];
	uint64_t size;
	int rc = face->size(context, op->name, file->id, &size);

	if (rc)
		return rc;
	if (size == op->size)
		resize(file, size);
	else if (size != file->size)
		return wrong(exercise, "file %u has size %llu", op->name,
			     (unsigned long long)size);
	return 0;
}

/* What a name has now, whatever file that is. *is_that: the file that the model
 * has for `as`. */
static int looks_like(struct exercise *exercise,
		      const struct exercise_face *face, void *context,
		      uint32_t name, uint32_t as, bool *is_that)
{
	const struct exercise_file *file = &exercise->files[as];
	uint64_t size;
	int rc = read_all(exercise, face, context, name, 0, &size);

	if (rc)
		return rc;
	if (size == UINT64_MAX || !file->id)
		*is_that = size == UINT64_MAX && !file->id;
	else
		*is_that = size == file->size &&
			   !memcmp(exercise->found, file->bytes, size);
	return 0;
}

static int settle_names(struct exercise *exercise,
			const struct exercise_face *face, void *context)
{
	const struct exercise_op *op = &exercise->op;
	bool is_old, is_new = false, to_is_old = true;
	uint64_t size;
	int rc = looks_like(exercise, face, context, op->name, op->name,
			    &is_old);

	if (!rc && op->kind == EXERCISE_RENAME)
		rc = looks_like(exercise, face, context, op->to, op->to,
				&to_is_old);
	if (rc || (is_old && to_is_old))
		return rc;
	rc = face->size(context, op->name, 0, &size);
	if (op->kind == EXERCISE_CREATE)
		is_new = !rc && !size;
	else
		is_new = rc == -ENOENT;
	rc = rc == -ENOENT ? 0 : rc;
	if (!rc && is_new && op->kind == EXERCISE_RENAME)
		rc = looks_like(exercise, face, context, op->to, op->name,
				&is_new);
	if (rc)
		return rc;
	if (!is_new)
		return wrong(exercise, "%s happened in part",
			     kind_names[op->kind]);
	complete(exercise, op);
	return 0;
}

/* A folder is there or not: whoever makes it again learns which. */
static int settle_folder(struct exercise *exercise,
			 const struct exercise_face *face, void *context)
{
	uint32_t folder = exercise->op.to;
	bool is_empty = is_folder_empty(exercise, folder);
	int rc = face->make_folder(context, folder);

	if (rc && rc != -EEXIST)
		return rc;
	if (!rc && !is_empty)
		return wrong(exercise, "folder %u was gone with files in it",
			     folder);
	exercise->folders[folder] = true;
	return 0;
}

int exercise_settle(struct exercise *exercise, const struct exercise_face *face,
		    void *context)
{
	int rc = 0;

	if (exercise->stage == EXERCISE_IDLE)
		return 0;
	if (exercise->stage == EXERCISE_DONE) {
		complete(exercise, &exercise->op);
		return 0;
	}
	switch (exercise->op.kind) {
	case EXERCISE_WRITE:
	case EXERCISE_PUNCH:
		rc = settle_write(exercise, face, context);
		break;
	case EXERCISE_APPEND:
		rc = settle_append(exercise, face, context);
		break;
	case EXERCISE_TRUNCATE:
		rc = settle_truncate(exercise, face, context);
		break;
	case EXERCISE_CREATE:
	case EXERCISE_RENAME:
	case EXERCISE_REMOVE:
		rc = settle_names(exercise, face, context);
		break;
	case EXERCISE_MAKE_FOLDER:
	case EXERCISE_REMOVE_FOLDER:
		rc = settle_folder(exercise, face, context);
		break;
	default:
		break;
	}
	if (rc)
		return rc;
	exercise->doubts++;
	set_stage(exercise, EXERCISE_IDLE);
	return 0;
}

/* --- steps --- */

static uint32_t choose_name(struct exercise *exercise,
			    const struct exercise_face *face)
{
	if (face->device)
		return 0;
	return (uint32_t)below(exercise, face->make_folder ? EXERCISE_NAMES
							   : EXERCISE_LEAVES);
}

static enum exercise_kind choose_kind(struct exercise *exercise,
				      const struct exercise_face *face)
{
	static const uint8_t weights[EXERCISE_KINDS] = {0,  30, 24, 10, 10, 8,
							12, 5,	2,  2,	2};
	uint32_t kind = EXERCISE_READ;
	uint64_t chosen, all = 0;

	for (uint32_t i = 0; i < EXERCISE_KINDS; i++)
		all += weights[i];
	chosen = below(exercise, all);
	while (chosen >= weights[kind])
		chosen -= weights[kind++];
	if ((kind >= EXERCISE_MAKE_FOLDER && !face->make_folder) ||
	    (kind == EXERCISE_APPEND && !face->append) ||
	    (face->device && kind > EXERCISE_PUNCH) ||
	    (face->device && kind == EXERCISE_TRUNCATE))
		return EXERCISE_WRITE;
	return kind;
}

/* Choose a range, often one that begins or ends at a chunk or at the end. */
static void choose_range(struct exercise *exercise,
			 const struct exercise_face *face,
			 struct exercise_op *op)
{
	static const uint32_t mosts[] = {16, 600, 9000, 70000};
	uint64_t size = exercise->files[op->name].size;
	uint64_t limit = face->device ? face->device : EXERCISE_SIZE;

	op->at = below(exercise, below(exercise, 4) ? limit / 8 : limit);
	op->size = 1 + below(exercise, mosts[below(exercise, 4)]);
	switch (below(exercise, 8)) {
	case 0:
		op->at -= op->at % 4096;
		break;
	case 1:
		op->at -= op->at % 4096;
		op->size += 4095 - (op->size + 4095) % 4096;
		break;
	case 2:
		op->at = size < limit ? size : limit - 1;
		break;
	case 3:
		op->at = size > op->size ? size - op->size : 0;
		break;
	default:
		break;
	}
	if (op->size > limit - op->at)
		op->size = limit - op->at;
}

/* Choose the next call; its kind may become that of a read. */
static struct exercise_op choose(struct exercise *exercise,
				 const struct exercise_face *face)
{
	struct exercise_op op = {.number = ++exercise->number};
	const struct exercise_file *file;

	op.kind = choose_kind(exercise, face);
	op.name = choose_name(exercise, face);
	/* Mostly one that is there. */
	for (uint32_t i = 0; i < 6; i++)
		if (exercise->files[op.name].id == 0)
			op.name = choose_name(exercise, face);
	for (uint32_t i = 0; i < 3 && op.kind == EXERCISE_CREATE; i++)
		if (exercise->files[op.name].id)
			op.name = choose_name(exercise, face);
	op.to = choose_name(exercise, face);
	if (op.kind >= EXERCISE_MAKE_FOLDER)
		op.to = 1 + (uint32_t)below(exercise, EXERCISE_FOLDERS - 1);
	file = &exercise->files[op.name];
	choose_range(exercise, face, &op);
	if (op.kind == EXERCISE_APPEND) {
		op.at = file->size;
		if (op.size > EXERCISE_SIZE - op.at)
			op.kind = EXERCISE_READ;
	} else if (op.kind == EXERCISE_TRUNCATE) {
		op.size = below(exercise, 3) ? op.at : file->size / 2;
	} else if (op.kind == EXERCISE_PUNCH) {
		/* What is behind the end is nothing to punch. */
		if (op.at >= file->size)
			op.at = file->size / 2;
		if (op.size > file->size - op.at)
			op.size = file->size - op.at;
		if (!op.size)
			op.kind = EXERCISE_READ;
	}
	return op;
}

/* Make the call. *op: of an append its place. */
static ssize_t call(struct exercise *exercise, const struct exercise_face *face,
		    void *context, struct exercise_op *op)
{
	uint64_t file = exercise->files[op->name].id;

	switch (op->kind) {
	case EXERCISE_READ:
		return check_read(exercise, face, context, op);
	case EXERCISE_WRITE:
		fill(exercise->found, op);
		return face->write(context, op->name, file, exercise->found,
				   op->size, op->at);
	case EXERCISE_APPEND:
		fill(exercise->found, op);
		return face->append(context, op->name, file, exercise->found,
				    op->size, &op->at);
	case EXERCISE_TRUNCATE:
		return face->truncate(context, op->name, file, op->size);
	case EXERCISE_PUNCH:
		return face->punch(context, op->name, file, op->at, op->size);
	case EXERCISE_CREATE:
		return face->create(context, op->name, op->number);
	case EXERCISE_RENAME:
		return face->rename(context, op->name, op->to);
	case EXERCISE_REMOVE:
		return face->remove(context, op->name);
	case EXERCISE_MAKE_FOLDER:
		return face->make_folder(context, op->to);
	default:
		return face->remove_folder(context, op->to);
	}
}

/* What an append has written where another place was expected. */
static int check_place(struct exercise *exercise, struct exercise_op *op,
		       uint64_t expected)
{
	if (op->kind != EXERCISE_APPEND || op->at == expected)
		return 0;
	if (exercise->has_gaps && op->at > expected &&
	    (op->at - expected) % op->size == 0)
		return 0;
	return wrong(exercise,
		     "an append to file %u is at %llu instead of %llu",
		     op->name, (unsigned long long)op->at,
		     (unsigned long long)expected);
}

void exercise_init(struct exercise *exercise, uint64_t seed,
		   const struct exercise_face *face)
{
	memset(exercise, 0, sizeof(*exercise));
	exercise->seed = seed;
	exercise->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	exercise->folders[0] = true;
	if (face->device) {
		exercise->files[0].id = 1;
		exercise->files[0].size = face->device;
	}
}

/* Settle what the last call left in doubt, for as long as that is in doubt
 * itself. */
static int settle_doubt(struct exercise *exercise,
			const struct exercise_face *face, void *context)
{
	int rc = 0;

	for (uint32_t i = 0; i < SETTLE_ATTEMPTS; i++) {
		rc = exercise_settle(exercise, face, context);
		if (!rc || face->judge(context, rc) != EXERCISE_DOUBT)
			return rc;
	}
	return rc;
}

int exercise_step(struct exercise *exercise, const struct exercise_face *face,
		  void *context)
{
	struct exercise_op op = choose(exercise, face), done = op;
	int wanted = expect(exercise, &op);
	enum exercise_verdict verdict;
	ssize_t rc;

	exercise->log[op.number % EXERCISE_LOG] = op;
	if (op.kind != EXERCISE_READ && !wanted)
		begin(exercise, &op);
	rc = call(exercise, face, context, &done);
	if (rc == -EXDEV)
		return -EXDEV;
	verdict = rc < 0 && rc != wanted ? face->judge(context, (int)rc)
					 : EXERCISE_WRONG;
	if (verdict == EXERCISE_GONE)
		return (int)rc;
	if (verdict == EXERCISE_DOUBT)
		return settle_doubt(exercise, face, context);
	if (rc > 0 &&
	    (op.kind == EXERCISE_WRITE || op.kind == EXERCISE_APPEND) &&
	    (uint64_t)rc == op.size)
		rc = 0;
	if (rc != wanted)
		return wrong(exercise, "%s returned %lld instead of %d",
			     kind_names[op.kind], (long long)rc, wanted);
	rc = wanted ? 0 : check_place(exercise, &done, op.at);
	if (rc)
		return (int)rc;
	/* What the model has no room for is taken away again. */
	if (done.kind == EXERCISE_APPEND && done.at + done.size > EXERCISE_SIZE)
		return settle_doubt(exercise, face, context);
	exercise->counts[op.kind]++;
	if (exercise->stage == EXERCISE_UNDER_WAY)
		complete(exercise, &done);
	return 0;
}
