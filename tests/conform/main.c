/* main.c - run the suite on one fabric.
 *
 *   conform shm|tcp|tcp-tls|verbs [--percent N] [--netns] [--hooks] [--test
 * NAME] conform sim [--seeds N] [--from SEED] [--hooks] [--test NAME] conform
 * mutants [--seeds N]      each must be found by some test
 *
 * --mutant NAME runs the tests with that one on, to see which of them find it
 * on that fabric.
 *
 * With REEF_SOAK set: a hundred times the seeds, ten times the rounds.
 */
#include "conform.h"

#include "base/mutant.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_LIMIT_S 240
#define SIM_LIMIT_NS 1000000000000ull

static const struct conform_test *const groups[] = {
	conform_operations, conform_order, conform_sight, conform_safety,
	conform_rights,	    conform_cut,   conform_both,  conform_links,
	conform_keeper,	    conform_ended};

struct arguments {
	const char *kind, *only;
	enum reef_mutant mutant;
	uint64_t seeds, from;
	uint32_t percent;
	bool netns, hash, hooks, tls;
};

static struct board *board_create(void)
{
	void *board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (board == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return board;
}

static void world_prepare(struct world *world, struct board *board,
			  const char *kind, uint64_t seed)
{
	memset(board, 0, sizeof(*board));
	memset(world, 0, sizeof(*world));
	world->kind = kind;
	world->board = board;
	world->seed = seed;
	world->node = -1;
	reef_random_init(&world->random, seed);
}

/* --- sim --- */

struct director {
	struct world *world;
	const struct conform_test *test;
};

static int director_main(struct reef_sim_host *host, void *arg)
{
	struct director *director = arg;
	int rc;

	(void)host;
	rc = director->test->run(director->world);
	if (rc)
		fail_at(director->world, __FILE__, __LINE__, "the test", rc, 0);
	return rc;
}

/* 0 passed, 1 failed (text in board->failure). */
static int run_seed(const struct conform_test *test, uint64_t seed, bool hooks,
		    enum reef_mutant mutant, struct board *board,
		    uint64_t *hash)
{
	struct reef_sim_options options = {
		.seed = seed,
		.slow_ppm = seed % 3 ? 2000 : 50000,
	};
	struct director director = {.test = test};
	struct world world;
	int rc;

	world_prepare(&world, board, "sim", seed);
	world.hooks = hooks;
	director.world = &world;
	reef_mutate(mutant);
	rc = reef_sim_create(&options, &world.sim);
	if (rc)
		abort();
	rc = reef_sim_host_add(world.sim, "director", director_main, &director,
			       NULL);
	if (!rc)
		rc = reef_sim_run(world.sim, SIM_LIMIT_NS);
	if (rc)
		fail_at(&world, __FILE__, __LINE__, "run the simulation", rc,
			0);
	if (hash)
		*hash = reef_sim_trace_hash(world.sim);
	reef_sim_destroy(world.sim);
	reef_mutate(REEF_MUTANT_NONE);
	reef_memory_destroy(world.durable);
	return atomic_load(&board->failed);
}

static int run_seeds(const struct conform_test *test,
		     const struct arguments *arguments, struct board *board,
		     char *text, size_t size)
{
	uint64_t seed, hash, again, all = 0;
	int rc = 0;

	for (seed = arguments->from; seed < arguments->from + arguments->seeds;
	     seed++) {
		rc = run_seed(test, seed, arguments->hooks, arguments->mutant,
			      board, &hash);
		if (rc) {
			snprintf(text, size, "seed %llu: %s",
				 (unsigned long long)seed, board->failure);
			return 1;
		}
		all = all * 31 + hash;
		/* Every hundredth twice: the same seed, the same trace. */
		if (seed % 100)
			continue;
		if (run_seed(test, seed, arguments->hooks, REEF_MUTANT_NONE,
			     board, &again) ||
		    again != hash) {
			snprintf(text, size,
				 "seed %llu: trace %016llx, then %016llx",
				 (unsigned long long)seed,
				 (unsigned long long)hash,
				 (unsigned long long)again);
			return 1;
		}
	}
	snprintf(text, size, "%llu seeds, trace %016llx",
		 (unsigned long long)arguments->seeds, (unsigned long long)all);
	return 0;
}

/* A mutant is found when some test fails on some seed. */
static int run_mutant(enum reef_mutant mutant,
		      const struct arguments *arguments, struct board *board,
		      char *text, size_t size)
{
	const struct conform_test *test;
	uint64_t seed;
	size_t g;

	for (seed = arguments->from; seed < arguments->from + arguments->seeds;
	     seed++)
		for (g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
			for (test = groups[g]; test->name; test++) {
				if (!(test->where & ON_SIM) ||
				    !run_seed(test, seed, false, mutant, board,
					      NULL))
					continue;
				snprintf(text, size,
					 "found by %s, seed %llu: %.120s",
					 test->name, (unsigned long long)seed,
					 board->failure);
				return 0;
			}
	snprintf(text, size, "not found in %llu seeds",
		 (unsigned long long)arguments->seeds);
	return 1;
}

/* --- network namespaces --- */

static int shell(const char *command)
{
	return system(command);
}

/* Names with the process's number in them, so that two runs do not meet. The
 * shell that makes and removes them gets the number as $n. */
static char netns_path[2][64];

static int netns_shell(const char *script)
{
	char command[1024];

	snprintf(command, sizeof(command), "n=%d; %s", (int)getpid(), script);
	return shell(command);
}

static int netns_make(void)
{
	snprintf(netns_path[0], sizeof(netns_path[0]),
		 "/var/run/netns/reef-a-%d", (int)getpid());
	snprintf(netns_path[1], sizeof(netns_path[1]),
		 "/var/run/netns/reef-b-%d", (int)getpid());
	return netns_shell("ip netns add reef-a-$n && ip netns add reef-b-$n &&"
			   "ip link add reefa netns reef-a-$n type veth "
			   "peer name reefb netns reef-b-$n && "
			   "ip -n reef-a-$n addr add 10.99.0.1/24 dev reefa && "
			   "ip -n reef-b-$n addr add 10.99.0.2/24 dev reefb && "
			   "ip -n reef-a-$n link set lo up && "
			   "ip -n reef-b-$n link set lo up && "
			   "ip -n reef-a-$n link set reefa up && "
			   "ip -n reef-b-$n link set reefb up");
}

static void netns_remove(void)
{
	if (netns_shell("ip netns del reef-a-$n 2>/dev/null; "
			"ip netns del reef-b-$n 2>/dev/null"))
		return;
}

/* --- processes --- */

static int direct(const struct conform_test *test,
		  const struct arguments *arguments, struct board *board,
		  const char *directory)
{
	struct world world;
	int rc;

	world_prepare(&world, board, arguments->kind, arguments->from);
	world.percent = arguments->percent;
	world.hooks = arguments->hooks;
	world.tls = arguments->tls ? REEF_TLS_YES : REEF_TLS_AUTO;
	snprintf(world.directory, sizeof(world.directory), "%s", directory);
	if (arguments->netns) {
		world.netns[0] = netns_path[0];
		world.netns[1] = netns_path[1];
	}
	/* It runs in an emulator, on a machine that may have others to serve:
	 * a second is soon over. */
	if (is_kind(&world, "verbs"))
		world.node_options.silence_ns =
			world.client_options.silence_ns = 15000000000;
	rc = test->run(&world);
	if (rc)
		fail_at(&world, __FILE__, __LINE__, "the test", rc, 0);
	world_end(&world);
	return atomic_load(&board->failed);
}

/* The director is a process and the leader of its group, so that a test which
 * hangs can be ended as a whole. */
static int run_process(const struct conform_test *test,
		       const struct arguments *arguments, struct board *board,
		       const char *directory, char *text, size_t size)
{
	struct pollfd pollfd = {.events = POLLIN};
	int pid, status, ready;

	memset(board, 0, sizeof(*board));
	fflush(NULL);
	reef_mutate(arguments->mutant);
	pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		exit(direct(test, arguments, board, directory));
	}
	setpgid(pid, pid);
	pollfd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ready = pollfd.fd < 0 ? 1 : poll(&pollfd, 1, TEST_LIMIT_S * 1000);
	kill(-pid, ready == 1 ? SIGCONT : SIGKILL);
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL);
	if (pollfd.fd >= 0)
		close(pollfd.fd);
	if (ready != 1) {
		snprintf(text, size, "ended after %d s: %s", TEST_LIMIT_S,
			 board->failure);
		return 1;
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	snprintf(text, size, "%s%s", board->failure,
		 WIFEXITED(status) ? "" : " (the director crashed)");
	return 1;
}

/* --- the front --- */

static int usage(void)
{
	fprintf(stderr, "usage: conform shm|tcp|tcp-tls|verbs|sim|mutants "
			"[--seeds N] "
			"[--from SEED] [--percent N] [--netns] [--hooks] "
			"[--test NAME] [--mutant NAME]\n");
	return 2;
}

static int parse(int argc, char **argv, struct arguments *arguments)
{
	int i;

	for (i = 2; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--netns")) {
			arguments->netns = true;
			continue;
		}
		if (!strcmp(argv[i], "--hooks")) {
			arguments->hooks = true;
			continue;
		}
		if (!value)
			return -1;
		if (!strcmp(argv[i], "--seeds"))
			arguments->seeds = strtoull(value, NULL, 10);
		else if (!strcmp(argv[i], "--from"))
			arguments->from = strtoull(value, NULL, 10);
		else if (!strcmp(argv[i], "--percent"))
			arguments->percent = (uint32_t)atoi(value);
		else if (!strcmp(argv[i], "--test"))
			arguments->only = value;
		else if (!strcmp(argv[i], "--mutant"))
			arguments->mutant = reef_mutant_named(value);
		else
			return -1;
		i++;
	}
	return 0;
}

