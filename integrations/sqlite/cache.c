/* cache.c - see cache.h.
 *
 *   closed --check: the pool is there--> open --check: the state is the noted
 *   one, or is noted now--> valid --the file has another state, the pool fails,
 *   a write was not told--> open, or closed */
#include "integrations/sqlite/cache.h"

#include "integrations/disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

SQLITE_EXTENSION_INIT3

#define DEFAULT_SPACE "cache"
#define DEFAULT_COVER "sqlite"
#define HEADER 100
#define JOIN_NS UINT64_C(2000000000)	/* to find the pool */
#define PATIENCE_NS UINT64_C(500000000) /* when it is out of reach */
#define RETRY_MS 2000u			/* a pool that is not there */
#define SECOND_NS UINT64_C(1000000000)

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static uint64_t now_ms(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

/* --- the pool --- */

static void add_stats(struct reef_pages_stats *sum,
		      const struct reef_pages_stats *more)
{
	sum->hits += more->hits;
	sum->misses += more->misses;
	sum->fills += more->fills;
	sum->late += more->late;
	sum->writes += more->writes;
	sum->lost += more->lost;
	sum->renewals += more->renewals;
}

static void leave_pool(struct cache *cache)
{
	struct reef_pages_stats stats;

	if (cache->pages) {
		reef_pages_stats(cache->pages, &stats);
		add_stats(&cache->before, &stats);
	}
	reef_pages_close(cache->pages);
	reef_space_close(cache->opened);
	reef_close(cache->reef);
	cache->pages = NULL;
	cache->opened = NULL;
	cache->reef = NULL;
	cache->is_valid = false;
}

/* An error of the pool: its pages do not count, until the next check. One that
 * does not pass by itself is left behind. */
static void fail(struct cache *cache, int rc)
{
	cache->is_valid = false;
	cache->why = rc;
	if (rc == -EBUSY || rc == -REEF_EINDOUBT || rc == -ENOMEM)
		return;
	leave_pool(cache);
	cache->retry_ms = now_ms() + RETRY_MS;
}

static int open_space(struct cache *cache)
{
	const struct reef_options of_pool = {
		.credential = cache->credential,
		.name = "sqlite",
		.timeout_ns = JOIN_NS,
		.patience_ns = PATIENCE_NS,
	};
	struct reef_space_options of_space = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_REVOCABLE,
		.token = cache->token,
	};
	const char *name = cache->space ? cache->space : DEFAULT_SPACE;
	int rc = reef_open(cache->pool, &of_pool, &cache->reef);

	if (rc)
		return rc;
	/* Who has a token need not be allowed to make it. */
	if (cache->token)
		of_space.flags = 0;
	return reef_space_open(cache->reef, name, &of_space, &cache->opened);
}

static int open_pages(struct cache *cache, uint32_t page_size)
{
	struct reef_pages_options options = {
		.flags = REEF_PAGES_WRITER,
		.page_size = page_size,
		.size_max = cache->size_max,
	};
	char name[128];

	snprintf(name, sizeof(name), "%.100s-%u",
		 cache->cover ? cache->cover : DEFAULT_COVER, page_size);
	disk_find_machine(options.machine);
	cache->page_size = page_size;
	return reef_pages_open(cache->opened, name, &options, &cache->pages);
}

/* True if the pool is open, for pages of that size. */
static bool join_pool(struct cache *cache, uint32_t page_size)
{
	int rc = 0;

	if (cache->pages && cache->page_size == page_size)
		return true;
	if (cache->pages)
		leave_pool(cache);
	if (now_ms() < cache->retry_ms)
		return false;
	rc = open_space(cache);
	if (!rc)
		rc = open_pages(cache, page_size);
	if (rc)
		fail(cache, rc);
	if (rc) /* whatever it was */
		leave_pool(cache);
	else
		cache->why = 0;
	return !rc;
}

/* --- the file --- */

/* Find out which file it is, as long as its name leads there. The first time
 * SQLite says whether it does: the name may have become another file's since it
 * was opened. */
