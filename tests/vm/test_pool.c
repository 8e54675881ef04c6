/* test_pool.c - a pool over verbs: `reef broker` and two `reef node`, which
 * lend memory of the NIC's atomic domain, and clients in processes of their own
 * that have no other fabric.
 *
 *   test_pool                 the test; `reef` lies beside it
 *   test_pool ROLE FD ...     one of its clients; FD: where it answers
 *
 * Nothing here waits for a time to pass: it waits for what a process says, or
 * looks again until the pool has come to what is expected, PATIENCE at most. */
#include "base/clock.h"
#include "pool/client/client.h"
#include "servers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "test_pool"
#define SPACE "shared"
#define SCARCE "scarce" /* another space, of so many bytes: */
#define QUOTA (8u << 20)
#define ADDS 300
#define BIG (300u << 10)
#define PER_CHUNK 3u

/* --- clients --- */

/* What a client tells the test. */
struct told {
	int rc;
	uint32_t session;
	uint32_t count; /* of blocks that it has */
	uint64_t kept;
};

static void receive_told(const struct process *process, struct told *told)
{
	CHECK_EQ(read(process->fd, told, sizeof(*told)), sizeof(*told));
}

static void send_told(int fd, const struct told *told)
{
	CHECK_EQ(write(fd, told, sizeof(*told)), sizeof(*told));
}

static int open_space(struct reef *reef, const char *name,
		      struct reef_space **space)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = strcmp(name, SCARCE) == 0 ? QUOTA : 0,
	};

	return reef_space_open(reef, name, &options, space);
}

static void join_pool(struct reef **reef, struct reef_space **space)
{
	const struct reef_options options = {.fabrics = "verbs"};

	CHECK_EQ(reef_open("local", &options, reef), 0);
	CHECK_EQ(open_space(*reef, SPACE, space), 0);
}

/* Add to a word until the session is fenced, and go on with another one. */
static void act_writer(int fd, uint64_t address)
{
	struct told told = {0};
	struct reef_space *space;
	struct reef *reef;

	join_pool(&reef, &space);
	told.session = reef_session(reef);
	send_told(fd, &told);
	while (!told.rc)
		told.rc = reef_faa(reef, address, 1, NULL);
	/* One that was under way is in doubt; the next call knows more. */
	if (told.rc == -REEF_EINDOUBT)
		told.rc = reef_faa(reef, address, 1, NULL);
	send_told(fd, &told);
	CHECK_EQ(reef_write(reef, address, &told, 8), -REEF_EFENCED);
	CHECK_EQ(reef_alloc(space, 64, &address), -REEF_EFENCED);
	CHECK_EQ(reef_health(reef), -REEF_EFENCED);
	reef_close(reef);
	/* After a fence the next session goes on. */
	join_pool(&reef, &space);
	told.session = reef_session(reef);
	told.rc = reef_alloc(space, 64, &address);
	if (!told.rc)
		told.rc = reef_write(reef, address, "again", 6);
	send_told(fd, &told);
	reef_close(reef);
}

/* Keep one small block, take all that is left, and wait to be killed. */
static void act_owner(int fd, uint64_t address)
{
	struct told told = {0};
	struct reef_space *space;
	struct reef *reef;

	join_pool(&reef, &space);
	CHECK_EQ(open_space(reef, SCARCE, &space), 0);
	told.session = reef_session(reef);
	CHECK_EQ(reef_alloc(space, 64, &told.kept), 0);
	CHECK_EQ(reef_write(reef, told.kept, "kept", 5), 0);
	CHECK_EQ(reef_keep(space, told.kept), 0);
	while (told.rc == 0) {
		told.rc = reef_alloc(space, BIG, &address);
		if (told.rc == 0)
			CHECK_EQ(reef_write(reef, address, "gone", 5), 0);
		told.count += told.rc == 0;
	}
	send_told(fd, &told);
	for (;;)
		pause();
}

static void act_adder(int fd, uint64_t address)
{
	struct told told = {0};
	struct reef_space *space;
	struct reef *reef;

	join_pool(&reef, &space);
	for (uint32_t i = 0; i < ADDS; i++)
		CHECK_EQ(reef_faa(reef, address, 1, NULL), 0);
	reef_close(reef);
	send_told(fd, &told);
}

static const struct role {
	const char *name;
	void (*act)(int fd, uint64_t address);
} roles[] = {
	{"writer", act_writer},
	{"owner", act_owner},
	{"adder", act_adder},
};

/* --- the test --- */

struct world {
	const char *address;
	struct process broker, nodes[2];
	struct reef *reef;
	struct reef_space *space;
	uint64_t word; /* a kept block: a word that is added to */
};

static bool has_ended(struct reef *reef, uint32_t session)
{
	enum reef_session_view view;

	return !reef_session_check(reef, session, &view) &&
	       view == REEF_VIEW_ENDED;
}

static uint64_t value_of(struct world *world)
{
	uint64_t value;

	CHECK_EQ(reef_read(world->reef, world->word, &value, 8), 0);
	return value;
}

