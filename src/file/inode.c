/* inode.c - is it there; its words; chunks that come, go and are copied.
 *
 * A chunk's word:
 *
 *   0 --file_install--> chunk --file_empty_word: punch--> FROZEN
 *   ^                     |  ^ |                             | |
 *   +--truncate-----------+  | | cut_word (shape.c)           | |
 *   +--file_thaw-------------|-|-----------------------------+ |
 *                            | v                               |
 *              file_thaw: FROZEN, cut, chunk                   |
 *                 a copy     +--------------file_install-------+
 *   any --file_destroy--> DEAD */
#include "file/internal.h"

#include "base/checksum.h"
#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KILL_BATCH 64u

/* --- the inode --- */

uint64_t file_new_links(struct reef *reef, uint32_t count)
{
	static _Atomic uint32_t given;

	return (uint64_t)reef_session(reef) << 32 |
	       (atomic_fetch_add(&given, count) + 1);
}

uint64_t file_new_link(struct reef *reef)
{
	return file_new_links(reef, 1);
}

bool file_is_chunk_size(uint32_t chunk)
{
	return chunk >= FILE_CHUNK_MIN && chunk <= FILE_CHUNK_MAX &&
	       (chunk & (chunk - 1)) == 0;
}

bool file_is_head(const struct file_head *head)
{
	return head->magic == FILE_INODE_MAGIC && head->id &&
	       file_is_chunk_size(head->chunk) && !(head->flags & ~FILE_FLAGS);
}

uint32_t file_crc(const struct file_inode *inode)
{
	uint32_t crc =
		reef_crc32c(0, &inode->head, offsetof(struct file_head, crc));

	crc = reef_crc32c(crc, &inode->folder, sizeof(inode->folder));
	return reef_crc32c(crc, inode->name, sizeof(inode->name));
}

int file_init(struct reef_file *file, struct reef_space *space, uint64_t at,
	      const struct file_head *head)
{
	uint64_t most = FILE_CHUNKS_MAX * head->chunk;

	*file = (struct reef_file){
		.space = space,
		.reef = reef_space_handle(space),
		.inode = at,
		.id = head->id,
		.chunk = head->chunk,
		.flags = head->flags,
		.session = head->session,
		.size_max = most < FILE_SIZE_MASK ? most : FILE_SIZE_MASK,
		.epoch = FILE_NO_EPOCH,
		.known = calloc(FILE_KNOWN_MIN, sizeof(struct file_known)),
		.known_count = FILE_KNOWN_MIN,
	};
	return file->known ? 0 : -ENOMEM;
}

struct reef_access file_read_head(const struct reef_file *file,
				  struct file_head *head)
{
	return (struct reef_access){
		.kind = REEF_READ,
		.address = file->inode,
		.local = head,
		.length = sizeof(*head),
	};
}

int file_take_head(struct reef_file *file, const struct file_head *head)
{
	uint32_t i;

	if (!file_is_head(head) || head->id != file->id || !head->link)
		return -REEF_EDROPPED;
	if (file_shrinks_of(head->size) != file_shrinks_of(file->size))
		for (i = 0; i < file->known_count; i++)
			file->known[i].epoch = FILE_NO_EPOCH;
	file->size = head->size;
	file->epoch = reef_epoch(file->reef);
	return 0;
}

int file_look(struct reef_file *file)
{
	struct file_head head;
	struct reef_access access = file_read_head(file, &head);
	int rc;

	if (file->epoch == reef_epoch(file->reef))
		return 0;
	rc = reef_execute(file->reef, &access, 1);
	return rc ? rc : file_take_head(file, &head);
}

/* --- words --- */

struct file_known *file_known(const struct reef_file *file, uint64_t number)
{
	struct file_known *known =
		&file->known[number & (file->known_count - 1)];

	return known->word && known->number == number ? known : NULL;
}

