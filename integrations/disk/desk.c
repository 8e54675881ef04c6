/* desk.c - see desk.h. */
#include "integrations/disk/desk.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DESKS_MAX 16u
#define JOIN_NS UINT64_C(2000000000)	/* to find the pool */
#define PATIENCE_NS UINT64_C(500000000) /* when it is out of reach */
#define WAIT_S 2			/* for a handle that others use */
#define FDS_MAX 4096u
#define RETRY_MS 2000u /* a pool that is not there */

static const struct through_options *options;
static char table_name[100];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
/* Under the lock: */
static struct desk *idle;
static uint32_t desks;
static struct table *table; /* stays, once it is there */
static int table_fd = -1;
/* Read without it: */
static _Atomic uint32_t epoch;
static _Atomic uint64_t retry_ms;
static _Atomic(struct table *) attached;
static _Atomic uint64_t kept[FDS_MAX / 64];
static _Atomic bool has_no_table, has_ended, has_joined;
static _Thread_local uint32_t depth;

uint64_t desk_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void close_idle(void);

/* --- forks --- */

static void before_fork(void)
{
	depth++;
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
	depth--;
}

/* The handles are the parent's, and are forgotten. */
static void after_fork_in_child(void)
{
	int before;

	idle = NULL;
	desks = 0;
	atomic_store(&retry_ms, 0);
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&given, NULL);
	if (table_fd >= 0) {
		before = table_fd;
		table_fd = table_lock_again(table_name);
		close(before);
		/* Without a lock of its own others might empty it: then nothing
		 * here is to be believed, nor told. */
		if (table_fd < 0)
			atomic_store(&has_ended, true);
	}
	atomic_store(&has_joined, false);
	for (unsigned i = 0; i < FDS_MAX / 64; i++)
		atomic_store(&kept[i], 0);
	depth = 0;
}

void desk_init(const struct through_options *given_options)
{
	options = given_options;
	through_table_name(options->space, options->cover, options->page_size,
			   table_name);
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* --- the table --- */

struct table *desk_table(void)
{
	struct table *found = atomic_load(&attached);
	int rc;

	if (found || atomic_load(&has_no_table) || depth)
		return found;
	depth++;
	pthread_mutex_lock(&lock);
	if (!table) {
		rc = table_attach(table_name, &table, &table_fd);
		if (rc)
			table = NULL;
		atomic_store(&has_no_table, rc != 0);
		atomic_store(&attached, table);
	}
	found = table;
	pthread_mutex_unlock(&lock);
	depth--;
	return found;
}

bool desk_is_last(void)
{
	return table_fd >= 0 && table_is_last(table_fd);
}

void desk_fold_table(void)
{
	table_fold(table_fd);
}

/* --- the pool --- */

bool desk_has_joined(void)
{
	return atomic_load(&has_joined);
}

bool desk_is_inside(void)
{
	return depth;
}

bool through_is_inside(void)
{
	return depth;
}

void through_stay_inside(void)
{
	depth = 1;
}

/* --- descriptors of the library --- */

/* All that are open, one bit each. */
static void list_fds(uint64_t *bits)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned long fd;

	while (folder && (entry = readdir(folder))) {
		fd = strtoul(entry->d_name, NULL, 10);
		if (entry->d_name[0] != '.' && fd < FDS_MAX &&
		    fd != (unsigned long)dirfd(folder))
			bits[fd / 64] |= UINT64_C(1) << fd % 64;
	}
	if (folder)
		closedir(folder);
}

/* Those that are there now, and were not before. One that another thread has
 * opened meanwhile may be among them. */
static void keep_fds(const uint64_t *before)
{
	uint64_t now[FDS_MAX / 64] = {0};

	list_fds(now);
	for (unsigned i = 0; i < FDS_MAX / 64; i++)
		atomic_fetch_or(&kept[i], now[i] & ~before[i]);
}

static bool has_kept(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < FDS_MAX; fd++)
		if (atomic_load(&kept[fd / 64]) >> fd % 64 & 1)
			return true;
	return false;
}

void through_closing(unsigned first, unsigned last)
{
	if (depth || !has_kept(first, last))
		return;
	depth++;
	close_idle();
	for (unsigned i = 0; i < FDS_MAX / 64; i++)
		atomic_store(&kept[i], 0);
	depth--;
}

/* Others may empty the table while it has no lock: then nothing is trusted. */
void through_closed(unsigned first, unsigned last)
{
	int before = errno;

	if (depth || table_fd < 0 || (unsigned)table_fd < first ||
	    (unsigned)table_fd > last)
		return;
	depth++;
	pthread_mutex_lock(&lock);
	table_fd = table_lock_again(table_name);
	if (table_fd < 0)
		atomic_store(&has_ended, true);
	pthread_mutex_unlock(&lock);
	depth--;
	errno = before;
}

static void close_desk(struct desk *desk)
{
	reef_pages_close(desk->pages);
	reef_space_close(desk->space);
	reef_close(desk->reef);
	free(desk->room);
	free(desk);
}

