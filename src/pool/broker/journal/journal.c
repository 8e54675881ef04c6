/* journal.c - appending, waiting, and who commits.
 *
 *   append          take              write, sync           wake
 *   ------> pending ----> in flight ---------------> durable ----> waiters
 *
 * (1) The committer is the journal's thread, or a fiber that lives while there
 *     is something to commit, or (no scheduler) whoever waits or closes. It
 *     runs turns until nothing is left: a turn takes all that is pending as one
 *     batch, then writes a piece of a snapshot if there is one.
 * (2) `lock` guards what owner and committer share. It is never held across a
 *     call to the store, nor where a fiber could park.
 * (3) Waiters belong to the owner. The thread only says that there is news (a
 *     flag, then the eventfd); the poller wakes them on the owner's side.
 * (4) A snapshot asked for while records are pending stands at a place among
 *     them: those before it are committed, then the segment ends. */
#include "pool/broker/journal/journal.h"

#include "base/log.h"
#include "base/random.h"
#include "base/sched.h"
#include "pool/broker/journal/disk.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SEGMENT_SIZE (16 * 1024 * 1024)
#define PENDING_MAX (64 * 1024 * 1024)
#define RECORD_MAX (1024 * 1024)

struct buffer {
	uint8_t *bytes;
	size_t size, room;
};

struct waiter {
	struct waiter *next;
	struct reef_fiber *fiber;
	uint64_t sequence;
};

enum snapshot_state { SNAPSHOT_NONE, SNAPSHOT_ASKED, SNAPSHOT_BUSY };

struct reef_journal {
	struct reef_journal_options options;
	struct reef_sched *sched;

	/* under lock */
	pthread_mutex_t lock;
	pthread_cond_t work;	 /* for the thread */
	pthread_cond_t progress; /* for who waits outside a fiber */
	struct buffer pending;
	size_t in_flight; /* bytes taken by the committer */
	uint64_t appended, durable;
	uint64_t syncs;
	uint64_t bytes; /* of records since the snapshot */
	uint64_t first_segment, last_segment;
	int error;
	bool stop;
	struct {
		enum snapshot_state state;
		uint8_t *bytes;
		size_t size;
		size_t place; /* in pending; while asked for */
		uint64_t sequence;
		uint64_t bytes_before; /* journal bytes that it replaces */
		uint64_t done;	       /* sequence of the last durable one */
	} snapshot;

	/* the committer's */
	struct reef_journal_disk disk;
	struct buffer batch;

	/* the owner's */
	uint64_t cut, opened; /* by open; the last sequence number it found */
	struct waiter *waiters;
	struct reef_fiber *fiber; /* the last one that committed; to join */
	bool committing;	  /* it has not ended */
	pthread_t thread;
	bool has_thread;
	atomic_bool news;
	struct reef_poller poller;
};

/* --- the committer --- */

static void wake(struct reef_journal *journal)
{
	struct waiter *waiter;

	for (waiter = journal->waiters; waiter; waiter = waiter->next)
		if (waiter->sequence <= journal->durable || journal->error)
			reef_fiber_unpark(waiter->fiber);
}

/* Tell everyone who waits what is new. */
static void announce(struct reef_journal *journal)
{
	const uint64_t one = 1;
	ssize_t done;

	if (!journal->has_thread) {
		wake(journal);
		return;
	}
	/* Release: pairs with the exchange in journal_poll. */
	atomic_store_explicit(&journal->news, true, memory_order_release);
	do {
		done = write(journal->poller.fd, &one, sizeof(one));
	} while (done < 0 && errno == EINTR);
}

static void fail(struct reef_journal *journal, int error)
{
	reef_log(REEF_LOG_ERROR, "journal", "broken: %s",
		 reef_error_text(error));
	pthread_mutex_lock(&journal->lock);
	journal->error = error;
	pthread_cond_broadcast(&journal->progress);
	pthread_mutex_unlock(&journal->lock);
	announce(journal);
}

