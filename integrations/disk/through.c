/* through.c - see through.h.
 *
 *   a file:  without trust --validate: nobody writes it untold, its state is
 *            settled, and is the noted one or is noted now with a new
 *            generation--> trusted --an untold write, another state, no
 *            generation--> without trust */
#include "integrations/disk/through.h"

#include "integrations/disk/desk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_SIZE_DEFAULT 8192u
/* What a page that is read is worth, in writes that are told. */
#define CREDIT 4
#define SETTLE_US 60000u
#define RENEW_MS 50u /* between two renewals that are not noted */
#define ALIGNED 4096u
#define LOOKS 3u    /* at a file that is written meanwhile */
#define OUTSIDE 64u /* files that a thread remembers not to be ours */

static struct through_options options;
static _Thread_local struct reef_page_file outside[OUTSIDE];

/* --- which file --- */

/* Pages of a user and machine are for them alone, because the table is. */
static void make_own(struct reef_page_file *file)
{
	static _Atomic bool is_known;
	static uint8_t machine[16];
	uint32_t user = table_user();
	uint64_t words[2], mix[2];

	if (!atomic_load(&is_known)) {
		disk_find_machine(machine);
		atomic_store(&is_known, true);
	}
	memcpy(words, machine, sizeof(words));
	memcpy(mix, file->filesystem, sizeof(mix));
	for (int i = 0; i < 2; i++) {
		mix[i] ^= words[i] * UINT64_C(0x9e3779b97f4a7c15);
		mix[i] += (user + 1) * UINT64_C(0xbf58476d1ce4e5b9);
	}
	memcpy(file->filesystem, mix, sizeof(mix));
}

/* False: it is no file whose pages could be cached. */
static bool look(int fd, const char *path, struct disk_file *out)
{
	if (!disk_look(fd, path ? path : "", out) || !S_ISREG(out->mode) ||
	    out->is_remote)
		return false;
	make_own(&out->file);
	return true;
}

static bool path_of(int fd, char *path, size_t size)
{
	char name[64];
	ssize_t got;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	got = readlink(name, path, size - 1);
	if (got <= 0)
		return false;
	path[got] = '\0';
	return true;
}

static bool is_inside(const char *path)
{
	const char *directory;
	size_t size;

	for (uint32_t i = 0; (directory = options.directories[i]); i++) {
		size = strlen(directory);
		/* "/" is everything's */
		if (!strncmp(path, directory, size) &&
		    (path[size] == '/' || directory[size - 1] == '/'))
			return true;
	}
	return false;
}

/* Find the place of a file in the table, or make it if it is one of ours. */
static struct table_slot *find_slot(struct table *table, int fd,
				    const struct reef_page_file *file)
{
	struct table_slot *slot = table_find(table, file, NULL);
	struct reef_page_file *other =
		&outside[(file->inode ^ file->born_ns) % OUTSIDE];
	char path[4096];

	if (slot || fd < 0 || !memcmp(other, file, sizeof(*file)))
		return slot;
	if (path_of(fd, path, sizeof(path)) && is_inside(path))
		return table_find(table, file, path);
	*other = *file;
	return NULL;
}

/* True if a file is on a file system that has a directory of ours: so it may
 * get a name in there, or has one already. */
static bool is_beside(int fd)
{
	struct stat about, directory;

	if (fstat(fd, &about))
		return false;
	for (uint32_t i = 0; options.directories[i]; i++)
		if (!stat(options.directories[i], &directory) &&
		    directory.st_dev == about.st_dev)
			return true;
	return false;
}

/* --- trust --- */

struct state {
	uint64_t size, mtime_ns, ctime_ns, life;
};

static struct state state_of(const struct disk_file *file)
{
	return (struct state){file->size, file->mtime_ns, file->ctime_ns,
			      file->life};
}