static int open_pages(struct desk *desk)
{
	struct reef_pages_options of_pages = {
		.flags = REEF_PAGES_WRITER,
		.page_size = options->page_size,
		.size_max = options->size_max,
	};
	char name[128];

	snprintf(name, sizeof(name), "%.100s-%u", options->cover,
		 options->page_size);
	disk_find_machine(of_pages.machine);
	return reef_pages_open(desk->space, name, &of_pages, &desk->pages);
}

static int open_desk(struct desk *desk)
{
	const struct reef_options of_pool = {
		.credential = options->credential,
		.name = options->program,
		.timeout_ns = JOIN_NS,
		.patience_ns = PATIENCE_NS,
	};
	struct reef_space_options of_space = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_REVOCABLE,
		.token = options->token,
	};
	int rc;

	desk->room = malloc(options->page_size);
	rc = desk->room ? reef_open(options->pool, &of_pool, &desk->reef)
			: -ENOMEM;
	if (rc)
		return rc;
	/* Who has a token need not be allowed to make it. */
	if (options->token)
		of_space.flags = 0;
	rc = reef_space_open(desk->reef, options->space, &of_space,
			     &desk->space);
	return rc ? rc : open_pages(desk);
}

static void note_failure(int rc)
{
	struct table *found = atomic_load(&attached);

	if (!found)
		return;
	atomic_fetch_add(&found->counts.failures, 1);
	atomic_store(&found->counts.last_error, rc);
}

/* Open a handle; NULL: the pool is not there. */
static struct desk *make_desk(void)
{
	struct desk *desk = calloc(1, sizeof(*desk));
	uint64_t before[FDS_MAX / 64] = {0};
	int rc = desk ? 0 : -ENOMEM;

	if (!rc) {
		desk->epoch = atomic_load(&epoch);
		list_fds(before);
		rc = open_desk(desk);
		keep_fds(before);
	}
	if (!rc) {
		atomic_store(&has_joined, true);
		return desk;
	}
	if (desk)
		close_desk(desk);
	note_failure(rc);
	atomic_store(&retry_ms, desk_now_ms() + RETRY_MS);
	return NULL;
}

/* Wait until a handle is idle, or may be made. False: they all stay in use, as
 * by threads that have left their calls by longjmp. Under the lock. */
static bool wait_given(void)
{
	struct timespec end;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_S;
	while (!idle && desks >= DESKS_MAX && !rc)
		rc = pthread_cond_timedwait(&given, &lock, &end);
	return idle || desks < DESKS_MAX;
}

/* Take an idle handle, or make one. */
static struct desk *find_desk(void)
{
	bool may_make = false;
	struct desk *desk = NULL;

	pthread_mutex_lock(&lock);
	if (wait_given()) {
		desk = idle;
		may_make = !desk;
		if (desk)
			idle = desk->next;
		else
			desks++;
	}
	pthread_mutex_unlock(&lock);
	if (!may_make)
		return desk;
	desk = make_desk();
	if (desk)
		return desk;
	pthread_mutex_lock(&lock);
	desks--;
	pthread_cond_signal(&given);
	pthread_mutex_unlock(&lock);
	return NULL;
}

struct desk *desk_take(void)
{
	struct desk *desk;
	int cancel;

	if (depth || atomic_load(&has_ended) || !options ||
	    desk_now_ms() < atomic_load(&retry_ms))
		return NULL;
	depth++;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	desk = find_desk();
	if (desk) {
		desk->failed = 0;
		desk->cancel = cancel;
		return desk;
	}
	pthread_setcancelstate(cancel, NULL);
	depth--;
	return NULL;
}

void desk_give(struct desk *desk)
{
	bool is_over = desk->epoch != atomic_load(&epoch);
	int cancel = desk->cancel;

	if (is_over)
		close_desk(desk);
	pthread_mutex_lock(&lock);
	if (is_over) {
		desks--;
	} else {
		desk->next = idle;
		idle = desk;
	}
	pthread_cond_signal(&given);
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel, NULL);
	depth--;
}

static void close_idle(void)
{
	struct desk *desk, *next;

	pthread_mutex_lock(&lock);
	desk = idle;
	idle = NULL;
	for (next = desk; next; next = next->next)
		desks--;
	pthread_cond_broadcast(&given);
	pthread_mutex_unlock(&lock);
	for (; desk; desk = next) {
		next = desk->next;
		close_desk(desk);
	}
}

void desk_fail(struct desk *desk, int rc)
{
	desk->failed = rc;
	note_failure(rc);
	if (rc == -EBUSY || rc == -REEF_EINDOUBT || rc == -ENOMEM ||
	    rc == -ENOSPC || rc == -EDQUOT)
		return;
	atomic_store(&retry_ms, desk_now_ms() + RETRY_MS);
	if (desk->epoch == atomic_load(&epoch))
		atomic_fetch_add(&epoch, 1);
	close_idle();
}

/* The table stays: others of this process may still write. */
void desk_end(void)
{
	depth++;
	atomic_store(&has_ended, true);
	close_idle();
	depth--;
}
