/* counter.c - see counter.h. */
#include "sync/counter.h"

#include <errno.h>

/* Of a draw: each further one needs another connection lost. Of a drop: each
 * needs somebody who drew between a READ and a CAS. Of an open: somebody who
 * made it and another who dropped it. */
#define DRAWS_MAX 64
#define MARKS_MAX 1000
#define OPENS_MAX 64

/* The name, if it is still bound to that one. */
static int unbind(const struct sync_object *object, const char *name)
{
	int rc = reef_name_unbind(object->space, name, object->generation);

	return rc == -ESTALE || rc == -ENOENT ? 0 : rc;
}

int sync_counter_open(struct reef_space *space, const char *name,
		      const struct sync_shape *shape, uint32_t flags,
		      struct sync_object *out, uint64_t *word)
{
	struct sync_object object;
	uint64_t value;
	int rc, i;

	for (i = 0; i < OPENS_MAX; i++) {
		rc = sync_object_open(space, name, shape, flags, &object);
		if (!rc)
			rc = reef_read(object.reef, object.body, &value, 8);
		if (rc)
			return rc;
		if (value < SYNC_COUNTER_DROPPED) {
			*out = object;
			*word = value;
			return 0;
		}
		rc = unbind(&object, name);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
	}
	return -EBUSY;
}

int sync_counter_draw(const struct sync_object *object, uint64_t step,
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

static int mark(const struct sync_object *object)
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
		      const struct sync_shape *shape, uint64_t *generation)
{
	struct sync_object object;
	int rc;

	rc = sync_object_open(space, name, shape, REEF_SYNC_EXISTING, &object);
	if (!rc)
		rc = mark(&object);
	/* A lost one can only be forgotten. */
	if (rc == -REEF_ELOST) {
		rc = sync_object_drop(space, name, shape->kind, &object);
		if (!rc && generation)
			*generation = object.generation;
		return rc;
	}
	if (!rc)
		rc = unbind(&object, name);
	if (!rc && generation)
		*generation = object.generation;
	return rc;
}
