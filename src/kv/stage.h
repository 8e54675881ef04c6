/* stage.h - a large value that comes piece by piece, straight into the memory
 * of the pool, and is put when all of it is there.
 *
 *	begin --> add, receive ... (is_whole) --> put --> end
 *	            `---> end: the client went away; its block is freed
 *
 * (1) Nobody else knows of the block before it is put, so whoever fills it need
 *     not keep words whole (F2). Should we die, recovery frees it as any block
 *     that no slot names.
 * (2) It belongs to a space, not to a map: maps may be closed and opened
 *     meanwhile. It ends before its space is closed.
 * (3) Only where memory is mapped: elsewhere pieces would be round trips, and a
 *     buffer with one WRITE is better.
 * (4) What goes wrong with the memory is told by put and read; until then
 *     pieces are taken, and lost.
 * (5) Nobody waits for whoever sends: a withdraw of the memory lasts no longer
 *     than it takes to copy 64 KiB out of the kernel.
 *
 * Thread: owner of the handle. */
#ifndef REEF_KV_STAGE_H
#define REEF_KV_STAGE_H

#include <reef/map.h>
#include <sys/types.h>

struct map_stage;

/* Begin a value for a key of that size, with `spare` more bytes after it that
 * are taken and forgotten. Caller owns *out.  -EOPNOTSUPP: (3).  -EINVAL: it is
 * too large for the map, or not large.  Else as reef_alloc: -ENOSPC, ... */
int map_stage_begin(struct reef_map *map, size_t key_size, size_t value_size,
		    size_t spare, struct map_stage **out);
/* End a stage; a block that was not put is freed. NULL is fine. */
void map_stage_end(struct map_stage *stage);

/* Receive what a socket has now, at most `most` bytes and what is missing, of
 * which there must be some. It never waits, whatever kind of socket that is.
 * Returns as recv(2) does: how many, 0 at the end, -1 with errno. */
ssize_t map_stage_receive(struct map_stage *stage, int fd, size_t most);
/* Add bytes that were received before; no more than are missing. */
void map_stage_add(struct map_stage *stage, const void *bytes, size_t size);
bool map_stage_is_whole(const struct map_stage *stage);

/* Put it, whole, under a key of the size that was told. As reef_map_put;
 * whatever it returns, it is not to be put again. */
int map_stage_put(struct map_stage *stage, struct reef_map *map,
		  const void *key, uint64_t expires_ms);

/* Copy what has come so far, spare bytes too; errors as reef_read. */
int map_stage_read(const struct map_stage *stage, void *to);

#endif