/* Always odd: (6) of table.h. */
static uint64_t print_of(const struct disk_file *file)
{
	const struct state state = state_of(file);
	uint64_t words[4], mix = 1;

	memcpy(words, &state, sizeof(words));
	for (int i = 0; i < 4; i++) {
		mix = (mix ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
		mix ^= mix >> 31;
	}
	return mix | 1;
}

/* The same of a state that is not noted. */
static uint64_t told_print_of(const struct disk_file *file)
{
	return (print_of(file) & ~UINT64_C(3)) | 2;
}

/* What `print` becomes with a write that is told. */
static uint64_t next_told(struct table_slot *slot)
{
	return 4 * (UINT64_C(1) + atomic_fetch_add(&slot->tells, 1));
}

static bool is_of_no_state(uint64_t print)
{
	return !(print & 3);
}

static bool fits(uint64_t print, const struct disk_file *file)
{
	return is_of_no_state(print) ||
	       print == (print & 1 ? print_of(file) : told_print_of(file));
}

static void distrust(struct table *table, struct table_slot *slot)
{
	table_begin(table, slot);
	table_end(table, slot);
}

static void count(_Atomic uint64_t *what)
{
	atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

/* Begin a file's pages anew, and note of which state they are; not settled:
 * that is not noted, and not done too often. -EAGAIN: not now. */
static int renew(struct table *table, struct table_slot *slot,
		 struct desk *desk, const struct disk_file *now,
		 bool is_settled)
{
	const struct state state = state_of(now);
	uint64_t now_ms = desk_now_ms();
	uint64_t last_ms = atomic_load(&slot->renewed_ms);
	int rc;

	if (!is_settled && (now_ms < last_ms + RENEW_MS ||
			    !atomic_compare_exchange_strong(&slot->renewed_ms,
							    &last_ms, now_ms)))
		return -EAGAIN;
	rc = reef_pages_renew(desk->pages, &now->file);
	if (!rc && is_settled)
		rc = reef_pages_note(desk->pages, &now->file, &state,
				     sizeof(state));
	if (!rc)
		count(&table->counts.renewed);
	/* There was no room for a generation, or for the note. */
	return rc == -ENOENT || rc == -ENOSPC || rc == -EDQUOT ? -EAGAIN : rc;
}

/* Make a file trusted, if that can be: (3) of table.h. */
static bool validate(struct table *table, struct table_slot *slot,
		     struct desk *desk, int fd)
{
	uint32_t begun = atomic_load(&slot->begun);
	uint32_t cleared = atomic_load(&slot->cleared);
	struct disk_file now;
	struct state state;
	bool is_settled;
	int rc = -ESTALE;

	if (atomic_load(&slot->ended) != begun ||
	    atomic_load(&table->begun) != atomic_load(&table->ended) ||
	    !look(fd, NULL, &now))
		return false;
	is_settled = disk_is_settled(&now);
	if (!is_settled && !cleared)
		return false;
	state = state_of(&now);
	if (is_settled)
		rc = reef_pages_compare(desk->pages, &now.file, &state,
					sizeof(state));
	if (rc == -ENOENT || rc == -ESTALE)
		rc = renew(table, slot, desk, &now, is_settled);
	if (rc == -EAGAIN)
		return false;
	if (rc) {
		desk_fail(desk, rc);
		return false;
	}
	if (is_settled)
		atomic_store(&slot->print, print_of(&now));
	else
		atomic_store(&slot->print, atomic_load(&slot->telling)
						   ? next_told(slot)
						   : told_print_of(&now));
	if (atomic_load(&slot->credit) < CREDIT)
		atomic_store(&slot->credit, CREDIT);
	if (!atomic_compare_exchange_strong(&slot->cleared, &cleared,
					    begun + 1))
		return false;
	count(&table->counts.validated);
	return true;
}

/* True if nobody has written a file who did not say so; otherwise it is not
 * trusted any more. It looked like that a moment ago: writes that were told
 * since are no reason. */
static bool is_ours(struct table *table, struct table_slot *slot, int fd,
		    const struct disk_file *file)
{
	uint64_t print = atomic_load(&slot->print);
	struct disk_file now;

	if (fits(print, file))
		return true;
	for (uint32_t i = 0; i < LOOKS; i++) {
		if (!look(fd, NULL, &now) || fits(print, &now))
			return true;
		if (atomic_load(&slot->print) == print)
			break;
		print = atomic_load(&slot->print);
	}
	/* Who has written it may go on to: it needs a settled state, as a file
	 * that was never trusted does. */
	count(&table->counts.foreign);
	distrust(table, slot);
	atomic_store(&slot->cleared, 0);
	return false;
}

/* True if the pages of a file may be had from the pool. *begun: what they are
 * to be compared with afterwards. */
static bool is_trusted(struct table *table, struct table_slot *slot,
		       struct desk *desk, int fd, const struct disk_file *file,
		       uint32_t *begun)
{
	if (!table_trusts(slot, begun))
		return validate(table, slot, desk, fd) &&
		       table_trusts(slot, begun);
	return is_ours(table, slot, fd, file);
}

/* A file that was written by telling has a state that nobody has noted. Note it
 * if it is settled, and everybody has told by then what is in it.
 * -EAGAIN: it is not settled yet. */
static int note_slot(struct table_slot *slot, struct desk *desk, int fd,
		     const char *path)
{
	uint64_t print = atomic_load(&slot->print);
	struct disk_file now;
	struct state state;
	uint32_t begun;
	int rc;

	if (print & 1 || !print || atomic_load(&slot->telling) ||
	    !table_trusts(slot, &begun) || !look(fd, path, &now) ||
	    memcmp(&now.file, &slot->file, sizeof(now.file)) != 0 ||
	    !fits(print, &now))
		return 0;
	if (!disk_is_settled(&now))
		return -EAGAIN;
	state = state_of(&now);
	/* The generation may have been renewed by others. */
	rc = reef_pages_compare(desk->pages, &now.file, &state, sizeof(state));
	if (rc == -ENOENT || rc == -ESTALE)
		rc = reef_pages_note(desk->pages, &now.file, &state,
				     sizeof(state));
	if (!rc && atomic_load(&slot->begun) == begun)
		atomic_compare_exchange_strong(&slot->print, &print,
					       print_of(&now));
	return rc == -ENOENT ? 0 : rc;
}

/* --- reading --- */

/* One read that comes by here. */
struct reading {
	struct table *table;
	struct table_slot *slot;
	struct desk *desk;
	struct disk_file file;
	int fd;
	uint32_t begun, page_size;
	uint64_t first;
	uint8_t *to;
};

static void tell_difference(const struct reading *read, uint64_t page)
{
	char path[4096] = "?";

	count(&read->table->counts.differed);
	table_begin(read->table, read->slot); /* and never ends */
	path_of(read->fd, path, sizeof(path));
	if (options.differs)
		options.differs(path, page);
}

/* A hit stands beside what is on disk, which is what is served. What is in the
 * pool is wrong if it was there before the disk was read, and still is
 * afterwards: whoever writes takes it away before. False: read the disk. */
static bool verify(struct reading *read, uint64_t page, void *to)
{
	const uint32_t size = read->page_size;
	/* As a file that is read past the kernel's cache wants it. */
	uint8_t *disk = aligned_alloc(
		ALIGNED, (size_t)size < ALIGNED ? ALIGNED : 2 * (size_t)size);
	uint8_t *again = disk + size;
	bool is_whole =
		disk && options.pread(read->fd, disk, size,
				      (off_t)(page * size)) == (ssize_t)size;
	uint32_t begun;
	uint64_t token;

	if (is_whole) {
		count(&read->table->counts.verified);
		if (memcmp(to, disk, size) != 0 &&
		    !reef_pages_get(read->desk->pages, &read->file.file, page,
				    again, &token) &&
		    !memcmp(to, again, size) &&
		    table_trusts(read->slot, &begun) && begun == read->begun)
			tell_difference(read, page);
		memcpy(to, disk, size);
	}
	free(disk);
	return is_whole;
}

/* 1: a hit.  0: a miss; *token may be one to fill with.  <0: the pool fails. */
static int get_page(struct reading *read, uint32_t i, uint64_t *token)
{
	uint8_t *to = read->to + (size_t)i * read->page_size;
	int rc;

	*token = 0;
	rc = reef_pages_get(read->desk->pages, &read->file.file,
			    read->first + i, to, token);
	if (!rc && options.verify && !verify(read, read->first + i, to))
		rc = -ENOENT;
	if (!rc) {
		count(&read->table->counts.hits);
		return 1;
	}
	count(&read->table->counts.misses);
	if (rc == -ENOENT)
		return 0;
	if (rc == -ENODATA) /* somebody took its generation away */
		distrust(read->table, read->slot);
	else
		desk_fail(read->desk, rc);
	return rc;
}

static bool keep_page(struct reading *read, uint32_t i, uint64_t token)
{
	int rc = reef_pages_fill(read->desk->pages, &read->file.file,
				 read->first + i, token,
				 read->to + (size_t)i * read->page_size);

	if (!rc) {
		count(&read->table->counts.fills);
		atomic_fetch_add(&read->slot->credit, CREDIT);
	}
	if (rc && rc != -ESTALE && rc != -ENOSPC && rc != -EDQUOT) {
		desk_fail(read->desk, rc);
		return false;
	}
	return true;
}

/* Read pages from..to-1 from the disk, and keep them. How many bytes. */
static ssize_t read_disk(struct reading *read, uint32_t from, uint32_t to,
			 const uint64_t *tokens)
{
	const size_t size = read->page_size;
	ssize_t got = options.pread(read->fd, read->to + from * size,
				    (to - from) * size,
				    (off_t)((read->first + from) * size));

	count(&read->table->counts.disk_reads);
	for (uint32_t i = from;
	     i < to && got >= (ssize_t)((i - from + 1) * size); i++)
		if (tokens[i] && !keep_page(read, i, tokens[i]))
			break;
	return got;
}

/* Pages that are there come from the pool, the others in runs from the disk.
 * How many bytes; less than 0: nothing is sure. */
static ssize_t read_pages(struct reading *read, uint32_t number)
{
	uint64_t tokens[THROUGH_PAGES_MAX];
	bool is_hit[THROUGH_PAGES_MAX];
	uint32_t i, end, hits = 0;
	ssize_t got;
	int rc;

	for (i = 0; i < number; i++) {
		rc = get_page(read, i, &tokens[i]);
		if (rc < 0)
			return -1;
		is_hit[i] = rc;
		hits += (uint32_t)rc;
	}
	if (!table_is_of(read->slot, &read->file.file) ||
	    atomic_load(&read->slot->begun) != read->begun)
		return -1;
	atomic_fetch_add(&read->slot->credit, (int64_t)hits * CREDIT);
	for (i = 0; i < number; i = end) {
		for (end = i; end < number && is_hit[end] == is_hit[i]; end++)
			;
		if (is_hit[i])
			continue;
		got = read_disk(read, i, end, tokens);
		if (got < 0)
			return -1;
		/* Where the file ends, or a write has cut it meanwhile. */
		if (got < (ssize_t)((size_t)(end - i) * read->page_size))
			return (ssize_t)((size_t)i * read->page_size) + got;
	}
	return (ssize_t)((size_t)number * read->page_size);
}

/* The pages are had; what is left of the range is less than one. */
static ssize_t read_rest(const struct reading *read, size_t size, uint64_t at,
			 ssize_t had)
{
	ssize_t got = 0;

	if ((size_t)had < size - size % read->page_size || had == (ssize_t)size)
		return had;
	got = options.pread(read->fd, read->to + had, size - (size_t)had,
			    (off_t)(at + (uint64_t)had));
	return got > 0 ? had + got : had;
}

bool through_read(int fd, void *to, size_t size, uint64_t at, ssize_t *got)
{
	struct reading read = {.fd = fd, .to = to};
	int before = errno;
	ssize_t had = -1;

	read.page_size = options.page_size;
	read.first = at / read.page_size;
	if (desk_is_inside() || at % read.page_size || size < read.page_size ||
	    size / read.page_size > THROUGH_PAGES_MAX ||
	    !look(fd, NULL, &read.file))
		goto out;
	read.table = desk_table();
	if (read.table)
		read.slot = find_slot(read.table, fd, &read.file.file);
	if (!read.slot)
		goto out;
	/* What cannot become trusted now needs no handle. */
	if (!table_trusts(read.slot, &read.begun) &&
	    !disk_is_settled(&read.file) &&
	    desk_now_ms() < atomic_load(&read.slot->renewed_ms) + RENEW_MS)
		goto out;
	read.desk = desk_take();
	if (!read.desk)
		goto out;
	if (is_trusted(read.table, read.slot, read.desk, fd, &read.file,
		       &read.begun)) {
		if (!(atomic_load(&read.slot->print) & 1) &&
		    disk_is_settled(&read.file))
			(void)note_slot(read.slot, read.desk, fd, NULL);
		had = read_pages(&read, (uint32_t)(size / read.page_size));
	}
	desk_give(read.desk);
	if (had >= 0)
		*got = read_rest(&read, size, at, had);
out:
	errno = before;
	return had >= 0;
}

/* --- writing --- */

/* True if the pool was told of a write, page by page. */
static bool tell_begin(struct through_write *write, struct table *table, int fd,
		       const struct disk_file *file)
{
	const uint64_t first = write->at / options.page_size;
	const uint64_t last = (write->at + write->size - 1) / options.page_size;
	uint32_t begun;
	int flags, rc;

	if (!write->size || last - first >= THROUGH_PAGES_MAX ||
	    !table_trusts(write->slot, &begun) ||
	    !is_ours(table, write->slot, fd, file) ||
	    atomic_fetch_sub(&write->slot->credit, 1) <= 0)
		return false;
	/* There it goes to the end, wherever that is by then. */
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || flags & O_APPEND)
		return false;
	write->fd = fd;
	write->is_direct = flags & O_DIRECT;
	write->desk = desk_take();
	if (!write->desk)
		return false;
	atomic_store(&write->slot->print, next_told(write->slot));
	write->count = (uint32_t)(last - first + 1);
	rc = reef_pages_begin(write->desk->pages, &write->file, first,
			      write->count, write->tokens);
	if (!rc)
		return true;
	desk_fail(write->desk, rc);
	desk_give(write->desk);
	write->desk = NULL;
	return false;
}

void through_begin(struct through_write *write, int fd, const char *path,
		   enum through_how how, uint64_t at, size_t size)
{
	int before = errno;
	struct disk_file file;
	struct table *table;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &write->cancel);
	write->slot = NULL;
	write->is_counted = false;
	write->desk = NULL;
	write->at = at;
	write->size = size;
	if (!look(fd, path, &file))
		goto out;
	table = desk_table();
	if (!table)
		goto out;
	write->file = file.file;
	/* (4) of table.h: from here on nobody trusts the file if it has no
	 * place, until through_end. */
	table_begin(table, NULL);
	write->slot = find_slot(table, path ? -1 : fd, &file.file);
	if (!write->slot && how == THROUGH_MAPPED && is_beside(fd))
		write->slot = table_find(table, &file.file, "");
	write->is_counted = true;
	/* Another file's by now: it has none. */
	if (write->slot && !table_hold(write->slot, &file.file))
		write->slot = NULL;
	if (!write->slot)
		goto out;
	/* Its place speaks for it. Who dies before this keeps all files from
	 * becoming trusted: so nothing is waited for before. */
	table_end(table, NULL);
	if (how == THROUGH_TOLD && !desk_is_inside() &&
	    tell_begin(write, table, fd, &file)) {
		write->is_counted = false;
		count(&table->counts.told);
	} else {
		table_begin(table, write->slot);
		table_let_go(write->slot);
		write->is_counted = how < THROUGH_OFF;
		count(&table->counts.untold);
	}
out:
	errno = before;
}