void file_forget(struct reef_file *file, uint64_t number)
{
	struct file_known *known = file_known(file, number);

	if (known)
		known->word = 0;
}

/* Make room for as many chunks as the file has, up to a limit. */
static void grow_known(struct reef_file *file, uint64_t number)
{
	uint32_t count = file->known_count;
	struct file_known *known;

	while (count <= number && count < FILE_KNOWN_MAX)
		count *= 2;
	if (count == file->known_count)
		return;
	known = calloc(count, sizeof(*known));
	if (!known)
		return; /* it does with what it has */
	for (uint32_t i = 0; i < file->known_count; i++)
		if (file->known[i].word)
			known[file->known[i].number & (count - 1)] =
				file->known[i];
	free(file->known);
	file->known = known;
	file->known_count = count;
}

int file_bytes_at(struct reef_file *file, uint64_t word, uint64_t *at)
{
	int rc = reef_long_address(file->space, file_word_block(word), at);

	*at += rc ? 0 : FILE_PART;
	return index_is_nonsense(rc) || rc == -ERANGE ? -REEF_ECORRUPT : rc;
}

int file_note_word(struct reef_file *file, uint64_t number, uint64_t word)
{
	struct file_known *known;
	uint64_t at;
	int rc;

	file_forget(file, number);
	if (word & FILE_DEAD)
		return -REEF_EDROPPED;
	/* What is not a chunk that stays is looked at each time: another may
	 * put one there and write into it, in this epoch. */
	if (!file_word_block(word) || word & FILE_FROZEN)
		return 0;
	rc = file_bytes_at(file, word, &at);
	if (rc)
		return rc;
	grow_known(file, number);
	known = &file->known[number & (file->known_count - 1)];
	*known = (struct file_known){number, word, at, reef_epoch(file->reef)};
	return 0;
}

int file_write_unshared(struct reef *reef, struct reef_access *accesses,
			uint32_t count)
{
	uint32_t attempt = 0;
	int rc;

	do
		rc = reef_execute(reef, accesses, count);
	while (rc == -REEF_EINDOUBT && ++attempt < FILE_ATTEMPTS);
	return rc;
}

/* Make a block of a file: its part, then bytes. */
static int make_part(struct reef_file *file, uint8_t kind, uint64_t magic,
		     uint64_t number, const void *bytes, uint32_t size,
		     uint64_t *block, uint64_t *short_address)
{
	struct file_part part = {
		.magic = magic,
		.inode = file->inode,
		.id = file->id,
		.number = number,
	};
	struct reef_access accesses[] = {
		{.kind = REEF_WRITE, .local = &part, .length = sizeof(part)},
		{.kind = REEF_WRITE, .local = (void *)bytes, .length = size},
	};
	int rc = reef_alloc_kind(file->space, kind, FILE_PART + (uint64_t)size,
				 block);

	if (rc)
		return rc;
	accesses[0].address = *block;
	accesses[1].address = *block + FILE_PART;
	rc = reef_short_address(file->space, *block, short_address);
	if (!rc)
		rc = file_write_unshared(file->reef, accesses, 2);
	if (rc)
		reef_free(file->space, *block, 0);
	return rc == -ERANGE ? -ENOSPC : rc;
}

/* CAS a word to a fresh block, which is freed if that fails. As file_install.
 */
static int publish(struct reef_file *file, uint64_t at, uint64_t word,
		   uint64_t block, uint64_t short_address)
{
	uint64_t before;
	int rc = index_cas(file->reef, at, word,
			   file_word_after(word, short_address), &before);

	/* A block that may be named is not freed: is_live is asked. */
	if (rc == 0)
		reef_free(file->space, block, 0);
	return rc;
}

