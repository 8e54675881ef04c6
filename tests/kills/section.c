/* section.c - updates that only a guard makes right, and their check. */
#include "section.h"

#include "base/clock.h"
#include "pool/client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <reef/fiber.h>
#include <stdlib.h>
#include <string.h>

enum word {
	WORD_TOTAL,
	WORD_COPY,
	WORD_INTENT,
	WORD_NEXT_TOTAL, /* what the intent will make of total, */
	WORD_NEXT_COUNT, /* and of its seat's count */
	WORDS = 8
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

uint64_t section_random(struct section *section, uint64_t below)
{
	return next_random(&section->random) % below;
}

/* True if the pool says that the session is over, or does not know it. */
static bool is_over(void *context, uint32_t session)
{
	struct section *section = context;
	enum reef_session_view view;
	int rc = reef_session_check(section->reef, session, &view);

	return rc ? rc == -REEF_EFENCED : view == REEF_VIEW_ENDED;
}

struct board_judge section_judge(struct section *section)
{
	return (struct board_judge){is_over, section};
}

int section_create(struct reef_space *space, struct reef *reef,
		   uint64_t *address)
{
	const size_t size = (WORDS + SEATS_MAX) * 8;
	void *zeroes = calloc(1, size);
	int rc;

	if (!zeroes)
		return -ENOMEM;
	rc = reef_alloc(space, size, address);
	if (!rc)
		rc = reef_write(reef, *address, zeroes, size);
	if (!rc)
		rc = reef_keep(space, *address);
	free(zeroes);
	return rc;
}

/* --- access --- */

static int read_words(struct section *section, uint64_t *words)
{
	return reef_read(section->reef, section->board->data, words, WORDS * 8);
}

static int load_count(struct section *section, uint64_t seat, uint64_t *count)
{
	return reef_read(section->reef,
			 section->board->data + (WORDS + seat) * 8, count, 8);
}

/* Write a word. Nobody else writes there now, so a write in doubt can be
 * repeated; a fenced session learns that it is. */
static int write_word(struct section *section, uint64_t word, uint64_t value)
{
	int rc;

	do
		rc = reef_write(section->reef, section->board->data + word * 8,
				&value, 8);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

/* Stay at a spot for a while, so that somebody can die meanwhile. */
static void stay_at(struct section *section, enum spot spot)
{
	uint64_t us = section_random(section, 4) ? 0 : section->board->hold_us;

	board_at(section->board, section->seat, spot);
	if (us)
		reef_sleep(section_random(section, us) * 1000);
}

/* --- updates --- */

static int finish_update(struct section *section, uint64_t *words)
{
	uint64_t seat = words[WORD_INTENT] - 1;
	int rc;

	if (seat >= SEATS_MAX)
		return board_fail(section->board, "an intent of %" PRIu64,
				  seat);
	rc = write_word(section, WORD_TOTAL, words[WORD_NEXT_TOTAL]);
	if (!rc)
		rc = write_word(section, WORDS + seat, words[WORD_NEXT_COUNT]);
	if (!rc)
		rc = write_word(section, WORD_COPY, words[WORD_NEXT_TOTAL]);
	if (!rc)
		rc = write_word(section, WORD_INTENT, 0);
	if (rc)
		return rc;
	words[WORD_TOTAL] = words[WORD_COPY] = words[WORD_NEXT_TOTAL];
	words[WORD_INTENT] = 0;
	atomic_fetch_add(&section->board->seats[section->seat].repaired, 1);
	return 0;
}

/* Read the words before an update, and finish what another left, if told. */
static int begin_update(struct section *section, bool told, uint64_t *words)
{
	int rc = read_words(section, words);

	if (rc)
		return rc;
	if (words[WORD_INTENT] && !told)
		return board_fail(section->board,
				  "%u found half of %" PRIu64
				  "'s update, and was not told",
				  section->seat, words[WORD_INTENT] - 1);
	if (words[WORD_INTENT])
		return finish_update(section, words);
	if (words[WORD_TOTAL] != words[WORD_COPY])
		return board_fail(
			section->board, "%u found %" PRIu64 " and %" PRIu64,
			section->seat, words[WORD_TOTAL], words[WORD_COPY]);
	return 0;
}

int section_repair(struct section *section)
{
	uint64_t words[WORDS];

	return begin_update(section, true, words);
}

/* This participant's count, which it knows unless it was fenced meanwhile. */
static int own_count(struct section *section, uint64_t *count)
{
	struct seat *seat = &section->board->seats[section->seat];
	uint64_t known = atomic_load(&seat->updates);
	int rc = load_count(section, section->seat, count);

	if (rc)
		return rc;
	if (section->unsure && *count == known + 1)
		atomic_store(&seat->updates, ++known);
	section->unsure = false;
	if (*count == known)
		return 0;
	return board_fail(section->board,
			  "%u did %" PRIu64 " updates, and finds %" PRIu64,
			  section->seat, known, *count);
}

static int write_intent(struct section *section, uint64_t total, uint64_t count)
{
	int rc = write_word(section, WORD_NEXT_TOTAL, total);

	if (!rc)
		rc = write_word(section, WORD_NEXT_COUNT, count);
	if (!rc)
		rc = write_word(section, WORD_INTENT, section->seat + 1);
	return rc;
}

static int write_counts(struct section *section, uint64_t total, uint64_t count)
{
	int rc = write_intent(section, total, count);

	if (rc)
		return rc;
	stay_at(section, SPOT_INTENT);
	rc = write_word(section, WORD_TOTAL, total);
	if (rc)
		return rc;
	stay_at(section, SPOT_HALF);
	rc = write_word(section, WORDS + section->seat, count);
	if (!rc)
		rc = write_word(section, WORD_COPY, total);
	if (!rc)
		rc = write_word(section, WORD_INTENT, 0);
	return rc;
}

int section_update(struct section *section, bool told)
{
	struct seat *seat = &section->board->seats[section->seat];
	uint64_t words[WORDS], count;
	int rc;

	stay_at(section, SPOT_HOLDS);
	rc = begin_update(section, told, words);
	if (!rc)
		rc = own_count(section, &count);
	if (rc)
		return rc;
	section->unsure = true;
	rc = write_counts(section, words[WORD_TOTAL] + 1, count + 1);
	if (rc)
		return rc;
	section->unsure = false;
	atomic_fetch_add(&seat->updates, 1);
	stay_at(section, SPOT_DONE);
	return 0;
}

int section_read(struct section *section, bool told)
{
	uint64_t before[WORDS], after[WORDS];
	int rc = read_words(section, before);

	if (rc)
		return rc;
	if (!told &&
	    (before[WORD_INTENT] || before[WORD_TOTAL] != before[WORD_COPY]))
		return board_fail(section->board,
				  "%u reads what is half done, and was not "
				  "told",
				  section->seat);
	stay_at(section, SPOT_READS);
	rc = read_words(section, after);
	if (rc)
		return rc;
	if (memcmp(before, after, sizeof(before)))
		return board_fail(section->board,
				  "it changed while %u was reading",
				  section->seat);
	return 0;
}

/* --- the sum --- */

static int check_count(struct section *section, uint32_t index, uint64_t count)
{
	struct seat *seat = &section->board->seats[index];
	uint64_t known = atomic_load(&seat->updates);

	/* A participant that was killed may have had no time to say that its
	 * update was done. */
	if (count == known ||
	    (count == known + 1 && !atomic_load(&seat->ended)))
		return 0;
	return board_fail(section->board,
			  "%u said %" PRIu64 " updates, and %" PRIu64
			  " are there",
			  index, known, count);
}

int section_check(struct section *section, uint64_t *total)
{
	uint32_t used = atomic_load(&section->board->seats_used);
	uint64_t words[WORDS], count, sum = 0;
	int rc = read_words(section, words);

	for (uint32_t i = 0; !rc && i < used; i++) {
		rc = load_count(section, i, &count);
		if (!rc)
			rc = check_count(section, i, count);
		sum += count;
	}
	if (rc)
		return rc;
	if (sum != words[WORD_TOTAL] || sum != words[WORD_COPY])
		return board_fail(section->board,
				  "%" PRIu64 " updates make %" PRIu64
				  ", and its copy %" PRIu64,
				  sum, words[WORD_TOTAL], words[WORD_COPY]);
	*total = sum;
	return 0;
}
