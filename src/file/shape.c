/* shape.c - truncate, punch, stat, where there is memory.
 *
 *   size, n --CAS--> smaller, n + 1, SHRINKING
 *                      | the epoch ends; chunks behind the end go (cut_word)
 *                      v
 *                    smaller, n + 1
 *
 * Anybody may do the second part (file_finish_shrink). */
#include "file/internal.h"

#include "base/mutant.h"

#include <stdlib.h>

/* --- truncate --- */

/* A shrink that is being finished. */
struct shrink {
	uint64_t size;	 /* the word */
	uint64_t number; /* of the chunk that the end is in */
};

/* READ the word of size, whatever is known of it. Inside reef_enter. */
static int read_size(struct reef_file *file, uint64_t *word)
{
	file->epoch = FILE_NO_EPOCH;
	*word = 0;
	return file_look(file) ?: (*word = file->size, 0);
}

/* (layout.h, 6) 1: another has finished the shrink. */
static int is_shrinking_still(struct reef_file *file, void *context)
{
	const struct shrink *shrink = context;
	uint64_t now;
	int rc = read_size(file, &now);

	return rc ? rc : now != shrink->size;
}

/* Cut a chunk off behind the end; or, of the chunk that has the end, its rest.
 */
static int cut_word(struct reef_file *file, uint64_t number, uint64_t at,
		    uint64_t word, void *context)
{
	const struct shrink *shrink = context;
	uint32_t cut = (uint32_t)(file_size_of(shrink->size) % file->chunk);
	uint64_t now;
	int rc;

	for (uint32_t i = 0; file_word_block(word); i++) {
		if (i == FILE_ATTEMPTS)
			return -EBUSY;
		file_forget(file, number);
		if (number > shrink->number || cut == 0)
			rc = file_empty_word(file, at, word, 0, &now);
		else if (word & FILE_FROZEN && file_word_cut(word) <= cut)
			return 0;
		else
			rc = index_cas(file->reef, at, word,
				       file_word_frozen(word, cut), &now);
		if (rc)
			return rc < 0 ? rc : 0;
		/* Another did the same; or it wrote in front of the end, and so
		 * put a copy there, with what is to go. */
		word = now;
		rc = is_shrinking_still(file, context);
		if (rc)
			return rc;
	}
	return 0;
}

/* One attempt to finish the shrink that the word tells of; -EAGAIN: what others
 * do may have come in between. */
static int finish_once(struct reef_file *file, uint64_t size)
{
	struct shrink shrink = {
		.size = size,
		.number = file_size_of(size) / file->chunk,
	};
	const struct file_walker walker = {
		.begin = is_shrinking_still,
		.each = cut_word,
		.context = &shrink,
	};
	uint64_t before;
	int rc = REEF_MUTATED(FILE_CUT_EARLY) ? 0 : reef_epoch_end(file->reef);

	if (!rc)
		rc = file_walk(file, shrink.number, FILE_CHUNKS_MAX, &walker);
	if (rc)
		return rc == 1 ? 0 : rc;
	reef_enter(file->reef);
	rc = index_cas(file->reef,
		       file->inode + offsetof(struct file_head, size), size,
		       size & ~FILE_SHRINKING, &before);
	file->epoch = FILE_NO_EPOCH;
	reef_leave(file->reef);
	return rc < 0 && rc != -REEF_EINDOUBT ? rc : 0;
}

