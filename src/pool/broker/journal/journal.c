/* journal.c - appending, waiting, and who commits.
 *
 *   append      take_pending          write, sync       wake_waiters
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

#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/random.h"
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

static void wake_waiters(struct reef_journal *journal)
{
	struct waiter *waiter;

	for (waiter = journal->waiters; waiter; waiter = waiter->next)
		if (waiter->sequence <= journal->durable || journal->error)
			reef_fiber_unpark(waiter->fiber);
}

/* Let everyone who waits see what has become durable, or broken. */
static void announce_progress(struct reef_journal *journal)
{
	const uint64_t one = 1;
	ssize_t done;

	if (!journal->has_thread) {
		wake_waiters(journal);
		return;
	}
	/* Release: pairs with the exchange in journal_poll. */
	atomic_store_explicit(&journal->news, true, memory_order_release);
	do {
		done = write(journal->poller.fd, &one, sizeof(one));
	} while (done < 0 && errno == EINTR);
}

static void break_journal(struct reef_journal *journal, int error)
{
	reef_log(REEF_LOG_ERROR, "journal", "broken: %s",
		 reef_error_text(error));
	pthread_mutex_lock(&journal->lock);
	journal->error = error;
	pthread_cond_broadcast(&journal->progress);
	pthread_mutex_unlock(&journal->lock);
	announce_progress(journal);
}

/* Commit a part of the batch whose last record is `last`. */
static int commit_part(struct reef_journal *journal, uint8_t *bytes,
		       size_t size, uint64_t last)
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
	announce_progress(journal);
	return 0;
}

static int rotate_segment(struct reef_journal *journal)
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

static int begin_snapshot(struct reef_journal *journal)
{
	int rc = rotate_segment(journal);

	if (rc)
		return rc;
	return reef_journal_disk_snapshot(
		&journal->disk, journal->snapshot.bytes, journal->snapshot.size,
		journal->snapshot.sequence);
}

static int write_snapshot_piece(struct reef_journal *journal)
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

/* Make all that is pending the batch. Under lock. */
static void take_pending(struct reef_journal *journal)
{
	struct buffer empty = journal->batch;

	journal->batch = journal->pending;
	journal->pending = empty;
	journal->pending.size = 0;
	journal->in_flight = journal->batch.size;
}

/* Commit one batch, and write one piece of a snapshot. 1: nothing to do. */
static int run_turn(struct reef_journal *journal)
{
	size_t place = 0;
	bool begins, busy;
	uint64_t last;
	int rc = 0;

	pthread_mutex_lock(&journal->lock);
	take_pending(journal);
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
		rc = rotate_segment(journal);
	if (rc == 0 && begins) {
		rc = commit_part(journal, journal->batch.bytes, place,
				 journal->snapshot.sequence);
		if (rc == 0)
			rc = begin_snapshot(journal);
	}
	if (rc == 0 && journal->batch.size > place)
		rc = commit_part(journal, journal->batch.bytes + place,
				 journal->batch.size - place, last);
	if (rc == 0 && busy)
		rc = write_snapshot_piece(journal);
	return rc;
}

/* Run turns until nothing is left to do. */
static void run_turns(struct reef_journal *journal)
{
	int rc = journal->error;

	while (rc == 0)
		rc = run_turn(journal);
	if (rc < 0 && !journal->error)
		break_journal(journal, rc);
}

static int run_fiber(void *arg)
{
	struct reef_journal *journal = arg;

	run_turns(journal);
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
		run_turns(journal);
	}
	return NULL;
}

/* Wake waiters on the owner's side, if the thread has announced progress. */
static int journal_poll(struct reef_poller *poller)
{
	struct reef_journal *journal =
		(struct reef_journal *)((char *)poller -
					offsetof(struct reef_journal, poller));

	/* Acquire: pairs with the store in announce_progress. */
	if (!atomic_exchange_explicit(&journal->news, false,
				      memory_order_acquire))
		return 0;
	pthread_mutex_lock(&journal->lock);
	wake_waiters(journal);
	pthread_mutex_unlock(&journal->lock);
	return 1;
}

/* Drain the eventfd. Not done where `news` is taken: that can happen before the
 * eventfd is written, which would then stay readable, and nobody could sleep. A
 * poll comes after this, so that no news is missed. */
static int journal_arm(struct reef_poller *poller)
{
	uint64_t count;
	ssize_t done = read(poller->fd, &count, sizeof(count));

	reef_assert(done > 0 || errno == EAGAIN || errno == EINTR);
	return 0;
}

/* --- the owner's calls --- */

/* Make sure that a thread or a fiber will commit. */
static int ensure_committer(struct reef_journal *journal)
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

static int reserve_bytes(struct buffer *buffer, size_t size)
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

/* Add a record to what is pending. Under lock. */
static int append_pending(struct reef_journal *journal, uint16_t type,
			  const void *bytes, size_t size)
{
	uint64_t room = reef_journal_record_room(size);
	size_t waiting = journal->pending.size + journal->in_flight;
	int rc;

	if (journal->error)
		return journal->error;
	if (waiting > 0 && waiting + room > journal->options.pending_max)
		return -EAGAIN;
	rc = reserve_bytes(&journal->pending, room);
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
	rc = ensure_committer(journal);
	if (rc)
		return rc;
	pthread_mutex_lock(&journal->lock);
	rc = append_pending(journal, type, bytes, size);
	if (rc == 0)
		*sequence = journal->appended;
	pthread_mutex_unlock(&journal->lock);
	return rc;
}

/* 0: the record is durable.  1: not yet.  Negative: the journal is broken. */
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
		/* With a scheduler a fiber commits, which cannot run here. */
		reef_assert(!journal->sched);
		run_turns(journal);
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

	/* No lock: only the owner appends, and it is the caller. */
	reef_assert(sequence <= journal->appended);
	if (rc != 1)
		return rc;
	return reef_fiber_self() && journal->sched
		       ? wait_in_fiber(journal, sequence)
		       : wait_outside(journal, sequence);
}

/* Ask the committer for a snapshot. Under lock; the copy becomes the journal's
 * on success. */
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
	rc = ensure_committer(journal);
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

static struct reef_journal *create_journal(
	const struct reef_journal_options *options, struct reef_sched *sched)
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

static void destroy_journal(struct reef_journal *journal)
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
	/* The thread blocks signals: they are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	journal->has_thread = true; /* set before the thread reads it */
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

	/* Virtual time would not wait for a thread. */
	if (!sync_inline && (!sched || reef_sched_virtual_ns(sched)))
		return -EINVAL;
	journal = create_journal(options, sched);
	if (!journal)
		return -ENOMEM;
	rc = open_files(journal, store, reader);
	if (rc == 0 && !sync_inline)
		rc = start_thread(journal);
	if (rc) {
		destroy_journal(journal);
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
	run_turns(journal);
	if (journal->appended > journal->opened && !journal->error) {
		append_pending(journal, REEF_JOURNAL_SEAL, NULL, 0);
		run_turns(journal);
	}
	destroy_journal(journal);
}