/* Others wrote the same pages, or renewed the file, perhaps before it was
 * written: what may be there of these pages is old. Markers take its place, and
 * are taken away; whoever takes one away before has begun later. A renewal
 * would do, too, but makes each write that is under way end here, and renew. */
static int forget_pages(struct through_write *write)
{
	const uint64_t first = write->at / options.page_size;
	int rc = reef_pages_begin(write->desk->pages, &write->file, first,
				  write->count, write->tokens);

	if (rc)
		return reef_pages_renew(write->desk->pages, &write->file);
	for (uint32_t i = 0; i < write->count; i++)
		(void)reef_pages_write(write->desk->pages, &write->file,
				       first + i, write->tokens[i], NULL);
	return 0;
}

/* What a page is that was written; NULL: not all of it was, or it is not known.
 * The program's memory may have changed while the kernel took it from there, or
 * since, by another thread. So it is read from the file: another who writes it
 * takes our marker first. What does not go by the kernel's memory is not to be
 * changed meanwhile, as with any disk that is written that way. */
static const uint8_t *find_written(const struct through_write *write,
				   uint64_t from, const uint8_t *bytes,
				   uint64_t done)
{
	const size_t size = options.page_size;
	uint8_t *room = write->desk->room;

	if (!bytes || from < write->at || from + size > write->at + done)
		return NULL;
	if (write->is_direct || options.is_calm)
		return bytes + (from - write->at);
	return options.pread(write->fd, room, size, (off_t)from) ==
			       (ssize_t)size
		       ? room
		       : NULL;
}