static int make_index(struct reef_file *file, uint32_t index, uint64_t word)
{
	uint32_t size = FILE_INDEX_WORDS * 8;
	uint64_t block, short_address;
	void *zeroes = calloc(1, size);
	int rc = zeroes ? make_part(file, REEF_BLOCK_FILE_INDEX,
				    FILE_INDEX_MAGIC, index, zeroes, size,
				    &block, &short_address)
			: -ENOMEM;

	free(zeroes);
	if (rc)
		return rc;
	return publish(file,
		       file->inode + offsetof(struct file_inode, indexes) +
			       8 * (uint64_t)index,
		       word, block, short_address);
}

/* Find an index block; *at 0: there is none. */
static int find_index(struct reef_file *file, uint32_t index, bool make,
		      uint64_t *at)
{
	uint64_t word, where = file->inode +
			       offsetof(struct file_inode, indexes) +
			       8 * (uint64_t)index;
	uint32_t attempt;
	int rc;

	*at = file->indexes[index];
	for (attempt = 0; !*at; attempt++) {
		rc = reef_read(file->reef, where, &word, 8);
		if (rc)
			return rc;
		if (word & FILE_DEAD)
			return -REEF_EDROPPED;
		if (file_word_block(word)) {
			rc = file_bytes_at(file, word, &file->indexes[index]);
			*at = file->indexes[index];
			return rc;
		}
		if (!make)
			return 0;
		if (attempt == FILE_ATTEMPTS)
			return -EBUSY;
		rc = make_index(file, index, word);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int file_word_at(struct reef_file *file, uint64_t number, bool make,
		 uint64_t *at)
{
	uint64_t index_at;
	int rc;

	if (number < FILE_DIRECT) {
		*at = file->inode + offsetof(struct file_inode, direct) +
		      8 * number;
		return 0;
	}
	number -= FILE_DIRECT;
	rc = find_index(file, (uint32_t)(number / FILE_INDEX_WORDS), make,
			&index_at);
	if (rc)
		return rc;
	*at = index_at ? index_at + 8 * (number % FILE_INDEX_WORDS) : 0;
	return 0;
}

/* --- chunks --- */

int file_install(struct reef_file *file, uint64_t number, uint64_t word,
		 const void *bytes, uint32_t offset, uint32_t length)
{
	uint64_t at, block, short_address;
	uint8_t *whole = calloc(1, file->chunk);
	int rc = whole ? file_word_at(file, number, true, &at) : -ENOMEM;

	if (!rc && length)
		memcpy(whole + offset, bytes, length);
	if (!rc)
		rc = make_part(file, REEF_BLOCK_FILE_CHUNK, FILE_CHUNK_MAGIC,
			       number, whole, file->chunk, &block,
			       &short_address);
	free(whole);
	return rc ? rc : publish(file, at, word, block, short_address);
}

/* Free what a word named, which nobody can find any more. Errors cost memory
 * only until its session ends: then is_live is asked. */
static void free_named(struct reef_space *space, uint64_t word)
{
	uint64_t block;

	if (file_word_block(word) &&
	    !reef_long_address(space, file_word_block(word), &block))
		(void)reef_free(space, block, REEF_FREE_LATER);
}

int file_empty_word(struct reef_file *file, uint64_t at, uint64_t word,
		    uint64_t after, uint64_t *now)
{
	int rc;

	after = file_word_after(word, after);
	rc = index_cas(file->reef, at, word, after, now);
	if (rc == 1) {
		*now = after;
		free_named(file->space, word);
	}
	return rc;
}

/* Put a copy in place of a chunk whose end was cut off. */
static int replace_cut(struct reef_file *file, uint64_t number, uint64_t at,
		       uint64_t word)
{
	uint32_t cut = file_word_cut(word);
	uint64_t from, block, short_address;
	uint8_t *bytes;
	int rc = file_bytes_at(file, word, &from);

	if (rc)
		return rc;
	if (cut > file->chunk)
		return -REEF_ECORRUPT;
	bytes = calloc(1, file->chunk);
	if (!bytes)
		return -ENOMEM;
	rc = reef_read(file->reef, from, bytes, cut);
	if (!rc)
		rc = make_part(file, REEF_BLOCK_FILE_CHUNK, FILE_CHUNK_MAGIC,
			       number, bytes, file->chunk, &block,
			       &short_address);
	free(bytes);
	if (!rc)
		rc = publish(file, at, word, block, short_address);
	if (rc == 1)
		free_named(file->space, word);
	return rc;
}

int file_thaw(struct reef_file *file, uint64_t number, uint64_t at,
	      uint64_t word)
{
	uint64_t before;

	reef_assert(word & FILE_FROZEN);
	if (file_word_block(word))
		return replace_cut(file, number, at, word);
	return index_cas(file->reef, at, word, file_word_after(word, 0),
			 &before);
}

/* --- all of them --- */

#define WALK_WORDS 256u

/* Walk a run of words that lie together, of one index block or of the inode. */
static int walk_run(struct reef_file *file, uint64_t number, uint32_t count,
		    const struct file_walker *walker)
{
	uint64_t words[WALK_WORDS], at = 0;
	int rc;

	reef_enter(file->reef);
	rc = file_look(file);
	if (!rc)
		rc = file_word_at(file, number, false, &at);
	if (!rc && at)
		rc = reef_read(file->reef, at, words, 8 * (size_t)count);
	if (!rc && at && walker->begin)
		rc = walker->begin(file, walker->context);
	for (uint32_t i = 0; !rc && at && i < count; i++)
		rc = words[i] & FILE_DEAD
			     ? -REEF_EDROPPED
			     : walker->each(file, number + i,
					    at + 8 * (uint64_t)i, words[i],
					    walker->context);
	reef_leave(file->reef);
	return rc;
}

/* Learn which index blocks there are, all at once. */
static int read_indexes(struct reef_file *file, uint64_t words[FILE_INDEXES])
{
	int rc;

	reef_enter(file->reef);
	rc = file_look(file);
	if (!rc)
		rc = reef_read(file->reef,
			       file->inode +
				       offsetof(struct file_inode, indexes),
			       words, FILE_INDEXES * 8);
	reef_leave(file->reef);
	return rc;
}

/* Walk over the chunks of one index block, from `number` to before `end`. */
static int walk_index(struct reef_file *file, uint64_t number, uint64_t end,
		      const struct file_walker *walker)
{
	uint64_t count;
	int rc = 0;

	for (; rc == 0 && number < end; number += count) {
		count = end - number < WALK_WORDS ? end - number : WALK_WORDS;
		rc = walk_run(file, number, (uint32_t)count, walker);
	}
	return rc;
}

int file_walk(struct reef_file *file, uint64_t first, uint64_t end,
	      const struct file_walker *walker)
{
	uint64_t indexes[FILE_INDEXES], from, to;
	int rc = 0;

	if (first < FILE_DIRECT)
		rc = walk_index(file, first,
				end < FILE_DIRECT ? end : FILE_DIRECT, walker);
	if (rc || end <= FILE_DIRECT)
		return rc;
	rc = read_indexes(file, indexes);
	for (uint32_t i = 0; !rc && i < FILE_INDEXES; i++) {
		from = FILE_DIRECT + (uint64_t)i * FILE_INDEX_WORDS;
		to = from + FILE_INDEX_WORDS;
		if (indexes[i] & FILE_DEAD)
			return -REEF_EDROPPED;
		if (!file_word_block(indexes[i]) || to <= first || from >= end)
			continue;
		rc = walk_index(file, from > first ? from : first,
				to < end ? to : end, walker);
	}
	return rc;
}

/* --- the end of a file --- */

/* Make a word DEAD; *was: what it named. */
static int kill_word(struct reef *reef, uint64_t at, uint64_t word,
		     uint64_t *was)
{
	uint64_t before;
	int rc;

	for (uint32_t attempt = 0; attempt < FILE_ATTEMPTS; attempt++) {
		*was = word & FILE_DEAD ? 0 : word;
		if (word & FILE_DEAD)
			return 0;
		rc = index_cas(reef, at, word, file_word_after(word, FILE_DEAD),
			       &before);
		if (rc)
			return rc == 1 ? 0 : rc;
		word = before;
	}
	return -EBUSY;
}

/* Make words that lie together DEAD. words: what they are thought to be, then
 * what they named, or 0. */
static int kill_words(struct reef *reef, uint64_t at, uint64_t *words,
		      uint32_t count)
{
	struct reef_access accesses[KILL_BATCH];
	uint32_t from, i, some;
	int rc = 0;

	for (from = 0; from < count; from += some) {
		some = count - from < KILL_BATCH ? count - from : KILL_BATCH;
		for (i = 0; i < some; i++)
			accesses[i] = (struct reef_access){
				.kind = REEF_CAS,
				.address = at + 8 * (uint64_t)(from + i),
				.compare = words[from + i],
				.operand = file_word_after(words[from + i],
							   FILE_DEAD),
			};
		(void)reef_execute(reef, accesses, some);
		for (i = 0; !rc && i < some; i++)
			if (accesses[i].status ||
			    accesses[i].result != accesses[i].compare)
				rc = kill_word(reef, accesses[i].address,
					       accesses[i].compare,
					       &words[from + i]);
		if (rc)
			return rc;
	}
	return 0;
}

static void free_all_named(struct reef_space *space, const uint64_t *words,
			   uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		free_named(space, words[i]);
}

/* Make the words of an index block DEAD, and free the chunks. */
static int kill_index(struct reef_space *space, uint64_t word)
{
	uint64_t *words = malloc(FILE_INDEX_WORDS * 8);
	struct reef *reef = reef_space_handle(space);
	uint64_t at;
	int rc = words ? reef_long_address(space, file_word_block(word), &at)
		       : -ENOMEM;

	if (!rc)
		rc = reef_read(reef, at + FILE_PART, words,
			       FILE_INDEX_WORDS * 8);
	if (!rc)
		rc = kill_words(reef, at + FILE_PART, words, FILE_INDEX_WORDS);
	if (!rc)
		free_all_named(space, words, FILE_INDEX_WORDS);
	free(words);
	return rc;
}

/* Make all words of an inode DEAD, and free what they name. What lies in lost
 * memory is lost. */
static int kill_inode(struct reef_space *space, uint64_t inode)
{
	struct file_inode *all = malloc(sizeof(*all));
	struct reef *reef = reef_space_handle(space);
	int rc = all ? reef_read(reef, inode, all, sizeof(*all)) : -ENOMEM;

	if (!rc)
		rc = kill_words(reef,
				inode + offsetof(struct file_inode, direct),
				all->direct, FILE_DIRECT);
	if (!rc)
		rc = kill_words(reef,
				inode + offsetof(struct file_inode, indexes),
				all->indexes, FILE_INDEXES);
	if (!rc)
		free_all_named(space, all->direct, FILE_DIRECT);
	for (uint32_t i = 0; !rc && i < FILE_INDEXES; i++) {
		if (!file_word_block(all->indexes[i]))
			continue;
		rc = kill_index(space, all->indexes[i]);
		if (rc == -REEF_ELOST || index_is_nonsense(rc))
			rc = 0;
		if (!rc)
			free_named(space, all->indexes[i]);
	}
	free(all);
	return rc;
}

int file_destroy(struct reef_space *space, uint64_t inode, uint64_t link)
{
	struct reef *reef = reef_space_handle(space);
	uint64_t before;
	int rc;

	reef_enter(reef);
	rc = index_cas(reef, inode + offsetof(struct file_head, link), link, 0,
		       &before);
	/* Whoever dies from here on leaves blocks that are not live. */
	if (rc == 1)
		(void)kill_inode(space, inode);
	reef_leave(reef);
	return rc;
}
