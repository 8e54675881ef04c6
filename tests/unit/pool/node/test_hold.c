/* test_hold.c - a holder and the node's side of it, in processes of their own:
 * what the next life is given, and what becomes of it if none comes.
 *
 * Children are killed by their pids when a test ends. */
#include "base/mutant.h"
#include "base/store/store.h"
#include "fixture/scratch.h"
#include "fixture/seeds.h"
#include "fixture/units.h"
#include "pool/node/holder.h"
#include "pool/node/holder_wire.h"
#include "pool/node/internal.h"
#include "pool/node/keep_image.h"
#include "pool/node/mapper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (1u << 20)
#define SESSION 0x10001u
#define WAIT_MS 20000

static const struct reef_memory_options like = {.backing = REEF_BACKING_MEMFD,
						.size = SIZE};

/* What a holder has if its node dies after so many messages. */
struct prefix {
	uint32_t messages, clients, extents;
};
#define PREFIXES_MAX 16u

struct scene {
	const char *path, *image;
	struct prefix *prefixes; /* shared; NULL: a real holder is started */
	uint64_t linger_ns;
	pid_t holder; /* that was started last */
	uint32_t starts;
	struct reef_keep *keep;
	struct reef_memory *memory;
	pid_t client;
	int pidfd;
};

static void ignore_state(void *context, const struct reef_holder_state *state)
{
}

static void ignore_end(void *context, const struct reef_holder_end *end)
{
}

/* A holder that notes what it would have after each message. */
static int record_prefixes(struct prefix *prefixes, int listen_fd)
{
	int fd = accept(listen_fd, NULL, NULL), sent;
	struct holder_message message;
	struct prefix now = {0};

	while (now.messages + 1 < PREFIXES_MAX &&
	       holder_receive(fd, &message, &sent, true) == 1) {
		if (sent >= 0)
			close(sent);
		now.clients += message.kind == HOLDER_CLIENT;
		now.extents += message.kind == HOLDER_ADD;
		now.messages++;
		prefixes[now.messages] = now;
		__atomic_store_n(&prefixes[0].messages, now.messages,
				 __ATOMIC_RELEASE);
	}
	return 0;
}

static int start_process(void *context, int listen_fd)
{
	struct scene *scene = context;

	scene->starts++;
	scene->holder = fork();
	if (scene->holder < 0)
		return -errno;
	if (scene->holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (scene->prefixes)
			_exit(record_prefixes(scene->prefixes, listen_fd));
		_exit(reef_holder_run(&(struct reef_holder_run_options){
			      .listen_fd = listen_fd,
			      .linger_ns = scene->linger_ns,
			      .folder = scene->image,
			      .changed = ignore_state,
			      .gave_up = ignore_end,
		      }) < 0);
	}
	return 0;
}

/* Wait until a process has ended. False: it did not. */
static bool await_end(int pidfd)
{
	struct pollfd one = {.fd = pidfd, .events = POLLIN};

	return poll(&one, 1, WAIT_MS) > 0;
}

/* A process that has the memory mapped, if it is told to, and sleeps. */
static void start_client(struct scene *scene, bool maps)
{
	int fds[2];
	char byte;

	assert_int_equal(pipe(fds), 0);
	scene->client = fork();
	assert_true(scene->client >= 0);
	if (scene->client == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (maps && mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
				 scene->memory->fd, 0) == MAP_FAILED)
			_exit(1);
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		/* The link to the holder is the node's alone. */
		syscall(SYS_close_range, 3u, ~0u, 0u);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	close(fds[1]);
	scene->pidfd = (int)syscall(SYS_pidfd_open, scene->client, 0);
	assert_true(scene->pidfd >= 0);
}

static void open_node(struct scene *scene, struct reef_kept *kept)
{
	const struct reef_holder_options options = {
		.path = scene->path, .start = start_process, .context = scene};

	int rc, tries = 0;

	assert_int_equal(reef_holder_open(&options, &scene->keep), 0);
	/* The holder may not have seen yet that the life before is over. */
	while ((rc = scene->keep->ops->take(scene->keep, &like, kept)) ==
		       -EBUSY &&
	       tries++ < WAIT_MS)
		usleep(1000);
	assert_int_equal(rc, 0);
}

