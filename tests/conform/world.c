/* world.c - participants as processes or as simulated hosts. */
#include "conform.h"

#include "fabric/hook/fault.h"
#include "fabric/hook/trace.h"
#include "fabric/provider.h"
#include "fixture/units.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const uint8_t conform_key[REEF_KEY_SIZE] = "the key of the conformance test";

int fail_at(struct world *world, const char *file, int line, const char *text,
	    long long a, long long b)
{
	struct board *board = world->board;

	/* A killed host unwinds: what it sees on its way means nothing. */
	if (world->sim && reef_fiber_group() && reef_fiber_group()->dead)
		return -1;
	if (!atomic_exchange(&board->failed, 1)) {
		if (strrchr(file, '/'))
			file = strrchr(file, '/') + 1;
		snprintf(board->failure, sizeof(board->failure),
			 "%s:%d: %s (%lld, %lld)", file, line, text, a, b);
	}
	return -1;
}

uint32_t rounds(const struct world *world, uint32_t sim, uint32_t real)
{
	uint64_t count;

	if (world->sim)
		return sim;
	count = (uint64_t)real * world->percent / 100;
	return count ? (uint32_t)count : 1;
}

uint32_t fast_rounds(const struct world *world, uint32_t sim, uint32_t real)
{
	return rounds(world, sim, is_kind(world, "shm") ? 100 * real : real);
}

bool is_kind(const struct world *world, const char *kind)
{
	return !strcmp(world->kind, kind);
}

void nap(const struct world *world)
{
	reef_sleep(world->sim ? 2000 : 50000);
}

/* In sim, between two looks: the longer the wait so far, the longer, so that
 * virtual seconds cost little. */
static int pause_sim(uint64_t start_ns)
{
	uint64_t pause_ns = (reef_now_ns() - start_ns) / 16;

	if (pause_ns < 2000)
		pause_ns = 2000;
	return reef_sleep(pause_ns < 1000000 ? pause_ns : 1000000);
}

int await(struct world *world, _Atomic uint64_t *word, uint64_t value)
{
	uint64_t start_ns = reef_now_ns();
	uint32_t spins = 0;

	while (atomic_load(word) < value) {
		if (reef_now_ns() - start_ns > 30 * SECOND)
			return fail_at(world, __FILE__, __LINE__,
				       "waited too long for the board",
				       (long long)atomic_load(word),
				       (long long)value);
		if (atomic_load(&world->board->failed))
			return -1;
		if (world->sim) {
			if (pause_sim(start_ns))
				return -1;
		} else if (++spins > 20000) {
			nap(world);
		}
	}
	return 0;
}

int meet(struct host *host, uint64_t count)
{
	struct board *board = host->world->board;

	atomic_fetch_add(&board->met, 1);
	return await(host->world, &board->met, count);
}

void spread(struct host *host)
{
	cpu_set_t cpus;

	if (!is_kind(host->world, "shm"))
		return;
	CPU_ZERO(&cpus);
	CPU_SET(number_of(host) % 2, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus); /* if there are two */
}

static int give_order(struct world *world, struct reef_queue *queue,
		      enum order what, uint64_t a, uint64_t b, uint64_t c,
		      uint64_t *value)
{
	struct board *board = world->board;
	uint64_t start_ns = reef_now_ns();
	int expected, result;

	while (expected = 0,
	       !atomic_compare_exchange_strong(&board->busy, &expected, 1))
		nap(world);
	board->argument[0] = a;
	board->argument[1] = b;
	board->argument[2] = c;
	atomic_store(&board->answered, 0);
	atomic_store(&board->order, (int)what);
	while (!atomic_load(&board->answered)) {
		if (reef_now_ns() - start_ns > 60 * SECOND) {
			atomic_store(&board->busy, 0);
			return fail_at(world, __FILE__, __LINE__,
				       "the node does not answer", (int)what,
				       0);
		}
		if (world->sim && pause_sim(start_ns)) {
			atomic_store(&board->busy, 0);
			return -REEF_EHOSTDEAD;
		}
		if (queue)
			reef_poll(queue);
		if (!world->sim)
			nap(world);
	}
	result = board->result;
	if (value)
		*value = board->value;
	atomic_store(&board->busy, 0);
	return result;
}

