/* killer.c - deaths at the moments that matter, and at others.
 *
 * A case traps somebody at a spot (board.h), waits until others wait for it,
 * and kills it, or one of those, or both. After each the survivors must go on:
 * *watch* is called wherever the killer waits, and fails the test if anybody
 * waits for longer than the limit. That limit is no measurement: a lease, its
 * repair, and all the patience that a busy machine needs. */
#include "killer.h"

#include "base/clock.h"
#include "fixture/units.h"
#include "guard.h"
#include "section.h"
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <reef/fiber.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum victim { VICTIM_HOLDER, VICTIM_READER, VICTIM_WAITER, VICTIM_OTHER };
#define VICTIMS 4

struct child {
	pid_t pid; /* 0: none */
	uint32_t first, count;
};

struct killer {
	const struct killer_options *options;
	struct board *board;
	int fd;
	struct child children[WORKERS_MAX];
	struct section section; /* the killer's own handle */
	struct reef_space *space;
	uint64_t held_until_ns; /* before that, waiting was our doing */
	uint64_t heir_ns;	/* the longest until the next one had it */
	uint32_t started, killed, stopped;
	uint32_t victims[VICTIMS];
};

/* --- children --- */

static void become_worker(struct killer *killer, uint32_t number,
			  const struct child *child)
{
	const struct killer_options *options = killer->options;
	char fd[16], first[16], count[16];
	char *argv[] = {"kills", "worker", fd, first, count, NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(fd, sizeof(fd), "%d", killer->fd);
	snprintf(first, sizeof(first), "%u", child->first);
	snprintf(count, sizeof(count), "%u", child->count);
	if (options->fabrics_count)
		setenv("REEF_FABRICS",
		       options->fabrics[number % options->fabrics_count], 1);
	execv("/proc/self/exe", argv);
	_exit(127);
}

static int start_child(struct killer *killer, struct child *child)
{
	/* Every fourth process has two participants. */
	uint32_t number = killer->started++;

	child->count = number % 4 == 3 ? 2 : 1;
	child->first =
		atomic_fetch_add(&killer->board->seats_used, child->count);
	if (child->first + child->count > SEATS_MAX)
		return -ENOSPC;
	child->pid = fork();
	if (child->pid == 0)
		become_worker(killer, number, child);
	return child->pid < 0 ? -errno : 0;
}

static struct child *child_of(struct killer *killer, uint32_t seat)
{
	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		if (child->pid && seat >= child->first &&
		    seat < child->first + child->count)
			return child;
	}
	return NULL;
}

static struct seat *seat_of(struct killer *killer, const struct child *child,
			    uint32_t index)
{
	return &killer->board->seats[child->first + index];
}

static void doom_child(struct killer *killer, const struct child *child)
{
	for (uint32_t i = 0; i < child->count; i++)
		atomic_store(&seat_of(killer, child, i)->doomed, 1);
}

static enum victim victim_at(enum spot spot)
{
	switch (spot) {
	case SPOT_HOLDS:
	case SPOT_INTENT:
	case SPOT_HALF:
	case SPOT_DONE:
	case SPOT_GIVES:
		return VICTIM_HOLDER;
	case SPOT_READS:
	case SPOT_GIVES_READ:
		return VICTIM_READER;
	case SPOT_WAITS:
	case SPOT_WAITS_READ:
		return VICTIM_WAITER;
	default:
		return VICTIM_OTHER;
	}
}

/* Expect that each member of a barrier hears of a death, if the dead one was a
 * member for sure. */
static void expect_news(struct killer *killer, const struct child *dead)
{
	if (!atomic_load(&seat_of(killer, dead, 0)->takes))
		return;
	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		for (uint32_t j = 0; child != dead && j < child->count; j++)
			if (atomic_load(&seat_of(killer, child, j)->takes))
				atomic_fetch_add(
					&seat_of(killer, child, j)->expected,
					1);
	}
}

/* What a child was when it died: of several participants, the one that was
 * trapped counts, or that did the most. */
static enum victim victim_of(struct killer *killer, const struct child *child)
{
	uint32_t trapped = atomic_load(&killer->board->trapped);
	enum victim worst = VICTIM_OTHER, victim;