/* A node with one extent, in which there is something, and one client. */
static void begin(struct scene *scene, bool maps)
{
	const struct reef_keep_line line = {
		.extent = 3, .space = 1, .epoch = 1, .size = SIZE, .copy = 9};
	const struct reef_keep_head head = {.pool = 5, .node = 6};
	struct reef_kept kept = {0};

	open_node(scene, &kept);
	assert_int_equal(kept.extents_count, 0);
	assert_int_equal(reef_memory_create(&like, &scene->memory), 0);
	memset(scene->memory->base, 0x5a, SIZE);
	scene->keep->ops->note(scene->keep, &head);
	assert_int_equal(
		scene->keep->ops->add(scene->keep, &line, scene->memory), 0);
	scene->memory->kept = true;
	start_client(scene, maps);
	assert_int_equal(
		reef_holder_let_in(scene->keep, SESSION, 1, scene->pidfd), 0);
}

/* The node's process ends, as far as its holder can tell. */
static void end_node(struct scene *scene)
{
	reef_holder_close(scene->keep);
	reef_memory_destroy(scene->memory);
	scene->keep = NULL;
	scene->memory = NULL;
}

static void end_holder(struct scene *scene)
{
	kill(scene->holder, SIGKILL);
	waitpid(scene->holder, NULL, 0);
	scene->holder = 0;
}

static int begin_scene(void **state)
{
	static struct scene scene;

	scene = (struct scene){.linger_ns = 60 * SECOND, .pidfd = -1};
	if (scratch_make(state))
		return -1;
	scene.path = scratch_path("hold.sock");
	scene.image = scratch_path("node");
	*state = &scene;
	return 0;
}

static int end_scene(void **state)
{
	struct scene *scene = *state;

	reef_mutate(REEF_MUTANT_NONE);
	if (scene->keep)
		end_node(scene);
	if (scene->client) {
		kill(scene->client, SIGKILL);
		waitpid(scene->client, NULL, 0);
	}
	if (scene->pidfd >= 0)
		close(scene->pidfd);
	if (scene->holder)
		end_holder(scene);
	return scratch_remove(state);
}

/* --- the next life --- */

static void holder_next_life_is_given_memory_and_processes(void **state)
{
	struct scene *scene = *state;
	struct reef_kept kept = {0};

	begin(scene, true);
	end_node(scene);
	open_node(scene, &kept);
	assert_int_equal(kept.head.pool, 5);
	assert_int_equal(kept.extents_count, 1);
	assert_int_equal(((uint8_t *)kept.extents[0].memory->base)[77], 0x5a);
	assert_int_equal(kept.clients_count, 1);
	assert_int_equal(kept.clients[0].session, SESSION);
	assert_int_equal(mapper_process(kept.clients[0].pidfd), scene->client);
	assert_int_equal(scene->starts, 1);
	reef_kept_fini(&kept);
}

/* The holder dies, and nothing changes: it is replaced all the same. Then the
 * node dies; its next life; the holder again; and the life after that. How many
 * processes the last is told of. */
static uint32_t count_after_second_holder(struct scene *scene)
{
	struct reef_kept kept = {0};
	uint32_t count;

	begin(scene, true);
	for (int i = 0; i < 2; i++) {
		end_holder(scene);
		scene->keep->ops->tend(scene->keep);
		assert_int_equal(scene->starts, i + 2);
		scene->keep->ops->tend(scene->keep);
		assert_int_equal(scene->starts, i + 2);
		if (scene->memory)
			end_node(scene);
		else
			reef_holder_close(scene->keep);
		reef_kept_fini(&kept);
		open_node(scene, &kept);
		assert_int_equal(kept.extents_count, 1);
	}
	count = kept.clients_count;
	reef_holder_let_go(scene->keep, SESSION, 1);
	end_holder(scene);
	scene->keep->ops->tend(scene->keep);
	reef_holder_close(scene->keep);
	reef_kept_fini(&kept);
	open_node(scene, &kept);
	assert_int_equal(kept.clients_count, 0);
	reef_kept_fini(&kept);
	return count;
}

static void holder_second_one_has_everything(void **state)
{
	assert_int_equal(count_after_second_holder(*state), 1);
}

#if !SANITIZED
static void holder_second_one_mutant_is_found(void **state)
{
	reef_mutate(REEF_MUTANT_KEEP_PIDFDS_LOST);
	assert_int_not_equal(count_after_second_holder(*state), 1);
}
#endif

/* The node dies after any of the messages by which it gives everything to a
 * second holder. True if that one has, whenever it has the memory, the process
 * that has it mapped. */