/* Commit a part of the batch whose last record is `last`. */
static int commit(struct reef_journal *journal, uint8_t *bytes, size_t size,
		  uint64_t last)
{
	int rc;

	if (size == 0)
		return 0;
	rc = reef_journal_disk_write(&journal->disk, bytes, size,
				     journal->durable);
	if (rc)
		return rc;
	pthread_mutex_lock(&journal->lock);
	journal->durable = last;
	journal->in_flight -= size;
	journal->syncs++;
	pthread_cond_broadcast(&journal->progress);
	pthread_mutex_unlock(&journal->lock);
	announce(journal);
	return 0;
}

static int rotate(struct reef_journal *journal)
{
	int rc;

	if (!reef_journal_disk_is_used(&journal->disk))
		return 0;
	rc = reef_journal_disk_rotate(&journal->disk, journal->durable + 1);
	if (rc)
		return rc;
	pthread_mutex_lock(&journal->lock);
	journal->last_segment = journal->disk.number;
	pthread_mutex_unlock(&journal->lock);
	return 0;
}

static int snapshot_begin(struct reef_journal *journal)
{
	int rc = rotate(journal);

	if (rc)
		return rc;
	return reef_journal_disk_snapshot(
		&journal->disk, journal->snapshot.bytes, journal->snapshot.size,
		journal->snapshot.sequence);
}

static int snapshot_step(struct reef_journal *journal)
{
	int rc = reef_journal_disk_snapshot_step(&journal->disk);

	if (rc <= 0)
		return rc;
	pthread_mutex_lock(&journal->lock);
	journal->first_segment = journal->disk.first;
	journal->bytes -= journal->snapshot.bytes_before;
	journal->snapshot.done = journal->snapshot.sequence;
	journal->snapshot.state = SNAPSHOT_NONE;
	free(journal->snapshot.bytes);
	journal->snapshot.bytes = NULL;
	pthread_mutex_unlock(&journal->lock);
	return 0;
}

/* Take everything that is pending. Under lock. */
static void take(struct reef_journal *journal)
{
	struct buffer empty = journal->batch;

	journal->batch = journal->pending;
	journal->pending = empty;
	journal->pending.size = 0;
	journal->in_flight = journal->batch.size;
}

/* One batch, and one piece of a snapshot. 1: there was nothing to do. */
static int turn(struct reef_journal *journal)
{
	size_t place = 0;
	bool begins, busy;
	uint64_t last;
	int rc = 0;

	pthread_mutex_lock(&journal->lock);
	take(journal);
	last = journal->appended;
	begins = journal->snapshot.state == SNAPSHOT_ASKED;
	if (begins) {
		journal->snapshot.state = SNAPSHOT_BUSY;
		place = journal->snapshot.place;
	}
	busy = journal->snapshot.state == SNAPSHOT_BUSY;
	pthread_mutex_unlock(&journal->lock);

	if (journal->batch.size == 0 && !busy)
		return 1;
	if (journal->batch.size > 0 &&
	    journal->disk.end >= journal->options.segment_size)
		rc = rotate(journal);
	if (rc == 0 && begins) {
		rc = commit(journal, journal->batch.bytes, place,
			    journal->snapshot.sequence);
		if (rc == 0)
			rc = snapshot_begin(journal);
	}
	if (rc == 0 && journal->batch.size > place)
		rc = commit(journal, journal->batch.bytes + place,
			    journal->batch.size - place, last);
	if (rc == 0 && busy)
		rc = snapshot_step(journal);
	return rc;
}

/* Turns until nothing is left to do. */
static void run(struct reef_journal *journal)
{
	int rc = journal->error;

	while (rc == 0)
		rc = turn(journal);
	if (rc < 0 && !journal->error)
		fail(journal, rc);
}

static int run_fiber(void *arg)
{
	struct reef_journal *journal = arg;

	run(journal);
	journal->committing = false;
	return 0;
}

static bool has_work(const struct reef_journal *journal)
{
	return journal->pending.size > 0 ||
	       journal->snapshot.state == SNAPSHOT_ASKED;
}