	for (uint32_t i = 0; i < child->count; i++) {
		victim = victim_at((enum spot)atomic_load(
			&seat_of(killer, child, i)->spot));
		if (trapped == child->first + i + 1)
			return victim;
		worst = victim < worst ? victim : worst;
	}
	return worst;
}

/* Kill a child, wait until it is dead, and start another. */
static int kill_child(struct killer *killer, struct child *child)
{
	int status;

	doom_child(killer, child);
	kill(child->pid, SIGKILL);
	if (waitpid(child->pid, &status, 0) != child->pid)
		return -errno;
	if (!WIFSIGNALED(status))
		return board_fail(killer->board, "worker %u ended by itself",
				  child->first);
	if (killer->options->kind == GUARD_BARRIER)
		expect_news(killer, child);
	killer->victims[victim_of(killer, child)]++;
	killer->killed++;
	return start_child(killer, child);
}

/* --- watching --- */

static int watch_seat(struct killer *killer, uint32_t index, uint64_t now_ns)
{
	struct seat *seat = &killer->board->seats[index];
	uint64_t since_ns = atomic_load(&seat->since_ns);
	uint32_t spot = atomic_load(&seat->spot);

	if (atomic_load(&seat->doomed) ||
	    (spot != SPOT_WAITS && spot != SPOT_WAITS_READ))
		return 0;
	if (since_ns < killer->held_until_ns)
		since_ns = killer->held_until_ns;
	if (now_ns < since_ns + killer->options->limit_ns)
		return 0;
	return board_fail(killer->board, "%u %s for %.1f s", index,
			  spot_names[spot], (double)(now_ns - since_ns) / 1e9);
}

/* Fail if a child has ended by itself; in the end it may, with 0. */
static int watch_child(struct killer *killer, struct child *child)
{
	int status;

	if (!child->pid || waitpid(child->pid, &status, WNOHANG) != child->pid)
		return 0;
	child->pid = 0;
	if (status == 0 && atomic_load(&killer->board->stop))
		return 0;
	return board_fail(killer->board, "worker %u ended with %#x",
			  child->first, (unsigned)status);
}

static int watch(struct killer *killer)
{
	uint64_t now_ns = reef_now_ns();
	int rc = 0;

	for (uint32_t i = 0; !rc && i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		for (uint32_t j = 0; !rc && j < child->count; j++)
			rc = watch_seat(killer, child->first + j, now_ns);
		if (!rc)
			rc = watch_child(killer, child);
	}
	/* 1: somebody is about to say why. */
	for (uint32_t i = 0; i < 1000 && atomic_load(&killer->board->bad) == 1;
	     i++)
		reef_sleep(MILLISECOND);
	return atomic_load(&killer->board->bad) ? -EPROTO : rc;
}

/* Watch until something is so, within the limit. */
static int wait_until(struct killer *killer, const char *what,
		      bool (*is_so)(struct killer *killer, uint64_t argument),
		      uint64_t argument)
{
	uint64_t end_ns = reef_now_ns() + 2 * killer->options->limit_ns;
	int rc;

	while (!is_so(killer, argument)) {
		rc = watch(killer);
		if (rc)
			return rc;
		if (reef_now_ns() > end_ns)
			return board_fail(killer->board, "never came: %s",
					  what);
		reef_sleep(MILLISECOND / 4);
	}
	return watch(killer);
}

static uint64_t count_takes(struct killer *killer)
{
	uint32_t used = atomic_load(&killer->board->seats_used);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < used; i++)
		sum += atomic_load(&killer->board->seats[i].takes);
	return sum;
}

static bool have_taken(struct killer *killer, uint64_t count)
{
	return count_takes(killer) >= count;
}

/* True if all participants have taken the guard since, new ones too, and have
 * heard of the deaths that they were to hear of. */
static bool have_all_taken(struct killer *killer, uint64_t argument)
{
	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		for (uint32_t j = 0; j < child->count; j++) {
			struct seat *seat = seat_of(killer, child, j);

			if (!atomic_load(&seat->takes) ||
			    atomic_load(&seat->inherited) <
				    atomic_load(&seat->expected))
				return false;
		}
	}
	return true;
}

static int wait_for_more_takes(struct killer *killer)
{
	int rc = wait_until(killer, "that the others go on", have_taken,
			    count_takes(killer) + 3 * killer->options->workers);

	return rc ? rc
		  : wait_until(killer, "that all take part", have_all_taken, 0);
}