static bool are_prefixes_safe(struct scene *scene)
{
	struct prefix *prefixes =
		mmap(NULL, PREFIXES_MAX * sizeof(*prefixes),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t count = 0, tries = 0;
	bool safe = true;

	assert_true(prefixes != MAP_FAILED);
	begin(scene, true);
	end_holder(scene);
	scene->prefixes = prefixes;
	scene->keep->ops->tend(scene->keep);
	/* NOTE, and one of each. */
	while (count < 3 && tries++ < WAIT_MS) {
		count = __atomic_load_n(&prefixes[0].messages,
					__ATOMIC_ACQUIRE);
		usleep(1000);
	}
	assert_int_equal(count, 3);
	assert_int_equal(prefixes[3].clients, 1);
	assert_int_equal(prefixes[3].extents, 1);
	for (uint32_t i = 1; i <= count; i++)
		safe &= !prefixes[i].extents || prefixes[i].clients;
	scene->prefixes = NULL;
	munmap(prefixes, PREFIXES_MAX * sizeof(*prefixes));
	return safe;
}

static void holder_second_one_knows_processes_before_memory(void **state)
{
	assert_true(are_prefixes_safe(*state));
}

#if !SANITIZED
static void holder_second_one_mutant_of_order_is_found(void **state)
{
	reef_mutate(REEF_MUTANT_KEEP_PIDFDS_LAST);
	assert_false(are_prefixes_safe(*state));
}
#endif

/* Whether a fence is confirmed only when the session's process, which has an
 * extent mapped from an earlier life, has ended. */
static bool fence_awaits_process(struct scene *scene)
{
	struct node_extent extent = {.number = 3};
	struct node_extent *extents[] = {&extent};
	struct reef_kept_client ghost = {.session = SESSION};
	struct reef_node node = {.extents = extents,
				 .extents_count = 1,
				 .ghosts = &ghost,
				 .ghosts_count = 1};
	int rc;

	begin(scene, true);
	extent.memory = scene->memory;
	ghost.pidfd = fcntl(scene->pidfd, F_DUPFD_CLOEXEC, 0);
	/* Of another session: it goes on. */
	assert_int_equal(node_ghosts_end(&node, SESSION + (1 << 16)), 0);
	assert_false(mapper_has_ended(scene->pidfd));
	rc = node_ghosts_end(&node, SESSION);
	if (rc != -ETIMEDOUT) {
		close(ghost.pidfd);
		return false;
	}
	assert_true(await_end(scene->pidfd));
	assert_int_equal(node_ghosts_end(&node, SESSION), 0);
	assert_int_equal(node.ghosts_count, 0);
	return true;
}

static void holder_fence_ends_process_of_an_earlier_life(void **state)
{
	assert_true(fence_awaits_process(*state));
}

#if !SANITIZED
static void holder_fence_mutant_is_found(void **state)
{
	reef_mutate(REEF_MUTANT_NODE_GHOSTS_LEFT);
	assert_false(fence_awaits_process(*state));
}
#endif

/* --- nobody comes --- */

/* Let the holder give up; then how many extents the image has, which end with
 * that byte. */
static int give_up_to(struct scene *scene, bool maps, uint8_t byte)
{
	struct reef_store *store;
	struct reef_keep *image;
	struct reef_kept kept = {0};
	int count, status;

	scene->linger_ns = 200 * MILLISECOND;
	begin(scene, maps);
	end_node(scene);
	assert_int_equal(waitpid(scene->holder, &status, 0), scene->holder);
	scene->holder = 0;
	assert_int_equal(status, 0);
	assert_int_equal(reef_store_open_directory(scene->image, &store), 0);
	assert_int_equal(reef_keep_image_create(store, NULL, &image), 0);
	assert_int_equal(image->ops->take(image, &like, &kept), 0);
	count = (int)kept.extents_count;
	if (count) {
		assert_int_equal(kept.head.pool, 5);
		assert_int_equal(kept.extents[0].line.copy, 9);
		assert_int_equal(
			((uint8_t *)kept.extents[0].memory->base)[SIZE - 1],
			byte);
	}
	reef_kept_fini(&kept);
	reef_keep_image_destroy(image);
	reef_store_destroy(store);
	return count;
}

static int give_up(struct scene *scene, bool maps)
{
	return give_up_to(scene, maps, 0x5a);
}

static void holder_that_gives_up_ends_mappers_and_saves(void **state)
{
	struct scene *scene = *state;

	assert_int_equal(give_up(scene, true), 1);
	assert_true(await_end(scene->pidfd));
}

static void holder_that_gives_up_leaves_who_let_go(void **state)
{
	struct scene *scene = *state;

	assert_int_equal(give_up(scene, false), 1);
	assert_false(mapper_has_ended(scene->pidfd));
}

#if !SANITIZED
static void holder_that_gives_up_mutant_is_found(void **state)
{
	struct scene *scene = *state;

	reef_mutate(REEF_MUTANT_KEEP_MAPPERS_LEFT);
	assert_int_equal(give_up(scene, true), 1);
	/* It was saved, and is still changed: a right one ends it before. */
	assert_false(mapper_has_ended(scene->pidfd));
}
#endif

/* Leave a clean image there, as a node does that was stopped. */
static void leave_image(const struct scene *scene, const struct reef_kept *kept)
{
	struct reef_store *store;
	struct reef_keep *image;

	assert_int_equal(mkdir(scene->image, 0700), 0);
	assert_int_equal(reef_store_open_directory(scene->image, &store), 0);
	assert_int_equal(reef_keep_image_create(store, NULL, &image), 0);
	assert_int_equal(image->ops->save(image, kept), 0);
	reef_keep_image_destroy(image);
	reef_store_destroy(store);
}

/* A clean image of something else is there: it stays. */
static void holder_that_gives_up_spares_another_image(void **state)
{
	struct reef_kept other = {.head = {.pool = 5, .node = 6}};

	leave_image(*state, &other);
	assert_int_equal(give_up(*state, true), 0);
}

/* A clean image of the same extents is there, which may be newer: the node ran
 * without its holder meanwhile. */
static void holder_that_gives_up_spares_a_newer_image(void **state)
{
	struct reef_kept_extent extent = {
		.line = {.extent = 3, .size = SIZE, .copy = 9}};
	struct reef_kept kept = {.head = {.pool = 5, .node = 6},
				 .extents = &extent,
				 .extents_count = 1};

	assert_int_equal(reef_memory_create(&like, &extent.memory), 0);
	memset(extent.memory->base, 0x77, SIZE);
	leave_image(*state, &kept);
	reef_memory_destroy(extent.memory);
	assert_int_equal(give_up_to(*state, true, 0x77), 1);
}

/* A message has one descriptor at most: what comes with two is refused, and
 * none of them stays. */
static void holder_takes_no_second_descriptor(void **state)
{
	const struct holder_message sent = {.magic = HOLDER_MAGIC,
					    .kind = HOLDER_ADD};
	struct holder_message message;
	alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct iovec iov = {(void *)&sent, sizeof(sent)};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control,
				.msg_controllen = sizeof(control)};
	struct cmsghdr *item = CMSG_FIRSTHDR(&header);
	int pair[2], fd, next;

	(void)state;
	item->cmsg_level = SOL_SOCKET;
	item->cmsg_type = SCM_RIGHTS;
	item->cmsg_len = CMSG_LEN(2 * sizeof(int));
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	memcpy(CMSG_DATA(item), (int[2]){pair[0], pair[1]}, sizeof(pair));
	assert_int_equal(sendmsg(pair[0], &header, 0), sizeof(sent));
	next = dup(pair[0]);
	assert_true(next >= 0);
	close(next);
	assert_int_equal(holder_receive(pair[1], &message, &fd, true),
			 -REEF_EPROTO);
	assert_int_equal(fd, -1);
	/* The lowest that is free is the same as before. */
	assert_int_equal(dup(pair[0]), next);
	close(next);
	close(pair[0]);
	close(pair[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_scene, end_scene)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holder_takes_no_second_descriptor),
		TEST(holder_next_life_is_given_memory_and_processes),
		TEST(holder_second_one_has_everything),
		TEST(holder_second_one_knows_processes_before_memory),
		TEST(holder_fence_ends_process_of_an_earlier_life),
		TEST(holder_that_gives_up_ends_mappers_and_saves),
		TEST(holder_that_gives_up_leaves_who_let_go),
		TEST(holder_that_gives_up_spares_another_image),
		TEST(holder_that_gives_up_spares_a_newer_image),
#if !SANITIZED
		TEST(holder_second_one_mutant_is_found),
		TEST(holder_second_one_mutant_of_order_is_found),
		TEST(holder_fence_mutant_is_found),
		TEST(holder_that_gives_up_mutant_is_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
