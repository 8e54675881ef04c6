/* links.c - who gets in, who drops out, and what everybody else notices. */
#include "conform.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- who gets in --- */

static int stranger_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_connect_options options = {
		.session = SESSION(1),
		.identity = "conform",
		.timeout_ns = 20000000000ull,
	};
	struct reef_remote *remote;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world,
		 reef_connect(host->queue, world->board->address, &options,
			      &link),
		 -REEF_EAUTH);
	memcpy(options.key, conform_key, REEF_KEY_SIZE);
	options.identity = "nobody";
	CHECK_EQ(world,
		 reef_connect(host->queue, world->board->address, &options,
			      &link),
		 -REEF_EAUTH);
	options.identity = "conform";
	options.session = 0;
	CHECK_EQ(world,
		 reef_connect(host->queue, world->board->address, &options,
			      &link),
		 -EINVAL);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int links_a_wrong_key_is_refused(struct world *world)
{
	return with_clients(world, 1, stranger_client);
}

static int named_client(struct host *host, void *arg)
{
	static const char longest[] = "conform-67890123456789012345678901234567"
				      "89012345678901234567890";
	static const char *const names[] = {"conform", "conform two", longest};
	struct world *world = host->world;
	struct reef_link *link;
	uint32_t i;

	(void)arg;
	CHECK_EQ(world, strlen(longest), REEF_IDENTITY_MAX);
	for (i = 0; i < 3; i++) {
		char name[REEF_IDENTITY_MAX + 1];

		/* It is copied: the caller's may change. */
		strcpy(name, names[i]);
		CHECK_EQ(world, join_with(host, SESSION(i + 1), name, &link),
			 0);
		memset(name, 'x', sizeof(name));
		CHECK(world, !strcmp(reef_link_identity(link), names[i]));
		TRY(await(world, &world->board->opened, i + 1));
		CHECK(world, !strcmp(world->board->identity, names[i]));
		memset(world->board->identity, 0,
		       sizeof(world->board->identity));
		reef_link_close(link);
		TRY(await(world, &world->board->closed, i + 1));
		CHECK(world, !strcmp(world->board->identity, names[i]));
	}
	return 0;
}

static int links_have_the_identity_that_was_proven(struct world *world)
{
	return with_clients(world, 1, named_client);
}

#define CROWD_MAX 1000

static uint32_t crowd(const struct world *world)
{
	return world->sim ? 40 : is_kind(world, "verbs") ? 256 : CROWD_MAX;
}

static int crowd_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	static struct reef_link *real_links[CROWD_MAX];
	static struct reef_remote *real_remotes[CROWD_MAX];
	struct reef_link *sim_links[64], **links = real_links;
	struct reef_remote *sim_remotes[64], **remotes = real_remotes;
	uint64_t sum, region = 0, key = world->board->word[0];
	uint32_t i, round;

	(void)arg;
	if (world->sim) {
		links = sim_links;
		remotes = sim_remotes;
	}
	for (i = 0; i < crowd(world); i++) {
		CHECK_EQ(world, join_as(host, SESSION(i + 1), &links[i]), 0);
		CHECK_EQ(world,
			 reef_attach(host->queue, links[i], key, &remotes[i]),
			 0);
	}
	for (round = 0; round < 3; round++)
		for (i = 0; i < crowd(world); i++)
			CHECK_EQ(world,
				 do_faa(host, remotes[i], 8ull * i, 1, NULL),
				 0);
	CHECK_EQ(world, order(world, ORDER_SUM, region, 0, 0, &sum), 0);
	CHECK_EQ(world, sum, 3ull * crowd(world));
	CHECK_EQ(world, atomic_load(&world->board->opened), crowd(world));
	for (i = 0; i < crowd(world); i++)
		reef_link_close(links[i]);
	return 0;
}

static int links_a_thousand_at_once(struct world *world)
{
	uint64_t key;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 65536, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, crowd_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	TRY(await(world, &world->board->closed, crowd(world)));
	return world_end(world);
}

static int one_too_many_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_link *links[4];
	struct reef_remote *remote;
	uint32_t i;
	int rc = -EBUSY;

	(void)arg;
	for (i = 0; i < 3; i++)
		CHECK_EQ(world, join_as(host, SESSION(i + 1), &links[i]), 0);
	CHECK_EQ(world, join_as(host, SESSION(4), &links[3]), -EBUSY);
	TRY(borrow(host, links[0], 4096, &remote, NULL, NULL));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(links[2]);
	/* Room again, as soon as the node has noticed. */
	for (i = 0; i < 1000 && rc == -EBUSY; i++) {
		rc = join_as(host, SESSION(4), &links[2]);
		nap(world);
	}
	CHECK_EQ(world, rc, 0);
	for (i = 0; i < 3; i++)
		reef_link_close(links[i]);
	return 0;
}

