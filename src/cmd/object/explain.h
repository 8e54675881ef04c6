/* explain.h - `reef map explain`: where a key lies, who keeps memory from being
 * used again, and why reading the key would be slow. /api/v1/explain runs it.
 *
 * Thread: main. */
#ifndef REEF_CMD_OBJECT_EXPLAIN_H
#define REEF_CMD_OBJECT_EXPLAIN_H

#include "cmd/object/objects.h"

/* A verb of objects.h: words[3] is the key. */
int explain_key(void *map, const struct objects_wish *asked);

#endif