/* Tell the pool what was written, page by page. */
static int tell_end(struct through_write *write, const uint8_t *bytes,
		    uint64_t done)
{
	const uint64_t size = options.page_size;
	const uint64_t first = write->at / size;
	int rc = 0, one;

	for (uint32_t i = 0; i < write->count; i++) {
		one = reef_pages_write(
			write->desk->pages, &write->file, first + i,
			write->tokens[i],
			find_written(write, (first + i) * size, bytes, done));
		rc = rc ? rc : one;
	}
	return rc == -ESTALE ? forget_pages(write) : rc;
}

/* Remember what a write that was told has left the file as, if it was alone. */
static void leave_print(const struct through_write *write)
{
	uint64_t print = atomic_load(&write->slot->print);
	struct disk_file now;

	if (atomic_load(&write->slot->telling) == 1 && is_of_no_state(print) &&
	    look(write->fd, NULL, &now))
		atomic_compare_exchange_strong(&write->slot->print, &print,
					       told_print_of(&now));
}

void through_end(struct through_write *write, const void *bytes, ssize_t done)
{
	struct table *table = desk_table();
	int before = errno, rc;

	if (write->is_counted)
		table_end(table, write->slot);
	if (write->desk) {
		rc = tell_end(write, bytes, done > 0 ? (uint64_t)done : 0);
		if (rc) {
			distrust(table, write->slot);
			desk_fail(write->desk, rc);
		}
		leave_print(write);
		table_let_go(write->slot);
		desk_give(write->desk);
	}
	pthread_setcancelstate(write->cancel, NULL);
	errno = before;
}

