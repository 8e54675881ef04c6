/* test_sync.c - messages and locks over verbs, between processes that die.
 *
 *   test_sync                 the test; `reef` and `kills` lie beside it
 *   test_sync echo FD INBOX   a process that answers what comes to its inbox
 *
 * The deaths are those of tests/kills, 20 of locks in all. */
#include "pool/client/inbox/inbox.h"
#include "servers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "test_sync"
#define SPACE "kills"
#define MESSAGES 200
#define OBJECT 4711 /* no more than a number to an inbox */
#define LAST UINT64_MAX

struct world {
	const char *address;
	struct process broker, node;
	struct reef *reef;
	struct reef_space *space;
};

static void join_pool(struct reef **reef, struct reef_space **space)
{
	const struct reef_options options = {.fabrics = "verbs"};
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};

	CHECK_EQ(reef_open("local", &options, reef), 0);
	CHECK_EQ(reef_space_open(*reef, SPACE, &make, space), 0);
}

/* --- inboxes --- */

struct post {
	struct reef_watch watch;
	struct reef_wake wake;
	bool came;
};

static void on_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct post *post = watch->user;

	post->wake = *wake;
	post->came = true;
}

static bool has_come(const void *what)
{
	return ((const struct post *)what)->came;
}

static void post_open(struct post *post, struct reef *reef)
{
	*post = (struct post){
		.watch = {.object = OBJECT,
			  .message = on_message,
			  .user = post},
	};
	reef_inbox_watch(reef, &post->watch);
}

static void post_wait(struct post *post, struct reef *reef)
{
	CHECK_EQ(reef_inbox_wait(reef, has_come, post, PATIENCE_NS), 0);
	post->came = false;
}

/* Send a message until it is taken: the first opens the link, and may be lost
 * while that takes. */
static void post_send(struct reef_space *space, uint64_t to, uint64_t from,
		      uint64_t number)
{
	const struct reef_wake wake = {
		.object = OBJECT, .word = number, .words = {from, number * 3}};

	AWAIT(reef_inbox_send(space, to, &wake) == 0);
}

static void echo(int fd, uint64_t to)
{
	struct reef_space *space;
	struct reef *reef;
	struct post post;
	uint64_t inbox;

	join_pool(&reef, &space);
	CHECK_EQ(reef_inbox_open(space, &inbox), 0);
	post_open(&post, reef);
	CHECK_EQ(write(fd, &inbox, sizeof(inbox)), sizeof(inbox));
	do {
		post_wait(&post, reef);
		post_send(space, to, inbox, post.wake.word);
	} while (post.wake.word != LAST);
	for (;;)
		pause();
}

static void sync_inbox_answers(struct world *world)
{
	struct process process;
	uint64_t inbox, other;
	struct post post;

	/* The node may still be on its way to the broker. */
	AWAIT(reef_inbox_open(world->space, &inbox) != -ENOSPC);
	CHECK_EQ(reef_inbox_open(world->space, &inbox), 0);
	post_open(&post, world->reef);
	start_client(&process, PROGRAM, "echo", inbox);
	CHECK_EQ(read(process.fd, &other, sizeof(other)), sizeof(other));
	for (uint64_t i = 0; i <= MESSAGES; i++) {
		uint64_t number = i < MESSAGES ? i : LAST;

		post_send(world->space, other, inbox, number);
		post_wait(&post, world->reef);
		CHECK_EQ(post.wake.word, number);
		CHECK_EQ(post.wake.words[0], other);
		CHECK_EQ(post.wake.words[1], number * 3);
	}
	/* With nobody there any more a hint is lost, and no more than that. */
	end(&process, SIGKILL);
	for (uint64_t i = 0; i < 10; i++) {
		const struct reef_wake wake = {.object = OBJECT};

		reef_inbox_send(world->space, other, &wake);
	}
	reef_inbox_unwatch(world->reef, &post.watch);
}

/* --- deaths --- */

static void run_kills(char *kind, char *count)
{
	char *argv[] = {"kills",	 kind,		count,	    "workers=3",
			"fabrics=verbs", "limit=60000", "ttl=2000", NULL};
	struct process process;
	int status;

	setenv("REEF_FABRICS", "verbs", 1);
	start(&process, "kills", argv);
	CHECK_EQ(waitpid(process.pid, &status, 0), process.pid);
	CHECK_EQ(status, 0);
}

static void sync_shift_is_inherited(struct world *world)
{
	run_kills("shift", "8");
}

static void sync_rw_is_inherited(struct world *world)
{
	run_kills("rw", "6");
}

static void sync_mcs_is_inherited(struct world *world)
{
	run_kills("mcs", "4");
}

static void sync_spin_is_inherited(struct world *world)
{
	run_kills("spin", "2");
}

static void sync_leader_is_followed(struct world *world)
{
	run_kills("election", "2");
}

static void sync_member_is_named(struct world *world)
{
	run_kills("barrier", "2");
}

static const struct test {
	const char *name;
	void (*run)(struct world *world);
} tests[] = {
	{"sync_inbox_answers", sync_inbox_answers},
	{"sync_shift_is_inherited", sync_shift_is_inherited},
	{"sync_rw_is_inherited", sync_rw_is_inherited},
	{"sync_mcs_is_inherited", sync_mcs_is_inherited},
	{"sync_spin_is_inherited", sync_spin_is_inherited},
	{"sync_leader_is_followed", sync_leader_is_followed},
	{"sync_member_is_named", sync_member_is_named},
};

int main(int argc, char **argv)
{
	const size_t count = sizeof(tests) / sizeof(tests[0]);
	struct world world = {.address = getenv("REEF_VM_ADDRESS")};
	uint64_t begun_ns;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && !strcmp(argv[1], "echo")) {
		echo(atoi(argv[2]), strtoull(argv[3], NULL, 10));
		return 0;
	}
	CHECK(world.address);
	servers_prepare(argv[0]);
	begun_ns = reef_now_ns();
	start_broker(&world.broker, world.address);
	start_node(&world.node, world.address, 1);
	join_pool(&world.reef, &world.space);
	for (size_t i = 0; i < count; i++) {
		tests[i].run(&world);
		printf("ok     %s, at %.1f s\n", tests[i].name,
		       (double)(reef_now_ns() - begun_ns) / 1e9);
	}
	reef_close(world.reef);
	end(&world.node, SIGTERM);
	end(&world.broker, SIGTERM);
	printf("%zu passed, 0 failed, 0 skipped\n", count);
	return 0;
}
