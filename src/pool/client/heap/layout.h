/* layout.h - the words of an extent, as heap.h lays them out.
 *
 * What is read from shared memory goes through these, and whoever uses a field
 * checks it: any session that may write the space may have written anything.
 *
 * Thread: any. */
#ifndef REEF_POOL_CLIENT_HEAP_LAYOUT_H
#define REEF_POOL_CLIENT_HEAP_LAYOUT_H

#include "pool/client/heap/heap.h"

#define HEAP_MAGIC UINT32_C(0x70616568) /* "heap" */
#define HEAP_FORMAT 2u
#define HEAP_TABLE_AT 64u   /* offset of the first chunk's word */
#define HEAP_TABLE_STEP 16u /* to the next chunk's */
#define HEAP_UNITS_PER_CHUNK 16u
#define HEAP_UNIT_SHIFT 16
#define HEAP_UNITS_MAX 65536u /* in 4 GiB */
#define HEAP_HEADER 8u	      /* bytes in front of a block's data */

/* The first word of an extent: format 32 (high), magic 32. */
#define HEAP_EXTENT_WORD (((uint64_t)HEAP_FORMAT << 32) | HEAP_MAGIC)

enum heap_chunk_state {
	HEAP_CHUNK_FREE,
	HEAP_CHUNK_OWNED,
	HEAP_CHUNK_ABANDONED, /* nobody's; its blocks were judged */
	HEAP_CHUNK_ADOPTING,  /* owned; others that hang together with it are
			       * not yet (adopt.c) */
};

enum heap_unit_kind {
	HEAP_UNIT_NEVER, /* never used; its memory is zero */
	HEAP_UNIT_SLAB,
	HEAP_UNIT_LARGE,
	HEAP_UNIT_INNER,
	HEAP_UNIT_SPARE,
};

enum heap_block_state {
	HEAP_BLOCK_LIVE = 1,
	HEAP_BLOCK_FREE,
	HEAP_BLOCK_RETIRED,
	HEAP_BLOCK_KEPT,
};

static inline uint64_t heap_address(uint32_t extent, uint64_t offset)
{
	return ((uint64_t)extent << 32) | offset;
}

/* --- chunk words --- */

/* heap: the number of the owner's heap that has it; FREE: 0. */
static inline uint64_t heap_chunk_word(uint32_t owner, uint16_t generation,
				       uint16_t heap, uint8_t state)
{
	return ((uint64_t)owner << 32) | ((uint64_t)generation << 16) |
	       ((uint64_t)(heap & REEF_HEAP_NUMBER_MAX) << 4) | (state & 15);
}

