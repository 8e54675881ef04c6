/* layout.h - the words of a file, as they lie in the pool.
 *
 *   directory  a tree of the space, "~files": folder's number, name -> entry
 *   entry      whose name it is: an inode, and the number of this binding. Of
 *              one that a rename put there also what it was before:
 *                inode, link | old link of that inode | former inode, link
 *              Bit 0 of the former inode: it is held, not deleted (13)
 *   inode      one block: what never changes, then
 *                link  the number of the entry that counts; 0: deleted
 *                size  63 SHRINKING | shrinks 17 | bytes 46
 *                end   the same: up to where appends have places
 *                words of the first chunks, then of index blocks
 *              Of a folder size is its *gate*, and there are no chunks:
 *                63 CLOSING | 62 GONE | count
 *   index      one block: words of 8,192 chunks
 *   word       63 DEAD | 62 FROZEN | count 24 | block, short address 38
 *              FROZEN with a block: the count is where its end was cut off
 *   chunk      one block: of which inode it is, and where; then bytes
 *   intent     one block, for as long as a rename takes: its two names
 *
 * (1) All words are changed by CAS, and never return to what they were within
 *     an epoch: link has numbers that are given once, the others count. The
 *     bytes of chunks are WRITTEN.
 * (2) A name is an entry's inode's if that inode's link is the entry's. If it
 *     is the entry's old link, a rename is under way, and the name is the
 *     former inode's, if that has the former link. Else it is nobody's. So one
 *     CAS of link takes a file from one name to the other, and takes the
 *     other's file away; whoever is to change such an entry helps the rename
 *     first.
 * (3) An inode that was deleted has its words DEAD before anything it names is
 *     freed: so nothing is added to it any more.
 * (4) What a handle remembers of a file (that it is there, its size, the words
 *     of chunks) it uses only in the epoch in which it read it, inside
 *     reef_enter, and words only until it sees another count of shrinks.
 *     Whoever takes a chunk away by a CAS frees it with REEF_FREE_LATER.
 * (5) A word is FROZEN when its chunk was punched out, or its end cut off: for
 *     readers at once, but for those that remember. Nobody writes there until
 *     the epoch is over in which it was seen FROZEN, so nobody remembers what
 *     was there; then 0, a new chunk, or a copy without the end takes its
 *     place. Whoever wants to write there does that. Punch waits for it, too,
 *     before it returns.
 * (6) A file becomes shorter by a CAS of size: the count of shrinks is one
 *     more, and it is SHRINKING. When the epoch is over nobody believes in the
 *     old size any more, so nobody reads or writes behind the new one: then
 *     the chunks there are taken away, and it is SHRINKING no more. While it
 *     is, nobody makes it longer, but whoever wants to finishes the shrink
 *     first. Whoever does takes away only what he has READ before he saw that
 *     the file was still SHRINKING, inside one reef_enter.
 * (7) A write that made the file longer, or a chunk, counts only if there was
 *     no shrink from before the write until after that; else it is done again.
 * (8) A folder's number is its inode's id, so those in it stay in it when it is
 *     renamed. It never gets another folder above it: so there are no loops.
 *     0 is the root, 1 has files without a name (reef_files_hold); both are
 *     always there, and have no inode.
 * (9) Whoever puts an entry into a folder looks at its gate afterwards: CLOSING
 *     is made open again, GONE means that the entry counts for nothing and is
 *     taken away. Whoever removes a folder makes its gate CLOSING, then looks
 *     for entries, then makes it GONE by a CAS: that is the end of it. So of
 *     an entry that is put and a folder that is removed one is seen by the
 *     other. Who helps a rename has looked at the gate, too.
 * (10) A rename's intent is there before its entry is, and until all of it is
 *     done: whoever recovers a dead session brings it to its end. So nothing
 *     is renamed long after its caller died.
 * (11) Attributes are WRITTEN, a word each.
 * (12) (R10) Whatever is read from shared memory is checked by whoever uses it.
 * (13) A rename may hold the former file, which lives on without a name, under
 *     a *ticket*: the number that follows the rename's own. That has an entry
 *     in folder 1 before the rename has its, and the former file's link becomes
 *     the ticket only after the renamed file's link is the rename's: by whoever
 *     would have deleted it. So the name is one file's or the other's, never
 *     nobody's; and what is held is found by its ticket. An entry of folder 1
 *     that counts for nothing yet goes only when the rename can happen no more,
 *     or the former file has another link: the intent names the ticket to
 *     whoever recovers it.
 *
 * Thread: any. */
#ifndef REEF_FILE_LAYOUT_H
#define REEF_FILE_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_DIRECTORY "~files"

/* --- words --- */

#define FILE_BLOCK_MASK ((UINT64_C(1) << 38) - 1)
#define FILE_COUNT_ONE (UINT64_C(1) << 38)
#define FILE_COUNT_MASK (((UINT64_C(1) << 24) - 1) << 38)
#define FILE_FROZEN (UINT64_C(1) << 62)
#define FILE_DEAD (UINT64_C(1) << 63)

static inline uint64_t file_word_block(uint64_t word)
{
	return word & FILE_BLOCK_MASK;
}

/* What follows `before`: its count is one more. content: a block, or 0, and
 * FROZEN or DEAD. */
static inline uint64_t file_word_after(uint64_t before, uint64_t content)
{
	return ((before + FILE_COUNT_ONE) & FILE_COUNT_MASK) | content;
}