static bool identify(struct cache *cache, const struct disk_file *now)
{
	int has_moved = 0;

	if (cache->is_known)
		return !memcmp(&now->file, &cache->file, sizeof(now->file));
	(void)cache->under->pMethods->xFileControl(
		cache->under, SQLITE_FCNTL_HAS_MOVED, &has_moved);
	if (has_moved)
		return false;
	cache->file = now->file;
	cache->is_known = true;
	cache->is_remote = now->is_remote;
	return true;
}

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
	       (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Look at the file itself. False: it is none whose pages can be cached. */
static bool look(struct cache *cache, struct cache_state *state)
{
	uint8_t header[HEADER];
	struct disk_file now;

	memset(state, 0, sizeof(*state));
	if (cache->under->pMethods->xRead(cache->under, header, HEADER, 0) !=
		    SQLITE_OK ||
	    !disk_look(AT_FDCWD, cache->path, &now) || !S_ISREG(now.mode) ||
	    !identify(cache, &now))
		return false;
	state->size = now.size;
	state->mtime_ns = now.mtime_ns;
	state->ctime_ns = now.ctime_ns;
	state->life = now.life;
	state->counter = big_endian(header + 24);
	state->page_size = (uint32_t)header[16] << 8 | header[17];
	if (state->page_size == 1)
		state->page_size = 65536;
	return state->page_size >= 512 &&
	       !(state->page_size & (state->page_size - 1));
}

/* (2): true if the file could not be written now without another state. */
static bool is_settled(const struct cache *cache,
		       const struct cache_state *state)
{
	const struct disk_file now = {.mtime_ns = state->mtime_ns,
				      .ctime_ns = state->ctime_ns,
				      .is_remote = cache->is_remote};

	return disk_is_settled(&now);
}

/* --- reading --- */

/* The file has a state that nobody has noted: a new generation is its. */
static int renew(struct cache *cache, const struct cache_state *state)
{
	int rc = reef_pages_renew(cache->pages, &cache->file);

	if (!rc)
		rc = reef_pages_note(cache->pages, &cache->file, state,
				     sizeof(*state));
	cache->foreign++;
	/* There was no room for a generation. */
	return rc == -ENOENT ? -EBUSY : rc;
}

void cache_check(struct cache *cache)
{
	struct cache_state state;
	int rc;

	if (!look(cache, &state)) {
		cache->is_valid = false;
		return;
	}
	if (cache->is_valid && !memcmp(&state, &cache->state, sizeof(state)))
		return;
	cache->is_valid = false;
	if (!join_pool(cache, state.page_size))
		return;
	rc = reef_pages_compare(cache->pages, &cache->file, &state,
				sizeof(state));
	if (rc == -ENOENT || rc == -ESTALE) {
		if (!is_settled(cache, &state))
			return;
		rc = renew(cache, &state);
	}
	if (rc) {
		fail(cache, rc);
		return;
	}
	cache->state = state;
	cache->is_valid = true;
}

static bool is_page(const struct cache *cache, int size, sqlite3_int64 at)
{
	return cache->is_valid && (uint32_t)size == cache->page_size &&
	       at % size == 0;
}

static int read_under(struct cache *cache, void *to, int size, sqlite3_int64 at)
{
	cache->disk_reads++;
	return cache->under->pMethods->xRead(cache->under, to, size, at);
}

int cache_read(struct cache *cache, void *to, int size, sqlite3_int64 at)
{
	uint64_t token = 0;
	int rc, result;

	if (!is_page(cache, size, at))
		return read_under(cache, to, size, at);
	rc = reef_pages_get(cache->pages, &cache->file, (uint64_t)(at / size),
			    to, &token);
	if (!rc)
		return SQLITE_OK;
	if (rc != -ENOENT && rc != -ENODATA)
		fail(cache, rc);
	if (rc == -ENODATA) /* somebody took its generation away */
		cache->is_valid = false;
	result = read_under(cache, to, size, at);
	if (result != SQLITE_OK || rc != -ENOENT || !token)
		return result;
	rc = reef_pages_fill(cache->pages, &cache->file, (uint64_t)(at / size),
			     token, to);
	if (rc && rc != -ESTALE && rc != -ENOSPC && rc != -EDQUOT)
		fail(cache, rc);
	return result;
}

/* --- writing --- */

/* Before the first change under a lock. Nobody else writes from here on; but
 * who brings a WAL's pages into the file may have looked at it long ago, and
 * another may have done so meanwhile. */
static void begin_writing(struct cache *cache)
{
	if (!cache->has_written)
		cache_check(cache);
}

static int write_under(struct cache *cache, const void *from, int size,
		       sqlite3_int64 at)
{
	cache->has_written = true;
	return cache->under->pMethods->xWrite(cache->under, from, size, at);
}

int cache_write(struct cache *cache, const void *from, int size,
		sqlite3_int64 at)
{
	uint64_t token = 0;
	int rc, result;

	begin_writing(cache);
	if (!is_page(cache, size, at)) {
		cache->is_valid = false;
		return write_under(cache, from, size, at);
	}
	rc = reef_pages_begin(cache->pages, &cache->file, (uint64_t)(at / size),
			      1, &token);
	result = write_under(cache, from, size, at);
	if (!rc && result == SQLITE_OK)
		rc = reef_pages_write(cache->pages, &cache->file,
				      (uint64_t)(at / size), token, from);
	if (rc == -ESTALE)
		rc = reef_pages_renew(cache->pages, &cache->file);
	/* (3) */
	if (rc)
		fail(cache, rc);
	else if (result != SQLITE_OK)
		cache->is_valid = false;
	return result;
}

struct cut {
	struct cache *cache;
	sqlite3_int64 size;
	int result;
};

static int cut_under(void *context)
{
	struct cut *cut = context;
	sqlite3_file *under = cut->cache->under;

	cut->cache->has_written = true;
	cut->result = under->pMethods->xTruncate(under, cut->size);
	return 0;
}

/* True if that is the size which the file has: who brings all of a WAL into it
 * cuts it in the end, mostly to that. */
static bool has_size(struct cache *cache, sqlite3_int64 size)
{
	sqlite3_int64 now = -1;

	return cache->under->pMethods->xFileSize(cache->under, &now) ==
		       SQLITE_OK &&
	       now == size;
}

int cache_truncate(struct cache *cache, sqlite3_int64 size)
{
	struct cut cut = {.cache = cache, .size = size};
	bool changed = false;
	int rc = 0;

	begin_writing(cache);
	if (has_size(cache, size)) {
		cut_under(&cut);
		cache->is_valid = cache->is_valid && cut.result == SQLITE_OK;
		return cut.result;
	}
	if (cache->is_valid)
		rc = reef_pages_change(cache->pages, &cache->file, cut_under,
				       &cut, &changed);
	if (rc)
		fail(cache, rc);
	if (!changed)
		cut_under(&cut);
	if (!changed || cut.result != SQLITE_OK)
		cache->is_valid = false;
	return cut.result;
}

/* (2): give the file a time that no later write gives it. */
static bool set_time(struct cache *cache)
{
	uint64_t time = now_ns(CLOCK_REALTIME_COARSE) - 1;
	const struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = (time_t)(time / SECOND_NS),
		 .tv_nsec = (long)(time % SECOND_NS)},
	};
	struct cache_state state;

	if (cache->is_remote || utimensat(AT_FDCWD, cache->path, times, 0) ||
	    !look(cache, &state) || state.mtime_ns != time ||
	    state.page_size != cache->page_size)
		return false;
	cache->state = state;
	return true;
}