int order(struct world *world, enum order what, uint64_t a, uint64_t b,
	  uint64_t c, uint64_t *value)
{
	return give_order(world, NULL, what, a, b, c, value);
}

int order_sends(struct host *host, uint32_t session, uint64_t count)
{
	return give_order(host->world, host->queue, ORDER_SEND, session, count,
			  0, NULL);
}

/* --- participants --- */

/* A fabric under hooks is still a fabric. */
static int push_hooks(struct host *host)
{
	struct reef_fault_options options = {
		.seed = reef_random_next(&host->random),
		.again_ppm = 50000,
		.delay_ppm = 100000,
		.delay_max_ns = 20000,
	};
	struct reef_fault *fault;
	struct reef_trace *trace;
	int rc = reef_trace_push(host->fabric, NULL, &trace);

	if (!rc)
		rc = reef_fault_push(host->fabric, &options, &fault);
	if (!rc)
		rc = reef_count_push(host->fabric, &host->world->count);
	return rc;
}

int host_open(struct host *host, struct world *world, struct part *part)
{
	struct reef_fabric_options options = part->index == world->node
						     ? world->node_options
						     : world->client_options;
	int rc;

	memset(host, 0, sizeof(*host));
	host->world = world;
	host->part = part;
	host->sim_host = part->host;
	reef_random_init(&host->random,
			 world->seed * 1000003 + (uint64_t)part->index);
	options.sim_host = part->host;
	options.tls = world->tls;
	rc = reef_fabric_open(world->kind, &options, &host->fabric);
	if (rc)
		return fail_at(world, __FILE__, __LINE__, "open the fabric", rc,
			       0);
	rc = world->hooks ? push_hooks(host) : 0;
	if (!rc)
		rc = reef_queue_open(host->fabric, NULL, &host->queue);
	if (rc) {
		reef_fabric_close(host->fabric);
		return fail_at(world, __FILE__, __LINE__, "open a queue", rc,
			       0);
	}
	return 0;
}

void host_close(struct host *host)
{
	reef_queue_close(host->queue);
	reef_fabric_close(host->fabric);
}

static int part_run(struct part *part)
{
	struct host host;
	int rc;

	atomic_store(&part->world->board->started[part->index], 1);
	rc = host_open(&host, part->world, part);
	if (rc)
		return rc;
	rc = part->main(&host, part->arg);
	host_close(&host);
	return rc;
}

static int part_run_host(struct reef_sim_host *host, void *arg)
{
	struct part *part = arg;
	int rc;

	part->host = host;
	rc = part_run(part);
	atomic_store(&part->world->board->outcome[part->index], rc);
	atomic_store(&part->world->board->ended[part->index], 1);
	return 0;
}

static void enter_netns(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || setns(fd, 0)) {
		perror(path);
		_exit(1);
	}
	close(fd);
}

int world_start(struct world *world, part_main *main, void *arg)
{
	struct part *part = &world->parts[world->part_count];
	const char *netns =
		world->netns[world->part_count == world->node ? 0 : 1];
	char name[16];

	if (world->part_count == PARTS_MAX)
		abort();
	*part = (struct part){
		.main = main,
		.arg = arg,
		.world = world,
		.index = world->part_count++,
	};
	if (world->sim) {
		snprintf(name, sizeof(name), "host%d", part->index);
		if (reef_sim_host_add(world->sim, name, part_run_host, part,
				      &part->host))
			abort();
		return part->index;
	}
	fflush(NULL);
	part->pid = fork();
	if (part->pid < 0)
		abort();
	if (!part->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (netns)
			enter_netns(netns);
		exit(part_run(part) ? 1 : 0);
	}
	return part->index;
}

