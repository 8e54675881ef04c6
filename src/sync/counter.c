/* counter.c - see counter.h. */
#include "sync/counter.h"

#include <errno.h>

/* Of a draw: each further one needs another connection lost. Of a drop: each
 * needs somebody who drew between a READ and a CAS. Of an open: somebody who
 * made it and another who dropped it. */
#define DRAWS_MAX 64
#define MARKS_MAX 1000
#define OPENS_MAX 64

int sync_counter_open(struct reef_space *space, const char *name,
		      const struct object_shape *shape, uint32_t flags,
		      struct object *out, uint64_t *word)
{
	struct object object;
	uint64_t value;
	int rc, i;

	for (i = 0; i < OPENS_MAX; i++) {
		rc = object_open(space, name, shape, flags, &object);
		if (!rc)
			rc = reef_read(object.reef, object.body, &value, 8);
		if (rc)
			return rc;
		if (value < SYNC_COUNTER_DROPPED) {
			*out = object;
			*word = value;
			return 0;
		}
		rc = object_unbind(&object, name);
		if (rc && rc != -ENOENT && rc != -REEF_EINDOUBT)
			return rc;
	}
	return -EBUSY;
}

int sync_counter_draw(const struct object *object, uint64_t step,
		      uint64_t *before)
{
	uint64_t value;
	int rc, i;

	for (i = 0; i < DRAWS_MAX; i++) {
		rc = reef_faa(object->reef, object->body, step, &value);
		if (rc == -REEF_EINDOUBT)
			continue;
		if (rc)
			return rc;
		if (value >= SYNC_COUNTER_DROPPED)
			return -ENOENT;
		if (value >= SYNC_COUNTER_END ||
		    step > SYNC_COUNTER_END - value)
			return -EOVERFLOW;
		*before = value;
		return 0;
	}
	return -REEF_EINDOUBT;
}

static int mark_dropped(const struct object *object)
{
	uint64_t value, before;
	int rc, i;

	rc = reef_read(object->reef, object->body, &value, 8);
	for (i = 0; !rc && i < MARKS_MAX; i++) {
		if (value >= SYNC_COUNTER_DROPPED)
			return 0;
		rc = reef_cas(object->reef, object->body, value,
			      SYNC_COUNTER_DROPPED, &before);
		if (rc == -REEF_EINDOUBT)
			rc = reef_read(object->reef, object->body, &value, 8);
		else if (!rc && before == value)
			return 0;
		else if (!rc)
			value = before;
	}
	return rc ? rc : -EBUSY;
}

int sync_counter_drop(struct reef_space *space, const char *name,
		      const struct object_shape *shape, uint64_t *generation)
{
	struct object object;
	int rc;

	rc = object_open(space, name, shape, OBJECT_EXISTING, &object);
	if (!rc)
		rc = mark_dropped(&object);
	/* A lost object can only be forgotten. */
	if (rc == -REEF_ELOST) {
		rc = object_forget(space, name, 0, generation);
		/* Another dropped the lost one, and made a new one. */
		return rc == -EAGAIN ? -EBUSY : rc;
	}
	if (rc)
		return rc;
	rc = object_unbind(&object, name);
	/* Another client that drops it was quicker. */
	if (rc == -ENOENT)
		rc = 0;
	if (!rc && generation)
		*generation = object.generation;
	return rc;
}