/* What was written without being told: nobody else writes until the lock is
 * given, so the state is what a new generation begins with. */
static int begin_anew(struct cache *cache)
{
	struct cache_state state;

	if (!look(cache, &state) || !join_pool(cache, state.page_size))
		return -EBUSY;
	return reef_pages_renew(cache->pages, &cache->file);
}

void cache_finish(struct cache *cache)
{
	int rc = 0;

	if (!cache->has_written)
		return;
	cache->has_written = false;
	if (!cache->is_valid)
		rc = begin_anew(cache);
	if (!rc && !set_time(cache))
		rc = -EBUSY;
	if (!rc)
		rc = reef_pages_note(cache->pages, &cache->file, &cache->state,
				     sizeof(cache->state));
	cache->is_valid = !rc;
	if (rc && rc != -EBUSY && rc != -ENOENT)
		fail(cache, rc);
}

/* --- for people --- */

sqlite3_int64 cache_prime(struct cache *cache)
{
	uint64_t filled, count = cache->state.size / cache->page_size;
	struct reef_pages_stats stats;
	void *page;

	if (!cache->is_valid)
		return 0;
	page = sqlite3_malloc((int)cache->page_size);
	if (!page)
		return 0;
	reef_pages_stats(cache->pages, &stats);
	filled = stats.fills + cache->before.fills;
	for (uint64_t i = 0; i < count && cache->is_valid; i++)
		if (cache_read(cache, page, (int)cache->page_size,
			       (sqlite3_int64)i * cache->page_size))
			break;
	sqlite3_free(page);
	if (!cache->pages)
		return (sqlite3_int64)(cache->before.fills - filled);
	reef_pages_stats(cache->pages, &stats);
	return (sqlite3_int64)(stats.fills + cache->before.fills - filled);
}

char *cache_tell(struct cache *cache)
{
	struct reef_pages_stats sum = cache->before, now = {0};

	if (cache->pages)
		reef_pages_stats(cache->pages, &now);
	add_stats(&sum, &now);
	return sqlite3_mprintf(
		"{\"vfs\":\"reefcache\",\"caching\":%s,\"why\":\"%s\","
		"\"space\":\"%w\",\"cover\":\"%w-%u\",\"page_size\":%u,"
		"\"size_max\":%llu,\"hits\":%llu,\"misses\":%llu,"
		"\"disk_reads\":%llu,\"fills\":%llu,\"writes\":%llu,"
		"\"lost\":%llu,\"renewals\":%llu,\"foreign\":%llu}",
		cache->is_valid ? "true" : "false",
		cache->why ? reef_error_text(cache->why) : "",
		cache->space ? cache->space : DEFAULT_SPACE,
		cache->cover ? cache->cover : DEFAULT_COVER, cache->page_size,
		cache->page_size, now.size_max, sum.hits, sum.misses,
		cache->disk_reads, sum.fills, sum.writes, sum.lost,
		sum.renewals, cache->foreign);
}

void cache_init(struct cache *cache, const char *path, sqlite3_file *under)
{
	memset(cache, 0, sizeof(*cache));
	cache->path = path;
	cache->under = under;
}

void cache_fini(struct cache *cache)
{
	leave_pool(cache);
}