/* Has anybody crashed? Others would only wait for it, and say so much later. */
static void look_for_crashes(struct world *world)
{
	siginfo_t info;
	int i;

	for (i = 0; i < world->part_count; i++) {
		info.si_pid = 0;
		if (!world->parts[i].pid ||
		    waitid(P_PID, (id_t)world->parts[i].pid, &info,
			   WEXITED | WNOHANG | WNOWAIT) ||
		    !info.si_pid || info.si_code == CLD_EXITED ||
		    info.si_status == SIGKILL)
			continue;
		fail_at(world, __FILE__, __LINE__, "crashed: part, signal", i,
			info.si_status);
	}
}

int world_join(struct world *world, int index)
{
	struct part *part = &world->parts[index];
	struct board *board = world->board;
	uint64_t start_ns = reef_now_ns();
	int status;

	if (atomic_load(&board->ended[index]))
		return atomic_load(&board->outcome[index]);
	if (world->sim) {
		while (!atomic_load(&board->ended[index]))
			if (pause_sim(start_ns))
				return -1;
		return atomic_load(&board->outcome[index]);
	}
	while (!waitpid(part->pid, &status, WNOHANG)) {
		look_for_crashes(world);
		nap(world);
	}
	part->pid = 0;
	atomic_store(&board->outcome[index],
		     WIFEXITED(status)	   ? WEXITSTATUS(status)
		     : WIFSIGNALED(status) ? -WTERMSIG(status)
					   : -1);
	atomic_store(&board->ended[index], 1);
	return atomic_load(&board->outcome[index]);
}

int world_start_node(struct world *world)
{
	struct board *board = world->board;
	uint64_t start_ns = reef_now_ns();

	atomic_store(&board->quit, 0);
	atomic_store(&board->listening, 0);
	world->node = world->part_count;
	world_start(world, node_main, NULL);
	while (!atomic_load(&board->listening)) {
		if (atomic_load(&board->failed) ||
		    reef_now_ns() - start_ns > 30 * SECOND)
			return fail_at(world, __FILE__, __LINE__,
				       "the node does not start", 0, 0);
		nap(world);
	}
	return 0;
}

void world_kill(struct world *world, int index)
{
	struct part *part = &world->parts[index];

	if (world->sim) {
		reef_sim_host_kill(part->host);
	} else if (part->pid) {
		kill(part->pid, SIGKILL);
		world_join(world, index);
	}
}

void world_stop(struct world *world, int index)
{
	struct part *part = &world->parts[index];

	if (world->sim)
		reef_sim_host_pause(part->host);
	else
		kill(part->pid, SIGSTOP);
}

void world_continue(struct world *world, int index)
{
	struct part *part = &world->parts[index];

	if (world->sim)
		reef_sim_host_resume(part->host);
	else
		kill(part->pid, SIGCONT);
}

int world_end(struct world *world)
{
	int i, rc = 0;

	atomic_store(&world->board->quit, 1);
	for (i = 0; i < world->part_count; i++) {
		if (!world->sim && !world->parts[i].pid)
			continue;
		if (i == world->node || world->sim)
			world_join(world, i);
		else
			world_kill(world, i);
	}
	if (world->node >= 0 &&
	    atomic_load(&world->board->outcome[world->node]))
		rc = fail_at(world, __FILE__, __LINE__, "the node failed",
			     atomic_load(&world->board->outcome[world->node]),
			     0);
	return rc;
}

int with_clients(struct world *world, int count, part_main *main)
{
	int i, first, rc;

	TRY(world_start_node(world));
	first = world->part_count;
	for (i = 0; i < count; i++)
		world_start(world, main, NULL);
	for (i = 0; i < count; i++) {
		rc = world_join(world, first + i);
		if (rc)
			fail_at(world, __FILE__, __LINE__, "a client failed", i,
				rc);
	}
	return world_end(world);
}

int number_of(const struct host *host)
{
	return host->part->index - host->world->node - 1;
}
