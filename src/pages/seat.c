/* seat.c - which machine writes under a cover.
 *
 *   nobody's --insert--> a machine's, in the name of one session
 *        its session has ended: replaced, by another process of that machine or
 *        by another machine; the others see its version change at their next
 *        begin. */
#include "pages/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

const char pages_seat_key[1] = {'w'};

/* Look at the seat, and take it if it is nobody's. -EAGAIN: another was
 * quicker. */
static int try_seat(struct reef_pages *pages, struct reef_map_value *value)
{
	struct seat ours = {.session = reef_session(pages->reef)}, now;
	bool is_ours;
	int rc;

	memcpy(ours.machine, pages->machine, sizeof(ours.machine));
	rc = reef_map_peek(pages->map, pages_seat_key, sizeof(pages_seat_key),
			   value);
	if (rc == -ENOENT) {
		rc = reef_map_insert(
			pages->map, pages_seat_key, sizeof(pages_seat_key),
			&ours, sizeof(ours), REEF_MAP_PINNED, &pages->term);
		return rc == -EEXIST || rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	}
	if (rc)
		return rc;
	if (value->size != sizeof(now))
		return -REEF_ECORRUPT;
	memcpy(&now, value->bytes, sizeof(now));
	is_ours = !memcmp(now.machine, ours.machine, sizeof(now.machine));
	rc = pages_has_ended(pages, now.session);
	if (rc < 0)
		return rc;
	if (!rc && !is_ours && !REEF_MUTATED(PAGES_SEAT_IGNORED))
		return -EBUSY;
	if (!rc) {
		pages->term = value->version;
		return 0;
	}
	rc = reef_map_replace(pages->map, pages_seat_key,
			      sizeof(pages_seat_key), value->version, &ours,
			      sizeof(ours), REEF_MAP_PINNED, &pages->term);
	return rc == -ESTALE || rc == -ENOENT || rc == -REEF_EINDOUBT ? -EAGAIN
								      : rc;
}

int pages_take_seat(struct reef_pages *pages)
{
	struct reef_map_value value = {0};
	uint32_t attempt = 0;
	int rc;

	do
		rc = try_seat(pages, &value);
	while (rc == -EAGAIN && ++attempt < PAGES_ATTEMPTS);
	reef_map_value_free(&value);
	return rc == -EAGAIN ? -EBUSY : rc;
}

int pages_check_seat(struct reef_pages *pages, const struct reef_map_item *seat)
{
	int rc;

	if (!seat->status && pages->term == seat->value.version)
		return 0;
	if (seat->status && seat->status != -ENOENT)
		return seat->status;
	rc = pages_take_seat(pages);
	return rc == -EBUSY ? -EPERM : rc;
}