/* --- traps --- */

static bool is_trapped(struct killer *killer, uint64_t argument)
{
	return atomic_load(&killer->board->trapped);
}

/* Somebody who waits, and is not of the same process as the trapped one. */
static struct child *find_waiter(struct killer *killer)
{
	uint32_t trapped = atomic_load(&killer->board->trapped);
	uint32_t at = (uint32_t)section_random(&killer->section, WORKERS_MAX);

	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child =
			&killer->children[(at + i) % killer->options->workers];

		if (trapped && child_of(killer, trapped - 1) == child)
			continue;
		for (uint32_t j = 0; child->pid && j < child->count; j++) {
			uint32_t spot = seat_of(killer, child, j)->spot;

			if (spot == SPOT_WAITS || spot == SPOT_WAITS_READ)
				return child;
		}
	}
	return NULL;
}

static bool somebody_waits(struct killer *killer, uint64_t argument)
{
	return find_waiter(killer) != NULL;
}

/* Trap a participant at a spot, and wait until others wait for it. */
static int trap_somebody(struct killer *killer, enum spot spot,
			 struct child **out)
{
	uint32_t seat;
	int rc;

	atomic_store(&killer->board->trapped, 0);
	atomic_store(&killer->board->trap, spot);
	rc = wait_until(killer, spot_names[spot], is_trapped, 0);
	if (rc)
		return rc;
	seat = atomic_load(&killer->board->trapped) - 1;
	rc = wait_until(killer, "somebody who waits", somebody_waits, 0);
	reef_sleep(section_random(&killer->section, 4 * MILLISECOND));
	*out = child_of(killer, seat);
	return rc;
}

static void open_trap(struct killer *killer)
{
	killer->held_until_ns = reef_now_ns();
	atomic_store(&killer->board->trap, SPOT_NONE);
	atomic_store(&killer->board->trapped, 0);
}

static enum spot choose_spot(struct killer *killer)
{
	static const enum spot spots[] = {SPOT_HALF, SPOT_HOLDS, SPOT_INTENT,
					  SPOT_DONE, SPOT_GIVES, SPOT_HALF};

	/* At a barrier: a member that has passed, and does not come again. */
	if (killer->options->kind == GUARD_BARRIER)
		return SPOT_HOLDS;
	return spots[section_random(&killer->section,
				    sizeof(spots) / sizeof(spots[0]))];
}

/* --- cases --- */

static int kill_holder(struct killer *killer)
{
	uint64_t before, begun_ns;
	struct child *child;
	int rc = trap_somebody(killer, choose_spot(killer), &child);

	before = count_takes(killer);
	begun_ns = reef_now_ns();
	if (!rc)
		rc = kill_child(killer, child);
	open_trap(killer);
	if (!rc)
		rc = wait_until(killer, "an heir", have_taken, before + 1);
	if (!rc && reef_now_ns() - begun_ns > killer->heir_ns)
		killer->heir_ns = reef_now_ns() - begun_ns;
	return rc;
}

static int kill_waiter(struct killer *killer)
{
	struct child *child;
	int rc = trap_somebody(killer, choose_spot(killer), &child);

	child = find_waiter(killer);
	if (!rc && child)
		rc = kill_child(killer, child);
	open_trap(killer);
	return rc;
}

static int kill_waiter_and_holder(struct killer *killer)
{
	struct child *holder, *waiter;
	int rc = trap_somebody(killer, choose_spot(killer), &holder);

	waiter = find_waiter(killer);
	if (!rc && waiter)
		rc = kill_child(killer, waiter);
	if (!rc)
		rc = kill_child(killer, holder);
	open_trap(killer);
	return rc;
}

static int kill_reader(struct killer *killer)
{
	struct child *child;
	int rc;

	if (!guard_has_readers(killer->options->kind))
		return kill_holder(killer);
	rc = trap_somebody(killer, SPOT_READS, &child);
	if (!rc)
		rc = kill_child(killer, child);
	open_trap(killer);
	return rc;
}

static int kill_anybody(struct killer *killer)
{
	struct section *section = &killer->section;
	uint32_t at =
		(uint32_t)section_random(section, killer->options->workers);

	reef_sleep(section_random(section, 20 * MILLISECOND));
	return kill_child(killer, &killer->children[at]);
}