int file_finish_shrink(struct reef_file *file)
{
	uint64_t size;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		reef_enter(file->reef);
		rc = read_size(file, &size);
		reef_leave(file->reef);
		if (rc || !(size & FILE_SHRINKING))
			return rc;
		rc = finish_once(file, size);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

/* Change the word of size; longer: only so that it becomes longer. 1: done, and
 * it is SHRINKING.  0: done.  -ESTALE, -EINPROGRESS: try again, after the
 * shrink under way. */
static int set_size(struct reef_file *file, uint64_t size, bool longer)
{
	uint64_t word, before;
	int rc;

	reef_enter(file->reef);
	rc = read_size(file, &word);
	if (!rc && word & FILE_SHRINKING) {
		rc = -EINPROGRESS;
	} else if (!rc && (longer || size >= file_size_of(word))) {
		rc = file_extend(file, word, size);
	} else if (!rc) {
		rc = index_cas(file->reef,
			       file->inode + offsetof(struct file_head, size),
			       word, size | file_shrinks_after(word), &before);
		rc = rc == 0 ? -ESTALE : rc;
	}
	file->epoch = FILE_NO_EPOCH;
	reef_leave(file->reef);
	return rc;
}

static int change_size(struct reef_file *file, uint64_t size, bool longer)
{
	int rc;

	if (size > file->size_max)
		return -EFBIG;
	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		rc = set_size(file, size, longer);
		if (rc == 1 || rc == -EINPROGRESS) {
			int finished = file_finish_shrink(file);

			if (finished || rc == 1)
				return finished;
		} else if (rc != -ESTALE) {
			return rc;
		}
	}
	return -EBUSY;
}

int reef_file_truncate(struct reef_file *file, uint64_t size)
{
	return change_size(file, size, false);
}

int reef_file_extend(struct reef_file *file, uint64_t size)
{
	return change_size(file, size, true);
}

/* --- punch --- */

/* Words that were FROZEN, to be thawed when the epoch is over. */
struct punched {
	struct {
		uint64_t number, at, word;
	} * words;
	uint32_t count, room;
};

static int punch_word(struct reef_file *file, uint64_t number, uint64_t at,
		      uint64_t word, void *context)
{
	struct punched *punched = context;
	uint32_t room = punched->room ? 2 * punched->room : 64;
	uint64_t now;
	void *words;
	int rc;

	if (punched->count == punched->room) {
		words = realloc(punched->words, room * sizeof(*punched->words));
		if (!words)
			return -ENOMEM;
		punched->words = words;
		punched->room = room;
	}
	while (file_word_block(word)) {
		file_forget(file, number);
		rc = file_empty_word(file, at, word, FILE_FROZEN, &now);
		if (rc < 0)
			return rc;
		word = now;
	}
	if (word & FILE_DEAD)
		return -REEF_EDROPPED;
	if (word & FILE_FROZEN) {
		punched->words[punched->count].number = number;
		punched->words[punched->count].at = at;
		punched->words[punched->count++].word = word;
	}
	return 0;
}

/* Thaw what was punched out. Where that fails the next to write there does it.
 */
static int thaw_punched(struct reef_file *file, const struct punched *punched)
{
	int rc = punched->count ? reef_epoch_end(file->reef) : 0;

	for (uint32_t i = 0; !rc && i < punched->count; i++) {
		reef_enter(file->reef);
		rc = file_look(file);
		if (!rc)
			(void)file_thaw(file, punched->words[i].number,
					punched->words[i].at,
					punched->words[i].word);
		reef_leave(file->reef);
	}
	return rc;
}

static int punch_chunks(struct reef_file *file, uint64_t first, uint64_t end)
{
	struct punched punched = {0};
	const struct file_walker walker = {
		.each = punch_word,
		.context = &punched,
	};
	int rc = file_walk(file, first, end, &walker), thawed;

	thawed = thaw_punched(file, &punched);
	free(punched.words);
	return rc ? rc : thawed;
}

static int note_chunk(struct reef_file *file, uint64_t number, uint64_t at,
		      uint64_t word, void *context)
{
	*(bool *)context = file_word_block(word) != 0;
	return 0;
}

/* Write zeroes inside one chunk, if there is one. */
static int punch_part(struct reef_file *file, uint64_t at, uint64_t end)
{
	bool is_there = false;
	const struct file_walker walker = {
		.each = note_chunk,
		.context = &is_there,
	};
	uint64_t number = at / file->chunk;
	void *zeroes;
	int rc;

	if (at >= end)
		return 0;
	rc = file_walk(file, number, number + 1, &walker);
	if (rc || !is_there)
		return rc;
	zeroes = calloc(1, end - at);
	if (!zeroes)
		return -ENOMEM;
	rc = file_write_inside(file, zeroes, (uint32_t)(end - at), at);
	free(zeroes);
	return rc;
}