/* --- begin, end --- */

/* The last one notes what was written: whoever is the first again finds the
 * pages that it has left. */
static int note_all(struct table *table, struct desk *desk)
{
	struct table_slot *slot;
	int rc = 0, one;

	for (uint32_t i = 0; i < TABLE_SLOTS; i++) {
		slot = &table->slots[i];
		if (!slot->path[0])
			continue;
		one = note_slot(slot, desk, -1, slot->path);
		rc = one && rc != -EAGAIN ? one : rc;
	}
	return rc;
}

void through_init(const struct through_options *given)
{
	options = *given;
	(void)table_user(); /* from the beginning */
	if (!options.page_size)
		options.page_size = PAGE_SIZE_DEFAULT;
	desk_init(&options);
}

void through_fini(void)
{
	/* Who has not used the table does not begin to. */
	bool is_last = !desk_is_inside() && desk_is_last();
	struct desk *desk;

	if (is_last && desk_has_joined()) {
		desk = desk_take();
		if (desk && note_all(desk_table(), desk) == -EAGAIN) {
			usleep(SETTLE_US);
			note_all(desk_table(), desk);
		}
		if (desk)
			desk_give(desk);
	}
	desk_end();
	if (is_last)
		desk_fold_table();
}

void through_table_name(const char *space, const char *cover,
			uint32_t page_size, char out[100])
{
	uint64_t mix = 0;

	for (const char *at = space; *at; at++)
		mix = (mix ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
	mix = (mix ^ 1) * UINT64_C(0x9e3779b97f4a7c15);
	for (const char *at = cover; *at; at++)
		mix = (mix ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
	snprintf(out, 100, "%016llx-%u", (unsigned long long)mix,
		 page_size ? page_size : PAGE_SIZE_DEFAULT);
}