/* Kill a child while its messages are on their way. */
static int kill_busy(struct killer *killer)
{
	static const enum spot spots[] = {SPOT_WAITS, SPOT_GIVES};
	struct section *section = &killer->section;
	uint32_t count = killer->options->kind == GUARD_BARRIER ? 1 : 2;
	struct child *child;
	int rc;

	rc = trap_somebody(killer, spots[section_random(section, count)],
			   &child);
	if (rc)
		return rc;
	open_trap(killer);
	reef_sleep(section_random(section, MILLISECOND / 2) + MILLISECOND / 2);
	return kill_child(killer, child);
}

static int (*const cases[])(struct killer *killer) = {
	kill_holder, kill_waiter,  kill_reader,
	kill_busy,   kill_anybody, kill_waiter_and_holder,
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* --- stops --- */

static bool has_passed(struct killer *killer, uint64_t end_ns)
{
	return reef_now_ns() >= end_ns;
}

/* The holder stands still, in the middle, for longer than its lease lasts. If
 * that fences it, others go on, and it finds out by itself; else nobody gets
 * in. */
static int stop_holder(struct killer *killer)
{
	const struct killer_options *options = killer->options;
	uint64_t before;
	struct child *child;
	int rc = trap_somebody(killer, SPOT_HALF, &child);

	if (rc)
		return rc;
	before = count_takes(killer);
	if (options->stop_fences)
		doom_child(killer, child);
	kill(child->pid, SIGSTOP);
	killer->held_until_ns = reef_now_ns();
	rc = options->stop_fences
		     ? wait_until(killer, "that others go on without it",
				  have_taken, before + 2 * options->workers)
		     : wait_until(killer, "the end of the lease", has_passed,
				  reef_now_ns() + 3 * options->ttl_ns);
	if (!rc && !options->stop_fences && count_takes(killer) != before)
		rc = board_fail(killer->board, "taken from one that lives");
	open_trap(killer);
	kill(child->pid, SIGCONT);
	killer->stopped++;
	return rc;
}

/* --- a run --- */

static int set_up(struct killer *killer)
{
	const struct killer_options *options = killer->options;
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct section *section = &killer->section;
	struct board *board = killer->board;
	int rc;

	board->kind = options->kind;
	board->seed = options->seed;
	board->mutant = options->mutant;
	board->places = options->places;
	board->ttl_ns = options->ttl_ns;
	board->members = options->workers + options->workers / 4;
	board->read_percent = 50;
	board->hold_us = 500;
	/* The killer itself uses all fabrics that there are. */
	section->board = board;
	section->random = options->seed * 31 + 7;
	rc = reef_open(NULL, NULL, &section->reef);
	if (!rc)
		rc = reef_space_open(section->reef, SPACE_NAME, &make,
				     &killer->space);
	if (!rc)
		rc = section_create(killer->space, section->reef, &board->data);
	for (uint32_t i = 0; !rc && i < options->workers; i++)
		rc = start_child(killer, &killer->children[i]);
	return rc;
}

/* Run the cases in turn, from the seed on, so that even few kills are of every
 * kind. */
static int all_cases(struct killer *killer)
{
	const struct killer_options *options = killer->options;
	uint64_t at = options->seed;
	int rc = wait_for_more_takes(killer);

	while (!rc && killer->killed < options->kills) {
		rc = cases[at++ % CASES](killer);
		if (!rc)
			rc = wait_for_more_takes(killer);
	}
	while (!rc && killer->stopped < options->stops) {
		rc = stop_holder(killer);
		if (!rc)
			rc = wait_for_more_takes(killer);
	}
	return rc;
}

static bool have_ended(struct killer *killer, uint64_t argument)
{
	for (uint32_t i = 0; i < killer->options->workers; i++)
		if (killer->children[i].pid)
			return false;
	return true;
}

static void kill_all(struct killer *killer)
{
	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		if (child->pid > 0) {
			kill(child->pid, SIGKILL);
			waitpid(child->pid, NULL, 0);
		}
		child->pid = 0;
	}
}

/* Take the guard once more, repair what the last holder left, and give it. */
static int pass_through(struct killer *killer, struct guard *guard)
{
	int rc = guard_take(guard, false, killer->options->limit_ns);

	if (rc >= 0)
		rc = section_repair(&killer->section);
	return rc ? rc : guard_give(guard);
}