int reef_file_punch(struct reef_file *file, uint64_t at, uint64_t size)
{
	uint64_t word, end, first, last, whole;
	int rc;

	reef_enter(file->reef);
	rc = read_size(file, &word);
	reef_leave(file->reef);
	if (rc || at >= file_size_of(word))
		return rc;
	whole = (file_size_of(word) + file->chunk - 1) / file->chunk;
	end = size < UINT64_MAX - at ? at + size : UINT64_MAX;
	first = (at + file->chunk - 1) / file->chunk;
	/* What lies behind the range stays, also in the chunk that has the end
	 * of the file: an append may have put it there by now. */
	last = end / file->chunk < whole ? end / file->chunk : whole;
	end = end < file_size_of(word) ? end : file_size_of(word);
	if (first > last) /* all in one chunk */
		return punch_part(file, at, end);
	rc = punch_part(file, at,
			first * file->chunk < end ? first * file->chunk : end);
	if (!rc && first < last)
		rc = punch_chunks(file, first, last);
	return rc ? rc : punch_part(file, last * file->chunk, end);
}

/* --- stat --- */

static int count_chunk(struct reef_file *file, uint64_t number, uint64_t at,
		       uint64_t word, void *context)
{
	*(uint64_t *)context += file_word_block(word) != 0;
	return 0;
}

int reef_file_stat(struct reef_file *file, struct reef_file_info *out)
{
	uint64_t word, chunks = 0;
	const struct file_walker walker = {
		.each = count_chunk,
		.context = &chunks,
	};
	int rc;

	reef_enter(file->reef);
	rc = read_size(file, &word);
	reef_leave(file->reef);
	if (!rc)
		rc = file_walk(file, 0, FILE_CHUNKS_MAX, &walker);
	if (rc)
		return rc;
	*out = (struct reef_file_info){
		.size = file_size_of(word),
		.size_max = file->size_max,
		.taken = reef_block_footprint(sizeof(struct file_inode)) +
			 chunks * reef_block_footprint(FILE_PART + file->chunk),
		.chunk = file->chunk,
		.scratch = file->flags & FILE_IS_SCRATCH,
		.session = file->session,
	};
	return 0;
}

/* --- where there is memory --- */

/* Chunks next to each other: `first` to before `end`; none if they are equal.
 */
struct run {
	uint64_t first, end;
};

/* Take a chunk into the run that has memory; 1: the run has ended. */
static int extend_run(struct reef_file *file, uint64_t number, uint64_t at,
		      uint64_t word, void *context)
{
	struct run *run = context;
	bool has_memory = file_word_block(word) != 0;

	if (run->first == run->end)
		run->first = run->end = number;
	if (has_memory && number == run->end) {
		run->end++;
		return 0;
	}
	return run->first < run->end;
}

int reef_file_find_data(struct reef_file *file, uint64_t at, uint64_t *from,
			uint64_t *to)
{
	struct run run = {0};
	const struct file_walker walker = {
		.each = extend_run,
		.context = &run,
	};
	uint64_t word, size;
	int rc;

	reef_enter(file->reef);
	rc = read_size(file, &word);
	reef_leave(file->reef);
	if (rc)
		return rc;
	size = file_size_of(word);
	if (at >= size)
		return -ENXIO;
	rc = file_walk(file, at / file->chunk,
		       (size + file->chunk - 1) / file->chunk, &walker);
	if (rc < 0)
		return rc;
	if (run.first == run.end)
		return -ENXIO;
	*from = at > run.first * file->chunk ? at : run.first * file->chunk;
	*to = size < run.end * file->chunk ? size : run.end * file->chunk;
	return 0;
}

int reef_file_size(struct reef_file *file, uint64_t *size)
{
	uint64_t word;
	int rc;

	reef_enter(file->reef);
	rc = read_size(file, &word);
	reef_leave(file->reef);
	if (!rc)
		*size = file_size_of(word);
	return rc;
}

int reef_file_sync(struct reef_file *file)
{
	uint64_t size;

	return reef_file_size(file, &size);
}
