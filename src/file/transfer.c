/* transfer.c - read, write, append.
 *
 * A range is done in windows of up to FILE_WINDOW chunks, each inside one
 * reef_enter; a *span* is what of a window lies in one chunk. What is known in
 * this epoch is used at once; what was known in another is READ again beside
 * the bytes, which count if it is still so. */
#include "file/internal.h"

#include "base/mutant.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct span {
	uint64_t number; /* of the chunk */
	uint32_t offset, length;
	uint8_t *local;
	uint64_t at, word; /* the word's address, once known; what it is */
	uint64_t asked;	   /* a READ brings it here */
	bool is_done;
};

struct window {
	struct reef_file *file;
	struct span spans[FILE_WINDOW];
	uint32_t count;
	struct file_head head;
	/* What is posted: the head, and two for each span. */
	struct reef_access accesses[2 * FILE_WINDOW + 1];
	uint32_t accesses_count;
};

/* Cut what fits into one window; returns how many bytes that are. */
static size_t cut_window(struct window *window, struct reef_file *file,
			 void *local, size_t size, uint64_t at)
{
	uint8_t *from = local;
	size_t done = 0;
	struct span *span;

	window->file = file;
	window->count = 0;
	while (done < size && window->count < FILE_WINDOW) {
		span = &window->spans[window->count++];
		*span = (struct span){
			.number = (at + done) / file->chunk,
			.offset = (uint32_t)((at + done) % file->chunk),
			.local = from + done,
		};
		span->length = file->chunk - span->offset;
		if (span->length > size - done)
			span->length = (uint32_t)(size - done);
		done += span->length;
	}
	return done;
}

static void add_access(struct window *window, uint8_t kind, uint64_t address,
		       void *local, uint32_t length)
{
	window->accesses[window->accesses_count++] = (struct reef_access){
		.kind = kind,
		.address = address,
		.local = local,
		.length = length,
	};
}

/* Post what was added. */
static int execute(struct window *window)
{
	uint32_t count = window->accesses_count;

	window->accesses_count = 0;
	return count ? reef_execute(window->file->reef, window->accesses, count)
		     : 0;
}

/* True if what is known of the span's chunk was read in this epoch. */
static bool is_fresh(const struct window *window,
		     const struct file_known *known)
{
	return known && (known->epoch == reef_epoch(window->file->reef) ||
			 REEF_MUTATED(FILE_OLD_TABLE));
}

/* --- read --- */

/* Add what is to be READ for a span. guess: bytes of a chunk that was known in
 * another epoch are READ beside its word. */
static int add_read(struct window *window, struct span *span, bool guess)
{
	struct file_known *known = file_known(window->file, span->number);
	bool fresh = is_fresh(window, known);
	int rc = 0;

	if (!fresh && !span->at)
		rc = file_word_at(window->file, span->number, false, &span->at);
	if (rc)
		return rc;
	if (!fresh && !span->at) { /* no index block, no chunk */
		memset(span->local, 0, span->length);
		span->is_done = true;
		return 0;
	}
	span->word = known ? known->word : 0;
	if (!fresh)
		add_access(window, REEF_READ, span->at, &span->asked, 8);
	if (fresh || (known && guess))
		add_access(window, REEF_READ, known->at + span->offset,
			   span->local, span->length);
	span->asked = span->word;
	return 0;
}

/* Read a span of a chunk whose end was cut off. */
static int read_cut(struct reef_file *file, struct span *span)
{
	uint32_t cut = file_word_cut(span->asked), left = 0;
	uint64_t at;
	int rc = file_bytes_at(file, span->asked, &at);

	if (rc)
		return rc;
	if (cut > span->offset)
		left = cut - span->offset;
	if (left > span->length)
		left = span->length;
	if (left)
		rc = reef_read(file->reef, at + span->offset, span->local,
			       left);
	memset(span->local + left, 0, span->length - left);
	span->is_done = !rc;
	return rc;
}

/* Take in what came for a span that was not fresh. */
static int take_read(struct window *window, struct span *span, bool guess)
{
	int rc = file_note_word(window->file, span->number, span->asked);

	if (rc)
		return rc;
	if (span->word == span->asked && span->word && guess) {
		span->is_done = true;
		return 0;
	}
	if (!file_word_block(span->asked)) {
		memset(span->local, 0, span->length);
		span->is_done = true;
		return 0;
	}
	if (!(span->asked & FILE_FROZEN))
		return 0; /* known now: its bytes come next */
	return read_cut(window->file, span);
}