/* Check that the guard is free in the end. A dead participant may wait for it,
 * and have it, until it is fenced. */
static int check_guard(struct killer *killer)
{
	const struct killer_options *options = killer->options;
	uint64_t end_ns = reef_now_ns() + options->limit_ns;
	char text[TEXT_SIZE];
	struct guard guard;
	int rc, is_free;

	rc = guard_open(&guard, options->kind, options->places, killer->space);
	if (rc)
		return rc;
	do {
		rc = pass_through(killer, &guard);
		is_free = rc ? rc : guard_is_free(&guard, text);
		if (is_free == 0)
			reef_sleep(options->ttl_ns / 8);
	} while (is_free == 0 && reef_now_ns() < end_ns);
	if (is_free == 0)
		rc = board_fail(killer->board, "it is not free: %s", text);
	guard_close(&guard);
	return rc;
}

static int check_data(struct killer *killer, uint64_t *total)
{
	int rc;

	atomic_store(&killer->board->stop, 1);
	rc = wait_until(killer, "the end of the workers", have_ended, 0);
	if (!rc && killer->options->kind != GUARD_BARRIER)
		rc = check_guard(killer);
	if (!rc)
		rc = section_check(&killer->section, total);
	return rc ? rc : guard_drop(killer->options->kind, killer->space);
}

static void show_seats(struct killer *killer)
{
	uint64_t now_ns = reef_now_ns();

	for (uint32_t i = 0; i < killer->options->workers; i++) {
		struct child *child = &killer->children[i];

		for (uint32_t j = 0; j < child->count; j++) {
			struct seat *seat = seat_of(killer, child, j);

			printf("  %u: %s for %.1f ms, %" PRIu64 " takes\n",
			       child->first + j,
			       spot_names[atomic_load(&seat->spot)],
			       (double)(now_ns - atomic_load(&seat->since_ns)) /
				       1e6,
			       atomic_load(&seat->takes));
		}
	}
}

static void print_report(struct killer *killer, uint64_t total)
{
	uint32_t used = atomic_load(&killer->board->seats_used);
	uint64_t inherited = 0, repaired = 0, longest_ns = 0, fenced = 0;

	for (uint32_t i = 0; i < used; i++) {
		struct seat *seat = &killer->board->seats[i];
		uint64_t waited_ns = atomic_load(&seat->waited_ns);

		inherited += atomic_load(&seat->inherited);
		repaired += atomic_load(&seat->repaired);
		fenced += atomic_load(&seat->fenced);
		longest_ns = waited_ns > longest_ns ? waited_ns : longest_ns;
	}
	printf("%s: %u killed (%u holders, %u readers, %u waiters, %u others), "
	       "%u stopped, %" PRIu64 " takes, %" PRIu64 " updates, %" PRIu64
	       " inherited, %" PRIu64 " repaired, %" PRIu64
	       " fenced, an heir after %.0f ms, longest wait %.0f ms\n",
	       guard_names[killer->options->kind], killer->killed,
	       killer->victims[VICTIM_HOLDER], killer->victims[VICTIM_READER],
	       killer->victims[VICTIM_WAITER], killer->victims[VICTIM_OTHER],
	       killer->stopped, count_takes(killer), total,
	       guard_tells(killer->options->kind) ? inherited : 0, repaired,
	       fenced, (double)killer->heir_ns / 1e6, (double)longest_ns / 1e6);
}

int killer_run(const struct killer_options *options)
{
	struct killer killer = {.options = options};
	uint64_t total = 0;
	int rc;

	killer.board = board_create(&killer.fd);
	if (!killer.board)
		return 1;
	rc = set_up(&killer);
	if (!rc)
		rc = all_cases(&killer);
	if (!rc)
		rc = check_data(&killer, &total);
	if (rc) {
		printf("FAILED %s, seed %" PRIu64 ", after %u kills: %s\n",
		       guard_names[options->kind], options->seed, killer.killed,
		       killer.board->bad == 2 ? killer.board->text
					      : reef_error_text(rc));
		show_seats(&killer);
	}
	kill_all(&killer);
	print_report(&killer, total);
	if (killer.section.reef && killer.board->data)
		reef_free(killer.space, killer.board->data, 0);
	reef_close(killer.section.reef);
	return rc != 0;
}