static void *run_thread(void *arg)
{
	struct reef_journal *journal = arg;
	bool stop = false;

	while (!stop && !journal->error) {
		pthread_mutex_lock(&journal->lock);
		while (!journal->stop && !has_work(journal))
			pthread_cond_wait(&journal->work, &journal->lock);
		stop = journal->stop;
		pthread_mutex_unlock(&journal->lock);
		run(journal);
	}
	return NULL;
}

/* The owner's side of the thread's news. */
static int journal_poll(struct reef_poller *poller)
{
	struct reef_journal *journal =
		(struct reef_journal *)((char *)poller -
					offsetof(struct reef_journal, poller));

	/* Acquire: pairs with the store in announce. */
	if (!atomic_exchange_explicit(&journal->news, false,
				      memory_order_acquire))
		return 0;
	pthread_mutex_lock(&journal->lock);
	wake(journal);
	pthread_mutex_unlock(&journal->lock);
	return 1;
}

/* Drained here and not where news are taken: those can be taken before the
 * eventfd is written, and then it would stay readable, and nobody sleep. A poll
 * comes after this, so nothing that was written for is missed. */
static int journal_arm(struct reef_poller *poller)
{
	uint64_t count;
	ssize_t done = read(poller->fd, &count, sizeof(count));

	reef_assert(done > 0 || errno == EAGAIN || errno == EINTR);
	return 0;
}

/* --- the owner's calls --- */

/* See to it that someone will commit. */
static int start(struct reef_journal *journal)
{
	int rc;

	if (journal->has_thread || !journal->sched || journal->committing)
		return 0;
	if (journal->fiber) {
		reef_fiber_join(journal->fiber, NULL); /* it has ended */
		journal->fiber = NULL;
	}
	rc = reef_fiber_spawn(journal->sched, run_fiber, journal,
			      &journal->fiber);
	if (rc == 0)
		journal->committing = true;
	return rc;
}

static int reserve(struct buffer *buffer, size_t size)
{
	size_t room = buffer->room ? buffer->room : 4096;
	uint8_t *bytes;

	while (room < buffer->size + size)
		room *= 2;
	if (room == buffer->room)
		return 0;
	bytes = realloc(buffer->bytes, room);
	if (!bytes)
		return -ENOMEM;
	buffer->bytes = bytes;
	buffer->room = room;
	return 0;
}

/* Under lock. */
static int append(struct reef_journal *journal, uint16_t type,
		  const void *bytes, size_t size)
{
	uint64_t room = reef_journal_record_room(size);
	size_t waiting = journal->pending.size + journal->in_flight;
	int rc;

	if (journal->error)
		return journal->error;
	if (waiting > 0 && waiting + room > journal->options.pending_max)
		return -EAGAIN;
	rc = reserve(&journal->pending, room);
	if (rc)
		return rc;
	reef_journal_record_put(journal->pending.bytes + journal->pending.size,
				++journal->appended, type, bytes, size);
	journal->pending.size += room;
	journal->bytes += room;
	pthread_cond_signal(&journal->work);
	return 0;
}

int reef_journal_append(struct reef_journal *journal, uint16_t type,
			const void *bytes, size_t size, uint64_t *sequence)
{
	int rc;

	reef_assert(type != REEF_JOURNAL_SEAL);
	if (size > journal->options.record_max)
		return -EMSGSIZE;
	rc = start(journal);
	if (rc)
		return rc;
	pthread_mutex_lock(&journal->lock);
	rc = append(journal, type, bytes, size);
	if (rc == 0)
		*sequence = journal->appended;
	pthread_mutex_unlock(&journal->lock);
	return rc;
}

/* 1: neither durable nor broken yet. */
static int outcome(const struct reef_journal *journal, uint64_t sequence)
{
	if (sequence <= journal->durable)
		return 0;
	return journal->error ? journal->error : 1;
}

static int outcome_locked(struct reef_journal *journal, uint64_t sequence)
{
	int rc;

	pthread_mutex_lock(&journal->lock);
	rc = outcome(journal, sequence);
	pthread_mutex_unlock(&journal->lock);
	return rc;
}