static inline uint32_t heap_chunk_owner(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline uint16_t heap_chunk_heap(uint64_t word)
{
	return (uint16_t)((word >> 4) & REEF_HEAP_NUMBER_MAX);
}

static inline uint16_t heap_chunk_generation(uint64_t word)
{
	return (uint16_t)(word >> 16);
}

/* A FREE word with bits that make no sense is not free: nobody claims it. */
static inline bool heap_chunk_is_free(uint64_t word)
{
	return (uint16_t)word == HEAP_CHUNK_FREE && word >> 32 == 0;
}

static inline bool heap_chunk_is_adopting(uint64_t word)
{
	return (word & 15) == HEAP_CHUNK_ADOPTING;
}

static inline bool heap_chunk_is_owned(uint64_t word, uint32_t owner)
{
	return owner && heap_chunk_owner(word) == owner &&
	       ((word & 15) == HEAP_CHUNK_OWNED ||
		heap_chunk_is_adopting(word));
}

static inline bool heap_chunk_is_abandoned(uint64_t word)
{
	return (uint16_t)word == HEAP_CHUNK_ABANDONED && word >> 32 == 0;
}

/* Generation 0 is for chunks that nobody ever had. */
static inline uint16_t heap_generation_after(uint16_t generation)
{
	return generation == UINT16_MAX ? 1 : (uint16_t)(generation + 1);
}

/* --- descriptors --- */

static inline uint64_t heap_descriptor(uint8_t kind, uint8_t class_index,
				       uint32_t units)
{
	return ((uint64_t)units << 32) | ((uint64_t)class_index << 8) | kind;
}

static inline uint8_t heap_descriptor_kind(uint64_t descriptor)
{
	return (uint8_t)descriptor;
}

static inline uint8_t heap_descriptor_class(uint64_t descriptor)
{
	return (uint8_t)(descriptor >> 8);
}

static inline uint32_t heap_descriptor_units(uint64_t descriptor)
{
	return (uint32_t)(descriptor >> 32);
}

static inline bool heap_descriptor_is_head(uint64_t descriptor)
{
	uint8_t kind = heap_descriptor_kind(descriptor);

	return kind == HEAP_UNIT_SLAB || kind == HEAP_UNIT_LARGE;
}

/* --- block headers --- */

static inline uint64_t heap_header(uint32_t session, uint16_t generation,
				   uint8_t state, uint8_t kind)
{
	return ((uint64_t)session << 32) | ((uint64_t)generation << 16) |
	       ((uint64_t)state << 8) | kind;
}

static inline uint16_t heap_header_generation(uint64_t header)
{
	return (uint16_t)(header >> 16);
}

static inline uint8_t heap_header_state(uint64_t header)
{
	return (uint8_t)(header >> 8);
}

static inline uint8_t heap_header_kind(uint64_t header)
{
	return (uint8_t)header;
}

static inline uint64_t heap_header_with(uint64_t header, uint8_t state)
{
	return (header & ~UINT64_C(0xff00)) | ((uint64_t)state << 8);
}

/* True if the block is out: somebody may know its address. */
static inline bool heap_header_is_out(uint64_t header)
{
	uint8_t state = heap_header_state(header);

	return state == HEAP_BLOCK_LIVE || state == HEAP_BLOCK_KEPT;
}

/* True for 0, and for what a heap may have written. */
static inline bool heap_header_is_sane(uint64_t header)
{
	uint8_t state = heap_header_state(header);

	return header == 0 ||
	       (header >> 32 != 0 && heap_header_kind(header) != 0 &&
		state >= HEAP_BLOCK_LIVE && state <= HEAP_BLOCK_KEPT);
}

/* --- an extent of a size --- */

struct heap_shape {
	uint32_t units, chunks; /* the last chunk may have fewer units */
	uint32_t first;		/* the first unit that can be handed out */
	uint32_t units_at;	/* offset of the descriptors */
};

static inline struct heap_shape heap_shape_of(uint64_t size)
{
	struct heap_shape shape;
	uint64_t end;

	if (size > (UINT64_C(1) << 32))
		size = UINT64_C(1) << 32;
	shape.units = (uint32_t)(size >> HEAP_UNIT_SHIFT);
	shape.chunks =
		(shape.units + HEAP_UNITS_PER_CHUNK - 1) / HEAP_UNITS_PER_CHUNK;
	shape.units_at = HEAP_TABLE_AT + shape.chunks * HEAP_TABLE_STEP;
	end = shape.units_at + (uint64_t)shape.units * 8;
	shape.first = (uint32_t)((end + REEF_UNIT_SIZE - 1) >> HEAP_UNIT_SHIFT);
	if (shape.first >= shape.units) /* too small for the tables */
		shape.units = shape.chunks = shape.first = 0;
	return shape;
}

/* The first unit of a chunk that can be handed out. The first chunk gives some
 * to the tables: 10 in an extent of 4 GiB. */
static inline uint32_t heap_chunk_first(const struct heap_shape *shape,
					uint32_t index)
{
	return index == 0 ? shape->first : index * HEAP_UNITS_PER_CHUNK;
}

/* The unit behind the last of a chunk. */
static inline uint32_t heap_chunk_end(const struct heap_shape *shape,
				      uint32_t index)
{
	uint32_t end = (index + 1) * HEAP_UNITS_PER_CHUNK;

	return end < shape->units ? end : shape->units;
}

/* --- size classes --- */

#define HEAP_CLASSES_MAX 96u
#define HEAP_SLAB_UNITS_MAX 16u
#define HEAP_CLASS_LARGE 0xffu /* a run of its own */

struct heap_class {
	uint32_t block_size; /* with its header */
	uint32_t units;	     /* of a slab */
	uint32_t blocks;     /* in a slab */
	uint64_t inverse;    /* 2^40 / block_size, rounded up */
};

struct heap_classes {
	struct heap_class all[HEAP_CLASSES_MAX];
	uint32_t count;
	uint32_t largest;	 /* block size of the last */
	uint8_t small[1024 + 1]; /* by (size + 63) / 64, up to 64 KiB */
};

/* The classes of HEAP_FORMAT: the same for everyone. */
void heap_classes_init(struct heap_classes *classes);

/* As heap_class_of, for more than 64 KiB. */
uint32_t heap_class_of_big(const struct heap_classes *classes, uint64_t size);

/* The class for `size` bytes with the header; HEAP_CLASS_LARGE: no class is
 * that large. */
static inline uint32_t heap_class_of(const struct heap_classes *classes,
				     uint64_t size)
{
	if (__builtin_expect(size > UINT64_C(64) << 10, 0))
		return heap_class_of_big(classes, size);
	return size <= 32 ? 0 : classes->small[(size + 63) / 64];
}

#endif
