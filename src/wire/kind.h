/* kind.h - the kinds of blocks: what a block is, in the low byte of its header
 * (pool/client/heap/heap.h). Recovery asks the kind's owner whether a block of
 * a dead session lives on (reef_kind_register).
 *
 * The numbers are in shared memory: none is ever given to something else. A
 * kind that a program does not know stays as it is.
 *
 * Thread: any. */
#ifndef REEF_WIRE_KIND_H
#define REEF_WIRE_KIND_H

enum reef_block_kind {
	REEF_BLOCK_RAW = 1,	   /* a user's: goes with its session, unless it
				    * is kept */
	REEF_BLOCK_PAGE = 2,	   /* a session's page of intents in a space */
	REEF_BLOCK_OBJECT = 3,	   /* the body of a named object: src/object */
	REEF_BLOCK_HASH_ROOT = 8,  /* of a hash table: src/index/hash */
	REEF_BLOCK_HASH_LEVEL = 9, /* a level of its directory */
	REEF_BLOCK_HASH_SUBTABLE = 10,
	REEF_BLOCK_HASH_ENTRY = 11, /* a key and its value */
	REEF_BLOCK_TREE_ROOT = 12,  /* of an ordered tree: src/index/tree */
	REEF_BLOCK_TREE_HEAD = 13,  /* a node of it, wherever it is now */
	REEF_BLOCK_TREE_BLOCK = 14, /* a node of it, at one time */
	REEF_BLOCK_TREE_ENTRY = 15,
	REEF_BLOCK_TXN = 16,	     /* a transaction: index/entry/intent.h */
	REEF_BLOCK_LOG_SEGMENT = 24, /* of a log: src/log */
	REEF_BLOCK_LOG_TAIL = 25,
	REEF_BLOCK_LOG_ENTRY = 26,   /* one that is longer than a cell */
	REEF_BLOCK_FILE_INODE = 32,  /* of a file: src/file */
	REEF_BLOCK_FILE_INDEX = 33,  /* words of its chunks */
	REEF_BLOCK_FILE_CHUNK = 34,  /* its bytes */
	REEF_BLOCK_FILE_INTENT = 35, /* a rename under way */
	REEF_BLOCK_KINDS = 256
};

#endif