static int links_past_the_limit_are_refused(struct world *world)
{
	world->node_options.links_max = 3;
	return with_clients(world, 1, one_too_many_client);
}

/* --- who drops out --- */

static int mortal_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t start_ns = reef_now_ns();
	struct reef_remote *remote;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	atomic_store(&world->board->word[1], 1);
	while (reef_now_ns() - start_ns < 60000000000ull &&
	       !do_faa(host, remote, 0, 1, NULL))
		;
	return 0;
}

static int links_a_dead_client_is_noticed(struct world *world)
{
	int client;

	if (!is_kind(world, "verbs")) /* whose channel says so anyway */
		world->node_options.silence_ns = SHORT_SILENCE_NS;
	TRY(world_start_node(world));
	client = world_start(world, mortal_client, NULL);
	TRY(await(world, &world->board->word[1], 1));
	world_kill(world, client);
	TRY(await(world, &world->board->closed, 1));
	CHECK_EQ(world, atomic_load(&world->board->opened), 1);
	return world_end(world);
}

/* A stopped node: its memory is served without it, or (tcp) its silence is
 * noticed. Afterwards it goes on. */
static int patient_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	int rc;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	atomic_store(&world->board->word[1], 1);
	TRY(await(world, &world->board->word[2], 1)); /* stopped */
	rc = do_faa(host, remote, 0, 1, NULL);
	if (is_kind(world, "tcp"))
		CHECK_EQ(world, rc, -REEF_EINDOUBT);
	else
		CHECK_EQ(world, rc, 0);
	atomic_store(&world->board->word[1], 2);
	TRY(await(world, &world->board->word[2], 2)); /* goes on */
	reef_link_close(link);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int links_a_stopped_node_goes_on(struct world *world)
{
	int client;

	if (is_kind(world, "tcp"))
		world->client_options.silence_ns = SHORT_SILENCE_NS;
	TRY(world_start_node(world));
	client = world_start(world, patient_client, NULL);
	TRY(await(world, &world->board->word[1], 1));
	world_stop(world, world->node);
	atomic_store(&world->board->word[2], 1);
	TRY(await(world, &world->board->word[1], 2));
	world_continue(world, world->node);
	atomic_store(&world->board->word[2], 2);
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

static int leaver_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	enum { WAY = 8 };
	struct reef_batch batches[WAY];
	struct reef_op ops[WAY];
	uint64_t words[WAY];
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i, round;

	(void)arg;
	for (round = 0; round < rounds(world, 5, 50); round++) {
		CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
		CHECK_EQ(world,
			 reef_attach(host->queue, link, world->board->word[0],
				     &remote),
			 0);
		for (i = 0; i < WAY; i++) {
			ops[i] = (struct reef_op){
				.kind = REEF_READ,
				.remote = remote,
				.local = &words[i],
				.length = 8,
			};
			batches[i] = (struct reef_batch){
				.link = link, .ops = &ops[i], .count = 1};
			CHECK_EQ(world, post_under_way(host, &batches[i]), 0);
		}
		reef_link_close(link);
		for (i = 0; i < WAY; i++) {
			if (!batches[i].done)
				reef_wait(host->queue, &batches[i]);
			CHECK(world,
			      batches[i].status == 0 ||
				      batches[i].status == -REEF_EINDOUBT);
		}
	}
	return 0;
}

static int links_closing_ends_what_is_under_way(struct world *world)
{
	uint64_t key;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, leaver_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

/* --- pressure --- */

#define PRESSURE 40

static int pressing_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_batch batches[PRESSURE];
	struct reef_op ops[PRESSURE];
	struct note notes[PRESSURE];
	struct reef_link *link;
	uint32_t i;
	int rc;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	for (i = 0; i < PRESSURE; i++) {
		notes[i] = (struct note){.kind = NOTE_NUMBERED, .number = i};
		ops[i] = (struct reef_op){
			.kind = REEF_SEND,
			.local = &notes[i],
			.length = sizeof(notes[i]),
		};
		batches[i] = (struct reef_batch){
			.link = link, .ops = &ops[i], .count = 1};
	}
	/* Far more than the inbox holds, before the node begins to read: then
	 * either they are under way for as long, or post says -EAGAIN. */
	for (i = 0; i < PRESSURE; i++) {
		rc = reef_post(host->queue, &batches[i]);
		if (rc == -EAGAIN) {
			atomic_store(&world->board->hold, 0);
			rc = post_under_way(host, &batches[i]);
		}
		CHECK(world, rc == 0 || rc == 1);
		batches[i].done |= rc == 1;
		reef_poll(host->queue);
	}
	atomic_store(&world->board->hold, 0);
	for (i = 0; i < PRESSURE; i++) {
		if (!batches[i].done)
			reef_wait(host->queue, &batches[i]);
		CHECK_EQ(world, batches[i].status, 0);
	}
	TRY(await(world, &world->board->received, PRESSURE));
	reef_link_close(link);
	return 0;
}

