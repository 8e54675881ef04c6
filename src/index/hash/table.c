/* table.c - make a table, open it, close it. */
#include "base/checksum.h"
#include "base/random.h"
#include "index/hash/hold.h"
#include "index/hash/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS 64
#define REMEMBERED 4096
/* With the block's header the root is one unit of the heap, so that 28 bits
 * name it. */
#define ROOT_SIZE (65536 - 8)
static_assert(sizeof(struct hash_root) <= ROOT_SIZE, "layout");

/* The kinds are registered in this file, which every program with tables has: a
 * linker leaves out a file of a library that nothing refers to. */
__attribute__((constructor)) static void register_kinds(void)
{
	hash_kinds_register();
	hash_intents_register();
}

static uint32_t head_crc(const struct hash_root_head *head)
{
	return reef_crc32c(0, head, offsetof(struct hash_root_head, crc));
}

static int write_root(struct reef_space *space, struct hash_root *root,
		      uint64_t at)
{
	uint64_t size = HASH_SUBTABLE_HEADER +
			(uint64_t)root->head.groups * HASH_GROUP_SIZE;
	struct hash_subtable *table = calloc(1, size);
	uint64_t *slots, subtable, i;
	int rc;

	if (!table)
		return -ENOMEM;
	*table = (struct hash_subtable){
		.magic = HASH_SUBTABLE_MAGIC,
		.root = at,
	};
	slots = (uint64_t *)(void *)(table + 1);
	for (i = 0; i < (uint64_t)root->head.groups * HASH_GROUP_SLOTS; i++)
		slots[i] = HASH_TAG_ONE; /* empty, in a subtable in use */
	rc = reef_alloc_kind(space, REEF_BLOCK_HASH_SUBTABLE, size, &subtable);
	if (!rc) {
		rc = reef_write(reef_space_handle(space), subtable, table,
				size);
		root->inner[1] = subtable | HASH_LEAF;
		if (!rc)
			rc = reef_write(reef_space_handle(space), at, root,
					sizeof(*root));
		if (rc)
			reef_free(space, subtable, 0);
	}
	free(table);
	return rc;
}

static int place_root(struct reef_space *space, struct hash_root *root,
		      uint64_t *at)
{
	uint64_t number;
	int rc = reef_alloc_kind(space, REEF_BLOCK_HASH_ROOT, ROOT_SIZE, at);

	if (rc)
		return rc;
	rc = reef_short_address(space, *at, &number);
	if (!rc) {
		reef_assert(!(number & 1023));
		root->head.id =
			(reef_now_ns() ^ *at) * UINT64_C(0x9e3779b97f4a7c15) ^
			root->head.seed;
		root->head.id |= 1;
		root->head.alive = root->head.id;
		root->head.crc = head_crc(&root->head);
		rc = write_root(space, root, *at);
	}
	if (!rc && !root->head.owner)
		rc = reef_keep(space, *at);
	if (rc)
		reef_free(space, *at, 0);
	return rc;
}

int hash_create(struct reef_space *space, const struct hash_options *options,
		uint64_t owner, uint64_t *out)
{
	uint32_t groups = options && options->groups ? options->groups : GROUPS;
	struct hash_root *root;
	uint64_t at;
	int rc;

	if (groups < HASH_GROUPS_MIN || groups > HASH_GROUPS_MAX)
		return -EINVAL;
	root = calloc(1, sizeof(*root));
	if (!root)
		return -ENOMEM;
	root->head.magic = HASH_ROOT_MAGIC;
	root->head.groups = groups;
	root->head.owner = owner;
	root->head.seed = options ? options->seed : 0;
	rc = root->head.seed ? 0
			     : reef_random_secret(&root->head.seed,
						  sizeof(root->head.seed));
	if (!rc)
		rc = place_root(space, root, &at);
	if (!rc)
		*out = at;
	free(root);
	return rc;
}

/* The next power of two. */
static uint32_t round_up(uint32_t count)
{
	uint32_t power = 1;

	while (power < count && power < 1u << 30)
		power *= 2;
	return power;
}

int hash_root_read(struct reef_space *space, uint64_t at,
		   struct hash_root_head *head)
{
	int rc = reef_read(reef_space_handle(space), at, head, sizeof(*head));

	if (index_is_nonsense(rc))
		return -REEF_ECORRUPT;
	if (!rc &&
	    (head->magic != HASH_ROOT_MAGIC || head->crc != head_crc(head) ||
	     head->groups < HASH_GROUPS_MIN || head->groups > HASH_GROUPS_MAX))
		rc = -REEF_ECORRUPT;
	return rc;
}

int hash_open(struct reef_space *space, uint64_t at, uint32_t remember,
	      struct hash_table **out)
{
	struct hash_table *table;
	struct hash_root_head head;
	uint32_t number = 0;
	int rc = hash_root_read(space, at, &head);

	if (!rc && head.alive != head.id)
		rc = -REEF_EDROPPED;
	if (!rc)
		rc = entry_find_number(space, at, &number);
	if (rc)
		return rc;
	table = calloc(1, sizeof(*table));
	if (!table)
		return -ENOMEM;
	table->memos_mask = round_up(remember ? remember : REMEMBERED) - 1;
	table->leaves = calloc(1, sizeof(*table->leaves));
	table->memos =
		calloc(table->memos_mask + (size_t)1, sizeof(*table->memos));
	if (!table->leaves || !table->memos) {
		hash_close(table);
		return -ENOMEM;
	}
	table->space = space;
	table->reef = reef_space_handle(space);
	table->root = at;
	table->home = (struct entry_home){
		.space = space,
		.reef = table->reef,
		.number = number,
		.kind = REEF_BLOCK_HASH_ENTRY,
	};
	table->groups = head.groups;
	table->is_copied = reef_space_copies(space) > 1;
	table->seed = head.seed;
	table->id = head.id;
	table->owner = head.owner;
	*out = table;
	return 0;
}

uint64_t hash_owner(const struct hash_table *table)
{
	return table->owner;
}

void hash_close(struct hash_table *table)
{
	if (!table)
		return;
	entry_home_fini(&table->home);
	hash_many_free(table->many);
	hash_holds_free(table->holds);
	free(table->leaves);
	free(table->memos);
	free(table);
}