/* One round of READs for all spans that are not done. */
static int read_round(struct window *window, bool look, bool guess)
{
	bool fresh[FILE_WINDOW] = {0};
	struct span *span;
	int rc = 0;
	uint32_t i;

	if (look)
		window->accesses[window->accesses_count++] =
			file_read_head(window->file, &window->head);
	for (i = 0; !rc && i < window->count; i++) {
		span = &window->spans[i];
		fresh[i] = is_fresh(window,
				    file_known(window->file, span->number));
		if (!span->is_done)
			rc = add_read(window, span, guess);
	}
	if (rc) {
		window->accesses_count = 0;
		return rc;
	}
	rc = execute(window);
	if (!rc && look)
		rc = file_take_head(window->file, &window->head);
	for (i = 0; !rc && i < window->count; i++) {
		span = &window->spans[i];
		if (span->is_done)
			continue;
		if (fresh[i])
			span->is_done = true;
		else
			rc = take_read(window, span, guess);
	}
	return rc;
}

static bool is_done(const struct window *window)
{
	for (uint32_t i = 0; i < window->count; i++)
		if (!window->spans[i].is_done)
			return false;
	return true;
}

/* Read a window; the file's size is known afterwards as it was then. must_look:
 * a size that was known is not enough. */
static int read_window(struct window *window, bool must_look)
{
	struct reef_file *file = window->file;
	bool look, guess = true;
	uint32_t attempt;
	int rc = 0;

	reef_enter(file->reef);
	look = must_look || file->epoch != reef_epoch(file->reef);
	/* Index blocks are found by an inode that is there. */
	if (look && window->count &&
	    window->spans[window->count - 1].number >= FILE_DIRECT)
		rc = file_look(file);
	for (attempt = 0; !rc && attempt < FILE_ATTEMPTS; attempt++) {
		rc = read_round(window, look, guess);
		look = false;
		/* A guess may have been an address where nothing is. */
		if (rc && guess && rc != -REEF_EDROPPED) {
			guess = false;
			look = must_look ||
			       file->epoch != reef_epoch(file->reef);
			rc = 0;
		}
		if (!rc && is_done(window))
			break;
	}
	reef_leave(file->reef);
	if (!rc && attempt == FILE_ATTEMPTS)
		rc = -EBUSY;
	return rc;
}

ssize_t reef_file_pread(struct reef_file *file, void *to, size_t size,
			uint64_t at)
{
	struct window window;
	size_t done = 0, some;
	uint64_t end;
	int rc;

	if (size > SSIZE_MAX)
		size = SSIZE_MAX;
	if (at >= file->size_max)
		return 0;
	if (size > file->size_max - at)
		size = file->size_max - at;
	while (done < size) {
		window.accesses_count = 0;
		some = cut_window(&window, file, (uint8_t *)to + done,
				  size - done, at + done);
		/* A file may have become longer since its size was read. */
		rc = read_window(&window,
				 at + done + some > file_size_of(file->size));
		if (rc)
			return done ? (ssize_t)done : rc;
		end = file_size_of(file->size);
		if (at + done + some > end) {
			some = end > at + done ? (size_t)(end - at - done) : 0;
			return (ssize_t)(done + some);
		}
		done += some;
	}
	return (ssize_t)done;
}

/* --- write --- */

/* See to it that the span's chunk is there, known in this epoch, and not
 * FROZEN. 0: it is.  1: it is, with the span's bytes.  -EAGAIN: it is FROZEN,
 * and the epoch must end first; span->word is what was seen. */
static int prepare_write(struct window *window, struct span *span, bool ended)
{
	struct reef_file *file = window->file;
	uint64_t word;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		if (is_fresh(window, file_known(file, span->number)))
			return 0;
		rc = file_word_at(file, span->number, true, &span->at);
		if (!rc)
			rc = reef_read(file->reef, span->at, &word, 8);
		if (!rc)
			rc = file_note_word(file, span->number, word);
		if (rc)
			return rc;
		if (word & FILE_FROZEN && (!ended || word != span->word) &&
		    !REEF_MUTATED(FILE_THAW_EARLY)) {
			span->word = word;
			return -EAGAIN;
		}
		if (word & FILE_FROZEN && file_word_block(word))
			rc = file_thaw(file, span->number, span->at, word);
		else if (!file_word_block(word))
			rc = file_install(file, span->number, word, span->local,
					  span->offset, span->length);
		if (rc < 0 || (rc == 1 && !file_word_block(word)))
			return rc;
	}
	return -EBUSY;
}