static int links_a_full_inbox_presses_back(struct world *world)
{
	world->node_options.inbox_max = 4;
	atomic_store(&world->board->hold, 1);
	TRY(with_clients(world, 1, pressing_client));
	CHECK_EQ(world, atomic_load(&world->board->received), PRESSURE);
	return 0;
}

/* With almost no spinning every wait is a sleep. */
static int links_sleepers_wake_up(struct world *world)
{
	world->node_options.spin_ns = 1;
	world->client_options.spin_ns = 1;
	TRY(f1_messages_arrive_once_and_in_order(world));
	return 0;
}

/* --- fibers and threads --- */

#define FIBERS 16

struct swimmer {
	struct host *host;
	struct reef_remote *remote;
	uint64_t index;
	int result;
};

static int swim(struct swimmer *swimmer)
{
	struct world *world = swimmer->host->world;
	uint64_t before;
	uint32_t i;

	for (i = 0; i < rounds(world, 4, 300); i++) {
		CHECK_EQ(world,
			 do_faa(swimmer->host, swimmer->remote,
				swimmer->index * 8, 1, &before),
			 0);
		CHECK_EQ(world, before, i);
	}
	return 0;
}

static int swim_fiber(void *arg)
{
	struct swimmer *swimmer = arg;

	swimmer->result = swim(swimmer);
	return swimmer->result;
}

static int swim_together(struct host *host, struct reef_sched *sched)
{
	struct world *world = host->world;
	struct swimmer swimmers[FIBERS];
	struct reef_fiber *fibers[FIBERS];
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t i;

	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	for (i = 0; i < FIBERS; i++) {
		swimmers[i] = (struct swimmer){host, remote, i, -1};
		CHECK_EQ(world,
			 reef_fiber_spawn(sched, swim_fiber, &swimmers[i],
					  &fibers[i]),
			 0);
	}
	for (i = 0; i < FIBERS; i++)
		CHECK_EQ(world, reef_fiber_join(fibers[i], NULL), 0);
	for (i = 0; i < FIBERS; i++)
		CHECK_EQ(world, swimmers[i].result, 0);
	reef_link_close(link);
	return 0;
}

static int swim_main(void *arg)
{
	struct host *host = arg;
	int rc;

	/* A queue of the fibers' own scheduler. */
	reef_queue_close(host->queue);
	rc = reef_queue_open(host->fabric, NULL, &host->queue);
	return rc ? rc : swim_together(host, reef_fiber_sched());
}

static int fibers_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	struct reef_queue *queue;
	int result = -1;

	(void)arg;
	if (world->sim)
		return swim_together(host, reef_fiber_sched());
	CHECK_EQ(world, reef_sched_create(NULL, &sched), 0);
	CHECK_EQ(world, reef_fiber_spawn(sched, swim_main, host, &fiber), 0);
	CHECK_EQ(world, reef_sched_run(sched), 0);
	CHECK_EQ(world, reef_fiber_join(fiber, &result), 0);
	queue = host->queue;
	host->queue = NULL;
	reef_queue_close(queue);
	reef_sched_destroy(sched);
	CHECK_EQ(world, reef_queue_open(host->fabric, NULL, &host->queue), 0);
	return result;
}

