/* counter.h - an object that is one word which only grows: what a sequencer and
 * a clock stand on.
 *
 *    0 .. 2^63-1     what it stands at
 *    2^63 ..         it has run out
 *    2^63 + 2^62 ..  it was dropped
 *
 * (1) The word is the first of the body, and changed by FAA and CAS only.
 * (2) Dropping marks the word, then unbinds the name: whoever still has it open
 *     gets -ENOENT, and can draw nothing beside the next object of that name.
 *     Whoever opens a marked one finishes the drop.
 * (3) Nobody adds more than SYNC_COUNTER_STEP at once, and nobody adds again
 *     after it found the word run out or dropped: so the word does not wrap
 *     around, short of thousands who all come too late.
 *
 * Thread: owner of the handle. */
#ifndef REEF_SYNC_COUNTER_H
#define REEF_SYNC_COUNTER_H

#include "object/object.h"

#include <reef/sync.h>

#define SYNC_COUNTER_END (UINT64_C(1) << 63)
#define SYNC_COUNTER_DROPPED (UINT64_C(3) << 62)
#define SYNC_COUNTER_STEP (UINT64_C(1) << 48)

static_assert(REEF_SYNC_EXISTING == OBJECT_EXISTING, "one flag");

/* As object_open; *word is what it stood at. */
int sync_counter_open(struct reef_space *space, const char *name,
		      const struct object_shape *shape, uint32_t flags,
		      struct object *out, uint64_t *word);

/* Draw: add `step`, *before is what it stood at. Of what was in doubt nothing
 * is used, it is drawn again.  -EOVERFLOW: it has run out.  -ENOENT: dropped.
 * -REEF_EINDOUBT: the connection was lost again and again. */
int sync_counter_draw(const struct object *object, uint64_t step,
		      uint64_t *before);

/* Mark it and unbind the name. *generation (may be NULL) is that of the name.
 * -EBUSY: others draw from it without a pause.  Else as object_drop. */
int sync_counter_drop(struct reef_space *space, const char *name,
		      const struct object_shape *shape, uint64_t *generation);

#endif