/* READ the words of chunks that were known in another epoch, all at once. */
static int refresh_words(struct window *window)
{
	struct span *span;
	int rc = 0;
	uint32_t i;

	for (i = 0; !rc && i < window->count; i++) {
		span = &window->spans[i];
		/* What an attempt before this READ is of another epoch. */
		span->at = 0;
		if (is_fresh(window, file_known(window->file, span->number)))
			continue;
		rc = file_word_at(window->file, span->number, false, &span->at);
		if (!rc && span->at)
			add_access(window, REEF_READ, span->at, &span->asked,
				   8);
	}
	if (rc || !window->accesses_count) {
		window->accesses_count = 0;
		return rc;
	}
	rc = execute(window);
	for (i = 0; !rc && i < window->count; i++) {
		span = &window->spans[i];
		if (span->at &&
		    !is_fresh(window, file_known(window->file, span->number)))
			rc = file_note_word(window->file, span->number,
					    span->asked);
	}
	return rc;
}

/* (layout.h, 7) */
int file_extend(struct reef_file *file, uint64_t size, uint64_t end)
{
	uint64_t before, wanted;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		if (file_size_of(size) >= end)
			return 0;
		wanted = end | file_shrinks_of(size);
		rc = index_cas(file->reef,
			       file->inode + offsetof(struct file_head, size),
			       size, wanted, &before);
		if (rc < 0 && rc != -REEF_EINDOUBT)
			return rc;
		if (rc == 1)
			before = wanted;
		/* In doubt, and another has changed it since: its word tells
		 * enough, unless that was a shrink. */
		if (file_shrinks_of(before) != file_shrinks_of(size))
			return rc < 0 ? rc : -ESTALE;
		size = before;
		if (file->epoch == reef_epoch(file->reef))
			file->size = size;
	}
	return -EBUSY;
}

/* Look whether the file was shortened since its word was that; as
 * file_extend. */
static int confirm_size(struct reef_file *file, uint64_t size)
{
	uint64_t now;
	int rc = reef_read(file->reef,
			   file->inode + offsetof(struct file_head, size), &now,
			   8);

	if (rc)
		return rc;
	return file_shrinks_of(now) == file_shrinks_of(size) ? 0 : -ESTALE;
}

/* See to it that all spans have their chunks, and add their WRITEs. 1: some
 * chunk was made.  -EAGAIN: something is FROZEN. */
static int prepare_window(struct window *window, bool ended)
{
	struct reef_file *file = window->file;
	bool is_frozen = false, is_made = false;
	struct span *span;
	int rc = refresh_words(window);

	for (uint32_t i = 0; rc >= 0 && i < window->count; i++) {
		span = &window->spans[i];
		rc = prepare_write(window, span, ended);
		if (rc == 0)
			add_access(window, REEF_WRITE,
				   file_known(file, span->number)->at +
					   span->offset,
				   span->local, span->length);
		is_made |= rc == 1;
		if (rc == -EAGAIN) { /* all that are, at once */
			is_frozen = true;
			rc = 0;
		}
	}
	if (rc >= 0 && is_frozen)
		rc = -EAGAIN;
	return rc < 0 ? rc : is_made;
}

/* Write a window inside one reef_enter.  -EAGAIN: something is FROZEN.
 * -EINPROGRESS: the file is to become longer, but is SHRINKING.  -ESTALE: it
 * was shortened meanwhile, or since the place was given, where the word of size
 * had these shrinks; place NULL: it was not given. */
static int write_inside(struct window *window, uint64_t end, bool ended,
			const uint64_t *place)
{
	struct reef_file *file = window->file;
	uint32_t attempt = 0, count;
	uint64_t size;
	int rc = file_look(file), made;

	size = file->size;
	if (rc)
		return rc;
	if (place && *place != file_shrinks_of(size))
		return -ESTALE;
	if (size & FILE_SHRINKING && end > file_size_of(size) &&
	    !REEF_MUTATED(FILE_LONGER_EARLY))
		return -EINPROGRESS;
	made = prepare_window(window, ended);
	if (made < 0) {
		window->accesses_count = 0;
		return made;
	}
	/* What is in doubt is written again: the same bytes to the same place,
	 * which is nobody else's while this call is inside. */
	count = window->accesses_count;
	do {
		window->accesses_count = count;
		rc = execute(window);
	} while (rc == -REEF_EINDOUBT && ++attempt < FILE_ATTEMPTS);
	if (!rc && made && end <= file_size_of(size))
		rc = confirm_size(file, size);
	return rc ? rc : file_extend(file, size, end);
}