static int links_many_fibers_share_a_queue(struct world *world)
{
	uint64_t key;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, fibers_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

/* A second thread, with its own queue, posts to the first one's link. */
static void *swim_thread(void *arg)
{
	struct swimmer *swimmer = arg;
	struct host *host = swimmer->host;

	if (reef_queue_open(host->fabric, NULL, &host->queue))
		return NULL;
	swimmer->result = swim(swimmer);
	reef_queue_close(host->queue);
	return NULL;
}

static int threads_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct swimmer swimmers[3];
	/* Each its own, copied before any runs: a host has its chances, too. */
	struct host hosts[3] = {*host, *host, *host};
	pthread_t threads[3];
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t i;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (i = 0; i < 3; i++) {
		swimmers[i] = (struct swimmer){&hosts[i], remote, i, -1};
		if (i)
			CHECK_EQ(world,
				 pthread_create(&threads[i], NULL, swim_thread,
						&swimmers[i]),
				 0);
	}
	TRY(swim(&swimmers[0]));
	for (i = 1; i < 3; i++) {
		CHECK_EQ(world, pthread_join(threads[i], NULL), 0);
		CHECK_EQ(world, swimmers[i].result, 0);
	}
	reef_link_close(link);
	return 0;
}

static int links_threads_share_a_link(struct world *world)
{
	return with_clients(world, 1, threads_client);
}

/* A queue that is closed takes its links down; they are closed after it. */
static int disorderly_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct host second = *host;
	struct reef_remote *remotes[2];
	struct reef_link *links[2];
	uint32_t i, round;

	(void)arg;
	for (round = 0; round < rounds(world, 3, 20); round++) {
		CHECK_EQ(world,
			 reef_queue_open(host->fabric, NULL, &second.queue), 0);
		for (i = 0; i < 2; i++) {
			CHECK_EQ(world,
				 join_as(&second, SESSION(1 + i), &links[i]),
				 0);
			CHECK_EQ(world,
				 reef_attach(host->queue, links[i],
					     world->board->word[0],
					     &remotes[i]),
				 0);
			CHECK_EQ(world, do_faa(host, remotes[i], 0, 1, NULL),
				 0);
		}
		reef_queue_close(second.queue);
		for (i = 0; i < 2; i++) {
			CHECK_EQ(world, reef_link_status(links[i]),
				 -REEF_ENOLINK);
			CHECK_EQ(world, do_faa(host, remotes[i], 0, 1, NULL),
				 -REEF_ENOLINK);
		}
		reef_detach(host->queue, remotes[0]);
		reef_link_close(links[0]);
		reef_link_close(links[1]);
	}
	return 0;
}

static int links_outlive_their_queue(struct world *world)
{
	uint64_t key;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, disorderly_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

/* --- processes only --- */

/* Somebody else's event loop: arm, poll, and if there was nothing, sleep on the
 * descriptor. */
static int sleep_on_descriptor(struct host *host)
{
	struct pollfd pollfd = {
		.fd = reef_queue_fd(host->queue),
		.events = POLLIN,
	};
	int rc = reef_queue_arm(host->queue);

	CHECK(host->world, rc >= 0);
	if (!rc)
		rc = reef_poll(host->queue);
	if (rc)
		return 0;
	CHECK_EQ(host->world, poll(&pollfd, 1, 20000), 1);
	reef_poll(host->queue);
	return 0;
}

static int guest_in_a_loop(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct note note = {.kind = NOTE_ECHO};
	struct reef_op ops[2];
	struct reef_batch batch;
	struct reef_message *message;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t word = 0;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (note.number = 0; note.number < rounds(world, 0, 500);
	     note.number++) {
		ops[0] = (struct reef_op){
			.kind = REEF_FAA, .remote = remote, .operand = 1};
		ops[1] = (struct reef_op){.kind = REEF_SEND,
					  .local = &note,
					  .length = sizeof(note)};
		batch = (struct reef_batch){
			.link = link, .ops = ops, .count = 2};
		CHECK_EQ(world, post_under_way(host, &batch), 0);
		while (!batch.done)
			TRY(sleep_on_descriptor(host));
		CHECK_EQ(world, batch.status, 0);
		CHECK_EQ(world, ops[0].result, note.number);
		while (reef_receive(host->queue, 0, &message))
			TRY(sleep_on_descriptor(host));
		memcpy(&word, message->bytes + 8, 8);
		CHECK_EQ(world, word, note.number);
		reef_message_free(message);
	}
	reef_link_close(link);
	return 0;
}

static int links_a_foreign_event_loop_sleeps_and_wakes(struct world *world)
{
	return with_clients(world, 1, guest_in_a_loop);
}

static int forking_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t word = 0;
	int pid, status;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		bool right =
			do_faa(host, remote, 0, 1, NULL) == -REEF_EFORKED &&
			reef_poll(host->queue) == -REEF_EFORKED &&
			join_as(host, SESSION(9), &link) == -REEF_EFORKED &&
			reef_attach(host->queue, link, 1, &remote) ==
				-REEF_EFORKED;

		/* Closing there must not disturb the parent. */
		reef_link_close(link);
		reef_queue_close(host->queue);
		reef_fabric_close(host->fabric);
		_exit(right ? 0 : 1);
	}
	CHECK_EQ(world, waitpid(pid, &status, 0), pid);
	CHECK_EQ(world, status, 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, &word), 0);
	CHECK_EQ(world, word, 1);
	reef_link_close(link);
	return 0;
}