#define FILE_SIZE_BITS 46
#define FILE_SIZE_MASK ((UINT64_C(1) << FILE_SIZE_BITS) - 1)
#define FILE_SHRINKING (UINT64_C(1) << 63)

static inline uint64_t file_size_of(uint64_t word)
{
	return word & FILE_SIZE_MASK;
}

/* How often it was shortened, and whether that is under way. */
static inline uint64_t file_shrinks_of(uint64_t word)
{
	return word & ~FILE_SIZE_MASK;
}

/* The same count, with SHRINKING, after one shrink more. */
static inline uint64_t file_shrinks_after(uint64_t word)
{
	return (file_shrinks_of(word) + FILE_SIZE_MASK + 1) | FILE_SHRINKING;
}

/* The gate of a folder. */
#define FOLDER_CLOSING (UINT64_C(1) << 63)
#define FOLDER_GONE (UINT64_C(1) << 62)

static inline uint64_t folder_gate_after(uint64_t gate, uint64_t state)
{
	return ((gate & (FOLDER_GONE - 1)) + 1) | state;
}

/* A FROZEN word of a chunk: from where on its bytes count no more. */
static inline uint32_t file_word_cut(uint64_t word)
{
	return (uint32_t)((word & FILE_COUNT_MASK) / FILE_COUNT_ONE);
}

static inline uint64_t file_word_frozen(uint64_t word, uint32_t cut)
{
	return FILE_FROZEN | cut * FILE_COUNT_ONE | file_word_block(word);
}

/* --- blocks --- */

#define FILE_DIRECT 96u	  /* chunks that the inode names itself */
#define FILE_INDEXES 512u /* index blocks */
#define FILE_INDEX_WORDS 8192u
#define FILE_CHUNKS_MAX                                                        \
	(FILE_DIRECT + (uint64_t)FILE_INDEXES * FILE_INDEX_WORDS)
#define FILE_CHUNK_MIN (UINT32_C(1) << 12)
#define FILE_CHUNK_MAX (UINT32_C(1) << 24)
#define FILE_CHUNK (UINT32_C(1) << 18)

#define FILE_INODE_MAGIC UINT64_C(0x3265646f6e694652) /* "RFinode2" */
#define FILE_INDEX_MAGIC UINT64_C(0x3178656469694652) /* "RFiidex1" */
#define FILE_CHUNK_MAGIC UINT64_C(0x316b6e7568634652) /* "RFchunk1" */

#define FILE_INTENT_MAGIC UINT64_C(0x32746e65746e4652) /* "RFntent2" */
/* Of those without a ticket. */
#define FILE_INTENT_MAGIC_1 UINT64_C(0x31746e65746e4652) /* "RFntent1" */

#define FILE_IS_SCRATCH 1u
#define FILE_IS_FOLDER 2u
#define FILE_IS_LINK 4u
#define FILE_FLAGS (FILE_IS_SCRATCH | FILE_IS_FOLDER | FILE_IS_LINK)

#define FOLDER_ROOT 0u
#define FOLDER_HELD 1u /* files without a name */

struct file_head { /* of an inode: what is read of it at once */
	/* These never change. */
	uint64_t magic;
	uint64_t id; /* its first link: no other inode has it */
	uint32_t chunk;
	uint32_t flags;
	uint32_t session; /* of a scratch file */
	uint32_t crc;	  /* of what is before it, and of where it was made */
	/* These do. */
	uint64_t link, size, end;
};

struct file_attributes {
	uint64_t mode;
	uint64_t owner; /* user 32 | group 32 */
	uint64_t changed_ns;
};

/* A folder: where its inode is, and the number; the root is 0, 0. */
struct file_folder {
	uint64_t at, number;
};

struct file_inode {
	struct file_head head;
	struct file_attributes attributes;
	/* Where it was made: neither changes. */
	struct file_folder folder;
	char name[256]; /* zeroes behind it */
	uint64_t direct[FILE_DIRECT];
	uint64_t indexes[FILE_INDEXES];
};

/* Of which file a chunk or an index is. */
struct file_part {
	uint64_t magic;
	uint64_t inode;	 /* address */
	uint64_t id;	 /* of the inode */
	uint64_t number; /* of the chunk, or of the index block */
	uint64_t reserved[3];
};
/* With the block's own header 64: so bytes begin on a line of the cache. */
#define FILE_PART 56u
static_assert(sizeof(struct file_part) == FILE_PART, "layout");

/* A rename under way. */
struct file_intent {
	uint64_t magic;
	struct file_folder from_folder, to_folder;
	uint32_t crc; /* of all else */
	uint32_t reserved;
	char from[256], to[256];
	uint64_t ticket; /* of what it holds; 0: it holds nothing */
};

/* --- entries of the directory --- */

#define FILE_KEY_MAX (8u + 255u)

struct file_entry {
	uint64_t inode, link;
	uint64_t from; /* the inode's link before; 0: it was made with `link` */
	uint64_t former, former_link; /* 0: there was none */
};

#define FILE_FORMER_HELD UINT64_C(1)

static inline uint64_t file_former_of(const struct file_entry *entry)
{
	return entry->former & ~FILE_FORMER_HELD;
}

/* The ticket that follows a rename's number, both of one session. */
static inline uint64_t file_ticket_of(uint64_t link)
{
	return (link & ~(uint64_t)UINT32_MAX) | (uint32_t)(link + 1);
}

#endif
