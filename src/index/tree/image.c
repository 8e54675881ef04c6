/* image.c - a node's block as it was read, taken apart; and put together. */
#include "index/tree/image.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tree_compare(const void *a, uint32_t a_size, const void *b, uint32_t b_size)
{
	uint32_t most = a_size < b_size ? a_size : b_size;
	int order = most ? memcmp(a, b, most) : 0;

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* --- intervals --- */

static uint32_t interval_crc(const uint8_t *bytes, uint32_t count,
			     uint32_t size, uint64_t id)
{
	uint32_t crc = 0, at = tree_records_at(count);
	uint8_t byte = (uint8_t)count;

	if (!REEF_MUTATED(TREE_BASE_NO_ID))
		crc = reef_crc32c(crc, &id, sizeof(id));
	crc = reef_crc32c(crc, &byte, 1);
	return reef_crc32c(crc, bytes + at, size - at);
}

bool tree_interval_walk(struct tree_walk *walk, const void *bytes,
			uint32_t size)
{
	const volatile struct tree_interval *interval = bytes;
	uint32_t count, at;

	if (unlikely(size < sizeof(*interval)))
		return false;
	count = interval->count;
	at = tree_records_at(count);
	if (unlikely(!count || count > TREE_INTERVAL_RECORDS || size < at))
		return false;
	walk->at = (const uint8_t *)bytes + at;
	walk->end = (const uint8_t *)bytes + size;
	walk->marks = (const uint8_t *)bytes + TREE_MARKS_AT;
	walk->left = count;
	walk->index = UINT32_MAX;
	return true;
}

static bool interval_open(struct tree_walk *walk, const void *bytes,
			  uint32_t size, uint64_t id)
{
	const struct tree_interval *interval = bytes;

	return tree_interval_walk(walk, bytes, size) &&
	       interval->crc == interval_crc(bytes, walk->left, size, id);
}

bool tree_interval_begin(struct tree_walk *walk, const void *bytes,
			 uint32_t size, uint64_t id)
{
	const struct tree_interval *interval = bytes;

	return size >= sizeof(*interval) && interval->alive == id &&
	       interval_open(walk, bytes, size, id);
}

static bool take(struct tree_walk *walk, void *to, size_t size)
{
	if ((size_t)(walk->end - walk->at) < size)
		return false;
	memcpy(to, walk->at, size);
	walk->at += size;
	return true;
}

static bool take_bytes(struct tree_walk *walk, const uint8_t **to, size_t size)
{
	if ((size_t)(walk->end - walk->at) < size)
		return false;
	*to = walk->at;
	walk->at += size;
	return true;
}

/* The sizes of a record; returns its kind, TREE_LONG: it is none. */
static enum tree_kind take_sizes(struct tree_walk *walk)
{
	uint16_t sizes[3];
	uint8_t head[TREE_RECORD_HEAD], kind;
	uint32_t bits;

	if (!take(walk, head, sizeof(head)))
		return TREE_LONG;
	bits = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
	walk->shared = bits >> 2 & 63;
	walk->rest_size = bits >> 8 & 63;
	walk->value_size = bits >> 14;
	if ((bits & 3) != TREE_LONG)
		return (enum tree_kind)(bits & 3);
	if (!take(walk, &kind, 1) || !take(walk, sizes, sizeof(sizes)) ||
	    kind >= TREE_LONG)
		return TREE_LONG;
	walk->shared = sizes[0];
	walk->rest_size = sizes[1];
	walk->value_size = sizes[2];
	return (enum tree_kind)kind;
}

int tree_interval_odd(struct tree_walk *walk)
{
	enum tree_kind kind = take_sizes(walk);

	walk->stamp = walk->outside = 0;
	if (kind == TREE_LONG || !take(walk, &walk->version, 8) ||
	    (kind == TREE_STAMPED && !take(walk, &walk->stamp, 8)) ||
	    !take_bytes(walk, &walk->rest, walk->rest_size) ||
	    !take_bytes(walk, &walk->value, walk->value_size))
		return -EBADMSG;
	if (kind == TREE_OUTSIDE) {
		if (walk->value_size != 8)
			return -EBADMSG;
		memcpy(&walk->outside, walk->value, 8);
		walk->value = NULL;
		walk->value_size = 0;
	}
	return 1;
}

/* --- taking apart --- */

static uint32_t about_crc(const uint8_t *bytes, uint32_t end)
{
	const struct tree_block *block = (const void *)bytes;
	uint32_t crc = reef_crc32c(0, &block->shape, sizeof(block->shape));

	crc = reef_crc32c(crc, &block->right,
			  offsetof(struct tree_block, crc) -
				  offsetof(struct tree_block, right));
	return reef_crc32c(crc, &block->low_size,
			   end - offsetof(struct tree_block, low_size));
}

static int parse_front(struct tree_image *image, uint32_t number)
{
	const struct tree_block *block = (const void *)image->bytes;
	uint32_t end, at, fences;

	end = (uint32_t)(block->shape >> 32);
	image->records_count = (uint32_t)block->shape & 4095;
	image->intervals_count = (uint32_t)(block->shape >> 12) & 4095;
	image->level = (uint32_t)(block->shape >> 24) & 255;
	fences = (uint32_t)block->low_size + block->high_size;
	at = (uint32_t)TREE_ABOUT_AT + fences;
	at = (at + 1) & ~1u;
	if (end > image->size || end & 7 || block->number != number ||
	    at + 2 * (image->intervals_count + 1) > end ||
	    block->crc != about_crc(image->bytes, end))
		return -EBADMSG;
	image->id = block->same_id;
	image->head = block->head;
	image->right = block->right;
	memcpy(image->slots, block->slots, sizeof(image->slots));
	image->low = image->bytes + TREE_ABOUT_AT;
	image->low_size = block->low_size;
	image->high = block->right ? image->low + image->low_size : NULL;
	image->high_size = block->high_size;
	image->prefix_size = block->prefix_size;
	if (!image->id || image->prefix_size > image->low_size)
		return -EBADMSG;
	for (uint32_t i = 0; i <= image->intervals_count; i++) {
		uint16_t words;

		memcpy(&words, image->bytes + at + (size_t)2 * i, 2);
		image->intervals[i] = (uint32_t)words * 8;
		if (image->intervals[i] > image->size ||
		    image->intervals[i] < (i ? image->intervals[i - 1] : end))
			return -EBADMSG;
	}
	return 0;
}

/* Append the key of the record that the walk is at; *room is how much there is
 * for keys. */
static int append_key(struct tree_image *image, const struct tree_walk *walk,
		      const struct tree_record *before, size_t *used,
		      size_t *room, uint32_t *size)
{
	uint32_t kept = image->prefix_size + walk->shared;
	size_t offset = before ? (size_t)(uintptr_t)before->key : 0;
	uint8_t *keys;

	if (walk->shared && (!before || kept > before->key_size))
		return -EBADMSG;
	*size = kept + walk->rest_size;
	if (*size > TREE_KEY_MAX)
		return -EBADMSG;
	/* An empty key has a place, too. */
	if (*used + *size >= *room) {
		*room = 2 * (*used + *size) + 64;
		keys = realloc(image->keys, *room);
		if (!keys)
			return -ENOMEM;
		image->keys = keys;
	}
	keys = image->keys + *used;
	memcpy(keys, image->low, image->prefix_size);
	if (walk->shared)
		memcpy(keys + image->prefix_size,
		       image->keys + offset + image->prefix_size, walk->shared);
	memcpy(keys + kept, walk->rest, walk->rest_size);
	*used += *size;
	return 0;
}

/* Until all keys are there a record's key is an offset among them. */
static int parse_interval(struct tree_image *image, uint32_t interval,
			  uint32_t *records, size_t *used, size_t *room)
{
	uint32_t at = image->intervals[interval];
	const struct tree_record *before = NULL;
	struct tree_walk walk;
	int rc;

	if (!interval_open(&walk, image->bytes + at,
			   image->intervals[interval + 1] - at, image->id))
		return -EBADMSG;
	while ((rc = tree_interval_next(&walk)) == 1) {
		struct tree_record *record = &image->records[*records];
		size_t key = *used;
		uint32_t size;

		if (*records == image->records_count)
			return -EBADMSG;
		rc = append_key(image, &walk, before, used, room, &size);
		if (rc)
			return rc;
		*record = (struct tree_record){
			.key = (const uint8_t *)(uintptr_t)key,
			.key_size = size,
			.value = walk.value,
			.value_size = walk.value_size,
			.version = walk.version,
			.stamp = walk.stamp,
			.outside = walk.outside,
			.mark_at = at + TREE_MARKS_AT + walk.index,
			.mark = walk.marks[walk.index],
		};
		before = record;
		++*records;
	}
	return rc;
}

/* True if a node begins before it ends: so whoever goes on at its end comes to
 * an end, too. */
static bool are_fences(const struct tree_image *image)
{
	return !image->high || tree_compare(image->low, image->low_size,
					    image->high, image->high_size) < 0;
}

bool tree_image_has_room(const struct tree_image *image,
			 const struct tree_record *records, uint32_t count)
{
	const struct tree_record *last;

	if (!count)
		return true;
	last = &records[count - 1];
	return tree_compare(records->key, records->key_size, image->low,
			    image->low_size) >= 0 &&
	       (!image->high ||
		tree_compare(last->key, last->key_size, image->high,
			     image->high_size) < 0);
}

int tree_image_parse(struct tree_image *image, uint32_t number)
{
	uint32_t records = 0, i;
	size_t used = 0, room = 0;
	uint64_t shape;
	int rc;

	if (image->size < sizeof(struct tree_block))
		return -EBADMSG;
	memcpy(&shape, image->bytes + offsetof(struct tree_block, shape), 8);
	image->intervals =
		calloc((shape >> 12 & 4095) + 1, sizeof(*image->intervals));
	if (!image->intervals)
		return -ENOMEM;
	rc = parse_front(image, number);
	if (rc)
		return rc;
	image->firsts =
		calloc(image->intervals_count + 1u, sizeof(*image->firsts));
	image->records =
		calloc(image->records_count + 1u, sizeof(*image->records));
	if (!image->firsts || !image->records)
		return -ENOMEM;
	for (i = 0; i < image->intervals_count && !rc; i++) {
		image->firsts[i] = records;
		rc = parse_interval(image, i, &records, &used, &room);
	}
	if (!rc && records != image->records_count)
		rc = -EBADMSG;
	if (rc)
		return rc;
	image->firsts[i] = records;
	for (i = 0; i < records; i++)
		image->records[i].key =
			image->keys + (uintptr_t)image->records[i].key;
	for (i = 1; i < records; i++)
		if (tree_compare(image->records[i - 1].key,
				 image->records[i - 1].key_size,
				 image->records[i].key,
				 image->records[i].key_size) >= 0)
			return -EBADMSG;
	return are_fences(image) && tree_image_has_room(image, image->records,
							records)
		       ? 0
		       : -EBADMSG;
}

void tree_image_free(struct tree_image *image)
{
	free(image->bytes);
	free(image->intervals);
	free(image->firsts);
	free(image->records);
	free(image->keys);
	*image = (struct tree_image){0};
}

int tree_image_find(const struct tree_image *image, const void *key,
		    uint32_t key_size)
{
	uint32_t low = 0, high = image->records_count, middle;
	int order;

	while (low < high) {
		middle = (low + high) / 2;
		order = tree_compare(image->records[middle].key,
				     image->records[middle].key_size, key,
				     key_size);
		if (!order)
			return (int)middle;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return -1;
}

/* --- putting together --- */

struct build {
	uint8_t *bytes;
	uint32_t used, room, prefix_size;
};

static int reserve(struct build *build, uint32_t size)
{
	uint8_t *bytes;

	if (build->used + size <= build->room)
		return 0;
	bytes = realloc(build->bytes, 2 * (size_t)(build->used + size));
	if (!bytes)
		return -ENOMEM;
	build->bytes = bytes;
	build->room = 2 * (build->used + size);
	return 0;
}

static void add(struct build *build, const void *bytes, uint32_t size)
{
	if (size)
		memcpy(build->bytes + build->used, bytes, size);
	build->used += size;
}

static uint32_t shared_of(const struct build *build,
			  const struct tree_record *record,
			  const struct tree_record *before)
{
	if (!before)
		return 0;
	return tree_common(before->key, before->key_size, record->key,
			   record->key_size) -
	       build->prefix_size;
}

static enum tree_kind kind_of(const struct tree_record *record)
{
	if (record->outside)
		return TREE_OUTSIDE;
	if (REEF_MUTATED(TREE_STAMP_LOST))
		return TREE_PLAIN;
	return record->stamp ? TREE_STAMPED : TREE_PLAIN;
}

/* How many bytes a record takes in an interval. */
static uint32_t size_of(const struct build *build,
			const struct tree_record *record,
			const struct tree_record *before)
{
	uint32_t shared = shared_of(build, record, before);
	uint32_t rest = record->key_size - build->prefix_size - shared;
	uint32_t value = record->outside ? 8 : record->value_size;

	return TREE_RECORD_HEAD +
	       (shared > 63 || rest > 63 || value > 1023 ? TREE_LONG_HEAD : 0) +
	       8 + (kind_of(record) == TREE_STAMPED ? 8 : 0) + rest + value;
}

static void add_record(struct build *build, const struct tree_record *record,
		       const struct tree_record *before)
{
	uint32_t shared = shared_of(build, record, before);
	uint32_t rest = record->key_size - build->prefix_size - shared;
	uint32_t value = record->outside ? 8 : record->value_size;
	enum tree_kind kind = kind_of(record);
	uint32_t bits = kind | shared << 2 | rest << 8 | value << 14;
	bool is_long = shared > 63 || rest > 63 || value > 1023;
	uint16_t sizes[3] = {(uint16_t)shared, (uint16_t)rest, (uint16_t)value};
	uint8_t head[TREE_RECORD_HEAD], byte = (uint8_t)kind;

	if (is_long)
		bits = TREE_LONG;
	head[0] = (uint8_t)bits;
	head[1] = (uint8_t)(bits >> 8);
	head[2] = (uint8_t)(bits >> 16);
	add(build, head, sizeof(head));
	if (is_long) {
		add(build, &byte, 1);
		add(build, sizes, sizeof(sizes));
	}
	add(build, &record->version, 8);
	if (kind == TREE_STAMPED)
		add(build, &record->stamp, 8);
	add(build, record->key + record->key_size - rest, rest);
	if (record->outside)
		add(build, &record->outside, 8);
	else
		add(build, record->value, value);
}

/* How many records from the first go into one interval. */
static uint32_t count_together(const struct build *build,
			       const struct tree_record *records,
			       uint32_t count)
{
	uint32_t size = 0, i;

	for (i = 0; i < count && i < TREE_INTERVAL_RECORDS; i++) {
		size += size_of(build, &records[i], i ? &records[i - 1] : NULL);
		if (i && tree_records_at(i + 1) + size > TREE_INTERVAL_MAX)
			break;
	}
	return i;
}

static int add_interval(struct build *build, const struct tree_record *records,
			uint32_t count, uint64_t id)
{
	uint32_t at = build->used, size = tree_records_at(count), i;
	struct tree_interval *interval;
	int rc;

	for (i = 0; i < count; i++)
		size += size_of(build, &records[i], i ? &records[i - 1] : NULL);
	size = (size + 7) & ~7u;
	rc = reserve(build, size);
	if (rc)
		return rc;
	memset(build->bytes + at, 0, size);
	build->used += tree_records_at(count);
	for (i = 0; i < count; i++)
		add_record(build, &records[i], i ? &records[i - 1] : NULL);
	build->used = at + size;
	interval = (void *)(build->bytes + at);
	interval->alive = id;
	interval->count = (uint8_t)count;
	interval->crc = interval_crc(build->bytes + at, count, size, id);
	return 0;
}

/* Write what is before the intervals, with room for where they are. */
static int add_front(struct build *build, const struct tree_shape *shape,
		     uint32_t intervals)
{
	uint32_t end = (uint32_t)TREE_ABOUT_AT + shape->low_size +
		       (shape->high ? shape->high_size : 0) + 1 +
		       2 * (intervals + 1);
	struct tree_block *block;
	int rc;

	end = (end + 7) & ~7u;
	rc = reserve(build, end);
	if (rc)
		return rc;
	reef_assert(build->bytes);
	memset(build->bytes, 0, end);
	block = (void *)build->bytes;
	*block = (struct tree_block){
		.id = shape->id,
		.same_id = shape->id,
		.head = shape->head,
		.right = shape->right,
		.number = shape->number,
		.low_size = (uint16_t)shape->low_size,
		.high_size = (uint16_t)(shape->high ? shape->high_size : 0),
		.prefix_size = (uint16_t)build->prefix_size,
	};
	build->used = (uint32_t)TREE_ABOUT_AT;
	add(build, shape->low, shape->low_size);
	if (shape->high)
		add(build, shape->high, shape->high_size);
	build->used = end;
	return 0;
}

static void finish(struct build *build, const struct tree_shape *shape,
		   uint32_t records, uint32_t intervals, const uint32_t *at)
{
	struct tree_block *block = (void *)build->bytes;
	uint32_t directory = ((uint32_t)TREE_ABOUT_AT + block->low_size +
			      block->high_size + 1) &
			     ~1u;
	uint32_t end = at[0];

	for (uint32_t i = 0; i <= intervals; i++) {
		uint16_t words = (uint16_t)(at[i] / 8);

		memcpy(build->bytes + directory + (size_t)2 * i, &words, 2);
	}
	block->shape = tree_shape_make(records, intervals, shape->level, end);
	block->crc = about_crc(build->bytes, end);
}

int tree_block_build(const struct tree_shape *shape,
		     const struct tree_record *records, uint32_t count,
		     uint8_t **bytes, uint32_t *size)
{
	struct build build = {0};
	uint32_t *at = calloc(count + 2u, sizeof(*at)), intervals = 0, i, some;
	int rc = at ? 0 : -ENOMEM;

	if (shape->high)
		build.prefix_size = tree_common(shape->low, shape->low_size,
						shape->high, shape->high_size);
	for (i = 0; i < count; i += some, intervals++)
		some = count_together(&build, &records[i], count - i);
	if (!rc)
		rc = add_front(&build, shape, intervals);
	for (i = 0, intervals = 0; i < count && !rc; i += some) {
		some = count_together(&build, &records[i], count - i);
		at[intervals++] = build.used;
		rc = add_interval(&build, &records[i], some, shape->id);
	}
	if (!rc) {
		at[intervals] = build.used;
		*size = ((build.used + 8 + 63) & ~63u) - 8;
		if (*size > TREE_BLOCK_MAX || count > 4095)
			rc = -EFBIG;
	}
	if (!rc)
		rc = reserve(&build, *size - build.used);
	if (!rc) {
		memset(build.bytes + build.used, 0, *size - build.used);
		finish(&build, shape, count, intervals, at);
		*bytes = build.bytes;
	} else {
		free(build.bytes);
	}
	free(at);
	return rc;
}

uint32_t tree_record_cost(const struct tree_record *record,
			  const struct tree_record *before)
{
	uint32_t shared = before ? tree_common(before->key, before->key_size,
					       record->key, record->key_size)
				 : 0;

	/* 8: its part of an interval's head. */
	return 8 + TREE_RECORD_HEAD + 8 + (record->stamp ? 8 : 0) +
	       record->key_size - shared +
	       (record->outside ? 8 : record->value_size);
}