static int links_a_forked_child_is_told(struct world *world)
{
	return with_clients(world, 1, forking_client);
}

static int raw_connect(const char *address)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in inet = {.sin_family = AF_INET};
	char text[64] = "";
	unsigned int port = 0;
	int fd;

	if (!strncmp(address, "shm:", 4)) {
		snprintf(local.sun_path, sizeof(local.sun_path), "%s",
			 address + 4);
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(fd, (struct sockaddr *)&local, sizeof(local)))
			return fd;
	} else {
		if (sscanf(strchr(address, ':') + 1, "%63[^:]:%u", text,
			   &port) != 2)
			return -1;
		inet.sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, text, &inet.sin_addr);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(fd, (struct sockaddr *)&inet, sizeof(inet)))
			return fd;
	}
	close(fd);
	return -1;
}

static int garbage_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint8_t bytes[2000];
	struct reef_remote *remote;
	struct reef_link *link;
	int idle[20], fd;
	uint32_t i, length;

	(void)arg;
	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (i = 0; i < 20; i++)
		idle[i] = raw_connect(world->board->address);
	for (i = 0; i < rounds(world, 0, 200); i++) {
		fd = raw_connect(world->board->address);
		CHECK(world, fd >= 0);
		length = (uint32_t)reef_random_between(&host->random, 1,
						       sizeof(bytes));
		reef_random_fill(&host->random, bytes, length);
		if (i % 2) { /* a header that may look right */
			memset(bytes, 0, 16);
			bytes[0] = (uint8_t)(i * 7);
			bytes[1] = (uint8_t)(i % 5);
			bytes[4] = (uint8_t)(i % 20);
		}
		if (write(fd, bytes, length) < 0 && i > 100000)
			return -1;
		close(fd);
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
		reef_poll(host->queue);
	}
	for (i = 0; i < 20; i++)
		if (idle[i] >= 0)
			close(idle[i]);
	reef_link_close(link);
	CHECK_EQ(world, join_as(host, SESSION(2), &link), 0);
	reef_link_close(link);
	return 0;
}

static int links_garbage_harms_nobody(struct world *world)
{
	return with_clients(world, 1, garbage_client);
}

const struct conform_test conform_links[] = {
	{"links_a_wrong_key_is_refused", links_a_wrong_key_is_refused,
	 ANYWHERE},
	{"links_have_the_identity_that_was_proven",
	 links_have_the_identity_that_was_proven, ANYWHERE},
	{"links_a_thousand_at_once", links_a_thousand_at_once, ANYWHERE},
	{"links_past_the_limit_are_refused", links_past_the_limit_are_refused,
	 ANYWHERE},
	{"links_a_dead_client_is_noticed", links_a_dead_client_is_noticed,
	 ANYWHERE},
	{"links_a_stopped_node_goes_on", links_a_stopped_node_goes_on,
	 ANYWHERE},
	{"links_closing_ends_what_is_under_way",
	 links_closing_ends_what_is_under_way, ANYWHERE},
	{"links_a_full_inbox_presses_back", links_a_full_inbox_presses_back,
	 ANYWHERE},
	{"links_sleepers_wake_up", links_sleepers_wake_up, ANYWHERE},
	{"links_many_fibers_share_a_queue", links_many_fibers_share_a_queue,
	 ANYWHERE},
	/* verbs: they end with it. */
	{"links_outlive_their_queue", links_outlive_their_queue,
	 ON_SHM | ON_TCP | ON_SIM},
	{"links_a_foreign_event_loop_sleeps_and_wakes",
	 links_a_foreign_event_loop_sleeps_and_wakes, PROCESSES},
	{"links_threads_share_a_link", links_threads_share_a_link, PROCESSES},
	{"links_a_forked_child_is_told", links_a_forked_child_is_told,
	 PROCESSES},
	{"links_garbage_harms_nobody", links_garbage_harms_nobody, PROCESSES},
	{NULL, NULL, ANYWHERE},
};