static int wait_in_fiber(struct reef_journal *journal, uint64_t sequence)
{
	struct waiter waiter = {.next = journal->waiters,
				.fiber = reef_fiber_self(),
				.sequence = sequence};
	struct waiter **at;
	int rc;

	journal->waiters = &waiter;
	while ((rc = outcome_locked(journal, sequence)) == 1) {
		rc = reef_fiber_park(REEF_FOREVER);
		if (rc)
			break;
	}
	for (at = &journal->waiters; *at != &waiter; at = &(*at)->next)
		;
	*at = waiter.next;
	return rc;
}

static int wait_outside(struct reef_journal *journal, uint64_t sequence)
{
	int rc;

	if (!journal->has_thread) {
		/* A fiber commits; only its scheduler can run it. */
		reef_assert(!journal->sched);
		run(journal);
		return outcome(journal, sequence);
	}
	pthread_mutex_lock(&journal->lock);
	while ((rc = outcome(journal, sequence)) == 1)
		pthread_cond_wait(&journal->progress, &journal->lock);
	pthread_mutex_unlock(&journal->lock);
	return rc;
}

int reef_journal_wait(struct reef_journal *journal, uint64_t sequence)
{
	int rc = outcome_locked(journal, sequence);

	/* Only the owner appends. */
	reef_assert(sequence <= journal->appended);
	if (rc != 1)
		return rc;
	return reef_fiber_self() && journal->sched
		       ? wait_in_fiber(journal, sequence)
		       : wait_outside(journal, sequence);
}

/* Under lock; the copy becomes the journal's on success. */
static int ask_snapshot(struct reef_journal *journal, uint8_t *copy,
			size_t size)
{
	if (journal->error)
		return journal->error;
	if (journal->snapshot.state != SNAPSHOT_NONE)
		return -EBUSY;
	journal->snapshot.state = SNAPSHOT_ASKED;
	journal->snapshot.bytes = copy;
	journal->snapshot.size = size;
	journal->snapshot.place = journal->pending.size;
	journal->snapshot.sequence = journal->appended;
	journal->snapshot.bytes_before = journal->bytes;
	pthread_cond_signal(&journal->work);
	return 0;
}

int reef_journal_snapshot(struct reef_journal *journal, const void *bytes,
			  size_t size)
{
	uint8_t *copy;
	int rc;

	if (journal->appended == 0)
		return -EINVAL;
	rc = start(journal);
	if (rc)
		return rc;
	copy = malloc(size + 1);
	if (!copy)
		return -ENOMEM;
	if (size > 0)
		memcpy(copy, bytes, size);
	pthread_mutex_lock(&journal->lock);
	rc = ask_snapshot(journal, copy, size);
	pthread_mutex_unlock(&journal->lock);
	if (rc)
		free(copy);
	return rc;
}

void reef_journal_status(struct reef_journal *journal,
			 struct reef_journal_status *out)
{
	pthread_mutex_lock(&journal->lock);
	*out = (struct reef_journal_status){
		.appended = journal->appended,
		.durable = journal->durable,
		.snapshot = journal->snapshot.done,
		.snapshot_busy = journal->snapshot.state != SNAPSHOT_NONE,
		.segments = journal->last_segment - journal->first_segment + 1,
		.bytes = journal->bytes,
		.syncs = journal->syncs,
		.cut = journal->cut,
		.error = journal->error,
	};
	pthread_mutex_unlock(&journal->lock);
}

/* --- open and close --- */

static struct reef_journal *make(const struct reef_journal_options *options,
				 struct reef_sched *sched)
{
	struct reef_journal *journal = calloc(1, sizeof(*journal));