static void pool_blocks_work(struct world *world)
{
	static uint8_t bytes[BIG], again[BIG];
	uint64_t small, big, before, zero = 0;
	struct reef_access both[2];

	/* The nodes may still be on their way to the broker. */
	AWAIT(reef_alloc(world->space, 64, &small) != -ENOSPC);
	CHECK_EQ(reef_alloc(world->space, 64, &world->word), 0);
	CHECK_EQ(reef_alloc(world->space, BIG, &big), 0);
	CHECK_EQ(reef_keep(world->space, world->word), 0);
	CHECK_EQ(reef_keep(world->space, world->word), -EALREADY);
	for (uint32_t i = 0; i < BIG; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	CHECK_EQ(reef_write(world->reef, big, bytes, BIG), 0);
	CHECK_EQ(reef_read(world->reef, big, again, BIG), 0);
	CHECK(!memcmp(bytes, again, BIG));
	CHECK_EQ(reef_write(world->reef, world->word, &zero, 8), 0);
	CHECK_EQ(reef_cas(world->reef, world->word, 0, 5, &before), 0);
	CHECK_EQ(before, 0);
	CHECK_EQ(reef_cas(world->reef, world->word, 0, 6, &before), 0);
	CHECK_EQ(before, 5);
	CHECK_EQ(reef_faa(world->reef, world->word, 2, &before), 0);
	CHECK_EQ(before, 5);
	both[0] = (struct reef_access){.kind = REEF_WRITE,
				       .address = small,
				       .local = bytes,
				       .length = 64};
	both[1] = (struct reef_access){.kind = REEF_READ,
				       .address = world->word,
				       .local = again,
				       .length = 8};
	CHECK_EQ(reef_execute(world->reef, both, 2), 0);
	memcpy(&before, again, 8);
	CHECK_EQ(before, 7);
	CHECK_EQ(reef_faa(world->reef, world->word + 4, 1, NULL), -EINVAL);
	CHECK_EQ(reef_free(world->space, big, 0), 0);
	CHECK_EQ(reef_free(world->space, small, 0), 0);
	CHECK(reef_free(world->space, small, 0) < 0);
}

/* All atomics are the device's: none is lost between processes. */
static void pool_words_are_of_one_domain(struct world *world)
{
	uint64_t before = value_of(world);
	struct process adders[2];
	struct told told;

	for (uint32_t i = 0; i < 2; i++)
		start_client(&adders[i], PROGRAM, "adder", world->word);
	for (uint32_t i = 0; i < ADDS; i++)
		CHECK_EQ(reef_faa(world->reef, world->word, 1, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		receive_told(&adders[i], &told);
		waitpid(adders[i].pid, NULL, 0);
		close(adders[i].fd);
	}
	CHECK_EQ(value_of(world), before + 3 * ADDS);
}

static void pool_stopped_client_is_fenced(struct world *world)
{
	uint64_t before = value_of(world), fenced;
	struct process writer;
	struct told told;
	uint32_t session;
	int status;

	start_client(&writer, PROGRAM, "writer", world->word);
	receive_told(&writer, &told);
	session = told.session;
	AWAIT(value_of(world) > before);
	CHECK(!has_ended(world->reef, session));
	CHECK_EQ(kill(writer.pid, SIGSTOP), 0);
	AWAIT(has_ended(world->reef, session));
	fenced = value_of(world);
	CHECK_EQ(kill(writer.pid, SIGCONT), 0);
	receive_told(&writer, &told);
	/* In doubt: it was on its way when the session ended. */
	CHECK(told.rc == -REEF_EFENCED || told.rc == -REEF_EINDOUBT);
	receive_told(&writer, &told);
	CHECK_EQ(told.rc, 0);
	CHECK(told.session != session);
	CHECK_EQ(value_of(world), fenced);
	CHECK_EQ(waitpid(writer.pid, &status, 0), writer.pid);
	CHECK_EQ(status, 0);
	close(writer.fd);
}

static void pool_killed_client_is_recovered(struct world *world)
{
	struct reef_space *space;
	struct process owner;
	struct told told;
	uint64_t block;
	char text[5];

	start_client(&owner, PROGRAM, "owner", 0);
	receive_told(&owner, &told);
	CHECK_EQ(told.rc, -EDQUOT);
	CHECK(told.count > 5);
	CHECK_EQ(open_space(world->reef, SCARCE, &space), 0);
	CHECK_EQ(reef_alloc(space, BIG, &block), -EDQUOT);
	end(&owner, SIGKILL);
	/* This process has the space open, so it is asked to recover. The chunk
	 * with the kept block goes to the heap that recovery works with, not
	 * to this handle's; in any other there is room for PER_CHUNK. */
	for (uint32_t i = 0; i + PER_CHUNK < told.count; i++)
		AWAIT(reef_alloc(space, BIG, &block) == 0);
	CHECK(has_ended(world->reef, told.session));
	CHECK_EQ(reef_read(world->reef, told.kept, text, sizeof(text)), 0);
	CHECK_EQ(memcmp(text, "kept", 5), 0);
	CHECK_EQ(reef_free(space, told.kept, 0), 0);
	reef_space_close(space);
}

/* While the broker is away memory works; when it is back, so does the rest. */
static void pool_broker_comes_back(struct world *world)
{
	uint64_t before = value_of(world), block;

	end(&world->broker, SIGKILL);
	for (uint32_t i = 0; i < 50; i++)
		CHECK_EQ(reef_faa(world->reef, world->word, 1, NULL), 0);
	start_broker(&world->broker, world->address);
	AWAIT(reef_health(world->reef) == 0);
	CHECK_EQ(value_of(world), before + 50);
	CHECK_EQ(reef_alloc(world->space, 1u << 20, &block), 0);
	CHECK_EQ(reef_free(world->space, block, 0), 0);
	CHECK(!has_ended(world->reef, reef_session(world->reef)));
}

/* Run `reef node VERB ...`. Returns whether it prints that text. */
static bool ask_node(char *verb, char *name, const char *what)
{
	char *argv[] = {"reef", "node", verb, name, NULL};
	char text[1024] = "";
	struct process process;
	size_t used = 0;
	ssize_t size;
	int status;

	start_telling(&process, argv);
	while ((size = read(process.fd, text + used, sizeof(text) - 1 - used)) >
	       0)
		used += (size_t)size;
	close(process.fd);
	CHECK_EQ(waitpid(process.pid, &status, 0), process.pid);
	CHECK_EQ(status, 0);
	text[used] = '\0';
	return strstr(text, what);
}

/* What a node lends moves to the other one, through the NIC; meanwhile another
 * process uses it. First one node is left, then the other, so it has moved. */
static void pool_drained_node_is_left(struct world *world)
{
	char *names[] = {"n1", "n2"};
	uint64_t before;
	struct process adder;
	struct told told;

	for (uint32_t i = 0; i < 2; i++) {
		before = value_of(world);
		start_client(&adder, PROGRAM, "adder", world->word);
		AWAIT(value_of(world) > before);
		CHECK(ask_node("drain", names[i], names[i]));
		AWAIT(ask_node("list", NULL, "drained"));
		receive_told(&adder, &told);
		waitpid(adder.pid, NULL, 0);
		close(adder.fd);
		CHECK_EQ(value_of(world), before + ADDS);
		if (i == 0)
			CHECK(ask_node("undrain", names[i], ""));
	}
	end(&world->nodes[1], SIGTERM);
	CHECK_EQ(value_of(world), before + ADDS);
}

/* The NIC's atomics and the processors' do not know of each other. */
static void pool_two_domains_are_refused(struct world *world)
{
	char listen[128];
	char *argv[] = {"reef",
			"node",
			"--node-key",
			"/tmp/n1.key",
			"--run",
			"/tmp/node3",
			"--broker",
			"tcp:127.0.0.1:7337",
			"--node-listen",
			listen,
			"--log",
			"error",
			NULL};
	struct process process;
	int status;

	snprintf(listen, sizeof(listen), "tcp:127.0.0.1:0 verbs:%s:0",
		 world->address);
	start(&process, "reef", argv);
	CHECK_EQ(waitpid(process.pid, &status, 0), process.pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static const struct test {
	const char *name;
	void (*run)(struct world *world);
} tests[] = {
	{"pool_blocks_work", pool_blocks_work},
	{"pool_words_are_of_one_domain", pool_words_are_of_one_domain},
	{"pool_stopped_client_is_fenced", pool_stopped_client_is_fenced},
	{"pool_killed_client_is_recovered", pool_killed_client_is_recovered},
	{"pool_broker_comes_back", pool_broker_comes_back},
	{"pool_drained_node_is_left", pool_drained_node_is_left},
	{"pool_two_domains_are_refused", pool_two_domains_are_refused},
};

int main(int argc, char **argv)
{
	const size_t count = sizeof(tests) / sizeof(tests[0]);
	struct world world = {.address = getenv("REEF_VM_ADDRESS")};
	uint64_t begun_ns;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		if (argc != 4 || strcmp(argv[1], roles[i].name) != 0)
			continue;
		roles[i].act(atoi(argv[2]), strtoull(argv[3], NULL, 10));
		return 0;
	}
	CHECK(world.address);
	servers_prepare(argv[0]);
	begun_ns = reef_now_ns();
	start_broker(&world.broker, world.address);
	for (int i = 0; i < 2; i++)
		start_node(&world.nodes[i], world.address, i + 1);
	join_pool(&world.reef, &world.space);
	for (size_t i = 0; i < count; i++) {
		tests[i].run(&world);
		printf("ok     %s, at %.1f s\n", tests[i].name,
		       (double)(reef_now_ns() - begun_ns) / 1e9);
	}
	reef_close(world.reef);
	end(&world.nodes[0], SIGTERM);
	end(&world.broker, SIGTERM);
	printf("%zu passed, 0 failed, 0 skipped\n", count);
	return 0;
}