/* Do what a write has to wait for; 0: try again. */
static int await_write(struct reef_file *file, int rc,
		       struct reef_patience *patience, bool has_place)
{
	int waited;

	switch (rc) {
	case -EAGAIN:
		return reef_epoch_end(file->reef);
	case -EINPROGRESS:
		return file_finish_shrink(file);
	case -ESTALE:
		file->epoch = FILE_NO_EPOCH;
		return has_place ? rc : 0;
	case -ENOSPC:
	case -EDQUOT:
		waited = reef_await_memory(file->space, patience);
		return waited == -ENOSPC ? rc : waited;
	default:
		return rc;
	}
}

static int write_window(struct window *window, uint64_t end,
			const uint64_t *place)
{
	struct reef_file *file = window->file;
	struct reef_patience patience = {0};
	bool ended = false;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		reef_enter(file->reef);
		rc = write_inside(window, end, ended, place);
		reef_leave(file->reef);
		if (!rc)
			return 0;
		ended = rc == -EAGAIN;
		rc = await_write(file, rc, &patience, place);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

static ssize_t write_range(struct reef_file *file, const void *from,
			   size_t size, uint64_t at, const uint64_t *place)
{
	struct window window;
	size_t done = 0, some;
	int rc;

	while (done < size) {
		window.accesses_count = 0;
		some = cut_window(&window, file, (uint8_t *)from + done,
				  size - done, at + done);
		rc = write_window(&window, at + done + some, place);
		if (rc)
			return done && rc != -ESTALE ? (ssize_t)done : rc;
		done += some;
	}
	return (ssize_t)done;
}

static bool is_too_big(const struct reef_file *file, uint64_t at, size_t size)
{
	return size > SSIZE_MAX || at > file->size_max ||
	       size > file->size_max - at;
}

ssize_t reef_file_pwrite(struct reef_file *file, const void *from, size_t size,
			 uint64_t at)
{
	if (is_too_big(file, at, size))
		return -EFBIG;
	return write_range(file, from, size, at, NULL);
}

int file_write_inside(struct reef_file *file, const void *from, uint32_t size,
		      uint64_t at)
{
	struct window window = {0};

	cut_window(&window, file, (void *)from, size, at);
	return write_window(&window, 0, NULL);
}

/* --- append --- */

/* Get a place for `size` bytes at the end. *shrinks: of the word of size by
 * which it was given. Inside reef_enter.  -EINPROGRESS: the file is SHRINKING.
 */
static int reserve(struct reef_file *file, size_t size, uint64_t *at,
		   uint64_t *shrinks)
{
	struct file_head head;
	struct reef_access access;
	uint64_t before;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		access = file_read_head(file, &head);
		rc = reef_execute(file->reef, &access, 1);
		if (!rc)
			rc = file_take_head(file, &head);
		if (!rc && head.size & FILE_SHRINKING)
			rc = -EINPROGRESS;
		if (rc)
			return rc;
		*shrinks = file_shrinks_of(head.size);
		*at = file_size_of(head.size);
		/* Places of a longer file that was cut off count no more. */
		if (file_shrinks_of(head.end) == *shrinks &&
		    file_size_of(head.end) > *at)
			*at = file_size_of(head.end);
		if (is_too_big(file, *at, size))
			return -EFBIG;
		/* What is in doubt is not looked up: another's append of the
		 * same size leaves the same word. A place that may have been
		 * given stays as it is. */
		rc = reef_cas(file->reef,
			      file->inode + offsetof(struct file_head, end),
			      head.end, (*at + size) | *shrinks, &before);
		if (!rc &&
		    (before == head.end || REEF_MUTATED(FILE_APPEND_SHARED)))
			return 0;
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		rc = index_pause(i);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

ssize_t reef_file_append(struct reef_file *file, const void *from, size_t size,
			 uint64_t *at)
{
	uint64_t shrinks, place;
	ssize_t done;
	int rc;

	for (uint32_t i = 0; i < FILE_ATTEMPTS; i++) {
		reef_enter(file->reef);
		rc = reserve(file, size, &place, &shrinks);
		reef_leave(file->reef);
		if (rc == -EINPROGRESS && !(rc = file_finish_shrink(file)))
			continue;
		if (rc)
			return rc;
		done = write_range(file, from, size, place, &shrinks);
		if (done == -ESTALE)
			continue;
		if (done >= 0 && at)
			*at = place;
		return done;
	}
	return -EBUSY;
}