static int passed, failed;

static void tell(const char *name, int result, const char *text)
{
	printf("%s %s%s%s\n", result ? "FAILED" : "ok    ", name,
	       text[0] ? ": " : "", text);
	fflush(stdout);
	if (result)
		failed++;
	else
		passed++;
}

static const enum reef_mutant mutants[] = {REEF_MUTANTS_OF_SIM(
	REEF_MUTANT_NUMBER) REEF_MUTANTS_OF_FABRIC(REEF_MUTANT_NUMBER)};

static void run_mutants(const struct arguments *arguments, struct board *board)
{
	char text[512];
	size_t i;
	int rc;

	for (i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		rc = run_mutant(mutants[i], arguments, board, text,
				sizeof(text));
		tell(reef_mutant_name(mutants[i]), rc, text);
	}
}

static int where(const char *kind)
{
	static const char *const kinds[] = {"shm", "tcp", "verbs", "sim"};
	int i;

	for (i = 0; i < 4; i++)
		if (!strcmp(kind, kinds[i]))
			return 1 << i;
	return 0;
}

static void run_suite(const struct arguments *arguments, struct board *board,
		      const char *directory)
{
	bool sim = !strcmp(arguments->kind, "sim");
	const struct conform_test *test;
	char text[512];
	size_t g;
	int rc;

	for (g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
		for (test = groups[g]; test->name; test++) {
			if (arguments->only &&
			    !strstr(test->name, arguments->only))
				continue;
			if (!(test->where & where(arguments->kind)))
				continue;
			text[0] = 0;
			rc = sim ? run_seeds(test, arguments, board, text,
					     sizeof(text))
				 : run_process(test, arguments, board,
					       directory, text, sizeof(text));
			tell(test->name, rc, text);
		}
}

static void run_in_directory(const struct arguments *arguments,
			     struct board *board)
{
	char directory[] = "/tmp/reef-conform-XXXXXX", command[64];

	if (!mkdtemp(directory)) {
		perror("mkdtemp");
		exit(1);
	}
	run_suite(arguments, board, directory);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (shell(command))
		failed++;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {.percent = 100, .seeds = 10, .from = 1};
	struct board *board = board_create();
	struct rlimit files;

	/* The board has the first thing that was wrong. */
	try_quiet = true;
	if (argc < 2 || parse(argc, argv, &arguments))
		return usage();
	arguments.kind = argv[1];
	if (!strcmp(arguments.kind, "tcp-tls")) {
		arguments.kind = "tcp";
		arguments.tls = true;
	}
	if (getenv("REEF_SOAK")) {
		arguments.seeds *= 100;
		arguments.percent *= 10;
	}
	/* A thousand links are two thousand descriptors. */
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (!strcmp(arguments.kind, "mutants")) {
		run_mutants(&arguments, board);
	} else if (!where(arguments.kind)) {
		return usage();
	} else if (arguments.netns && netns_make()) {
		netns_remove();
		puts("network namespaces cannot be made here");
		return 77;
	} else {
		run_in_directory(&arguments, board);
	}
	if (arguments.netns)
		netns_remove();
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed ? 1 : 0;
}