	if (!journal)
		return NULL;
	if (options)
		journal->options = *options;
	if (!journal->options.segment_size)
		journal->options.segment_size = SEGMENT_SIZE;
	if (!journal->options.pending_max)
		journal->options.pending_max = PENDING_MAX;
	if (!journal->options.record_max)
		journal->options.record_max = RECORD_MAX;
	journal->sched = sched;
	journal->poller.fd = -1;
	pthread_mutex_init(&journal->lock, NULL);
	pthread_cond_init(&journal->work, NULL);
	pthread_cond_init(&journal->progress, NULL);
	return journal;
}

static void unmake(struct reef_journal *journal)
{
	reef_journal_disk_fini(&journal->disk);
	if (journal->poller.fd >= 0)
		close(journal->poller.fd);
	free(journal->pending.bytes);
	free(journal->batch.bytes);
	free(journal->snapshot.bytes);
	pthread_cond_destroy(&journal->progress);
	pthread_cond_destroy(&journal->work);
	pthread_mutex_destroy(&journal->lock);
	free(journal);
}

static int open_files(struct reef_journal *journal, struct reef_store *store,
		      const struct reef_journal_reader *reader)
{
	struct reef_journal_found found;
	uint64_t salt = journal->options.salt;
	int rc;

	rc = reef_journal_disk_init(&journal->disk, store);
	if (rc)
		return rc;
	rc = reef_journal_read(store, journal->disk.identity, reader, &found);
	if (rc == 0 && !found.exists && !salt)
		rc = reef_random_secret(&salt, sizeof(salt));
	if (rc == 0)
		rc = reef_journal_disk_prepare(&journal->disk, &found, salt);
	if (rc)
		return rc;
	journal->appended = journal->durable = found.sequence;
	journal->opened = found.sequence;
	journal->snapshot.done = found.snapshot;
	journal->bytes = found.bytes;
	journal->cut = found.cut;
	journal->first_segment = journal->disk.first;
	journal->last_segment = journal->disk.number;
	return 0;
}

static int start_thread(struct reef_journal *journal)
{
	sigset_t all, before;
	int rc;

	journal->poller.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (journal->poller.fd < 0)
		return -errno;
	/* Signals are for the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	journal->has_thread = true; /* before the thread looks */
	rc = -pthread_create(&journal->thread, NULL, run_thread, journal);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		journal->has_thread = false;
		return rc;
	}
	journal->poller.poll = journal_poll;
	journal->poller.arm = journal_arm;
	reef_sched_poller_add(journal->sched, &journal->poller);
	return 0;
}

int reef_journal_open(struct reef_store *store, struct reef_sched *sched,
		      const struct reef_journal_options *options,
		      const struct reef_journal_reader *reader,
		      struct reef_journal **out)
{
	bool sync_inline = options && options->sync_inline;
	struct reef_journal *journal;
	int rc;

	/* Virtual time does not wait for a thread. */
	if (!sync_inline && (!sched || reef_sched_virtual_ns(sched)))
		return -EINVAL;
	journal = make(options, sched);
	if (!journal)
		return -ENOMEM;
	rc = open_files(journal, store, reader);
	if (rc == 0 && !sync_inline)
		rc = start_thread(journal);
	if (rc) {
		unmake(journal);
		return rc;
	}
	*out = journal;
	return 0;
}

static void end_thread(struct reef_journal *journal)
{
	pthread_mutex_lock(&journal->lock);
	journal->stop = true;
	pthread_cond_signal(&journal->work);
	pthread_mutex_unlock(&journal->lock);
	pthread_join(journal->thread, NULL);
	reef_sched_poller_remove(journal->sched, &journal->poller);
	journal->has_thread = false;
}

void reef_journal_close(struct reef_journal *journal)
{
	int rc;

	if (!journal)
		return;
	reef_assert(!journal->waiters);
	if (journal->has_thread)
		end_thread(journal);
	if (journal->fiber) {
		rc = reef_fiber_join(journal->fiber, NULL);
		reef_assert(rc == 0); /* outside a fiber it must have ended */
	}
	run(journal);
	if (journal->appended > journal->opened && !journal->error) {
		append(journal, REEF_JOURNAL_SEAL, NULL, 0);
		run(journal);
	}
	unmake(journal);
}
